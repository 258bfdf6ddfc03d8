"""The answer is lost, late or wrong: what is known then, and what is done about it."""

import hashlib
import time

import pytest

from connectors import registry
from connectors.models import CallLog
from ledger import snapshots
from ledger.models import Blob, Effect
from recovery.casework import settling
from recovery.engine import faults, plan_lifecycle
from recovery.models import Plan, Step
from recovery.run_facts.runs import facts_of
from tests.recovery.engine import by_hand
from tests.recovery.engine.desk import (
    advance,
    case_of,
    in_hand,
    looked_at,
    make_due,
    plan_for,
    run_that,
    states,
)
from workspaces.moves import CannotMove

pytestmark = pytest.mark.django_db


LOSSES = {
    "a 500 after the effect": {"fail_after": 1},
    "a reset after the headers": {"reset_after": 1},
    "an answer cut off in the middle": {"truncate": 1},
    "a time-out": {"sleep_after": 2.2},
    "an answer that drips in": {"drip": 3},
}


SLOW = (LOSSES["a time-out"], LOSSES["an answer that drips in"])


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_an_effect_whose_answer_was_lost_is_found_again_and_not_repeated(
    one_thing, world, outside, loss, limit
):
    """F21 and F22: nothing of this is ever taken for “no effect”."""
    if loss in SLOW:
        limit(1.0)
    outside.mischief("a", **loss)
    plan = plan_for(one_thing, world)

    advance(plan)

    assert outside.effects() == ["a"]
    assert states(plan) == ["verified"]
    assert "step.unknown" in told(plan)


def test_reads_that_failed_before_the_call_are_not_counted_as_probes_after_it(
    one_thing, world, outside
):
    """A person is asked after so many probes, and none was made yet."""
    plan = plan_for(one_thing, world)
    by_hand.advance_once(plan.pk)
    plan.steps.update(probes=7)
    outside.mischief("a", fail_after=1)

    by_hand.advance_once(plan.pk)

    step = plan.steps.get()
    assert (step.state, step.probes) == ("unknown", 0)


def test_a_500_before_the_effect_is_unknown_until_a_probe_proves_absence(one_thing, world, outside):
    outside.mischief("a", fail=1)
    plan = plan_for(one_thing, world)

    advance(plan)

    assert states(plan) == ["verified"]
    assert outside.effects() == ["a"]
    first, second = plan.steps.get().attempts.order_by("number")
    assert (first.outcome, second.outcome) == ("absent", "applied")
    assert first.key == second.key


def test_a_documented_refusal_is_tried_again_and_then_given_to_people(one_thing, world, outside):
    for _ in range(3):
        outside.mischief("a", refuse="not today")
    plan = plan_for(one_thing, world)

    advance(plan)

    step = plan.steps.get()
    assert (step.state, step.tries, step.is_lost) == ("needs_human", 3, False)
    assert "422" in step.note
    assert outside.effects() == []


@pytest.mark.parametrize(("tried", "said"), [(True, "nothing more was"), (False, "nothing was")])
def test_what_is_found_as_it_should_be_is_not_said_to_have_been_sent_never(
    one_thing, world, outside, tried, said
):
    if tried:
        outside.mischief("a", refuse="not today")
    plan = plan_for(one_thing, world)
    by_hand.advance_once(plan.pk)
    if tried:
        by_hand.advance(plan.pk)
    outside.seed({"a": {"v": 1}})

    make_due(plan)
    advance(plan)

    step = plan.steps.get()
    assert (step.state, step.note) == ("verified", f"It was already so; {said} sent.")
    assert step.tries == tried


def test_what_was_refused_after_a_lost_answer_is_not_tried_under_another_key_without_a_word(
    one_thing, world, outside, ada
):
    """The first try did it, and two more under its key could not reach the provider."""
    outside.mischief("a", fail_after=1)
    for _ in range(2):
        outside.mischief("a", refuse="not today")
    plan = plan_for(one_thing, world, "refund_unseen")

    advance(plan)

    step = plan.steps.get()
    assert (step.was, step.state, step.tries) == ("unknown", "needs_human", 3)
    assert step.is_lost
    assert not step.note.startswith("Refused")
    one_thing.refresh_from_db()
    with pytest.raises(CannotMove, match="First say whether it happened"):
        settling.try_again(step, reason="it is back", by=ada, seen=one_thing.revision)
    advance(plan)
    assert outside.effects() == ["a"]


