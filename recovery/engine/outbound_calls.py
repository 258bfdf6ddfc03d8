"""A step's calls to its connector, each with everything that the step knows of itself."""

import json
from datetime import datetime
from typing import Any

from msgspec import UNSET

from approvals.policy import PolicyUnreadable, active_policies
from connectors import calls
from connectors.call_pool import OutboundCall
from connectors.contract import (
    Answer,
    Check,
    FieldDiff,
    Finding,
    Observation,
    Operation,
    Recorded,
    Refused,
    Target,
)
from ledger import snapshots
from ledger.models import Effect
from recovery.engine import approved_calls
from recovery.models import Step

# Recorded states as connectors want them: the fields, None for "not there", UNSET for unsaid.


class SnapshotGone(Exception):
    """We stopped because a snapshot was kept as a blob that is erased or never came."""


def before_of(effect: Effect) -> Recorded:
    """What the target looked like before the agent's act."""
    return recorded(effect.workspace_id, effect.before) if effect.has_before else UNSET


def after_of(effect: Effect) -> Recorded:
    """What the agent left."""
    return recorded(effect.workspace_id, effect.after) if effect.has_after else UNSET


def restored_by(step: Step) -> Recorded:
    """What the step is to restore, as it was drafted: a later change that is kept is part of it,
    and whatever is told of the agent's act afterwards is not. Raises SnapshotGone.
    """
    if step.before is None:  # drafted by an older version
        return before_of(step.effect)
    return recorded(step.workspace_id, step.before[0]) if step.before else UNSET


def expected_of(step: Step) -> Recorded:
    """The state in which the step expects its target; no fingerprint, nothing recorded."""
    return step.expected if step.fingerprint else UNSET


def recorded(workspace_id: int, value: Any) -> Any:
    """The snapshot itself, fetched where it is kept as a blob; raises SnapshotGone."""
    if not snapshots.is_ref(value):
        return value
    digest = snapshots.digest_of(value)
    content = snapshots.content_of(workspace_id, digest)
    if content is None:
        raise SnapshotGone(f"The snapshot {digest[:12]}… is not kept here any more.")
    return json.loads(content)


def target_of(step: Step) -> Target:
    return Target(step.target_type, step.target_id)


def operation_of(step: Step) -> Operation:
    """What the connector says of the step's operation; raises Refused where it is gone."""
    return calls.operation_of(step.connection, step.operation)


def observe(step: Step) -> Observation:
    """Read the target for people; raises CannotRead, or Refused where its connection leads
    elsewhere than was approved.
    """
    if elsewhere := approved_calls.reads_elsewhere(step):
        raise Refused(elsewhere.why)
    return calls.observe(*_call(step), **_facts(step))


def a_look_tells(step: Step, operation: Operation) -> bool:
    """Whether a look at the target would show that the step was done: it says what is so then."""
    return operation.observes and bool(step.post_condition)


def satisfied(step: Step, observation: Observation) -> bool:
    return calls.satisfied(*_call(step), observation, **_facts(step))


def drifted(step: Step, observation: Observation) -> list[FieldDiff]:
    return calls.drifted(*_call(step), observation, **_facts(step))


def probe(step: Step, sent_at: datetime) -> Finding:
    """Look for the effect of an earlier try; raises SnapshotGone, and nothing else."""
    return calls.probe(*_call(step), **_facts(step), sent_at=sent_at)


def verify(step: Step) -> Check:
    """Read back; raises CannotRead."""
    return calls.verify(*_call(step), **_facts(step))


# Calls made ready, for a batch that has many under way.


def observing(step: Step) -> OutboundCall[Observation]:
    """Raises SnapshotGone."""
    return calls.observing(*_call(step), **_facts(step))


def applying(
    step: Step, observation: Observation | None, sent_at: datetime
) -> OutboundCall[Answer]:
    known = _facts(step) | _limit(step)
    return calls.applying(*_call(step), **known, observed=observation, sent_at=sent_at)


def verifying(step: Step) -> OutboundCall[Check]:
    return calls.verifying(*_call(step), **_facts(step))


def _call(step: Step) -> tuple[Any, str, dict[str, Any], Target]:
    return step.connection, step.operation, step.args, target_of(step)


def _limit(step: Step) -> Any:
    """`unwind.timeout` of the policy under which the plan was drafted; the lease has room for it,
    for it only shortens the operation's own limit.
    """
    try:
        policy = active_policies.of_digest(step.workspace_id, step.plan.policy_digest)
    except PolicyUnreadable:  # the operation's own limit is the bound then, as it is without a say
        policy = None
    seconds = policy.call_timeout_seconds if policy else None
    return {"limit_seconds": float(seconds)} if seconds else {}


def _facts(step: Step) -> Any:
    return {
        "key": step.key,
        "before": restored_by(step),
        "expected": expected_of(step),
        "must_be_true": step.post_condition,
        "reason": step.plan.reason,
    }
