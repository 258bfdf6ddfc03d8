"""Starting and stopping: when a plan may run at all, and what a stop can still stop."""

import re
from datetime import UTC, datetime

import pytest
from django.utils import timezone

from approvals import digests, grants, inbox, pauses
from approvals.models import Approval
from connectors import channels
from connectors.models import Delivery
from ledger.models import Run
from recovery import tasks
from recovery.engine import plan_lifecycle
from recovery.models import Directive, Plan
from recovery.views import plan_card
from tests.approvals.cast import forget_events, retell_granted
from tests.people import person
from tests.recovery.engine import by_hand
from tests.recovery.engine.by_hand import after
from tests.recovery.engine.desk import (
    advance,
    asked,
    case_of,
    plan_for,
    run_that,
    send_event,
    states,
)
from workspaces import teams
from workspaces.moves import CannotMove

pytestmark = pytest.mark.django_db


def state_of(plan):
    plan.refresh_from_db()
    return plan.state


def test_nothing_runs_before_the_approval_and_everything_after_it(case, world, outside, ada, ben):
    plan = plan_for(case, world)
    approval = asked(plan, ada)
    advance(plan)
    assert (state_of(plan), outside.effects()) == ("waiting", [])

    inbox.grant(approval, by=ben, seen=approval.digest, reason="checked")
    advance(plan)

    assert (state_of(plan), outside.effects()) == ("finished", ["c", "b", "a"])
    approval.refresh_from_db()
    assert approval.state == "used"


def test_a_rejected_plan_runs_nothing_and_frees_its_effects(case, world, outside, ada, ben):
    plan = plan_for(case, world)
    approval = asked(plan, ada)
    inbox.reject(approval, by=ben, seen=approval.digest, reason="not like this")

    advance(plan)

    assert state_of(plan) == "rejected"
    assert states(plan) == ["cancelled"] * 3
    assert outside.effects() == []
    assert plan_for(case, world).number == 2


def test_law_2_a_grant_after_its_expiry_starts_nothing(case, world, outside, ada, ben):
    """Digest, calls, people and the ledger are as they were: time alone is what it fails for."""
    plan = plan_for(case, world)
    approval = asked(plan, ada)
    inbox.grant(approval, by=ben, seen=approval.digest)
    approval.refresh_from_db()
    # The expiry is part of the digest, which would stop it by itself, and of what the ledger tells:
    # so all three are of the past.
    approval.expires_at = datetime(2020, 1, 1, tzinfo=UTC)
    approval.digest = digests.digest_with(approval, approval.calls)
    approval.save(update_fields=["expires_at", "digest"])
    retell_granted(approval)
    assert grants.is_recorded(approval)
    run = Run.objects.get(run="run_1")
    assert plan_lifecycle.why_outdated(Plan.objects.get(pk=plan.pk), run) == ""

    assert not grants.use(approval.pk, approval.digest)
    advance(plan)

    approval.refresh_from_db()
    assert (approval.used_at, approval.state) == (None, "granted")
    assert (state_of(plan), outside.effects()) == ("waiting", [])


def test_law_2_another_expiry_than_the_approved_one_starts_nothing(case, world, outside, ada, ben):
    """Nobody makes a grant live longer than it was given."""
    plan = plan_for(case, world)
    approval = asked(plan, ada)
    inbox.grant(approval, by=ben, seen=approval.digest)
    Approval.objects.filter(pk=approval.pk).update(expires_at="2100-01-01T00:00:00Z")

    advance(plan)

    assert (state_of(plan), outside.effects()) == ("superseded", [])


def test_law_2_a_grant_that_was_used_elsewhere_starts_nothing(case, world, outside, ada, ben):
    """Used once, in one conditional UPDATE."""
    plan = plan_for(case, world)
    approval = asked(plan, ada)
    inbox.grant(approval, by=ben, seen=approval.digest)
    assert grants.use(approval.pk, approval.digest)

    advance(plan)

    assert (state_of(plan), outside.effects()) == ("waiting", [])


def test_a_plan_whose_yes_the_ledger_does_not_tell_of_ends_and_says_so(
    acme, case, world, outside, ada, ben
):
    """It waited without a word, until its question expired as unanswered."""
    channels.create(
        acme, "pager", "mail", settings={"to": ["pager@example.com"]}, by=ada,
        subjects=["compensation.*"],
    )  # fmt: skip
    plan = plan_for(case, world)
    approval = asked(plan, ada)
    inbox.grant(approval, by=ben, seen=approval.digest, reason="checked")
    forget_events(type="approval.granted")

    advance(plan)

    assert (state_of(plan), outside.effects()) == ("superseded", [])
    approval.refresh_from_db()
    assert (approval.state, approval.closing_reason) == ("withdrawn", grants.UNRECORDED)
    case.refresh_from_db()
    assert case.state == "open"
    shown = plan_card.card(case, ada, sensitive=True)["approval"]
    assert shown["words"] == f"The question was withdrawn: {grants.UNRECORDED}"
    said = Delivery.objects.get(subject="compensation.failed").message
    assert said["title"] == f"Plan 1 of case {case.pk} was not started"
    assert grants.UNRECORDED in said["text"]


