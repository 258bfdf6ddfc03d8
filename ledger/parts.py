"""Parts: what of an erasure is forgotten in one transaction.

Many small runs are one part; one with many actions or effects is a part by itself. Whatever has
more events or rows than a part may have is come back to until it is over: its runs count as
forgotten from the first of these transactions on.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.models import Action, Effect, Erasure, Run
from workspaces import erasure_registry
from workspaces.erasure_registry import Scope
from workspaces.models import Workspace

RUNS_MAX = 10_000
"""So many of a person are named at a time; the work itself goes on until nothing is left."""

RUNS_AT_A_TIME = 200
EVENTS_OF_PART = ROWS_OF_PART = 10_000
"""A part has at most so many events, and rows of a table: a second or two of the owner's locks. A
run that has more is forgotten in several parts, its events first.
"""

SIZES = ("pk", "run", "action_count", "effect_count")


@dataclass(frozen=True)
class Part:
    """What is forgotten in one transaction, and which named runs are left after it."""

    scope: Scope
    left: list[str]
    is_last: bool


def next_part(erasure: Erasure) -> Part | None:
    """Runs first, then single actions of others; a small erasure is one part.

    No index leads from a person to their runs: they were named when it was asked for, and only who
    came since is looked for at the end.
    """
    workspace, person = erasure.workspace, erasure.person
    mine = Run.objects.filter(workspace=workspace)
    whole, left, is_large = _first_named(workspace, erasure.named)
    if person and not left:
        since = mine.filter(customer=person).exclude(pk__in=whole).order_by("pk")
        left = list(since.values_list("run", flat=True)[:RUNS_MAX])
    whole = erasure_registry.with_what_belongs(workspace, sorted(whole))
    actions = actions_on(workspace, person, whole) if person and not left and not is_large else []
    if not whole and not actions and not left:
        return None
    is_last = not left and len(actions) < RUNS_AT_A_TIME and not (person and is_large)
    actions = actions[:RUNS_AT_A_TIME]
    touched = sorted(set(Action.objects.filter(pk__in=actions).values_list("run", flat=True)))
    scope = scope_of(workspace, whole, actions=actions, person=person, touched=touched)
    return Part(scope, left, is_last)


def _first_named(workspace: Workspace, named: list[str]) -> tuple[list[int], list[str], bool]:
    """The runs of the next part, the names left after it, and whether it is one large run: that
    stands alone, for it takes several parts.
    """
    some = Run.objects.filter(workspace=workspace, run__in=named[:RUNS_AT_A_TIME])
    known = {name: (pk, max(a, e)) for pk, name, a, e in some.values_list(*SIZES)}
    whole: list[int] = []
    rows = 0
    for place, name in enumerate(named[:RUNS_AT_A_TIME]):
        pk, more = known.get(name, (None, 0))
        if whole and rows + more > ROWS_OF_PART:
            return whole, named[place:], False
        rows += more
        whole += [pk] if pk else []
    return whole, named[RUNS_AT_A_TIME:], rows > ROWS_OF_PART


def actions_on(workspace: Workspace, person: str, runs: Collection[int] = ()) -> list[int]:
    affecting = Effect.objects.filter(workspace=workspace, affects__id=person)
    others = affecting.exclude(action__run__in=runs)
    return sorted(set(others.values_list("action", flat=True)[:RUNS_MAX]))


def scope_of(
    workspace: Workspace,
    runs: Sequence[int],
    *,
    actions: Sequence[int] = (),
    person: str = "",
    touched: Sequence[int] = (),
) -> Scope:
    names = Run.objects.filter(pk__in=runs).values_list("run", flat=True)
    return Scope(
        workspace, tuple(runs), tuple(names), tuple(actions), person, touched=tuple(touched)
    )


def pairs_of(scope: Scope) -> Any:
    return Action.objects.filter(pk__in=scope.actions).values_list("run__run", "action")
