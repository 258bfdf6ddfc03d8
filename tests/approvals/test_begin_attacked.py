"""The gate attacked: many clients over real HTTP, two web processes, and changes in the middle."""

import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from approvals import inbox, pauses, versions
from approvals.models import Approval
from ledger.models import Action, Event
from ledger.parsed_events import new_id
from tests.approvals.door import planned

pytestmark = pytest.mark.django_db(transaction=True)

POLICY = {"policies": {"pay.*": {"approval": "MANUAL"}, "crm.*": {"approval": "AUTO"}}}
CLIENTS = 8
BUSY = 503


@pytest.fixture
def doors(processes, key, acme, ada, ben, leads):
    """A client of its own per caller and process: `doors(n)` is the n-th caller's."""
    versions.activate(versions.save(acme, json.dumps(POLICY), by=ada), by=ada)
    webs = [processes.kept_web(), processes.kept_web(AMENDS_ANOTHER="1")]
    headers = {"authorization": f"Bearer {key}"}
    clients = [
        httpx.Client(base_url=webs[n % 2].url, headers=headers, timeout=60)
        for n in range(2 * CLIENTS)
    ]
    yield clients
    for client in clients:
        client.close()


def begin(client, **asked):
    """As a client asks: one that is told to come back does."""
    body = planned(**asked)
    while (answer := client.post("/api/v1/actions/begin", json=body)).status_code == BUSY:
        time.sleep(0.1)
    return answer


def send(client, event_type, run, **data):
    event = {"id": new_id(), "type": event_type, "run": run, "data": data}
    results = client.post("/api/v1/events", json=[event]).json()["results"]
    assert results[0]["status"] == "accepted"


def at_once(works):
    """All together, from behind one barrier; their answers in their order."""
    barrier = threading.Barrier(len(works))

    def one(work):
        barrier.wait(30)
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [answer.result() for answer in [pool.submit(one, work) for work in works]]


def grant(approval, by):
    inbox.grant(approval, by=by, seen=approval.digest, reason="fine")


def test_one_key_in_two_runs_and_a_grant_for_one_of_them(doors, ben):
    for run in ("run_mia", "run_noa"):
        send(doors[0], "run.started", run, on_behalf_of={"id": run, "name": run})
    asks = [
        (lambda c=client, r=run: begin(c, tool="pay.card", run=r, attempt=f"{r}-{id(c)}"))
        for client, run in zip(doors, itertools.cycle(["run_mia", "run_noa", "run_noa"]))
    ]
    assert {one.json()["answer"] for one in at_once(asks)} == {"wait"}
    assert Approval.objects.count() == 2
    grant(Approval.objects.get(run_ref="run_mia"), ben)

    answers = at_once(asks)

    said = [one.json().get("answer", one.status_code) for one in answers]
    assert said.count("proceed") == 1, said
    assert answers[said.index("proceed")].json()["run"] == "run_mia"
    assert set(said) <= {"proceed", "wait", 409}, said
    states = dict(Approval.objects.values_list("run_ref", "state"))
    assert states == {"run_mia": "used", "run_noa": "waiting"}
    assert Event.objects.filter(type="action.started").count() == 1


@pytest.mark.parametrize("tool", ["pay.card", "crm.update"])
def test_one_call_by_many_tries_goes_through_once(doors, ben, tool):
    """A grant is used once, an allowed call goes for one try, and the same try may ask again."""
    if tool == "pay.card":
        begin(doors[0], tool=tool)
        grant(Approval.objects.get(), ben)
    asks = [
        (lambda c=client, n=n: begin(c, tool=tool, attempt=f"try-{n // 2}"))
        for n, client in enumerate(doors)
    ]

    said = at_once(asks)

    went = [one.json() for one in said if one.json().get("answer") == "proceed"]
    assert 1 <= len(went) <= 2
    assert {one["fence"] for one in went} == {1}
    assert {one.status_code for one in said} <= {200, 409}
    assert Event.objects.filter(type="action.started").count() == 1
    assert Action.objects.get().fence == 1


@pytest.mark.parametrize("change", ["pause", "policy", "approver"])
def test_nothing_begins_after_a_change_in_the_middle(doors, acme, ada, ben, finance, change):
    """Every request that was sent after the change had been made is denied, or asked."""
    numbers, over = itertools.count(), threading.Event()
    made: list[float] = []
    sent: list[tuple[float, Any]] = []

    def hammer(client):
        while not over.is_set():
            n, at = next(numbers), time.monotonic()
            answer = begin(client, run=f"run_{n % 5}", action=f"act_{n}", key=f"key-{n}")
            sent.append((at, answer.json()))

    threads = [threading.Thread(target=hammer, args=(client,)) for client in doors]
    for thread in threads:
        thread.start()
    while len(sent) < 60:
        time.sleep(0.01)
    if change == "pause":
        pauses.pause(acme, "tool", "crm.*", by=ada, reason="wrong bookings")
    else:
        word = "DENY" if change == "policy" else "MANUAL"
        stricter = {"policies": {"crm.*": {"approval": word}}}
        versions.activate(versions.save(acme, json.dumps(stricter), by=ada), by=ada)
    made.append(time.monotonic())
    upto = len(sent)
    while len(sent) < upto + 80:
        time.sleep(0.01)
    over.set()
    for thread in threads:
        thread.join(60)

    after = {str(one.get("answer", one)) for at, one in sent if at > made[0]}
    assert after
    assert after <= ({"wait", "denied"} if change == "approver" else {"denied"})
    begun = Action.objects.filter(fence=1).count()
    assert begun == sum(one.get("answer") == "proceed" for _, one in sent)
    assert Approval.objects.filter(state="waiting").count() <= 20


def test_twenty_questions_over_two_processes(doors):
    asks = [
        (
            lambda c=client, n=n: [
                begin(c, tool="pay.card", run=f"r{n}", key=f"k{n}-{i}", action=f"a{i}").json()
                for i in range(3)
            ]
        )
        for n, client in enumerate(doors)
    ]

    said = [one for many in at_once(asks) for one in many]

    assert sum(one["answer"] == "wait" for one in said) == 20
    assert Approval.objects.filter(state="waiting").count() == 20
    assert {one.get("code") for one in said if one["answer"] == "denied"} == {"too_many_open"}
