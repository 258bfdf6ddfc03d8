"""The fold is a join: order, repetition and batching of events make no difference."""

import dataclasses
import io
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from ledger.fold.actions import fold_action
from ledger.fold.attempts import fold_all, one_success
from ledger.fold.runs import fold_run
from ledger.models import Action, Attempt, Checkpoint, Effect, Run
from ledger.parsed_events import Actor, StoredEvent
from tests.ledger.conftest import event, record_events
from workspaces.models import Agent, Workspace

T0 = datetime(2026, 11, 21, 10, tzinfo=UTC)
TARGETS = [{"type": "booking", "id": "H-7"}, {"type": "card", "id": "c-1"}]
attempts = some.sampled_from([None, "a1", "a2"])
fences = some.sampled_from([1, 2])
snapshots = some.sampled_from([None, {"s": 1}, {"s": 2}, {"token": "⟦masked:token⟧"}])


def optional(**members):
    return some.fixed_dictionaries({}, optional=members)


effects = some.lists(
    some.builds(
        lambda target, rest: {"target": target} | rest,
        some.sampled_from(TARGETS),
        optional(
            before=snapshots,
            after=snapshots,
            reversibility=some.sampled_from(["exact", "compensable", "irreversible"]),
        ),
    ),
    max_size=3,
)
PLANNED = some.builds(
    lambda rest: {"tool": "book"} | rest,
    optional(
        targets=some.lists(some.sampled_from(TARGETS), max_size=2),
        key=some.just("k"),
        args=some.sampled_from([{"nights": 1}, {"nights": 2}]),
        risk=some.just("high"),
        before=some.lists(snapshots, max_size=2),
        **{"class": some.sampled_from(["read_only", "external_reversible"])},
    ),
)
STATEMENTS = some.one_of(
    some.tuples(some.just("action.planned"), PLANNED),
    some.tuples(some.just("action.started"), optional(attempt=attempts)),
    some.tuples(some.just("action.succeeded"), optional(
        attempt=attempts, effects=effects, result=some.sampled_from([{"id": 1}, {"id": 2}]))),
    some.tuples(some.just("action.failed"), optional(
        attempt=attempts, outcome=some.sampled_from(["no_effect", "unknown"]),
        error=some.just({"type": "Timeout"}))),
    some.tuples(some.just("action.verified"), some.sampled_from([{"ok": True}, {"ok": False}])),
    some.tuples(some.just("action.compensated"), some.sampled_from(
        [{"position": 0}, {"positions": [0, 1], "outcome": "corrected"}])),
    some.tuples(some.just("action.approved"), some.just({})),
)  # fmt: skip
OF_THE_DESK = some.one_of(
    some.tuples(some.just("action.started"), optional(attempt=attempts, fence=fences)),
    some.tuples(some.just("action.succeeded"), optional(
        attempt=attempts, fence=fences, effects=effects)),
    some.tuples(some.just("action.settled"), optional(
        outcome=some.sampled_from(["applied", "no_effect"]), attempts=some.just(["a1"]),
        seen=some.lists(some.sampled_from(["e000", "e001", "e002"]), max_size=2))),
)  # fmt: skip
LIVES = some.one_of(
    some.tuples(some.just("run.started"), some.sampled_from(
        [{"request": "a"}, {"request": "b", "on_behalf_of": {"id": "eve"}}])),
    some.tuples(some.just("run.completed"), some.just({"summary": "done"})),
    some.tuples(some.just("run.failed"), some.just({"error": {"type": "Boom"}})),
    some.tuples(some.just("run.cancelled"), some.just({"by": "Eve"})),
    some.tuples(some.just("run.resumed"), some.just({"from": "half"})),
)  # fmt: skip


def facts(said):
    return [
        StoredEvent(f"e{n:03}", kind, None, data, n, T0 + timedelta(seconds=n))
        for n, (kind, data) in enumerate(said)
    ]


