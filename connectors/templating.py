"""Filling in the templates of a manifest: `{args.amount}`, `{target.id}`, `{key}`.

A template that is nothing but one placeholder keeps the value's type; inside a longer text the
value is written out. A field whose only placeholder has no value is left out. In a path each value
is percent-encoded, so that it stays one segment. Scheme and host are never templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import UNSET

from connectors.contract import Call, Refused

_PLACEHOLDER = re.compile(r"\{([a-z_]+(?:\.[A-Za-z0-9_@-]+)*)\}")
ROOTS = frozenset(
    {
        "args",
        "target",
        "key",
        "before",
        "expected",
        "observed",
        "settings",
        "reason",
        "money",
        "origin",
    }
)


class Missing(Refused):
    """We stopped because a value that the request cannot do without was not recorded."""


def facts_of(call: Call) -> dict[str, Any]:
    """What placeholders may speak of: nothing secret."""
    observed = call.observed
    return {
        "args": call.args,
        "target": {"type": call.target.type, "id": call.target.id},
        "key": call.key,
        "before": call.before,
        "expected": call.expected,
        "observed": {"version": observed.version, "state": observed.state} if observed else None,
        "settings": call.connection.settings.values,
        "reason": call.reason,
        "origin": origin(call.connection.settings.base_url),
    }


def origin(base_url: str) -> str:
    """Scheme, host and port, as the `Origin` header of a browser would say."""
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc}"


def filled(template: Any, facts: Mapping[str, Any]) -> Any:
    """The template with its values; UNSET where a lone placeholder has none."""
    if isinstance(template, str):
        return _text(template, facts)
    if isinstance(template, Mapping):
        made = {str(name): filled(inner, facts) for name, inner in template.items()}
        return {name: value for name, value in made.items() if value is not UNSET}
    if isinstance(template, list):
        return [value for inner in template if (value := filled(inner, facts)) is not UNSET]
    return template


def path(template: str, facts: Mapping[str, Any]) -> str:
    """A path and query with its values encoded; raises Missing, or Refused for `.` and `..`."""

    def encoded(match: re.Match[str]) -> str:
        value = looked_up(facts, match[1])
        if value is None or value is UNSET or value == "":
            raise Missing(f"{match[1]} is not known, and the request cannot do without it.")
        if value in {".", ".."}:
            raise Refused(f"{match[1]} is not a name that can stand in a path.")
        return quote(_written(value), safe="")

    return _PLACEHOLDER.sub(encoded, template)


def looked_up(facts: Any, dotted: str) -> Any:
    """The value at a dotted path; UNSET where there is none."""
    value = facts
    for name in dotted.split("."):
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return UNSET
    return value


def placeholders(template: Any) -> Iterator[str]:
    """The names that a template speaks of, for checking a manifest at start."""
    if isinstance(template, str):
        yield from (match[1] for match in _PLACEHOLDER.finditer(template))
    elif isinstance(template, Mapping):
        for inner in template.values():
            yield from placeholders(inner)
    elif isinstance(template, list):
        for inner in template:
            yield from placeholders(inner)


def _text(template: str, facts: Mapping[str, Any]) -> Any:
    whole = _PLACEHOLDER.fullmatch(template)
    if whole:
        value = looked_up(facts, whole[1])
        return UNSET if value is None else value

    def value_of(match: re.Match[str]) -> str:
        value = looked_up(facts, match[1])
        return "" if value is None or value is UNSET else _written(value)

    return _PLACEHOLDER.sub(value_of, template)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
