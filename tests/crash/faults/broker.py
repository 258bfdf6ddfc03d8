"""F07 to F13: a broker that forgets, goes away, hangs or is full, and messages that lie."""

import os
import re
import signal
import time
import urllib.request
from collections import Counter

from recovery import tasks
from tests.crash.catalogue import fault
from tests.crash.oracle import rest
from tests.crash.storm import PLANS, Storm, broker, talk_to_broker
from workspaces.wake import wake

RECEIVED = re.compile(r"run_plan\[(\S+)\] received")


@fault("F07 broker flushed")
def flush(storm: Storm) -> None:
    storm.begin()
    for _ in range(3):
        storm.some_time(0.1, 1.0)
        talk_to_broker().flushall()


@fault("F08 broker down")
def broker_down(storm: Storm) -> None:
    """People go on approving, pages go on answering, and all of it is worked off afterwards."""
    storm.begin(count=3)
    web = storm.processes.web(**storm.environment)
    asked = [storm.ask_for(storm.plan(f"s{number}")) for number in range(3, PLANS)]
    broker().stop()
    seconds = []
    for approval in asked:
        began = time.monotonic()
        storm.grant(approval)
        seconds.append(time.monotonic() - began)
        with urllib.request.urlopen(f"{web.url}/accounts/login/", timeout=30) as page:
            assert page.status == 200
    assert min(seconds) < 0.5, seconds  # the quickest, for the machine has other things to do
    storm.hint()
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


@fault("F13 zombie messages")
def zombies(storm: Storm) -> None:
    storm.begin()
    rest(storm.plans, 60)
    before = len(storm.outside.journal())
    storm.hint(times=5)
    wake(tasks.run_plan, 999_999)
    storm.some_time(2, 3)
    assert len(storm.outside.journal()) == before
