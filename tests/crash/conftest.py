"""Processes that die at the worst moment, against an outside world that remembers what was done."""

import contextlib
import os
import random
import signal
from types import SimpleNamespace

import pytest

from config.local.places import ROOT
from tests.outside.world import DIST
from tests.recovery.engine.conftest import (  # noqa: F401 - the same cast
    acme,
    ada,
    ben,
    handy,
    installed,
    outside,
    reachable,
    service,
    world,
)


@pytest.fixture
def environment(tmp_path):
    """What the product's processes need to know of this test."""
    faults = tmp_path / "faults"
    faults.mkdir()
    return {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "sdk"), str(DIST)]),
        "AMENDS_OUTBOUND_ALLOW": "127.0.0.1",
        "FAULT_FOLDER": str(faults),
        "OUTSIDE_LIMIT_SECONDS": "1",  # answers that come too late are among the faults
    }


@pytest.fixture
def things(handy, outside):  # noqa: F811 - fixtures
    """Make cases: each is a run that changed so many things, all of its own, and broke."""
    from tests.recovery.engine import desk

    def make(name, count=3):
        changes = {f"{name}{number}": ({"v": 1}, {"v": 2}) for number in range(count)}
        outside.seed({thing: {"v": 2} for thing in changes})
        return desk.case_of(desk.run_that(handy, f"run_{name}", changes))

    return make


ROWS: list[str] = []


def pytest_addoption(parser):
    parser.addoption("--seed", action="append", type=int, help="Seeds of the chaos (1, 2 and 3)")


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        usual = [1, 2, 3] if metafunc.definition.get_closest_marker("chaos") else [1]
        metafunc.parametrize("seed", metafunc.config.getoption("--seed") or usual)


@pytest.fixture
def storm(processes, environment, things, world, outside, seed, request, handy, ada, ben):  # noqa: F811
    """Six plans in real processes, and chance from a seed and the fault's name."""
    from tests.crash.storm import Storm

    chance = random.Random(f"{seed} {request.node.name}")  # noqa: S311 - a test's dice
    people = SimpleNamespace(ada=ada, ben=ben, handy=handy)
    yield Storm(processes, environment, outside, things, world, chance, seed, people)
    set_right()


def set_right():
    """Whatever a fault left behind must not break the next."""
    from django.db import connection, connections

    from tests.conftest import started
    from tests.crash import storm
    from tests.crash.faults.database import ROOM_SQL

    postgres = started.get("postgres")  # one of several runners has not started it, and breaks none
    if postgres is not None and not postgres.alive():
        postgres.start()
    storm.make_read_only(really=False)
    connection.cursor().execute(ROOM_SQL)
    connections.close_all()
    broker = storm.broker()
    if not broker.alive():
        broker.start()
    with contextlib.suppress(OSError, TypeError):
        os.kill(broker.pid, signal.SIGCONT)
    talk = storm.talk_to_broker()
    talk.config_set("maxmemory", "256mb")
    talk.flushall()


@pytest.fixture
def table():
    """Keep a line for the table at the end."""

    def keep(name, seed, storm, broken, seconds):
        effects = len(storm.outside.journal())
        runs = len(storm.plans)
        figures = (seed, runs, effects, len(broken), round(seconds))
        ROWS.append(f"{name:<40}" + "".join(f" {figure:>10}" for figure in figures))

    return keep


def pytest_terminal_summary(terminalreporter):
    if ROWS:
        terminalreporter.section("chaos")
        names = ("seed", "runs", "effects", "violations", "seconds")
        terminalreporter.line(f"{'fault':<40}" + "".join(f" {name:>10}" for name in names))
        for row in sorted(ROWS):
            terminalreporter.line(row)
