"""Where a rule asks for it, the desk reads back by itself what agents say they did."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from approvals import versions
from connectors.builtin.sql import Sql
from ledger.models import Action, Attempt, Event
from ledger.models.runs import Verified
from recovery.models import Case, Readback
from recovery.planning import drafting
from recovery.triage import triage, verification
from tests.recovery.cases.conftest import POLICY
from tests.worlds import kept

READ = POLICY.replace(
    "{risk: LOW, approval: AUTO, compensation: SNAPSHOT}",
    "{risk: LOW, approval: AUTO, compensation: SNAPSHOT, verify: CONNECTOR}",
)


LONG_AGO = "2000-01-01T00:00:00Z"


@pytest.fixture
@kept(in_turn=True)
def reading(acme, policy):
    return versions.activate(versions.save(acme, READ, by=None), by=None)


@pytest.fixture
@kept(in_turn=True)
def done(reading, begin_run, ticket):
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}))
    run.ends()
    return run


def test_what_was_written_is_found_and_no_case_opens(done, shop):
    shop.execute("UPDATE tickets SET priority = 'high'")
    triage.look()

    assert verification.sweep() == 1
    triage.look()

    assert Action.objects.get().verified == "ok"
    told = Event.objects.get(type="action.verified")
    assert (told.actor_kind, told.actor) == ("desk", "readback")
    assert not Case.objects.exists()
    assert verification.sweep() == 0


def test_what_was_not_written_is_a_failed_verification(done):
    triage.look()
    verification.sweep()
    triage.look()

    case = Case.objects.get()
    assert case.reasons == ["verification_failed"]
    assert "ticket main/T-182: priority" in case.evidence[0]["words"]


def test_what_a_system_shows_late_is_no_failed_verification_before_it_must_show(
    done, shop, monkeypatch
):
    """Of a run that had failed so, the gate denied every further call."""
    restore = replace(Sql.operations["restore_row"], probe="eventual", horizon_seconds=3600)
    monkeypatch.setattr(Sql, "operations", {"restore_row": restore})
    Action.objects.update(finished_at=LONG_AGO)  # that was a first try, without an effect
    triage.look()

    for _ in range(verification.TRIES_MAX + 1):
        Readback.objects.update(due_at=timezone.now())
        assert verification.sweep() == 0
    assert Readback.objects.get().due_at > timezone.now() + timedelta(seconds=3000)
    Readback.objects.update(due_at=timezone.now())
    Attempt.objects.update(finished_at=LONG_AGO)

    assert verification.sweep() == 1
    assert Action.objects.get().verified == "failed"


def test_what_is_wrong_for_certain_waits_for_no_target_that_may_not_show_yet(
    acme, policy, begin_run, shop, ticket, monkeypatch
):
    restore = Sql.operations["restore_row"]
    late = replace(restore, name="restore_late", probe="eventual", horizon_seconds=3600)
    monkeypatch.setattr(Sql, "operations", {"restore_row": restore, "restore_late": late})
    twin = "{connection: shop, operation: restore_row, args: {to: before}}"
    of_late = "{target: customers, connection: shop, operation: restore_late, args: {to: before}}"
    document = READ.replace(f'"tickets.*":       {twin}', f'"tickets.*": [{twin}, {of_late}]')
    versions.activate(versions.save(acme, document, by=None), by=None)
    shop.execute("INSERT INTO customers (id, name) VALUES (7, 'Eve')")
    run = begin_run()
    run.does(
        "tickets.update",
        ("customers", "7", {"name": "Eve"}, {"name": "Eva"}),
        ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}),
    )
    run.ends()
    triage.look()

    assert verification.sweep() == 1

    assert Action.objects.get().verified == "failed"
    assert {one["name"] for one in Action.objects.get().checks} == {"ticket main/T-182: priority"}


def test_what_cannot_be_read_is_given_up_and_becomes_a_case(done, shop_connection):
    from connectors import connections

    connections.disable(shop_connection, by=None)
    triage.look()
    for _ in range(verification.TRIES_MAX):
        Readback.objects.update(due_at=timezone.now())
        assert verification.sweep() == 0
    triage.look()

    assert Case.objects.get().reasons == ["verification_missing"]


def test_of_two_writes_the_last_one_is_read(reading, begin_run, shop, ticket):
    run = begin_run()
    high = ticket | {"priority": "high"}
    run.does("tickets.update", ("ticket", "main/T-182", ticket, high))
    assigned = ("ticket", "main/T-182", high, high | {"assignee": "Finn"})
    run.does("tickets.update", assigned, planned={"args": {"assignee": "Finn"}})
    run.ends()
    shop.execute("UPDATE tickets SET priority = 'high', assignee = 'Finn'")
    triage.look()
    verification.sweep()
    triage.look()

    assert sorted(Readback.objects.values_list("state", flat=True)) == ["read", "rewritten"]
    assert not Case.objects.exists()


def changes_two_and_tells_of_one(run, ticket):
    """Of the second nobody says how it was, so there is no way to it."""
    action = run.plans("tickets.update", ("ticket", "main/T-182"), ("ticket", "main/T-9"))
    first = {"target": {"type": "ticket", "id": "main/T-182"}, "before": ticket}
    told = [
        first | {"after": ticket | {"priority": "high"}},
        {"target": {"type": "ticket", "id": "main/T-9"}},
    ]
    run.send("action.succeeded", action, attempt="1", effects=told)
    run.ends()


def test_of_two_targets_both_are_read_before_it_is_called_verified(
    reading, begin_run, ticket, shop
):
    changes_two_and_tells_of_one(begin_run(), ticket)
    shop.execute("UPDATE tickets SET priority = 'high'")
    triage.look()

    for _ in range(verification.TRIES_MAX):
        Readback.objects.update(due_at=timezone.now())
        assert verification.sweep() == 0
    triage.look()

    assert Action.objects.get().verified == "not_yet"
    assert Readback.objects.get().detail.startswith("Some of its targets")
    assert Case.objects.get().reasons == ["verification_missing"]


def test_one_target_that_is_wrong_says_enough(reading, begin_run, ticket):
    changes_two_and_tells_of_one(begin_run(), ticket)
    triage.look()

    assert verification.sweep() == 1

    assert Action.objects.get().verified == "failed"


def test_of_a_run_that_is_longer_than_a_plan_the_newest_are_read_and_no_other_is_held_up(
    done, begin_run, ticket, shop, monkeypatch
):
    long = begin_run("run_2")
    for number in (1, 2):
        row = ticket | {"id": f"T-{number}"}
        target = ("ticket", f"main/T-{number}", row, row | {"priority": "high"})
        long.does("tickets.update", target)
    long.ends()
    shop.execute("UPDATE tickets SET priority = 'high'")
    triage.look()
    monkeypatch.setattr(drafting, "STEPS_MAX", 1)
    Readback.objects.filter(action__run__run="run_1").update(due_at=timezone.now())

    for _ in range(verification.TRIES_MAX):
        verification.sweep()
        Readback.objects.update(due_at=timezone.now())

    states = Readback.objects.order_by("action").values_list("state", flat=True)
    assert list(states) == ["read", "given_up", "read"]


def reasons_after_all_tries():
    triage.look()
    for _ in range(verification.TRIES_MAX):
        Readback.objects.update(due_at=timezone.now())
        verification.sweep()
    triage.look()
    return Case.objects.get().reasons


def test_where_nobody_told_how_it_was_left_no_verification_failed(reading, begin_run, ticket):
    run = begin_run()
    action = run.plans("tickets.update", ("ticket", "main/T-182"))
    told = {"target": {"type": "ticket", "id": "main/T-182"}, "before": ticket}
    run.send("action.succeeded", action, attempt="1", effects=[told])
    run.ends()

    assert reasons_after_all_tries() == ["verification_missing"]
    assert not Event.objects.filter(type="action.verified").exists()


@pytest.mark.parametrize(
    ("stands", "reason"), [("high", "verification_missing"), ("low", "verification_failed")]
)
def test_of_two_targets_one_that_cannot_be_read_keeps_the_call_from_being_verified(
    reading, begin_run, shop, ticket, stands, reason
):
    """What is wrong with the other is told all the same."""
    run = begin_run()
    run.does(
        "tickets.update",
        ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}),
        ("customers", "no number", {"name": "Eve"}, {"name": "Eva"}),
    )
    run.ends()
    shop.execute("UPDATE tickets SET priority = %s", [stands])

    assert reasons_after_all_tries() == [reason]


@pytest.mark.parametrize(("stands", "verified"), [("high", Verified.OK), ("low", Verified.NOT_YET)])
def test_what_a_later_call_without_a_way_back_may_have_changed_is_not_held_against_the_first(
    reading, begin_run, shop, ticket, stands, verified
):
    """As it was told it is verified; otherwise nobody knows whose doing that is."""
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}))
    run.does("cards.charge", ("ticket", "main/T-182", {"priority": "high"}, {"priority": "low"}))
    run.ends()
    shop.execute("UPDATE tickets SET priority = %s", [stands])
    triage.look()
    for _ in range(verification.TRIES_MAX):
        Readback.objects.update(due_at=timezone.now())
        verification.sweep()

    assert Action.objects.get(tool="tickets.update").verified == verified


def test_a_later_look_at_it_takes_no_blame(reading, begin_run, ticket):
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}))
    told = {"args": {"what": "all"}, "class": "read_only"}
    run.does("notes.read", ("ticket", "main/T-182", ticket, ticket), planned=told)
    run.ends()
    triage.look()

    verification.sweep()

    assert Action.objects.get(tool="tickets.update").verified == Verified.FAILED


@pytest.mark.parametrize(("stands", "verified"), [("high", Verified.OK), ("low", Verified.FAILED)])
def test_a_later_look_that_could_be_undone_is_not_read_in_the_place_of_the_write(
    reading, begin_run, shop, ticket, stands, verified
):
    """It tells what it saw of the target, and a twin of its tool would put that back."""
    run = begin_run()
    high = ticket | {"priority": "high"}
    run.does("tickets.update", ("ticket", "main/T-182", ticket, high))
    look = {"args": {"what": "all"}, "class": "read_only"}
    run.does("tickets.read", ("ticket", "main/T-182", high, high), planned=look)
    run.ends()
    shop.execute("UPDATE tickets SET priority = %s", [stands])
    triage.look()

    verification.sweep()

    assert Action.objects.get(tool="tickets.update").verified == verified
