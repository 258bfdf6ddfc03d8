"""What a person sets for themselves: keys by which they sign, and a mail a day of what waits."""

import json
from operator import itemgetter
from typing import Any

from allauth.mfa.models import Authenticator
from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from fido2.utils import websafe_encode

from amends.protocol.vocabulary import Risk
from approvals import notifications, signatures, signing_keys
from approvals.models import Decision, SigningKey
from approvals.policy import PolicyUnreadable, active
from approvals.views.lists import approvals_of
from ledger import disclosure
from workspaces import exporting, formatting, fresh_login
from workspaces.access import NotAllowed, may, require
from workspaces.forms import without_hint
from workspaces.free_text import InvalidInput
from workspaces.models import Workspace
from workspaces.pages import Request, page, private, workspace_or_404

KEYS_SHOWN_MAX = 500
NEEDS_FRESH = "Confirm first that it is you: this takes a log-in under five minutes old."


@login_required
@require_GET
def keys(request: Request, workspace: str) -> HttpResponseBase:
    here = workspace_or_404(request, workspace)
    if exporting.is_asked(request):
        tables: dict[str, exporting.Table] = {"signing-keys": (_told(here), TOLD)}
        return exporting.table(request, tables, disclosure.cleaner(request.user, here))
    return _keys(request, here)


