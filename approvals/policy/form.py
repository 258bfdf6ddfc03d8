"""The form by which a document is read: values out of it, every mistake kept with its place."""

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from typing import Any, TypeVar

from approvals.policy import document
from approvals.policy.conditions import Condition
from approvals.policy.expressions import CannotCompile, Expression
from approvals.policy.reading import LocatedDocument, Mistake, Path, spelled
from connectors.normalization import UNKEEPABLE

DURATION = re.compile(r"(\d{1,6})\s*(s|m|h|d)")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


Compiled = TypeVar("Compiled", Expression, Condition)


class Form:
    """Takes values out of a document; what does not fit becomes a problem and reads as missing."""

    def __init__(self, text: LocatedDocument) -> None:
        self._text = text
        self.problems: list[Mistake] = []
        self.problems_of_new: list[Mistake] = []
        """What is refused of a new document, and read carefully of one that is kept."""

    def wrong(self, path: Path, message: str) -> None:
        self.problems.append(self._text.problem(path, message, spelled(path)))

    def wrong_of_new(self, path: Path, message: str) -> None:
        """A mistake that keeps a document from being saved; one that is in force goes on."""
        self.problems_of_new.append(self._text.problem(path, message, spelled(path)))

    def keepable(self, value: Any, path: Path) -> None:
        """No text and no number in it that neither JSON nor the database can hold."""
        if isinstance(value, dict):
            for name, inner in value.items():
                self.keepable(name, (*path, name))
                self.keepable(inner, (*path, name))
        elif isinstance(value, list):
            for place, inner in enumerate(value):
                self.keepable(inner, (*path, place))
        elif isinstance(value, str) and UNKEEPABLE.search(value):
            self.wrong(path, "a character stands here that cannot be kept (NUL, or half a pair)")
        elif isinstance(value, float) and not isfinite(value):
            self.wrong(path, "this number is too large, or none")

    def mapping(self, value: Any, path: Path, known: Sequence[str] | None = None) -> dict[str, Any]:
        """The object at `path`; names not in `known` are mistakes, mostly typed ones."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.wrong(path, "an object is wanted here")
            return {}
        for name in value if known is not None else ():
            if name not in (known or ()):
                near = difflib.get_close_matches(name, known or (), 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                self.wrong((*path, name), f"“{name}” is not known here{hint}")
        return value

    def by_glob(self, value: Any, path: Path) -> Iterator[tuple[str, Any, Path]]:
        """Each glob of the object at `path` with what it holds, and where that stands."""
        for glob, given in self.mapping(value, path).items():
            at = (*path, glob)
            if mistake := document.mistake(glob):
                self.wrong(at, mistake)
            elif document.OF_PATTERNS.search(glob):
                words = "a glob has * and ? alone: write a rule for each tool; ? is any one sign"
                self.wrong_of_new(at, words)
            yield glob, given, at

    def choice(self, value: Any, path: Path, choices: Sequence[str]) -> Any:
        """One of `choices`, whatever its case; None if missing."""
        if value is None:
            return None
        for one in choices:
            if isinstance(value, str) and value.lower() == one.lower():
                return one
        self.wrong(path, f"one of {', '.join(choices)} is wanted here, not {value!r}")
        return None

    def text(self, value: Any, path: Path, characters_max: int = 400) -> str:
        if value is None:
            return ""
        if not isinstance(value, str):
            self.wrong(path, "a text is wanted here")
        elif len(value) > characters_max:
            self.wrong(path, f"longer than {characters_max} characters")
        else:
            return value
        return ""

    def claim(self, value: Any, path: Path) -> bool | None:
        if value is None or isinstance(value, bool):
            return value
        self.wrong(path, "true or false is wanted here")
        return None

    def number(self, value: Any, path: Path, least: int, most: int) -> int | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.wrong(path, f"a whole number from {least} to {most} is wanted here")
            return None
        return value

    def seconds(
        self, value: Any, path: Path, least: int = 1, most: int = 400 * 86400
    ) -> int | None:
        """A duration such as "30m", "24h" or "90d", in seconds."""
        if value is None:
            return None
        found = DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None:
            self.wrong(path, "a duration such as 30s, 15m, 24h or 90d is wanted here")
            return None
        seconds = int(found[1]) * SECONDS[found[2]]
        if not least <= seconds <= most:
            self.wrong(path, f"between {least} seconds and {most // 86400} days are wanted here")
            return None
        return seconds

    def each(
        self, value: Any, path: Path, read: Callable[[Any, Path], Any], most: int
    ) -> list[Any]:
        """A list, each item through `read`; items that read as None are left out."""
        if value is None:
            return []
        if not isinstance(value, list):
            self.wrong(path, "a list is wanted here")
            return []
        if len(value) > most:
            self.wrong(path, f"more than {most} entries")
            return []
        read_ones = [read(item, (*path, place)) for place, item in enumerate(value)]
        return [item for item in read_ones if item is not None]

    def expression(self, value: Any, path: Path, allowed: frozenset[str]) -> Expression | None:
        return self._compiled(Expression, value, path, allowed)

    def condition(self, value: Any, path: Path, allowed: frozenset[str]) -> Condition | None:
        return self._compiled(Condition, value, path, allowed)

    def _compiled(
        self, kind: type[Compiled], value: Any, path: Path, allowed: frozenset[str]
    ) -> Compiled | None:
        if value is None:
            return None
        if not isinstance(value, str):
            self.wrong(path, "a CEL expression is wanted here, as a text")
            return None
        try:
            read = kind(value, allowed)
        except CannotCompile as wrong:
            self.wrong(path, _at(wrong))
            return None
        try:
            read.check_functions()
        except CannotCompile as wrong:
            self.wrong_of_new(path, _at(wrong))
        return read


def one_or_many(given: Any, at: Path) -> list[tuple[Any, Path]]:
    """What stands alone or in a list, each with its place."""
    if isinstance(given, list):
        return [(one, (*at, place)) for place, one in enumerate(given)]
    return [(given, at)]


def _at(wrong: CannotCompile) -> str:
    return f"at {wrong.line}:{wrong.column} of the expression: {wrong}"
