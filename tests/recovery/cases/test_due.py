"""Due is counted from when the desk could know: nothing is overdue as it is born."""

from datetime import timedelta

import pytest
from django.db.models import F
from django.utils import timezone

from ledger.models import Action, Effect, Run
from recovery.casework import cases, closing
from recovery.models import Case
from recovery.triage import triage
from workspaces.clock import database_time

LONG_AGO = timedelta(days=10)
LOW = timedelta(days=3)
A_MINUTE = timedelta(minutes=1)


@pytest.fixture
def old(begin_run, ticket):
    """A run that looked good, and ended ten days ago."""
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}))
    run.ends()
    assert run.case() is None
    _age()
    return run


def _age():
    Run.objects.update(ended_at=F("ended_at") - LONG_AGO, started_at=F("started_at") - LONG_AGO)
    Action.objects.update(
        started_at=F("started_at") - LONG_AGO, finished_at=F("finished_at") - LONG_AGO
    )


def is_due_in(case, span, since=None):
    return abs(case.due_at - (since or database_time()) - span) < A_MINUTE


def looks_again(case):
    """Looking once more changes nothing."""
    known = (case.revision, case.due_at)
    triage.look([case.run_id])
    case.refresh_from_db()
    return (case.revision, case.due_at) == known


def test_what_is_reported_late_has_its_time_from_then_on(old, ada):
    case = cases.report(old.row, text="It was the wrong ticket", by=ada)

    assert case.failed_at < timezone.now() - LONG_AGO + A_MINUTE, "what is told of the failure"
    assert is_due_in(case, LOW)
    assert looks_again(case)


def test_what_the_agent_tells_late_has_its_time_from_then_on(old):
    old.is_verified("act_1", ok=False)

    case = old.case()
    assert is_due_in(case, LOW)
    assert looks_again(case)


def test_a_case_that_is_reopened_has_its_time_anew(raised, ada):
    case = raised.case()
    closing.close(case, outcome="expected", reason="As it should be", by=ada, seen=case.revision)
    _age()
    Case.objects.update(
        opened_at=F("opened_at") - LONG_AGO,
        closed_at=F("closed_at") - LONG_AGO,
        failed_at=F("failed_at") - LONG_AGO,
        due_at=F("due_at") - LONG_AGO,
    )
    case.refresh_from_db()

    again = cases.reopen(case, by=ada, seen=case.revision, reason="It was not")

    assert is_due_in(again, LOW)
    assert looks_again(again)


def test_a_failure_that_is_told_at_once_is_due_by_its_own_time(raised):
    case = raised.case()

    assert is_due_in(case, LOW, since=case.failed_at)
    assert looks_again(case)


@pytest.mark.parametrize(("closes", "span"), [(-1, LOW), (1, timedelta(hours=1))])
def test_a_window_hurries_only_while_it_can_still_be_used(old, ada, closes, span):
    Effect.objects.update(undo_until=timezone.now() + timedelta(hours=closes))

    case = cases.report(old.row, text="It was the wrong ticket", by=ada)

    assert is_due_in(case, span)
    assert abs(case.undo_until - timezone.now()) < timedelta(hours=2), "still told"
