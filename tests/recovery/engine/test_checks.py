"""What is looked at inside the lease, and once more before the intent is written."""

from typing import Any

import pytest
from django.db.models import F

from approvals import pauses
from connectors import connections, registry
from connectors.contract import Refused
from ledger.models import Action, Attempt, Effect, Event, Run
from recovery.casework import settling
from recovery.engine import outbound_calls, plan_lifecycle, protocol
from recovery.engine.protocol import CheckedStep, IntentResult
from recovery.models import Plan, Step, StepAttempt
from tests.outside.world import World
from tests.recovery.engine import by_hand
from tests.recovery.engine.desk import (
    advance,
    case_of,
    in_hand,
    looked_at,
    plan_for,
    run_that,
    send_events,
    states,
)

pytestmark = pytest.mark.django_db


def test_law_6_a_person_edited_it_after_the_agent_and_is_not_overwritten(case, world, outside):
    """Law 6: refusal with a diff, field by field; the others go on."""
    outside.seed({"b": {"v": 7}})
    plan = plan_for(case, world)

    advance(plan)

    assert states(plan) == ["verified", "drifted", "verified"]
    assert outside.thing("b") == {"v": 7}
    drift = plan.steps.get(target_id="b").drift
    assert drift == [{"field": "v", "was": 1, "agent_wrote": 2, "now": 7}]
    case.refresh_from_db()
    assert case.state == "open"


def test_law_6_a_second_decision_on_the_present_state_overrides_the_drift(case, world, outside):
    """Law 6: forced by a second decision, and then it works."""
    outside.seed({"b": {"v": 7}})
    first = plan_for(case, world)
    advance(first)
    plan_lifecycle.supersede(first, by=None, why="A new plan on what is there now.")
    second = plan_for(case, world, expecting={"b": {"v": 7}})

    advance(second)

    assert states(first) == ["verified", "cancelled", "verified"]
    assert states(second) == ["verified"]
    assert outside.thing("b") == {"v": 1}


def test_what_is_already_as_it_should_be_needs_no_call(case, world, outside):
    outside.seed({"b": {"v": 1}})
    plan = plan_for(case, world)

    advance(plan)

    assert states(plan) == ["verified"] * 3
    assert outside.effects() == ["c", "a"]
    assert plan.steps.get(target_id="b").attempts.count() == 0


LONG_AGO, JUST_NOW = "2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("shown", "ended", "state"),
    [
        ({"v": 1}, JUST_NOW, "ready"),
        ({"v": 0}, JUST_NOW, "ready"),
        ({"v": 1}, LONG_AGO, "verified"),
        ({"v": 0}, LONG_AGO, "drifted"),
    ],
)
def test_what_a_system_shows_late_is_neither_undone_nor_changed_because_it_does_not_show_yet(
    one_thing, world, outside, shown, ended, state
):
    """It was called restored, and stood as the agent left it a moment later."""
    outside.seed({"a": shown})  # a replica that lags behind
    Action.objects.update(finished_at=LONG_AGO)  # that was a first try, without an effect
    Attempt.objects.update(finished_at=ended)
    plan = plan_for(one_thing, world, "slowly")

    by_hand.advance_once(plan.pk)
    by_hand.advance_once(plan.pk)

    step = plan.steps.get()
    assert (step.state, outside.effects()) == (state, [])
    if state == "ready":
        assert step.claims == 0
        assert step.wake_at is not None
        assert step.wake_at > Attempt.objects.get(action__run__run="run_1").finished_at
        outside.seed({"a": {"v": 2}})
        advance(plan)
        assert (states(plan), outside.effects()) == (["verified"], ["a"])


def test_what_a_newer_step_did_is_neither_undone_nor_changed_because_it_does_not_show_yet(
    handy, world, outside
):
    """The agent went there and back: read late, the older change looked restored and was not."""
    first, second = {"v": 1}, {"v": 2}
    outside.seed({"a": first})
    case = case_of(run_that(handy, "run_2", {"a": (first, second), "a'": (second, first)}))
    Attempt.objects.update(finished_at=LONG_AGO)
    plan = plan_for(case, world, "slowly")
    by_hand.advance_once(plan.pk)
    by_hand.advance_once(plan.pk)
    assert (states(plan), outside.thing("a")) == (["verified", "blocked"], second)
    outside.seed({"a": first})  # a replica that lags behind

    by_hand.advance_once(plan.pk)

    step = plan.steps.get(position=2)
    assert (step.state, step.claims) == ("ready", 0)
    outside.seed({"a": second})
    StepAttempt.objects.update(answered_at=LONG_AGO)
    advance(plan)
    assert states(plan) == ["verified", "verified"]
    assert outside.effects() == ["a", "a"]