def test_a_step_that_goes_on_in_doubt_and_is_then_left_to_people_is_in_doubt(
    one_thing, world, outside, ada
):
    """Whatever has left it to them: they say first whether it happened."""
    outside.mischief("a", fail_after=1)
    plan = plan_for(one_thing, world, "refund_unseen")
    advance_once(plan)
    make_due(plan)
    by_hand.advance_once(plan.pk)
    assert states(plan) == ["ready"]  # to be asked again under its key
    type(world).objects.update(disabled_at=by_hand.after(0))

    advance(plan)

    step = plan.steps.get()
    assert (step.was, step.state, step.is_lost) == ("claimed", "needs_human", True)
    assert facts_of(one_thing.run).steps_to_settle().startswith("Settle step 1 first")
    one_thing.refresh_from_db()
    with pytest.raises(CannotMove, match="First say whether it happened"):
        settling.skip(step, reason="it may stay", by=ada, seen=one_thing.revision)
    with pytest.raises(CannotMove, match="under way"):
        plan_lifecycle.supersede(plan, by=ada, why="A new plan takes its place.")


def test_law_3_a_mail_whose_answer_was_lost_is_not_sent_again(one_thing, world, outside):
    outside.mischief("a", fail_after=1)
    plan = plan_for(one_thing, world, "mail")

    advance(plan)

    assert outside.effects() == ["a"]
    assert states(plan) == ["needs_human"]


def test_a_proven_absence_does_not_repeat_what_nothing_keeps_from_doubling(
    one_thing, world, outside
):
    outside.mischief("a", fail=1)
    plan = plan_for(one_thing, world, "charge_blindly")

    advance(plan)

    assert outside.effects() == []
    assert states(plan) == ["needs_human"]
    assert plan.steps.get().note.endswith("It is not tried again by itself.")


def test_a_provider_that_remembers_the_key_heals_a_lost_answer_without_a_probe(
    one_thing, world, outside
):
    """I6: no person is needed where a native key settles it."""
    outside.mischief("a", fail_after=1)
    plan = plan_for(one_thing, world, "refund_unseen")

    advance(plan)

    assert outside.effects() == ["a"]
    assert states(plan) == ["reported"]


def test_a_plan_that_is_stopped_in_doubt_asks_a_person_and_not_the_provider(
    one_thing, world, outside, ada
):
    """Nothing of it is sent any more, so nobody would find out."""
    outside.mischief("a", fail_after=1)
    plan = plan_for(one_thing, world, "refund_unseen")
    advance_once(plan)
    assert states(plan) == ["unknown"]

    stopped = plan_lifecycle.stop(plan, by=ada)
    advance(plan)

    assert [step.state for step in stopped.on_the_wire] == ["unknown"]
    step = plan.steps.get()
    assert (step.state, step.is_lost, step.tries) == ("needs_human", True, 1)
    assert facts_of(one_thing.run).steps_to_settle().startswith("Settle step 1 first")


def test_after_the_provider_has_forgotten_the_key_nobody_tries_again(one_thing, world, outside):
    """F23: the provider remembers for a minute, and a call may take twenty seconds of it."""
    outside.mischief("a", fail_after=1)
    plan = plan_for(one_thing, world, "refund_unseen")
    advance_once(plan)
    assert states(plan) == ["unknown"]
    plan.steps.get().attempts.update(intended_at=by_hand.after(-50))

    advance(plan)

    assert states(plan) == ["needs_human"]
    assert outside.effects() == ["a"]


def test_a_new_plan_does_not_repeat_what_an_earlier_one_tried(one_thing, world, outside):
    """The key of an undo outlives its plan, and nothing keeps this one from happening twice."""
    outside.mischief("a", fail=1)
    earlier = plan_for(one_thing, world, "charge_blindly")
    advance(earlier)
    assert earlier.steps.get().attempts.get().outcome == "absent"
    Step.objects.filter(plan=earlier).update(was="needs_human", state="skipped")
    Plan.objects.filter(pk=earlier.pk).update(was="running", state="finished")
    plan = plan_for(one_thing, world, "charge_blindly")

    advance(plan)

    assert outside.effects() == []
    assert states(plan) == ["needs_human"]
    assert plan.steps.get().note.startswith("It was tried before")


