"""Cases, plans and corrections as the API shows them. Nothing here decides or changes anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ledger import disclosure
from recovery.cases.lifecycle import holder_of, standing_words
from recovery.casework import closing as closings
from recovery.casework import resuming, settling
from recovery.casework.resuming import Resume
from recovery.corrections import link_of
from recovery.models import Case, CaseState, Correction, Plan, Residue, Step
from recovery.planning.drafting import DraftStep, DriftState, NotUndoable
from recovery.planning.plans import CHOICES, PlanDraft
from recovery.run_facts.runs import facts_of
from recovery.triage import outcome_probes

STEPS_SHOWN_MAX = 1_000


OF_CASES = (
    "state", "revision", "headline", "reasons", "evidence", "risk", "failed_tool", "failed_target",
    "customer", "customer_name", "request", "suggestion", "suggestion_reason", "suggestion_text",
    "reversibility", "needs_approval", "amount_minor", "currency", "without_effects", "failed_at",
    "opened_at", "due_at", "outcome", "closing_reason", "closed_at",
)  # fmt: skip
"""Columns that are named alike on the wire."""
SUGGESTED = ("suggestion", "suggestion_reason", "suggestion_text", "needs_approval")
"""Empty of a closed case: the row keeps what was suggested while it was open."""


def case(one: Case) -> dict[str, Any]:
    holder = holder_of(one)
    return {
        "id": one.pk,
        "run": one.run.run,
        "agent": one.agent.name if one.agent else None,
        "cause": one.cause.fingerprint if one.cause else None,
        "unknown": one.unknown_count,
        "standing": one.standing_count,
        "claimed_by": holder.email if holder else None,
        **{name: getattr(one, name) for name in OF_CASES},
        **(dict.fromkeys(SUGGESTED, "") if one.state == CaseState.CLOSED else {}),
    }


def in_doubt(one: Case) -> Any:
    """What waits for a word of a person: calls of the agent, and steps of its plans."""
    facts = settling.facts_now(one)
    found = {
        "actions": [
            {
                "action": call.action,
                "tool": call.tool,
                "targets": call.targets_words,
                "key": call.key,
                "sent_at": call.started_at or call.planned_at,
                "probe": outcome_probes.question(facts, call),
            }
            for call in facts.unknown()
        ],
        "steps": [
            {
                "step": step.pk,
                "plan": step.plan.number,
                "position": step.position,
                "state": step.state,
                "title": step.preview.get("title") or step.operation,
                "note": step.note,
                "key": step.key,
            }
            for step in settling.steps_in_doubt(one)
        ],
    }
    return disclosure.without_secrets(found)


OF_AGENTS = (
    "id", "run", "state", "revision", "headline", "reasons", "risk", "failed_tool",
    "failed_target", "reversibility", "unknown", "standing", "failed_at", "opened_at", "due_at",
    "outcome", "closed_at",
)  # fmt: skip
"""What an agent reads of a case of its own: what it did itself, and how that stands."""


def case_of_agent(one: Case) -> dict[str, Any]:
    known = case(one)
    return {name: disclosure.without_secrets(known[name]) for name in OF_AGENTS}


def plan_of_agent(one: Plan) -> dict[str, Any]:
    steps = one.steps.order_by("position")[:STEPS_SHOWN_MAX]
    return {
        "number": one.number,
        "state": one.state,
        "submitted_at": one.submitted_at,
        "ended_at": one.ended_at,
        "steps": [
            {
                "position": step.position,
                "state": step.state,
                "target": disclosure.without_secrets(
                    {"type": step.target_type, "id": step.target_id}
                ),
            }
            for step in steps
        ],
    }


def draft(one: PlanDraft, *, sensitive: bool) -> dict[str, Any]:
    money = one.money
    return {
        "verb": "compensate",
        "case": one.case.pk,
        "revision": one.case.revision,
        "digest": one.digest,
        "restores": one.restores,
        "headline": one.headline,
        "lead": one.lead,
        "checked_at": one.checked_at,
        "approval": one.approval,
        "amount_minor": money.amount_minor if money else None,
        "currency": money.currency if money else "",
        "why_not": one.why_not,
        "more_standing": one.more,
        "steps": [draft_step(step, sensitive=sensitive) for step in one.steps],
        "cannot": [cannot(left) for left in one.cannot],
        "skipped": [cannot(left) for left in one.skipped],
    }


def draft_step(one: DraftStep, *, sensitive: bool) -> dict[str, Any]:
    step = one.step
    paths = one.action.run.workspace.mask
    found = {
        "position": step.position,
        "title": one.preview.title,
        "effect": one.effect.pk,
        "undoes": {"action": one.action.action, "tool": one.action.tool, "n": one.action.n},
        "target": {"type": step.target_type, "id": step.target_id},
        "connection": step.connection.name,
        "operation": step.operation,
        "reversibility": step.reversibility,
        "risk": step.risk,
        "approval": one.judgement.approval,
        "why": one.judgement.why,
        "digest": step.digest,
        "key": step.key,
        "drift_state": one.drift_state,
        "drift": disclosure.fields(one.drift, sensitive=sensitive, paths=paths),
        "chosen": one.chosen,
        "choices": list(CHOICES) if one.drift_state == DriftState.DRIFTED else [],
        "notes": one.notes,
        "rows": [
            [name, disclosure.value(found, sensitive=sensitive, paths=paths)]
            for name, found in step.preview.get("rows", [])
        ],
        "diff": disclosure.fields(_difference(one), sensitive=sensitive, paths=paths),
    }
    if sensitive:
        found |= {"args": step.args, "must_be_true": step.post_condition}
    return found


def drifted_steps(one: PlanDraft, *, sensitive: bool) -> list[dict[str, Any]]:
    """The steps whose targets have drifted, with the difference and what may be chosen."""
    members = ("position", "title", "effect", "target", "drift", "choices")
    steps = (draft_step(step, sensitive=sensitive) for step in one.undecided)
    return [{name: step[name] for name in members} for step in steps]


def _difference(one: DraftStep) -> list[dict[str, Any]]:
    """What the step writes, field by field; `now` is what the target was seen to hold, and null
    where it could not be read.
    """
    state = one.seen if isinstance(one.seen, dict) else {}
    return [row | {"now": state.get(row["field"])} for row in one.step.preview.get("diff", [])]


def cannot(one: NotUndoable) -> dict[str, Any]:
    return {
        "effect": one.effect.pk,
        "action": one.action.action,
        "code": one.code,
        "title": one.title,
        "text": one.text,
    }


def resume(one: Resume) -> dict[str, Any]:
    return {
        "verb": "resume",
        "case": one.case.pk,
        "revision": one.case.revision,
        "digest": one.digest,
        "checkpoint": one.checkpoint.pk if one.checkpoint else None,
        "at_checkpoint": _at_checkpoint(one),
        "stale": one.stale,
        "why_not": one.why_not,
        "steps": [step.as_json() | {"words": step.words, "why": step.why} for step in one.steps],
        "left_out": one.left_out,
        "standing": [standing_words(*found) for found in one.standing],
    }


def _at_checkpoint(one: Resume) -> dict[str, Any] | None:
    if one.checkpoint is None:
        return None
    then = resuming.known_at(one.facts.run, one.checkpoint)
    return {
        "recovery_mode": one.checkpoint.recovery_mode,
        "approvals": then.approvals,
        "verified_at": then.verified_at,
        "trace": then.trace,
    }


def closing(one: Case) -> dict[str, Any]:
    facts = facts_of(one.run)
    return {
        "verb": "close",
        "case": one.pk,
        "revision": one.revision,
        "why_not": closings.why_not(one, facts, closings.living([one]).get(one.pk)),
        "outcomes": [str(outcome) for outcome in closings.BY_PEOPLE],
        "standing": [standing_words(*found) for found in facts.remaining()],
        "standing_count": facts.remaining_count,
    }


def residue(one: Residue) -> dict[str, Any]:
    return {
        "id": one.pk,
        "case": one.case_id,
        "run": one.case.run.run,
        "text": one.text,
        "effect": one.effect_id,
        "owner": one.owner.email,
        "due_at": one.due_at,
        "done_at": one.done_at,
        "done_by": one.done_by.email if one.done_by else None,
        "note": one.done_note,
    }


def plan(one: Plan, *, sensitive: bool) -> dict[str, Any]:
    steps = one.steps.select_related("connection").order_by("position")[:STEPS_SHOWN_MAX]
    return {
        "id": one.pk,
        "case": one.case_id,
        "number": one.number,
        "state": one.state,
        "digest": one.digest,
        "headline": one.headline,
        "automatic": one.automatic,
        "approval": one.approval_id,
        "submitted_at": one.submitted_at,
        "started_at": one.started_at,
        "ended_at": one.ended_at,
        "more_standing": one.more_standing,
        "steps": [plan_step(step, sensitive=sensitive, paths=one.workspace.mask) for step in steps],
    }


def plan_step(one: Step, *, sensitive: bool, paths: Sequence[str]) -> dict[str, Any]:
    return {
        "position": one.position,
        "title": one.preview.get("title", ""),
        "state": one.state,
        "note": one.note,
        "connection": one.connection.name,
        "operation": one.operation,
        "target": {"type": one.target_type, "id": one.target_id},
        "drift": None
        if one.drift is None
        else disclosure.fields(one.drift, sensitive=sensitive, paths=paths),
    }


def correction(one: Correction, *, recovers: bool) -> dict[str, Any]:
    """The link opens what the person is told, and speaks for them: it is for whoever recovers."""
    return {
        "id": one.pk,
        "case": one.case_id,
        "reference": one.reference,
        "person": {"id": one.person_id, "name": one.person_name},
        "state": one.state,
        "revision": one.revision,
        "title": one.title,
        "lead": one.lead,
        "published_at": one.published_at,
        "link": link_of(one) if recovers else "",
        "first_read_at": one.first_read_at,
        "deliveries": [
            {"way": sent.channel, "state": sent.state, "sent_at": sent.sent_at}
            for sent in one.deliveries.order_by("pk")
        ],
    }
