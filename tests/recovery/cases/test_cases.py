"""What people do with a case: claim it, give it back, close it, bring it back."""

from datetime import timedelta

import pytest
from django.utils import timezone

from ledger.models import Event
from recovery.cases.lifecycle import OutOfDate
from recovery.casework import cases, closing
from recovery.casework.closing import CannotClose, Remainder
from recovery.corrections import draft, publish
from recovery.engine import plan_lifecycle
from recovery.models import Case, CaseState
from tests.recovery.cases.cast import submitted
from tests.worlds import kept
from workspaces.moves import CannotMove


@pytest.fixture
@kept(in_turn=True)
def case(begin_run):
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-182", {"a": 1}, {"a": 2}))
    run.ends("failed")
    return run.case()


def test_a_claim_is_a_lease_that_others_see(case, ada, finn):
    cases.claim(case, by=ada, seen=case.revision)

    with pytest.raises(CannotMove, match="Ada has claimed it"):
        cases.claim(case, by=finn, seen=case.revision)
    with pytest.raises(CannotMove, match="Ada has claimed it"):
        closing.close(case, outcome="expected", reason="x", by=finn, seen=case.revision)
    with pytest.raises(CannotMove):
        cases.release(case, by=finn, seen=case.revision)
    cases.release(case, by=ada, seen=case.revision)
    cases.claim(case, by=finn, seen=case.revision)
    assert [one.type for one in Event.objects.filter(type__contains="claim")] == [
        "case.claimed",
        "case.claimed",
    ]


def test_an_idle_claim_lets_go_after_a_quarter_of_an_hour(case, ada, finn):
    cases.claim(case, by=ada, seen=case.revision)
    cases.comment(case, by=ada, text="Calling the customer")
    Case.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))

    cases.claim(case, by=finn, seen=case.revision)
    assert cases.let_idle_claims_go() == 0
    Case.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    assert cases.let_idle_claims_go() == 1


def test_a_web_process_whose_clock_is_ahead_takes_no_claim_away(case, ada, finn, monkeypatch):
    cases.claim(case, by=ada, seen=case.revision)
    right = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: right() + timedelta(hours=1))

    with pytest.raises(CannotMove):
        cases.claim(case, by=finn, seen=case.revision)


def test_every_change_needs_the_revision_it_saw(case, ada):
    seen = case.revision
    closing.close(case, outcome="expected", reason="A drill", by=ada, seen=seen)

    with pytest.raises(OutOfDate):
        cases.reopen(case, by=ada, seen=seen, reason="No drill")
    case.refresh_from_db()
    reopened = cases.reopen(case, by=ada, seen=case.revision, reason="No drill")

    assert reopened.state == CaseState.OPEN
    assert "reported" in reopened.reasons
    assert Event.objects.get(type="case.closed").data["standing"][0]["tool"] == "tickets.update"


def test_restored_and_resumed_are_not_for_people_to_say(case, ada):
    for outcome in ("restored", "resumed", "gone"):
        with pytest.raises(CannotClose, match="by hand"):
            closing.close(case, outcome=outcome, reason="x", by=ada, seen=case.revision)


def test_nothing_is_corrected_of_which_nobody_was_told(case, ada):
    [correction] = draft(case)
    with pytest.raises(CannotClose, match="Nobody was told"):
        closing.close(case, outcome="corrected", reason="Sorry", by=ada, seen=case.revision)

    publish(correction, by=ada, seen=correction.revision)
    case.refresh_from_db()
    closed = closing.close(case, outcome="corrected", reason="Sorry", by=ada, seen=case.revision)

    assert (closed.state, closed.outcome) == (CaseState.CLOSED, "corrected")


def test_what_is_left_needs_an_owner_of_the_workspace_and_a_day_ahead(case, ada, dev):
    tomorrow = timezone.now() + timedelta(days=1)
    for left, wrong in (
        (Remainder(text="Seat", owner=dev, due_at=tomorrow), "not in this workspace"),
        (Remainder(text="Seat", owner=ada, due_at=tomorrow - timedelta(days=2)), "lies ahead"),
        (Remainder(text="Seat", owner=ada, due_at=tomorrow, effect_id=10**9), "of this run"),
    ):
        with pytest.raises(CannotClose, match=wrong):
            closing.close(
                case, outcome="partly", reason="x", by=ada, seen=case.revision, left=[left]
            )


def test_a_live_plan_keeps_a_case_open(raised, shop, ada, ben):
    from ledger.models import Effect

    case = raised.case()
    shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1")
    choices = {Effect.objects.get().pk: "override"}
    plan = submitted(case, ada, reason="x", choices=choices)
    case.refresh_from_db()

    with pytest.raises(CannotClose, match="stop it first"):
        closing.close(case, outcome="expected", reason="x", by=ada, seen=case.revision)
    plan_lifecycle.stop(plan, by=ada)
    case.refresh_from_db()
    closing.close(case, outcome="expected", reason="x", by=ada, seen=case.revision)
