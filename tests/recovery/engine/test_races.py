"""Many workers at once: one claim wins, and whoever comes late finds its writes refused."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from django.db import DatabaseError, connection, transaction

from approvals import pauses
from approvals.models import Pause
from connectors import calllog
from connectors.contract import Answer
from connectors.models import Connection
from ledger.models import Event
from recovery import tasks
from recovery.engine import failure_paths, faults, outbound_calls, plan_lifecycle, protocol, steps
from recovery.engine.protocol import ClaimedStep
from recovery.models import Plan, Step
from tests.locks import SECONDS_MAX, at_once, came_of, comes_before_the_commit
from tests.recovery.engine import by_hand
from tests.recovery.engine.by_hand import after
from tests.recovery.engine.desk import (
    case_of,
    in_hand,
    looked_at,
    make_due,
    plan_for,
    run_that,
    states,
)
from workspaces.clock import boot_seconds
from workspaces.moves import CannotMove

pytestmark = pytest.mark.django_db(transaction=True)

WORKERS = 8


def test_law_4_eight_workers_on_one_plan_have_one_effect_each_in_order(case, world, outside):
    """Law 4 and F11: what is done is read after the claim, under it."""
    plan = plan_for(case, world)

    for _ in range(10):
        at_once(*[lambda: by_hand.advance(plan.pk)] * WORKERS)
        Step.objects.filter(plan=plan).update(wake_at=None)

    assert states(plan) == ["verified"] * 3
    assert outside.effects() == ["c", "b", "a"]
    assert list(plan.steps.values_list("tries", flat=True)) == [1, 1, 1]


def test_one_claim_wins(case, world):
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    step = plan.steps.get(position=1)
    won: list[ClaimedStep | None] = []

    at_once(*[lambda: won.append(by_hand.claim(step.pk))] * WORKERS)

    assert len([held for held in won if held is not None]) == 1
    step.refresh_from_db()
    assert (step.state, step.fence, step.claims) == ("claimed", 1, 1)


def test_two_plans_do_not_touch_one_target_at_the_same_time(handy, world, outside):
    outside.seed({"a": {"v": 3}})
    first = plan_for(case_of(run_that(handy, "run_1", {"a": ({"v": 2}, {"v": 3})})), world)
    second = plan_for(case_of(run_that(handy, "run_2", {"a": ({"v": 1}, {"v": 2})})), world)
    for plan in (first, second):
        by_hand.advance_once(plan.pk)
    by_hand.claim(first.steps.get().pk)

    assert by_hand.claim(second.steps.get().pk) is None

    assert second.steps.get().note == f"Waits for case {first.case_id}"
    assert states(second) == ["ready"]


def test_a_worker_that_slept_past_its_lease_finds_its_writes_refused(case, world, outside):
    """F19: whoever took over goes on; the sleeper's intent is refused, nothing is sent twice."""
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    step = plan.steps.get(position=1)
    sleeper = in_hand(plan)
    found = looked_at(sleeper)
    make_due(plan)
    assert failure_paths.reclaim(step.pk)
    newer = in_hand(plan)

    with pytest.raises(CannotMove):
        by_hand.intend(sleeper, found.operation, found.observation)
    by_hand.take_through([newer])

    assert outside.effects() == ["c"]


def test_the_lease_must_outlast_the_call(case, world, outside):
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    held = in_hand(plan)
    Step.objects.filter(pk=held.step.pk).update(lease_until=after(1.0))

    by_hand.take_through([held])

    assert outside.effects() == []
    assert states(plan)[0] == "ready"
    assert plan.steps.get(position=1).claims == 0


def test_a_worker_that_slept_between_intent_and_send_does_not_send(case, world, outside):
    """F19: this process's own clock, which goes on while it is stopped, says that time is over."""
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    held = in_hand(plan)
    late = ClaimedStep(held.step, ends_at=boot_seconds())

    by_hand.take_through([late])

    assert outside.effects() == []
    assert plan.steps.get(position=1).attempts.get().outcome == "no_effect"


def test_an_answer_that_comes_after_the_lease_is_kept_as_evidence(case, world, outside):
    """F04: the step was taken back as unknown; what the late answer says settles it."""
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    held = in_hand(plan)
    found = looked_at(held)
    intent = by_hand.intend(held, found.operation, found.observation)
    assert intent is not None
    make_due(plan)
    assert failure_paths.reclaim(held.step.pk)
    answer = by_hand.send(intent, found.observation)

    assert not by_hand.settles(intent, found.operation, answer)
    make_due(plan)
    by_hand.advance_once(plan.pk)

    step = plan.steps.get(position=1)
    assert (step.state, step.note) == ("applied", "Its answer had come after all.")


