"""What a case may not be closed over, and what is not taken for an answer."""

from datetime import timedelta

import pytest
from django.utils import timezone

from approvals import versions
from ledger.models import Action, Run
from recovery.cases.lifecycle import OutOfDate
from recovery.casework import settling
from recovery.engine import plan_lifecycle
from recovery.models import CaseState, Plan, Step, StepState
from recovery.planning import plans
from recovery.triage import triage, verification
from tests.recovery.cases.cast import directed, stands, submitted
from tests.recovery.cases.conftest import POLICY
from tests.recovery.engine import by_hand
from tests.worlds import kept
from workspaces.moves import CannotMove


@pytest.fixture
@kept(in_turn=True)
def stopped(begin_run):
    """A run that failed before it did anything but one flight."""
    run = begin_run()
    run.does("flights.book", ("booking", "B-1", None, {"flight": "SK1"}))
    run.fails("hotels.book")
    run.ends("failed")
    return run


def test_a_resumed_run_that_ends_with_new_trouble_is_not_closed_as_resumed(stopped, ada):
    directed(stopped, ada)
    stopped.n += 1
    stopped.send("run.resumed")
    action = stopped.does("hotels.book", ("hotel", "H-1", None, {"nights": 2}))
    stopped.is_verified(action, ok=False)
    stopped.ends()

    case = stopped.case()

    assert (case.state, case.outcome) == (CaseState.OPEN, "")
    assert "verification_failed" in case.reasons


def test_an_acknowledgement_of_an_earlier_directive_is_none_of_this_one(stopped, ada):
    directed(stopped, ada)
    stopped.n += 1
    stopped.send("run.resumed")
    triage.look()
    stopped.fails("hotels.book")
    stopped.ends("failed")
    assert stopped.case().state == CaseState.OPEN

    again = directed(stopped, ada)
    triage.look([again.run_id])

    again.refresh_from_db()
    assert again.acknowledged_at is None, "the old answer was to another question"
    assert stopped.case().state == CaseState.RESUMING


def test_one_good_check_of_two_is_a_failed_verification(acme, policy, begin_run, shop, ticket):
    reads = POLICY.replace("compensation: SNAPSHOT}", "compensation: SNAPSHOT, verify: CONNECTOR}")
    versions.activate(versions.save(acme, reads, by=None), by=None)
    other = ticket | {"id": "T-204"}
    stands(shop, other)
    run = begin_run()
    run.does(
        "tickets.update",
        ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}),
        ("ticket", "main/T-204", other, other | {"priority": "high"}),
    )
    run.ends()
    shop.execute("UPDATE tickets SET priority = 'high' WHERE id = 'T-182'")
    triage.look()

    verification.sweep()

    assert Action.objects.get().verified == "failed"
    assert run.case().reasons == ["verification_failed"]


def test_a_run_that_falls_silent_a_second_time_is_looked_at_a_second_time(begin_run):
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-182", {"a": 1}, {"a": 2}))
    past = timezone.now() - timedelta(minutes=9)
    Run.objects.update(lease_until=past)
    assert triage.listen_for_silence() == 1
    assert triage.listen_for_silence() == 0

    Run.objects.update(lease_until=past + timedelta(minutes=8))

    assert triage.listen_for_silence() == 1, "it was heard of meanwhile, and is silent again"
    assert triage.listen_for_silence() == 0


def test_a_case_is_not_restored_while_a_call_of_its_run_is_in_doubt(raised, shop, ada):
    case = raised.case()
    plan = submitted(case, ada)
    raised.plans("mail.send", ("mail", "late"))  # told late: it was under way as the run ended

    by_hand.advance(plan.pk)

    case.refresh_from_db()
    assert shop.execute("SELECT priority FROM tickets").fetchone() == ("normal",)
    assert Step.objects.get().state == StepState.VERIFIED
    assert not plan_lifecycle.is_restored(case, raised.row)
    assert (case.state, case.outcome) == (CaseState.OPEN, "")


def test_a_case_is_not_restored_while_an_effect_of_its_run_stands(raised, shop, ada):
    case = raised.case()
    plan = submitted(case, ada)
    by_hand.advance(plan.pk)
    assert plan_lifecycle.is_restored(case, raised.row)

    raised.does("tickets.update", ("ticket", "main/T-182", {"a": 1}, {"a": 2}))  # told late

    assert not plan_lifecycle.is_restored(case, raised.row)


def test_a_step_that_may_have_happened_is_not_tried_again_unasked(lost, ada):
    (step,) = settling.steps_in_doubt(lost)

    with pytest.raises(CannotMove, match="First say whether it happened"):
        settling.try_again(step, reason="try once more", by=ada, seen=lost.revision)

    step.refresh_from_db()
    assert (step.state, step.generation) == (StepState.NEEDS_HUMAN, 1)


def test_an_effect_that_arrives_while_a_plan_is_submitted_stops_it(raised, ada, monkeypatch):
    case = raised.case()
    draft = plans.draft(case)
    make_room = plans._make_room

    def and_meanwhile(of, by):
        make_room(of, by)
        raised.does("tickets.update", ("ticket", "main/T-9", {"a": 1}, {"a": 2}))

    monkeypatch.setattr(plans, "_make_room", and_meanwhile)

    with pytest.raises(OutOfDate, match="The run went on"):
        plans.submit(
            case, digest=draft.digest, revision=draft.case.revision, by=ada, reason="Wrong"
        )

    assert not Plan.objects.exists()
