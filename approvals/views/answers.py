"""Answers to a card besides yes and no: a yes for later, a yes of two in place of others, and
bounded grants, which are listed here with what they have let pass."""

from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from approvals import (
    call_context,
    card_context,
    glass_decisions,
    grants,
    inbox,
    signatures,
)
from approvals.gate import bounded_grants
from approvals.models import (
    LIVING,
    Approval,
    ApprovalState,
    BrokenGlass,
    SubjectKind,
)
from approvals.views import card, health_page
from approvals.views.lists import approvals_of, views_of
from ledger import disclosure
from workspaces import clock, exporting, formatting
from workspaces.free_text import InvalidInput
from workspaces.fresh_login import login_at
from workspaces.models import Workspace
from workspaces.moves import CannotMove
from workspaces.pages import ROWS_A_PAGE, Request, page, page_by_number, workspace_or_404


@login_required
@require_POST
def approve_later(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Yes, and not before the moment that was typed, in the person's own time."""
    here, approval = card.to_decide(request, workspace, pk)
    posted = request.POST
    until = None
    try:
        card.check_untouched(request, approval)
        until = _moment(posted.get(card.NOT_BEFORE, ""))
        with transaction.atomic():
            inbox.as_shown(approval, posted.get("digest", ""))
            grants.put_off(approval, until, by=request.user, now=clock.now())
            inbox.grant(
                approval,
                **card.answer_of(request, approval),
                login_at=login_at(request),
            )
    except card.REFUSALS as refusal:
        if not card.is_given(request, approval, refusal, granted=True, until=until):
            return card.refused(request, here, pk, refusal)
    return card.done_with(request, here, approval.pk)


def _moment(typed: str) -> datetime:
    """The moment of a field for day and time. Raises InvalidInput where it is none."""
    try:
        found = datetime.fromisoformat(typed)
    except ValueError:
        raise InvalidInput("Not before: say a day and a time.") from None
    return found if found.tzinfo else timezone.make_aware(found)


@login_required
@require_POST
def break_glass(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Yes, as one of two in place of those who are asked."""
    here = workspace_or_404(request, workspace)
    approval = get_object_or_404(approvals_of(here), pk=pk)
    posted = request.POST
    try:
        glass_decisions.agree(
            approval,
            by=request.user,
            seen=posted.get("digest", ""),
            reason=posted.get(card.GLASS_REASON, ""),
            shown=card.shown_of(request, approval),
            shown_seconds=card.shown_seconds(posted.get("shown", "")),
            login_at=login_at(request),
            signed=signatures.answered(posted.get("signature", "")),
        )
    except card.REFUSALS as refusal:
        if not card.is_given(request, approval, refusal, granted=True, field=card.GLASS_REASON):
            return card.refused(request, here, pk, refusal)
    return card.done_with(request, here, pk)


@login_required
@require_POST
def review_glass(request: Request, workspace: str, pk: int) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    rows = BrokenGlass.objects.select_related("approval__workspace", "workspace")
    glass = get_object_or_404(rows, approval=pk, workspace=here)
    try:
        glass_decisions.review(glass, by=request.user, text=request.POST.get("review", ""))
    except InvalidInput as wrong:
        return health_page.show_unreviewed(request, here, pk, wrong)
    except inbox.NotEntitled as not_yours:
        raise PermissionDenied(str(not_yours)) from None
    else:
        messages.success(request, "Reviewed.")
    return redirect("approvals:health", workspace=here.slug)


USES_SHOWN_MAX = 50


@login_required
@require_POST
def approve_with_more(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Yes to this call, and to the next ones like it within what was typed."""
    here, approval = card.to_decide(request, workspace, pk)
    posted = request.POST
    try:
        card.check_untouched(request, approval)
        card.check_not_put_off(request)
        made = bounded_grants.approve_with_more(
            approval,
            typed={name: posted.get(f"more-{name}", "") for name in card.MORE},
            **card.answer_of(request, approval),
            login_at=login_at(request),
        )
    except (CannotMove, InvalidInput, inbox.OutOfDate, inbox.NeedsFreshLogin) as refusal:
        return card.refused(request, here, pk, refusal)
    return card.done_with(request, here, made.pk)


@login_required
@require_GET
def grants_list(request: Request, workspace: str) -> HttpResponseBase:
    """Living ones first, then those that are over."""
    here = workspace_or_404(request, workspace)
    if exporting.is_asked(request):
        rows = _grants_of(here)
        clean = disclosure.cleaner(request.user, here, deciding=True)
        return exporting.sheet(request, "grants", rows, EXPORTED, clean)
    return _grants_page(request, here)


@login_required
@require_POST
def revoke(request: Request, workspace: str, pk: int) -> HttpResponse:
    """End a grant at once; calls that it has let pass are made."""
    here = workspace_or_404(request, workspace)
    approval = get_object_or_404(approvals_of(here), pk=pk, subject_kind=SubjectKind.GRANT)
    try:
        inbox.withdraw(approval, by=request.user, reason=request.POST.get("reason", ""))
    except (CannotMove, InvalidInput) as refusal:
        problem = {"tone": "bad", "title": "Nothing was revoked.", "text": f"{refusal}."}
        return _grants_page(request, here, problem=problem, status=409)
    messages.success(
        request, "Revoked. Its agent is asked about again; what was let pass already stays."
    )
    return redirect("approvals:grants", workspace=here.slug)


SECTIONS = {
    "In force": ApprovalState.GRANTED,
    "Not in force before others agree": ApprovalState.WAITING,
}


def _grants_page(
    request: Request, here: Workspace, *, problem: dict[str, Any] | None = None, status: int = 200
) -> HttpResponse:
    sees = disclosure.sees(request.user, here, deciding=True)
    living = _grants_of(here, living=True)[:ROWS_A_PAGE]
    rows = [(one.state, _grant_row(request, here, one, sees=sees)) for one in living]
    over, pager = page_by_number(request, _grants_of(here, living=False))
    context = {
        "workspace": here,
        "views": views_of(here, request.user, "grants"),
        "problem": problem,
        "sections": [
            *(
                {"name": name, "rows": [row for found, row in rows if found == state]}
                for name, state in SECTIONS.items()
            ),
            {"name": "Over", "rows": [_grant_row(request, here, one, sees=sees) for one in over]},
        ],
        "pager": pager | {"label": f"{formatting.count(len(rows) + len(over))} shown"},
        "empty": None
        if rows or over
        else {
            "icon": "approval",
            "title": "No bounded grants yet.",
            "text": "With one yes an approver lets an agent make the next few calls like it without"
            " asking: so many, up to so much, for so long. It is offered on the card, as “Approve"
            " this and more like it”, where a rule of the policy says “bounded”.",
        },
    }
    return page(request, "approvals/grants.html", context, status=status)


def _became(one: Approval) -> str:
    """Why it lets nothing pass any more; empty while it does."""
    if one.state in LIVING and not one.calls:
        return "Its run was erased, and its terms with it"
    if one.state in LIVING and one.expires_at <= clock.now():
        return "Its time is over"
    if one.state in LIVING:
        is_void = one.state == ApprovalState.GRANTED and not grants.still_entitled(one)
        return card_context.COUNTS_NO_MORE.rstrip(" .") if is_void else ""
    return "Its time is over" if one.state == ApprovalState.USED else call_context.ended(one)


EXPORTED: exporting.Columns = {
    "approval": "pk",
    "state": card_context.shown_state,
    "title": "headline",
    "agent": lambda one: one.agent.name if one.agent else "",
    "asked_at": "asked_at",
    "decided_at": "decided_at",
    "expires_at": "expires_at",
    "over_because": _became,
}


def _grant_row(request: Request, here: Workspace, one: Approval, *, sees: bool) -> dict[str, Any]:
    uses = grants.drawn(one).order_by("-pk")[: USES_SHOWN_MAX + 1]
    used = grants.Drawdown.of(grants.drawn(one))
    terms = one.calls[0]["more"]["bounded"] if one.calls else {}  # none once it is erased
    return {
        "id": one.pk,
        "url": reverse("approvals:card", args=[here.slug, one.pk]),
        "title": one.headline,
        "agent": str(one.agent or ""),
        "terms": _terms(one) if sees and one.previews else [],
        "state": card_context.shown_state(one),
        "used": grants.drawn_words(one, used),
        "percent": grants.drawn_percent(one, used),
        "became": _became(one),
        "expires": formatting.moment(one.expires_at),
        "uses": [
            {
                "run": use.run_ref,
                "url": reverse("ledger:run", args=[here.slug, use.run_ref]),
                "amount": grants.amount(terms, use.amount) if sees and use.amount else "",
                "at": formatting.moment(use.at),
            }
            for use in uses[:USES_SHOWN_MAX]
        ],
        "more": len(uses) > USES_SHOWN_MAX,
        "revoke_url": reverse("approvals:revoke", args=[here.slug, one.pk])
        if one.state in {"waiting", "granted"} and inbox.may_withdraw(one, request.user)
        else "",
    }


def _terms(one: Approval) -> list[list[str]]:
    """The terms that no other line of the grant says: its use has how often and how much in all."""
    return [row for row in one.previews[0]["rows"] if row[0] not in grants.SAID_BY_USE]


def _grants_of(workspace: Workspace, *, living: bool | None = None) -> QuerySet[Approval]:
    """Those of a workspace, newest first: living ones, those that are over, or all."""
    rows = grants.bounded_in(workspace)
    alive = Q(state__in=LIVING, expires_at__gt=Now()) & ~Q(calls=[])  # without terms: erased
    if living is not None:
        rows = rows.filter(alive) if living else rows.exclude(alive)
    related = rows.select_related("workspace", "agent", "closed_by")
    return related.prefetch_related("decisions").order_by("-pk")
