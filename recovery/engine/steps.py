"""Moves of a step: one conditional UPDATE that carries the fencing token, and its ledger event.

Whoever calls holds the transaction. The event goes to the plan's own run, in which each step is an
action: so that a plan can be read back, and undone, like the run of any agent.

The UPDATE is written by hand. A step makes five moves, each in its own commit, and Django needs
longer to put one together than PostgreSQL to carry it out.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F

from amends.protocol.vocabulary import EventType
from approvals import plan_sums
from connectors import channels
from connectors.channels import Message
from ledger import desk_events
from ledger.append.statements import Statement
from ledger.desk_events import EventDraft
from ledger.models import Compensated, Run
from ledger.parsed_events import ParsedEvent, new_id
from ledger.wire import PLAN_RUN
from recovery.cases import lifecycle
from recovery.engine.queries import NOW, Fragment, ask_all, in_seconds
from recovery.models import STEP_MOVES, Case, CaseState, Plan, Step, StepAttempt, StepState
from recovery.models.plans import DONE, LEFT, TO_RUN, TROUBLED, try_in_doubt
from workspaces import locks
from workspaces.clock import Clock
from workspaces.models import User
from workspaces.moves import CannotMove
from workspaces.replica import DATABASE_AWAY

logger = logging.getLogger(__name__)

RELATED: Final = (
    "workspace",
    "plan__case",
    "connection__observe_secret",
    "connection__compensate_secret",
    "effect__action__run",
)
"""What the engine reads of a step beyond its own row."""

PLAN_STEP = "step-"
PLAN_NUMBER = re.compile("[0-9]{1,18}")

JSON_COLUMNS: Final = frozenset({"drift", "evidence"})
COLUMNS: Final = JSON_COLUMNS | {"note"}
"""What `move_all` sets step by step; other names in `per_step` are there for its conditions."""
TYPES: Final = {"id": "bigint", "fence": "bigint", "seconds": "float8"}
"""Of the lists that travel with it; all others are text."""


def load(step_id: int) -> Step:
    """The step with everything that the engine reads of it, in one query."""
    return Step.objects.select_related(*RELATED).get(pk=step_id)


def run_of(plan: Plan) -> str:
    """The id of the run as which the desk records a plan."""
    return f"{PLAN_RUN}{plan.pk}"


def plan_number(run: Run) -> int | None:
    """The plan that the desk records as this run; None of an agent's, whatever it calls itself."""
    number = run.run.removeprefix(PLAN_RUN)
    is_plans = run.agent_id is None and number != run.run and PLAN_NUMBER.fullmatch(number)
    return int(number) if is_plans else None


def action_of(step: Step) -> str:
    return f"{PLAN_STEP}{step.position}"


def move(
    step: Step,
    to: str,
    *,
    by: User | None = None,
    note: str = "",
    where: Iterable[Fragment] = (),
    data: dict[str, Any] | None = None,
    **changes: Any,
) -> None:
    """Move the step from where we saw it, under the fence we hold; raises CannotMove.

    `note` tells people why it stands where it stands, `data` is what the event tells beyond that.
    """
    draft = move_unrecorded(step, to, note=note, where=where, data=data, **changes)
    desk_events.record_all(step.workspace, [draft], by=by)


def move_unrecorded(
    step: Step,
    to: str,
    *,
    note: str = "",
    where: Iterable[Fragment] = (),
    data: dict[str, Any] | None = None,
    **changes: Any,
) -> EventDraft:
    """Move the step and return its event, which the caller records in the same transaction."""
    seen = step.state
    if to not in STEP_MOVES[seen]:
        raise CannotMove(step, to)
    changes |= {"note": note}
    if not _swap(step, {"was": Fragment("state"), "state": to, "moved_at": NOW} | changes, where):
        raise CannotMove(step, to)
    step.was, step.state = seen, to
    for name, new in changes.items():
        if not isinstance(new, Fragment):
            setattr(step, name, new)
    return event_draft(step, to, {"was": seen, "note": note} | (data or {}))


