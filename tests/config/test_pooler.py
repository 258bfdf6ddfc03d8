"""Behind a real PgBouncer that takes sessions apart no process starts unless it is told of it."""

import os
import sys
import time

import psycopg
import pytest
from django.test import override_settings

from config import pooling
from config.local.places import ROOT
from config.processes import process_list
from tests import pooler as poolers
from tests.pooler import Pooler
from tests.ports import free_port
from tests.processes import Processes

pooler = poolers.pooler
pytestmark = [pytest.mark.django_db(transaction=True), poolers.needed]


@pytest.mark.parametrize(
    ("mode", "ignored", "why"),
    [
        ("transaction", "", "refuses the options"),
        ("session", "", "refuses the options"),
        ("transaction", "options", "leaves out the options"),
        ("session", "options", "leaves out the options"),
    ],
)
def test_what_a_pooler_takes_away_is_found_and_said(
    pooler: Pooler, mode: str, ignored: str, why: str
) -> None:
    with pytest.raises(pooling.Pooled, match=why):
        pooling.check(pooler(mode, ignored))


def test_sessions_that_are_taken_apart_are_found_even_where_the_options_arrive(
    pooler: Pooler,
) -> None:
    """As behind a pooler that knows how to pass them on."""
    url = pooler("transaction")
    with (
        psycopg.connect(url, autocommit=True) as one,
        psycopg.connect(url, autocommit=True) as two,
        pytest.raises(pooling.Pooled, match="transaction mode"),
    ):
        pooling.check_sessions(one, two)


def test_postgresql_itself_is_taken() -> None:
    pooling.check(os.environ["DATABASE_URL"])


@pytest.mark.parametrize("name", ["web", "worker", "scheduler", "sweeper", "prepare"])
def test_no_process_starts_behind_one_and_it_says_what_to_do(
    pooler: Pooler, processes: Processes, name: str
) -> None:
    url = pooler("transaction", "options")
    commands = process_list(free_port(), "127.0.0.1", demo=False)
    commands["prepare"] = [sys.executable, "manage.py", "prepare"]
    process = processes.run(
        name, commands[name], AMENDS_PROCESS=name, DATABASE_URL=url, DATABASE_OWNER_URL=url,
        PYTHONPATH=os.pathsep.join([str(ROOT), str(ROOT / "sdk")]), CELERY_SKIP_CHECKS="1",
    )  # fmt: skip

    deadline = time.monotonic() + 90
    while process.alive() and time.monotonic() < deadline:
        time.sleep(0.2)

    assert not process.alive(), process.said()
    assert "Let DATABASE_URL" in process.said()


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ("", "lock_timeout = 0 ms"),
        ("SET lock_timeout = 5000", "statement_timeout = 0 ms"),
        (
            "SET lock_timeout = 5000; SET statement_timeout = 30000",
            "idle_in_transaction_session_timeout = 0 ms",
        ),
        ("SET lock_timeout = 60000; SET statement_timeout = 30000", "lock_timeout = 60000 ms"),
    ],
)
def test_nor_behind_one_that_is_named_and_lets_somebody_wait_for_ever(
    pooler: Pooler, limits: str, why: str
) -> None:
    url = pooler("transaction", limits=limits)
    with (
        override_settings(POOLER=True, DATABASE_URL=url),
        pytest.raises(pooling.Unlimited, match=why),
    ):
        pooling.check(url)


def test_the_owner_goes_past_it(pooler: Pooler) -> None:
    url = pooler("transaction", limits=pooling.LIMITS)
    with (
        override_settings(POOLER=True, DATABASE_URL=url, DATABASE_OWNER_URL=url),
        pytest.raises(pooling.UnfitDatabase, match="let it name PostgreSQL itself"),
    ):
        pooling.check(url)


def test_the_file_of_the_guide_gives_the_limits_that_are_asked_for() -> None:
    given = (ROOT / "deploy" / "pooler" / "pgbouncer.ini").read_text()
    assert f"connect_query='{pooling.LIMITS}'" in given
