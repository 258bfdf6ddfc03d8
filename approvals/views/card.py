"""The card and the answers to it. GET never decides; a link in a mail opens a page."""

import json
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core import signing
from django.db.models import prefetch_related_objects
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from approvals import (
    alike,
    call_context,
    card_context,
    clarifications,
    deciders,
    digests,
    glass_decisions,
    inbox,
    pauses,
    signatures,
)
from approvals.gate import changed_arguments, covered_questions, policy_since
from approvals.interchange import aais
from approvals.models import Approval, ApprovalState, SubjectKind
from approvals.views import policy_editor
from approvals.views.lists import approvals_of, context_of_list, line_now
from ledger import disclosure
from workspaces import clock, delegations, formatting
from workspaces.access import may
from workspaces.free_text import InvalidInput
from workspaces.fresh_login import (
    NO_METHOD,
    address,
    has_method,
    is_fresh,
    login_at,
    url_to_prove,
)
from workspaces.models import User, Workspace
from workspaces.moves import CannotMove
from workspaces.pages import Request, is_number, page, workspace_or_404

REFUSALS = (
    CannotMove, InvalidInput, inbox.OutOfDate, inbox.NeedsFreshLogin, signatures.NotSigned,
)  # fmt: skip
"""Why an answer is not taken, each said in words on the card."""
FIELD = "arg-"
"""Before the number of an argument that can be changed on the card."""
CHANGED_AND_APPROVED = (
    "You have changed its arguments, and “Approve” would approve what the agent asked for. Press"
    " “Ask with this change”, or put them back."
)
NOT_BEFORE = "not-before"
GLASS_REASON = "glass-reason"
PUT_OFF_AND_APPROVED = (
    "You have said “Not before”, and by this button it would go on at once. Press “Approve for"
    " later”, or empty that field."
)
MORE = ("uses", "hours", "each", "sum", "target")
"""What is typed for a bounded grant, each behind `more-`."""
SHOWN_SALT = "approvals.shown"
SHOWN_AGE_SECONDS_MAX = 24 * 3600


@login_required
@require_GET
def card(request: Request, workspace: str, pk: int) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    approval = get_object_or_404(approvals_of(here), pk=pk)
    return page(request, "approvals/card.html", _card(request, here, approval), part="card")


@login_required
@require_GET
def outcome(request: Request, workspace: str, pk: int) -> HttpResponse:
    """What became of it, alone: asked again until a grant is used, so that no page goes stale.

    It is a part of the card, so whoever opens its address by hand is led there.
    """
    here = workspace_or_404(request, workspace)
    approval = get_object_or_404(approvals_of(here), pk=pk)
    if not request.htmx:
        return redirect("approvals:card", workspace=here.slug, pk=approval.pk)
    became = card_context.outcome(approval)
    context = {
        "approval": {"state": card_context.shown_state(approval)} | became,
        "outcome_url": _outcome_url(approval),
        "outcome_alone": True,
    }
    return page(request, "approvals/card.html", context, part="outcome")


@login_required
@require_GET
def document(request: Request, workspace: str, pk: int, name: str) -> HttpResponse:
    """One of its documents as a file, for programs of others (docs/interchange.md)."""
    here = workspace_or_404(request, workspace)
    approval = get_object_or_404(approvals_of(here), pk=pk)
    if name not in aais.names(approval):
        raise Http404("There is no such document of it by now.")
    request.shows_a_call = True
    sees = disclosure.sees(request.user, here, deciding=True)
    found = aais.of(approval, name, sees=sees)
    filename = f"approval-{approval.pk}-{name}.json"
    return JsonResponse(
        found, headers={"Content-Disposition": f'attachment; filename="{filename}"'}
    )


def _outcome_url(approval: Approval) -> str:
    if not card_context.is_under_way(approval):
        return ""
    return reverse("approvals:outcome", args=[approval.workspace.slug, approval.pk])