def test_another_call_than_the_approved_does_not_start(case, world, outside, ada, ben):
    """Law 1: the digest is built anew over what would run."""
    plan = plan_for(case, world)
    approval = asked(plan, ada)
    inbox.grant(approval, by=ben, seen=approval.digest)
    plan.steps.filter(position=1).update(digest="0" * 64)

    advance(plan)

    assert (state_of(plan), outside.effects()) == ("superseded", [])


def test_an_approver_who_left_the_team_stops_what_was_not_sent(case, world, outside, ada, ben):
    plan = plan_for(case, world)
    approval = asked(plan, ada)
    inbox.grant(approval, by=ben, seen=approval.digest)
    by_hand.advance_once(plan.pk)
    assert state_of(plan) == "running"
    ben.is_active = False
    ben.save()

    advance(plan)

    assert states(plan) == ["needs_human"] * 3
    assert outside.effects() == []


def test_a_plan_whose_approver_left_before_it_began_does_not_begin(case, world, outside, ada, ben):
    """It began, and each of its steps was refused and left to people."""
    plan = plan_for(case, world)
    approval = asked(plan, ada)
    inbox.grant(approval, by=ben, seen=approval.digest)
    ben.is_active = False
    ben.save()

    advance(plan)

    assert (state_of(plan), outside.effects()) == ("superseded", [])
    approval.refresh_from_db()
    assert (approval.state, approval.closing_reason) == ("withdrawn", grants.HAS_LEFT)
    case.refresh_from_db()
    assert case.state == "open"


def test_a_run_that_went_on_since_the_drafting_supersedes_the_plan(handy, case, world, outside):
    plan = plan_for(case, world)
    target = {"type": "thing", "id": "d"}
    send_event(handy, "run_1", "action.planned", "act_9", tool="things.set", targets=[target])
    effect = {"target": target, "before": {"v": 1}, "after": {"v": 2}}
    send_event(handy, "run_1", "action.succeeded", "act_9", attempt="a1", effects=[effect])

    advance(plan)

    assert (state_of(plan), outside.effects()) == ("superseded", [])
    case.refresh_from_db()
    assert case.state == "open"


@pytest.fixture
def live_case(handy, outside):
    """A run that is still at work."""
    outside.seed({"a": {"v": 2}})
    return case_of(run_that(handy, "run_live", {"a": ({"v": 1}, {"v": 2})}, ends=""))


def test_law_9_a_live_run_is_told_to_stop_first_and_undone_when_it_has(
    handy, live_case, world, outside
):
    """Law 9."""
    plan = plan_for(live_case, world)
    advance(plan)
    run = Run.objects.get(run="run_live")
    assert (state_of(plan), outside.effects()) == ("starting", [])
    assert (run.held_by, Directive.objects.get().kind) == (f"case {live_case.pk}", "stop")

    send_event(handy, "run_live", "run.cancelled", by="the desk", reason="told to stop")
    advance(plan)

    assert (state_of(plan), outside.effects()) == ("finished", ["a"])


def test_law_9_an_agent_that_ignores_the_stop_cannot_hold_it_up_for_ever(
    handy, live_case, world, outside
):
    """Law 9: a held run's lease is not renewed, so it ends."""
    plan = plan_for(live_case, world)
    advance(plan)
    lease = Run.objects.get(run="run_live").lease_until
    send_event(handy, "run_live", "action.planned", "act_9", tool="things.read", targets=[])
    assert Run.objects.get(run="run_live").lease_until == lease

    Run.objects.filter(run="run_live").update(lease_until="2020-01-01T00:00:00Z")
    advance(plan)

    assert (state_of(plan), outside.effects()) == ("finished", ["a"])


def test_a_plan_waits_for_a_call_that_its_ended_run_still_has_under_way(
    handy, case, world, outside
):
    """Its answer may come, and with it an effect that the plan does not know of."""
    send_event(handy, "run_1", "action.started", "act_9", attempt="a1")
    Run.objects.filter(run="run_1").update(lease_until=after(600))
    assert Run.objects.get(run="run_1").state == "failed"
    plan = plan_for(case, world)

    advance(plan)
    assert (state_of(plan), outside.effects()) == ("starting", [])

    Run.objects.filter(run="run_1").update(lease_until="2020-01-01T00:00:00Z")
    advance(plan)
    assert (state_of(plan), outside.effects()) == ("finished", ["c", "b", "a"])


