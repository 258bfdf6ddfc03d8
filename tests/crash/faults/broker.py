"""F07 to F13: a broker that forgets, goes away, hangs or is full, and messages that lie."""

import os
import signal
from collections import Counter
from functools import partial

from recovery import tasks
from recovery.engine import plan_lifecycle
from tests.crash.catalogue import fault
from tests.crash.oracle import rest, until
from tests.crash.person import Person
from tests.crash.storm import PLANS, RECEIVED, Storm, broker, talk_to_broker
from workspaces.wakeups import wake

QUEUED = 500
COPIES = 200
NOBODYS = 999_999
# Whoever waits for a broker waits longer than this, on however busy a machine.
CLICK_SECONDS_MAX = 2
PAGES = ("queue/", "approvals/", "runs/")


@fault("F07 broker flushed")
def flush(storm: Storm) -> None:
    storm.begin()
    for _ in range(3):
        storm.some_time(0.1, 1.0)
        talk_to_broker().flushall()


@fault("F07 five hundred messages flushed")
def flush_many(storm: Storm) -> None:
    """Each for a plan of its own; two sweeps find all of them."""
    storm.begin(count=0, sweeps=False)
    storm.workers.pop().stop()
    storm.plans += [storm.plan(f"s{number}", 1) for number in range(QUEUED)]
    storm.hint()
    talk = talk_to_broker()
    assert talk.llen("engine") == QUEUED
    talk.flushall()
    storm.worker()
    assert tasks.sweep() > 0
    storm.some_time(6, 7)
    tasks.sweep()
    rest(storm.plans)


@fault("F08 broker down")
def broker_down(storm: Storm) -> None:
    """People go on approving, pages go on answering, and all of it is worked off afterwards."""
    storm.begin(count=3)
    web = storm.processes.web(**storm.environment)
    ben = Person(storm.people.ben, web.url, storm.connection.workspace)
    asked = [storm.ask_for(partial(storm.plan, f"s{number}")) for number in range(3, PLANS)]
    for path in PAGES:  # each has been shown before, as in a process that has been up for a while
        assert ben.opens(path) == 200
    ben.approves(asked.pop())
    broker().stop()
    for approval in asked:
        assert ben.approves(approval) < CLICK_SECONDS_MAX
        for path in PAGES:
            assert ben.opens(path) == 200
    storm.hint()
    storm.some_time(4, 8)
    broker().start()


@fault("F09 broker half-open")
def broker_stops_listening(storm: Storm) -> None:
    """The same workers take what is said to them afterwards."""
    storm.begin(count=4)
    os.kill(broker().pid, signal.SIGSTOP)
    storm.some_time(3, 8)
    os.kill(broker().pid, signal.SIGCONT)
    rest(storm.plans)
    before = storm.messages()
    storm.plans += [storm.plan(f"s{number}") for number in range(4, PLANS)]
    storm.hint()
    rest(storm.plans)
    assert storm.messages() > before
    assert storm.workers[0].alive()


@fault("F10 broker out of memory")
def broker_full(storm: Storm) -> None:
    """Workers go on by themselves when there is room again."""
    storm.begin(count=3)
    talk = talk_to_broker()
    talk.config_set("maxmemory", "1mb")
    storm.plans += [storm.plan(f"s{number}") for number in range(3, PLANS)]
    storm.hint()
    storm.some_time(10, 14)
    talk.config_set("maxmemory", "256mb")
    rest(storm.plans)
    assert storm.workers[0].alive()


@fault("F11 duplicate storm")
def duplicates(storm: Storm) -> None:
    """Two hundred copies for eight pool processes: one claim wins, and the others do nothing."""
    for number in range(PLANS):
        storm.outside.mischief(f"s{number}2", sleep_before=0.3)
    storm.begin(count=0)
    with storm.processes.side_by_side():
        storm.worker()
        storm.workers.append(storm.processes.worker(concurrency=3, **storm.environment))
    storm.plans += [storm.plan(f"s{number}") for number in range(PLANS)]
    for _ in range(COPIES):
        wake(tasks.run_plan, storm.plans[0].pk)
    storm.hint()
    rest(storm.plans)
    assert storm.claimed_once()


@fault("F12 copies while it runs")
def copies(storm: Storm) -> None:
    for number in range(PLANS):
        storm.outside.mischief(f"s{number}2", sleep_before=0.8)
    storm.begin()
    for _ in range(5):
        storm.some_time(0.1, 0.4)
        storm.hint()
    rest(storm.plans)
    assert storm.claimed_once()


@fault("F12 given out again while it runs")
def redelivered(storm: Storm) -> None:
    """A second without an end, and the broker gives the message to another worker as well."""
    for number in range(PLANS):
        for thing in range(3):
            storm.outside.mischief(f"s{number}{thing}", sleep_before=0.6)
    storm.begin(AMENDS_REDELIVER_SECONDS="1")
    storm.worker()
    rest(storm.plans)
    received = [one for worker in storm.workers for one in RECEIVED.findall(worker.said())]
    assert max(Counter(received).values()) > 1, "no message was given out again"
    assert storm.claimed_once()


@fault("F13 zombie messages")
def zombies(storm: Storm) -> None:
    """For what is done, what was stopped, what waits for its yes, and what never was."""
    storm.begin(count=4)
    rest(storm.plans, 60)
    stopped = storm.plan("s4")
    plan_lifecycle.stop(stopped, by=storm.people.ada)
    storm.plans.append(stopped)
    rest([stopped], 60)  # a worker may have had it in hand when it was stopped
    waiting = storm.ask_for(lambda: storm.plan("s5"))
    before, messages = storm.everything(), storm.messages()
    storm.hint(times=5)
    wake(tasks.run_plan, NOBODYS)
    until(lambda: storm.messages() >= messages + 5 * PLANS + 1, 30, "every message taken")
    storm.some_time(2, 3)
    assert storm.everything() == before
    storm.grant(waiting)
