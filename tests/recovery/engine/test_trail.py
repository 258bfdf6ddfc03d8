"""Every move is told in the ledger, and a plan can be read back like the run of any agent."""

from typing import Any

import pytest

from ledger.models import Action, Effect, Event, Run
from recovery.engine import approved_calls, plan_lifecycle, steps
from recovery.models import STEP_MOVES
from tests.crash import oracle
from tests.recovery.engine.desk import advance, plan_for, states
from workspaces.moves import BORN

pytestmark = pytest.mark.django_db


def test_every_move_of_a_step_is_an_event_that_names_where_it_came_from(case, world):
    plan = plan_for(case, world)

    advance(plan)

    events = Event.objects.filter(run=steps.run_of(plan), type__startswith="step.")
    told = [
        (e.action, (e.data or {})["was"], e.type.removeprefix("step."))
        for e in events.order_by("place")
    ]
    assert [one for one in told if one[0] == "step-2"] == [
        ("step-2", "blocked", "ready"),
        ("step-2", "ready", "claimed"),
        ("step-2", "claimed", "intended"),
        ("step-2", "intended", "applied"),
        ("step-2", "applied", "verified"),
    ]
    assert all(state in STEP_MOVES[was or BORN] for _, was, state in told)


def by_the_desk(plan, case, ada):
    case.refresh_from_db()
    case.state = "closed"
    case.save()
    advance(plan)


def by_a_person(plan, case, ada):
    plan_lifecycle.stop(plan, by=ada, reason="wrong customer")


def by_a_person_for_another(plan, case, ada):
    plan_lifecycle.supersede(plan, by=ada, why="on the present state")


@pytest.mark.parametrize("ends", [by_the_desk, by_a_person, by_a_person_for_another])
def test_who_ends_a_plan_cancels_its_steps(case, world, ada, ends):
    """The oracle of the crash tests took each plan that nobody had stopped for one of a person's,
    and what a stopped one's steps said for told.
    """
    plan = plan_for(case, world)
    ends(plan, case, ada)
    assert set(states(plan)) == {"cancelled"}

    assert [broken for step in plan.steps.all() for broken in oracle.told(step)] == []
    step = plan.steps.get(position=1)
    move = Event.objects.get(type="step.cancelled", action=steps.action_of(step))
    ended = list(Event.objects.filter(run=steps.run_of(plan), type__in=oracle.ENDS))
    as_ended = (move.actor_kind, move.actor)
    move.actor_kind, move.actor = ("desk", "") if ends is not by_the_desk else ("person", "eve")
    assert "I7" in "".join(oracle._cancelled_as(move, ended, "x"))
    move.actor_kind, move.actor = as_ended
    assert "goes on" in "".join(oracle._cancelled_as(move, [], "x"))


def test_the_effects_are_compensated_in_the_ledger_and_only_the_desk_may_say_so(case, world):
    plan = plan_for(case, world)

    advance(plan)

    assert set(
        Effect.objects.filter(action__run=case.run).values_list("compensated", flat=True)
    ) == {"compensated"}
    said = Event.objects.filter(type="action.compensated")
    assert {event.actor_kind for event in said} == {"desk"}


def test_a_plan_is_a_run_of_the_desk_with_actions_and_effects(case, world):
    plan = plan_for(case, world)

    advance(plan)

    run = Run.objects.get(run=steps.run_of(plan))
    assert (run.agent, run.state) == (None, "completed")
    actions = Action.objects.filter(run=run).order_by("first_place")
    assert [action.state for action in actions] == ["succeeded"] * 3
    assert [action.verified for action in actions] == ["ok"] * 3
    assert actions[0].flags == []
    effect = Effect.objects.get(action=actions[0])
    assert (effect.target_id, effect.before, effect.after) == ("c", {"v": 2}, {"v": 1})


def test_law_9a_an_undo_has_the_same_key_in_every_plan_and_database():
    """Law 9a: no primary key and no plan in it."""
    undo: dict[str, Any] = {
        "workspace": "acme",
        "connection": "world",
        "operation": "restore",
        "run": "run_1",
        "action": "act_1",
        "position": 0,
        "args": {"id": "a", "to": {"v": 1}},
    }

    assert approved_calls.key_of_undo(**undo) == approved_calls.key_of_undo(**undo)
    assert approved_calls.key_of_undo(**undo).startswith("amends-")
    others: dict[str, Any] = {"position": 1, "args": {"id": "b"}, "generation": 2}
    for name, other in others.items():
        assert approved_calls.key_of_undo(**(undo | {name: other})) != approved_calls.key_of_undo(
            **undo
        )


def test_law_5_a_retried_plan_skips_what_is_done(case, world, outside):
    """Law 5: what is standing is what is drafted, and what is done stays done."""
    outside.seed({"b": {"v": 99}})
    first = plan_for(case, world)
    advance(first)
    assert states(first) == ["verified", "drifted", "verified"]
    plan_lifecycle.supersede(first, by=None, why="again")
    second = plan_for(case, world, expecting={"b": {"v": 99}})

    advance(second)

    assert outside.effects() == ["c", "a", "b"]
    assert second.steps.count() == 1
