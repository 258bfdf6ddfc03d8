"""Append-only three times over: queryset, triggers, rights. Each stands alone, each is missed."""

from datetime import UTC, datetime

import psycopg
import pytest
from django.conf import settings
from django.core.checks import run_checks
from django.db import DatabaseError, connection, transaction

from ledger import checks, partitions, rights, sealer
from ledger.models import Event, EventKey, Leaf, Run
from ledger.models.events import AppendOnly
from tests.ledger.conftest import event, post, record_events
from tests.servers import as_runtime
from tests.worlds import kept

CHANGES = [
    "UPDATE ledger_event SET data = '{}'",
    "UPDATE ledger_event SET data = NULL, salt = NULL",
    "DELETE FROM ledger_event",
    "TRUNCATE ledger_event",
    "TRUNCATE ledger_event_default",
]


@pytest.fixture
@kept(in_turn=True)
def said(actor, northwind):
    one = event("run.started")
    record_events(actor, one)
    sealer.seal(northwind)
    return one


def test_a_deployment_that_keeps_no_head_outside_is_warned_of_what_is_lost(settings, tmp_path):
    settings.AMENDS_HEADS_FOLDER = ""
    found = run_checks(include_deployment_checks=True, tags=["security"])
    [warning] = [one for one in found if one.id == "ledger.W004"]
    assert "signs on over" in warning.hint

    settings.AMENDS_HEADS_FOLDER = str(tmp_path)
    assert checks.heads_are_kept_outside() == []


def test_the_queryset_refuses(said):
    found = Event.objects.all()
    for change in (found.delete, lambda: found.update(data={}), found.get().delete):
        with pytest.raises(AppendOnly):
            change()
    with pytest.raises(AppendOnly):
        found.get().save()
    with pytest.raises(AppendOnly):
        Event.objects.bulk_update([found.get()], ["data"])


def test_the_triggers_refuse_even_the_owner(said, subtests):
    week = partitions.week_of(datetime.now(UTC)).name
    of_its_week = (f"UPDATE {week} SET type = 'x'", f"DELETE FROM {week}", f"TRUNCATE {week}")
    for change in (*CHANGES, "UPDATE ledger_event SET type = 'x'", *of_its_week):
        with subtests.test(change=change):
            with pytest.raises(DatabaseError, match="the ledger only grows"), transaction.atomic():
                run(change)
            assert Event.objects.values_list("type", "data").get() == ("run.started", {})


def test_only_erasure_empties_a_payload(said):
    run("SET LOCAL amends.erasing = 'yes'")
    run("UPDATE ledger_event SET data = NULL, salt = NULL")
    with pytest.raises(DatabaseError, match="only grows"), transaction.atomic():
        run("UPDATE ledger_event SET actor = 'somebody'")


@pytest.mark.django_db(transaction=True)
def test_the_runtime_role_has_no_right_to(said, subtests):
    refused = (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedTable)
    for change in (
        *CHANGES,
        "DELETE FROM ledger_leaf",
        "UPDATE ledger_treenode SET hash = ''",
        "DELETE FROM ledger_treehead",
        "ALTER TABLE ledger_event DISABLE TRIGGER ALL",
        "DROP TABLE ledger_event",
        "SET session_replication_role = replica",
        "CREATE TABLE mine (id int)",
    ):
        with subtests.test(change=change):
            with psycopg.connect(as_runtime(settings.DATABASE_URL)) as runtime:
                runtime.execute("SET amends.erasing = 'yes'")
                runtime.execute("SELECT count(*) FROM ledger_event").fetchone()
                with pytest.raises(refused):
                    runtime.execute(change)
            assert Leaf.objects.count() == Event.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_the_runtime_role_is_enough_for_the_door_and_the_desk(processes, token, northwind):
    import httpx

    with processes.side_by_side():
        scheduler, web = processes.scheduler(), processes.kept_web()
    headers = {"authorization": f"Bearer {token}"}
    method, path, more = post([event("run.started"), event("run.completed")])
    answer = httpx.request(
        method, f"{web.url}{path}", headers=headers | {"content-type": "application/json"}, **more
    )

    assert [one["status"] for one in answer.json()["results"]] == ["accepted", "accepted"]
    web.wait_until(lambda: Leaf.objects.count() >= 2)
    assert Run.objects.get().state == "completed"
    assert EventKey.objects.count() >= 2
    assert "Error" not in scheduler.said()


def test_nothing_is_missing_for_the_runtime_role(said):
    with psycopg.connect(as_runtime(settings.DATABASE_URL)) as runtime:
        assert rights.changeable(runtime.cursor()) == []


def test_the_check_says_which_guard_is_missing(said, monkeypatch):
    (wide,) = checks.append_only(databases=["default"])  # the tests' own role owns everything
    assert wide.id == "ledger.W001"
    assert "ledger_event" in wide.msg

    week = partitions.week_of(datetime.now(UTC)).name
    run(f"DROP TRIGGER ledger_event_no_truncate ON {week}")
    run("ALTER TABLE ledger_event_default DISABLE TRIGGER ledger_event_no_truncate")
    ids = [message.id for message in checks.missing_guards()]
    assert ids == ["ledger.E001", "ledger.W001"]
    with pytest.raises(checks.GuardMissing, match="ledger_event_default"):
        checks.look()

    monkeypatch.setattr("ledger.models.events.EventQuerySet.delete", lambda _: (0, {}))
    assert checks.missing_guards()[0].id == "ledger.E002"


def run(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)


def test_a_server_that_answers_before_it_has_written_is_told(db):
    assert checks.not_durable() == []

    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL synchronous_commit = off")

    assert [one.id for one in checks.not_durable()] == ["ledger.E003"]
    with pytest.raises(checks.GuardMissing, match="synchronous_commit is off"):
        checks.look()
