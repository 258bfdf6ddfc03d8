"""What binds a step to what people approved: the facts of its call, and whether they still hold.

Drafting and the intent's transaction both come through here, so that a digest can only differ
because something did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from django.db.models import F

from amends.protocol.vocabulary import ActionClass
from approvals import digests, grants, policy
from approvals.digests import ArgumentChange, CallFacts
from approvals.models import Approval, PolicyVersion
from approvals.policy import ToolCall, active_policies
from connectors import accounts, calls
from connectors.accounts import PURPOSES
from connectors.contract import Operation, Refused
from connectors.models import Connection, digest_of_settings
from ledger.canonical import digest
from ledger.models import Action, ActionState, Compensated, Effect, Run
from recovery.engine.queries import IntentContext
from recovery.models import Plan, Step

# The basis of a plan: which effects stand in a run, and of what nobody knows.
#
# A run's revision rises also for what does not matter to a plan (that it has stopped because it
# was told to, that a person has commented). This digest only changes where the plan would be
# another one.

DOUBTFUL = (ActionState.SUCCEEDED, ActionState.UNKNOWN)
EFFECTS_MAX = 10_000
"""Of one run; of one that has more, so many of the newest that stand."""


def basis_of(run: Run, undoes: Iterable[int] = ()) -> str:
    """SHA-256 over the doubtful actions and the effects of `run` as they stand now; of a long run
    over the newest that stand, and those that a plan `undoes`: what has a way back comes first.
    """
    unknown = Action.objects.filter(run=run, state=ActionState.UNKNOWN).order_by("action")
    effects = Effect.objects.filter(action__run=run, action__state__in=DOUBTFUL)
    if run.effect_count > EFFECTS_MAX:
        standing = effects.filter(compensated=Compensated.NONE, withdrawn=False)
        newest = (F("action__n").desc(nulls_first=True), F("action__first_place").desc())
        chosen = standing.order_by(*newest, "-position").values_list("pk", flat=True)
        effects = effects.filter(pk__in=[*chosen[:EFFECTS_MAX], *undoes])
    return digest(
        {
            "unknown": list(unknown.values_list("action", flat=True)[:EFFECTS_MAX]),
            "effects": [
                list(one)
                for one in effects.order_by("action__action", "position").values_list(
                    "action__action",
                    "position",
                    "target_type",
                    "target_id",
                    "before",
                    "after",
                    "has_before",
                    "has_after",
                    "compensated",
                    "withdrawn",
                )
            ],
        }
    )


# The idempotency key of an undo.
#
# It is a pure function of what is undone and how: never of a primary key, a plan or a step, so
# that it survives a new plan, and a restored database that has lost the row of the last try. The
# same undo has the same key wherever it is made; only a named person who authorises one more try
# raises the generation.

PREFIX = "amends-"


def key_of_undo(
    *,
    workspace: str,
    connection: str,
    operation: str,
    run: str,
    action: str,
    position: int,
    args: dict[str, Any],
    generation: int = 1,
) -> str:
    """The key under which this effect is undone; 71 characters."""
    return PREFIX + digest(
        {
            "workspace": workspace,
            "connection": connection,
            "operation": operation,
            "effect": [run, action, position],
            "args": args,
            "generation": generation,
        }
    )


CLASSES = {
    "exact": ActionClass.EXTERNAL_REVERSIBLE,
    "compensable": ActionClass.EXTERNAL_REVERSIBLE,
    "irreversible": ActionClass.EXTERNAL_IRREVERSIBLE,
}


class Lead(NamedTuple):
    """Where calls over a connection go, and by what: the same of all steps of a draft."""

    settings_digest: str
    connector_version: str
    card: Sequence[tuple[str, str]] = ()
    """How a card says which system that is, and whose account."""


def lead_of(connection: Connection) -> Lead:
    """As it is now, with its card; raises Refused."""
    return _bare(connection)._replace(card=accounts.on_card(connection, []))


def _bare(connection: Connection) -> Lead:
    version = calls.connector_version(connection)
    return Lead(digest_of_settings(connection.connector, connection.settings), version)


def facts_of(step: Step, connection: Connection, lead: Lead | None = None) -> CallFacts:
    """The step's call as it would go out now; raises Refused if its connector is gone.

    Settings and version are those of this moment, everything else is the step's own. The key is
    left out: a named person may raise its generation, and that is a decision of its own.
    """
    lead = lead or _bare(connection)
    return CallFacts(
        connection=connection.name,
        connection_digest=lead.settings_digest,
        connector_version=lead.connector_version,
        operation=step.operation,
        args=step.args,
        fingerprint=step.fingerprint,
        target_type=step.target_type,
        target_id=step.target_id,
        must_be_true=step.post_condition,
    )


def accounts_of(connections: Iterable[Connection]) -> dict[str, dict[str, str]]:
    """By connection, whose accounts steps over it go to: what people approve beside their calls,
    and no part of a call's digest, which older workers hold against what they know. Raises Refused.
    """
    by_name = {one.name: one for one in connections}
    return {name: accounts.accounts(one) for name, one in sorted(by_name.items())}


def plan_digest(plan: Plan, workspace: str, call_digests: Sequence[str]) -> str:
    """The plan's digest over the digests of its calls, in the order of its steps."""
    return digests.plan_digest(workspace, subject_of(plan), call_digests)


