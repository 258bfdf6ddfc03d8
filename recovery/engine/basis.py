"""The basis of a plan: which effects stand in a run, and of what nobody knows.

A run's revision rises also for what does not matter to a plan (that it has stopped because it was
told to, that a person has commented). This digest only changes where the plan would be another one.
"""

from connectors.canonical import digest
from ledger.models import Action, ActionState, Effect, Run

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