def test_a_step_that_takes_its_worker_down_every_time_is_given_to_people(case, world, monkeypatch):
    """F06: bounded claims, and the other plans go on."""
    plan = plan_for(case, world)
    monkeypatch.setitem(faults.FAULTS, "claimed", faults.Fault("raise", "*"))

    for _ in range(30):
        with suppress(faults.Injected):
            by_hand.advance(plan.pk)
        make_due(plan)

    assert states(plan) == ["needs_human"] * 3
    assert all(step.claims == protocol.CLAIMS_MAX for step in plan.steps.all())


def test_two_sweepers_give_one_hint(case, world):
    """F25."""
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    Plan.objects.filter(pk=plan.pk).update(hinted_at=None)
    plan.steps.update(moved_at="2020-01-01T00:00:00Z")
    found: list[list[int]] = []

    at_once(*[lambda: found.append(tasks.due())] * 2)

    assert sorted(found) == [[], [plan.pk]]


def test_a_connection_that_keeps_failing_is_left_alone_for_a_while(case, world, outside):
    """Nobody else waits for its time-outs meanwhile, and whoever mends it does not wait long for
    the step, however long the pause has become."""
    for _ in range(calllog.FAILURES_MAX):
        outside.mischief("read c", status=503)
    plan = plan_for(case, world)

    for _ in range(calllog.FAILURES_MAX + 1):
        by_hand.advance(plan.pk)
        make_due(plan)
    by_hand.advance(plan.pk)

    step = plan.steps.get(position=1)
    assert (step.state, step.claims) == ("ready", 0)
    assert "left alone until" in step.note
    failing = Connection.objects.filter(pk=world.pk)
    failing.update(failures_in_a_row=12, open_until=after(600.0))
    make_due(plan)
    by_hand.advance(plan.pk)
    assert plan.steps.filter(position=1, wake_at__lt=after(60.0)).exists()
    failing.update(failures_in_a_row=0, open_until=None)  # as a look that is answered leaves it
    make_due(plan)
    by_hand.advance(plan.pk)
    assert plan.steps.get(position=1).state == "verified"


IN_OTHER_HANDS, TOO_OFTEN, IS_GONE = "its target is taken", "claimed too often", "no operation"


@pytest.mark.parametrize("why", [IN_OTHER_HANDS, TOO_OFTEN, IS_GONE])
def test_a_trial_that_a_step_does_not_make_is_left_to_the_next(handy, world, outside, why):
    """Else a system that is back would be left alone for as long as a call may last."""
    outside.seed({"a": {"v": 3}})
    other = plan_for(case_of(run_that(handy, "run_1", {"a": ({"v": 2}, {"v": 3})})), world)
    plan = plan_for(case_of(run_that(handy, "run_2", {"a": ({"v": 1}, {"v": 2})})), world)
    for one in (other, plan):
        by_hand.advance_once(one.pk)
    if why == IN_OTHER_HANDS:
        in_hand(other)
    if why == TOO_OFTEN:
        plan.steps.update(claims=protocol.CLAIMS_MAX)
    if why == IS_GONE:
        plan.steps.update(operation="nothing of the kind")
    failing = Connection.objects.filter(pk=world.pk)
    failing.update(failures_in_a_row=calllog.FAILURES_MAX, open_until=after(-1.0))

    by_hand.advance_once(plan.pk)

    assert plan.steps.get().state == ("ready" if why == IN_OTHER_HANDS else "needs_human")
    assert calllog.may_call(world) is None, "the trial is free"
    assert calllog.may_call(world) is not None, "and is still one"


def test_a_trial_that_a_step_makes_is_its_own(case, world):
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    failing = Connection.objects.filter(pk=world.pk)
    failing.update(failures_in_a_row=calllog.FAILURES_MAX, open_until=after(-1.0))

    in_hand(plan)

    assert calllog.may_call(world) is not None


def test_no_more_calls_go_over_a_connection_at_once_than_it_takes(handy, world, outside):
    world.concurrency = 1
    world.save()
    plans = []
    for name in "ab":
        outside.seed({name: {"v": 2}})
        run = run_that(handy, f"run_{name}", {name: ({"v": 1}, {"v": 2})})
        plans.append(plan_for(case_of(run), world))
        by_hand.advance_once(plans[-1].pk)
    in_hand(plans[0])

    assert by_hand.claim(plans[1].steps.get().pk) is None

    assert "under way" in plans[1].steps.get().note


