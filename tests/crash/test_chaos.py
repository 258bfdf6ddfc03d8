"""Every fault of the list, seeded: `make chaos`. The outside world's journal is the oracle.

Each fault breaks one thing while six plans of mixed operations run in real processes; afterwards
the invariants must hold, and the run prints a table.
"""

import os
import signal
import threading
import time
from collections.abc import Callable

import psycopg
import pytest

from recovery import tasks
from tests.conftest import started
from tests.crash.oracle import at_rest, until
from tests.crash.storm import (
    PLANS,
    Storm,
    broker,
    make_read_only,
    restart_database,
    stopped,
    talk_to_broker,
)
from tests.recovery.engine.desk import plan_for
from workspaces.wake import wake

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.chaos]

FAULTS: dict[str, Callable[[Storm], None]] = {}


def fault(name: str) -> Callable[[Callable[[Storm], None]], Callable[[Storm], None]]:
    def register(work: Callable[[Storm], None]) -> Callable[[Storm], None]:
        FAULTS[name] = work
        return work

    return register


def killed_at(point: str) -> Callable[[Storm], None]:
    def work(storm: Storm) -> None:
        nth = sorted(storm.chance.sample(range(1, 15), 3))
        storm.begin(FAULT=f"{point}:kill:{nth[0]}")

    return work


for _name, _point in {
    "F01 killed after claim": "claimed",
    "F02 killed after intent": "intended",
    "F04 killed after the answer": "answered",
    "F04 killed while settling": "settling",
    "F02 killed while intending": "intending",
}.items():
    FAULTS[_name] = killed_at(_point)


@fault("F03 killed between effect and answer")
def kill_after_sending(storm: Storm) -> None:
    for number in range(PLANS):
        storm.outside.mischief(f"s{number}{storm.chance.randrange(3)}", sleep_after=0.8)
    storm.begin()
    until(lambda: len(storm.outside.journal()) > 2, 20, "effects")
    storm.workers[0].kill()
    storm.worker()


@fault("F05 whole workers killed")
def kill_whole_workers(storm: Storm) -> None:
    storm.begin()
    for _ in range(2):
        storm.some_time(0.2, 1.5)
        storm.workers[-1].kill()
        storm.worker()


@fault("F06 poison step")
def poison(storm: Storm) -> None:
    poisoned = plan_for(storm.make("poison"), storm.connection)
    storm.begin(count=3)
    wake(tasks.run_plan, poisoned.pk)
    until(lambda: at_rest(storm.plans), 60, "the others go on")
    until(lambda: poisoned.steps.filter(state="needs_human").count() == 3, 200, "people are asked")


@fault("F07 broker flushed")
def flush(storm: Storm) -> None:
    storm.begin()
    for _ in range(3):
        storm.some_time(0.1, 1.0)
        talk_to_broker().flushall()


@fault("F08 broker down")
def broker_down(storm: Storm) -> None:
    storm.begin(count=3)
    broker().stop()
    began = time.monotonic()
    storm.plans += [storm.plan(f"s{number}") for number in range(3, PLANS)]
    storm.hint()
    assert time.monotonic() - began < 5
    storm.some_time(4, 8)
    broker().start()


@fault("F09 broker half-open")
def broker_stops_listening(storm: Storm) -> None:
    storm.begin()
    os.kill(broker().pid, signal.SIGSTOP)
    storm.some_time(3, 8)
    os.kill(broker().pid, signal.SIGCONT)


@fault("F10 broker out of memory")
def broker_full(storm: Storm) -> None:
    """A worker that meets a full broker may end; whoever supervises it starts another."""
    storm.begin(count=3)
    talk = talk_to_broker()
    talk.config_set("maxmemory", "1mb")
    storm.plans += [storm.plan(f"s{number}") for number in range(3, PLANS)]
    storm.hint()
    storm.some_time(10, 14)
    talk.config_set("maxmemory", "256mb")
    if not storm.workers[0].alive():
        storm.worker()