def _swap(step: Step, columns: Mapping[str, Any], where: Iterable[Fragment] = ()) -> bool:
    """Compare state and fence, and swap: whether the row still stood where we saw it."""
    sets = [(name, _value(name, new)) for name, new in columns.items()]
    conditions = [
        Fragment("id = %s AND state = %s AND fence = %s", (step.pk, step.state, step.fence))
    ]
    conditions += where
    text = (
        f"UPDATE recovery_step SET {', '.join(f'{name} = {sql.text}' for name, sql in sets)}"  # noqa: S608
        f" WHERE {' AND '.join(sql.text for sql in conditions)}"
    )
    values = [value for _, sql in sets for value in sql.values]
    values += [value for sql in conditions for value in sql.values]
    with connection.cursor() as cursor:
        cursor.execute(text, values)
        return bool(cursor.rowcount == 1)


class MovedStep(NamedTuple):
    """A step that has moved, and the events that say so."""

    step: Step
    events: list[ParsedEvent]


def move_all(
    moving: Sequence[Step],
    to: str,
    *,
    where: Iterable[Fragment] = (),
    per_step: Mapping[str, Sequence[Any]] = MappingProxyType({}),
    for_all: Mapping[str, Fragment] = MappingProxyType({}),
    before: Sequence[Statement] = (),
    drafts: Callable[[Step], Sequence[EventDraft]],
) -> list[MovedStep]:
    """Move steps that are in one state by one statement; returns those that moved.

    A step that another worker has taken meanwhile is not among them. `per_step` has, by column, one
    value for each step, `for_all` one expression. `drafts` gives the events of a step that moves;
    they are parsed while PostgreSQL executes, and the caller records them in the same transaction.
    The statements `before` travel with the UPDATE, ahead of it, or alone where nothing is moving.

    `moving` are copies: they are changed before it is known which of them have moved.
    """
    if not moving:
        if before:
            ask_all(before)
        return []
    (seen,) = {step.state for step in moving}
    if to not in STEP_MOVES[seen]:
        raise CannotMove(moving[0], to)
    names = ["id", "fence", *per_step]
    sets = ["was = state", "state = %s", "moved_at = clock_timestamp()"]
    sets += [
        f"{name} = u.{name}{'::jsonb' if name in JSON_COLUMNS else ''}"
        for name in per_step
        if name in COLUMNS
    ]
    sets += [f"{name} = {sql.text}" for name, sql in for_all.items()]
    conditions = ["recovery_step.id = u.id", "state = %s", "recovery_step.fence = u.fence"]
    conditions += [sql.text for sql in where]
    lists = ", ".join(f"%s::{TYPES.get(name, 'text')}[]" for name in names)
    text = (
        f"UPDATE recovery_step SET {', '.join(sets)}"  # noqa: S608
        f" FROM unnest({lists}) AS u ({', '.join(names)})"
        f" WHERE {' AND '.join(conditions)} RETURNING recovery_step.id"
    )
    values: list[Any] = [to, *(value for sql in for_all.values() for value in sql.values)]
    values += [[step.pk for step in moving], [step.fence for step in moving]]
    values += [_list(name, given) for name, given in per_step.items()]
    values += [seen, *(value for sql in where for value in sql.values)]
    events: dict[int, list[ParsedEvent]] = {}

    def change() -> None:
        for number, step in enumerate(moving):
            step.was, step.state = seen, to
            for name in COLUMNS & per_step.keys():
                setattr(step, name, per_step[name][number])
        events.update(parse_events(moving, drafts))

    *_, rows = ask_all([*before, (text, values)], change)
    moved = {pk for (pk,) in rows}
    return [MovedStep(step, events[step.pk]) for step in moving if step.pk in moved]


