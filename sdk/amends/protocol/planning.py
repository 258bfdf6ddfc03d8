"""What a plan is made of before anything is looked at: which effect is undone first, and by what.

The desk plans by these, and `amends.testing` says by them what it would plan for a run of a test,
so that neither has a rule of its own. What needs the desk is not here: conditions and arguments of
the policy (CEL), connections and what they preview, and whether a target has drifted.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from amends.protocol.vocabulary import glob_matches, glob_specificity

A = TypeVar("A")
E = TypeVar("E")
T = TypeVar("T")


def newest_first(
    actions: Sequence[A], effects_of: Callable[[A], Iterable[E]], position: Callable[[E], int]
) -> Iterator[tuple[A, E]]:
    """The effects of actions, which come in the order of their run, as they are undone."""
    for action in reversed(actions):
        for effect in sorted(effects_of(action), key=position, reverse=True):
            yield action, effect


def chosen_twin(
    twins: Iterable[T], tool: str, target_type: str, named: Callable[[T], tuple[str, str]]
) -> T | None:
    """How effects of `tool` on targets of this type are undone; the most specific wins. `named`
    gives of a twin its glob over tools and its type of target, empty where it serves every type.
    """

    def rank(twin: T) -> tuple[Any, ...]:
        glob, of_type = named(twin)
        return glob_specificity(glob), bool(of_type), glob

    fitting = [
        twin
        for twin in twins
        if named(twin)[1] in {"", target_type} and glob_matches(named(twin)[0], tool)
    ]
    return max(fitting, key=rank, default=None)


class SuggestedUndo(NamedTuple):
    """A compensation that an agent names itself."""

    connection: str
    operation: str
    args: dict[str, Any]


def suggested_undo(compensation: Any) -> SuggestedUndo | None:
    """What an agent said of how its call is undone; None where it said nothing that can be done."""
    if not isinstance(compensation, dict):
        return None
    connection, operation = compensation.get("connection"), compensation.get("operation")
    if not connection or not operation:
        return None
    args = compensation.get("args")
    return SuggestedUndo(
        str(connection), str(operation), dict(args) if isinstance(args, dict) else {}
    )
