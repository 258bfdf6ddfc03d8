"""What stories about the engine are told with: a run that went wrong, and a plan to undo it.

Plans are written here step by step and not drafted, so that a story chooses each operation itself.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from django.db import transaction

from amends.protocol.vocabulary import ActionClass, Risk
from approvals import approval_requests, policy
from approvals.digests import call_digest
from approvals.models import Approval
from approvals.policy import PolicyDecision, RequiredApprovers
from connectors import calls
from connectors.contract import Target
from connectors.models import Connection
from ledger import intake
from ledger.canonical import digest
from ledger.drivers import plain_connection
from ledger.models import Effect, Run
from ledger.parsed_events import Actor, ParsedEvent, new_id
from ledger.wire import read
from recovery.engine import approved_calls, preconditions
from recovery.models import Case, Plan, PlanState, Step, StepState
from tests.recovery.engine import by_hand
from workspaces.models import Agent, User

Changes = Mapping[str, tuple[dict[str, Any] | None, dict[str, Any] | None]]
"""Target → what it was before, and what the agent left."""


def send_event(agent: Agent, run: str, kind: str, action: str | None = None, **data: Any) -> None:
    """One event of the agent."""
    send_events(agent, run, (kind, action, data))


def send_events(agent: Agent, run: str, *told: tuple[str, str | None, dict[str, Any]]) -> None:
    """Events of the agent in one batch: of each its type, its action, and its data."""
    workspace = agent.workspace
    actor = Actor(workspace.pk, workspace.slug, "agent", agent.name, agent.pk, "0123456789")
    said = []
    for kind, action, data in told:
        event = {"id": new_id(), "type": kind, "run": run, "action": action, "data": data}
        said.append(read(msgspec.json.encode(event), actor))
    parsed = [one for one in said if isinstance(one, ParsedEvent)]
    assert parsed == said
    with transaction.atomic():
        recorded = intake.record(plain_connection(), actor, parsed)
    assert {one.status for one in recorded.results} == {"accepted"}, recorded.results


def run_that(agent: Agent, name: str, changes: Changes, *, ends: str = "run.failed") -> Run:
    """A run that changes one thing after the other, and then fails."""
    begun = {"request": "Please look after my things", "goal": "help"}
    told: list[tuple[str, str | None, dict[str, Any]]] = [("run.started", None, begun)]
    for number, (thing, (before, after)) in enumerate(changes.items(), 1):
        act = f"act_{number}"
        target = {"type": "thing", "id": thing.rstrip("'")}
        planned = {"tool": "things.set", "targets": [target], "args": {"n": number}}
        effects = [{"target": target, "before": before, "after": after}]
        told += [
            ("action.planned", act, planned),
            ("action.started", act, {"attempt": "a1"}),
            ("action.succeeded", act, {"attempt": "a1", "effects": effects}),
        ]
    if ends:
        told.append((ends, None, {"error": {"type": "Broken", "message": "it broke"}}))
    send_events(agent, name, *told)
    return Run.objects.get(workspace=agent.workspace, run=name)


def case_of(run: Run) -> Case:
    return Case.objects.create(
        workspace=run.workspace,
        run=run,
        agent=run.agent,
        headline="It broke",
        risk="medium",
        risk_rank=1,
        suggestion="compensate",
        suggestion_reason="Effects stand.",
        failed_at=run.started_at or run.ended_at or "2026-01-01T00:00:00Z",
    )


@transaction.atomic
def plan_for(
    case: Case,
    connection: Connection,
    operations: dict[str, str] | str = "restore",
    *,
    expecting: dict[str, Any] | None = None,
    **more: Any,
) -> Plan:
    """A plan that undoes every effect of the case's run, each by the operation named.

    It is there with its steps or not at all, as when people submit one: a sweeper may be at work.
    """
    run = Run.objects.get(pk=case.run_id)
    plan = Plan.objects.create(
        workspace=case.workspace,
        case=case,
        number=case.plans.count() + 1,
        state=PlanState.WAITING,
        headline="Put things back",
        case_revision=case.revision,
        run_revision=run.revision,
        basis=approved_calls.basis_of(run),
        policy_digest=policy.active(case.workspace).digest,
        accounts=approved_calls.accounts_of([connection]),
        reason="it broke",
        **more,
    )
    effects = list(
        Effect.objects.filter(action__run=run, compensated="none")
        .select_related("action__run")
        .order_by("-action__n", "-action__first_place", "-position")
    )
    newer: dict[str, Any] = dict(expecting or {})
    for position, effect in enumerate(effects, 1):
        operation = operations if isinstance(operations, str) else operations[effect.target_id]
        expected = newer.get(effect.target_id, effect.after)
        _step(plan, position, effect, connection, operation, expected)
        newer[effect.target_id] = effect.before
    found = list(plan.steps.order_by("position").values_list("digest", flat=True))
    plan.digest = approved_calls.plan_digest(plan, case.workspace.slug, found)
    plan.save(update_fields=["digest"])
    return plan


def _step(
    plan: Plan, position: int, effect: Effect, connection: Connection, operation: str, expected: Any
) -> None:
    args = {"id": effect.target_id, "to": effect.before}
    target = Target(effect.target_type, effect.target_id)
    preview = calls.preview(connection, operation, args, target)
    step = Step(
        workspace=plan.workspace,
        plan=plan,
        position=position,
        effect=effect,
        connection=connection,
        connection_digest=connection.settings_digest,
        connector_version=calls.connector_version(connection),
        operation=operation,
        args=args,
        target_type=effect.target_type,
        target_id=effect.target_id,
        before=[effect.before] if effect.has_before else [],
        expected=expected,
        fingerprint=digest(expected),
        post_condition=preview.must_be_true,
        preview={"title": preview.title},
        risk="medium",
        reversibility=calls.operation_of(connection, operation).reversibility,
        state=StepState.READY if position == 1 else StepState.BLOCKED,
        key=approved_calls.key_of_undo(
            workspace=plan.workspace.slug,
            connection=connection.name,
            operation=operation,
            run=effect.action.run.run,
            action=effect.action.action,
            position=effect.position,
            args=args,
        ),
    )
    step.digest = call_digest(approved_calls.facts_of(step, connection))
    step.save()


def asked(plan: Plan, by: User, rules: tuple[dict[str, str], ...] = (), **more: Any) -> Approval:
    """Put the plan in front of one person who may approve."""
    steps = list(plan.steps.order_by("position").select_related("connection"))
    approval = approval_requests.ask_for_plan(
        plan.workspace,
        plan.pk,
        case_ref=str(plan.case_id),
        accounts=plan.accounts,
        calls=[approved_calls.facts_of(step, step.connection) for step in steps],
        judgement=PolicyDecision(
            approval="MANUAL",
            risk=Risk.HIGH,
            action_class=ActionClass.EXTERNAL_REVERSIBLE,
            requires=(RequiredApprovers(None, 1),),
            rules=rules,
        ),
        headline=plan.headline,
        previews=[step.preview for step in steps],
        by=by,
        reason="it broke",
        **more,
    )
    Plan.objects.filter(pk=plan.pk).update(approval_id=approval.pk)
    return approval


def states(plan: Plan) -> list[str]:
    """Where each step stands, newest effect first."""
    return list(plan.steps.order_by("position").values_list("state", flat=True))


def counts(plan: Plan) -> list[Any]:
    """All that changes where anything was done."""
    return list(plan.steps.order_by("position").values_list("state", "tries", "probes", "fence"))


def make_due(plan: Plan) -> None:
    """Let every wait of the plan's steps be over, and every lease."""
    Step.objects.filter(plan=plan).update(wake_at=None)
    Step.objects.filter(plan=plan, lease_until__isnull=False).update(
        lease_until="2000-01-01T00:00:00Z"
    )


def advance(plan: Plan) -> None:
    """Advance, with every wait cut short, until nothing moves."""
    for _ in range(20):
        make_due(plan)
        before = counts(plan)
        by_hand.advance(plan.pk)
        if counts(plan) == before:
            return


def in_hand(plan: Plan, position: int = 1) -> Any:
    """Claim a step of a plan, as a worker does."""
    held = by_hand.claim(plan.steps.get(position=position).pk)
    assert held is not None
    return held


def looked_at(held: Any) -> Any:
    """The target, found as it should be."""
    found = by_hand.look(held.step)
    assert isinstance(found, preconditions.MayProceed), found
    return found
