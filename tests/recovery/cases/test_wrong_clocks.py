"""A process whose clock is off writes the database's time, by which the others decide."""

from datetime import timedelta

import pytest
from django.db.models import F
from django.utils import timezone

from recovery.casework import bulk, closing
from recovery.casework.bulk_verbs import VERBS
from recovery.corrections import draft, publish, publishing
from recovery.models import BulkItem, CaseState, Cause
from recovery.views import request_context
from tests.recovery.cases.test_bulk import frozen
from workspaces.clock import database_time

A_MINUTE = timedelta(minutes=1)


@pytest.fixture(params=[timedelta(hours=1), -timedelta(hours=1)], ids=["ahead", "behind"])
def wrong_clock(request, monkeypatch):
    right = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: right() + request.param)


def test_endings_letters_and_returns_of_a_case_are_written_by_the_databases_clock(
    raised, begin_run, ada, wrong_clock
):
    case = raised.case()
    [correction] = draft(case)
    published = publish(correction, by=ada, seen=correction.revision)
    assert abs(published.published_at - database_time()) < A_MINUTE
    assert abs(published.expires_at - published.published_at) >= timedelta(days=1)
    revoked = publishing.revoke(published, by=ada, seen=published.revision, reason="A drill")
    assert abs(revoked.revoked_at - database_time()) < A_MINUTE

    case.refresh_from_db()
    closing.close(case, outcome="expected", reason="A drill", by=ada, seen=case.revision)
    case.refresh_from_db()
    assert abs(case.closed_at - database_time()) < A_MINUTE
    cause = Cause.objects.get()
    assert abs(cause.last_closed_at - database_time()) < A_MINUTE
    assert abs(cause.last_seen_at - database_time()) < A_MINUTE

    raised.fails("mail.send", outcome="unknown")
    case = raised.case()
    assert case.state == CaseState.OPEN
    assert abs(case.reopened_at - database_time()) < A_MINUTE


@pytest.mark.parametrize(
    ("minutes", "due", "window"),
    [(30, "due <", "undo closes <"), (-30, "past due for <", "an undo window is over")],
)
def test_a_page_says_that_a_time_is_over_by_the_databases_clock(
    raised, ada, wrong_clock, minutes, due, window
):
    case = raised.case()
    moment = database_time() + timedelta(minutes=minutes)
    case.due_at = case.undo_until = moment

    assert request_context.due_words(case).startswith(due)
    assert request_context.window_words(case).startswith(window)
    left = closing.Remainder(text="A letter", owner=ada, due_at=moment)
    refused = closing._unfit_residue(case, left)
    assert refused == ("" if minutes > 0 else "A due date lies ahead.")


@pytest.mark.parametrize("act", ["compensate", "close"])
def test_what_a_lost_worker_had_done_is_found_whatever_the_clocks_of_both_say(
    three, acme, ada, act, monkeypatch
):
    """The web process that starts the job is an hour ahead of the scheduler that works on it."""
    seen = bulk.dry_run(acme, act, by=ada, query="run:run_1")
    with monkeypatch.context() as web:
        right = timezone.now
        web.setattr(timezone, "now", lambda: right() + timedelta(hours=1))
        bulk.start(acme, act, by=ada, reason="A drill", frozen=frozen(seen))
    VERBS[act].work(bulk._taken())
    BulkItem.objects.update(taken_at=F("taken_at") - timedelta(minutes=10))

    bulk.sweep()

    assert BulkItem.objects.get().state == "done"