def parse_events(
    moving: Sequence[Step], drafts: Callable[[Step], Sequence[EventDraft]]
) -> dict[int, list[ParsedEvent]]:
    """The parsed events of each of these steps of one workspace, by the step's id."""
    made = [drafts(step) for step in moving]
    events = iter(
        desk_events.parse_all(moving[0].workspace, [one for some in made for one in some])
    )
    return {
        step.pk: list(islice(events, len(some))) for step, some in zip(moving, made, strict=True)
    }


def _list(name: str, given: Sequence[Any]) -> list[Any]:
    if name not in JSON_COLUMNS:
        return list(given)
    return [None if value is None else json.dumps(value) for value in given]


def _value(name: str, new: Any) -> Fragment:
    if isinstance(new, Fragment):
        return new
    if name in JSON_COLUMNS:
        return Fragment("%s::jsonb", (None if new is None else json.dumps(new),))
    return Fragment("%s", (new,))


def event_draft(step: Step, what: str, data: dict[str, Any]) -> EventDraft:
    """The step's event, in the run of its plan."""
    facts: dict[str, Any] = {
        "tool": f"{step.connection.name}.{step.operation}",
        "targets": [{"type": step.target_type, "id": step.target_id}],
        "position": step.position,
        "fence": step.fence,
    }
    if step.tries:
        facts["attempt"] = f"{step.generation}.{step.tries}"
    return EventDraft(EventType(f"step.{what}"), run_of(step.plan), action_of(step), facts | data)


def record(moved: Sequence[MovedStep]) -> None:
    """Append the steps' events, which are folded with their end, and keep them until then."""
    if not moved:
        return
    events = [one for _, some in moved for one in some]
    stored = iter(desk_events.append_deferred(moved[0].step.workspace, events))
    for step, some in moved:
        mine = list(islice(stored, len(some)))
        if step.recorded is not None:
            step.recorded = (*step.recorded, *mine)


def no_effect_draft(step: Step, detail: str) -> EventDraft:
    """The event that a try is known to have had no effect. The step goes on, so it is no move."""
    return event_draft(step, "no_effect", {"outcome": "no_effect", "detail": detail})


@transaction.atomic
def cancel(step: Step, *, note: str, by: User | None = None) -> None:
    """Cancel a step that has not been sent; raises CannotMove."""
    move(step, StepState.CANCELLED, by=by, note=note, wake_at=None, lease_until=None)


def cancel_or_ask(step: Step, *, note: str, by: User | None = None) -> bool:
    """Cancel it, unless a try of it is in doubt and it was to be sent again: nobody would find out
    any more, so that a person has to say. Whether it was cancelled; raises CannotMove.
    """
    waits = Step.objects.filter(try_in_doubt(), pk=step.pk, state__in=TO_RUN, tries__gt=0)
    if step.tries and waits.exists():
        needs_human(step, f"{note} Whether it happened is not known.", by=by)
        return False
    cancel(step, note=note, by=by)
    return True


def put_off(step: Step, seconds: float, *, note: str, **changes: Any) -> None:
    """Try a step again in so many seconds. It stays in its state, so there is no event."""
    _swap(step, {"wake_at": in_seconds(seconds), "note": note} | changes)


def release(step: Step, seconds: float, *, note: str, **changes: Any) -> None:
    """Release a claim under which nothing was sent; it is not counted among the claims."""
    with transaction.atomic():
        move(
            step,
            StepState.READY,
            note=note,
            lease_until=None,
            wake_at=in_seconds(seconds),
            claims=Fragment("claims - 1"),
            **changes,
        )


def needs_human(step: Step, why: str, **changes: Any) -> None:
    """Leave the step to people, and alert them; the caller holds the transaction."""
    if not why.startswith(HAPPENED) and was_done_before(step):
        why = f"{HAPPENED} {why}"
    move(step, StepState.NEEDS_HUMAN, note=why, lease_until=None, wake_at=None, **changes)
    step_needs_a_person(step, why)