@fault("F11 duplicate storm")
def duplicates(storm: Storm) -> None:
    storm.begin()
    storm.worker()
    storm.hint(times=30)


@fault("F12 copies while it runs")
def copies(storm: Storm) -> None:
    for number in range(PLANS):
        storm.outside.mischief(f"s{number}2", sleep_before=0.8)
    storm.begin()
    for _ in range(5):
        storm.some_time(0.1, 0.4)
        storm.hint()


@fault("F13 zombie messages")
def zombies(storm: Storm) -> None:
    storm.begin()
    until(lambda: at_rest(storm.plans), 60, "done")
    before = len(storm.outside.journal())
    storm.hint(times=5)
    wake(tasks.run_plan, 999_999)
    storm.some_time(2, 3)
    assert len(storm.outside.journal()) == before


@fault("F14 database restarts")
def restarts(storm: Storm) -> None:
    storm.begin()
    for _ in range(3):
        storm.some_time(1, 4)
        restart_database()


@fault("F15 commit of an intent in doubt")
def doubt(storm: Storm) -> None:
    storm.begin(FAULT=f"intending:cut:{storm.chance.randrange(1, 9)},settling:cut:2")


@fault("F17 database read-only")
def read_only(storm: Storm) -> None:
    storm.begin()
    storm.some_time(0.2, 1)
    make_read_only(really=True)
    storm.some_time(1, 2)
    before = len(storm.outside.journal())
    storm.some_time(2, 3)
    assert len(storm.outside.journal()) == before
    make_read_only(really=False)


@fault("F18 a forgotten transaction")
def forgotten(storm: Storm) -> None:
    storm.begin()
    url = started["postgres"].url(started["database"])
    with psycopg.connect(url) as idle:
        step = storm.plans[0].steps.get(position=2)
        idle.execute("SELECT FROM recovery_step WHERE id = %s FOR UPDATE", [step.pk])
        until(lambda: at_rest(storm.plans[1:]), 60, "the others go on")


@fault("F19 stopped past the lease")
def stop_past_lease(storm: Storm) -> None:
    storm.begin(FAULT=f"checked:stop:{storm.chance.randrange(1, 6)},intended:stop:7")
    storm.worker()
    until(lambda: any(stopped(worker) for worker in storm.workers), 30, "a worker stops")
    until(lambda: at_rest(storm.plans), 90, "taken over")
    for pid in {pid for worker in storm.workers for pid in stopped(worker)}:
        os.kill(pid, signal.SIGCONT)
    storm.some_time(2, 3)


@fault("F21 F22 lost answers")
def lost(storm: Storm) -> None:
    storm.lose_answers(0.6)
    storm.begin()


@fault("F24 drift")
def drift(storm: Storm) -> None:
    storm.begin(count=0)
    storm.plans += [storm.plan(f"s{number}") for number in range(PLANS)]
    changed = [f"s{storm.chance.randrange(PLANS)}{number}" for number in range(3)]
    storm.outside.seed({name: {"v": 77} for name in changed})
    storm.hint()
    until(lambda: at_rest(storm.plans), 60, "done")
    assert not set(changed) & set(storm.outside.effects())


@fault("F25 rolling deploy")
def rolling(storm: Storm) -> None:
    storm.lose_answers(0.3)
    storm.begin()
    storm.sweepers.append(storm.processes.sweeper(**storm.environment))
    for _ in range(3):
        storm.some_time(1, 3)
        old = storm.workers.pop()
        threading.Thread(target=old.stop).start()
        storm.worker()


@pytest.mark.parametrize("name", FAULTS)
def test_the_invariants_hold_after(name, seed, storm, table):
    began = time.monotonic()

    FAULTS[name](storm)
    broken = storm.end()

    table(name, seed, storm, broken, time.monotonic() - began)
    assert broken == []
