"""What binds a step to what people approved: the facts of its call, and how the policy judges it.

Drafting and the intent's transaction both come through here, so that a digest can only differ
because something did.
"""

from collections.abc import Sequence
from typing import Any

from approvals import digests
from approvals.digests import CallFacts
from approvals.policy import Deed
from connectors import calls
from connectors.contract import Operation
from connectors.models import Connection
from connectors.models.connections import digest_of_settings
from recovery.models import Plan, Step

CLASSES = {
    "exact": "external_reversible",
    "compensable": "external_reversible",
    "irreversible": "external_irreversible",
}


def facts_of(step: Step, connection: Connection) -> CallFacts:
    """The step's call as it would go out now; raises Refused if its connector is gone.

    Settings and version are those of this moment, everything else is the step's own. The key is
    left out: a named person may raise its generation, and that is a decision of its own.
    """
    return CallFacts(
        connection=connection.name,
        connection_digest=digest_of_settings(connection.connector, connection.settings),
        connector_version=calls.connector_version(connection),
        operation=step.operation,
        args=step.args,
        fingerprint=step.fingerprint,
        target_type=step.target_type,
        target_id=step.target_id,
        must_be_true=step.post_condition,
    )


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


def deed_of(step: Step, connection: Connection, operation: Operation) -> Deed:
    """A step is judged by the same policy, as an action of the tool `connection.operation`."""
    return Deed(
        tool=f"{connection.name}.{step.operation}",
        args=step.args,
        targets=[{"type": step.target_type, "id": step.target_id}],
        action_class=CLASSES[operation.reversibility],
        is_step=True,
    )
