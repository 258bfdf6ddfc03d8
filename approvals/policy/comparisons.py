"""Which arguments a condition compares, and with what: read out of its text, word by word.

`compared_arguments` says it, for approvals/policy/argument_shapes.py, of those whose shape an agent
chooses: also behind brackets, in lists and sums of them, in loops and what these make. A comparison
that hides its argument from it is refused of a new document.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice, pairwise, product
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
    FUNCTIONS,
    OF_VALUES,
    CannotCompile,
    CannotEvaluate,
    Expression,
    at,
)

FROM_AGENTS = frozenset({"args", "after", "labels"})
"""The facts whose members have the shape that the agent gives them."""
SAME = frozenset({"==", "!=", "in"})
COMPARE = SAME | set(OPERATORS)
ENDS = COMPARE | {"&&", "||", "?", ":", ","}
"""What stands beside the sides of a comparison."""
LOOPS = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})
MEASURES = FUNCTIONS - OF_VALUES
"""What takes a value in several shapes: its size, and what makes another one of it."""
OBJECT = "an object"
KINDS = {str: TEXT, int: NUMBER, float: NUMBER, bool: YES_OR_NO, dict: OBJECT, list: "a list"}
ANOTHER = "another"
NAME_WORDS_MAX = 100  # each bracket of one is read by a call within a call
COMPARISONS_MAX = 1_000  # a list has up to 400 values; two in a loop are each with each


class Every(Enum):
    """In the place of a name."""

    VALUE = "each of a list"
    MEMBER = "each of an object or a list, as where a loop says which"


EACH, ANY = Every.VALUE, Every.MEMBER
Path = tuple[str | int | Every | Expression, ...]
"""Names, numbers of a list, and what says over the facts which of them."""


class Beside(NamedTuple):
    """What an argument is compared with: a value, or what comes of other facts."""

    value: Any
    expression: Expression | None = None
    is_shape: bool = False
    """No value, but a shape that is expected."""

    def over(self, facts: Mapping[str, Any]) -> Any:
        """The value; None where it cannot be told."""
        try:
            return self.expression.evaluate(facts) if self.expression else self.value
        except CannotEvaluate:
            return None


MEMBERS = Beside({}, is_shape=True)
"""Beside an argument of which a member is named: it may be an object, and stands for none."""
KEYED = Beside(None, is_shape=True)
"""Beside each of what may be an object, and is no list in another shape then."""
Compared = Mapping[Path, Sequence[Beside]]
"""Of each argument by its names, `("args", "to")`, what it is compared with."""


class Loop(NamedTuple):
    """From where to where in the text a name stands for each of these arguments."""

    kind: str
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
        self.allowed = allowed
        self.of_desk = allowed - FROM_AGENTS - {"before"}
        self._known: dict[tuple[int, int], Beside | None] = {}
        self._indexes: dict[str, Expression] = {}
        self.loops: list[Loop] = []
        for place, one in enumerate(self.tokens[:-3]):
            head, _, kind = (one["word"] or "").rpartition(".")
            bound, comma = self.tokens[place + 2 : place + 4]
            is_loop = kind in LOOPS and _is(self.tokens, place + 1, "(") and comma[0] == ","
            if is_loop and bound["word"]:
                end = place + 1 + closing(self.tokens[place + 1 :])
                until = self.tokens[end].start() if end < len(self.tokens) else len(rewritten)
                over = self._looped_over(place, head)
                found = [] if over[:1] and over[0][0] == "{" else self.each(over)
                values = _members(over) or []
                self.loops.append(Loop(kind, bound.end(), until, bound[0], found, values))

    def _looped_over(self, place: int, head: str) -> Tokens:
        """The value before a loop, whose word at `place` begins with `head`."""
        before = self.tokens[:place] if head else self.tokens[: max(0, place - 1)]
        start = self.tokens[place].start()
        names = TOKEN.match(self.text, start, start + len(head))
        return _stripped(_chain([*before, *([names] if names else [])]))

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
        if len(parts := _parts(side)) > 1:
            return [path for one in parts for path in self.paths(one)]
        if len(side) == 1:
            return self.named(side[0])
        if side[-2][0] == "." and side[-1]["word"]:
            return [(*path, *side[-1][0].split(".")) for path in self.paths(side[:-2])]
        opening = _opening(side)
        if side[-1][0] == "]" and opening:
            return self._member_of(_stripped(side[:opening]), side[opening + 1 : -1])
        return []

    def _member_of(self, side: Tokens, inside: Tokens) -> list[Path]:
        """The same of what is named in brackets; where it stands in what is made there, a sum or
        by a loop, is not known.
        """
        if not side or side[-1][0] == ")" or len(split(side, "+")) > 1:
            return self.each(side)
        return [(*path, self._index(inside)) for path in self.paths(side)]

    def _index(self, inside: Tokens) -> str | int | Every | Expression:
        said = self.beside(inside)
        if said and isinstance(said.value, str | int) and not isinstance(said.value, bool):
            return said.value
        if any(loop.names(one) for loop in self.loops for one in inside):
            return ANY
        source = self.text[inside[0].start() : inside[-1].end()]
        if source not in self._indexes:
            try:
                self._indexes[source] = Expression(source, self.allowed)
            except CannotCompile:  # a name of a loop that the evaluator does not have
                return ANY
        return self._indexes[source]

    def each(self, side: Tokens) -> list[Path]:
        """Of what a list consists: each of an argument, be it joined with another or looped over,
        or the arguments that it is written of.
        """
        side = _stripped(side)
        if len(parts := _parts(side)) > 1:
            return [path for one in parts for path in self.each(one)]
        if side[:1] and side[0][0] == "[" and (listed := _members(side)) is not None:
            return [path for one in listed for path in self.paths(one)]
        opening = _opening(side)
        inside = side[opening + 1 : -1]
        loop = next((one for one in self.loops if inside and one.start == inside[0].end()), None)
        if loop is None or len(side) > NAME_WORDS_MAX:
            return [(*path, EACH) for path in self.paths(side)]
        return self.paths(split(inside, ",")[-1]) if loop.kind == "map" else [*loop.paths]

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
        is_told = value is None or kind_of(value) != ANOTHER
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
        return loop.values if loop and loop.values else [side]

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
        is_chain = all(one["word"] or one[0] in ".()[]{}+" for one in outside) and not is_called
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

    One that it also loops over, measures or makes another value of it expects in several shapes,
    and one of which it names a member as an object, too.
    """
    if SAME.isdisjoint(one[0] for one in TOKEN.finditer(rewritten)):
        return {}  # what has an order is told by the evaluator
    read = Reading(rewritten, allowed)
    found: dict[Path, list[Beside]] = defaultdict(list)
    expected = {path[:-1] for loop in read.loops for path in loop.paths if path[-1] == EACH}
    for sign, *sides in read.compared():
        for side, other in (sides, sides[::-1]):
            said = read.beside(other)
            paths = read.paths(side)
            if sign == "in" and side is sides[1]:
                expected |= set(paths)
                paths = read.each(side)
            is_told = said is not None and not (said.expression and sign not in SAME)
            for path in paths:
                found[path] += [said] if said and is_told else []
    objects, keyed, measured = _named(read)
    expected |= measured
    return {
        path: [*beside, *([MEMBERS] * (path in objects)), *([KEYED] * (path[:-1] in keyed))]
        for path, beside in found.items()
        if len(path) > 1 and path not in expected
    }


