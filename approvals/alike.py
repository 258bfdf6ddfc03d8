"""Questions that are alike: the same rules ask about calls of one agent to one tool, or about plans
of one person with the same calls (as a bulk job asks for), with arguments of one shape. They are
looked at side by side and decided each by itself; what stands out among them stands apart.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from statistics import median
from typing import Any

from approvals import awaiting, call_context, call_history, card_context
from approvals.argument_fields import as_text, leaves_of, spelled
from approvals.grants import rules_digest
from approvals.models import Approval, SubjectKind
from connectors.accounts import AS, OVER
from ledger.canonical import canonical_of as canonical
from workspaces import formatting
from workspaces.models import User

LOOKED_AT_MAX = 200
"""Of the questions that wait for somebody so many, those that expire first, are compared."""
CALLS_MAX = 8
"""A plan of more calls than can stand side by side is looked at by itself."""
TIMES_THE_USUAL = 2
FEW = 3
"""Below so many there is no usual amount."""


@dataclass(slots=True)
class GroupedApproval:
    """One question of a group: its values, by the names of its arguments, and what stands out.
    `money` names the argument that says how much it moves: its value is told as money.
    """

    approval: Approval
    values: Mapping[str, str]
    amounts: Mapping[str, Decimal]
    money: str = ""
    apart: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ApprovalGroup:
    """Questions that are alike. `same` are the arguments that none of them differs in, `common`
    what is pointed out of each.
    """

    members: list[GroupedApproval]
    same: dict[str, str]
    differing: list[str]
    common: list[str]


def kind_of(approval: Approval) -> tuple[Any, ...] | None:
    """What is the same of questions that are alike; None of one that stands for itself, as each
    does whose yes is signed.
    """
    is_plan = approval.subject_kind == SubjectKind.PLAN
    if approval.subject_kind == SubjectKind.GRANT or approval.signed:
        return None
    if not 1 <= len(approval.calls) <= (CALLS_MAX if is_plan else 1):
        return None
    paths = tuple(sorted(name for name, _ in _values(approval)))
    targets = [one for call in approval.calls for one in call.get("targets") or []]
    types = tuple(sorted({str(one.get("type")) for one in targets}))
    is_changed = approval.replaces_id is not None
    asker = approval.requested_by_id if is_plan else approval.agent_id
    calls = tuple(operations_of(approval))
    return (approval.subject_kind, asker, calls, rules_digest(approval.rules), paths, types,
            is_changed, _where(approval))  # fmt: skip


def _where(approval: Approval) -> bytes:
    """Where a plan’s calls go, and as whom: those that go elsewhere are not alike."""
    names = ("connection", "connection_digest")
    ways = [[call.get(name, "") for name in names] for call in approval.calls]
    return canonical([ways, approval.subject.get("accounts", {})])


def where_in_words(approval: Approval) -> list[dict[str, str]]:
    """The same for people: over which connections, and of each to which system and as whom, as far
    as the card says it.
    """
    found: dict[str, str] = {}
    for call, shown in zip(approval.calls, approval.previews, strict=False):
        rows = dict(shown.get("rows") or ())
        told = [str(rows[OVER])] if OVER in rows else []
        told += [f"as {rows[AS]}"] if AS in rows else []
        name = str(call.get("connection", ""))
        found.setdefault(name, f"{name}: {', '.join(told)}" if told else name)
    return [{"name": OVER, "value": words} for words in found.values()]


def operations_of(approval: Approval) -> list[str]:
    """What it calls, in its order."""
    return [str(call["operation"]) for call in approval.calls]


def count(approval: Approval, person: User) -> int:
    """How many questions like this one wait for this person; 0 where it is alone."""
    found = _waiting(approval, person)
    return len(found) if len(found) > 1 else 0


def of(approval: Approval, person: User) -> ApprovalGroup | None:
    """The questions like this one that this person may decide now; None where it is alone."""
    found = _waiting(approval, person)
    return _grouped(found) if len(found) > 1 else None


def _waiting(approval: Approval, person: User) -> list[Approval]:
    kind = kind_of(approval)
    if kind is None:
        return []
    waiting = Approval.objects.filter(
        workspace=approval.workspace_id, subject_kind=approval.subject_kind
    ).select_related("workspace", "agent", "requested_by", "action__run")
    if approval.subject_kind == SubjectKind.PLAN:
        waiting = waiting.filter(requested_by=approval.requested_by_id)
    else:
        waiting = waiting.filter(agent=approval.agent_id)
    found = awaiting.among(waiting, person).order_by("expires_at", "pk")[:LOOKED_AT_MAX]
    return [one for one in found if kind_of(one) == kind]


def _grouped(alike: Sequence[Approval]) -> ApprovalGroup:
    members = [_member(one) for one in alike]
    names = list(members[0].values)
    same = {
        name: members[0].values[name]
        for name in names
        if len({one.values.get(name) for one in members}) == 1
    }
    earlier, touched = call_history.earlier_like(alike[0]), call_history.touched_before(alike)
    for member in members:  # what is pointed out of all of them sets none of them apart
        member.apart = [
            *_unusual(member, members),
            *pointed_out(member.approval, earlier, touched),
        ]
    common = [told for told in members[0].apart if all(told in one.apart for one in members)]
    for member in members:
        member.apart = [one for one in member.apart if one not in common]
    return ApprovalGroup(members, same, [name for name in names if name not in same], common)


def pointed_out(
    approval: Approval,
    earlier: Sequence[call_history.EarlierCall],
    touched: call_history.Touched | None = None,
) -> Iterable[str]:
    found = card_context.pointed_out(approval, earlier, touched) or {"items": ()}
    warned = [one for shown in approval.previews for one in shown.get("warnings") or ()]
    ways = [one for one in [call_history.way_back(approval)] if one and one["tone"] == "bad"]
    titles = [str(one["title"]).rstrip(".") for one in [*ways, *found["items"]]]
    return [*titles, *(one.rstrip(".") for one in warned)]


def _member(approval: Approval) -> GroupedApproval:
    values = dict(_values(approval))
    amounts = {
        name: Decimal(value)  # an agent may write a number that no float holds
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    texts = {name: formatting.value_text(value) for name, value in values.items()}
    as_sent = {name: as_text(value) for name, value in values.items()}
    money = call_context.sum_among(as_sent, approval.amount_minor)
    if money:
        texts[money] = formatting.money(approval.amount_minor or 0, approval.currency)
    return GroupedApproval(approval, texts, amounts, money)


def _values(approval: Approval) -> Iterable[tuple[str, Any]]:
    """Of several calls each argument is named with the number of its call."""
    for number, call in enumerate(approval.calls, 1):
        before = f"call {number}: " if len(approval.calls) > 1 else ""
        for path, value in leaves_of(call.get("args")):
            yield before + spelled(path), value


def _unusual(member: GroupedApproval, members: Sequence[GroupedApproval]) -> Iterable[str]:
    """Numbers far above what the group has in the middle; sums of money, of those in the same
    currency.
    """
    for name, value in member.amounts.items():
        unit = _unit(member, name)
        like = [
            one.amounts[name] for one in members if name in one.amounts and _unit(one, name) == unit
        ]
        if len(like) < FEW:
            continue
        middle = median(like)
        if middle > 0 and value > TIMES_THE_USUAL * middle:
            usual = f"{middle:.6g}"
            if name == member.money:
                usual = formatting.money(round(middle), member.approval.currency)
            yield f"{name} is more than twice what is usual here ({usual})"


def _unit(member: GroupedApproval, name: str) -> str:
    """Of what a number is one: the currency of what its call moves, as far as that is known."""
    return member.approval.currency if name == member.money else ""