def subject_of(plan: Plan) -> dict[str, Any]:
    """What a plan is about, without anything that another database would call otherwise."""
    return {
        "kind": "plan",
        "run": plan.case.run.run,
        "reach": plan.reach.event_id if plan.reach else None,
    }


def tool_call_of(step: Step, connection: Connection, operation: Operation) -> ToolCall:
    """A step is judged by the same policy, as an action of the tool `connection.operation`."""
    return ToolCall(
        tool=f"{connection.name}.{step.operation}",
        args=step.args,
        targets=[{"type": step.target_type, "id": step.target_id}],
        action_class=CLASSES[operation.reversibility],
        is_step=True,
    )


# Whether what was approved is what would run.


@dataclass(frozen=True)
class Mismatch:
    """Why what was approved is not what would run; `diff` says it field by field."""

    why: str
    diff: list[dict[str, Any]] = field(default_factory=list)


def why_void(step: Step, operation: Operation, fresh: IntentContext) -> Mismatch | None:
    """What differs from what was approved: the call, the connector, the rules or the people."""
    return (
        _call_changed(step)
        or _approval_lost(step, operation, fresh)
        or _rules_stricter(step, operation, fresh)
    )


def _call_changed(step: Step) -> Mismatch | None:
    try:
        facts = facts_of(step, step.connection)
    except Refused as refused:
        return Mismatch(str(refused))
    if step.connection.is_disabled:
        return Mismatch(f"The connection {step.connection.name} is disabled.")
    if digests.call_digest(facts) == step.digest:
        return _other_account(step, OTHER_ACCOUNT, PURPOSES)
    return Mismatch("This is not the call that was approved.", _diff(step, facts))


ACCOUNT = "connection account to "
OTHER_ACCOUNT = "Its connection opens another account than was approved."


def _other_account(step: Step, why: str, purposes: Sequence[str]) -> Mismatch | None:
    """Whether somebody has entered credentials since that lead into another account."""
    if step.plan.accounts is None:  # drafted by an older version
        return None
    then = step.plan.accounts.get(step.connection.name, {})
    try:
        now = accounts.accounts(step.connection)
    except Refused as refused:
        return Mismatch(str(refused))
    changes = [
        asdict(ArgumentChange(f"{ACCOUNT}{one}", then.get(one), now.get(one)))
        for one in purposes
        if then.get(one) != now.get(one)
    ]
    return Mismatch(why, changes) if changes else None


ELSEWHERE = (
    "Its connection is not what was approved: what is read over it says nothing of the step."
)


