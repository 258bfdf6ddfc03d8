"""Intents: the row that commits before the first byte leaves.

In one transaction everything that was approved is held once more against what would be sent now,
and the lease must outlast the call. Without a committed intent nothing is ever sent.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from approvals import digests, grants, policy
from approvals.models import Approval, PolicyVersion
from connectors import calls
from connectors.contract import Observation, Operation, Refused
from connectors.models import Connection
from recovery.engine import claims, faults, preconditions, step_digests, steps
from recovery.engine.claims import ClaimedStep
from recovery.engine.reading import copied
from recovery.engine.sql import LEASE_OUTLASTS, PLAN_RUNS, Sql, ask
from recovery.models import Step, StepAttempt, StepState


@dataclass(frozen=True)
class Void:
    """Why what was approved is not what would run; `diff` says it field by field."""

    why: str
    diff: list[dict[str, Any]]


@dataclass(frozen=True)
class Intent:
    """A committed intent: the try, and the step as it goes out."""

    step: Step
    attempt: StepAttempt


@dataclass(frozen=True)
class Checked:
    """A step in hand that was looked at: what it needs to be sent."""

    held: ClaimedStep
    operation: Operation
    observation: Observation | None


@dataclass(frozen=True)
class Intended:
    """By step: the intents, and the steps that were no longer ours, or not for long enough. Those
    in neither were given up, and they say why.
    """

    intents: dict[int, Intent]
    refused: set[int]


def intend_all(checked: Sequence[Checked]) -> Intended:
    """Write the intents of steps of one workspace; nothing may be sent before the commit."""
    mine = {one.held.step.pk: copied(one.held.step) for one in checked}
    fresh = read_anew(list(mine.values()))
    sound = [one for one in checked if _is_sound(mine[one.held.step.pk], one.operation, fresh)]
    intents = _write([(mine[one.held.step.pk], one.operation, one.observation) for one in sound])
    refused = {one.held.step.pk for one in sound} - intents.keys()
    for _ in intents:
        faults.point("intending")
    return Intended(intents, refused)


def _is_sound(step: Step, operation: Operation, fresh: "dict[int, Fresh]") -> bool:
    """Whether it is what was approved, may still be tried under its key, and nothing is paused; if
    not, it is given up.
    """
    beside = fresh[step.pk]
    pause = claims.pause_of(step) if beside.paused else None
    if pause is not None:
        steps.release(step, claims.SECONDS, note=f"Paused: {pause.reason}")
        return False
    void = why_void(step, operation, beside) or _tried_before(step, operation)
    if void is not None:
        claims.needs_human(step, void.why, evidence={"diff": void.diff})
    return void is None


FRESH_SQL = """
SELECT s.id, s.connection_digest, s.connector_version, s.operation, s.args, s.target_type,
       s.target_id, s.expected, s.fingerprint, s.post_condition, s.digest, s.key,
       p.policy_digest, p.approval_id, c.name, c.connector, c.settings, c.disabled_at,
       EXISTS (SELECT FROM approvals_pause WHERE workspace_id = s.workspace_id
               AND lifted_at IS NULL),
       (SELECT v.digest FROM approvals_policyversion v
        WHERE v.workspace_id = s.workspace_id AND v.active)
FROM recovery_step s JOIN recovery_plan p ON p.id = s.plan_id
     JOIN connectors_connection c ON c.id = s.connection_id
WHERE s.id = ANY(%s::bigint[])
"""
FROZEN = (
    "connection_digest", "connector_version", "operation", "args", "target_type", "target_id",
    "expected", "fingerprint", "post_condition", "digest", "key",
)  # fmt: skip
JSON_AT = frozenset({"args", "expected", "post_condition", "settings"})


@dataclass(frozen=True)
class Fresh:
    """What stands beside the step at the moment of the intent."""

    paused: bool
    policy_digest: str | None


def read_anew(found: Sequence[Step]) -> dict[int, Fresh]:
    """Bring steps, their plans and connections to what the database says now, in one query."""
    rows = {pk: row for pk, *row in ask(FRESH_SQL, [[step.pk for step in found]])}
    beside: dict[int, Connection] = {}
    fresh = {}
    for step in found:
        row = rows[step.pk]
        _renew(step, row)
        known = beside.get(step.connection_id)
        step.connection = known or _connection(step, row)
        beside[step.connection_id] = step.connection
        fresh[step.pk] = Fresh(*row[17:])
    return fresh


def _renew(step: Step, row: Sequence[Any]) -> None:
    for name, value in zip(FROZEN, row, strict=False):
        if name not in JSON_AT or value is None or step.texts.get(name) != value:
            setattr(step, name, _decoded(name, value))
    step.plan = copied(step.plan)
    step.plan.policy_digest, step.plan.approval_id = row[11:13]


def _connection(step: Step, row: Sequence[Any]) -> Connection:
    """The step's connection as it is now; the steps of one statement share it."""
    found = copied(step.connection)
    found.name, found.connector = row[13:15]
    found.settings, found.disabled_at = _decoded("settings", row[15]), row[16]
    return found


