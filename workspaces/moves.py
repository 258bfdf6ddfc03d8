"""Moves: the only way a row changes state.

A move is one act with three sides: the row still stands where we last saw it, the step is in the
row's own table of moves, and the ledger tells of it (the caller writes that event in the same
transaction).

A table of moves is data: each state maps to the states that may follow, birth is a move out of
`BORN`, and an end state maps to nothing. The same table yields the check constraint on the pair
(`was`, `state`).
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from django.db.models import CheckConstraint, Model, Q

BORN = ""

Moves = Mapping[str, AbstractSet[str]]


class CannotMove(Exception):
    """We stopped because the row no longer stands where we saw it, or never may go there.

    The two cannot be told apart from inside (a double click is both). Show the row as it now stands
    with status 409; never answer 500.
    """

    def __init__(self, row: Model, to: str, why: str = "") -> None:
        self.row = row
        self.to = to
        self.why = why
        what = f"{type(row).__name__.lower()} {row.pk}"
        super().__init__(why or f"{what} cannot become {to}: it is no longer as it was seen")


def pairs(moves: Moves) -> list[tuple[str, str]]:
    """Every allowed (was, state), sorted, so that migrations stay the same."""
    return sorted((str(was), str(to)) for was, follow in moves.items() for to in follow)


def constraint(moves: Moves, *, name: str) -> CheckConstraint:
    """The table of moves as a check on the columns `was` and `state`."""
    allowed = Q()
    for was, to in pairs(moves):
        allowed |= Q(was=was, state=to)
    return CheckConstraint(condition=allowed, name=name)


def move(row: Any, to: str, *, moves: Moves, where: Q | None = None, **changes: Any) -> None:
    """Compare and swap: `row` goes from the state in which we saw it to `to`, or `CannotMove`.

    `where` adds conditions that the database checks in the same UPDATE (a fence, a lease, an expiry
    by its clock); `changes` are further fields to set, values or expressions. The caller holds the
    transaction and writes the ledger's event in it.
    """
    seen = row.state
    if to not in moves.get(seen, frozenset()):
        raise CannotMove(row, to)
    unchanged = type(row).objects.filter(where or Q(), pk=row.pk, state=seen)
    if not unchanged.update(was=seen, state=to, **changes):
        raise CannotMove(row, to)
    row.was, row.state = seen, to
    for name, value in changes.items():
        if not hasattr(value, "resolve_expression"):
            setattr(row, name, value)


def literals(states: Iterable[str]) -> str:
    """`'claimed', 'intended'`: for statements that are written out, once, as they are imported."""
    return ", ".join(f"'{state!s}'" for state in states)
