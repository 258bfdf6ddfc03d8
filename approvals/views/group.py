"""Many alike questions on one screen: each is decided by itself, on what was shown of it."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from approvals import alike, card_context, inbox
from approvals.alike import ApprovalGroup, GroupedApproval
from approvals.gate import policy_since
from approvals.models import Approval, ApprovalState, SubjectKind
from approvals.views import card
from approvals.views.lists import approvals_of, views_of
from ledger import disclosure
from workspaces import formatting
from workspaces.free_text import InvalidInput
from workspaces.fresh_login import login_at
from workspaces.models import Workspace
from workspaces.pages import Request, is_number, page

DECIDED_MAX = alike.LOOKED_AT_MAX
PLAN_CHARACTERS_MAX = 120
"""Of a plan's headline in a title that goes on about others."""
NONE_CHOSEN = {
    "tone": "bad", "title": "Nothing was decided.", "text": "Choose those that you decide on.",
}  # fmt: skip

SAID: dict[str, str] = {
    ApprovalState.GRANTED: "Approved.",
    ApprovalState.WAITING: "Your yes is given; others are asked, too.",
    ApprovalState.REJECTED: "Rejected.",
}
"""Of each that was decided, by what it is now."""
ANSWERED_BEFORE = "You had answered so before."


@login_required
@require_GET
def group(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Those that are like this one and wait for this person, side by side."""
    return _shown(request, *card.to_decide(request, workspace, pk))


@login_required
@require_POST
def decide(request: Request, workspace: str, pk: int) -> HttpResponse:
    """The chosen ones, one after the other, each with its own digest and under its own lock: what
    has changed meanwhile is not decided, and stands in the answer.
    """
    here, first = card.to_decide(request, workspace, pk)
    chosen = [int(one) for one in request.POST.getlist("chosen") if is_number(one)][:DECIDED_MAX]
    if not chosen:
        return _shown(request, here, first, problem=NONE_CHOSEN, status=422)
    grants = request.POST.get("decision") == "grant"
    if not grants and request.POST.get("decision") != "reject":
        return HttpResponse("“decision” is grant or reject.", status=400)
    results = []
    for approval in approvals_of(here).filter(pk__in=chosen).order_by("pk"):
        try:
            answered = _decide(request, approval, grants=grants)
        except InvalidInput as wrong:
            problem = {"tone": "bad", "title": "Nothing was decided.", "text": str(wrong)}
            return _shown(request, here, first, problem=problem, status=422)
        except card.REFUSALS as refusal:
            seen = _seen(request, approval)
            again = inbox.is_given(approval, request.user, granted=grants, **seen)
            words = ANSWERED_BEFORE if again else f"Not decided: {refusal}."
            results.append(_result(approval, "ok" if again else "bad", words))
        else:
            results.append(_result(approval, "ok", SAID[answered.state]))
    return _shown(request, here, first, results=results)


def _decide(request: Request, approval: Approval, *, grants: bool) -> Approval:
    posted = request.POST
    answer: dict[str, Any] = {
        "by": request.user,
        **_seen(request, approval),
        "shown": {"title": approval.headline, "calls": len(approval.calls), "group": True},
        "shown_seconds": card.shown_seconds(posted.get("shown", "")),
    }
    if grants:
        return inbox.grant(approval, **answer, login_at=login_at(request))
    return inbox.reject(approval, **answer)


def _seen(request: Request, approval: Approval) -> dict[str, Any]:
    posted = request.POST
    return {"seen": posted.get(f"digest-{approval.pk}", ""), "reason": posted.get("reason", "")}


def _result(approval: Approval, tone: str, words: str) -> dict[str, Any]:
    url = reverse("approvals:card", args=[approval.workspace.slug, approval.pk])
    return {"url": url, "title": approval.headline, "tone": tone, "words": words}


def _shown(
    request: Request,
    here: Workspace,
    approval: Approval,
    *,
    problem: dict[str, Any] | None = None,
    results: list[dict[str, Any]] | None = None,
    status: int = 200,
) -> HttpResponse:
    request.shows_a_call = True
    found = alike.of(approval, request.user)
    sees = disclosure.sees(request.user, here, deciding=True)
    members = found.members if found and sees else []
    sections = [
        _section(request, "Alike", found, members, apart=False, chosen=results is None),
        _section(request, "These stand out", found, members, apart=True),
    ]
    context = {
        "workspace": here,
        "views": views_of(here, request.user, ""),
        "title": _title(approval, len(members)),
        "asker": str(approval.asker),
        "why": [*_why_all(approval, members), *_common(found, members)],
        "same": list(found.same.items()) if found and sees else [],
        "differing": found.differing if found else [],
        "sections": sections,
        "count": len(members),
        "results": results or [],
        "problem": problem,
        "since": policy_since.notice_of_many([one.approval for one in members]),
        "reason": request.POST.get("reason", "") if problem else "",
        "reasons": inbox.REASONS,
        "shown": card.shown_stamp(approval),
        "action": reverse("approvals:group_decide", args=[here.slug, approval.pk]),
        "picked": set(request.POST.getlist("chosen")) if problem else None,
        "inbox_url": reverse("approvals:inbox", args=[here.slug]),
    }  # fmt: skip
    return page(request, "approvals/group.html", context, status=status)


def _title(approval: Approval, count: int) -> str:
    if approval.subject_kind == SubjectKind.PLAN:
        return f"{count} plans like {formatting.quoted(approval.headline, PLAN_CHARACTERS_MAX)}"
    calls = ", ".join(formatting.named(one) for one in alike.operations_of(approval))
    return f"{count} alike: {calls}"


def _why_all(approval: Approval, members: list[GroupedApproval]) -> list[dict[str, Any]]:
    """Why people are asked, and over what it would be done, as far as it is the same of each."""
    others = [_told(one.approval) for one in members if one.approval.pk != approval.pk]
    return [row for row in _told(approval) if all(row in told for told in others)]


def _told(approval: Approval) -> list[dict[str, Any]]:
    is_plan = approval.subject_kind == SubjectKind.PLAN
    return [*card_context.why(approval), *(alike.where_in_words(approval) if is_plan else ())]


def _common(
    found: ApprovalGroup | None, members: list[GroupedApproval]
) -> Iterator[dict[str, Any]]:
    """What is pointed out of each of them, to who sees them."""
    if found and members:
        yield from ({"name": "Of each", "value": told} for told in found.common)


def _section(
    request: Request,
    name: str,
    found: ApprovalGroup | None,
    members: list[GroupedApproval],
    *,
    apart: bool,
    chosen: bool = False,
) -> dict[str, Any]:
    """`chosen`: whether they are chosen at first, and no more once others were decided, for these
    were left out; `sum`: what they move together, per currency, and nothing where one moves more
    than can be added.
    """
    sums: Counter[str] = Counter()
    moved = [one.approval for one in members if bool(one.apart) == apart and one.approval.currency]
    if all(one.amount_minor is not None for one in moved):
        for one in moved:
            sums[one.currency] += one.amount_minor or 0
    told = [formatting.money(minor, currency) for currency, minor in sorted(sums.items())]
    return {
        "name": name,
        "chosen": chosen,
        "sum": " and ".join(told),
        "rows": _rows(request, found, members, apart=apart),
    }


def _rows(
    request: Request, found: ApprovalGroup | None, members: list[GroupedApproval], *, apart: bool
) -> list[dict[str, Any]]:
    if found is None:
        return []
    return [
        {
            "id": one.approval.pk,
            "digest": one.approval.digest,
            "url": reverse("approvals:card", args=[one.approval.workspace.slug, one.approval.pk]),
            "title": one.approval.headline,
            "amount": card_context.amount_of(one.approval),
            "risk": one.approval.risk,
            "targets": ", ".join(one.approval.targets),
            "person": card_context.customer(one.approval),
            "values": [(name, one.values.get(name, "")) for name in found.differing],
            "apart": one.apart,
            "expires": formatting.moment(one.approval.expires_at),
        }
        for one in members
        if bool(one.apart) == apart
    ]
