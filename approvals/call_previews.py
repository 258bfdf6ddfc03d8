"""What exactly will happen, from the structured arguments: by the tool's manifest, or plainly.

A manifest stands in the policy's catalogue and is written by the workspace, never by an agent.
Every argument is shown in any case and in full: an event is small enough, and what is cut off is
not decided upon. What an agent worded is shown elsewhere, apart.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from approvals.policy import CannotEvaluate, Policy
from approvals.policy.expressions import Expression
from connectors.contract import Money
from workspaces import formatting

SHOWN_CHARACTERS_MAX = 1_000_000
"""An event is small, but a long name is repeated in the path of each value below it."""

NOT_TOLD = "(not told)"
CURRENCY = re.compile("[A-Z]{3}")  # ISO 4217


def preview(
    policy: Policy,
    *,
    tool: str,
    args: Any,
    targets: Sequence[Mapping[str, Any]],
    before: Any = None,
) -> tuple[dict[str, Any], Money | None]:
    """The preview of a call, shaped as connectors shape theirs, and the money it moves.

    `before` is the snapshot that the call came with; of a call that writes a row it shows what the
    fields are now.
    """
    known = policy.tool(tool)
    manifest: Mapping[str, Any] = known.preview if known else {}
    facts = _facts(tool, args, targets)
    title = _text(manifest.get("title"), facts) or _named(known.title if known else "", targets)
    title = formatting.one_line(title) or _plain_title(tool, targets)
    rows = [
        [label, _text(one, facts) or NOT_TOLD] for label, one in manifest.get("rows", {}).items()
    ]
    moves = _money(manifest, facts)
    shown = {
        "kind": manifest.get("kind") or "http",
        "title": title,
        "rows": rows,
        "args": [[name, text] for name, text in flat(args)],
        "will_send": {"tool": tool, "args": args, "targets": list(targets)},
        "must_be_true": {},
        "diff": written(before, args) if manifest.get("kind") == "row" else [],
        "diff_is_reported": True,
        "money": {"amount_minor": moves.amount_minor, "currency": moves.currency}
        if moves
        else None,
        "recipients": _recipients(manifest.get("recipients"), facts),
    }
    return shown, moves


def written(before: Any, args: Any) -> list[dict[str, Any]]:
    """Every field that a call would write, beside what it is now by the snapshot it came with: the
    snapshot is the agent's word, so what it makes unchanged is shown, too.

    Those are the arguments, or the one object among them, that name fields of the snapshot.
    """
    if isinstance(before, list) and len(before) == 1:
        before = before[0]
    if not isinstance(before, Mapping) or not isinstance(args, Mapping):
        return []
    nested = [one for one in args.values() if isinstance(one, Mapping)]
    fields = max(nested, key=lambda one: len(one.keys() & before.keys()), default=args)
    if not fields.keys() & before.keys():
        fields = {name: value for name, value in args.items() if name in before}
    return [
        {"field": str(name), "was": value, "agent_wrote": None, "now": before.get(name)}
        for name, value in fields.items()
    ]


def money(
    manifest: Mapping[str, Any], *, tool: str, args: Any, targets: Sequence[Mapping[str, Any]]
) -> Money | None:
    """What a call moves by its tool's manifest, of a call in the ledger as of one to be made."""
    return _money(manifest, _facts(tool, args, targets))


def _facts(tool: str, args: Any, targets: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = dict(targets[0]) if targets else {}
    return {"tool": tool, "args": args, "targets": list(targets), "target": first}


def _named(title: str, targets: Sequence[Mapping[str, Any]]) -> str:
    """A title that is the same for every call, and what this one is called on."""
    if not title or not targets:
        return title
    more = f" and {len(targets) - 1} more" if len(targets) > 1 else ""
    return f"{title}: {formatting.named(targets[0]['id'])}{more}"


def target_words(target: Mapping[str, Any]) -> str:
    """`reservation XEHM4B`, of a target as an agent told it."""
    return f"{formatting.named(target['type'])} {formatting.named(target['id'])}"


def _plain_title(tool: str, targets: Sequence[Mapping[str, Any]]) -> str:
    named = ", ".join(target_words(target) for target in targets[:3])
    more = f" and {len(targets) - 3} more" if len(targets) > 3 else ""  # noqa: PLR2004
    called = formatting.named(tool)
    return f"{called} on {named}{more}" if named else called


class TooLargeToShow(Exception):
    """We stopped because a person could not be shown all of it: the call is denied."""


def flat(value: Any) -> list[tuple[str, str]]:
    """Structured arguments as rows of path and text, nothing left out; raises TooLargeToShow."""
    found, characters = [], 0
    for path, text in _leaves(value, ""):
        characters += len(path) + len(text)
        if characters > SHOWN_CHARACTERS_MAX:
            raise TooLargeToShow("Its arguments are too large to be shown to anybody.")
        found.append((path, text))
    return found


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and value:
        for place, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{place}]")
    elif value is not None or path:
        yield path or "value", _written(value)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _value(one: Any, facts: Mapping[str, Any]) -> Any:
    if not isinstance(one, Expression):
        return None
    try:
        return one.evaluate(facts)
    except CannotEvaluate:
        return None


def _text(one: Any, facts: Mapping[str, Any]) -> str:
    value = _value(one, facts)
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return "" if value is None else _written(value)


def _money(manifest: Mapping[str, Any], facts: Mapping[str, Any]) -> Money | None:
    amount = _value(manifest.get("amount"), facts)
    currency = _value(manifest.get("currency"), facts)
    whole = isinstance(amount, int) or (isinstance(amount, float) and amount.is_integer())
    if not whole or isinstance(amount, bool) or not isinstance(currency, str):
        return None
    code = currency.upper()
    # Cut to three letters, USDT would be shown to people as USD.
    return Money(int(amount), code) if CURRENCY.fullmatch(code) else None


def _recipients(one: Any, facts: Mapping[str, Any]) -> list[str]:
    value = _value(one, facts)
    many: Sequence[Any] = value if isinstance(value, list) else [value]
    return [item for item in many if isinstance(item, str)]