def reads_elsewhere(step: Step) -> Mismatch | None:
    """How the step's connection differs from what was approved: it may lead to another system, and
    what is read there says nothing of what was done, or was to be done, in this one.
    """
    connection = step.connection
    try:
        settings = digest_of_settings(connection.connector, connection.settings)
        version = calls.connector_version(connection)
        is_alike = accounts.reads_alike(step.connector_version, version)
        if settings == step.connection_digest and is_alike:
            return _other_account(step, ELSEWHERE, ["observe"])
        return Mismatch(ELSEWHERE, _diff(step, facts_of(step, connection)))
    except Refused as refused:
        return Mismatch(str(refused))


def _diff(step: Step, facts: digests.CallFacts) -> list[dict[str, Any]]:
    """Against the approval's own copy of the call, or what the step was drafted with."""
    approved: Any = None
    if step.plan.approval_id is not None:
        written = Approval.objects.values_list("calls", flat=True).get(pk=step.plan.approval_id)
        approved = next((one for one in written if one.get("digest") == step.digest), None)
    if approved is None:
        approved = facts.as_json() | {
            "connection_digest": step.connection_digest,
            "connector_version": step.connector_version,
        }
    return [asdict(change) for change in digests.diff(approved, facts)]


def _approval_lost(step: Step, operation: Operation, fresh: IntentContext) -> Mismatch | None:
    if step.plan.approval_id is None:
        return None
    now = active_policies.known(fresh.policy_digest) or policy.active(step.workspace_id)
    signed = False
    if now.asks_for_signatures:
        call = tool_call_of(step, step.connection, operation)
        signed = policy.judge(now, call).signed
    told = step.plan.accounts or {}
    why = grants.lost(step.plan.approval_id, step.digest, accounts=told, signed=signed)
    return Mismatch(why) if why else None


def _rules_stricter(step: Step, operation: Operation, fresh: IntentContext) -> Mismatch | None:
    """The policy is evaluated again, but only where it is another one than at the drafting."""
    if (fresh.policy_digest or policy.default().digest) == step.plan.policy_digest:
        return None
    now = policy.active(step.workspace_id)
    if now.digest == step.plan.policy_digest:
        return None
    call = tool_call_of(step, step.connection, operation)
    judgement = policy.judge(now, call)
    then = _policy_of(step)
    asked = None if then is None else policy.judge(then, call)
    if judgement.approval == "AUTO":
        return None
    if asked is not None and not (
        judgement.stricter_than(asked)
        or _no_longer_own(step, judgement)
        or _no_longer_escalated(step, asked, judgement)
    ):
        return None
    why = f"The policy has become stricter: {judgement.why}"
    return Mismatch(why, [asdict(one) for one in digests.differences(asked, judgement)])


def _no_longer_own(step: Step, judgement: policy.PolicyDecision) -> bool:
    """Whether somebody approved their own, which the policy does not let them any more."""
    if judgement.self_approval or step.plan.approval_id is None:
        return False
    return grants.rests_on_own(Approval.objects.get(pk=step.plan.approval_id))


def _no_longer_escalated(
    step: Step, asked: policy.PolicyDecision, now: policy.PolicyDecision
) -> bool:
    """Whether a team approved that was only asked as nobody had decided in time, and that would not
    be asked about this call any more. A plan's question is that of all its steps: of each of them
    the rules as they were are held against those as they are.
    """
    if step.plan.approval_id is None or asked.escalate in {None, now.escalate}:
        return False
    return grants.rests_on_escalation(
        Approval.objects.get(pk=step.plan.approval_id),
        lambda team, _: asked.escalates(team) in {"", now.escalates(team)},
    )


def _policy_of(step: Step) -> policy.Policy | None:
    """The policy under which the step was drafted, if its version is still kept."""
    digest = step.plan.policy_digest
    if not digest or digest == policy.default().digest:
        return policy.default()
    document = (
        PolicyVersion.objects.filter(workspace_id=step.workspace_id, digest=digest)
        .values_list("document", flat=True)
        .first()
    )
    return None if document is None else policy.load(document)
