"""Questions that are alike: the same rules ask about calls of one agent to one tool, with arguments
of one shape. They are looked at side by side and decided each by itself; what stands out among them
stands apart.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from approvals import awaiting, call_context, call_history, card_context
from approvals.argument_fields import as_text, leaves_of, spelled
from approvals.grants import rules_digest
from approvals.models import Approval, SubjectKind
from workspaces import formatting
from workspaces.models import User

LOOKED_AT_MAX = 200
"""Of the questions that wait for somebody so many, those that expire first, are compared."""
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
    amounts: Mapping[str, float]
    money: str = ""
    apart: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ApprovalGroup:
    """Questions that are alike. `same` are the arguments that none of them differs in."""

    members: list[GroupedApproval]
    same: dict[str, str]
    differing: list[str]


def kind_of(approval: Approval) -> tuple[Any, ...] | None:
    """What is the same of questions that are alike; None of one that stands for itself, as each
    does whose yes is signed.
    """
    if approval.subject_kind != SubjectKind.ACTION or approval.signed or not approval.calls:
        return None
    call = approval.calls[0]
    paths = tuple(sorted(name for name, _ in _values(call)))
    types = tuple(sorted({str(one.get("type")) for one in call.get("targets") or []}))
    is_changed = approval.replaces_id is not None
    return (approval.agent_id, call["operation"], rules_digest(approval.rules), paths, types,
            is_changed)  # fmt: skip


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
        workspace=approval.workspace_id, agent=approval.agent_id, subject_kind=SubjectKind.ACTION
    ).select_related("workspace", "agent", "requested_by", "action__run")
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
    earlier = call_history.of_tool(alike[0])
    for member in members:  # what is pointed out of all of them sets none of them apart
        found = card_context.pointed_out(member.approval, earlier) or {"items": ()}
        told = [str(one["title"]).rstrip(".") for one in found["items"]]
        member.apart = [*_unusual(member, members), *told]
    common = set.intersection(*(set(one.apart) for one in members))
    for member in members:
        member.apart = [one for one in member.apart if one not in common]
    return ApprovalGroup(members, same, [name for name in names if name not in same])


def _member(approval: Approval) -> GroupedApproval:
    values = dict(_values(approval.calls[0]))
    amounts = {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    texts = {name: as_text(value) for name, value in values.items()}
    money = call_context.sum_among(texts, approval.amount_minor)
    if money:
        texts[money] = formatting.money(approval.amount_minor or 0, approval.currency)
    return GroupedApproval(approval, texts, amounts, money)


def _values(call: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    yield from ((spelled(path), value) for path, value in leaves_of(call.get("args")))


def _unusual(member: GroupedApproval, members: Sequence[GroupedApproval]) -> Iterable[str]:
    """Numbers far above what the group has in the middle."""
    if len(members) < FEW:
        return
    for name, value in member.amounts.items():
        middle = median(one.amounts[name] for one in members if name in one.amounts)
        if middle > 0 and value > TIMES_THE_USUAL * middle:
            usual = f"{middle:g}"
            if name == member.money:
                usual = formatting.money(round(middle), member.approval.currency)
            yield f"{name} is more than twice what is usual here ({usual})"