def test_a_thing_that_was_made_is_removed_and_being_gone_already_is_a_success(
    handy, world, outside
):
    outside.seed({"new": {"v": 1}})
    case = case_of(run_that(handy, "run_2", {"new": (None, {"v": 1})}))
    plan = plan_for(case, world)

    advance(plan)

    assert outside.thing("new") is None
    assert states(plan) == ["verified"]


def test_two_changes_of_one_thing_are_undone_one_after_the_other(handy, world, outside):
    """The older step expects what the newer one restored."""
    outside.seed({"a": {"v": 3}})
    case = case_of(
        run_that(handy, "run_2", {"a": ({"v": 1}, {"v": 2}), "a'": ({"v": 2}, {"v": 3})})
    )
    plan = plan_for(case, world)

    advance(plan)

    assert states(plan) == ["verified", "verified"]
    assert [line["fields"] for line in outside.journal()] == [{"v": 2}, {"v": 1}]


def test_a_drifted_step_holds_back_the_older_ones_on_its_target_only(handy, world, outside):
    outside.seed({"a": {"v": 99}, "b": {"v": 2}})
    changes = {"b": ({"v": 1}, {"v": 2}), "a": ({"v": 1}, {"v": 2}), "a'": ({"v": 2}, {"v": 3})}
    case = case_of(run_that(handy, "run_2", changes))
    plan = plan_for(case, world)

    advance(plan)

    assert states(plan) == ["drifted", "blocked", "verified"]


def test_under_halt_nothing_older_runs(case, world, outside):
    outside.seed({"c": {"v": 99}})
    plan = plan_for(case, world, halt_on_failure=True)

    advance(plan)

    assert states(plan) == ["drifted", "blocked", "blocked"]
    assert outside.effects() == []


def test_a_tampered_argument_stops_the_step_with_a_diff(case, world, outside):
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    Step.objects.filter(plan=plan, target_id="c").update(args={"id": "c", "to": {"v": 1000000}})

    advance(plan)

    step = plan.steps.get(target_id="c")
    assert step.state == "needs_human"
    assert "c" not in outside.effects()


def test_changed_settings_of_the_connection_stop_what_was_approved_over_the_old(
    case, world, ada, outside
):
    plan = plan_for(case, world)
    connections.update(world, {"url": outside.url + "/"}, by=ada, revision=world.revision)

    advance(plan)

    assert states(plan) == ["needs_human"] * 3
    step = plan.steps.get(position=1)
    assert step.evidence is not None
    assert [one["field"] for one in step.evidence["diff"]] == ["connection_digest"]
    assert outside.effects() == []


@pytest.fixture
def elsewhere(tmp_path):
    """Another system, in which no agent has done anything."""
    running = World(tmp_path)
    running.seed({"a": {"v": 1}})
    yield running
    running.stop()


def lead(world, outside, ada):
    """Let the connection lead there."""
    world.refresh_from_db()
    connections.update(world, {"url": outside.url}, by=ada, revision=world.revision)


def test_that_another_system_is_as_it_should_be_puts_nothing_right_in_the_one_that_was_approved(
    one_thing, world, ada, outside, elsewhere
):
    """It was verified without a call, and the effect stood: nothing was ever changed there."""
    plan = plan_for(one_thing, world)
    by_hand.advance_once(plan.pk)
    lead(world, elsewhere, ada)

    advance(plan)

    step = plan.steps.get()
    assert (step.state, step.effect.compensated) == ("needs_human", "none")
    assert [one["field"] for one in step.evidence["diff"]] == ["connection_digest"]
    assert outside.thing("a") == {"v": 2}


def test_a_call_is_looked_for_in_the_system_that_it_was_sent_to_and_in_no_other(
    one_thing, world, ada, outside, elsewhere
):
    """That it was not there was taken for a proof that it had not happened."""
    outside.mischief("a", fail_after=1)
    plan = plan_for(one_thing, world)
    for _ in range(2):
        by_hand.advance_once(plan.pk)
    assert states(plan) == ["unknown"]
    lead(world, elsewhere, ada)

    advance(plan)

    step = plan.steps.get()
    assert (step.state, step.is_lost) == ("needs_human", True)
    assert step.attempts.get().outcome == "unknown"

    one_thing.refresh_from_db()
    there = {"evidence": "It is there.", "by": ada, "seen": one_thing.revision}
    settling.settle_step(step, outcome="applied", **there)
    lead(world, outside, ada)
    advance(plan)
    assert (states(plan), outside.effects()) == (["verified"], ["a"])


