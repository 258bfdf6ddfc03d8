"""What a bounded grant could and does cover: what a card offers, and questions that wait.

A grant is given while other questions of its agent wait. What it covers of these is taken back, so
that the agent comes again and draws on it (approvals/gate/bounded_grants.py); what it does not
cover waits on, and its card says why. The same is said where somebody only asks what would be.
"""

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.db.models.functions import Now
from django.dispatch import receiver

from approvals import approval_requests, argument_fields, deciders, grants, named_lists
from approvals.deciders import locked
from approvals.gate import bounded_grants
from approvals.gate.begin_request import BeginRequest
from approvals.gate.bounded_grants import GrantLimits, currency_of, why_not
from approvals.models import Approval, ApprovalState, SubjectKind
from approvals.policy import PolicyDecision, ToolCall, active, any_pivot
from approvals.signals import approval_decided
from ledger.models import Action, ActionState, Compensated
from workspaces import formatting
from workspaces.models import User

LOOKED_AT_MAX = bounded_grants.GRANTS_LOOKED_AT_MAX
BATCH = 200
# As `begin` has it (begin_context.LOOK).
BEGUN = (ActionState.RUNNING, ActionState.UNKNOWN, ActionState.SUCCEEDED)
NOT_UNDONE = (Compensated.NONE, Compensated.REPAIRED)


def standing_for(approval: Approval) -> list[tuple[Any, str]]:
    """The living grants of a question's agent for its tool, each with why it does not cover the
    call; empty where it does.
    """
    if bounded_grants.why_not(approval):
        return []
    asked = bounded_grants.GrantableCall.of_question(approval)
    rows = bounded_grants.told(bounded_grants.living(asked)).order_by("pk")[:LOOKED_AT_MAX]
    return [(one, _why_people(approval) or bounded_grants.lacking(one, asked)) for one in rows]


def would_cover(request: BeginRequest, judgement: PolicyDecision) -> list[tuple[int, str]]:
    """The same for a call that only asks what would be."""
    asked = bounded_grants.GrantableCall.of(request, judgement)
    rows = bounded_grants.told(bounded_grants.living(asked)).order_by("pk")[:LOOKED_AT_MAX]
    if (
        judgement.affected
        or judgement.signed
        or bounded_grants.GrantLimits.of(judgement.rules) is None
    ):
        return [(one.pk, "its rule lets no call be granted ahead") for one in rows]
    return [(one.pk, bounded_grants.lacking(one, asked)) for one in rows]


def _why_people(approval: Approval) -> str:
    """What keeps people on a question whatever was granted: they made another call of it, or named
    the moment before which it is not made, or the ordering law asks.
    """
    if approval.replaces_id is not None:
        return "people have changed its arguments"
    if approval.not_before is not None:
        return "somebody approved it for later"
    others = Action.objects.filter(
        run__workspace=approval.workspace_id, run__run=approval.run_ref,
        compensated__in=NOT_UNDONE, state__in=BEGUN,
    ).exclude(key=str(approval.subject.get("key", "")))  # fmt: skip
    passed = others.filter(saga="pivot").exists() or any_pivot(
        active(approval.workspace_id), _without_place(others)
    )
    return "the pivot of its run has passed" if passed else ""


def _without_place(rows: QuerySet[Action]) -> Iterator[ToolCall]:
    """The calls past the gate whose place in the order of their run nobody has said."""
    told = rows.filter(saga="", fence=0).values_list("tool", "action_class", "trusted").distinct()
    for tool, action_class, trusted in told:
        yield ToolCall(tool=tool, action_class=action_class, trusted=trusted)


@receiver(approval_decided, dispatch_uid="approvals.bounded_grants")
def release(approval_id: int, subject_kind: str = SubjectKind.GRANT, **_: Any) -> int:
    """Once a grant lives, take back what it covers of the agent's waiting questions, oldest first,
    so that the agent comes again and draws on it; how many. Nobody's word is lost: a question that
    it has no room for waits on, and its card says why.
    """
    if subject_kind != SubjectKind.GRANT:
        return 0
    grant = Approval.objects.filter(
        pk=approval_id, subject_kind=SubjectKind.GRANT, state=ApprovalState.GRANTED
    ).first()
    if grant is None or not grant.calls:
        return 0
    waiting = Approval.objects.open().filter(
        workspace=grant.workspace_id, agent=grant.agent_id, subject_kind=SubjectKind.ACTION,
        calls__0__operation=grant.calls[0]["operation"],
    )  # fmt: skip
    drawn = bounded_grants.NOTHING_DRAWN
    for one in walked(waiting.only("pk", "workspace_id", "run_ref")):
        amount = _released(one, grant.pk, drawn)
        if amount is not None:
            drawn = grants.Drawdown(drawn.calls + 1, drawn.total + amount)
    return drawn.calls


