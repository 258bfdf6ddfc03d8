"""The life of a case's row, whoever acts on it: its lock, its claim, its moves and its end.

An end answers the reasons that stand at that moment: only another one brings the case back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Collate

from amends.protocol.vocabulary import EventType
from approvals.signals import DIRECTIVES, publish
from ledger import desk_events
from ledger.models import Action, Effect, Run
from recovery.models import (
    CASE_MOVES,
    Case,
    CaseOutcome,
    CaseState,
    Cause,
    Correction,
    Directive,
)
from workspaces import access, clock, locks
from workspaces.free_text import InvalidInput
from workspaces.models import User
from workspaces.moves import CannotMove


class NotPossible(Exception):
    """We stopped because something is in the way of what was asked; the sentence says what. Each
    act has one of its own.
    """


CHANGED = "Somebody changed this case since you saw it."


class OutOfDate(Exception):
    """We stopped because the case is no longer as it was shown. Nothing was changed: show it."""

    def __init__(self, case: Case, why: str = CHANGED) -> None:
        super().__init__(why)
        self.case = case


REFUSALS = (OutOfDate, NotPossible, CannotMove, InvalidInput)
"""Why an act on a case is not done: who asked is shown the sentence, and nothing was changed."""


def holder_of(case: Case) -> User | None:
    """Who has claimed it, as long as the lease lasts."""
    if case.claimed_until is None or case.claimed_until <= clock.now():
        return None
    return case.claimed_by


def held_by_another(case: Case, person: User | None) -> User | None:
    """Who has claimed it, if that is somebody else who may still act on it: whoever left holds up
    nobody.
    """
    holder = holder_of(case)
    if holder is None or holder == person:
        return None
    return holder if access.may(holder, "recover", case.workspace) else None


def refuse_if_claimed(case: Case, person: User | None, to: str) -> None:
    """Raises CannotMove where somebody else has claimed it: two people cannot both act."""
    other = held_by_another(case, person)
    if other is not None:
        raise CannotMove(case, to, f"{other} has claimed it.")


def reread(case: Case) -> Case:
    """The case as it is now, with what the facts of its run begin with."""
    return Case.objects.select_related("workspace", "run__workspace", "run__agent").get(pk=case.pk)


def locked(case: Case, *, seen: int | None = None) -> Case:
    """The case under its lock and its run's, the run first, as everybody takes them.

    Raises OutOfDate unless it is as it was seen.
    """
    lock_runs([case])
    now = locked_each([case])[case.pk]
    if seen is not None and now.revision != seen:
        raise OutOfDate(now)
    return now


def lock_runs(cases: Sequence[Case]) -> None:
    """The runs of cases under their locks, by their names, as recordings take them."""
    runs = Run.objects.filter(pk__in=[case.run_id for case in cases])
    named = locks.locked(runs).order_by(Collate("run", "C"), "pk")
    list(named.values_list("pk"))


def locked_each(cases: Sequence[Case]) -> dict[int, Case]:
    """Cases under their locks, by their ids, as they are now; the caller holds their runs."""
    rows = Case.objects.filter(pk__in=[case.pk for case in cases]).order_by("pk")
    related = rows.select_related("workspace", "run__workspace", "run__agent", "claimed_by")
    return {case.pk: case for case in locks.locked(related)}


REOPENED: Mapping[str, Any] = {
    "corrections_drafted_at": None,
    "outcome": "",
    "closing_reason": "",
    "closed_at": None,
    "closed_by": None,
    "snoozed_until": None,
}
"""Columns of an ending that a reopened case no longer has; nor is it put off any more."""


def woken(case: Case, changes: Mapping[str, Any]) -> dict[str, Any]:
    """What ends its being put off, where these changes say that more is wrong than whoever did so
    knew: another reason, a higher risk, or it is due before it would come back.
    """
    if case.snoozed_until is None:
        return {}
    due_at = changes.get("due_at")
    is_worse = (
        set(changes.get("reasons", ())) - set(case.reasons)
        or changes.get("risk_rank", case.risk_rank) > case.risk_rank
        or (due_at is not None and due_at < case.snoozed_until)
    )
    return {"snoozed_until": None} if is_worse else {}


def move(case: Case, to: str, **columns: Any) -> None:
    """The case goes from the state in which it is locked to `to`; the caller holds the lock and
    tells the ledger. Raises CannotMove where CASE_MOVES has no such move.
    """
    case.save(update_fields=_moved(case, to, **columns))


def change(case: Case, changes: Mapping[str, Any]) -> None:
    """Columns of a row that is in hand, as a change that pages see; the caller holds its lock."""
    for name, value in changes.items():
        setattr(case, name, value)
    case.revision += 1
    case.save(update_fields=[*changes, "revision"])


def _moved(case: Case, to: str, **columns: Any) -> list[str]:
    """The row in hand as it will be; which columns are to be written."""
    if to not in CASE_MOVES[case.state]:
        raise CannotMove(case, to)
    changes = {"was": case.state, "state": to, "revision": case.revision + 1} | columns
    for name, value in changes.items():
        setattr(case, name, value)
    return list(changes)


def follow(cases: QuerySet[Case], to: str) -> None:
    """Let cases say what their plans do, by one UPDATE; a closed one stays closed."""
    cases.filter(state__in=_before(to)).update(state=to, revision=F("revision") + 1)


def _before(to: str) -> list[str]:
    """The states, but for the closed one, from which a case may go there."""
    return [
        state for state, after in CASE_MOVES.items() if to in after and state != CaseState.CLOSED
    ]


def record(
    case: Case,
    what: EventType,
    *,
    by: User | None = None,
    data: dict[str, Any] | None = None,
    part: str = "desk",
) -> str:
    """Tell the ledger, in the run's own story."""
    return desk_events.record(
        case.workspace,
        what,
        run=case.run.run,
        by=by,
        part=part,
        data={"case": case.pk} | (data or {}),
    )