def _named(read: Reading) -> tuple[set[Path], set[Path], set[Path]]:
    """The arguments of which a member is named, those of which it is or may be, by what the facts
    or a loop say, and those that are measured.
    """
    objects: set[Path] = set()
    keyed: set[Path] = set()
    measured: set[Path] = set()
    before = ""  # but for brackets that only hold together what follows
    for place, one in enumerate(read.tokens):
        end = _chain_end(read.tokens, place) if one["word"] else place
        is_called = _is(read.tokens, end, "(")  # of `args.to.size()` it is `args.to`
        called = read.tokens[end - 1][0].rpartition(".")[2] if is_called else ""
        for whole in read.paths(read.tokens[place:end]):
            path = whole[:-1] if is_called else whole
            measured |= {path} if {before, called} & MEASURES else set()
            for length, name in enumerate(path[2:], 2):
                objects |= {path[:length]} if isinstance(name, str) else set()
                keyed |= {path[:length]} if name != EACH and not isinstance(name, int) else set()
        before = before if one[0] in {"(", "dyn"} else one[0]
    return objects, keyed, measured


def kind_of(value: Any) -> str:
    return KINDS.get(type(value), ANOTHER)


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


def _either(side: Tokens) -> list[Tokens]:
    """Of `… ? … : …` what it may come to; else the side itself."""
    condition, *rest = split(side, "?")
    if not rest:
        return [side]
    taken = side[len(condition) + 1 :]
    first = split(taken, ":")[0]
    return [first, taken[len(first) + 1 :]]


def _parts(side: Tokens) -> list[Tokens]:
    """The same, and of a sum what is added."""
    either = _either(side)
    return either if len(either) > 1 else split(side, "+")


def _pairs(sign: str, left: Tokens, right: Tokens) -> Iterator[tuple[str, Tokens, Tokens]]:
    """The values that are compared: those of two lists each with the other's, one with each among
    which it is looked for, and either of `… ? … : …`.
    """
    left, right = _stripped(left), _stripped(right)
    ours, theirs = _members(left), _members(right)
    for side, other, is_left in ((left, right, True), (right, left, False)):
        if len(parts := _either(side)) > 1:
            for one in parts:
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
