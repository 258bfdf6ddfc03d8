"""The section `lists` of a document, and whether what rules ask of lists is there."""

from collections.abc import Iterable, Mapping
from typing import Any

from approvals.policy.conditions import IN_LIST
from approvals.policy.decisions import Rule
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
        for question in rule.when.questions if rule.when else ():
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
