"""Secrets planted wherever they could come in are found nowhere: not in a dump of the database, not
in what goes over the broker, not in a log, not on a page or in a list's file, in no answer to what
went wrong, no metric, trace, mail or export, and not in what a SIEM and a chat are sent.
"""

import json
import os
import re
import subprocess
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from urllib.error import HTTPError

import pytest
import redis
from django.core.management import call_command

from approvals import notifications
from approvals.models import Approval, DailySummary
from config.local.postgres import way_to_run
from connectors import channels, feeds
from connectors.models import Delivery
from ledger.parsed_events import new_id
from recovery.models import Case
from tests.conftest import started
from tests.connectors.conftest import server_of
from tests.connectors.test_channels import SECRET as SIGNING_SECRET
from tests.crash.oracle import until
from tests.people import logged_in
from tests.ports import answering
from tests.recovery.cases import conftest as cases
from tests.recovery.cases.cast import submitted
from workspaces import keys, teams

pytestmark = pytest.mark.django_db(transaction=True)

acme, agent, policy = cases.acme, cases.agent, cases.policy
leads, ben, cleo, operators, ada = cases.leads, cases.ben, cases.cleo, cases.operators, cases.ada
shop, shop_url, shop_connection = cases.shop, cases.shop_url, cases.shop_connection
shop_allowed = cases.shop_allowed
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
PAGES_MAX = 250
LISTS = (
    "queue/", "approvals/?view=all", "approvals/history/", "approvals/grants/", "approvals/health/",
    "runs/", "audit/", "ledger/", "residue/", "causes/", "corrections/", "tools/", "bulk/",
    "policies/lists/", "policies/reported/", "connectors/", "channels/", "settings/members/",
    "settings/keys/", "settings/keys/?table=your-tokens", "policies/?table=pauses", "views/",
    "policies/?table=policy-versions", "channels/?table=channels", "insights/", "settings/kept/",
    "settings/directory/", "settings/signing-keys/",
)  # fmt: skip
WRONG = ("nowhere/", "cases/999999/", "runs/none/", "ledger/none/", "queue/?q=is:nothing")


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
    status, text = asks(url, token, "events", events)
    assert status == 200, text
    assert {one["status"] for one in json.loads(text)["results"]} == {"accepted"}


