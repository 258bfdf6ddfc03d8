"""The form by which a document is read: values out of it, every mistake kept with its place; and by
it the sections `hours` and `lists`, and whether what rules ask of lists and tools is there.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from math import isfinite
from typing import Any, TypeVar
from zoneinfo import available_timezones

from amends.protocol.vocabulary import glob_matches
from approvals.policy import document, expressions
from approvals.policy.conditions import IN_LIST, LOOKED_UP, Condition
from approvals.policy.decisions import Rule
from approvals.policy.document import DAYS, Policy, WorkingHours
from approvals.policy.expressions import CannotCompile, Expression, near
from approvals.policy.named_lists import (
    ENTRY_CHARACTERS_MAX,
    HIDDEN_KINDS,
    KINDS,
    NAME,
    DeclaredList,
    key_of,
    names_of,
    normal,
)
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


# The sections `hours` and `lists`.

CLOSED_MAX = 400
DAY_MINUTES = 24 * 60
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|(24):(00)")


def hours_of(form: Form, value: Any, path: Path) -> WorkingHours | None:
    """The section `hours`: `{zone, days, from, to, closed}`."""
    if value is None:
        return None
    given = form.mapping(value, path, ("zone", "days", "from", "to", "closed"))
    zone = form.text(given.get("zone"), (*path, "zone"), 64) or "UTC"
    if zone not in available_timezones():
        hint = near(zone, available_timezones())
        form.wrong((*path, "zone"), f"“{zone}” is no time zone that is known here{hint}")
        zone = "UTC"
    days = form.each(
        given.get("days"), (*path, "days"), lambda one, at: form.choice(one, at, DAYS), len(DAYS)
    )
    start, end = (_minute(form, given.get(name), (*path, name)) for name in ("from", "to"))
    if start == end:
        form.wrong(path, "“from” and “to” are two times of a day, as 08:00 and 18:00")
    if start >= DAY_MINUTES:
        form.wrong_of_new((*path, "from"), "a day ends at 24:00 and begins at 00:00")
    if given.get("days") == []:
        form.wrong_of_new((*path, "days"), "name the days; left out, they are Monday to Friday")
    closed = form.each(given.get("closed"), (*path, "closed"), lambda one, at: _day(form, one, at),
                       CLOSED_MAX)  # fmt: skip
    return WorkingHours(zone, tuple(days) or DAYS[:5], start, end, frozenset(closed))


def _minute(form: Form, value: Any, at: Path) -> int:
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        form.wrong(at, 'a time of the day such as "08:30" is wanted here, as a text')
        return 0
    hour, minute = (found[1], found[2]) if found[1] else (found[3], found[4])
    return int(hour) * 60 + int(minute)


def _day(form: Form, value: Any, at: Path) -> date | None:
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        form.wrong(at, 'a day such as "2026-12-25" is wanted here, as a text')
        return None


LISTS_MAX = 200
WRITTEN_OUT_MAX = 1_000


def lists_of(form: Form, value: Any, path: Path) -> dict[str, DeclaredList]:
    """The lists by their names: `{kind, words, entries}`, or entries of texts alone."""
    found = {}
    for name, given, here in _each(form, value, path):
        wanted = {"entries": given} if isinstance(given, list) else given
        read = form.mapping(wanted, here, ("kind", "words", "entries"))
        kind = form.choice(read.get("kind"), (*here, "kind"), KINDS) or "text"
        entries_at = here if isinstance(given, list) else (*here, "entries")
        found[name] = DeclaredList(
            name,
            kind,
            form.text(read.get("words"), (*here, "words")),
            frozenset(_entries(form, kind, read.get("entries"), entries_at)),
        )
    return found


def _each(form: Form, value: Any, path: Path) -> Iterable[tuple[str, Any, Path]]:
    given = form.mapping(value, path)
    if len(given) > LISTS_MAX:
        form.wrong(path, f"more than {LISTS_MAX} lists")
    for name, one in given.items():
        if not NAME.fullmatch(name):
            form.wrong((*path, name), "a name has small letters, digits and _, as in payees")
        yield name, one, (*path, name)


def _entries(form: Form, kind: str, value: Any, path: Path) -> list[str]:
    """The keys of entries that stand in the document itself."""
    if value is not None and kind in HIDDEN_KINDS:
        form.wrong(
            path, f"entries of the kind {kind} stand on the page of the list, by their marks"
        )
        return []

    def read(one: Any, here: Path) -> str | None:
        text = form.text(one, here, ENTRY_CHARACTERS_MAX)
        found = normal(kind, text) if text else ""
        if text and not found:
            form.wrong(here, f"this cannot be read as {kind}")
        return key_of(kind, found, None) if found else None

    return form.each(value, path, read, WRITTEN_OUT_MAX)


def check_lists(form: Form, rules: Iterable[Rule], known: Mapping[str, DeclaredList]) -> None:
    """Each list that a rule names is there."""
    for rule in rules:
        for question in rule.when.lookups if rule.when else ():
            name = question.option("list")
            if question.function != IN_LIST or name in known or rule.when is None:
                continue
            source = rule.when.source
            place = max(0, source.find(f"lists.{name}")) + len("lists.")
            line, column = expressions.at(source, place)
            hint = f"{near(name, known)}; known are {names_of(known)}"
            where = f"at {line}:{column} of the expression: "
            form.wrong((*rule.path, "when"), f"{where}there is no list “{name}”{hint}")
        listed = (rule.bounded or {}).get("listed")
        if listed and listed["list"] not in known:
            name = listed["list"]
            hint = f"{near(name, known)}; known are {names_of(known)}"
            form.wrong((*rule.path, "bounded", "listed"), f"there is no list “{name}”{hint}")


def check_tools(form: Form, rules: Iterable[Rule], policy: Policy) -> None:
    """Each glob by which a rule wants a value to be looked up fits a tool of the catalogue that
    does so.
    """
    known = [one.glob for one in policy.tools if policy.is_looking_up(one.glob)]
    for rule in rules:
        asked = [one for one in rule.when.lookups if one.function == LOOKED_UP] if rule.when else ()
        for glob in (glob for one in asked for glob in one.tools):
            fits = policy.is_looking_up(glob) or any(glob_matches(glob, one) for one in known)
            if document.mistake(glob) or document.OF_PATTERNS.search(glob) or not fits:
                words = f"“{glob}” fits no tool of the catalogue that is read_only without"
                hint = f"reads_untrusted{near(glob, known)}"
                form.wrong_of_new((*rule.path, "when"), f"{words} {hint}")
