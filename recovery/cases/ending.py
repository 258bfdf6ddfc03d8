"""Ending: how the row of a case comes to its end, whoever ends it.

An ending answers the reasons that stand at that moment: only another one brings the case back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from django.utils import timezone

from ledger.models import Action, Effect
from recovery.cases.rows import say
from recovery.models import Case, CaseOutcome, CaseState, Cause, Directive
from workspaces.models import User


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
    locking = Case.objects.select_for_update(of=("self",))
    case = locking.select_related("workspace", "run").get(pk=case.pk)
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
    told = [one["key"] for one in case.evidence if isinstance(one, dict) and "key" in one]
    case.state, case.outcome = CaseState.CLOSED, outcome
    case.closing_reason, case.closed_by, case.closed_at = reason, by, timezone.now()
    case.claimed_by = case.claimed_until = None
    case.answered = sorted({*case.answered, *(one.key for one in present), *map(str, told)})
    case.revision += 1
    case.save()
    if case.cause_id is not None:
        Cause.objects.filter(pk=case.cause_id).update(last_closed_at=case.closed_at)
    Directive.objects.filter(
        run=case.run_id, kind="resume", acknowledged_at=None, withdrawn_at=None
    ).update(withdrawn_at=case.closed_at)
    data = {
        "outcome": outcome,
        "reason": reason,
        "standing": [standing_words(*found) for found in standing],
        "residue": list(left),
    }
    say(case, "case.closed", by=by, data=data, part="engine")


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