@given(some.lists(STATEMENTS | OF_THE_DESK, min_size=1, max_size=8), some.randoms())
def test_an_action_is_the_same_in_any_order_and_repetition(said, chance):
    once = facts(said)
    again = once + chance.choices(once, k=3)
    chance.shuffle(again)

    assert dataclasses.asdict(fold_action("x", once)) == dataclasses.asdict(fold_action("x", again))


@given(some.lists(LIVES, min_size=1, max_size=6), some.randoms())
def test_a_run_is_the_same_in_any_order_and_repetition(said, chance):
    once = facts(said)
    again = once + chance.choices(once, k=3)
    chance.shuffle(again)

    assert fold_run(once) == fold_run(again)


def of(*said):
    return fold_action("x", facts(said))


PLAN = ("action.planned", {"tool": "book", "targets": TARGETS[:1], "before": [None]})


@pytest.mark.parametrize(
    ("said", "state", "flags"),
    [
        ([], "planned", []),
        ([("action.approved", {})], "approved", []),
        ([("action.started", {"attempt": "a"})], "running", []),
        ([("action.failed", {})], "unknown", []),
        ([("action.failed", {"outcome": "no_effect"})], "failed", []),
        (
            [("action.succeeded", {"attempt": "a"}), ("action.failed", {"attempt": "b"})],
            "succeeded",
            [],
        ),
        (
            [
                ("action.succeeded", {"attempt": "a"}),
                ("action.failed", {"attempt": "a", "outcome": "no_effect"}),
            ],
            "unknown",
            ["contradiction"],
        ),
        (
            [("action.succeeded", {"attempt": "a"}), ("action.succeeded", {"attempt": "b"})],
            "succeeded",
            ["effect_twice"],
        ),
        (
            [
                ("action.failed", {"attempt": "a", "outcome": "no_effect"}),
                ("action.started", {"attempt": "b"}),
            ],
            "running",
            [],
        ),
    ],
)  # fmt: skip
def test_the_states_of_an_action(said, state, flags):
    row = of(PLAN, *said)
    assert (row.state, row.flags) == (state, flags)


@pytest.mark.parametrize("data", [{}, {"attempt": None}, {"attempt": "a1"}, {"fence": 3}])
def test_the_short_way_of_one_success_leads_where_the_general_one_does(data):
    kinds = defaultdict(
        list, {"action.succeeded": [StoredEvent("1", "action.succeeded", 1, data, 1, T0)]}
    )
    flags: set[str] = set()

    assert one_success(kinds) == fold_all(kinds, flags)
    assert not flags


LATE_SUCCESS = (
    PLAN,
    ("action.started", {"attempt": "a", "fence": 1}),
    ("action.failed", {"attempt": "a", "fence": 1, "outcome": "no_effect"}),
    ("action.started", {"attempt": "b", "fence": 2}),
    ("action.succeeded", {"attempt": "a", "fence": 1, "effects": []}),
)


def test_a_late_success_of_an_older_fence_settles_nothing():
    row = of(*LATE_SUCCESS)

    assert (row.state, row.flags) == ("running", ["stale_fence"])
    assert (row.current_attempt, row.fence) == ("b", 2)
    assert [(a.attempt, a.state, a.stale) for a in row.attempts] == [
        ("a", "no_effect", True), ("b", "running", False)]  # fmt: skip


def test_a_late_success_is_in_doubt_where_the_last_try_had_no_effect_until_it_is_settled():
    """It read as failed, and a third try proceeded, though the first may have been made."""
    said = (*LATE_SUCCESS, ("action.failed", {"attempt": "b", "fence": 2, "outcome": "no_effect"}))
    row = of(*said)
    assert (row.state, row.flags) == ("unknown", ["contradiction", "stale_fence"])
    assert fold_action("x", facts(said)[::-1]) == row

    seen = [event.event_id for event in facts(said)]
    for outcome, state in (("no_effect", "failed"), ("applied", "succeeded")):
        settled = {"outcome": outcome, "seen": seen, "attempts": ["b"]}
        row = of(*said, ("action.settled", settled))
        assert row.state == state
        assert "contradiction" not in row.flags


