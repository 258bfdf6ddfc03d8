"""How each call of an approval is shown: by its kind, and with nothing left out.

Money stands large, a mail stands as its recipient will see it, a calendar entry as an entry, a
request with its line first, and fields that are written as they are now and as they will be. Below
stands every argument, and the raw call is one key away. And what became of an approval, in one
sentence: no more than is known of its call.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from approvals import deciders, grants
from approvals.argument_fields import Path, as_text, leaves_of, spelled
from approvals.models import Approval, ApprovalState, SubjectKind
from approvals.policy import CannotEvaluate, Policy
from approvals.policy.expressions import Expression
from connectors.contract import Money
from ledger.fold.actions import NOT_AS_APPROVED
from ledger.models import ActionState
from workspaces import clock, formatting

HIDDEN = [
    {"name": "Payload", "value": "hidden: seeing it needs approve, recover or view_sensitive"}
]
ABOVE = "(the text above)"
FIELD_KINDS = ("row", "calendar")
# How tools name the parts of a mail and of a calendar entry; the first is how a card names it.
LETTER = {
    "From": ("from", "sender"),
    "To": ("to", "recipients", "recipient"),
    "Cc": ("cc",),
    "Bcc": ("bcc",),
    "Reply to": ("reply_to", "reply-to"),
    "Subject": ("subject",),
}
LETTER_TEXT = ("text", "body", "message", "content", "html")
ENTRY = {
    "What": ("summary", "title", "name"),
    "Where": ("location", "place", "where"),
    "Who": ("attendees", "invited", "participants", "guests"),
}
STARTS, ENDS = ("start", "dtstart", "begin", "starts_at"), ("end", "dtend", "ends_at")
ADDRESSES = ("url", "path", "endpoint")


def calls(approval: Approval, *, sees: bool) -> list[dict[str, Any]]:
    """Every call in order; nothing is left out before a decision."""
    found = []
    for place, facts in enumerate(approval.calls):
        shown = approval.previews[place] if place < len(approval.previews) else {}
        words = (facts["operation"], facts.get("target_type", ""), facts.get("target_id", ""))
        common = {
            "number": place + 1,
            "title": shown.get("title") or " ".join(formatting.named(one) for one in words if one),
            "reversibility": shown.get("reversibility", ""),
            "warnings": shown.get("warnings") or [],
            "held": True,
        }
        payload = _payload(facts, shown) if sees else {"facts": HIDDEN}
        found.append(common | payload)
    return found


def _payload(facts: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, Any]:
    """What only those see who may see payloads."""
    named = {name.lower(): value for name, value in [*_args(facts), *shown.get("rows", [])]}
    kind, money = shown.get("kind", ""), shown.get("money")
    letter = _letter(named) if kind == "mail" else None
    recipients = ", ".join(shown.get("recipients") or [])
    return {
        "amount": formatting.money(money["amount_minor"], money["currency"]) if money else "",
        "amount_note": f"to {recipients}" if money and recipients else "",
        "facts": list(_facts(facts, shown, named, letter)),
        "letter": letter,
        "entry": _entry(named) if kind == "calendar" else [],
        **_diff(shown),
        "was_words": "as the agent saw it" if shown.get("diff_is_reported") else "now",
        "arguments": list(_arguments(facts, shown, letter)),
        "raw": json.dumps(facts, indent=2, ensure_ascii=False, sort_keys=True),
    }


def _facts(
    facts: Mapping[str, Any],
    shown: Mapping[str, Any],
    named: Mapping[str, Any],
    letter: Mapping[str, Any] | None,
) -> Iterator[dict[str, Any]]:
    by = (
        f"{facts['connection']}.{facts['operation']}" if facts["connection"] else facts["operation"]
    )
    yield {"name": "Call", "value": by, "mono": True}
    targets = _targets(facts)
    for target in targets:
        yield {"name": "On", "value": target, "mono": True}
    if shown.get("kind") == "http" and (line := _request_line(named)):
        yield {"name": "Request", "value": line, "mono": True}
    told, texts = letter["names"] if letter else (), _texts(facts)
    for name, value in shown.get("rows", []):
        if name.lower() not in told and not _stands_above(name, value, targets, shown):
            is_text = isinstance(value, str) and (name, value) in texts
            yield {"name": name, "value": formatting.value_text(value) if is_text else value}
    if shown.get("recipients") and not letter:
        yield {"name": "Reaches", "value": ", ".join(shown["recipients"])}
    if not shown.get("rows") and "args" not in shown:
        for name, value in _args(facts):
            yield {"name": name, "value": formatting.value_text(value)}


def _texts(facts: Mapping[str, Any]) -> set[tuple[str, str]]:
    """The arguments that are texts, each with its name."""
    leaves = _leaves(facts.get("args"))
    return {(spelled(path) or "value", leaf) for path, leaf in leaves if isinstance(leaf, str)}


def _arguments(
    facts: Mapping[str, Any], shown: Mapping[str, Any], letter: Mapping[str, Any] | None
) -> Iterator[dict[str, str]]:
    """Every argument as it is sent; beside the one that says how much it moves, as money."""
    rows, money, texts = shown.get("args", []), shown.get("money"), _texts(facts)
    of_money = sum_among(dict(rows), money and money["amount_minor"])
    for name, text in rows:
        above = letter and text == letter["text"]
        note = formatting.money(money["amount_minor"], money["currency"]) if money else ""
        as_meant = formatting.value_text(text) if (name, text) in texts else text
        yield {
            "name": name,
            "value": ABOVE if above else as_meant,
            "note": note if name == of_money else "",
        }


def sum_among(texts: Mapping[str, str], minor: int | None) -> str:
    """The one argument that is the sum which a call moves, by its name; empty where none or more
    than one is, since then it could as well be a number of something else.
    """
    found = [name for name, text in texts.items() if text == str(minor)]
    return found[0] if minor is not None and len(found) == 1 else ""


def sum_named(args: Any, money: Money) -> str:
    """The last part of that argument's name (`amount` of `charge.amount`): what snapshots call it,
    where the call gives its target that field.
    """
    texts = {".".join(map(str, path)): as_text(value) for path, value in leaves_of(args)}
    return sum_among(texts, money.amount_minor).rpartition(".")[2]


def money_beside(value: Any, currency: Any) -> str:
    """`€95.00`, of a whole number of the smallest unit of a currency; empty of anything else."""
    return str(Money.of(value, currency) or "")


def _stands_above(name: str, value: str, targets: Sequence[str], shown: Mapping[str, Any]) -> bool:
    """Whether the card says this row already: the target by its name, and money large."""
    return (name == "On" and value in targets) or (name == "Amount" and bool(shown.get("money")))


def _targets(facts: Mapping[str, Any]) -> list[str]:
    """Every target, each once; a plan's call has one, a tool's may have many."""
    found = [f"{one['type']} {one['id']}" for one in facts.get("targets") or []]
    own = f"{facts.get('target_type', '')} {facts.get('target_id', '')}".strip()
    return [formatting.one_line(one) for one in dict.fromkeys([*([own] if own else []), *found])]


def _args(facts: Mapping[str, Any]) -> list[tuple[str, Any]]:
    args = facts.get("args")
    if args is None:
        return []
    return list(args.items()) if isinstance(args, dict) else [("arguments", args)]


def _listed(value: Any) -> str:
    """A list of texts as people write it; anything else as it is."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return as_text(value)


