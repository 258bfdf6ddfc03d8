"""What exactly will happen, from the structured arguments: by the tool's manifest, or plainly.

A manifest stands in the policy's catalogue and is written by the workspace, never by an agent.
Every argument is shown in any case; what an agent worded is shown elsewhere, apart.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from approvals.gate.asks import Ask
from approvals.policy import CannotEvaluate, Policy
from approvals.policy.expressions import Expression
from connectors.contract import Money

ROWS_MAX = 200
VALUE_CHARACTERS_MAX = 4_000
NOT_TOLD = "(not told)"


def preview(ask: Ask, policy: Policy) -> tuple[dict[str, Any], Money | None]:
    """The preview of a call, shaped as connectors shape theirs, and the money it moves."""
    tool = policy.tool(ask.tool)
    manifest: Mapping[str, Any] = tool.preview if tool else {}
    facts = {"tool": ask.tool, "args": ask.data.get("args"), "targets": ask.targets}
    facts["target"] = dict(ask.targets[0]) if ask.targets else {}
    title = _text(manifest.get("title"), facts) or (tool.title if tool else "") or _plain_title(ask)
    rows = [
        [label, _text(one, facts) or NOT_TOLD] for label, one in manifest.get("rows", {}).items()
    ]
    rows += [["On", f"{target['type']} {target['id']}"] for target in ask.targets]
    told = {label for label, _ in rows}
    rows += [[name, text] for name, text in flat(ask.data.get("args")) if name not in told]
    moves = _money(manifest, facts)
    shown = {
        "kind": manifest.get("kind") or "http",
        "title": title,
        "rows": rows[:ROWS_MAX],
        "will_send": {"tool": ask.tool, "args": ask.data.get("args"), "targets": ask.targets},
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
    facts: dict[str, Any] = {"tool": tool, "args": args, "targets": list(targets)}
    facts["target"] = dict(targets[0]) if targets else {}
    return _money(manifest, facts)


def _plain_title(ask: Ask) -> str:
    targets = ", ".join(f"{target['type']} {target['id']}" for target in ask.targets[:3])
    more = f" and {len(ask.targets) - 3} more" if len(ask.targets) > 3 else ""  # noqa: PLR2004
    return f"{ask.tool} on {targets}{more}" if targets else ask.tool


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
