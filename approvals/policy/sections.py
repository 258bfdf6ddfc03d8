"""The sections `hours` and `lists` of a document, and whether what rules ask of lists is there."""

import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any
from zoneinfo import available_timezones

from amends.protocol.vocabulary import glob_matches
from approvals.policy.conditions import IN_LIST, LOOKED_UP
from approvals.policy.decisions import Rule
from approvals.policy.document import DAYS, OF_PATTERNS, Policy, WorkingHours, mistake
from approvals.policy.expressions import at, near
from approvals.policy.form import Form
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
from approvals.policy.reading import Path

CLOSED_MAX = 400
DAY_MINUTES = 24 * 60
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|(24):(00)")


def hours(form: Form, value: Any, path: Path) -> WorkingHours | None:
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


def lists(form: Form, value: Any, path: Path) -> dict[str, DeclaredList]:
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


def check(form: Form, rules: Iterable[Rule], known: Mapping[str, DeclaredList]) -> None:
    """Each list that a rule names is there."""
    for rule in rules:
        for question in rule.when.lookups if rule.when else ():
            name = question.option("list")
            if question.function != IN_LIST or name in known or rule.when is None:
                continue
            source = rule.when.source
            line, column = at(source, max(0, source.find(f"lists.{name}")) + len("lists."))
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
            if mistake(glob) or OF_PATTERNS.search(glob) or not fits:
                words = f"“{glob}” fits no tool of the catalogue that is read_only without"
                hint = f"reads_untrusted{near(glob, known)}"
                form.wrong_of_new((*rule.path, "when"), f"{words} {hint}")