def _decoded(name: str, value: Any) -> Any:
    """Django leaves jsonb as text, so that each field may decode it in its own way."""
    return json.loads(value) if name in JSON_AT and isinstance(value, str) else value


Sending = tuple[Step, Operation, Observation | None]


def _write(sending: Sequence[Sending]) -> dict[int, Intent]:
    """Move the steps, count the tries and tell of both; by step, those that were still ours. The
    steps are copies, which count for nothing where they were not.
    """
    needed = [operation.limit_seconds + calls.GRACE_SECONDS for _, operation, _ in sending]
    observed = {step.pk: observation for step, _, observation in sending}
    for step, _, _ in sending:
        step.tries += 1
        step.probes = 0  # reads that failed before are no probes of this try
    moved = steps.move_all(
        [step for step, _, _ in sending],
        StepState.INTENDED,
        where=[PLAN_RUNS, LEASE_OUTLASTS],
        each={"seconds": needed},
        alike={"tries": Sql("tries + 1"), "probes": Sql("0"), "note": Sql("''")},
        tell=lambda step: [steps.saying(step, step.state, _said(step, observed[step.pk]))],
    )
    if not moved:
        return {}
    tries = ask(
        ATTEMPTS_SQL,
        [
            [step.pk for step, _ in moved],
            [step.fence for step, _ in moved],
            [step.key for step, _ in moved],
        ],
    )
    steps.note(moved)
    written = {row[0]: row[1:] for row in tries}
    return {step.pk: Intent(step, _attempt(step, *written[step.pk])) for step, _ in moved}


def _said(step: Step, observation: Observation | None) -> dict[str, Any]:
    return {
        "was": step.was,
        "note": "",
        "args": step.args,
        "sent_under": step.key,
        "before": [observation.state] if observation else None,
        "fingerprint": observation.fingerprint if observation else "",
    }


def _attempt(step: Step, pk: int, number: int, moment: datetime) -> StepAttempt:
    return StepAttempt(
        pk=pk, step=step, number=number, fence=step.fence, key=step.key, intended_at=moment
    )


ATTEMPTS_SQL = """
INSERT INTO recovery_stepattempt (step_id, number, fence, key, intended_at, outcome, detail)
SELECT u.id, coalesce((SELECT max(number) FROM recovery_stepattempt t WHERE t.step_id = u.id), 0)
    + 1, u.fence, u.key, clock_timestamp(), '', ''
FROM unnest(%s::bigint[], %s::bigint[], %s::text[]) AS u (id, fence, key)
RETURNING step_id, id, number, intended_at
"""


def why_void(step: Step, operation: Operation, fresh: Fresh) -> Void | None:
    """What differs from what was approved: the call, the connector, the rules or the people."""
    return _call_changed(step) or _approval_lost(step) or _rules_stricter(step, operation, fresh)


def _tried_before(step: Step, operation: Operation) -> Void | None:
    """Asked where the try is written: the provider's memory of the first one may have ended while
    the target was read."""
    why = preconditions.earlier_try(step, operation)
    return Void(why, []) if why else None


def _call_changed(step: Step) -> Void | None:
    try:
        facts = step_digests.facts_of(step, step.connection)
    except Refused as refused:
        return Void(str(refused), [])
    if step.connection.is_disabled:
        return Void(f"The connection {step.connection.name} is disabled.", [])
    if digests.call_digest(facts) == step.digest:
        return None
    return Void("This is not the call that was approved.", _diff(step, facts))


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


def _approval_lost(step: Step) -> Void | None:
    if step.plan.approval_id is None:
        return None
    why = grants.lost(step.plan.approval_id, step.digest)
    return Void(why, []) if why else None


def _rules_stricter(step: Step, operation: Operation, fresh: Fresh) -> Void | None:
    """The policy is evaluated again, but only where it is another one than at the drafting."""
    if (fresh.policy_digest or policy.default().digest) == step.plan.policy_digest:
        return None
    now = policy.active(step.workspace_id)
    if now.digest == step.plan.policy_digest:
        return None
    deed = step_digests.deed_of(step, step.connection, operation)
    judgement = policy.judge(now, deed)
    then = _policy_of(step)
    asked = None if then is None else policy.judge(then, deed)
    if judgement.approval == "AUTO":
        return None
    if asked is not None and not (
        judgement.stricter_than(asked) or _no_longer_own(step, judgement)
    ):
        return None
    why = f"The policy has become stricter: {judgement.why}"
    return Void(why, [asdict(one) for one in digests.differences(asked, judgement)])


def _no_longer_own(step: Step, judgement: policy.PolicyDecision) -> bool:
    """Whether somebody approved their own, which the policy does not let them any more."""
    if judgement.self_approval or step.plan.approval_id is None:
        return False
    return grants.rests_on_own(Approval.objects.get(pk=step.plan.approval_id))


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