@login_required
@require_POST
def enrol(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Put a key of one's own on record here, by its own signature or that of one that is."""
    here = workspace_or_404(request, workspace)
    if not signatures.may_enrol(request.user, here):
        raise NotAllowed("approve", here)
    key = get_object_or_404(
        Authenticator, pk=pk, user=request.user, type=Authenticator.Type.WEBAUTHN
    )
    if not fresh_login.is_fresh(fresh_login.login_at(request)):
        return _keys(request, here, problem=NEEDS_FRESH, status=422)
    try:
        signatures.enrol(
            here,
            key,
            by=request.user,
            answer=signatures.answered(request.POST.get("signature", "")),
        )
    except (InvalidInput, signatures.NotSigned) as refusal:
        return _keys(request, here, problem=str(refusal), status=422)
    messages.success(request, "The key is on record: what you decide here can be signed with it.")
    return redirect("approvals:signing_keys", workspace=here.slug)


@login_required
@require_GET
def signed(request: Request, workspace: str, pk: int, decision: int) -> HttpResponse:
    """A signed decision with its proofs, for `python -m amends verify`."""
    here = workspace_or_404(request, workspace)
    approval = get_object_or_404(approvals_of(here), pk=pk)
    request.shows_a_call = True
    if not disclosure.sees(request.user, here, deciding=True):
        raise Http404("Whoever sees what was decided sees who signed it.")
    row = get_object_or_404(
        Decision.objects.select_related("person"), approval=approval, pk=decision
    )
    found = signatures.document(approval, row)
    if found is None:
        raise Http404("It is not signed, or not sealed yet, or something of it was forgotten.")
    name = f"approval-{approval.pk}-signed-{row.pk}.json"
    return JsonResponse(found, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _keys(
    request: Request, here: Workspace, *, problem: str = "", status: int = 200
) -> HttpResponse:
    person = request.user
    why_not = signing_keys.unavailable()
    context = {
        "workspace": here,
        "tab": "signing",
        "title": "Signing keys",
        "lead": "Where a rule wants it, a yes is a signature by the person’s own key: whoever"
        " owns the database cannot make one. A key counts for what is asked after it was put on"
        " record here.",
        "problem": {"tone": "bad", "title": "Nothing was put on record.", "text": problem}
        if problem
        else None,
        "why_not": why_not,
        "asked_from": _asked_from(here),
        "mine": []
        if why_not
        else [_mine(here, person, one) for one in signatures.authenticators(person)],
        "may_enrol": not why_not and signatures.may_enrol(person, here),
        "fresh_login_url": fresh_login.url_to_prove(
            request, reverse("approvals:signing_keys", args=[here.slug])
        ),
        "keys": [_row(*one) for one in _told(here)],
    }
    return page(request, "approvals/signing_keys.html", context, status=status)


def _asked_from(here: Workspace) -> str:
    """The lowest risk at which a yes is signed here; empty where none is, or nobody can tell."""
    try:
        policy = active(here)
    except PolicyUnreadable:
        return ""
    return next((one.value for one in Risk if policy.wants_signature(one)), "")


def _mine(here: Workspace, person: Any, one: Authenticator) -> dict[str, Any]:
    credential = websafe_encode(signatures.credential_of(one).credential_id)
    known = SigningKey.objects.filter(
        workspace=here, person=person, credential=credential, removed_at=None
    )
    try:
        options = json.dumps(signatures.enrolment_options(here, person, one))
        why_not = ""
    except InvalidInput as cannot:
        options, why_not = "", str(cannot)
    return {
        "label": str(one),
        "is_on_record": known.exists(),
        "options": options,
        "why_not": why_not,
        "url": reverse("approvals:signing_key_enrol", args=[here.slug, one.pk]),
    }


def _told(here: Workspace) -> list[tuple[SigningKey, str]]:
    """Each with its fingerprint as the ledger has the key, whatever the row says."""
    rows = SigningKey.objects.filter(workspace=here).select_related("person")
    found = list(rows.order_by("removed_at", "pk")[:KEYS_SHOWN_MAX])
    told = signing_keys.fingerprints(here, [one.event for one in found])
    return [(one, told.get(one.event, "not in the ledger")) for one in found]


TOLD: exporting.Columns = {
    "person": lambda one: str(one[0].person),
    "key": lambda one: one[0].label,
    "fingerprint": itemgetter(1),
    "since": lambda one: one[0].enrolled_at,
    "removed_at": lambda one: one[0].removed_at,
}


def _row(one: SigningKey, fingerprint: str) -> dict[str, Any]:
    return {
        "who": str(one.person),
        "label": one.label,
        "fingerprint": fingerprint,
        "since": formatting.moment(one.enrolled_at),
        "removed": formatting.moment(one.removed_at) if one.removed_at else "",
    }


class SummaryForm(forms.Form):
    hour = forms.TypedChoiceField(
        label="When",
        choices=[("", "Never"), *((str(one), f"Every day at {one:02}:00") for one in range(24))],
        coerce=int,
        empty_value=None,
        required=False,
    )
    without_hint(hour)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def summary(request: Request, workspace: str) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    hour = notifications.hour_of(here, request.user)
    form = SummaryForm(request.POST or None, initial={"hour": "" if hour is None else str(hour)})
    if request.method == "POST":
        require(request.user, "approve", here)
        if form.is_valid():
            notifications.choose_hour(here, request.user, form.cleaned_data["hour"])
            messages.success(request, "Saved for you, in this workspace.")
            return redirect("approvals:summary", workspace=here.slug)
    try:
        hours = active(here).working_hours
    except PolicyUnreadable:
        hours = None
    whose = "your" if request.user.timezone else "the workspace’s"
    clock = f"By {whose} clock, {notifications.zone_for(request.user, here)}."
    within = " Outside of the policy’s working hours it waits until they begin." if hours else ""
    form.fields["hour"].help_text = clock + within
    context: dict[str, Any] = {
        "workspace": here,
        "tab": "summary",
        "title": "Daily summary",
        "lead": "One mail a day of the questions that wait for you in this workspace.",
        "form": form,
        "may_approve": may(request.user, "approve", here),
        "writes_each": request.user.mail_approvals,
    }
    status = 422 if form.errors else 200
    return page(request, "approvals/summary.html", context, status=status)


@csrf_exempt  # a mail program posts it, without a session; the token is the proof
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def stop(request: HttpRequest, token: str) -> HttpResponse:
    """One click from a mail (RFC 8058): a POST ends it. A GET only asks, for scanners follow links.

    Whoever is logged in makes no difference, and nothing else is changed.
    """
    wanted = notifications.wanted_by(token)
    if wanted is None:
        return private(render(request, "approvals/summary_stop.html", {}, status=404))
    here, person = wanted
    if request.method == "POST":
        notifications.choose_hour(here, person, None)
    context = {
        "name": here.name,
        "is_over": notifications.hour_of(here, person) is None,
        "settings_url": reverse("approvals:summary", args=[here.slug]),
    }
    return private(render(request, "approvals/summary_stop.html", context))
