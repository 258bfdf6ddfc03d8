"""Settling: what became of a call, written down.

The answer is kept on the try whatever has happened to the step meanwhile, for it is evidence. The
step moves only under the fence under which the call was sent.
"""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from django.db import connection, transaction

from connectors.contract import Answer, Operation
from ledger import desk_events
from ledger.append.statements import Statement
from ledger.desk_events import EventDraft
from recovery.engine import claims, faults, steps
from recovery.engine.intents import Intent
from recovery.engine.reading import copied
from recovery.engine.sql import AT_REST, DATABASE_AWAY, Sql, ask_all, in_seconds
from recovery.models import Step, StepState
from workspaces.clock import boot_seconds
from workspaces.moves import CannotMove

TRIES_MAX = 3
"""Of calls that certainly had no effect. A person may authorise one more."""

AGAIN_SECONDS = 0.5
"""Between two tries to write answers down while the database is away."""

RETRY_SECONDS = 2.0
"""Before the second try; each further one waits twice as long."""


@dataclass(frozen=True)
class Answered:
    """A try that was answered."""

    intent: Intent
    operation: Operation
    answer: Answer


def keep(answered: Sequence[Answered], *, until: float) -> list[Step]:
    """An answer is worth more than a probe: while a lease lasts, a database that is away is asked
    again. If the lost commit came through after all, the swap finds nothing left to do.

    `until` is by `boot_seconds`.
    """
    while True:
        try:
            with transaction.atomic():
                return settle_all(answered)
        except DATABASE_AWAY:
            connection.close()
            if boot_seconds() > until:
                raise
            time.sleep(AGAIN_SECONDS)


def settle_all(answered: Sequence[Answered]) -> list[Step]:
    """Write answers down and move their steps; those that moved, as they then stand.

    They are copies: the caller's transaction may fail at its end, and be tried again.
    """
    mine = [
        replace(one, intent=replace(one.intent, step=copied(one.intent.step))) for one in answered
    ]
    applied = [one for one in mine if one.answer.outcome == "applied"]
    if not applied:
        ask_all([_kept(answered)])
    moved = _applied(applied, ahead=[_kept(answered)])
    for one in mine:
        if one.answer.outcome != "applied":
            with suppress(CannotMove):
                _move(one)
                moved.append(one.intent.step)
    for _ in moved:
        faults.point("settling")
    return moved


KEEP_SQL = """
UPDATE recovery_stepattempt SET answered_at = clock_timestamp(), outcome = u.outcome,
    detail = u.detail, evidence = u.evidence::jsonb
FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[]) AS u (id, outcome, detail, evidence)
WHERE recovery_stepattempt.id = u.id
"""


def _kept(answered: Sequence[Answered]) -> Statement:
    return KEEP_SQL, [
        [one.intent.attempt.pk for one in answered],
        [one.answer.outcome for one in answered],
        [one.answer.detail for one in answered],
        [json.dumps(one.answer.evidence) if one.answer.evidence else None for one in answered],
    ]


def _applied(answered: Sequence[Answered], ahead: Sequence[Statement]) -> list[Step]:
    """The effects are there; what remains is to read them back, and to fold."""
    answers = {one.intent.step.pk: one.answer for one in answered}

    def tell(step: Step) -> list[EventDraft]:
        said = {"was": step.was, "note": "", "effects": [_effect(step)]}
        return [steps.saying(step, step.state, said | _said(answers[step.pk]))]

    moved = steps.move_all(
        [one.intent.step for one in answered],
        StepState.APPLIED,
        each={"evidence": [one.answer.evidence or None for one in answered]},
        alike=AT_REST | {"probes": Sql("0"), "note": Sql("''")},
        ahead=ahead,
        tell=tell,
    )
    steps.note(moved)
    for step, _ in moved:
        step.probes = 0
    return [step for step, _ in moved]


def _move(one: Answered) -> None:
    step, answer = one.intent.step, one.answer
    said = _said(answer)
    if answer.outcome == "unknown":
        steps.move(
            step,
            StepState.UNKNOWN,
            note=answer.detail,
            say=said,
            lease_until=None,
            # Not before the call's own limit, for what we sent may still be on its way.
            wake_at=in_seconds(one.operation.limit_seconds + one.operation.horizon_seconds),
        )
    elif step.tries >= TRIES_MAX:
        claims.needs_human(step, f"Refused {step.tries} times: {answer.detail}", say=said)
    else:
        told = steps.moved(
            step,
            StepState.READY,
            note=answer.detail,
            lease_until=None,
            wake_at=in_seconds(RETRY_SECONDS * 2 ** (step.tries - 1)),
        )
        desk_events.say_all(step.workspace, [steps.refused(step, answer.detail), told])


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