@pytest.mark.parametrize(
    ("version", "ends"),
    [("1.7", ["verified"]), ("2.0", ["needs_human"]), ("1.0+x", ["needs_human"])],
)
def test_a_call_is_looked_for_by_a_newer_connector_that_finds_what_the_older_did(
    one_thing, world, outside, monkeypatch, version, ends
):
    """Every upgrade of a package left the steps that were in doubt to people."""
    outside.mischief("a", fail_after=1)
    plan = plan_for(one_thing, world)
    for _ in range(2):
        by_hand.advance_once(plan.pk)
    assert states(plan) == ["unknown"]
    monkeypatch.setattr(type(registry.get("outside")), "version", version)

    advance(plan)

    assert (states(plan), outside.effects()) == (ends, ["a"])


def test_a_call_is_not_looked_for_in_another_account(one_thing, world, logged_in, outside):
    outside.mischief("a", fail_after=1)
    plan = plan_for(one_thing, world)
    for _ in range(2):
        by_hand.advance_once(plan.pk)
    assert states(plan) == ["unknown"]
    logged_in("eve", purposes=["observe"])

    advance(plan)

    step = plan.steps.get()
    assert (step.state, step.is_lost) == ("needs_human", True)
    assert [one["field"] for one in step.evidence["diff"]] == ["connection account to observe"]

    logged_in("mia", purposes=["observe"])
    assert settling.reads_back(plan.steps.get())


def test_what_was_done_is_not_read_back_from_another_system(
    one_thing, world, ada, outside, elsewhere
):
    outside.mischief("a", leaves={"v": 99})
    plan = plan_for(one_thing, world)
    for _ in range(2):
        by_hand.advance_once(plan.pk)
    Step.objects.filter(plan=plan).update(was="intended", state="applied")
    lead(world, elsewhere, ada)

    advance(plan)

    step = plan.steps.get()
    assert (step.state, step.effect.compensated) == ("needs_human", "none")
    assert step.note.startswith("Its connection is not what was approved")
    assert [one["field"] for one in step.evidence["diff"]] == ["connection_digest"]

    elsewhere.seed({"a": {"v": 1}})
    with pytest.raises(Refused, match="says nothing of the step"):
        outbound_calls.observe(step)
    one_thing.refresh_from_db()
    there = {"evidence": "I looked there.", "by": ada, "seen": one_thing.revision}
    assert not settling.reads_back(step)
    settling.settle_step(step, outcome="applied", **there)
    advance(plan)

    step.refresh_from_db()
    effect = Effect.objects.get(pk=step.effect_id)
    assert (step.state, effect.compensated) == ("reported", "compensated"), "by their word alone"
    assert not Event.objects.get(type="action.compensated").data["verified"]


def test_a_target_that_cannot_be_read_is_tried_later_and_nothing_is_sent(case, world, outside):
    outside.mischief("read c", status=503)
    outside.mischief("read c", status=500)
    plan = plan_for(case, world)

    advance(plan)

    assert states(plan) == ["verified"] * 3


def test_a_step_is_not_claimed_under_a_pause(case, world, ada):
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    pauses.pause(case.workspace, "connection", "world", by=ada, reason="moving house")

    assert by_hand.claim(plan.steps.get(position=1).pk) is None


def disabled(case, world, by):
    connections.disable(world, by=by)


def paused(case, world, by):
    pauses.pause(case.workspace, "connection", "world", by=by, reason="moving house")


@pytest.mark.parametrize(
    ("meanwhile", "stands"),
    [
        (paused, ("ready", "Paused: moving house")),
        (disabled, ("needs_human", "The connection world is disabled.")),
    ],
)
def test_what_comes_after_the_claim_keeps_the_step_from_being_sent(
    case, world, ada, outside, meanwhile, stands
):
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    held = in_hand(plan)
    found = looked_at(held)
    meanwhile(case, world, ada)

    assert by_hand.intend(held, found.operation, found.observation) is None

    step = plan.steps.get(position=1)
    assert (step.state, step.note) == stands
    assert outside.effects() == []