def asks(url, token, path, body=None):
    """What the API answers, in words."""
    content = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(
        f"{url}/api/v1/{path}",
        content,
        {"authorization": f"Bearer {token}", "content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def deletes(url, token, **more):
    """A call for which people are asked, with secrets among its arguments."""
    args = secret("an argument") | secret("a masked path") | secret("a hidden card")
    data = {"tool": "repos.delete", "targets": [], "args": args, "key": "k-9"}
    asked = {"id": new_id(), "type": "action.planned", "run": "run_9", "action": "a9", "n": 1}
    return asks(url, token, "actions/begin", asked | {"attempt": "1", "data": data} | more)


def refusals(url, token):
    """What is said to whoever gets it wrong: it quotes no value."""
    planted = secret("an argument") | secret("a card") | {"canary-name": "canary-value"}
    return {
        "a key for other arguments": deletes(url, token, data={
            "tool": "repos.delete", "targets": [], "args": planted, "key": "k-9"}),
        "a call of no form": deletes(url, token, data=planted),
        "a key that is masked": deletes(url, token, data={
            "tool": "repos.delete", "targets": [], "args": {}, "key": "4242 4242 4242 4242"}),
        "an event of no form": asks(url, token, "events", [planted]),
        "no batch": asks(url, token, "events", planted),
        "nobody's run": asks(url, token, "runs/canary-run/directive"),
        "a wrong key": asks(url, "ak_canary-key", "agent/cases"),
    }  # fmt: skip


@pytest.fixture
def elsewhere():
    """Whoever the desk tells of itself: a collector of traces, a SIEM, a chat."""
    heard = []

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            heard.append((self.path, body.decode(errors="replace")))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

    with answering(Listener) as url:
        yield SimpleNamespace(heard=heard, url=url)


@pytest.fixture
def told_to(acme, ada, elsewhere, outbound):
    outbound.append("127.0.0.1")
    signed = {"url": f"{elsewhere.url}/siem", "secret": SIGNING_SECRET}
    channels.create(acme, "siem", "webhook", by=ada, secret=signed, subjects=[feeds.SUBJECT])
    url = {"url": f"{elsewhere.url}/chat"}
    channels.create(acme, "chat", "slack", by=ada, secret=url, subjects=["approval.*", "case.*"])
    return {
        "AMENDS_TRACES": "1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": elsewhere.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }


def exported(folder):
    """Every file that a workspace leaves with."""
    call_command("export_workspace", "acme", folder)
    files = [one for one in folder.rglob("*") if one.is_file()]
    assert {"log.ndjson", "head.txt"} <= {one.name for one in files}
    return {f"the export's {one.name}": one.read_text(errors="replace") for one in files}


def summed_up(acme, ben):
    """The mail a day, and whatever else was written to people."""
    for hour in range(24):
        notifications.choose_hour(acme, ben, hour)
        DailySummary.objects.update(written_for="2020-01-01")
        notifications.write_summaries()
    mails = [str(one.message) for one in Delivery.objects.filter(
        subject=notifications.SUMMARY_SUBJECT)]  # fmt: skip
    assert mails
    return "".join(mails)


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
    waiting += [f"/w/acme/{one}" for one in (*LISTS, *WRONG)]
    for kind in ("csv", "json"):
        waiting += [f"/w/acme/{one}{'&' if '?' in one else '?'}format={kind}" for one in LISTS]
    seen: dict[str, str] = {}
    while waiting and len(seen) < PAGES_MAX:
        path = waiting.pop(0)
        if path in seen:
            continue
        answer = client.get(path, follow=True)
        content = b"".join(answer.streaming_content) if answer.streaming else answer.content
        seen[path] = content.decode()
        found = re.findall(r'href="(/w/acme/[^"#]*)"', seen[path])
        waiting += [one.replace("&amp;", "&") for one in dict.fromkeys(found)]
    seen["revealed"] = client.post("/w/acme/reveal/run_1/", follow=True).content.decode()
    return seen


def test_planted_secrets_are_found_nowhere(
    processes, overheard, tmp_path, acme, agent, policy, ada, ben, shop, shop_url, ticket,
    elsewhere, told_to,
):  # fmt: skip
    acme.mask = ["args.pin"]
    acme.save()
    teams.add(
        teams.create(acme, "auditors", by=None, may=["view_sensitive", "administer"]), ada, by=None
    )
    shop.execute("UPDATE tickets SET priority = 'high'")
    token = keys.create_key(agent, by=None, name="k")[1]
    environment = told_to | {
        "AMENDS_OUTBOUND_ALLOW": f"{server_of(shop_url)['host']},127.0.0.1",
        "AMENDS_LOG_LEVEL": "DEBUG",
    }
    running = [getattr(processes, name)(**environment) for name in ("web", "worker", "scheduler")]
    running.append(processes.sweeper(**environment))
    url = running[0].url

    send(url, token, story(ticket))
    assert deletes(url, token)[0] == 200
    until(Case.objects.exists, 30, "the case is open")
    case = Case.objects.get(run__run="run_1")
    submitted(case, ada, reason="it broke")
    read = "SELECT priority FROM tickets"
    until(lambda: shop.execute(read).fetchone()[0] == "normal", 60, "the ticket is put back")
    said = refusals(url, token)
    assert {status for status, _ in said.values()} <= {200, 400, 401, 404, 422}
    until(lambda: {"/siem", "/chat", "/v1/traces"} <= {path for path, _ in elsewhere.heard},
          60, "whoever is told has heard")  # fmt: skip

    client = logged_in(ada)
    pages = crawled(client)
    assert len(pages) > 25
    assert any("raised" in page for page in pages.values()), "payloads are shown"
    assert Approval.objects.filter(state="waiting").exists()
    with urllib.request.urlopen(f"{url}/metrics", timeout=20) as answer:
        metrics = answer.read().decode()
    places = pages | {f"to {path}": body for path, body in elsewhere.heard}
    places |= {
        "the dump": dumped(),
        "the broker": "".join(overheard) + kept_by_the_broker(),
        "the metrics": metrics,
        "mails": summed_up(acme, ben),
        **exported(tmp_path / "left"),
        **{f"the answer to {what}": text for what, (_, text) in said.items()},
        **{f"the log of {one.name}": one.said() for one in running},
    }
    for path in {path for path, _ in elsewhere.heard}:  # all that came, not the last of it alone
        places[f"to {path}"] = "".join(body for there, body in elsewhere.heard if there == path)
    assert "connection.secret_set" in places["the dump"]
    assert "run_plan" in places["the broker"]
    assert "amends_" in metrics
    assert [
        (place, canary)
        for place, text in places.items()
        for canary in [*CANARIES, SIGNING_SECRET]
        if canary in text.replace(str(tmp_path), "")
    ] == []
