"""Several doors at once: the same events, the same runs, and two sealers."""

import json
import random
import threading

import httpx
import psycopg
import pytest
from django.conf import settings

from amends.protocol.proofs import LogKey, verify
from ledger import audit, intake, logkeys, proofs, sealer
from ledger.models import Action, Event, EventKey, Leaf, Run, TreeHead, Unsealed
from tests.ledger.conftest import bearer, event, parsed_event
from tests.locks import at_once
from tests.servers import as_runtime

pytestmark = pytest.mark.django_db(transaction=True)
DOORS = 4


def record(actor, said):
    """What the door does: record, commit, and once more where PostgreSQL saw a deadlock."""
    for _ in range(intake.TRIES_MAX):
        try:
            with psycopg.connect(as_runtime(settings.DATABASE_URL)) as connection:
                return intake.record(connection, actor, said).results
        except psycopg.errors.DeadlockDetected:
            continue
    raise AssertionError("no way through")


@pytest.fixture
def events(actor):
    found = []
    for n in range(20):
        run = f"run_{n}"
        found += [
            event("run.started", run=run),
            event("action.planned", run=run, action="a", data={"tool": "t", "targets": [
                {"type": "x", "id": str(n)}]}),
            event("action.succeeded", run=run, action="a", data={"attempt": "1"}),
        ]  # fmt: skip
    return [parsed_event(actor, one) for one in found]


def test_the_same_batch_through_four_doors_is_kept_once(actor, events):
    answers = []

    def send():
        shuffled = random.sample(events, len(events))
        answers.extend(record(actor, shuffled))

    at_once(*[send] * DOORS)

    statuses = [answer.status for answer in answers]
    assert statuses.count("accepted") == len(events)
    assert statuses.count("duplicate") == (DOORS - 1) * len(events)
    assert Event.objects.filter(actor_kind="agent").count() == len(events)
    assert EventKey.objects.count() == Event.objects.count()
    assert (Run.objects.count(), Action.objects.count()) == (20, 20)
    assert {run.action_count for run in Run.objects.all()} == {1}
    assert {run.effect_count for run in Run.objects.all()} == {1}


def test_parts_of_one_action_through_four_doors_add_up(actor, events):
    parts = [events[n::DOORS] for n in range(DOORS)]
    at_once(*[lambda part=part: record(actor, part) for part in parts])

    assert {action.state for action in Action.objects.all()} == {"succeeded"}
    assert {(run.action_count, run.effect_count) for run in Run.objects.all()} == {(1, 1)}


def test_two_doors_and_two_sealers_in_threads_leave_one_valid_log(actor, northwind, events):
    stop = threading.Event()

    def send(part):
        for n in range(0, len(part), 3):
            record(actor, part[n : n + 3])

    def seal():
        while not stop.is_set() or Unsealed.objects.exists():
            sealer.seal_all()

    def send_and_stop():
        send(events[1::2])
        stop.set()

    at_once(lambda: send(events[::2]), send_and_stop, seal, seal)
    sealer.seal_all()

    assert_one_valid_log(northwind)


def assert_one_valid_log(workspace):
    """Every event has its one place, is proven there, and each head grew out of the one before."""
    size = Event.objects.count()
    assert sorted(Leaf.objects.values_list("index", flat=True)) == list(range(size))
    keys = [LogKey.parse(text) for text in logkeys.published(workspace)]
    for key in EventKey.objects.all():
        proof = proofs.proof_of(workspace, key.event_id)
        assert proof is not None
        assert verify(proof, keys).size == size
    assert [finding for finding in audit.audit_all(workspace) if not finding.ok] == []
    assert {head.origin for head in TreeHead.objects.all()} == {keys[0].name}


LARGE = "x" * 40_000
"""Two events with it make a batch that a web process gives to a process or thread of its own."""


def test_law_13_two_processes_at_once_leave_one_valid_log(processes, northwind, token, actor):
    """Two web processes take in the same and different batches, while two schedulers seal."""
    with processes.side_by_side():
        doors = [processes.web(), processes.web()]
        processes.scheduler(), processes.scheduler()
    batches = [
        [event("run.started", run=f"run_{n}", data={"request": LARGE if n % 4 == 0 else "Go"}),
         event("action.planned", run=f"run_{n}", action="a", data={"tool": "t"}),
         event("action.planned", run="shared", action=f"a{n}", data={"tool": "t"}),
         event("run.completed", run=f"run_{n}", data={"summary": LARGE if n % 4 == 0 else "Done"})]
        for n in range(24)
    ]  # fmt: skip
    answers: list[str] = []

    def send(door, mine):
        with httpx.Client(base_url=door.url, headers=bearer(token), timeout=30) as client:
            for batch in mine:
                answer = client.post("/api/v1/events", content=json.dumps(batch))
                assert answer.status_code == 200, answer.text
                answers.extend(result["status"] for result in answer.json()["results"])

    at_once(
        lambda: send(doors[0], batches),
        lambda: send(doors[1], batches[::-1]),
        lambda: send(doors[0], batches[1::2]),
        lambda: send(doors[1], batches[::2]),
    )
    doors[0].wait_until(lambda: not Unsealed.objects.exists())

    assert (answers.count("accepted"), answers.count("duplicate")) == (96, 192)
    assert Event.objects.filter(actor_kind="agent").count() == 96
    assert Run.objects.get(run="shared").action_count == 24
    assert TreeHead.objects.count() > 1
    assert_one_valid_log(northwind)