@transaction.atomic
def _released(question: Approval, pk: int, beside: grants.Drawdown) -> Decimal | None:
    """Take one question back, under its lock, where the grant covers it as it stands and has room
    `beside` those that were taken back just now; how much the call is, else None.
    """
    row = locked(question)
    is_open = Approval.objects.open().filter(pk=row.pk).exists()
    if not is_open or bounded_grants.why_not(row) or _why_people(row):
        return None
    asked = bounded_grants.GrantableCall.of_question(row)
    grant = bounded_grants.told(bounded_grants.living(asked)).filter(pk=pk).first()
    if grant is None or bounded_grants.lacking(grant, asked, beside):
        return None
    approval_requests.void(row, why=f"bounded grant {pk} covers it")
    return bounded_grants.amount_of(grant.calls[0]["more"]["bounded"], asked)


def walked(rows: QuerySet[Approval]) -> Iterator[Approval]:
    """Each of these rows, oldest first, in batches: those that stay as they are keep none from its
    turn.
    """
    after = 0
    while batch := list(rows.filter(pk__gt=after).order_by("pk")[:BATCH]):
        yield from batch
        after = batch[-1].pk


def release_due() -> int:
    """The same for every living grant whose agent waits for people: a signal may be lost, and a
    call without effect gives its use back; how many.
    """
    waits = Approval.objects.open().filter(
        workspace=OuterRef("workspace"), agent=OuterRef("agent"), subject_kind=SubjectKind.ACTION
    )
    living = Approval.objects.filter(
        Exists(waits),
        subject_kind=SubjectKind.GRANT,
        state=ApprovalState.GRANTED,
        expires_at__gt=Now(),
    )
    return sum(release(one.pk) for one in walked(living.only("pk")))


NOT_ASKED_FIRST = (
    "You answer this call in the place of those who were asked first: more like it is for them."
)


def offer(approval: Approval, person: User) -> dict[str, Any]:
    """What a card offers who may answer it, or why there is nothing: the limits, and the first
    values of its fields. Amounts begin with what this call is, as far as the rule allows it.
    """
    limits = GrantLimits.of(approval.rules)
    # A grant is asked of the teams that its rule names first, and outlives a right handed over.
    is_theirs = deciders.is_asked_first(approval, person)
    why = why_not(approval) or ("" if is_theirs else NOT_ASKED_FIRST)
    if limits is None or why:
        return {"why_not": why}
    most = [f"{limits.uses} calls", formatting.span(timedelta(seconds=limits.seconds))]
    terms = {"currency": currency_of(approval, limits)}
    each, total = (
        grants.amount(terms, Decimal(one)) if one else "" for one in (limits.each, limits.sum)
    )
    most += [f"{each} each"] if each else []
    most += [f"{total} in all"] if total else []
    own = bounded_grants.amount_of(
        {"amount": limits.amount}, bounded_grants.GrantableCall.of_question(approval)
    )
    minor = approval.amount_minor or 0
    targets = approval.calls[0].get("targets") or []
    fields = {
        "limits": ", ".join(most),
        "same": ", ".join(map(argument_fields.words_of, limits.same)),
        "uses": limits.uses,
        "hours": f"{limits.seconds / 3600:g}",
        "counts": bool(limits.amount),
        "unit": f"As the call has it: {minor} is {formatting.money(minor, approval.currency)}."
        if terms["currency"]
        else "",
        "each": _first(own, limits.each),
        "each_most": each,
        "sum": _first(None if own is None else own * limits.uses, limits.sum) if total else "",
        "sum_most": total,
        "listed": f"what stands on the list {limits.listed['list']} ({limits.listed['path']})"
        if limits.listed
        else "",
        "target": f"{targets[0]['type']} {targets[0]['id']}" if len(targets) == 1 else "",
    }
    return fields | _as_proposed(approval, limits, person)


def _as_proposed(approval: Approval, limits: GrantLimits, person: User) -> dict[str, Any]:
    """The terms that somebody has agreed to before, for calls like this one: who leaves them as
    they are agrees to that very grant.
    """
    for one in bounded_grants.proposed(approval, limits, person):
        terms = one.calls[0]["more"]["bounded"]
        listed = terms.get("listed")
        is_other = terms["target"] and len(approval.calls[0].get("targets") or []) != 1
        if is_other or (listed and listed != _list_as_it_is(approval, limits)):
            continue
        return {
            "uses": terms["uses"],
            "hours": f"{terms['seconds'] / 3600:.10g}",
            "each": terms["each"] or "",
            "sum": terms["sum"] or "",
            "typed_target": "one" if terms["target"] else "list" if terms.get("listed") else "any",
            "proposed": one,
        }
    return {}


def _list_as_it_is(approval: Approval, limits: GrantLimits) -> dict[str, Any] | None:
    return named_lists.bound(approval.workspace, limits.listed) if limits.listed else None


def _first(amount: Decimal | None, most: int | None) -> str:
    """What stands in a field at first: the amount, or the most where that is less or all that is
    known. Nothing is no amount of a grant, so that somebody has to say one.
    """
    found = min((Decimal(one) for one in (amount, most) if one is not None), default=None)
    return grants.amount({}, found) if found else ""