@pytest.mark.parametrize("meanwhile", [paused, disabled])
def test_a_step_that_was_taken_from_us_is_not_ours_to_give_up(case, world, ada, meanwhile):
    """It is among the refused, as one whose lease is too short: no failure of the desk is told."""
    plan = plan_for(case, world)
    by_hand.advance_once(plan.pk)
    held = in_hand(plan)
    found = looked_at(held)
    meanwhile(case, world, ada)
    Step.objects.filter(pk=held.step.pk).update(fence=F("fence") + 1)

    checked = [CheckedStep(held, found.operation, found.observation)]
    assert protocol.intend_all(checked) == IntentResult({}, {held.step.pk})


def test_a_pause_of_the_connection_holds_everything_until_it_is_lifted(case, world, ada, outside):
    pause = pauses.pause(case.workspace, "connection", "world", by=ada, reason="moving house")
    plan = plan_for(case, world)

    advance(plan)
    assert outside.effects() == []
    assert states(plan) == ["ready", "blocked", "blocked"]

    pauses.lift(pause, by=ada)
    advance(plan)
    assert states(plan) == ["verified"] * 3


EFFECTS = {
    name: {"target": {"type": "thing", "id": name}, "before": {"v": 1}, "after": {"v": 2}}
    for name in "ab"
}

BEGUN: tuple[tuple[str, str | None, dict[str, Any]], ...] = (
    ("run.started", None, {}),
    ("action.planned", "x", {"tool": "things.set", "targets": []}),
    ("run.failed", None, {"error": {"type": "Broken", "message": "it broke"}}),
)


@pytest.fixture
def moved(handy, world, outside, monkeypatch):
    """Two effects of one call whose undo was tried, and left to people, by the operation that is
    named; then the agent tells of them once more, in the other order. A plan of that moment.
    """

    def told(order, before=()):
        done = {"attempt": "a1", "effects": [EFFECTS[name] for name in order]}
        send_events(handy, "run_1", *before, ("action.succeeded", "x", done))

    def plans(operation, **trouble):
        outside.seed({name: {"v": 2} for name in "ab"})
        told("ab", before=BEGUN)
        case = case_of(Run.objects.get(run="run_1"))
        earlier = plan_for(case, world, operation)
        for name in "ab" * 3:
            outside.mischief(name, **trouble)
        for _ in "ab":
            advance(earlier)
            type(world).objects.update(**connections.CLOSED)  # its circuit, after five failures
        assert states(earlier) == ["needs_human"] * 2
        outside.seed({name: {"v": 2} for name in "ab"})
        Step.objects.filter(plan=earlier).update(was="needs_human", state="skipped")
        Plan.objects.filter(pk=earlier.pk).update(was="running", state="finished")
        monkeypatch.setattr("tests.recovery.engine.desk.new_id", lambda: "0" * 8)
        told("ba")
        return earlier, plan_for(case, world, operation)

    return plans


@pytest.mark.parametrize("operation", ["charge_blindly", "refund"])
def test_what_was_tried_is_found_though_the_call_was_told_of_in_another_order_since(
    moved, outside, operation
):
    """The key of an undo holds the position of its effect, which had become another."""
    _, plan = moved(operation, leaves={"v": 99})

    advance(plan)

    assert sorted(outside.effects()) == ["a", "b"], "once each"
    assert states(plan) == ["needs_human"] * 2
    assert all(one.note.startswith("It was tried before") for one in plan.steps.all())


@pytest.mark.parametrize(
    ("operation", "trouble"),
    [("refund_unseen", {"fail_after": 1}), ("marked", {"leaves": {"v": 99}})],
)
def test_nothing_goes_out_under_a_key_by_which_the_outside_knows_another_target(
    moved, outside, operation, trouble
):
    """Two effects that have changed places have each other's keys where no argument tells them
    apart. The provider answered for the other, and both read as undone once more.
    """
    earlier, plan = moved(operation, **trouble)
    keys = dict(earlier.steps.values_list("target_id", "key"))
    for name, other in ("ab", "ba"):
        plan.steps.filter(target_id=name).update(key=keys[other])

    advance(plan)

    assert states(plan) == ["needs_human"] * 2
    assert all("another target" in one.note for one in plan.steps.all())
    assert sorted(outside.effects()) == ["a", "b"], "once each"
