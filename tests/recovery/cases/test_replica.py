"""A standby that lists and insights are read from: it is asked only for what it has."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from config import checks
from config.local.postgres import Postgres
from recovery.triage import triage
from tests.conftest import started
from tests.crash.oracle import until
from tests.crash.standby import Standby
from tests.people import logged_in
from tests.servers import TELLING, as_runtime

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]
LISTS = ("queue/", "causes/", "insights/", "runs/", "ledger/", "audit/", "approvals/health/")
READ = """
SELECT coalesce(sum(coalesce(seq_scan, 0) + coalesce(idx_scan, 0)), 0)
FROM pg_stat_user_tables WHERE relname = %s"""


@pytest.fixture
def browser() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=60) as found:
        yield found


@pytest.fixture
def standby(tmp_path: Path) -> Iterator[Standby]:
    primary = Postgres(started["folder"], durable=False, settings=TELLING)
    found = Standby(primary, tmp_path / "standby")
    yield found
    found.server.stop()


def test_lists_come_from_a_standby_that_has_caught_up_and_else_from_the_primary(
    standby, processes, browser, begin_run, ada, settings
):
    there = standby.server.url(started["database"])
    web = processes.web(AMENDS_REPLICA_URL=as_runtime(there))
    cookie = logged_in(ada).cookies[settings.SESSION_COOKIE_NAME].value
    browser.base_url = f"{web.url}/w/acme/"
    browser.cookies.set(settings.SESSION_COOKIE_NAME, cookie)

    def fails(run):
        began = begin_run(run)
        began.does("tickets.update", ("ticket", f"main/{run}", {"priority": 1}, {"priority": 2}))
        began.fails(f"flights.{run}")
        began.ends("failed")
        triage.look()

    def read(table="recovery_case"):
        with psycopg.connect(there, autocommit=True) as session:
            return session.execute(READ, [table]).fetchone()[0]

    for number in range(3):
        fails(f"run_{number}")
        assert f"run_{number}" in browser.get("queue/").text, "what was just there is in the list"
    until(lambda: read() > 0, 30, "the standby was asked")
    for path in LISTS:
        assert browser.get(path).status_code == 200, path
    until(lambda: read("ledger_run") > 0, 30, "and for runs")

    standby.stop_listening()
    fails("run_unheard")
    assert "run_unheard" in browser.get("queue/").text
    assert "The standby is not read for 10 s: it lags" in web.said()

    standby.server.stop()
    until(lambda: "run_unheard" in browser.get("queue/").text, 60, "without it, too")
    assert {browser.get(path).status_code for path in LISTS} == {200}
    until(lambda: browser.get("queue/") and web.said().count("not read") > 1, 60, "it is told")


def test_what_is_no_standby_of_this_desk_is_told(standby, settings):
    assert list(checks.replica_answers()) == []
    settings.REPLICA_URL = standby.server.url(started["database"])
    assert list(checks.replica_answers()) == []
    settings.REPLICA_URL = as_runtime(settings.DATABASE_URL)
    assert "no standby" in str(list(checks.replica_answers()))
    settings.REPLICA_URL = "postgresql:///none?host=/nowhere"
    assert "AMENDS_REPLICA_URL: " in str(list(checks.replica_answers()))