STARTED = ("action.started", {"attempt": "a1", "fence": 1})
UNKNOWN = {"attempt": "a1", "outcome": "unknown"}
NO_EFFECT = {"attempt": "a1", "outcome": "no_effect"}
WORKED = ("action.succeeded", {"attempt": "a1"})


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ([("action.failed", UNKNOWN)], 2),
        ([("action.failed", UNKNOWN), ("run.note", {}), WORKED, WORKED], 4),
        ([("action.failed", UNKNOWN), ("action.settled", {"outcome": "applied"})], 2),
        ([("action.failed", UNKNOWN), ("action.settled", {"outcome": "applied"}), WORKED], 4),
        ([("action.settled", {"outcome": "applied"})], 2),
        ([("action.failed", NO_EFFECT), WORKED], 3),
        ([("action.failed", NO_EFFECT), ("action.started", {"attempt": "a2", "fence": 2})], None),
        ([("action.failed", NO_EFFECT), ("action.started", {"attempt": "a2", "fence": 2}),
          ("action.succeeded", {"attempt": "a2"})], 4),
    ],
)  # fmt: skip
def test_a_call_is_over_when_its_outcome_was_told_and_not_when_it_was_doubted(said, seconds):
    """A try whose lease ended goes on: what it did was taken for shown before it was done."""
    found = of(PLAN, STARTED, *said)

    assert found.finished_at == (None if seconds is None else T0 + timedelta(seconds=seconds))


BEGUN = ("action.succeeded", {"attempt": "a1", "fence": 1, "effects": [{"target": TARGETS[0]}]})
UNBEGUN = ("action.succeeded", {"attempt": "a0", "effects": [{"target": TARGETS[1]}]})


@pytest.mark.parametrize(("first", "later"), [(BEGUN, UNBEGUN), (UNBEGUN, BEGUN)])
def test_a_success_that_is_told_late_moves_no_effect_that_was_undone(first, later):
    """It was shown as undone in place of the other, which stood."""
    row = of(PLAN, STARTED, first, ("action.compensated", {"positions": [0]}), later)
    both = of(PLAN, STARTED, BEGUN, UNBEGUN).effects
    assert both == of(PLAN, STARTED, UNBEGUN, BEGUN).effects

    assert [(one.target_id, one.compensated) for one in row.effects] == [
        (first[1]["effects"][0]["target"]["id"], "compensated"),
        (later[1]["effects"][0]["target"]["id"], "none"),
    ]
    assert row.compensated == "partly"


def test_law_8_a_replayed_completion_never_alters_before():
    row = of(
        ("action.succeeded", {"target": TARGETS[0], "before": {"s": 1}, "after": {"s": 2}}),
        ("action.succeeded", {"target": TARGETS[0], "before": {"s": 2}, "after": {"s": 2}}),
    )
    assert row.effects[0].before == {"s": 1}
    assert row.flags == ["disagree:effects"]


def test_what_the_desk_observed_counts_more_than_what_was_said():
    row = of(
        ("action.planned", {"tool": "t", "targets": TARGETS[:1], "before": [{"s": 1}],
                            "observed": [{"s": 0}]}),
        ("action.succeeded", {"effects": [{"target": TARGETS[0], "before": {"s": 5}}]}),
    )  # fmt: skip
    assert (row.effects[0].before, row.effects[0].source) == ({"s": 0}, "observed")


def test_a_masked_snapshot_is_never_exact():
    row = of(("action.succeeded", {"target": TARGETS[0], "reversibility": "exact",
                                   "before": {"token": "⟦masked:token⟧"}}))  # fmt: skip
    assert row.effects[0].reversibility == "compensable"


