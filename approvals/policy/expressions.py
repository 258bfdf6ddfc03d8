"""Conditions and arguments in CEL (https://cel.dev), compiled once and bounded in cost.

CEL always ends, but loops over long lists and large patterns can take minutes. The library has no
budget of its own, so the cost is bounded from outside (docs/decisions/gate.md): short texts, no
loop within a loop, patterns that are short, written out and not in a loop, and an estimate of what
the loops cost over the facts at hand, beyond which nothing is evaluated.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from math import prod
from types import ModuleType
from typing import Any

# The package brings its command line along, and that a terminal with colours: a tenth of the start
# of each process, and 7 MiB.
sys.modules["cel.cli"] = ModuleType("cel.cli")
import cel  # noqa: E402

del sys.modules["cel.cli"]

from amends.protocol.canonical import double_of  # noqa: E402

EXPRESSION_CHARACTERS_MAX = 2_000
NESTING_MAX = 40
LOOPS_MAX = 4
PATTERN_CHARACTERS_MAX = 200
REPEATED_MAX = 100  # {1,100} within {1,90}, over 60 000 characters, took nine seconds
COST_MAX = 5_000_000  # values copied: a third of a second at worst, and mostly far less
VALUES_AGAIN_MAX = 20_000  # in all, where the same is evaluated in several shapes: 60 ms at worst
CHARACTERS_OF_A_VALUE = 1_000  # to copy so many costs as much as a value more

MEMBER = re.compile(r"[A-Za-z_]\w*")
"""A name that may stand behind a dot."""
MEMBER_OF = re.compile(r"\s*\.\s*([A-Za-z_]\w*)(?!\w|\s*\()")
STRINGS = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'""")
OTHER_QUOTES = re.compile(r"""['"]{3}|\b[bB]?[rR][bB]?['"]|//""")
LOOPS = "all|exists|exists_one|existsOne|map|filter|transformList|transformMap|transformMapEntry"
LOOP = re.compile(rf"\.\s*({LOOPS})\s*$")
BUILDING = frozenset({"map", "filter", "transformList", "transformMap", "transformMapEntry"})
WORD = re.compile(r"[A-Za-z_]\w*|\d+")
COUNTED = re.compile(r"\{\s*(\d{1,9}\s*(?:,\s*(?:\d{1,9})?\s*)?)\}")
# What could hide a count, as a brace by its number does.
# A backslash of the pattern itself is written twice.
UNESCAPED = re.compile(r"\\\\")
ESCAPED = re.compile(r"\\[xXuU0-7]")
MATCHES = re.compile(r"\bmatches\s*\(")
PATTERN = re.compile(r"""\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')\s*\)""")
BOUND = re.compile(rf"\.\s*(?:{LOOPS}|optMap|optFlatMap)\s*\(\s*(\w+)(?:\s*,\s*(\w+)\s*,)?")
PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
# What the evaluator has of CEL's standard library; operators are named with a sign.
OF_VALUES = frozenset(
    {
        "contains", "startsWith", "endsWith", "matches", "getFullYear", "getMonth", "getDate",
        "getDayOfMonth", "getDayOfYear", "getDayOfWeek", "getHours", "getMinutes", "getSeconds",
        "getMilliseconds",
    }
)  # fmt: skip
ALONE = frozenset(
    {"int", "uint", "double", "string", "bytes", "type", "dyn", "timestamp", "duration"}
)
FUNCTIONS = OF_VALUES | ALONE | {"size"}
CALLED = re.compile(r"(?P<of>\.?)\s*\b(?P<name>[A-Za-z_]\w*)\s*\(")
LACKING = re.compile(r"function: '(\w+)'")
"""How the evaluator says that a value has no such function, as a list has no `startsWith`."""
INTEGERS = (-(2**63), 2**64 - 1)  # of CEL: signed and unsigned, 64 bits
PLACE = re.compile(r"<input>:(\d+):(\d+): (?:Syntax error: )?([^\n]*)")