def _card(
    request: Request,
    here: Workspace,
    approval: Approval,
    *,
    problem: dict[str, Any] | None = None,
    reason: str = "",
) -> dict[str, Any]:
    person = request.user
    request.shows_a_call = True
    sees = disclosure.sees(person, here, deciding=True)
    prefetch_related_objects([approval], "decisions", "requirements__team")
    why_not = inbox.why_not(approval, person)
    drawn = card_context.card(approval, sees=sees)
    drawn["notices"] += filter(None, (pauses.notice(approval), policy_since.notice(approval)))
    here_url = reverse("approvals:card", args=[here.slug, approval.pk])
    part = _your_part(request, approval, here_url, why_not)
    listed = context_of_list(request, here, approval.pk)
    others = (one for one in listed["approvals"] if one["id"] != approval.pk)
    return (
        listed
        | drawn
        | {
            "next_up": next(others, None) if approval.state != ApprovalState.WAITING else None,
            "problem": problem,
            "reason": reason,
            "outcome_url": _outcome_url(approval),
            "documents": aais.names(approval),
            "action": reverse("approvals:decide", args=[here.slug, approval.pk]),
            "shown": shown_stamp(approval),
            "broken": glass_decisions.broken(approval),
            "alike": alike.count(approval, person) if sees else 0,
            "withdraw_url": _withdraw_url(approval, person),
            "reasons": inbox.REASONS,
            "rule_url": policy_editor.url_of(approval, person),
            "affected": card_context.affected(approval, link=may(person, "recover", here)),
            "ask_url": "" if why_not else reverse("approvals:ask", args=[here.slug, approval.pk]),
            "change": None if why_not or not sees else _change(approval, person, part),
            "more": covered_questions.offer(approval, person)
            if sees and not why_not and may(person, "approve", here)
            else None,
            "not_covering": _not_covering(approval) if sees else [],
            "may_reply": approval.state == ApprovalState.WAITING
            and clarifications.may_reply(approval, person),
        }
        | part
        | _glass(request, approval, here_url)
    )


def _glass(request: Request, approval: Approval, here_url: str) -> dict[str, Any]:
    """What whoever may break the glass is offered, with what they had typed."""
    person = request.user
    offer = glass_decisions.offer(approval, person, fresh_login_url=url_to_prove(request, here_url))
    if offer and "url" in offer:
        offer |= {"reason": request.POST.get(GLASS_REASON, ""), "sign": _sign(approval, person)}
    return {"break_glass": offer}


def _not_covering(approval: Approval) -> list[dict[str, str]]:
    """The living bounded grants of the agent for this tool, and why none lets this call pass."""
    if approval.state != ApprovalState.WAITING:
        return []
    return [
        {
            "title": grant.headline,
            "url": reverse("approvals:card", args=[approval.workspace.slug, grant.pk]),
            "why": why,
        }
        for grant, why in covered_questions.standing_for(approval)
        if why
    ]


def shown_stamp(approval: Approval) -> str:
    """Signed: from when on a page with it was in front of the person, by the database's clock: it
    may be answered at another web process.
    """
    at = {"digest": approval.digest, "at": clock.now().timestamp()}
    return signing.dumps(at, salt=SHOWN_SALT)


PROVE_FIRST = "It needs a reason, and a fresh log-in before that: confirm first that it is you."