# Directives: what the desk wants of a run. It never runs forward actions itself.


def standing_directives(run_id: int, kind: str = "") -> QuerySet[Directive]:
    """What the desk wants of a run now, at most one directive; empty where it is of another kind
    than the one that is asked for."""
    found = Directive.objects.filter(run=run_id, acknowledged_at=None, withdrawn_at=None)
    return found.filter(kind=kind) if kind else found


def direct(
    run_id: int, kind: str, *, by: User | None, acknowledge_by: datetime | None, **columns: Any
) -> Directive:
    """Tell a run to `stop` or to `resume`, in place of what it was told before. Whoever waits for
    that hears of it once the transaction is through.
    """
    standing_directives(run_id).update(withdrawn_at=clock.Clock())
    directive = Directive.objects.create(
        run_id=run_id, kind=kind, issued_by=by, acknowledge_by=acknowledge_by, **columns
    )
    transaction.on_commit(lambda: publish(DIRECTIVES, run_id), robust=True)
    return directive


# The end of a case.


class Reason(Protocol):
    """What triage found, as far as an ending looks at it."""

    @property
    def key(self) -> str: ...


WAS_RESTORED = "Every effect was undone, and read back."


def restored(case: Case) -> bool:
    """The desk's own closing: every effect was undone and read back. False if it was closed before.

    The caller holds the transaction, and has checked that nothing stands or is in doubt. No lock is
    taken beyond the case's own row, for the caller holds its plan's. What is answered is what the
    case told of; a reason that triage has not met yet brings it back, as any new one does.
    """
    rows = Case.objects.select_related("workspace", "run")
    case = locks.locked(rows).get(pk=case.pk)
    if case.state == CaseState.CLOSED:
        return False
    end_each([Ending(case)], CaseOutcome.RESTORED, WAS_RESTORED)
    return True


class Ending(NamedTuple):
    """A case that comes to its end: which reasons are `present`, what is `standing` (and how many
    `more` of a long run, that are only counted), and what is `left` for somebody."""

    case: Case
    present: Iterable[Reason] = ()
    standing: Sequence[tuple[Action, Effect | None]] = ()
    left: Sequence[dict[str, Any]] = ()
    more: int = 0