class CannotCompile(ValueError):
    """We stopped because this is no expression that we evaluate. Line and column count from 1."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class CannotEvaluate(Exception):
    """We stopped because the facts do not fit: one is missing, or of another kind."""


class InAnotherShape(CannotEvaluate):
    """We stopped because an argument is of another kind than what it is compared with or asked for,
    and what it stands for makes a difference.
    """


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop: whether it builds a list, and what its body names, facts among it, each time."""

    builds: bool
    words: int
    facts: int


class Expression:
    """A compiled expression over named facts."""

    __slots__ = ("_loops", "_members", "_path", "_program", "names", "source", "unknown_functions")

    def __init__(
        self, source: str, allowed: frozenset[str], shown: frozenset[str] = frozenset()
    ) -> None:
        """Compile `source`, which may name the facts in `allowed`; of these `shown`, or all, are
        told to people. Raises CannotCompile.
        """
        self.source = source
        self._loops = _loops(source, allowed)
        try:
            self._program = cel.compile(source)
            references = self._program.references()
        except Exception as wrong:
            raise _cannot_compile(str(wrong), source) from wrong
        bound = {name for pair in BOUND.findall(source) for name in pair}
        self.names = tuple(sorted(set(references["variables"]) & allowed))
        self._members = {name: self._members_of(name) for name in self.names}
        # A plain path is followed here: CEL's integers have 64 bits, and a fact may have more.
        is_path = len(self.names) == 1 and PATH.fullmatch(source.strip())
        self._path = source.strip().split(".") if is_path else []
        functions = {
            name for name in references["functions"] if name.removeprefix(".").isidentifier()
        }
        self.unknown_functions = tuple(sorted(functions - FUNCTIONS))
        unknown = set(references["variables"]) - allowed - bound
        if unknown:
            known = ", ".join(sorted(shown or allowed))
            place = self._place(rf"(?<![.\w]){re.escape(min(unknown))}\b")
            hint = near(min(unknown), shown or allowed)
            raise CannotCompile(
                f"“{min(unknown)}” is not known here{hint}; known are {known}", *place
            )

    def check_functions(self, more: frozenset[str] = frozenset()) -> None:
        """Raises CannotCompile for a function that the evaluator lacks, at its first place; `more`
        are told among those that may be called.

        Of a stored policy such a condition is read as one that cannot be evaluated; a new one is
        refused.
        """
        if self.unknown_functions:
            name = self.unknown_functions[0]
            known = ", ".join(sorted(FUNCTIONS | more))
            place = self._place(rf"\b{re.escape(name)}\s*\(")
            hint = near(name, FUNCTIONS | more)
            raise CannotCompile(f"“{name}” is no function here{hint}; known are {known}", *place)
        self._check_how_called()

    def _check_how_called(self) -> None:
        """What is asked of a value stands behind it, what makes one of another stands alone; the
        evaluator does not know it otherwise, and would say so at each call.
        """
        bare = self._bare()
        for found in CALLED.finditer(bare):
            name, place = found["name"], at(bare, found.start("name"))
            if name in OF_VALUES and not found["of"]:
                told = f"“{name}” stands behind its value: args.x.{name}(…)"
                raise CannotCompile(told, *place)
            if name in ALONE and found["of"]:
                raise CannotCompile(f"“{name}” takes its value: {name}(args.x)", *place)

    def _members_of(self, name: str) -> frozenset[str] | None:
        """The members of a fact that are named; None where more of it may be asked for."""
        bare = self._bare()
        places = re.finditer(rf"(?<!\w){name}\b", bare)
        named = [MEMBER_OF.match(bare, one.end()) for one in places]
        return frozenset(one[1] for one in named if one) if all(named) else None

    def _of(self, name: str, fact: Any) -> Any:
        """As much of a fact as is named: the rest of a large call is not copied for each rule."""
        members = self._members[name]
        if members is None or not isinstance(fact, dict):
            return fact
        return {one: fact[one] for one in members if one in fact}

    def _bare(self) -> str:
        """The source without what stands in its texts, at the same places."""
        return STRINGS.sub(lambda found: " " * len(found[0]), self.source)

    def _place(self, pattern: str) -> tuple[int, int]:
        """Line and column of the first place, outside texts, that the pattern fits."""
        bare = self._bare()
        found = re.search(pattern, bare)
        return at(bare, found.start() if found else 0)

    def evaluate(self, facts: Mapping[str, Any], *, times: int = 1) -> Any:
        """The value over `facts`. Raises CannotEvaluate, and nothing else: also where doing it so
        many times would cost too much.
        """
        if self._path:
            return self._followed(facts)
        given = [name for name in self.names if name in facts]
        used = {name: _in_64_bits(self._of(name, facts[name])) for name in given}
        if self._loops or times > 1:
            # A name that is not known counts as one value: what is dear with it is no cheaper
            # without.
            values = sum(map(_count, used.values())) + len(self.names) - len(used)
            is_again_too_much = times > 1 and times * values > VALUES_AGAIN_MAX
            if is_again_too_much or times * _cost(self._loops, values) > COST_MAX:
                raise CannotEvaluate(f"too much to loop over: {self.source}")
        try:
            return self._program.execute(used)
        except KeyError as missing:  # CEL names the member alone, not whose it is
            raise CannotEvaluate(f"{self.source}: {missing.args[0]} is not known") from missing
        except Exception as wrong:
            reason = str(wrong).split("\n", 1)[0][:200]
            lacking = LACKING.search(reason)
            is_kind = isinstance(wrong, TypeError) or (lacking and lacking[1] in FUNCTIONS)
            kind = InAnotherShape if is_kind else CannotEvaluate
            raise kind(f"{self.source}: {type(wrong).__name__} {reason}") from wrong
        except BaseException as wrong:
            if type(wrong).__name__ == "PanicException":  # Rust's, which is no Exception
                raise CannotEvaluate(f"{self.source}: the evaluator gave up") from wrong
            raise

    def _followed(self, facts: Mapping[str, Any]) -> Any:
        value: Any = facts
        for name in self._path:
            if not isinstance(value, Mapping) or name not in value:
                raise CannotEvaluate(f"{self.source}: {name} is not known")
            value = value[name]
        return deepcopy(value)

    def __repr__(self) -> str:
        return f"<Expression {self.source!r}>"