def test_an_unknown_outcome_may_have_done_anything_to_its_targets():
    row = of(("action.planned", {"tool": "t", "targets": TARGETS}), ("action.failed", {}))
    assert [e.target_id for e in row.effects] == ["H-7", "c-1"]
    read = of(("action.planned", {"tool": "t", "targets": TARGETS, "class": "read_only"}),
              ("action.failed", {}))  # fmt: skip
    assert read.effects == []
    begun = [("action.started", {"attempt": str(fence), "fence": fence, "class": class_})
             for fence, class_ in ((1, "read_only"), (2, "draft"), (3, None))]  # fmt: skip
    for tries, effects in ((begun[:2], 0), (begun, 2)):
        row = of(("action.planned", {"tool": "t", "targets": TARGETS}), *tries,
                 ("action.failed", {}))  # fmt: skip
        assert len(row.effects) == effects, "at each try the gate has to have said so"


def test_replaced_arguments_count_no_more():
    first, second = facts(
        [("action.planned", {"tool": "t", "args": 1}), ("action.planned", {"tool": "t", "args": 2})]
    )
    second = second._replace(data=second.data | {"replaces": [first.event_id]})
    row = fold_action("x", [second, first])
    assert (row.args, row.flags) == (2, [])


PLACELIKE = {
    "id", "place", "first_place", "last_place", "at", "started_at", "finished_at", "planned_at",
    "ended_at", "last_event_at", "lease_until", "lease_minute", "revision", "run_id", "action_id",
    "workspace_id", "agent_id", "search", "search_revision",
}  # fmt: skip


def rows(actor):
    """Every projected row of a workspace, ledger place apart."""
    found = []
    tables: list[tuple[Any, list[str]]] = [
        (Run, ["run"]),
        (Action, ["run__run", "action"]),
        (Attempt, ["action__run__run", "action__action", "attempt"]),
        (Effect, ["action__run__run", "action__action", "position"]),
        (Checkpoint, ["run__run", "event_id"]),
    ]
    for model, parents in tables:
        path = parents[0].removesuffix("run") + "workspace"
        query = model.objects.filter(**{path: actor.workspace_id}).order_by(*parents)
        if issubclass(model, Effect):
            query = query.exclude(withdrawn=True)
        names = [f.attname for f in model._meta.concrete_fields if f.attname not in PLACELIKE]
        found.append(list(query.values(*parents, *names)))
    return found


@pytest.fixture
def elsewhere(ada):
    """The same agent in a workspace of its own, where the same event ids are new."""
    workspace = Workspace.objects.create(slug="southwind", name="Southwind")
    agent = Agent.objects.create(workspace=workspace, name="trip-desk", owner=ada)
    return Actor(workspace.pk, "southwind", "agent", agent.name, agent.pk, "0123456789")


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    some.lists(some.tuples(some.sampled_from(["r1", "r2"]), some.one_of(STATEMENTS, LIVES)),
               min_size=1, max_size=10),
    some.randoms(use_true_random=False),
)  # fmt: skip
def test_any_order_batching_and_a_rebuild_give_the_same_rows(actor, elsewhere, said, chance):
    """The same through PostgreSQL: one by one in order; shuffled in batches; folded anew."""
    events = [
        event(kind, run=run, action="x" if kind.startswith("action.") else None, data=data)
        for run, (kind, data) in said
        if kind not in {"action.approved", "action.compensated"}
    ]
    if not events:
        return
    with transaction.atomic():
        for one in events:
            record_events(actor, one)
        in_order = rows(actor)
        call_command("rebuild", "northwind", stdout=io.StringIO())
        rebuilt = rows(actor)
        shuffled = events + chance.choices(events, k=2)
        chance.shuffle(shuffled)
        while shuffled:
            size = chance.randint(1, len(shuffled))
            record_events(elsewhere, *shuffled[:size])
            shuffled = shuffled[size:]
        in_batches = rows(elsewhere)
        transaction.set_rollback(True)
    assert in_order == rebuilt
    assert in_order == in_batches
