"""Settling: what became of a call, written down.

The answer is kept on the try whatever has happened to the step meanwhile, for it is evidence. The
step moves only under the fence under which the call was sent.
"""

import json
from typing import Any

from django.db import connection, transaction

from connectors.contract import Answer, Operation
from ledger import desk
from recovery.engine import claims, faults, steps
from recovery.engine.intents import Intent
from recovery.engine.sql import in_seconds
from recovery.models import Step, StepAttempt, StepState
from workspaces.moves import CannotMove

TRIES_MAX = 3
"""Of calls that certainly had no effect. A person may authorise one more."""

RETRY_SECONDS = 2.0
"""Before the second try; each further one waits twice as long."""


def settle(intent: Intent, operation: Operation, answer: Answer) -> bool:
    """Write the answer down and move the step; False if the step was taken from us meanwhile."""
    with transaction.atomic():
        _keep(intent.attempt, answer)
        try:
            _move(intent, operation, answer)
        except CannotMove:
            return False
        faults.point("settling")
    return True


KEEP_SQL = """
UPDATE recovery_stepattempt
SET answered_at = clock_timestamp(), outcome = %s, detail = %s, evidence = %s::jsonb WHERE id = %s
"""


def _keep(attempt: StepAttempt, answer: Answer) -> None:
    evidence = json.dumps(answer.evidence) if answer.evidence else None
    with connection.cursor() as cursor:
        cursor.execute(KEEP_SQL, [answer.outcome, answer.detail, evidence, attempt.pk])


def _move(intent: Intent, operation: Operation, answer: Answer) -> None:
    step = intent.step
    said = _said(answer)
    match answer.outcome:
        case "applied":
            applied(step, evidence=answer.evidence, say=said)
        case "no_effect" if step.tries >= TRIES_MAX:
            claims.needs_human(step, f"Refused {step.tries} times: {answer.detail}", say=said)
        case "no_effect":
            told = steps.moved(
                step,
                StepState.READY,
                note=answer.detail,
                lease_until=None,
                wake_at=in_seconds(RETRY_SECONDS * 2 ** (step.tries - 1)),
            )
            desk.say_all(step.workspace, [steps.refused(step, answer.detail), told])
        case "unknown":
            steps.move(
                step,
                StepState.UNKNOWN,
                note=answer.detail,
                say=said,
                lease_until=None,
                # Not before the call's own limit, for what we sent may still be on its way.
                wake_at=in_seconds(operation.limit_seconds + operation.horizon_seconds),
            )


def applied(
    step: Step, *, evidence: dict[str, Any] | None, say: dict[str, Any], note: str = ""
) -> None:
    """The effect is there; what remains is to read it back. The caller holds the transaction."""
    steps.move(
        step,
        StepState.APPLIED,
        note=note,
        say={"effects": [_effect(step)]} | say,
        evidence=evidence or None,
        lease_until=None,
        wake_at=None,
        probes=0,
    )


def _effect(step: Step) -> dict[str, Any]:
    """What the call did, as the fold of the plan's own run wants it."""
    wanted = step.post_condition or {}
    effect = {
        "target": {"type": step.target_type, "id": step.target_id},
        "summary": (step.preview or {}).get("title", ""),
        "reversibility": step.reversibility,
    }
    if wanted:
        effect["after"] = wanted.get("fields", {}) if wanted.get("exists", True) else None
    return effect


def _said(answer: Answer) -> dict[str, Any]:
    return {
        "outcome": answer.outcome,
        "detail": answer.detail,
        "evidence": answer.evidence,
    }
