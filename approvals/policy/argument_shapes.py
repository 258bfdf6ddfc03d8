"""Arguments that an agent sends in another shape than what a condition compares them with.

To the evaluator a text in a list is another value than the text, and no mistake: `["evil"]` would
pass a rule that denies `args.to == "evil"`. `compared_arguments` reads which arguments a condition
holds against what, and `as_compared` says what one in another shape may stand for. A comparison
that hides its argument from the first is refused of a new document.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise, product
from math import prod
from typing import Any, NamedTuple

from approvals.policy.condition_types import (
    CONSTANTS,
    NUMBER,
    OPERATORS,
    TEXT,
    TOKEN,
    YES_OR_NO,
    Tokens,
    closing,
    split,
)
from approvals.policy.expressions import (
    CannotCompile,
    CannotEvaluate,
    Expression,
    InAnotherShape,
    at,
)

FROM_AGENTS = frozenset({"args", "after", "labels"})
"""The facts whose members have the shape that the agent gives them."""
SAME = frozenset({"==", "!=", "in"})
COMPARE = SAME | set(OPERATORS)
ENDS = COMPARE | {"&&", "||", "?", ":", ","}
"""What stands beside the sides of a comparison."""
LOOPS = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})
OBJECT = "an object"
KINDS = {str: TEXT, int: NUMBER, float: NUMBER, bool: YES_OR_NO, dict: OBJECT, list: "a list"}
ANOTHER = "another"
SHAPES_MAX = 32
NAME_WORDS_MAX = 100  # each bracket of one is read by a call within a call
COMPARISONS_MAX = 1_000  # a list has up to 400 values; two in a loop are each with each
EACH: tuple[()] = ()
"""In the place of a name: every value of a list."""

Path = tuple[str | int | tuple[()], ...]


class Beside(NamedTuple):
    """What an argument is compared with: a value, or what comes of other facts."""

    value: Any
    expression: Expression | None = None

    def over(self, facts: Mapping[str, Any]) -> Any:
        """The value; None where it cannot be told."""
        try:
            return self.expression.evaluate(facts) if self.expression else self.value
        except CannotEvaluate:
            return None


MEMBERS = Beside({})
"""Beside an argument of which a member is named: it may be an object, and stands for none."""
Compared = Mapping[Path, Sequence[Beside]]
"""Of each argument by its names, `("args", "to")`, what it is compared with."""


class Loop(NamedTuple):
    """From where to where in the text a name stands for each of these arguments."""

    start: int
    end: int
    name: str
    paths: Sequence[Path]
    values: Sequence[Tokens]
    """Those of a list that is written out."""

    def names(self, token: Any) -> bool:
        first = (token["word"] or "").partition(".")[0]
        return first == self.name and self.start <= token.start() < self.end


class Reading:
    """A condition whose questions are taken out, word by word."""

    def __init__(self, rewritten: str, allowed: frozenset[str]) -> None:
        """`allowed` are the facts and questions that it may name."""
        self.text = rewritten
        self.tokens = list(TOKEN.finditer(rewritten))
        self.of_desk = allowed - FROM_AGENTS - {"before"}
        self.held: set[int] = set()
        """Where an argument stands that is compared, or in a list that is looped over."""
        self._known: dict[tuple[int, int], Beside | None] = {}
        self.loops: list[Loop] = []
        for place, one in enumerate(self.tokens[:-3]):
            head, _, name = (one["word"] or "").rpartition(".")
            bound, comma = self.tokens[place + 2 : place + 4]
            is_loop = name in LOOPS and _is(self.tokens, place + 1, "(") and comma[0] == ","
            if is_loop and bound["word"]:
                end = place + 1 + closing(self.tokens[place + 1 :])
                until = self.tokens[end].start() if end < len(self.tokens) else len(rewritten)
                within = (bound.end(), until, bound[0])
                self.loops.append(Loop(*within, *self._looped_over(place, head)))

    def _looped_over(self, place: int, head: str) -> tuple[list[Path], list[Tokens]]:
        """What the name of a loop stands for: each of an argument, or the values of a list."""
        if head:
            names = head.split(".")
            return [(*names, EACH)] if names[0] in FROM_AGENTS else [], []
        before = _stripped(_chain(self.tokens[: max(0, place - 1)]))
        if not before or before[0][0] == "{" or (listed := _members(before)) is None:
            return [(*path, EACH) for path in self.paths(before)], []
        self.held |= {_first(part) for part in listed if self.paths(part)}
        return [path for part in listed for path in self.paths(part)], listed

    def named(self, token: Any) -> list[Path]:
        """The arguments that a word stands for, `args.pay.to`, or one of a loop."""
        first, *names = (token["word"] or "").split(".")
        for loop in self.loops:
            if loop.names(token):
                return [(*path, *names) for path in loop.paths]
        return [(first, *names)] if first in FROM_AGENTS else []

    def paths(self, side: Tokens) -> list[Path]:
        """The same of one side of a comparison, `(args.pay)["to"]`; nothing of all else."""
        side = _stripped(side)
        if not side or len(side) > NAME_WORDS_MAX:
            return []
        if len(side) == 1:
            return self.named(side[0])
        if side[-2][0] == "." and side[-1]["word"]:
            return [(*path, *side[-1][0].split(".")) for path in self.paths(side[:-2])]
        opening = _opening(side)
        if side[-1][0] != "]" or not opening:
            return []
        inside = self.beside(side[opening + 1 : -1])
        name = inside.value if inside else None
        if isinstance(name, bool) or not isinstance(name, str | int):
            return []
        return [(*path, name) for path in self.paths(side[:opening])]

    def beside(self, side: Tokens) -> Beside | None:
        """What an argument is compared with, as the evaluator takes it; None of what has another
        kind as the agent says.
        """
        if not side:
            return None
        if len(side) == 1:  # most are told without a compiler
            if side[0]["text"] and "\\" not in side[0][0]:
                return Beside(side[0][0][1:-1])
            if side[0]["word"] and side[0][0].partition(".")[0] not in {*self.of_desk, *CONSTANTS}:
                return None
        span = side[0].start(), side[-1].end()
        if span not in self._known:
            self._known[span] = self._beside(self.text[slice(*span)])
        return self._known[span]

    def _beside(self, source: str) -> Beside | None:
        try:
            read = Expression(source, self.of_desk)
            value = None if read.names else read.evaluate({})
        except (CannotCompile, CannotEvaluate):
            return None
        is_told = value is None or _kind(value) != ANOTHER
        return Beside(value, read if read.names else None) if is_told else None

    def compared(self) -> list[tuple[str, Tokens, Tokens]]:
        """The comparisons, up to one more than there may be: each with its sign, and two values
        that it compares; what comes of a comparison itself (`args.x == "a" == true`) is no side.
        """
        return list(islice(self._compared(), COMPARISONS_MAX + 1))

    def _compared(self) -> Iterator[tuple[str, Tokens, Tokens]]:
        tokens = self.tokens
        for place, one in enumerate(tokens):
            if one[0] in COMPARE:
                start = _begin(tokens, place)
                is_compared = start > 0 and tokens[start - 1][0] in COMPARE
                left = [] if is_compared else tokens[start:place]
                right = tokens[place + 1 : _end(tokens, place + 1)]
                for sign, *sides in _pairs(one[0], left, right):
                    for ours, theirs in product(*map(self._values, sides)):
                        yield sign, ours, theirs

    def _values(self, side: Tokens) -> Sequence[Tokens]:
        """What a side stands for: where it is the name of a loop, what that goes over."""
        is_name = len(side) == 1 and "." not in side[0][0]
        loop = next((one for one in self.loops if is_name and one.names(side[0])), None)
        if loop is None or not loop.values:
            return [side]
        self.held.add(side[0].start())
        return loop.values

    def is_hidden(self, side: Tokens) -> bool:
        """Whether it is an argument in a list or an object that is only written to be compared, or
        a member of such: `[args.to][0]`.
        """
        outside, depth = [], 0
        for one in side:
            depth -= one[0] in ")]}"
            outside += [one] if depth == 0 else []
            depth += one[0] in "([{"
        is_written = side[:1] and side[0][0] in "[{(" and not self.paths(side)
        is_called = any(one["word"] and two[0] == "(" for one, two in pairwise(outside))
        is_chain = all(one["word"] or one[0] in ".()[]{}" for one in outside) and not is_called
        is_in = "in" in {one[0] for one in outside}
        return bool(is_written and is_chain and not is_in and any(map(self.named, side)))


def check(rewritten: str, allowed: frozenset[str]) -> None:
    """Raises CannotCompile for a comparison of an argument that is not named in it."""
    read = Reading(rewritten, allowed)
    compared = read.compared()
    if len(compared) > COMPARISONS_MAX:
        raise CannotCompile("too much is compared: a named list holds as many values as you like")
    for sign, *sides in compared:
        for side in sides:
            if sign in SAME and read.is_hidden(side):
                raise CannotCompile(
                    "an argument is compared by its name, as in args.to == …, and not within a"
                    " list, an object or brackets of which a member is taken",
                    *at(rewritten, side[0].start()),
                )


def compared_arguments(rewritten: str, allowed: frozenset[str]) -> Compared:
    """The arguments that a condition does nothing with but hold them against values whose kind no
    agent says, be it each of a list.

    One that it also loops over, measures, asks for its type or for a member it expects in several
    shapes.
    """
    if SAME.isdisjoint(one[0] for one in TOKEN.finditer(rewritten)):
        return {}  # what has an order is told by the evaluator
    read = Reading(rewritten, allowed)
    found: dict[Path, list[Beside]] = defaultdict(list)
    objects, expected = set(), set()
    for sign, *sides in read.compared():
        for side, other in (sides, sides[::-1]):
            said = read.beside(other)
            if sign == "in" and side is sides[1]:
                paths: list[Path] = [(*path, EACH) for path in read.paths(side)]
            else:
                paths = read.paths(side)
                read.held |= {_first(side)} if paths else set()
            is_told = said is not None and not (said.expression and sign not in SAME)
            for path in paths:
                found[path] += [said] if said and is_told else []
    for place, one in enumerate(read.tokens):
        is_has = [one[0] for one in read.tokens[max(0, place - 2) : place]] == ["has", "("]
        end = _chain_end(read.tokens, place) if one["word"] else place
        is_called = _is(read.tokens, end, "(")  # of `args.to.all(…)` it is `args.to`
        for path in read.paths(read.tokens[place:end]):
            objects |= {path[:length] for length in range(2, len(path)) if path[length] != EACH}
            if len(path) > 1 and one.start() not in read.held and not is_has:
                expected.add(path[:-1] if is_called else path)
    return {
        path: [*beside, MEMBERS] if path in objects else beside
        for path, beside in found.items()
        if len(path) > 1 and path not in expected
    }


# Where the sides of a comparison begin and end.


def _is(tokens: Tokens, place: int, sign: str) -> bool:
    return place < len(tokens) and tokens[place][0] == sign


def _end(tokens: Tokens, place: int) -> int:
    """Where the side ends that begins at `place`."""
    depth = 0
    for end, one in enumerate(tokens[place:], place):
        depth -= one[0] in ")]}"
        if depth < 0 or (depth == 0 and one[0] in ENDS):
            return end
        depth += one[0] in "([{"
    return len(tokens)


def _begin(tokens: Tokens, place: int) -> int:
    """Where the side begins that ends before `place`."""
    depth = 0
    for begin in range(place - 1, -1, -1):
        depth -= tokens[begin][0] in "([{"
        if depth < 0 or (depth == 0 and tokens[begin][0] in ENDS):
            return begin + 1
        depth += tokens[begin][0] in ")]}"
    return 0


def _opening(tokens: Tokens) -> int:
    """Where the bracket that is closed at the end was opened."""
    depth = 0
    for place in range(len(tokens) - 1, -1, -1):
        depth += (tokens[place][0] in ")]}") - (tokens[place][0] in "([{")
        if depth == 0:
            return place
    return 0


def _chain(before: Tokens) -> Tokens:
    """The value at the end: names and brackets that hang together."""
    start = len(before)
    while start:
        if before[start - 1][0] in ")]}":
            start = _opening(before[:start])
        elif before[start - 1]["word"] and before[start - 1][0] not in ENDS:
            start -= 1
        else:
            break
        previous = before[start - 1] if start else None
        if previous and previous[0] == ".":
            start -= 1
        elif not (
            previous and before[start][0] in "([" and (previous["word"] or previous[0] in ")]")
        ):
            break
    return before[start:]


def _chain_end(tokens: Tokens, place: int) -> int:
    """Where the names end that begin at `place`, with their members and no call."""
    end = place + 1
    while end + 1 < len(tokens):
        if tokens[end][0] == "." and tokens[end + 1]["word"]:
            end += 2
        elif tokens[end][0] == "[":
            end += closing(tokens[end:]) + 1
        else:
            break
    return end


def _first(side: Tokens) -> int:
    return next(one.start() for one in side if one["word"] and one[0] != "dyn")


def _stripped(side: Tokens) -> Tokens:
    """Without brackets that only hold it together."""
    while side and side[-1][0] == ")":
        opening = _opening(side)
        if opening and (opening > 1 or side[0][0] != "dyn"):
            break
        side = side[opening + 1 : -1]
    return side


def _members(side: Tokens) -> list[Tokens] | None:
    """Of a list its values, of an object its names; None of all else."""
    if not side or side[0][0] not in "[{" or closing(side) != len(side) - 1:
        return None
    return [split(one, ":")[0] for one in split(side[1:-1], ",") if one]


def _pairs(sign: str, left: Tokens, right: Tokens) -> Iterator[tuple[str, Tokens, Tokens]]:
    """The values that are compared: those of two lists each with the other's, one with each among
    which it is looked for, and either of `… ? … : …`.
    """
    left, right = _stripped(left), _stripped(right)
    ours, theirs = _members(left), _members(right)
    for side, other, is_left in ((left, right, True), (right, left, False)):
        condition, *rest = split(side, "?")
        if rest:
            taken = side[len(condition) + 1 :]
            parts = split(taken, ":")
            for one in (parts[0], taken[len(parts[0]) + 1 :]):
                yield from _pairs(sign, *((one, other) if is_left else (other, one)))
            return
    if sign == "in" and theirs is not None:
        for one in theirs:
            yield from _pairs("==", left, one)
    elif sign != "in" and ours and theirs and len(ours) == len(theirs) and left[0][0] == "[":
        for one, other in zip(ours, theirs, strict=True):
            yield from _pairs(sign, one, other)
    else:
        yield sign, left, right


# What an argument may stand for.


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
    ways: list[list[tuple[Path, Any]]] = []
    args = facts["args"] if isinstance(facts.get("args"), Mapping) else {}
    for path, beside in compared.items():
        if path[0] == "after" and path[1] not in args:
            continue  # it stays as it was
        told = [(one, one.over(facts)) for one in beside]
        kinds = {_kind(value) for _, value in told if value is not None}
        plain = [value for one, value in told if one is not MEMBERS and value is not None]
        for place, value in _found(facts, path):
            if plain and value is not None and _kind(value) not in kinds:
                ways.append([(place, one) for one in (value, *plain)])
                if prod(map(len, ways)) > SHAPES_MAX:
                    raise InAnotherShape(
                        "arguments of other kinds than what they are compared with"
                    )
    found = []
    for chosen in product(*ways) if ways else ():
        spelled: Any = facts
        for path, value in chosen:
            spelled = _with(spelled, path, value)
        found.append(spelled)
    return found


def _kind(value: Any) -> str:
    return KINDS.get(type(value), ANOTHER)


def _found(value: Any, path: Path, done: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The values at a path, each with where it stands; none where there is none."""
    if not path:
        yield done, value
        return
    name: Any = path[0]
    rest = path[1:]
    if name == EACH:
        for place, one in enumerate(value) if isinstance(value, list) else ():
            yield from _found(one, tuple(rest), (*done, place))
    elif (isinstance(value, Mapping) and name in value) or (
        isinstance(value, list) and isinstance(name, int) and 0 <= name < len(value)
    ):
        yield from _found(value[name], tuple(rest), (*done, name))


def _with(facts: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    name, *rest = path
    if isinstance(facts, list) and isinstance(name, int):
        return [*facts[:name], _with(facts[name], tuple(rest), value), *facts[name + 1 :]]
    return {**facts, name: _with(facts[name], tuple(rest), value)}
