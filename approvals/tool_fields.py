"""One tool of the catalogue as the fields of a form, and back; as with a rule
(approvals/rules.py) what nobody changed keeps its spelling.
"""

from collections.abc import Mapping
from typing import Any

from approvals.rules import as_claim, as_text, lines_of, merged, pairs_of, put, typed, without_line

FIELDS = {
    "class": "class",
    "risk": "risk",
    "target": "target",
    "title": "title",
    "untrusted": "reads_untrusted",
    "sensitivity": "sensitivity.tool",
    "sensitive": "sensitivity",
    "preview_kind": "preview.kind",
    "preview_title": "preview.title",
    "preview_amount": "preview.amount",
    "preview_currency": "preview.currency",
    "preview_recipients": "preview.recipients",
    "preview_rows": "preview.rows",
}
PLAIN = ("class", "risk", "target", "title")
PREVIEW = "preview"
LINES = frozenset({"sensitive", "preview_rows"})

Entry = Mapping[str, Any]


def fields_of(entry: Entry) -> dict[str, str]:
    """What the fields say of a tool, each as a text; names with values are `name: value` a line."""
    found = {name: as_text(entry.get(name)) for name in PLAIN}
    found["untrusted"] = as_claim(entry.get("reads_untrusted"))
    level = entry.get("sensitivity")
    of_args = level if isinstance(level, dict) else {}
    found["sensitivity"] = as_text(of_args.get("tool")) if of_args else as_text(level)
    found["sensitive"] = lines_of({name: one for name, one in of_args.items() if name != "tool"})
    preview = entry.get(PREVIEW)
    shown = preview if isinstance(preview, dict) else {}
    for name, path in FIELDS.items():
        if path.startswith(f"{PREVIEW}.") and name not in LINES:
            found[name] = as_text(shown.get(path.partition(".")[2]))
    rows = shown.get("rows")
    return found | {"preview_rows": lines_of(rows)}


def entry_of(old: Entry, said: Mapping[str, Any]) -> dict[str, Any]:
    """The tool that the fields say, where `old` stood."""
    now, changed = typed(fields_of(old), said, FIELDS)
    new = dict(old)
    for name in PLAIN:
        if name in changed:
            put(new, name, now[name])
    if "untrusted" in changed:
        put(new, "reads_untrusted", {"yes": True, "no": False}.get(now["untrusted"]))
    if changed & {"sensitivity", "sensitive"}:
        own = {"tool": now["sensitivity"]} if now["sensitivity"] else {}
        of_args = without_line(old.get("sensitivity")) | pairs_of(now["sensitive"])
        put(new, "sensitivity", {**own, **of_args} if of_args else now["sensitivity"])
    inside: dict[str, Any] = {
        FIELDS[name].partition(".")[2]: pairs_of(now[name]) or None if name in LINES else now[name]
        for name in changed
        if FIELDS[name].startswith(f"{PREVIEW}.")
    }
    if "rows" in inside:
        shown = old.get(PREVIEW)
        others = without_line(shown.get("rows") if isinstance(shown, dict) else None)
        inside["rows"] = others | (inside["rows"] or {}) or None
    if inside:
        put(new, PREVIEW, merged(old.get(PREVIEW), inside) or None)
    return new
