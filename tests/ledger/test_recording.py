"""Events come in, are kept once, and add up."""

import json
from dataclasses import replace

import pytest
from django.db import transaction

from amends.protocol.vocabulary import EventType
from ledger import desk_events, drivers
from ledger.append.events import record
from ledger.drivers import plain_connection
from ledger.models import Action, Effect, Event, EventConflict, EventKey, Run, Unsealed
from ledger.parsed_events import ParsedEvent
from ledger.wire import read
from tests.ledger.conftest import event, parsed_event, record_events

HOTEL = {"type": "booking", "id": "H-7"}


def planned(action="act_1", **data):
    return event(
        "action.planned",
        action=action,
        n=1,
        data={
            "tool": "book_hotel",
            "targets": [HOTEL],
            "args": {"nights": 2},
            "key": "k1",
            "class": "external_reversible",
            "before": [None],
        }
        | data,
    )


def test_intent_that_the_workspace_wants_none_of_is_not_kept(actor):
    said = [planned(f"act_{n}", key=f"k{n}", intent={"reason": "Eve asked"}) for n in (1, 2)]
    record_events(actor, said[0])
    record_events(replace(actor, capture_intent=False), said[1])

    kept = Event.objects.order_by("place").values_list("data", flat=True)
    assert ["intent" in one for one in kept] == [True, False]
    assert Action.objects.get(action="act_2").intent is None


def test_a_run_and_its_action_add_up(actor):
    start = event(
        "run.started",
        n=0,
        data={
            "model": "m-1",
            "request": "Book me a hotel",
            "on_behalf_of": {"id": "eve", "name": "Eve"},
        },
    )
    done = event(
        "action.succeeded",
        action="act_1",
        n=1,
        data={
            "attempt": "a1",
            "result": {"booking": "H-7"},
            "effects": [
                {
                    "target": HOTEL,
                    "before": {"wrong": 1},
                    "after": {"state": "booked"},
                    "reversibility": "compensable",
                }
            ],
        },
    )

    first = record_events(actor, start, planned())
    second = record_events(actor, done)

    assert [a.status for a in first.results + second.results] == ["accepted"] * 3
    run = Run.objects.get()
    assert (run.run, run.customer, run.state, run.revision) == ("run_1", "eve", "running", 2)
    assert (run.action_count, run.effect_count) == (1, 1)
    assert run.lease_until > run.last_event_at
    action = Action.objects.get()
    assert (action.state, action.tool, action.n) == ("succeeded", "book_hotel", 1)
    effect = Effect.objects.get()
    assert (effect.before, effect.has_before, effect.after) == (None, True, {"state": "booked"})
    assert effect.person == {"id": "eve", "name": "Eve"}
    assert Event.objects.count() == EventKey.objects.count() == Unsealed.objects.count() == 3


def test_law_8_the_same_event_again_changes_nothing(actor):
    one = planned()
    record_events(actor, one)

    again = record_events(actor, one, one)

    assert [a.status for a in again.results] == ["duplicate", "duplicate"]
    assert Event.objects.count() == 1
    assert Run.objects.get().revision == 1


def test_law_8_the_same_arguments_under_a_new_action_are_a_second_action(actor):
    one, two = planned(), planned() | {"action": "act_2"}

    record_events(actor, one, two)

    first, second = Action.objects.order_by("action")
    assert first.args == second.args
    assert first.action != second.action


def test_the_same_id_with_other_content_is_refused_and_kept_by_digest(actor):
    one = planned()
    record_events(actor, one)

    (answer,) = record_events(actor, one | {"data": one["data"] | {"args": {"nights": 9}}}).results

    assert (answer.status, answer.problem.status) == ("rejected", 409)
    assert Action.objects.get().args == {"nights": 2}
    assert EventConflict.objects.get().event_id == one["id"]


