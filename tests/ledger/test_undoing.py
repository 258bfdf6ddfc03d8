"""What an undo says of the agent's action goes into its rows as they stand."""

import io

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from amends.protocol.vocabulary import EventType
from ledger import desk_events
from ledger.desk_events import EventDraft
from ledger.erasure import ERASING
from ledger.models import Action, Effect, Event
from ledger.proofs import is_as_digested
from tests.ledger.conftest import event, record_events
from tests.ledger.test_fold import rows
from tests.worlds import kept

pytestmark = pytest.mark.django_db

THINGS = [{"type": "thing", "id": name} for name in "ab"]


@pytest.fixture
@kept(in_turn=True)
def changed(northwind, actor):
    """An action that changed two things."""
    effects = [{"target": thing, "before": {"v": 1}, "after": {"v": 2}} for thing in THINGS]
    done = {"attempt": "a1", "effects": effects}
    record_events(
        actor,
        event("run.started"),
        event("action.planned", action="x", data={"tool": "things.set", "targets": THINGS}),
        event("action.succeeded", action="x", data=done),
    )
    return northwind


def undo(workspace, position, outcome="compensated", name=""):
    target = {"type": "thing", "id": name or "abcdefgh"[position]}
    data = {"positions": [position], "target": target, "outcome": outcome, "verified": True}
    with transaction.atomic():
        said = desk_events.parse_all(
            workspace, [EventDraft(EventType.ACTION_COMPENSATED, "run_1", "x", data)]
        )
        desk_events.append_completions(workspace, said, {})


@pytest.mark.parametrize(
    ("undone", "expected"),
    [
        ([(0, "compensated")], "partly"),
        ([(0, "compensated"), (1, "compensated")], "compensated"),
        ([(0, "corrected"), (1, "compensated")], "corrected"),
        ([(1, "compensated"), (1, "corrected")], "partly"),
        ([(1, "corrected"), (1, "compensated")], "partly"),
        ([(0, "repaired"), (1, "compensated")], "repaired"),
        ([(0, "repaired"), (1, "corrected")], "repaired"),
        ([(0, "repaired"), (0, "corrected"), (1, "corrected")], "corrected"),
        ([(7, "compensated")], "none"),
    ],
)
def test_an_undone_effect_leaves_the_rows_that_a_rebuild_gives(changed, actor, undone, expected):
    for position, outcome in undone:
        undo(changed, position, outcome)

    assert Action.objects.get().compensated == expected
    written = rows(actor)
    call_command("rebuild", "northwind", stdout=io.StringIO())
    assert rows(actor) == written


@pytest.mark.parametrize(
    ("late", "left", "left_of_both"),
    [("b", "b", ""), ("ba", "b", ""), ("cba", "bc", "c"), ("bab", "bb", "b"), ("c", "c", "c"),
     ("", "", "")],
)  # fmt: skip
@pytest.mark.parametrize("drafted", ["before it is told", "and ended before", "both, around it"])
def test_an_undo_counts_for_what_was_undone_whatever_is_told_of_the_call_late(
    changed, actor, late, left, left_of_both, drafted
):
    """“b” was called undone, which stood, where “a” had been put right: each was the first."""
    effects = [{"target": {"type": "thing", "id": name}} for name in late]
    told = event("action.succeeded", id="0", action="x", data={"attempt": "a1", "effects": effects})
    if drafted == "before it is told":
        record_events(actor, told)
    undo(changed, 0)
    if drafted != "before it is told":
        record_events(actor, told)
    if drafted == "both, around it":
        undo(changed, 1)
        left = left_of_both

    found = Effect.objects.filter(withdrawn=False)
    assert sorted(one.target_id for one in found) == sorted(late)
    stand = found.filter(compensated="none").values_list("target_id", flat=True)
    assert sorted(stand) == sorted(left)
    written = rows(actor)
    call_command("rebuild", "northwind", stdout=io.StringIO())
    assert rows(actor) == written


def test_of_two_alike_both_are_undone_though_one_stands_where_the_other_did(northwind, actor):
    """The row of the first read as undone already, and the second as if it stood."""
    ones = [{"target": THINGS[0], "after": {"v": number}} for number in (1, 2)]

    def told(id_, attempt, effects):
        data = {"attempt": attempt, "effects": effects}
        record_events(actor, event("action.succeeded", id=id_, action="x", data=data))

    told("9", "a2", [{"target": THINGS[1]}])
    undo(northwind, 0, name="b")
    told("5", "a1", ones)
    undo(northwind, 2, name="a")
    told("1", "a2", ones[:1])
    undo(northwind, 0, name="a")

    written = rows(actor)
    call_command("rebuild", "northwind", stdout=io.StringIO())
    assert rows(actor) == written
    assert Action.objects.get().compensated == "compensated"


def test_an_action_of_which_something_was_erased_stands_as_it_is(changed):
    with connection.cursor() as cursor:
        cursor.execute(ERASING)
        cursor.execute("UPDATE ledger_event SET data = NULL, salt = NULL WHERE action = 'x'")

    undo(changed, 0)

    assert Event.objects.filter(type="action.compensated").exists()
    assert set(Effect.objects.values_list("compensated", flat=True)) == {"none"}


def test_a_run_that_is_not_there_is_opened_the_usual_way(northwind):
    verified = EventDraft(
        EventType.STEP_VERIFIED, "desk-plan-9", "step-1", {"tool": "things.restore"}
    )

    with transaction.atomic():
        said = desk_events.parse_all(northwind, [verified])
        desk_events.append_completions(northwind, said, {("desk-plan-9", "step-1"): ()})

    assert Action.objects.get(run__run="desk-plan-9").tool == "things.restore"


def test_what_is_folded_later_has_a_salt_and_a_digest_of_its_own(changed):
    claims = [
        EventDraft(EventType.STEP_CLAIMED, "desk-plan-9", name) for name in ("step-1", "step-2")
    ]
    undone = [
        EventDraft(
            EventType.ACTION_COMPENSATED,
            "run_1",
            "x",
            {"positions": [position], "outcome": "compensated", "verified": True},
        )
        for position in (0, 1)
    ]

    with transaction.atomic():
        desk_events.append_deferred(changed, desk_events.parse_all(changed, claims))
        desk_events.append_completions(changed, desk_events.parse_all(changed, undone), {})

    kept = list(Event.objects.exclude(actor_kind="agent"))
    assert len({bytes(one.salt) for one in kept}) == len(kept) == 4
    assert all(is_as_digested(one) for one in kept)
