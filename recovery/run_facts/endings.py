"""Which calls of a run are told of only after its end."""

from collections.abc import Collection

from amends.protocol.vocabulary import EventType
from ledger.fold.runs import ENDINGS
from ledger.models import Action, Event, Run


def after_the_end(run: Run, actions: Collection[Action]) -> frozenset[int]:
    """Ids of those of these actions whose outcome was told after the end of their run.

    What a spool sends at once is received at one moment; there the order of the ledger says which
    came first. Asked of the ledger only then, and only of successes.
    """
    ended = run.ended_at
    if ended is None:
        return frozenset()
    late = {one.pk for one in actions if one.finished_at and one.finished_at > ended}
    at_once = {one.action: one.pk for one in actions if one.finished_at == ended}
    if not at_once:
        return frozenset(late)
    came = Event.objects.filter(
        workspace=run.workspace_id, run=run.run, received_at=ended, action__in=["", *at_once]
    )
    is_over, told, after = False, set[str](), set[int]()
    for kind, action in came.order_by("place").values_list("type", "action"):
        if kind == EventType.RUN_RESUMED:  # the end that counts is still to come
            is_over, after = False, set()
        is_over = is_over or kind in ENDINGS
        if kind == EventType.ACTION_SUCCEEDED and action not in told:
            told.add(action)
            after |= {at_once[action]} if is_over else set()
    return frozenset(late | after)