def test_eight_workers_at_once_stay_within_what_a_connection_takes(handy, world, outside):
    world.concurrency = 2
    world.save()
    waiting = []
    for number in range(WORKERS):
        outside.seed({f"t{number}": {"v": 2}})
        run = run_that(handy, f"run_{number}", {f"t{number}": ({"v": 1}, {"v": 2})})
        plan = plan_for(case_of(run), world)
        by_hand.advance_once(plan.pk)
        waiting.append(plan.steps.get().pk)

    at_once(*[lambda: by_hand.claim(waiting.pop())] * WORKERS)

    assert Step.objects.filter(state="claimed").count() == 2


def test_a_step_that_found_its_connection_busy_is_found_again_when_its_time_comes(
    handy, world, outside
):
    """Its turn had come while it was still blocked, so that no move of its own tells of it."""
    plans = []
    for name in "ab":
        things = {f"{name}{number}": ({"v": 1}, {"v": 2}) for number in (1, 2)}
        outside.seed({thing: {"v": 2} for thing in things})
        plans.append(plan_for(case_of(run_that(handy, f"run_{name}", things)), world))
    by_hand.advance(plans[0].pk)
    plans[1].steps.filter(position=1).update(was="applied", state="verified")
    Plan.objects.filter(pk=plans[1].pk).update(was="waiting", state="running", started_at=after(0))
    world.concurrency = 0
    world.save()
    by_hand.advance(plans[1].pk)
    second = plans[1].steps.get(position=2)
    assert (second.state, "under way" in second.note) == ("blocked", True)
    assert tasks.due() == []

    plans[1].steps.filter(position=2).update(wake_at=after(-0.1))

    assert tasks.due() == [plans[1].pk]


def test_calls_are_made_in_the_queue_of_their_connector(case, world, outside):
    plan = plan_for(case, world)

    assert by_hand.advance(plan.pk, queue="engine") == "connector.outside"
    assert outside.effects() == []

    assert by_hand.advance(plan.pk, queue="connector.outside") == ""
    assert outside.effects() == ["c", "b", "a"]


def test_a_newer_step_that_is_tried_again_does_not_hide_an_older_one_whose_worker_died(
    case, world, outside
):
    """The law names the newer one, which cannot be claimed while the older one is in hand."""
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    Step.objects.filter(plan=plan, position=1).update(was="claimed", state="needs_human")
    in_hand(plan, 2)
    Step.objects.filter(plan=plan, position=1).update(was="needs_human", state="ready")
    by_hand.advance(plan.pk)
    assert states(plan) == ["ready", "claimed", "blocked"]  # its lease is not over
    assert plan.steps.get(position=1).note == "Waits for another step of its plan."

    make_due(plan)
    by_hand.advance(plan.pk)
    by_hand.advance(plan.pk)

    assert states(plan) == ["verified"] * 3
    assert outside.effects() == ["c", "b", "a"]


@pytest.mark.parametrize("outcome", ["applied", "no_effect", "unknown"])
def test_a_late_answer_to_the_first_try_is_not_taken_for_one_to_the_second(case, world, outcome):
    """Both stand `intended`: only the fence tells one try from the other."""
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    first, second = intended(plan), intended(plan)
    late = Answer(outcome=outcome, detail="It came late.")
    operation = outbound_calls.operation_of(first.step)

    assert not by_hand.settles(first, operation, late)

    assert plan.steps.get(position=1).state == "intended"
    first.attempt.refresh_from_db()
    second.attempt.refresh_from_db()
    assert (first.attempt.outcome, second.attempt.outcome) == (outcome, "")


def intended(plan):
    """Take it to its intent, from a worker that is never heard of again."""
    Step.objects.filter(plan=plan, state="intended").update(was="unknown", state="ready")
    held = in_hand(plan)
    found = looked_at(held)
    intent = by_hand.intend(held, found.operation, found.observation)
    assert intent is not None
    return intent


def test_a_stop_counts_a_step_that_a_worker_claims_in_that_very_moment(case, world, outside, ada):
    """The worker has the row in hand when the stop looks; nothing was on the wire, and stays so."""
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    claimed: list[ClaimedStep] = []
    heard: list[plan_lifecycle.StopResult] = []

    def work():
        claimed.extend(protocol.claim_all([steps.load(plan.steps.get(position=1).pk)]))

    def stop():
        heard.append(plan_lifecycle.stop(plan, by=ada, reason="wrong customer"))

    comes_before_the_commit(work, stop)
    with suppress(CannotMove):
        by_hand.take_through(claimed)

    assert [(one.cancelled, one.on_the_wire) for one in heard] == [(3, [])]
    assert states(plan) == ["cancelled"] * 3
    assert outside.effects() == []


