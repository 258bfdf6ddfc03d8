"""Conditions and arguments in CEL (https://cel.dev), compiled once and bounded in cost.

CEL always ends, but nested loops over long lists can take seconds. The library has no budget of its
own, so the cost is bounded from outside: short texts, no loop within a loop, and a loop only over
facts of bounded size.
"""

import re
from collections.abc import Mapping
from typing import Any

import cel

EXPRESSION_CHARACTERS_MAX = 2_000
NESTING_MAX = 40
LOOPS_MAX = 4
LOOP_FACTS_MAX = 2_000  # values that a loop may see: 2,000² comparisons are half a second at worst

STRINGS = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'""")
OTHER_QUOTES = re.compile(r"""['"]{3}|\b[bB]?[rR][bB]?['"]|//""")
LOOPS = "all|exists|exists_one|existsOne|map|filter|transformList|transformMap|transformMapEntry"
LOOP = re.compile(rf"\.\s*(?:{LOOPS})\s*$")
BOUND = re.compile(rf"\.\s*(?:{LOOPS}|optMap|optFlatMap)\s*\(\s*(\w+)(?:\s*,\s*(\w+)\s*,)?")
PLACE = re.compile(r"<input>:(\d+):(\d+): (?:Syntax error: )?([^\n]*)")


class CannotCompile(ValueError):
    """We stopped because this is no expression that we evaluate. Line and column count from 1."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class CannotEvaluate(Exception):
    """We stopped because the facts do not fit: one is missing, or of another kind."""


class Expression:
    """A compiled expression over named facts."""

    __slots__ = ("_loops", "_program", "names", "source")

    def __init__(self, source: str, allowed: frozenset[str]) -> None:
        """Compile `source`, which may name the facts in `allowed`. Raises CannotCompile."""
        self.source = source
        self._loops = _check_cost(source)
        try:
            self._program = cel.compile(source)
            references = self._program.references()
        except Exception as wrong:
            raise _cannot_compile(str(wrong)) from wrong
        bound = {name for pair in BOUND.findall(source) for name in pair}
        self.names = tuple(sorted(set(references["variables"]) & allowed))
        unknown = set(references["variables"]) - allowed - bound
        if unknown:
            known = ", ".join(sorted(allowed))
            raise CannotCompile(f"“{min(unknown)}” is not known here; known are {known}")

    def evaluate(self, facts: Mapping[str, Any]) -> Any:
        """The value over `facts`. Raises CannotEvaluate, and nothing else."""
        used = {name: facts[name] for name in self.names if name in facts}
        if self._loops and sum(map(_count, used.values())) > LOOP_FACTS_MAX:
            raise CannotEvaluate(f"too much to loop over: {self.source}")
        try:
            return self._program.execute(used)
        except Exception as wrong:
            reason = str(wrong).split("\n", 1)[0][:200]
            raise CannotEvaluate(f"{self.source}: {type(wrong).__name__} {reason}") from wrong
        except BaseException as wrong:
            if type(wrong).__name__ == "PanicException":  # Rust's, which is no Exception
                raise CannotEvaluate(f"{self.source}: the evaluator gave up") from wrong
            raise

    def __repr__(self) -> str:
        return f"<Expression {self.source!r}>"


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_count, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(_count, value))
    return 1


def _check_cost(source: str) -> int:
    """The number of loops. Raises CannotCompile where the text could cost too much."""
    if len(source) > EXPRESSION_CHARACTERS_MAX:
        raise CannotCompile(f"longer than {EXPRESSION_CHARACTERS_MAX} characters")
    bare = STRINGS.sub(lambda found: " " * len(found[0]), source)
    hidden = OTHER_QUOTES.search(bare) or OTHER_QUOTES.search(source)
    if hidden and (hidden.group() != "//" or "//" in bare):
        raise CannotCompile("raw and triple-quoted strings and comments are not read")
    open_brackets: list[bool] = []
    loops = 0
    for place, character in enumerate(bare):
        if character in "([{":
            loop = character == "(" and LOOP.search(bare[:place]) is not None
            if loop and True in open_brackets:
                raise CannotCompile("a loop within a loop could take for ever", 1, place + 1)
            open_brackets.append(loop)
            loops += loop
            if len(open_brackets) > NESTING_MAX:
                raise CannotCompile(f"more than {NESTING_MAX} brackets deep", 1, place + 1)
        elif character in ")]}" and open_brackets:
            open_brackets.pop()
    if loops > LOOPS_MAX:
        raise CannotCompile(f"more than {LOOPS_MAX} loops")
    return loops


def _cannot_compile(message: str) -> CannotCompile:
    found = PLACE.search(message)
    if found is None:
        return CannotCompile(message.split("\n", 1)[0][:200])
    short = found[3].split(" expecting ", 1)[0]
    return CannotCompile(short, int(found[1]), int(found[2]))