def test_an_effect_that_came_while_the_run_was_stopping_makes_the_plan_outdated(
    handy, live_case, world, outside
):
    plan = plan_for(live_case, world)
    advance(plan)
    target = {"type": "thing", "id": "d"}
    effect = {"target": target, "before": {"v": 1}, "after": {"v": 2}}
    send_event(handy, "run_live", "action.succeeded", "act_9", attempt="a1", effects=[effect])
    send_event(handy, "run_live", "run.cancelled", by="the desk", reason="told to stop")

    advance(plan)

    assert (state_of(plan), outside.effects()) == ("superseded", [])
    assert Run.objects.get(run="run_live").held_by == ""


def test_a_stop_cancels_what_is_not_sent_and_sees_through_what_is(case, world, outside, ada):
    plan = plan_for(case, world)
    outside.mischief("c", fail_after=1)
    by_hand.advance_once(plan.pk)
    by_hand.advance_once(plan.pk)
    assert states(plan) == ["unknown", "blocked", "blocked"]

    stopped = plan_lifecycle.stop(plan, by=ada, reason="wrong customer")

    assert stopped.cancelled == 2
    assert [step.target_id for step in stopped.on_the_wire] == ["c"]
    advance(plan)
    assert states(plan) == ["verified", "cancelled", "cancelled"]
    assert outside.effects() == ["c"]
    case.refresh_from_db()
    assert (state_of(plan), plan.stopped_by, case.state) == ("stopped", ada, "open")
    assert (ended := plan.ended_at) is not None
    plan_lifecycle.supersede(plan, by=ada, why="a new plan")
    assert (state_of(plan), plan.ended_at) == ("stopped", ended), "it was over before"


def test_a_plan_that_is_stopped_while_nothing_of_it_is_sent_is_ended_by_the_next_sweep(
    case, world, outside, ada
):
    """Nobody has a step in hand that could come back and end it."""
    plan = plan_for(case, world)
    pauses.pause(case.workspace, "connection", "world", by=ada, reason="moving house")
    advance(plan)
    assert state_of(plan) == "running"

    plan_lifecycle.stop(plan, by=ada, reason="wrong customer")

    assert tasks.due() == [plan.pk]
    by_hand.advance(plan.pk)
    case.refresh_from_db()
    assert (case.state, outside.effects()) == ("open", [])
    Plan.objects.update(hinted_at=None)
    assert tasks.due() == []


def test_a_plan_stopped_before_its_start_lets_the_run_go(live_case, world, ada):
    plan = plan_for(live_case, world)
    advance(plan)

    plan_lifecycle.stop(plan, by=ada)

    assert state_of(plan) == "stopped"
    assert Run.objects.get(run="run_live").held_by == ""
    assert not Directive.objects.filter(withdrawn_at=None).exists()


def test_a_run_that_lived_at_a_restore_is_let_go_to_be_in_doubt_as_before(live_case, world, ada):
    plan = plan_for(live_case, world)
    advance(plan)
    pauses.hold_after_restore(
        live_case.workspace, "The desk was restored.", {}, taken_at=timezone.now()
    )

    plan_lifecycle.stop(plan, by=ada)

    held_by = Run.objects.get(run="run_live").held_by
    assert re.fullmatch(r"restore \d{4}-\d\d-\d\dT[\d:]{8}Z", held_by)


@pytest.mark.parametrize("granted", [False, True])
def test_nobody_is_asked_any_longer_about_a_plan_that_was_stopped(case, world, ada, ben, granted):
    plan = plan_for(case, world)
    approval = asked(plan, ada)
    if granted:
        inbox.grant(approval, by=ben, seen=approval.digest)

    plan_lifecycle.stop(plan, by=ada, reason="wrong customer")

    approval.refresh_from_db()
    assert (approval.state, approval.closing_reason) == ("withdrawn", "wrong customer")
    with pytest.raises(CannotMove):
        inbox.grant(approval, by=ben, seen=approval.digest)


def test_a_new_plan_does_not_push_aside_one_that_has_a_call_on_the_wire(case, world, outside):
    plan = plan_for(case, world)
    outside.mischief("c", fail_after=1)
    by_hand.advance_once(plan.pk)
    by_hand.advance_once(plan.pk)

    with pytest.raises(CannotMove):
        plan_lifecycle.supersede(plan, by=None, why="another one")


def test_a_stranger_does_not_become_entitled_by_being_named(case, world, ada, acme):
    """Whoever stands in a team without `approve` is not counted when the plan starts."""
    plan = plan_for(case, world)
    approval = asked(plan, ada)
    viewer = person("vera", teams.create(acme, "viewers", by=None, may=["view"]))

    with pytest.raises(inbox.NotEntitled):
        inbox.grant(approval, by=viewer, seen=approval.digest)