def _named(named: Mapping[str, Any], names: Sequence[str]) -> tuple[str, str]:
    """The first of these names that has a value, and the value; two empty texts where none has."""
    found = ((one, _listed(named[one])) for one in names if named.get(one) not in (None, "", []))
    return next(found, ("", ""))


def _first(named: Mapping[str, Any], names: Sequence[str]) -> str:
    return _named(named, names)[1]


def _letter(named: Mapping[str, Any]) -> dict[str, Any] | None:
    """The mail as its recipient will see it; None where it cannot be told what its text is."""
    used, text = _named(named, LETTER_TEXT)
    if not text:
        return None
    head = [(name, *_named(named, names)) for name, names in LETTER.items()]
    return {
        "head": [{"name": name, "value": value} for name, _, value in head if value],
        "text": text,
        "names": {used, *(name for _, name, _ in head)},
    }


def _entry(named: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calendar entry, its time in words; exact moments stand among the arguments."""
    rows = [(name, _first(named, names)) for name, names in ENTRY.items()]
    rows.insert(1, ("When", _when(_first(named, STARTS), _first(named, ENDS))))
    return [{"name": name, "value": value} for name, value in rows if value]


def _when(start: str, end: str) -> str:
    """“Tue 1 Dec 2026 10:00 – 11:00 +01:00”; as it was written, where it is no moment."""
    try:
        begins, ends = datetime.fromisoformat(start), datetime.fromisoformat(end or start)
    except ValueError:
        return " – ".join(one for one in (start, end) if one)
    day = f"{begins:%a} {begins.day} {begins:%b %Y %H:%M}"
    zone = f" {start[-6:]}" if begins.tzinfo and start[-6:-5] in "+-" else ""
    zone = zone or (" UTC" if begins.tzinfo else "")
    if ends == begins:
        return day + zone
    if ends.date() == begins.date() and ends.utcoffset() == begins.utcoffset():
        return f"{day} – {ends:%H:%M}{zone}"
    return f"{day}{zone} – {ends:%a} {ends.day} {ends:%b %Y %H:%M}"


def _request_line(named: Mapping[str, Any]) -> str:
    """“DELETE /repos/acme/web” of a tool whose arguments are a request."""
    method, address = _first(named, ("method", "verb")), _first(named, ADDRESSES)
    return f"{method.upper()} {address}" if method and address else ""


def _diff(shown: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """As it is now, and as it will be, field by field; of calls that write fields. Apart from those
    that change, the fields that are written with the value that they have.
    """
    if shown.get("kind", "row") not in FIELD_KINDS:
        return {"diff": [], "same": []}
    wanted = shown.get("must_be_true") or {}
    goes = wanted.get("exists") is False
    found = [
        (
            row["field"],
            row.get("agent_wrote") if row.get("now") is None else row["now"],
            row.get("was"),
            row.get("now"),
        )
        for row in shown.get("diff") or []
    ]
    named = {field for field, *_ in found}
    found += [
        (field, value, value, value)
        for field, value in (wanted.get("fields") or {}).items()
        if field not in named
    ]
    rows: dict[str, list[dict[str, Any]]] = {"diff": [], "same": []}
    for field, now, becomes, truly in found:
        is_same = not goes and _written(truly) == _written(becomes)
        kind = "removed" if goes else "same" if is_same else "changed"
        row = {"field": field, "was": now, "now": becomes, "kind": kind}
        rows["same" if is_same else "diff"].append(row)
    return rows


def _written(value: Any) -> str:
    """As JSON says it: to Python 1 is True, and a card would call that change none."""
    return json.dumps(value, sort_keys=True)


# Previews.

SHOWN_CHARACTERS_MAX = 1_000_000
"""An event is small, but a long name is repeated in the path of each value below it."""

NOT_TOLD = "(not told)"


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
    facts = _preview_facts(tool, args, targets)
    title = _preview_text(manifest.get("title"), facts) or _target_named(
        known.title if known else "", targets
    )
    title = formatting.one_line(title) or _plain_title(tool, targets)
    rows = [
        [label, _preview_text(one, facts) or NOT_TOLD]
        for label, one in manifest.get("rows", {}).items()
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
    return _money(manifest, _preview_facts(tool, args, targets))


def recipients(
    manifest: Mapping[str, Any], *, tool: str, args: Any, targets: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Whom a call reaches by its tool's manifest."""
    return _recipients(manifest.get("recipients"), _preview_facts(tool, args, targets))


def _preview_facts(tool: str, args: Any, targets: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = dict(targets[0]) if targets else {}
    return {"tool": tool, "args": args, "targets": list(targets), "target": first}


def _target_named(title: str, targets: Sequence[Mapping[str, Any]]) -> str:
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
    for path, leaf in _leaves(value):
        if not path and leaf is None:  # it has no arguments
            break
        name, text = spelled(path) or "value", as_text(leaf)
        characters += len(name) + len(text)
        if characters > SHOWN_CHARACTERS_MAX:
            raise TooLargeToShow("Its arguments are too large to be shown to anybody.")
        found.append((name, text))
    return found


def _leaves(value: Any) -> Iterable[tuple[Path, Any]]:
    return leaves_of(value) if value and isinstance(value, dict | list) else [((), value)]


def _value(one: Any, facts: Mapping[str, Any]) -> Any:
    if not isinstance(one, Expression):
        return None
    try:
        return one.evaluate(facts)
    except CannotEvaluate:
        return None


def _preview_text(one: Any, facts: Mapping[str, Any]) -> str:
    value = _value(one, facts)
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return "" if value is None else as_text(value)


def _money(manifest: Mapping[str, Any], facts: Mapping[str, Any]) -> Money | None:
    return Money.of(_value(manifest.get("amount"), facts), _value(manifest.get("currency"), facts))


def _recipients(one: Any, facts: Mapping[str, Any]) -> list[str]:
    value = _value(one, facts)
    many: Sequence[Any] = value if isinstance(value, list) else [value]
    return [item for item in many if isinstance(item, str)]


# What became of it.


def call_state(approval: Approval) -> str:
    """How the try ended that has used the grant, as far as that is known; empty where none has. A
    later try of the call was asked for anew, and how that went says nothing of this one.
    """
    action = approval.action if approval.state == ApprovalState.USED else None
    if action is None or is_of_current_try(approval):
        return action.state if action else ""
    used_it = action.attempts.filter(grants.known_without_effect(), attempt=approval.used_by)
    return ActionState.FAILED if used_it.exists() else ActionState.UNKNOWN


def is_of_current_try(approval: Approval) -> bool:
    """Whether what is known of its call is known of the try that it let pass."""
    action = approval.action
    return action is not None and approval.used_by in {"", action.current_attempt}


def _what_ran(approval: Approval) -> str:
    """How its call went, as far as that is known; of a plan its case says it."""
    if approval.subject_kind == SubjectKind.PLAN:
        return ". The plan was let go; how far it came stands on its case."
    action, state = approval.action, call_state(approval)
    if action is None:
        return "."
    if state == ActionState.SUCCEEDED and NOT_AS_APPROVED in action.flags:
        return ", and the agent says that it ran with other arguments than were approved."
    told: dict[str, str] = {
        ActionState.SUCCEEDED: ". What was approved is what ran, once.",
        ActionState.FAILED: ". The call failed, and nothing happened.",
        ActionState.UNKNOWN: ". Nobody knows whether the call took effect.",
        ActionState.RUNNING: ". The call has begun; how it ended was not told yet.",
    }
    return told.get(state, ". The call has not begun.")


def ended(approval: Approval) -> str:
    """What became of it, in one sentence; empty while people are asked."""
    reason = f": {approval.closing_reason}" if approval.closing_reason else ""
    by = f" by {approval.closed_by}" if approval.closed_by else " by the desk"
    if approval.subject_kind == SubjectKind.GRANT and not approval.closed_by_id:
        uses = grants.drawn_words(approval)
        if approval.state == ApprovalState.GRANTED:
            return f"Granted: {uses}."
        if approval.state == ApprovalState.USED:
            return f"Its time is over: {uses}."
    if approval.state == ApprovalState.EXPIRED:
        return f"Expired: {deciders.why_expired(approval)}."
    return {
        ApprovalState.WAITING: "",
        ApprovalState.GRANTED: "Approved for later, and not yet used."
        if grants.is_early(approval, clock.now())
        else "Approved, and not yet used.",
        ApprovalState.USED: f"Approved, and used{_what_ran(approval)}",
        ApprovalState.REJECTED: f"Rejected{by}{reason}",
        ApprovalState.WITHDRAWN: f"Withdrawn{by}{reason}",
    }[ApprovalState(approval.state)]