def test_the_desk_approves_settles_and_compensates(actor, northwind, ada):
    record_events(actor, planned())
    desk_events.record(northwind, EventType.ACTION_APPROVED, run="run_1", action="act_1", by=ada)
    assert Action.objects.get().state == "approved"

    record_events(
        actor, event("action.failed", action="act_1", n=1, data={"error": {"type": "Timeout"}})
    )
    assert Action.objects.get().state == "unknown"
    assert Effect.objects.count() == 1

    desk_events.record(
        northwind,
        EventType.ACTION_SETTLED,
        run="run_1",
        action="act_1",
        by=ada,
        data={"outcome": "applied", "evidence": "seen in the hotel's own list"},
    )
    action = Action.objects.get()
    assert (action.state, action.settled_by) == ("succeeded", str(ada.pk))

    desk_events.record(
        northwind,
        EventType.ACTION_COMPENSATED,
        run="run_1",
        action="act_1",
        data={"position": 0, "outcome": "compensated"},
    )
    assert Effect.objects.get().compensated == "compensated"
    assert Action.objects.get().compensated == "compensated"


def test_another_agent_cannot_speak_on_the_run(actor, northwind, ada):
    from workspaces.models import Agent

    record_events(actor, planned())
    other = Agent.objects.create(workspace=northwind, name="mail-desk", owner=ada)
    stranger = type(actor)(northwind.pk, "northwind", "agent", "mail-desk", other.pk)

    (answer,) = record_events(stranger, event("run.completed")).results

    assert (answer.status, answer.problem.status) == ("rejected", 403)
    assert Run.objects.get().state == "running"
    assert Event.objects.count() == 1


WORDS = [
    "action.approved", "action.compensated", "action.settled", "agent.created",
    "approval.granted", "approval.used", "case.closed", "plan.started", "plan.finished",
    "step.verified", "step.intended", "correction.published", "policy.activated",
]  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_law_9b_an_agent_cannot_say_a_word_of_the_desk(actor, word):
    """Nor in a run that is named like the desk's own."""
    record_events(actor, planned())
    act = "act_1" if word.startswith("action.") else None

    for run in ("run_1", "desk-plan-1"):
        said = event(word, run=run, action=act, data={"outcome": "compensated", "position": 0})
        answer = read(json.dumps(said).encode(), actor)
        assert not isinstance(answer, ParsedEvent)
        assert (answer[1].type, answer[1].status) == ("urn:amends:problem:desk-only", 403)


def test_a_plan_is_a_run_of_the_desk(northwind):
    desk_events.record(northwind, EventType.PLAN_STARTED, run="plan_1", data={"goal": "undo"})
    desk_events.record(northwind, EventType.STEP_READY, run="plan_1", action="step_1")
    call = {"tool": "hotel.cancel", "targets": [HOTEL], "args": {"id": "H-7"}, "attempt": "1"}
    desk_events.record(northwind, EventType.STEP_INTENDED, run="plan_1", action="step_1", data=call)
    desk_events.record(
        northwind,
        EventType.STEP_APPLIED,
        run="plan_1",
        action="step_1",
        data={"attempt": "1", "effects": [{"target": HOTEL, "after": {"state": "cancelled"}}]},
    )
    desk_events.record(northwind, EventType.PLAN_FINISHED, run="plan_1")

    run = Run.objects.get()
    assert (run.agent, run.state, run.effect_count) == (None, "completed", 1)
    assert Action.objects.get().state == "succeeded"


def counted(steps, trips):
    """The same steps; how many statements travel in each round trip is noted."""
    rows = None
    while True:
        try:
            wanted = next(steps) if rows is None else steps.send(rows)
        except StopIteration as done:
            return done.value
        trips.append(len(wanted))
        rows = yield wanted


def test_a_batch_takes_as_many_round_trips_as_one_event(actor):
    """Whatever is new, known, a duplicate or a conflict in it; and as many statements."""

    def trips(*events):
        found: list[int] = []
        steps = counted(record(actor, [parsed_event(actor, one) for one in events]), found)
        with transaction.atomic():
            drivers.run(steps, plain_connection())
        return found

    def travels(count):
        names = [f"of_{count}_{n}" for n in range(count)]
        runs = [event("run.started", run=run) for run in names]
        acts = [event("action.planned", run=run, action="a", data={"tool": "t"}) for run in names]
        ends = [event("run.completed", run=run) for run in names]
        others = [one | {"data": {"request": "Other words"}} for one in runs]
        return [trips(*runs, *acts), trips(*ends, *acts, *others), trips(*runs)]

    one = travels(1)
    assert one == travels(150)
    assert max(len(found) for found in one) <= 4
