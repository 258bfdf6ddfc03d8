"""An effect in one line, wherever the effects of a case are listed."""

from typing import Any

from django.utils import timezone

from ledger.models import Action, ActionState, Compensated, Effect, Reversibility
from workspaces import look

IN_DOUBT = frozenset({ActionState.UNKNOWN, ActionState.RUNNING})
UNDONE = {
    Compensated.NONE: "stands",
    Compensated.PARTLY: "undone in part",
    Compensated.REPAIRED: "record repaired; what it did outside cannot be undone",
    Compensated.COMPENSATED: "undone",
    Compensated.CORRECTED: "corrected",
}
OVER = frozenset({Compensated.COMPENSATED, Compensated.CORRECTED})


def line(action: Action, effect: Effect | None, *, irreversible: bool = False) -> dict[str, Any]:
    """What was changed, where, until when it can be undone, and whether it stands.

    Of an action whose outcome is unknown nothing is claimed; `effect` is None of one that happened
    and of which nobody told what it did. `irreversible` is what catalogue or twin say of it.
    """
    if effect is None:
        return {
            "summary": f"{action.tool_words} happened",
            "target": "nobody told what it did",
            "reversibility": Reversibility.IRREVERSIBLE,
            "until": "",
            "standing": "cannot be undone",
            "is_over": False,
        }
    in_doubt = action.state in IN_DOUBT
    did = "may have changed it" if in_doubt else "changed it"
    return {
        "summary": look.quoted(effect.summary) if effect.summary else f"{action.tool_words} {did}",
        "target": f"{look.named(effect.target_type)} {look.named(effect.target_id)}",
        "reversibility": Reversibility.IRREVERSIBLE if irreversible else effect.reversibility,
        "until": _until(effect),
        "standing": _standing(action, effect, irreversible=irreversible),
        "is_over": effect.compensated in OVER,
    }


def _until(effect: Effect) -> str:
    """Until when it can be undone; of what is undone nobody asks."""
    if effect.undo_until is None or effect.compensated in OVER:
        return ""
    closes = "closes" if effect.undo_until > timezone.now() else "closed"
    return f"undo {closes} {look.ago(effect.undo_until)}"


def _standing(action: Action, effect: Effect, *, irreversible: bool) -> str:
    if effect.compensated != Compensated.NONE or action.state == ActionState.SUCCEEDED:
        undone = UNDONE[Compensated(effect.compensated)]
        if irreversible and effect.compensated == Compensated.COMPENSATED:
            return f"{undone} as far as possible"
        return undone
    return "nobody knows whether it stands" if action.state in IN_DOUBT else "did not happen"