def locked_late(
    answered: Iterable[StepAttempt], *, ours: Iterable[MovedStep]
) -> list[tuple[Step, str]]:
    """The steps of tries whose answer comes late, since they were no longer `ours` to move; each
    with the try's key. Locked, for somebody may be claiming them, or saying what became of them;
    what was about to be sent as the answer came is older than it (`was_done_before`).
    """
    moved = {one.step.pk for one in ours}
    late = [one for one in answered if one.step_id not in moved]
    if late:
        mine = [one.step_id for one in late]
        list(locks.locked(Step.objects.only("pk")).filter(pk__in=mine).order_by("pk"))
        StepAttempt.objects.filter(pk__in=[one.pk for one in late]).update(answered_at=Clock())
    return [(load(one.step_id), one.key) for one in late]


def applied_late(late: Iterable[tuple[Step, str]]) -> None:
    """What was tried was applied, and the step is no longer in the hands of who tried.

    Where a person has said since that it did not happen, people are told, and nothing more is sent:
    the outside knows nothing of the step's new key. What is on the wire under it ends with them
    (`left_as_done_twice`). Whoever is about to say something else sees the answer first.
    """
    for step, key in late:
        if step.state in LEFT:
            stands = step.effect.compensated in {Compensated.NONE, Compensated.PARTLY}
            step_needs_a_person(step, f"{HAPPENED} {LEFT_ALONE if stands else DONE_SINCE}")
        elif step.state in TROUBLED and step.key == key:
            _show_anew(step)
        elif step.state in TROUBLED:
            _swap(step, {"note": f"{HAPPENED} {step.note}"})
            step_needs_a_person(step, f"{HAPPENED} {step.note}")
        elif step.state in DONE and step.key != key:
            step_needs_a_person(step, f"{HAPPENED} {TWICE}")
        elif step.state in WAS_AGAIN and step.key != key:
            needs_human(step, f"{HAPPENED} {WAS_AGAIN[step.state]}")


HAPPENED = "It happened: an earlier try, which was ruled out, was answered after all."
TWICE = "It was done once more since."
NOTHING_MORE = "Nothing more is sent by itself."
LEFT_ALONE = "The step stays as it was left, and its effect counts as standing."
DONE_SINCE = "Its effect was undone or corrected since: look whether that was done twice."
WAS_AGAIN: Final[Mapping[str, str]] = {
    StepState.READY: NOTHING_MORE,
    StepState.CLAIMED: NOTHING_MORE,
    StepState.APPLIED: TWICE,
}


def was_done_before(step: Step) -> bool:
    """Whether an earlier try of it, under another key, turned out to be applied after it was tried
    under this one: nobody who authorised this one could know.
    """
    if step.generation == 1:
        return False
    tried = StepAttempt.objects.filter(step=step.pk)
    first = tried.filter(key=step.key).order_by("intended_at").values("intended_at")[:1]
    answered = tried.exclude(key=step.key).filter(outcome="applied", answered_at__gt=first)
    return answered.exists()


def left_as_done_twice(step: Step) -> bool:
    """Leave it to people if it was done before and now, and they have not said since, where it was
    left to them, that it is done; whether that is so.
    """
    is_known = step.state != StepState.APPLIED or step.was == StepState.NEEDS_HUMAN
    if is_known or not was_done_before(step):
        return False
    with suppress(CannotMove):
        needs_human(step, TWICE)
    return True


def _show_anew(step: Step) -> None:
    """Who looks at the case has not seen this, and may be about to say the opposite."""
    Case.objects.filter(pk=step.plan.case_id).update(revision=F("revision") + 1)


# Alerts: a step that needs a person must reach one, and so must a plan that we fail at.

FAILED = "compensation.failed"
"""The subject to which a channel subscribes."""


def let_triage_look(run: Run) -> None:
    """Triage looks at every run whose revision it has not seen."""
    Run.objects.filter(pk=run.pk).update(revision=F("revision") + 1)


