"""Forgetting: one registry of everything in which the desk holds what was said of people.

Each floor states in a module `personal_data` what it holds, which rows that is for some runs, and
what must stay while somebody works with it. Erasure and retention walk the same registry, and a
test finds a column that nobody spoke of. Rows stay, so that whoever points at them still finds
them; what stood in them is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, ClassVar

from django.apps import apps
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Case, Q, Value, When
from django.utils.module_loading import autodiscover_modules

from workspaces.models import Workspace

ERASED = "⟦erased⟧"


@dataclass(frozen=True)
class Scope:
    """What is to be forgotten: whole runs (their rows and their ids), or single actions of others.

    `person` is the affected person's id where the reason is theirs.
    """

    workspace: Workspace
    runs: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    actions: tuple[int, ...] = ()
    person: str = ""
    touched: tuple[int, ...] = field(default=(), kw_only=True)
    """Runs of others, of which only `actions` are to be forgotten."""
    touched_names: tuple[str, ...] = field(default=(), kw_only=True)


Rows = Callable[[Scope], Q]
Told = tuple[int, datetime, str]
"""Place, moment and id of an event."""
Runs = Callable[[Workspace, Sequence[int]], Iterable[int]]
"""Which of these, or which others on their account: asked of some at a time."""


@dataclass(frozen=True)
class PersonalColumns:
    """Columns that can hold what was said; `values` where the plain replacement does not do."""

    model: str
    columns: tuple[str, ...]
    rows: Rows
    values: Mapping[str, Any]

    def forget(self, scope: Scope, using: str, at_most: int | None = None) -> int:
        """Replace what stands in the rows of the scope; returns how many rows. Where it can stop
        there are `at_most`, and what is replaced already does not count the next time.
        """
        model = apps.get_model(self.model)
        changes = {name: blank(model._meta.get_field(name)) for name in self.columns}
        every = model._default_manager.using(using)
        found = every.filter(self.rows(scope))
        if self.can_stop:
            found = found.filter(self._left(model))[:at_most]
        rows: Any = found.values_list("pk", flat=True)
        if self.can_stop and at_most is not None:
            # Named one by one: of what was written just now there are no statistics, and joined
            # with itself ten thousand rows were each compared with each.
            rows = list(rows)
        changed: int = every.filter(pk__in=rows).update(**changes, **self.values)
        return changed

    @property
    def can_stop(self) -> bool:
        """Whether it can be told of a row that it was replaced already."""
        return all(isinstance(value, bool | str | bytes) for value in self.values.values())

    def _left(self, model: type[models.Model]) -> Q:
        """Rows in which something stands yet."""
        left = Q()
        for name in self.columns:
            left |= ~is_blank(model._meta.get_field(name))
        for name, value in self.values.items():
            left |= ~Q(**{name: value})
        return left


@dataclass(frozen=True)
class PersonalRows:
    """Rows that nobody points at, and that are of use to nobody once they are forgotten."""

    model: str
    rows: Rows
    columns: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    can_stop: ClassVar = True

    def forget(self, scope: Scope, using: str, at_most: int | None = None) -> int:
        """Remove them; returns how many went, `at_most` so many."""
        every = apps.get_model(self.model)._default_manager.using(using)
        some = list(every.filter(self.rows(scope)).values_list("pk", flat=True)[:at_most])
        return int(every.filter(pk__in=some).delete()[0])


OURS = "ids, digests and words of ours"
"""Why a column may be kept: nobody else writes into it."""

_held: list[PersonalColumns | PersonalRows] = []
_kept: dict[tuple[str, str], str] = {}
_rest: list[Runs] = []
_linger: list[Runs] = []
_stay: list[Runs] = []
_belong: list[Callable[[Workspace, Sequence[int]], models.QuerySet[Any]]] = []
_mirror: list[Runs] = []
_naming: list[Callable[[Scope], Iterable[Told]]] = []


def holds(model: str, *columns: str, rows: Rows, **values: Any) -> None:
    """State that these columns can hold what was said of people, and which rows of some runs do."""
    _held.append(PersonalColumns(model, columns, rows, values))


def drops(model: str, *, rows: Rows) -> None:
    """State which rows of some runs go altogether."""
    _held.append(PersonalRows(model, rows))


def keeps(model: str, *columns: str, because: str) -> None:
    """State that these columns are kept although they are texts, and why they may be."""
    _kept.update({(model, column): because for column in columns})


def rests(runs: Runs) -> Runs:
    """Register which runs somebody still works with: nothing of them may be forgotten."""
    _rest.append(runs)
    return runs


def lingers(runs: Runs) -> Runs:
    """Register which runs are kept past their time, unless a person asks to be forgotten."""
    _linger.append(runs)
    return runs


def stays(runs: Runs) -> Runs:
    """Register of which runs the rows stay after everything said in them is forgotten."""
    _stay.append(runs)
    return runs


@cache
def _discovered() -> None:
    autodiscover_modules("personal_data")


def belongs(
    more: Callable[[Workspace, Sequence[int]], models.QuerySet[Any]],
) -> Callable[[Workspace, Sequence[int]], models.QuerySet[Any]]:
    """Register which further runs are forgotten with some runs."""
    _belong.append(more)
    return more


def mirrors(actions: Runs) -> Runs:
    """Register which further actions tell the same as some actions, in runs of their own."""
    _mirror.append(actions)
    return actions


def names(acts: Callable[[Scope], Iterable[Told]]) -> Callable[[Scope], Iterable[Told]]:
    """Register which acts of people name whom a scope forgets, though they are of no run."""
    _naming.append(acts)
    return acts


def acts_naming(scope: Scope) -> list[Told]:
    _discovered()
    return [told for acts in _naming for told in acts(scope)]


def held() -> list[PersonalColumns | PersonalRows]:
    _discovered()
    return _held


def resting(workspace: Workspace, runs: Sequence[int]) -> set[int]:
    """Those of some runs that must not be forgotten now."""
    return _of(_rest, workspace, runs)


def lingering(workspace: Workspace, runs: Sequence[int]) -> set[int]:
    """The same for what only retention heeds."""
    return _of(_linger, workspace, runs)


def staying(workspace: Workspace, runs: Sequence[int]) -> set[int]:
    return _of(_stay, workspace, runs)


def _of(asked: Sequence[Runs], workspace: Workspace, runs: Sequence[int]) -> set[int]:
    _discovered()
    return {run for which in asked for run in which(workspace, runs)} if runs else set()


def with_what_belongs(workspace: Workspace, runs: Sequence[int]) -> list[int]:
    _discovered()
    more = {one["pk"] for find in _belong for one in find(workspace, runs)}
    return sorted({*runs, *more})


def with_mirrors(workspace: Workspace, actions: Sequence[int]) -> list[int]:
    return sorted({*actions, *_of(_mirror, workspace, actions)})


@models.Field.register_lookup
class Among(models.Lookup):
    """`= ANY` of one array: `__in` makes each of five hundred ids a parameter of each of fifty
    statements.
    """

    lookup_name = "among"
    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        column, values = self.process_lhs(compiler, connection)
        return f"{column} = ANY(%s::bigint[])", [*values, self.rhs]


def among(path: str, ids: Sequence[int]) -> Q:
    """Rows of which `path`, a foreign key or `pk`, leads to one of the ids."""
    key = path if path == "pk" else f"{path}__pk"
    return Q(**{f"{key}__among": [*ids]}) if ids else Q(pk__in=[])


def of_runs(path: str, action: str = "") -> Rows:
    """Rows that hang from a run by `path`; with `action`, also those of single actions."""

    def rows(scope: Scope) -> Q:
        found = among(path, scope.runs)
        return found | among(action, scope.actions) if action else found

    return rows


def blank(column: Any) -> Any:
    """What stands in a column afterwards: nothing where nothing stood, else ⟦erased⟧ or empty."""
    if column.null:
        return None
    if isinstance(column, models.CharField | models.TextField):
        return Case(When(**{column.name: ""}, then=Value("")), default=Value(ERASED))
    if isinstance(column, models.JSONField):
        return Value(column.get_default() if column.has_default() else {}, models.JSONField())
    if isinstance(column, ArrayField):
        return []
    raise TypeError(f"{column} cannot be blanked: give a value")


def is_blank(column: Any) -> Q:
    """Whether `blank` would change nothing."""
    if column.null:
        return Q(**{f"{column.name}__isnull": True})
    if isinstance(column, models.CharField | models.TextField):
        return Q(**{f"{column.name}__in": ("", ERASED)})
    if isinstance(column, models.JSONField):
        return Q(**{column.name: column.get_default() if column.has_default() else {}})
    return Q(**{column.name: []})
