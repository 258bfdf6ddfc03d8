"""What exactly will happen, from the structured arguments: by the tool's manifest, or plainly.

A manifest stands in the policy's catalogue and is written by the workspace, never by an agent.
Every argument is shown in any case; what an agent worded is shown elsewhere, apart.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from approvals.policy import CannotEvaluate, Policy
from approvals.policy.expressions import Expression
from connectors.contract import Money

ROWS_MAX = 200
VALUE_CHARACTERS_MAX = 4_000
NOT_TOLD = "(not told)"


def preview(
    policy: Policy, *, tool: str, args: Any, targets: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], Money | None]:
    """The preview of a call, shaped as connectors shape theirs, and the money it moves."""
    known = policy.tool(tool)
    manifest: Mapping[str, Any] = known.preview if known else {}
    facts = _facts(tool, args, targets)
    title = _text(manifest.get("title"), facts) or (known.title if known else "")
    title = title or _plain_title(tool, targets)
    rows = [
        [label, _text(one, facts) or NOT_TOLD] for label, one in manifest.get("rows", {}).items()
    ]
    rows += [["On", f"{target['type']} {target['id']}"] for target in targets]
    told = {label for label, _ in rows}
    rows += [[name, text] for name, text in flat(args) if name not in told]
    moves = _money(manifest, facts)
    shown = {
        "kind": manifest.get("kind") or "http",
        "title": title,
        "rows": rows[:ROWS_MAX],
        "will_send": {"tool": tool, "args": args, "targets": list(targets)},
        "must_be_true": {},
        "diff": [],
        "money": {"amount_minor": moves.amount_minor, "currency": moves.currency}
        if moves
        else None,
        "recipients": _recipients(manifest.get("recipients"), facts),
    }
    return shown, moves


def money(
    manifest: Mapping[str, Any], *, tool: str, args: Any, targets: Sequence[Mapping[str, Any]]
) -> Money | None:
    """What a call moves by its tool's manifest, of a call in the ledger as of one to be made."""
    return _money(manifest, _facts(tool, args, targets))


def _facts(tool: str, args: Any, targets: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = dict(targets[0]) if targets else {}
    return {"tool": tool, "args": args, "targets": list(targets), "target": first}


def _plain_title(tool: str, targets: Sequence[Mapping[str, Any]]) -> str:
    named = ", ".join(f"{target['type']} {target['id']}" for target in targets[:3])
    more = f" and {len(targets) - 3} more" if len(targets) > 3 else ""  # noqa: PLR2004
    return f"{tool} on {named}{more}" if named else tool


def flat(value: Any, path: str = "") -> list[tuple[str, str]]:
    """Structured arguments as rows of path and text, nothing left out but by ROWS_MAX."""
    if isinstance(value, Mapping) and value:
        found: list[tuple[str, str]] = []
        for name, inner in value.items():
            found += flat(inner, f"{path}.{name}" if path else str(name))
        return found
    if isinstance(value, list) and value:
        found = []
        for place, inner in enumerate(value):
            found += flat(inner, f"{path}[{place}]")
        return found
    return [] if value is None and not path else [(path or "value", _written(value))]


def _written(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:VALUE_CHARACTERS_MAX]


def _value(one: Any, facts: Mapping[str, Any]) -> Any:
    if not isinstance(one, Expression):
        return None
    try:
        return one.evaluate(facts)
    except CannotEvaluate:
        return None


def _text(one: Any, facts: Mapping[str, Any]) -> str:
    value = _value(one, facts)
    return "" if value is None else _written(value)


def _money(manifest: Mapping[str, Any], facts: Mapping[str, Any]) -> Money | None:
    amount = _value(manifest.get("amount"), facts)
    currency = _value(manifest.get("currency"), facts)
    whole = isinstance(amount, int) or (isinstance(amount, float) and amount.is_integer())
    if not whole or isinstance(amount, bool) or not isinstance(currency, str):
        return None
    return Money(int(amount), currency.upper()[:3])


def _recipients(one: Any, facts: Mapping[str, Any]) -> list[str]:
    value = _value(one, facts)
    many: Sequence[Any] = value if isinstance(value, list) else [value]
    return [item for item in many if isinstance(item, str)]
