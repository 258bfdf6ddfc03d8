"""Secrets planted wherever they could come in are found nowhere: not in a dump of the database, not
in what goes over the broker, not in a log, not on a page.
"""

import json
import os
import re
import subprocess
import threading
import urllib.request

import pytest
import redis

from config.local.postgres import way_to_run
from ledger.append.events import new_id
from recovery.models import Case
from tests.conftest import started
from tests.connectors.conftest import server_of
from tests.crash.oracle import until
from tests.people import logged_in
from tests.recovery.cases import conftest as cases
from tests.recovery.cases.cast import submitted
from workspaces import keys, teams

pytestmark = pytest.mark.django_db(transaction=True)

acme, agent, policy = cases.acme, cases.agent, cases.policy
leads, ben, cleo, operators, ada = cases.leads, cases.ben, cases.cleo, cases.operators, cases.ada
shop, shop_url, shop_connection = cases.shop, cases.shop_url, cases.shop_connection
outbound, ticket = cases.outbound, cases.ticket

CREDENTIAL = "canary-7Q"  # of the shop's connection
SECRETS = {
    "an argument": ("password", "canary-argument"),
    "a snapshot": ("api_key", "canary-snapshot"),
    "a result": ("session_token", "canary-result"),
    "a state": ("authorization", "canary-state"),
    "a masked path": ("pin", "canary-masked"),
    "a card": ("paid_with", "4242 4242 4242 4242"),
    "a hidden card": ("note", "the card was 5555-5555-5555-4444, thanks"),
}
CANARIES = [CREDENTIAL, "canary-", "4242 4242", "4242424242424242", "5555-5555", "5555555555554444"]
PAGES_MAX = 150


def secret(what):
    return dict([SECRETS[what]])


def story(ticket):
    """A run that raises a ticket, with secrets in every place that an agent can write to."""
    target = {"type": "ticket", "id": "main/T-182"}
    high = ticket | {"priority": "high"}
    planned = {
        "tool": "tickets.update",
        "targets": [target],
        "key": "k-1",
        "args": {"to": "high"}
        | secret("an argument")
        | secret("a masked path")
        | secret("a card")
        | secret("a hidden card"),
    }
    succeeded = {"attempt": "1", "result": secret("a result")}
    change = {"target": target, "before": ticket, "after": high}
    noted = {"type": "note", "id": "N-1"}
    leaf = {"target": noted, "before": None, "after": secret("a snapshot") | {"text": "raised"}}
    begun = [{"tool": "notes.add", "targets": [noted], "key": "k-2", "args": {}}, {"attempt": "1"}]
    return [
        ("run.started", None, {"request": "Raise T-182"}),
        ("run.checkpoint", None, {"name": "begun", "state": secret("a state")}),
        ("action.planned", "a1", planned),
        ("action.started", "a1", {"attempt": "1"}),
        ("action.succeeded", "a1", succeeded | {"effects": [change]}),
        ("action.planned", "a2", begun[0]),
        ("action.started", "a2", begun[1]),
        ("action.succeeded", "a2", {"attempt": "1", "effects": [leaf]}),
        ("run.failed", None, {"error": {"type": "Broken", "message": "it broke"}}),
    ]


def send(url, token, told):
    events = [
        {"id": new_id(), "type": kind, "run": "run_1", "action": action, "n": n, "data": data}
        for n, (kind, action, data) in enumerate(told, 1)
    ]
    asked = urllib.request.Request(
        f"{url}/api/v1/events",
        json.dumps(events).encode(),
        {"authorization": f"Bearer {token}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=20) as answer:
        assert {one["status"] for one in json.loads(answer.read())["results"]} == {"accepted"}


@pytest.fixture
def overheard():
    """Everything that is said to the broker meanwhile, and at the end what it still holds."""
    heard, listening, over = [], threading.Event(), threading.Event()
    url = started["valkey"].url

    def listen():
        with redis.Redis.from_url(url, socket_timeout=None) as client, client.monitor() as monitor:
            listening.set()
            while not over.is_set():
                heard.append(str(monitor.next_command()))

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    assert listening.wait(10)
    yield heard
    over.set()
    with redis.Redis.from_url(url) as client:
        client.ping()  # the last thing that it hears
    thread.join(10)


def kept_by_the_broker():
    with redis.Redis.from_url(started["valkey"].url) as client:
        return "".join(f"{name}{client.dump(name)}" for name in client.scan_iter(count=1000))


def dumped():
    """As somebody would who stole a back-up."""
    program = way_to_run(started["folder"]).binaries / "pg_dump"
    done = subprocess.run(
        [str(program), os.environ["DATABASE_URL"]], capture_output=True, check=True, timeout=120
    )
    return done.stdout.decode()


def crawled(client):
    """Every page that links lead to, payloads revealed."""
    waiting = ["/w/acme/queue/", "/w/acme/settings/", "/w/acme/runs/run_1/"]
    seen: dict[str, str] = {}
    while waiting and len(seen) < PAGES_MAX:
        path = waiting.pop(0)
        if path in seen:
            continue
        answer = client.get(path, follow=True)
        seen[path] = answer.content.decode() if not answer.streaming else ""
        found = re.findall(r'href="(/w/acme/[^"#]*)"', seen[path])
        waiting += [one.replace("&amp;", "&") for one in dict.fromkeys(found)]
    seen["revealed"] = client.post("/w/acme/runs/run_1/reveal/", follow=True).content.decode()
    return seen


def test_planted_secrets_are_found_nowhere(
    processes, overheard, tmp_path, acme, agent, policy, ada, shop, shop_url, ticket
):
    acme.mask = ["args.pin"]
    acme.save()
    teams.add(
        teams.create(acme, "auditors", by=None, may=["view_sensitive", "administer"]), ada, by=None
    )
    shop.execute("UPDATE tickets SET priority = 'high'")
    token = keys.create_key(agent, by=None, name="k")[1]
    environment = {
        "AMENDS_OUTBOUND_ALLOW": server_of(shop_url)["host"],
        "AMENDS_LOG_LEVEL": "DEBUG",
    }
    running = [getattr(processes, name)(**environment) for name in ("web", "worker", "scheduler")]
    running.append(processes.sweeper(**environment))

    send(running[0].url, token, story(ticket))
    until(Case.objects.exists, 30, "the case is open")
    case = Case.objects.get()
    submitted(case, ada, reason="it broke")
    read = "SELECT priority FROM tickets"
    until(lambda: shop.execute(read).fetchone()[0] == "normal", 60, "the ticket is put back")

    client = logged_in(ada)
    pages = crawled(client)
    assert len(pages) > 25
    assert any("raised" in page for page in pages.values()), "payloads are shown"
    places = pages | {
        "the dump": dumped(),
        "the broker": "".join(overheard) + kept_by_the_broker(),
        **{f"the log of {one.name}": one.said() for one in running},
    }
    assert "connection.secret_set" in places["the dump"]
    assert "run_plan" in places["the broker"]
    assert [
        (place, canary)
        for place, text in places.items()
        for canary in CANARIES
        if canary in text.replace(str(tmp_path), "")
    ] == []
