"""An effect in one line, wherever the effects of a case are listed."""

from typing import Any

from ledger.models import Action, ActionState, Compensated, Effect
from workspaces import look

IN_DOUBT = frozenset({ActionState.UNKNOWN, ActionState.RUNNING})
UNDONE = {
    Compensated.NONE: "stands",
    Compensated.PARTLY: "undone in part",
    Compensated.COMPENSATED: "undone",
    Compensated.CORRECTED: "corrected",
}


def line(action: Action, effect: Effect) -> dict[str, Any]:
    """What was changed, where, until when it can be undone, and whether it stands.

    Of an action whose outcome is unknown nothing is claimed.
    """
    in_doubt = action.state in IN_DOUBT
    did = "may have changed it" if in_doubt else "changed it"
    return {
        "summary": effect.summary or f"{action.tool} {did}",
        "target": f"{effect.target_type} {effect.target_id}",
        "reversibility": effect.reversibility,
        "until": f"undo {look.ago(effect.undo_until)}" if effect.undo_until else "",
        "standing": _standing(action, effect),
    }


def _standing(action: Action, effect: Effect) -> str:
    if effect.compensated != Compensated.NONE or action.state == ActionState.SUCCEEDED:
        return UNDONE[Compensated(effect.compensated)]
    return "nobody knows whether it stands" if action.state in IN_DOUBT else "did not happen"