@pytest.mark.parametrize("operation", ["charge_blindly", "refund"])
def test_a_new_plan_does_not_repeat_the_further_try_that_a_person_authorised_in_an_earlier_one(
    one_thing, world, outside, operation
):
    """It went out under a key of its own."""
    earlier = plan_for(one_thing, world, operation)
    earlier.steps.update(generation=2, key="amends-further")
    outside.mischief("a", leaves={"v": 99})
    advance(earlier)
    assert states(earlier) == ["needs_human"]  # done, and it reads otherwise
    Step.objects.filter(plan=earlier).update(was="needs_human", state="skipped")
    Plan.objects.filter(pk=earlier.pk).update(was="running", state="finished")
    plan = plan_for(one_thing, world, operation, expecting={"a": {"v": 99}})

    advance(plan)

    assert outside.effects() == ["a"]
    assert states(plan) == ["needs_human"]
    assert plan.steps.get().note.startswith("It was tried before")


def test_absence_that_is_proven_too_late_leads_to_no_other_try(one_thing, world, outside):
    """F23: nothing was done, and the provider would not know a second try from a first."""
    outside.mischief("a", fail=1)
    plan = plan_for(one_thing, world, "refund")
    advance_once(plan)
    plan.steps.get().attempts.update(intended_at="2020-01-01T00:00:00Z")

    advance(plan)

    step = plan.steps.get()
    assert (step.state, step.attempts.count()) == ("needs_human", 1)
    assert step.note.endswith("The provider no longer remembers the key.")
    assert outside.effects() == []


def test_a_key_that_the_provider_forgot_while_the_target_was_read_is_not_sent_again(
    one_thing, world, outside
):
    """F23: the look may take long; the window is asked again where the try is written."""
    outside.mischief("a", fail=1)
    plan = plan_for(one_thing, world, "refund")
    advance_once(plan)
    make_due(plan)
    by_hand.advance_once(plan.pk)
    assert states(plan) == ["ready"]  # a probe has shown that the first try did nothing
    held = in_hand(plan)
    found = looked_at(held)
    first = plan.steps.get().attempts.get()
    assert first.outcome == "absent"
    plan.steps.get().attempts.update(intended_at="2020-01-01T00:00:00Z")

    assert by_hand.intend(held, found.operation, found.observation) is None

    step = plan.steps.get()
    assert (step.state, step.attempts.count()) == ("needs_human", 1)
    assert "no longer remembers the first try" in step.note
    assert outside.effects() == []


def test_a_receipt_is_not_called_restored(one_thing, world, outside):
    plan = plan_for(one_thing, world, "mail")

    advance(plan)

    assert states(plan) == ["reported"]
    one_thing.refresh_from_db()
    assert one_thing.state != "closed"


def test_absence_is_not_believed_before_the_horizon(one_thing, world, outside):
    outside.mischief("a", fail=1)
    plan = plan_for(one_thing, world, "slowly")

    advance_once(plan)
    advance_once(plan)

    step = plan.steps.get()
    assert step.state == "unknown"
    assert step.wake_at is not None
    assert (step.wake_at - step.attempts.get().intended_at).total_seconds() >= 3  # limit, horizon


def test_what_is_read_back_at_once_must_be_what_was_to_be_restored(one_thing, world, outside):
    """In the very go in which it was sent, as most are."""
    outside.mischief("a", leaves={"v": 99})
    plan = plan_for(one_thing, world)

    advance(plan)

    step = plan.steps.get()
    assert (step.state, outside.effects()) == ("needs_human", ["a"])
    assert next(one for one in step.evidence["checks"] if not one["ok"])["actual"] == 99


