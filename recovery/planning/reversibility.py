"""How far a step takes an effect back: never further than the weakest of all that speak of it."""

from __future__ import annotations

from amends.protocol.masking import holds_mask
from approvals.policy import Twin
from connectors.contract import Operation, Recorded
from ledger.models import Effect, Reversibility

STRENGTH = {
    Reversibility.EXACT: 0,
    Reversibility.COMPENSABLE: 1,
    Reversibility.UNKNOWN: 2,
    Reversibility.IRREVERSIBLE: 3,
}


def weaker(effect: Effect, operation: Operation, twin: Twin | None) -> str:
    """The weaker of what the twin can do and what the wire said; unsaid on the wire is no word.

    A masked field cannot be restored from the ledger, so such an effect is never exact.
    """
    found = [Reversibility(operation.reversibility)]
    if twin is not None and twin.reversibility:
        found.append(Reversibility(twin.reversibility))
    if effect.reversibility != Reversibility.UNKNOWN:
        found.append(Reversibility(effect.reversibility))
    if holds_mask(effect.before):
        found.append(Reversibility.COMPENSABLE)
    return str(max(found, key=STRENGTH.__getitem__))


def keeps_some(before: Recorded, after: Recorded, written: Recorded) -> bool:
    """Whether something that the agent changed is not put back: somebody has changed it since, and
    that is kept.
    """
    if not (isinstance(before, dict) and isinstance(after, dict) and isinstance(written, dict)):
        return False
    return any(
        before[name] != after.get(name) and written.get(name) != before[name] for name in before
    )
