"""Agents, people and workers behind PgBouncer in transaction mode, as docs/running.md has it."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import amends
from approvals.models import Approval
from ledger.models import Action
from tests import pooler as poolers
from tests.approvals.cast import put_in_force
from tests.config.test_worker import soon
from tests.crash.person import Person
from workspaces import keys
from workspaces.models import Agent

pooler, named_pooler = poolers.pooler, poolers.named_pooler
pytestmark = [pytest.mark.django_db(transaction=True), poolers.needed]
AGENTS, CALLS = 8, 12
PREPARED = pytest.param(
    200,
    id="prepared",
    marks=pytest.mark.skipif(
        poolers.PGBOUNCER is None or not poolers.keeps_prepared(),
        reason="PgBouncer before 1.21 keeps no prepared statements",
    ),
)


@pytest.mark.parametrize("prepared", [pytest.param(0, id="unprepared"), PREPARED])
def test_everybody_works_behind_pgbouncer_with_a_few_sessions(
    named_pooler: Callable[..., dict[str, str]], storm: Any, acme: Any, ada: Any, ben: Any,
    tmp_path: Path, prepared: int,
) -> None:  # fmt: skip
    """Eight agents call, six plans are carried out, a person says yes, pages are shown."""
    put_in_force(acme, ada, {"policies": {"pay.*": [{"approval": "MANUAL"}], "note.*": [
        {"approval": "AUTO"}]}})  # fmt: skip
    agent = Agent.objects.create(workspace=acme, name="trip-agent", owner=ada)
    _, token = keys.create_key(agent, by=None, name="test")
    told_of_it = named_pooler(prepared=prepared)
    with storm.processes.side_by_side():
        web = storm.processes.web(AMENDS_WEB_PROCESSES="2", **told_of_it)
        storm.processes.scheduler(**told_of_it)
    storm.begin(**told_of_it)

    def calls(number: int) -> None:
        desk = amends.connect(web.url, token, spool=tmp_path / f"{number}.sqlite", wait_seconds=60)
        with desk.run("Note it", run=f"run_{number}") as run:
            for call in range(CALLS):
                with run.action("note.write", target=("note", f"{number}-{call}")) as act:
                    act.succeeded(result={"call": call})
            if number == 0:
                with run.action("pay.refund", effect_class="external_irreversible") as act:
                    act.succeeded(result={"paid": True})
        desk.close(seconds=60)

    most = [(0, 0)]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            most.append(poolers.sessions_of(told_of_it["DATABASE_URL"]))

    with ThreadPoolExecutor(AGENTS + 1) as threads:
        watching = threads.submit(watch)
        agents = [threads.submit(calls, number) for number in range(AGENTS)]
        person = Person(ben, web.url, acme)
        assert soon(Approval.objects.filter(state="waiting").exists)
        assert person.opens("queue/") == 200
        person.approves(Approval.objects.get(state="waiting"))
        for one in agents:
            one.result(timeout=120)
        assert storm.end() == []
        over.set()
        watching.result(timeout=30)

    assert Action.objects.filter(tool="note.write", state="succeeded").count() == AGENTS * CALLS
    assert Action.objects.get(tool="pay.refund").state == "succeeded"
    asked, lent = map(max, zip(*most, strict=True))
    print(f"{asked} sessions with PgBouncer, {lent} of it with PostgreSQL")  # noqa: T201
    assert lent <= poolers.SESSIONS