def _change(approval: Approval, person: User, part: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments as fields, or why this person cannot change them now, whose part in the answer
    is `part`; None where it is no agent's call.
    """
    if approval.subject_kind != SubjectKind.ACTION:
        return None
    why = changed_arguments.why_not(approval) or changed_arguments.why_not_by(approval, person)
    why = why or part.get("why_not", "") or (PROVE_FIRST if "fresh_login_url" in part else "")
    if why:
        return {"why_not": why}
    found = changed_arguments.fields_of(approval)
    minor = approval.amount_minor
    of_money = call_context.sum_among({one.name: one.text for one in found}, minor)
    unit = f"As the call has it: {minor} is {formatting.money(minor or 0, approval.currency)}."
    return {
        "url": reverse("approvals:change", args=[approval.workspace.slug, approval.pk]),
        "fields": [
            {
                "name": f"{FIELD}{one.number}",
                "label": one.name,
                "kind": one.kind,
                "typed": one.text,
                "choices": one.offered,
                "is_long": one.is_long,
                "why_not": one.why_not,
                "note": unit if one.name == of_money else "",
            }
            for one in found
        ],
        "decides": "You approve it yourself, then."
        if approval.self_approval
        else "Somebody else decides on it, then: whoever changes a call has asked for it.",
    }


def _withdraw_url(approval: Approval, person: User) -> str:
    """Offered to whoever asked, and once it is granted to everybody who may decide."""
    asked = approval.state == ApprovalState.WAITING and approval.requested_by_id == person.pk
    granted = approval.state == ApprovalState.GRANTED
    if not (asked or granted) or not inbox.may_withdraw(approval, person):
        return ""
    return reverse("approvals:withdraw", args=[approval.workspace.slug, approval.pk])


def _your_part(request: Request, approval: Approval, here_url: str, why_not: str) -> dict[str, Any]:
    """Whether this person may answer now, and if not, why not (`inbox.why_not`)."""
    person = request.user
    if why_not:
        return {"may_decide": False, "why_not": why_not}
    at = login_at(request)
    if inbox.needs_fresh(approval, person) and not is_fresh(at):
        if not has_method(person):
            return {"may_decide": False, "why_not": NO_METHOD}
        return {"may_decide": False, "fresh_login_url": address(person, here_url)}
    found = deciders.with_yes(approval, person.pk)
    if found is None:  # somebody was faster just now
        return {"may_decide": False, "why_not": inbox.GIVEN}
    standing, mandate = found
    wanted = sum(one.count for one in standing.requirements)
    given = len(standing.filled)
    completes = f", {_what_follows(approval)}" if standing.complete else ""
    label = f"Approve ({given} of {wanted}{completes})" if wanted > 1 else "Approve"
    lent = mandate.delegation
    return {
        "may_decide": True,
        "deputy_for": delegations.words(lent) if lent else "",
        "approve_label": label,
        "held": inbox.held(approval),
        "sign": _sign(approval, person),
    }


def _what_follows(approval: Approval) -> str:
    """What the last yes does, in words."""
    if approval.subject_kind == SubjectKind.GRANT:
        return "in force at once"
    is_put_off = approval.not_before is not None and approval.not_before > clock.now()
    return "runs later" if is_put_off else "runs now"


def _sign(approval: Approval, person: User) -> dict[str, str] | None:
    """What the person's key is asked, or why none can sign; None where nothing has to be signed."""
    if not approval.signed:
        return None
    found = signatures.options(approval, person)
    return {"why_not": found} if isinstance(found, str) else {"options": json.dumps(found)}


def to_decide(request: Request, workspace: str, pk: int) -> tuple[Workspace, Approval]:
    """The approval that whoever may approve here decides on. Raises Http404, PermissionDenied."""
    here = workspace_or_404(request, workspace)
    delegations.require_decider(request.user, here)
    return here, get_object_or_404(approvals_of(here), pk=pk)


def answer_of(request: Request, approval: Approval) -> dict[str, Any]:
    """What a person answers from the card, as `inbox.grant` and `inbox.reject` take it."""
    posted = request.POST
    return {
        "by": request.user,
        "seen": posted.get("digest", ""),
        "reason": posted.get("reason", ""),
        "shown": shown_of(request, approval),
        "shown_seconds": shown_seconds(posted.get("shown", "")),
    }


@login_required
@require_POST
def decide(request: Request, workspace: str, pk: int) -> HttpResponse:
    here, approval = to_decide(request, workspace, pk)
    posted = request.POST
    answer = answer_of(request, approval)
    grants = posted.get("decision") == "grant"
    try:
        if grants:
            check_untouched(request, approval)
            check_not_put_off(request)
            signed = signatures.answered(posted.get("signature", ""))
            inbox.grant(approval, **answer, login_at=login_at(request), signed=signed)
        elif posted.get("decision") == "reject":
            inbox.reject(approval, **answer)
        else:
            return HttpResponse("“decision” is grant or reject.", status=400)
    except REFUSALS as refusal:
        if not is_given(request, approval, refusal, granted=grants):
            return refused(request, here, pk, refusal)
    return _done(request, here, pk)


def is_given(
    request: Request, approval: Approval, error: Exception, *, field: str = "reason", **said: Any
) -> bool:
    """Whether what was refused is the answer that this person has given already, sent once more:
    the card as it stands says what became of it. `field` has the reason, `said` the answer.
    """
    posted = request.POST
    return not isinstance(error, InvalidInput) and inbox.is_given(
        approval, request.user, seen=posted.get("digest", ""), reason=posted.get(field, ""),
        break_glass=field == GLASS_REASON, **said,
    )  # fmt: skip


def check_untouched(request: Request, approval: Approval) -> None:
    """Raise InvalidInput where something was typed into an argument: a yes is to what was asked."""
    if changed_arguments.touched(approval, _typed(request)):
        raise InvalidInput(CHANGED_AND_APPROVED)


def check_not_put_off(request: Request) -> None:
    """Raise InvalidInput where a moment was typed, before which nothing shall happen."""
    if request.POST.get(NOT_BEFORE):
        raise InvalidInput(PUT_OFF_AND_APPROVED)


def shown_of(request: Request, approval: Approval) -> dict[str, Any]:
    """What the person had before them."""
    digest = request.POST.get("digest")
    return {"title": approval.headline, "calls": len(approval.calls), "digest": digest}


@login_required
@require_POST
def change(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Put the call to people with other arguments, in place of what the agent asked for."""
    here, approval = to_decide(request, workspace, pk)
    posted = request.POST
    typed = _typed(request)
    try:
        new = changed_arguments.change(
            approval,
            by=request.user,
            seen=posted.get("digest", ""),
            typed=typed,
            reason=posted.get("reason", ""),
        )
    except (CannotMove, InvalidInput, inbox.OutOfDate) as refusal:
        return refused(request, here, pk, refusal)
    return done_with(request, here, new.pk)


def done_with(request: Request, here: Workspace, pk: int) -> HttpResponse:
    """The card of another question than the one whose button was pressed."""
    done = _done(request, here, pk)
    done["HX-Push-Url"] = reverse("approvals:card", args=[here.slug, pk])
    return done


def _typed(request: Request) -> dict[int, str]:
    """What stands in the fields of the arguments, by their numbers."""
    return {
        int(name.removeprefix(FIELD)): str(request.POST[name])
        for name in request.POST
        if name.startswith(FIELD) and is_number(name.removeprefix(FIELD))
    }


@login_required
@require_POST
def withdraw(request: Request, workspace: str, pk: int) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    approval = get_object_or_404(approvals_of(here), pk=pk)
    try:
        inbox.withdraw(approval, by=request.user, reason=request.POST.get("reason", ""))
    except (CannotMove, InvalidInput) as refusal:
        return refused(request, here, pk, refusal)
    return _done(request, here, pk)


@login_required
@require_POST
def ask(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Ask back before deciding; the question goes to whoever asked."""
    here, approval = to_decide(request, workspace, pk)
    try:
        clarifications.ask_back(approval, request.POST.get("question", ""), by=request.user)
    except (CannotMove, InvalidInput) as refusal:
        return refused(request, here, pk, refusal)
    return _done(request, here, pk)


@login_required
@require_POST
def answer(request: Request, workspace: str, pk: int, enquiry: int) -> HttpResponse:
    """Answer what was asked back, as a person."""
    here = workspace_or_404(request, workspace)
    approval = get_object_or_404(approvals_of(here), pk=pk)
    asked = get_object_or_404(approval.clarifications.select_related("approval"), pk=enquiry)
    try:
        clarifications.answer(asked, request.POST.get(f"answer_{enquiry}", ""), by=request.user)
    except (CannotMove, InvalidInput) as refusal:
        return refused(request, here, pk, refusal)
    return _done(request, here, pk)


def _done(request: Request, here: Workspace, pk: int) -> HttpResponse:
    if not request.htmx:
        return redirect("approvals:card", workspace=here.slug, pk=pk)
    approval = get_object_or_404(approvals_of(here), pk=pk)
    drawn = _card(request, here, approval) | {"line": line_now(request, here, pk)}
    return page(request, "approvals/card.html", drawn, part="card")


def refused(request: Request, here: Workspace, pk: int, refusal: Exception) -> HttpResponse:
    """The card as it now stands, with what was typed; 409, or 422 where that is what is wrong.

    Where somebody has changed the call meanwhile, that is the card of what they made of it.
    """
    approval = get_object_or_404(approvals_of(here), pk=pk)
    after, posted = changed_arguments.successor(approval), _typed(request)
    wanted = changed_arguments.touched(approval, posted)
    if after is not None:
        approval = get_object_or_404(approvals_of(here), pk=after.pk)
        made = changed_arguments.in_words(digests.changes_of(approval), approval)
        refusal = CannotMove(approval, "answered", f"{approval.requested_by} was first: {made}")
    is_input = isinstance(refusal, InvalidInput)
    text = str(refusal) if is_input else f"{refusal}."
    title = "Nothing was decided" + ("." if is_input else ":")
    problem = {"tone": "bad", "title": title, "text": text}
    context = _card(request, here, approval, problem=problem, reason=request.POST.get("reason", ""))
    if after is None and context["change"] and "fields" in context["change"]:
        for field in context["change"]["fields"]:
            field["typed"] = request.POST.get(field["name"], field["typed"])
        context["change"]["is_open"] = bool(wanted)
    else:
        context["typed_changes"] = [
            {"field": one.name, "was": one.text, "now": posted[one.number], "kind": "changed"}
            for one in wanted
        ]
    more = context["more"] if after is None else None
    if more and "more-uses" in request.POST:
        kept = {name: request.POST.get(f"more-{name}", "") for name in MORE}
        more |= kept | {"typed_target": kept["target"], "target": more.get("target", "")}
        more["is_open"] = request.path.endswith("/more/")
    context["typed_moment"] = request.POST.get(NOT_BEFORE, "")
    context["typed_question"] = request.POST.get("question", "")
    for one in context["enquiries"]:
        one["typed"] = request.POST.get(f"answer_{one['id']}", "")
    typed = [context["reason"], context["typed_question"]]
    typed += [one["typed"] for one in context["enquiries"]]
    problem["typed"] = "" if context["may_decide"] else " · ".join(filter(None, typed))
    return page(
        request, "approvals/card.html", context, part="card", status=422 if is_input else 409
    )


def shown_seconds(token: str) -> float | None:
    """How long the card was in front of the person, by our own signed stamp."""
    try:
        stamp = signing.loads(token, salt=SHOWN_SALT)
    except signing.BadSignature:
        return None
    seconds = max(0.0, clock.now().timestamp() - float(stamp["at"]))
    return seconds if seconds <= SHOWN_AGE_SECONDS_MAX else None