def test_a_step_whose_plan_was_stopped_since_its_turn_came_is_not_claimed(case, world):
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    Plan.objects.filter(pk=plan.pk).update(was="running", state="stopped")

    assert by_hand.claim(plan.steps.get(position=1).pk) is None
    assert states(plan)[0] in {"blocked", "ready"}


def test_a_claimed_step_of_a_plan_that_was_stopped_is_not_sent(case, world, outside):
    """The stop met it before it was claimed: the intent asks whether its plan still runs."""
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    held = in_hand(plan)
    Plan.objects.filter(pk=plan.pk).update(was="running", state="stopped")

    by_hand.take_through([held])

    assert outside.effects() == []
    assert not plan.steps.get(position=1).attempts.exists()


def test_no_intent_is_committed_after_a_pause_that_did_not_see_it(case, world, ada):
    """The log showed a step sent under a pause, of which the page had said that nothing is."""
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    held = in_hand(plan)
    found = looked_at(held)

    comes_before_the_commit(
        lambda: by_hand.intend(held, found.operation, found.observation),
        lambda: pauses.pause(case.workspace, "tool", "world.*", by=ada, reason="moving house"),
    )

    intended = Event.objects.get(type="step.intended")
    assert intended.place < Event.objects.get(type="pause.placed").place
    assert Pause.objects.standing().get().paused_at > intended.received_at


def test_an_intent_that_hangs_keeps_nobody_from_pausing(case, world, ada, monkeypatch):
    monkeypatch.setattr(pauses, "INTENTS_MILLISECONDS_MAX", 20)
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    held = in_hand(plan)
    found = looked_at(held)

    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        by_hand.intend(held, found.operation, found.observation)
        pause = pool.submit(
            came_of, lambda: pauses.pause(case.workspace, "workspace", by=ada, reason="all of it")
        )
        assert isinstance(pause.result(SECONDS_MAX), Pause)


def test_a_sleeper_does_not_give_back_a_step_that_somebody_reclaimed(case, world):
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    sleeper = in_hand(plan)
    make_due(plan)
    assert failure_paths.reclaim(sleeper.step.pk)
    newer = in_hand(plan)

    with pytest.raises(CannotMove):
        steps.release(sleeper.step, 0.0, note="The lease was too short.")

    step = plan.steps.get(position=1)
    assert (step.state, step.fence, step.claims) == ("claimed", newer.step.fence, 2)


@pytest.mark.parametrize("state", ["claimed", "intended"])
def test_a_living_workers_step_is_not_taken_back(case, world, state):
    """Whoever looked saw a lease that was over; meanwhile somebody else has it in hand."""
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    held = in_hand(plan) if state == "claimed" else intended(plan)

    assert not failure_paths.reclaim(held.step.pk)

    step = plan.steps.get(position=1)
    assert (step.state, step.fence) == (state, held.step.fence)


def test_a_step_whose_worker_was_lost_is_not_probed_before_the_horizon(case, world, outside):
    """Its call may have left at the end of the lease, and is not to be seen for a while."""
    plan = plan_for(case, world, "slowly")
    by_hand.advance_once(plan.pk)
    intended(plan)
    make_due(plan)

    assert failure_paths.reclaim(plan.steps.get(position=1).pk)
    by_hand.advance_once(plan.pk)

    step = plan.steps.get(position=1)
    assert (step.state, step.probes) == ("unknown", 0)
    horizon = (step.wake_at - step.moved_at).total_seconds()
    assert horizon >= outbound_calls.operation_of(step).horizon_seconds - 0.1


def test_an_intent_whose_commit_fails_has_sent_nothing(case, world, outside):
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    with connection.cursor() as cursor:
        cursor.execute(NO_COMMIT)
    try:
        with pytest.raises(DatabaseError, match="no intent today"):
            by_hand.advance(plan.pk)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION no_intent CASCADE")

    time.sleep(0.3)  # a call that had left would be there by now
    assert outside.effects() == []
    assert not plan.steps.get(position=1).attempts.exists()


NO_COMMIT = """
CREATE FUNCTION no_intent() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'no intent today'; END $$;
CREATE CONSTRAINT TRIGGER no_intent AFTER INSERT ON recovery_stepattempt
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION no_intent()"""
