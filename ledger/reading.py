"""Reading runs, actions and effects: what other floors and the API ask of the projections."""

from typing import Any

from django.db.models import F, QuerySet

from ledger.models import Action, Checkpoint, Effect, Run
from ledger.settlements import Settlement, settlements_of

ACTIONS_SHOWN_MAX = 1_000
CHECKPOINTS_SHOWN_MAX = 200


def in_order(run: Run) -> QuerySet[Action]:
    """The actions of a run, oldest first: by the agent's count, then by ledger place."""
    return run.actions.order_by(F("n").asc(nulls_last=True), "first_place")


def effects_of(run: Run) -> QuerySet[Effect]:
    """All effects of a run, newest first; within one action the last listed comes first."""
    return (
        Effect.objects.filter(action__run=run, withdrawn=False)
        .select_related("action", "action__run")
        .order_by(F("action__n").desc(nulls_first=True), "-action__first_place", "-position")
    )


def run_as_json(run: Run, *, sensitive: bool) -> dict[str, Any]:
    """A run with its actions and checkpoints; payloads only if the reader may see them."""
    actions = in_order(run).prefetch_related("effects", "attempts")[:ACTIONS_SHOWN_MAX]
    settled = settlements_of(run, actions)
    checkpoints = run.checkpoints.order_by("n", "place")[:CHECKPOINTS_SHOWN_MAX]
    found: dict[str, Any] = {
        "run": run.run, "agent": run.agent.name if run.agent else None, "model": run.model,
        "state": run.state, "revision": run.revision, "customer": run.customer,
        "labels": run.labels, "trace": run.trace, "flags": run.flags,
        "failed_action": run.failed_action or None, "cancelled_by": run.cancelled_by or None,
        "started_at": run.started_at, "ended_at": run.ended_at, "lease_until": run.lease_until,
        "held_by": run.held_by or None, "action_count": run.action_count,
        "effect_count": run.effect_count,
        "actions": [
            action_as_json(action, settled.get(action.action), sensitive=sensitive)
            for action in actions
        ],
        "checkpoints": [_checkpoint(one, sensitive=sensitive) for one in checkpoints],
    }  # fmt: skip
    if sensitive:
        found |= {
            "request": run.request, "goal": run.goal, "on_behalf_of": run.on_behalf_of,
            "summary": run.summary, "error": run.error, "reason": run.reason,
        }  # fmt: skip
    return found


def action_as_json(
    action: Action, settled: Settlement | None = None, *, sensitive: bool
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "action": action.action, "n": action.n, "tool": action.tool, "key": action.key,
        "class": action.action_class, "risk": action.risk, "saga": action.saga, "op": action.op,
        "state": action.state, "compensated": action.compensated, "verified": action.verified,
        "targets": action.targets, "args_digest": action.args_digest, "flags": action.flags,
        "fence": action.fence, "settled_by": action.settled_by or None,
        "settled": settled.as_json(sensitive=sensitive) if settled else None,
        "planned_at": action.planned_at, "started_at": action.started_at,
        "finished_at": action.finished_at,
        "attempts": [
            {"attempt": one.attempt, "state": one.state, "fence": one.fence, "stale": one.stale,
             "retry": one.retry or None,
             "settled": settled is not None and settled.covers(one.attempt)}
            for one in action.attempts.all()
        ],
        "effects": [
            _effect(one, sensitive=sensitive)
            for one in sorted(action.effects.all(), key=lambda effect: effect.position)
            if not one.withdrawn
        ],
    }  # fmt: skip
    if sensitive:
        found |= {
            "args": action.args, "intent": action.intent, "result": action.result,
            "error": action.error, "checks": action.checks, "compensation": action.compensation,
        }  # fmt: skip
    return found


def _effect(effect: Effect, *, sensitive: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "position": effect.position,
        "target": {"type": effect.target_type, "id": effect.target_id},
        "summary": effect.summary, "reversibility": effect.reversibility,
        "undo_until": effect.undo_until, "compensated": effect.compensated,
        "source": effect.source,
    }  # fmt: skip
    if sensitive:
        found |= {name: getattr(effect, name) for name in ("before", "after")
                  if getattr(effect, f"has_{name}")}  # fmt: skip
        found["affects"] = effect.affects
    return found


def _checkpoint(one: Checkpoint, *, sensitive: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": one.name, "n": one.n, "at": one.at, "completed": one.completed,
        "pending": one.pending, "recovery_mode": one.recovery_mode, "summary": one.summary,
    }  # fmt: skip
    if sensitive:
        found |= {"state": one.state, "state_ref": one.state_ref, "instructions": one.instructions}
    return found
