"""How the effects of a tool are undone, one twin as the fields of a form, and back; as with a rule
(approvals/rules.py) what nobody changed keeps its spelling.

An argument that is an object or a list has no line; it stays as the document has it.
"""

from collections.abc import Mapping
from typing import Any

from approvals.rules import as_text, lines_of, merged, pairs_of, put, typed, without_line

FIELDS = {
    "target": "target",
    "connection": "connection",
    "operation": "operation",
    "args": "args",
    "reversibility": "reversibility",
    "words": "words",
    "probe_connection": "probe.connection",
    "probe_operation": "probe.operation",
    "probe_args": "probe.args",
}
PLAIN = ("target", "connection", "operation", "reversibility", "words")
PROBE = "probe"

Entry = Mapping[str, Any]


def fields_of(entry: Entry) -> dict[str, str]:
    """What the fields say of a twin, each as a text; arguments are `name: expression` a line."""
    probe = entry.get(PROBE)
    asked = probe if isinstance(probe, dict) else {}
    return {
        **{name: as_text(entry.get(name)) for name in PLAIN},
        "args": lines_of(entry.get("args")),
        "probe_connection": as_text(asked.get("connection")),
        "probe_operation": as_text(asked.get("operation")),
        "probe_args": lines_of(asked.get("args")),
    }


def entry_of(old: Entry, said: Mapping[str, Any]) -> dict[str, Any]:
    """The twin that the fields say, where `old` stood."""
    now, changed = typed(fields_of(old), said, FIELDS)
    new = dict(old)
    for name in PLAIN:
        if name in changed:
            put(new, name, now[name])
    if "args" in changed:
        put(new, "args", _args(old.get("args"), now["args"]))
    inside: dict[str, Any] = {}
    asked = old.get(PROBE)
    for name in ("probe_connection", "probe_operation"):
        if name in changed:
            inside[name.removeprefix("probe_")] = now[name]
    if "probe_args" in changed:
        given = asked.get("args") if isinstance(asked, dict) else None
        inside["args"] = _args(given, now["probe_args"])
    if inside:
        put(new, PROBE, merged(asked, inside) or None)
    return new


def _args(old: Any, lines: str) -> dict[str, Any] | None:
    return without_line(old) | pairs_of(lines) or None