def step_needs_a_person(step: Step, why: str) -> None:
    """Bring the case back into the queue and tell its channels; the caller holds the transaction.

    Triage looks at runs whose revision it has not seen, so raising it is enough: the table is the
    queue, and nothing is lost if this process dies after its commit. The message goes out by
    itself, with its own retries, and names no arguments.
    """
    logger.warning("step %d of plan %d needs a person: %s", step.position, step.plan_id, why)
    run = step.effect.action.run
    let_triage_look(run)
    _show_anew(step)
    message = Message(
        title=f"Step {step.position} of case {step.plan.case_id} needs a person",
        text=f"{why}\nRun {run.run}, {step.connection.name}.{step.operation}.",
        url=_page(step.plan),
    )
    # One message for each time that it comes to stand there, and the move is made once.
    channels.announce(step.workspace, FAILED, message, key=f"step {step.pk} {new_id()}")


def plan_fails(plan_id: int, failure: Exception) -> None:
    """Tell that the engine itself fails at a plan, once for each kind of failure: every hint fails
    again, and would be found in the log alone. Its case goes back into the queue as open.

    In a transaction of its own; raises only where the database is away.
    """
    try:
        with transaction.atomic():
            _plan_fails(plan_id, type(failure).__name__)
    except DATABASE_AWAY:
        raise
    except Exception:
        logger.exception("Nobody could be told that the engine fails at plan %d.", plan_id)


def _plan_fails(plan_id: int, kind: str) -> None:
    plan = Plan.objects.select_related("case__run", "workspace").get(pk=plan_id)
    lifecycle.follow(
        Case.objects.filter(pk=plan.case_id, state=CaseState.RECOVERING), CaseState.OPEN
    )
    words = (
        f"The desk itself fails at it with {kind}: the worker's log says where. It is tried again."
        " What was sent stays on the record."
    )
    _tell(plan, "does not go on", words, key=f"fails {kind}")


def plan_is_unproven(plan: Plan, why: str) -> None:
    """Tell that a plan did not start, for nobody is known to have said the yes that stands on its
    approval's row: somebody wrote it there, or took it out of the ledger. The caller holds the
    transaction.
    """
    logger.error("Plan %d is not started: %s", plan.pk, why)
    words = f"{why} People can be asked anew; somebody should look into who writes to the database."
    _tell(plan, "was not started", words, key="is unproven")


def _tell(plan: Plan, what: str, words: str, *, key: str) -> None:
    message = Message(
        title=f"Plan {plan.number} of case {plan.case_id} {what}",
        text=f"{words}\nRun {plan.case.run.run}.",
        url=_page(plan),
    )
    channels.announce(plan.workspace, FAILED, message, key=f"plan {plan.pk} {key}")


def _page(plan: Plan) -> str:
    return f"{settings.AMENDS_URL}/w/{plan.workspace.slug}/cases/{plan.case_id}/"


# What a step releases of the sums and counts of rules where it ends without an effect. Its plan
# holds it from the yes on (`approvals.plan_sums`). A step that waits for people may still be
# tried, so it holds on; one that is cancelled or skipped releases it, unless one of its tries may
# have had its effect.


def release_sums(steps: Sequence[Step]) -> None:
    """These steps were cancelled or skipped; in the same transaction."""
    tried = StepAttempt.objects.filter(step__in=steps).with_possible_effect()
    doubtful = set(tried.values_list("step", flat=True))
    release_sums_of_no_effect([one for one in steps if one.pk not in doubtful])


def release_sums_of_no_effect(steps: Iterable[Step]) -> None:
    """The same of steps that are known to have had none, such as by a person's word."""
    places: dict[int, list[int]] = {}
    for one in steps:
        places.setdefault(one.plan_id, []).append(one.position)
    for plan_id, positions in places.items():
        plan_sums.release(plan_id, positions)
