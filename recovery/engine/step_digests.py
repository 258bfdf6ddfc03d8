"""What binds a step to what people approved: the facts of its call, and how the policy judges it.

Drafting and the intent's transaction both come through here, so that a digest can only differ
because something did.
"""

from collections.abc import Sequence
from typing import Any

from amends.protocol.vocabulary import ActionClass
from approvals import digests
from approvals.digests import CallFacts
from approvals.policy import ToolCall
from connectors import calls
from connectors.canonical import digest
from connectors.contract import Operation
from connectors.models import Connection
from connectors.models.connections import digest_of_settings
from ledger.models import Action, ActionState, Effect, Run
from recovery.models import Plan, Step

# The basis of a plan: which effects stand in a run, and of what nobody knows.
#
# A run's revision rises also for what does not matter to a plan (that it has stopped because it
# was told to, that a person has commented). This digest only changes where the plan would be
# another one.

DOUBTFUL = (ActionState.SUCCEEDED, ActionState.UNKNOWN)


def of_run(run: Run) -> str:
    """SHA-256 over the doubtful actions and the effects of `run` as they stand now."""
    actions = Action.objects.filter(run=run, state__in=DOUBTFUL).order_by("action")
    effects = Effect.objects.filter(action__run=run, action__state__in=DOUBTFUL).order_by(
        "action__action", "position"
    )
    return digest(
        {
            "unknown": [
                one.action for one in actions.only("action", "state") if one.state == "unknown"
            ],
            "effects": [
                list(one)
                for one in effects.values_list(
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


def of_undo(
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


def deed_of(step: Step, connection: Connection, operation: Operation) -> ToolCall:
    """A step is judged by the same policy, as an action of the tool `connection.operation`."""
    return ToolCall(
        tool=f"{connection.name}.{step.operation}",
        args=step.args,
        targets=[{"type": step.target_type, "id": step.target_id}],
        action_class=CLASSES[operation.reversibility],
        is_step=True,
    )
