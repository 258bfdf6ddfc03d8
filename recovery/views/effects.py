"""An effect in one line, wherever the effects of a case are listed."""

from typing import Any

from ledger.models import Action, ActionState, Compensated, Effect
from workspaces import look

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
    is_known = action.state == ActionState.SUCCEEDED
    did = "changed it" if is_known else "may have changed it"
    in_doubt = effect.compensated == Compensated.NONE and not is_known
    return {
        "summary": effect.summary or f"{action.tool} {did}",
        "target": f"{effect.target_type} {effect.target_id}",
        "reversibility": effect.reversibility,
        "until": f"undo {look.ago(effect.undo_until)}" if effect.undo_until else "",
        "standing": "nobody knows whether it stands"
        if in_doubt
        else UNDONE[Compensated(effect.compensated)],
    }
