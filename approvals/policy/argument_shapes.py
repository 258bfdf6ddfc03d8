"""Arguments that an agent sends in another shape than what a condition compares them with.

To the evaluator a text in a list is another value than the text, and no mistake: `["evil"]` would
pass a rule that denies `args.to == "evil"`. So a condition is evaluated again with what such an
argument may stand for, and where this makes a difference it cannot be told.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, product
from math import prod
from typing import Any

from approvals.policy.comparisons import ANY, EACH, KEYED, Compared, Path, kind_of
from approvals.policy.expressions import CannotEvaluate, Expression, InAnotherShape

SHAPES_MAX = 32


def evaluate(expression: Expression, compared: Compared, facts: Mapping[str, Any]) -> Any:
    """The value over the facts. Raises CannotEvaluate, and of that InAnotherShape where it is not
    the same whatever its arguments stand for, or this would cost too much to tell.
    """
    value = expression.evaluate(facts)
    shapes = as_compared(compared, facts)
    times = 1 + len(shapes)
    try:
        is_same = all(expression.evaluate(one, times=times) == value for one in shapes)
    except CannotEvaluate as cannot:
        raise InAnotherShape(str(cannot)) from cannot
    if not is_same:
        raise InAnotherShape("an argument is not of the kind that it is compared with")
    return value


def as_compared(compared: Compared, facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The facts with each argument that is of another kind than what it is compared with in the
    place of that, too; nothing where all are of the kind, absent or null. Raises InAnotherShape
    for too many.
    """
    ways: list[tuple[Path, list[Any]]] = []
    args = facts["args"] if isinstance(facts.get("args"), Mapping) else {}
    for path, beside in compared.items():
        if path[0] == "after" and isinstance(path[1], str) and path[1] not in args:
            continue  # it stays as it was
        told = [(one, one.over(facts)) for one in beside]
        kinds = {kind_of(value) for _, value in told if value is not None}
        plain = [value for one, value in told if not one.is_shape and value is not None]
        for place, value in _found(facts, path, facts) if plain else ():
            is_object = len(place) < len(path)  # in the place of a list
            if value is None or kind_of(value) in kinds or (is_object and KEYED in beside):
                continue
            held = _held(value, plain) if is_object or ANY in path else plain
            if held:
                ways.append((place, [[one] for one in held] if is_object else held))
                if prod(1 + len(values) for _, values in ways) > SHAPES_MAX:
                    raise InAnotherShape(
                        "arguments of other kinds than what they are compared with"
                    )
    ways.sort(key=lambda way: len(way[0]), reverse=True)  # what holds another comes after it
    found = []
    for chosen in islice(product(*([None, *values] for _, values in ways)), 1, None):
        spelled: Any = facts
        for (place, _), value in zip(ways, chosen, strict=True):
            spelled = spelled if value is None else _with(spelled, place, value)
        found.append(spelled)
    return found


def _held(value: Any, plain: list[Any]) -> list[Any]:
    """Those of which something stands in the value."""
    held = set(_spelled_in(value))
    return [one for one in plain if not held.isdisjoint(_spelled_in(one))]


def _spelled_in(value: Any) -> Iterator[str]:
    """The values within it that hold no other, as texts in small letters."""
    if isinstance(value, Mapping | list):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _spelled_in(one)
    else:
        is_whole = isinstance(value, float) and value.is_integer()
        yield str(int(value) if is_whole else value).lower()


def _found(
    value: Any, path: Path, facts: Mapping[str, Any], done: Path = ()
) -> Iterator[tuple[Path, Any]]:
    """The values at a path, each with where it stands; none where there is none. An object in the
    place of a list of values is one, with a place that is shorter than the path.
    """
    if not path:
        yield done, value
        return
    name, *rest = path
    members: Iterable[Any] = ()
    if isinstance(value, list):
        members = range(len(value))
    elif isinstance(value, Mapping) and name != EACH:
        members = value
    elif isinstance(value, Mapping) and done[1:] and not rest:
        yield done, value
    if name not in {EACH, ANY}:
        if isinstance(name, Expression):
            try:
                name = name.evaluate(facts)
            except CannotEvaluate:
                return
        is_there = type(name) in {str, int} and name in members
        members = [name] if is_there else []
    for one in members:
        yield from _found(value[one], tuple(rest), facts, (*done, one))


def _with(facts: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    name, *rest = path
    if isinstance(facts, list) and isinstance(name, int):
        return [*facts[:name], _with(facts[name], tuple(rest), value), *facts[name + 1 :]]
    return {**facts, name: _with(facts[name], tuple(rest), value)}
