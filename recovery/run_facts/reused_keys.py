"""Calls under a key that another run of the same agent has used, too. At the gate the second gets
the first one's answer; whoever made both while they could not ask it has two effects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from amends.protocol.masking import holds_mask
from ledger.fold.actions import CHANGED_NOTHING
from ledger.models import Action, ActionState, Compensated
from ledger.schemas import IMPORTED

MAY_HAVE_HAPPENED = (ActionState.RUNNING, ActionState.UNKNOWN, ActionState.SUCCEEDED)


def used_elsewhere(
    actions: Mapping[int, Sequence[Action]],
    past_the_gate: Collection[int],
    imported: Collection[tuple[int, str]],
) -> dict[int, Action]:
    """For each action past the gate the first one under its key in another run that may have
    happened and that nobody has undone. What was imported is often told of twice.
    """
    told = [
        one
        for one in chain.from_iterable(actions.values())
        if one.pk in past_the_gate and one.agent_id and one.key and not holds_mask(one.key)
        and (one.run_id, one.action) not in imported
    ]  # fmt: skip
    if not told:
        return {}
    others = Action.objects.filter(
        agent__in={one.agent_id for one in told}, key__in={one.key for one in told},
        state__in=MAY_HAVE_HAPPENED, compensated__in=(Compensated.NONE, Compensated.PARTLY),
    ).exclude(key="").exclude(run__flags__contains=[IMPORTED])  # fmt: skip
    under: dict[tuple[int | None, str], list[Action]] = defaultdict(list)
    for other in others.select_related("run").order_by("pk"):
        if CHANGED_NOTHING not in other.flags:
            under[other.agent_id, other.key].append(other)
    found: dict[int, Action] = {}
    for one in told:
        elsewhere = (it for it in under[one.agent_id, one.key] if it.run_id != one.run_id)
        if first := next(elsewhere, None):
            found[one.pk] = first
    return found