@pytest.mark.parametrize(
    ("answered", "state"), [("2100-01-01", "applied"), ("2000-01-01", "needs_human")]
)
def test_what_a_system_shows_late_is_awaited_though_a_read_failed_meanwhile(
    one_thing, world, outside, answered, state
):
    """People are told that it reads otherwise once the horizon is over, and not before."""
    plan = plan_for(one_thing, world, "slowly")
    advance_once(plan)
    moved = {"moved_at": f"{answered}T00:00:00Z", "probes": 1, "wake_at": None}
    Step.objects.filter(plan=plan).update(was="intended", state="applied", **moved)
    outside.seed({"a": {"v": 2}})

    by_hand.advance_once(plan.pk)

    assert states(plan) == [state]


def test_what_is_read_back_must_be_what_was_to_be_restored(one_thing, world, outside):
    plan = plan_for(one_thing, world)
    advance_once(plan)
    Step.objects.filter(plan=plan).update(was="intended", state="applied")
    outside.seed({"a": {"v": 99}})

    advance(plan)

    step = plan.steps.get()
    assert step.state == "needs_human"
    assert step.evidence is not None
    assert next(one for one in step.evidence["checks"] if not one["ok"])["actual"] == 99


def advance_once(plan):

    by_hand.advance_once(plan.pk)  # start
    by_hand.advance_once(plan.pk)  # claim, check, intend, act, settle


def told(plan):
    from ledger.models import Event
    from recovery.engine import steps

    events = Event.objects.filter(workspace=plan.workspace, run=steps.run_of(plan))
    return list(events.order_by("place").values_list("type", flat=True))


@pytest.fixture
def kept_apart(one_thing):
    """What “a” was before is kept as a snapshot of its own."""
    content = b'{"v":1}'
    sha256 = hashlib.sha256(content).hexdigest()
    one = Blob.objects.create(
        workspace=one_thing.workspace, sha256=sha256, content=content, byte_count=len(content)
    )
    Effect.objects.update(before={snapshots.REF: f"{snapshots.PREFIX}{sha256}"})
    return one


def test_a_try_that_could_not_leave_for_want_of_a_snapshot_is_known_to_have_done_nothing(
    one_thing, world, outside, kept_apart, monkeypatch
):
    """Erased between the intent and the call: whoever decides now need not ask whether it left."""
    point = faults.point

    def erased(name):
        if name == "intended":
            kept_apart.delete()
        point(name)

    monkeypatch.setattr(faults, "point", erased)
    plan = plan_for(one_thing, world)

    advance(plan)

    step = plan.steps.get()
    assert (step.state, outside.effects()) == ("needs_human", [])
    assert "not kept here any more" in step.note
    assert [one.outcome for one in step.attempts.all()] == ["no_effect"]


def test_a_probe_that_lacks_its_snapshot_asks_a_person(one_thing, world, outside, kept_apart):
    plan = plan_for(one_thing, world)
    by_hand.advance_once(plan.pk)
    outside.mischief("a", fail_after=1)
    by_hand.advance_once(plan.pk)
    assert states(plan) == ["unknown"]
    kept_apart.delete()

    advance(plan)

    step = plan.steps.get()
    assert step.state == "needs_human"
    assert "cannot be found out from here" in step.note


def test_an_answer_that_comes_too_late_is_one_call_in_the_log(
    handy, world, outside, limit, monkeypatch
):
    """A connector that keeps to no limit; the breaker counts failures in a row, and one time-out
    must not be two of them.
    """
    limit(1.0)
    outside.seed({"x": {"v": 2}, "y": {"v": 2}})
    plans = [
        plan_for(case_of(run_that(handy, f"run_{one}", {one: ({"v": 1}, {"v": 2})})), world)
        for one in "xy"
    ]
    for plan in plans:
        by_hand.advance_once(plan.pk)
    kind = type(registry.get("outside"))
    observe = kind.observe

    def hangs(self, call):
        found = observe(self, call)
        time.sleep(1.8 if call.target.id == "x" else 0.8)  # x is given up after 1.5 seconds
        return found

    monkeypatch.setattr(kind, "observe", hangs)
    outside.mischief("y", sleep_after=0.9)  # y is under way as x comes back

    by_hand.take_through([in_hand(plan) for plan in plans])

    reads = CallLog.objects.filter(target="thing/x", method="observe")
    assert [one.outcome for one in reads] == ["failed"]
