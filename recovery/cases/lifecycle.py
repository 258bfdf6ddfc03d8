"""The life of a case's row, whoever acts on it: its lock, its claim, its moves and its end.

An end answers the reasons that stand at that moment: only another one brings the case back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from amends.protocol.vocabulary import EventType
from approvals.signals import DIRECTIVES, publish
from ledger import desk_events
from ledger.models import Action, Effect, Run
from recovery.models import CASE_MOVES, Case, CaseOutcome, CaseState, Cause, Directive
from workspaces import clock, row_locks
from workspaces.models import User
from workspaces.moves import CannotMove

REASON_CHARACTERS_MAX = 2_000
"""Of why somebody submits a plan, has a run go on, or acts on many cases."""


class InvalidInput(ValueError):
    """We stopped because what a person has to say is missing, or too long to be kept whole."""


def kept_text(text: str, characters_max: int, *, asking: str = "") -> str:
    """What a person wrote, as it is kept: whole, without NUL, its lines ended as browsers count.

    Raises InvalidInput with `asking` where nothing was written and something has to be, and where
    it is longer than `characters_max`: what somebody said is never cut.
    """
    text = text.replace("\x00", "").replace("\r\n", "\n").strip()
    if asking and not text:
        raise InvalidInput(asking)
    if len(text) > characters_max:
        long = f"{len(text):,} characters, of which {characters_max:,} can be kept"
        raise InvalidInput(f"Shorten what you wrote: it has {long}.")
    return text


class NotPossible(Exception):
    """We stopped because something is in the way of what was asked; the sentence says what. Each
    act has one of its own.
    """


class OutOfDate(Exception):
    """We stopped because the case is no longer as it was shown. Nothing was changed: show it."""

    def __init__(
        self, case: Case, why: str = "Somebody changed this case since you saw it."
    ) -> None:
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
    """Who has claimed it, if that is somebody else."""
    holder = holder_of(case)
    return holder if holder is not None and holder != person else None


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
    row_locks.locked(Run.objects.only("pk")).get(pk=case.run_id)
    now = (
        row_locks.locked(Case.objects.all())
        .select_related("workspace", "run__agent", "claimed_by")
        .get(pk=case.pk)
    )
    if seen is not None and now.revision != seen:
        raise OutOfDate(now)
    return now


REOPENED: Mapping[str, Any] = {
    "corrections_drafted_at": None,
    "outcome": "",
    "closing_reason": "",
    "closed_at": None,
    "closed_by": None,
}
"""Columns of an ending that a reopened case no longer has."""


def move(case: Case, to: str, **columns: Any) -> None:
    """The case goes from the state in which it is locked to `to`; the caller holds the lock and
    tells the ledger. Raises CannotMove where CASE_MOVES has no such move.
    """
    if to not in CASE_MOVES[case.state]:
        raise CannotMove(case, to)
    changes = {"was": case.state, "state": to, "revision": case.revision + 1} | columns
    for name, value in changes.items():
        setattr(case, name, value)
    case.save(update_fields=list(changes))


def follow(cases: QuerySet[Case], to: str) -> None:
    """Let cases say what their plans do, by one UPDATE; a closed one stays closed."""
    cases.filter(state__in=_before(to)).update(state=to, revision=F("revision") + 1)


def _before(to: str) -> list[str]:
    """The states, but for the closed one, from which a case may go there."""
    return [
        state for state, after in CASE_MOVES.items() if to in after and state != CaseState.CLOSED
    ]


def say(
    case: Case,
    what: EventType,
    *,
    by: User | None = None,
    data: dict[str, Any] | None = None,
    part: str = "desk",
) -> str:
    """Tell the ledger, in the run's own story."""
    return desk_events.say(
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


def restored(case: Case) -> bool:
    """The desk's own closing: every effect was undone and read back. False if it was closed before.

    The caller holds the transaction, and has checked that nothing stands or is in doubt. No lock is
    taken beyond the case's own row, for the caller holds its plan's. What is answered is what the
    case told of; a reason that triage has not met yet brings it back, as any new one does.
    """
    rows = Case.objects.select_related("workspace", "run")
    case = row_locks.locked(rows).get(pk=case.pk)
    if case.state == CaseState.CLOSED:
        return False
    end(case, CaseOutcome.RESTORED, "Every effect was undone, and read back.")
    return True


def end(
    case: Case,
    outcome: str,
    reason: str,
    *,
    by: User | None = None,
    present: Iterable[Reason] = (),
    standing: Sequence[tuple[Action, Effect | None]] = (),
    left: Sequence[dict[str, Any]] = (),
) -> None:
    """Close the row, answer what is `present` and what the case tells of, and say what stands.

    The caller holds the lock, and has made sure that nothing is in doubt.
    """
    known = [one["key"] for one in case.evidence if isinstance(one, dict) and "key" in one]
    move(
        case,
        CaseState.CLOSED,
        outcome=outcome,
        closing_reason=reason,
        closed_by=by,
        closed_at=timezone.now(),
        claimed_by=None,
        claimed_until=None,
        answered=sorted({*case.answered, *(one.key for one in present), *map(str, known)}),
    )
    if case.cause_id is not None:
        Cause.objects.filter(pk=case.cause_id).update(last_closed_at=case.closed_at)
    standing_directives(case.run_id, "resume").update(withdrawn_at=case.closed_at)
    data = {
        "outcome": outcome,
        "reason": reason,
        "standing": [standing_words(*found) for found in standing],
        "residue": list(left),
    }
    say(case, EventType.CASE_CLOSED, by=by, data=data, part="engine")


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