def end_each(
    endings: Sequence[Ending], outcome: str, reason: str, *, by: User | None = None
) -> None:
    """Close rows of one workspace, answer what is `present` and what each case tells of, and say
    what stands, each in its own event, for a price that hardly grows with their number.

    The caller holds the locks, and has made sure that nothing is in doubt.
    """
    if not endings:
        return
    now, columns = clock.database_time(), list[str]()
    told_of = _told_of(endings) if outcome == CaseOutcome.ALREADY_HANDLED else None
    for ending in endings:
        case, told = ending.case, _told(ending.case)
        columns = _moved(
            case,
            CaseState.CLOSED,
            outcome=outcome,
            closing_reason=reason,
            closed_by=by,
            closed_at=now,
            claimed_by=None,
            claimed_until=None,
            answered=sorted({*case.answered, *(one.key for one in ending.present), *told}),
            standing_count=len(ending.standing) + ending.more,
            unknown_count=0,
            by_hand_at=_by_hand_at(case, outcome, now),
            corrections_drafted_at=None if told_of is None or case.pk in told_of else now,
        )
    cases = [ending.case for ending in endings]
    Case.objects.bulk_update(cases, columns)
    for cause in sorted({case.cause_id for case in cases if case.cause_id is not None}):
        Cause.objects.filter(pk=cause).update(last_closed_at=now)
    Directive.objects.filter(
        run__in=[case.run_id for case in cases],
        kind="resume",
        acknowledged_at=None,
        withdrawn_at=None,
    ).update(withdrawn_at=now)
    said = [_closed(ending, outcome, reason) for ending in endings]
    desk_events.record_all(cases[0].workspace, said, by=by)


def _by_hand_at(case: Case, outcome: str, now: datetime) -> datetime | None:
    """What was put right by hand stays so, unless it is said now that something is left."""
    if outcome == CaseOutcome.ALREADY_HANDLED:
        return now
    return None if outcome in {CaseOutcome.PARTLY, CaseOutcome.EXPECTED} else case.by_hand_at


def _told_of(endings: Sequence[Ending]) -> set[int]:
    """The cases that have a correction, which may tell otherwise now."""
    cases = [ending.case.pk for ending in endings]
    return set(Correction.objects.filter(case__in=cases).values_list("case", flat=True))


def _closed(ending: Ending, outcome: str, reason: str) -> desk_events.EventDraft:
    return desk_events.EventDraft(
        EventType.CASE_CLOSED,
        ending.case.run.run,
        data={
            "case": ending.case.pk,
            "outcome": outcome,
            "reason": reason,
            "standing": [standing_words(*found) for found in ending.standing],
            **({"more_standing": ending.more} if ending.more else {}),
            "residue": list(ending.left),
        },
    )


def close_otherwise(ending: Ending, outcome: str, reason: str) -> None:
    """A case that the desk closed turns out to have ended otherwise; the caller holds its lock."""
    answered = {*ending.case.answered, *(one.key for one in ending.present)}
    change(
        ending.case,
        {
            "outcome": outcome,
            "closing_reason": reason,
            "standing_count": len(ending.standing),
            "answered": sorted(answered),
        },
    )
    desk_events.record_all(ending.case.workspace, [_closed(ending, outcome, reason)])


def _told(case: Case) -> set[str]:
    """The keys of the reasons of which the case tells."""
    return {str(one["key"]) for one in case.evidence if isinstance(one, dict) and "key" in one}


def standing_words(action: Action, effect: Effect | None) -> dict[str, Any]:
    """What stands, as the ledger and the API name it; of a call whose effect nobody told, itself.

    `undone` is `repaired` where the record was put right and what it did outside stands.
    """
    return {
        "action": action.action,
        "position": effect.position if effect else None,
        "tool": action.tool,
        "target": {"type": effect.target_type, "id": effect.target_id} if effect else None,
        "undone": effect.compensated if effect else action.compensated,
    }