def _in_64_bits(value: Any) -> Any:
    """The value as CEL can hold it; raises CannotEvaluate for an integer that it would round."""
    if isinstance(value, dict):
        return {name: _in_64_bits(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_in_64_bits(inner) for inner in value]
    if isinstance(value, int) and not INTEGERS[0] <= value <= INTEGERS[1]:
        double = double_of(value)
        if double is None:
            raise CannotEvaluate("an integer of more than 64 bits cannot be compared")
        return double
    return value


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(
            _count(inner) + len(name) // CHARACTERS_OF_A_VALUE for name, inner in value.items()
        )
    if isinstance(value, list):
        return 1 + sum(map(_count, value))
    return 1 + (len(value) // CHARACTERS_OF_A_VALUE if isinstance(value, str) else 0)


def _cost(loops: list[Loop], values: int) -> int:
    """So many values the loops copy at most, over facts of so many values.

    Each turn of a loop copies the facts that its body names, and one that builds a list copies in
    each turn what it has built so far. What a `map` builds is what the next loop goes over.
    """
    cost, size = 0, values
    for loop in loops:
        body = loop.words + loop.facts * values
        cost += size * (size * body if loop.builds else body)
        size *= max(1, body) if loop.builds else 1
    return cost


def _loops(source: str, allowed: frozenset[str]) -> list[Loop]:
    """The loops of an expression. Raises CannotCompile where the text could cost too much."""
    if len(source) > EXPRESSION_CHARACTERS_MAX:
        raise CannotCompile(f"longer than {EXPRESSION_CHARACTERS_MAX} characters")
    bare = STRINGS.sub(lambda found: " " * len(found[0]), source)
    hidden = OTHER_QUOTES.search(bare) or OTHER_QUOTES.search(source)
    if hidden and (hidden.group() != "//" or "//" in bare):
        raise CannotCompile("raw and triple-quoted strings and comments are not read")
    _check_patterns(source, bare)
    loops = []
    for kind, start, end in brackets(bare):
        if kind and MATCHES.search(bare, start, end):
            raise CannotCompile("a pattern in a loop could take for ever", *at(bare, start))
        if kind:
            loops.append(_loop(kind, bare[start:end], allowed))
    if len(loops) > LOOPS_MAX:
        raise CannotCompile(f"more than {LOOPS_MAX} loops")
    return loops


def brackets(bare: str) -> Iterator[tuple[str, int, int]]:
    """Each pair of brackets, and of a loop its kind. Raises CannotCompile for one in another."""
    stack: list[tuple[str, int]] = []
    for place, character in enumerate(bare):
        if character in "([{":
            named = LOOP.search(bare[:place]) if character == "(" else None
            if named and any(kind for kind, _ in stack):
                raise CannotCompile("a loop within a loop could take for ever", *at(bare, place))
            stack.append((named[1] if named else "", place))
            if len(stack) > NESTING_MAX:
                raise CannotCompile(f"more than {NESTING_MAX} brackets deep", *at(bare, place))
        elif character in ")]}" and stack:
            yield (*stack.pop(), place)


def _loop(kind: str, body: str, allowed: frozenset[str]) -> Loop:
    bound, *named = WORD.findall(body) or [""]
    facts = sum(word in allowed and word != bound for word in named)
    return Loop(kind in BUILDING, max(1, len(named)), facts)


def _check_patterns(source: str, bare: str) -> None:
    """A pattern is written out and short, and its counted repetitions multiply to little."""
    for found in MATCHES.finditer(bare):
        pattern = PATTERN.match(source, found.end())
        if pattern is None:
            raise CannotCompile("the pattern is written out as one text", *at(bare, found.start()))
        if ESCAPED.search(UNESCAPED.sub("", pattern[1])):
            raise CannotCompile(
                "the pattern spells no character by its number", *at(bare, found.start())
            )
        counts = (max(map(int, re.findall(r"\d+", one))) for one in COUNTED.findall(pattern[1]))
        if len(pattern[1]) > PATTERN_CHARACTERS_MAX or prod(counts) > REPEATED_MAX:
            raise CannotCompile("the pattern is too large", *at(bare, found.start()))


def near(name: str, known: Iterable[str]) -> str:
    """“; did you mean …?” where something is spelled alike."""
    found = get_close_matches(name, sorted(known), 1)
    return f"; did you mean {found[0]}?" if found else ""


def at(text: str, place: int) -> tuple[int, int]:
    """Line and column of a place, counted from 1."""
    return text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)


# What people write who have another language in mind, and how CEL has it.
_MEANT = (
    (re.compile("[“”„‘’‚]"), 'quotation marks are straight, as in "EUR"'),
    (re.compile(r"\{\{|\}\}|\$\{"), "a name stands by itself, as args.amount"),
    (re.compile(r"(?<![=!<>])=(?!=)"), "== compares"),
    (re.compile(r"\b(?:and|or|not)\b", re.IGNORECASE), "and is &&, or is ||, not is !"),
    (re.compile(r"\bis\b"), "== compares, also with null"),
    (re.compile(r"\d[,%]|\d \w"), "a number is digits and a point alone"),
)


def _cannot_compile(message: str, source: str) -> CannotCompile:
    found = PLACE.search(message)
    if found is None:
        return CannotCompile(message.split("\n", 1)[0][:200])
    bare = STRINGS.sub("", source)
    hint = next((f"; {words}" for meant, words in _MEANT if meant.search(bare)), "")
    short = re.sub(r"'ask_\d'", "a question", found[3].split(" expecting ", 1)[0])
    return CannotCompile(f"{short}{hint}", int(found[1]), int(found[2]))
