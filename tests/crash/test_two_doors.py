"""Law 13: two ingesting processes and two sealing ones at once; the log is valid all the same."""

import json
import os
import random
import threading
import urllib.request

import pytest

from amends.proofs import LogKey, verify
from ledger import audit, logkeys, proofs
from ledger.ids import new_id
from ledger.models import Event, EventKey, Leaf, Run, Unsealed
from tests.crash.oracle import until
from tests.crash.storm import children
from workspaces import keys
from workspaces.models import Agent

pytestmark = pytest.mark.django_db(transaction=True)

RUNS = 60
BATCH = 60
PADDING = "x" * 8_000
"""Batches of this size go to processes of their own, beside each web process."""


def story(number):
    """What an agent says of one run."""
    run, target = f"run_{number}", {"type": "thing", "id": str(number)}
    planned = {"tool": "things.set", "targets": [target], "args": {"padding": PADDING}}
    done = {"attempt": "1", "effects": [{"target": target, "before": {"v": 1}, "after": {"v": 2}}]}
    told = [
        ("run.started", None, {"goal": "help"}),
        ("action.planned", "act_1", planned),
        ("action.started", "act_1", {"attempt": "1"}),
        ("action.succeeded", "act_1", done),
        ("run.completed", None, {}),
    ]
    return [
        {"id": new_id(), "type": kind, "run": run, "action": action, "n": n, "data": data}
        for n, (kind, action, data) in enumerate(told, 1)
    ]


def sent(url, token, events):
    """Post them in batches, and gather what became of each."""
    found = []
    for start in range(0, len(events), BATCH):
        asked = urllib.request.Request(
            f"{url}/api/v1/events",
            json.dumps(events[start : start + BATCH]).encode(),
            {"authorization": f"Bearer {token}", "content-type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            found += [one["status"] for one in json.loads(answer.read())["results"]]
    return found


def at_once(works):
    """Each in a thread of its own, for the processes are elsewhere; what each gave."""
    gave = {}
    threads = [
        threading.Thread(target=lambda name=name, work=work: gave.update({name: work()}))
        for name, work in works.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(gave) == len(works)
    return gave


def test_law_13_two_web_processes_and_two_sealing_ones_leave_one_valid_log(processes, acme, handy):
    with processes.side_by_side():
        doors = [processes.web(AMENDS_INTAKE_PROCESSES="1") for _ in range(2)]
        sealers = [processes.scheduler() for _ in range(2)]
    alone = [len(children(door.pid)) for door in doors]
    other = Agent.objects.create(workspace=acme, name="other")
    told = {handy: [], other: []}
    for number in range(RUNS):
        told[handy if number % 2 else other] += story(number)
    token = {agent: keys.create_key(agent, by=None, name="k")[1] for agent in told}

    works = {}
    for agent, events in told.items():  # both doors hear the same, each in an order of its own
        for door in doors:
            shuffled = random.sample(events, len(events))
            works[agent.name, door.url] = lambda url=door.url, agent=agent, events=shuffled: sent(
                url, token[agent], events
            )
    statuses = at_once(works)

    assert [len(children(door.pid)) - count for door, count in zip(doors, alone, strict=True)] == [
        1,
        1,
    ], "each door has a process of its own for large batches"
    until(lambda: not Unsealed.objects.exists(), 60, "everything is sealed")
    events = Event.objects.filter(workspace=acme)
    said = [one["id"] for found in told.values() for one in found]
    for agent, events_told in told.items():
        both = sorted(
            status for name, found in statuses.items() if agent.name in name for status in found
        )
        half = len(events_told)
        assert both == ["accepted"] * half + ["duplicate"] * half
    assert set(said) <= set(events.values_list("event_id", flat=True))
    assert EventKey.objects.count() == events.count()
    assert {(run.state, run.action_count, run.effect_count) for run in Run.objects.all()} == {
        ("completed", 1, 1)
    }
    assert sorted(Leaf.objects.values_list("index", flat=True)) == list(range(events.count()))
    assert [one.words for one in audit.audit(acme) if not one.ok] == []
    known = [LogKey.parse(text) for text in logkeys.published(acme)]
    assert len(known) == 1
    for event in said:
        proof = proofs.proof_of(acme, event)
        assert proof is not None
        assert verify(proof, known).size <= events.count()
    assert all(process.alive() for process in (*doors, *sealers))
    assert len({os.getpid(), *(process.pid for process in (*doors, *sealers))}) == 5
