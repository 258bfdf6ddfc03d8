"""The daily summary: whether a person wants one here, and at which hour."""

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from approvals import summaries
from approvals.policy import Unreadable, active
from workspaces.access import may, require
from workspaces.forms import without_hint
from workspaces.pages import Request, page, workspace_or_404


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
    hour = summaries.hour_of(here, request.user)
    form = SummaryForm(request.POST or None, initial={"hour": "" if hour is None else str(hour)})
    if request.method == "POST":
        require(request.user, "approve", here)
        if form.is_valid():
            summaries.choose(here, request.user, form.cleaned_data["hour"])
            messages.success(request, "Saved for you, in this workspace.")
            return redirect("approvals:summary", workspace=here.slug)
    try:
        hours = active(here).working_hours
    except Unreadable:
        hours = None
    context: dict[str, Any] = {
        "workspace": here,
        "tab": "summary",
        "title": "Daily summary",
        "lead": "One mail a day of the questions that wait for you in this workspace.",
        "form": form,
        "may_approve": may(request.user, "approve", here),
        "zone_name": str(summaries.zone_for(request.user, here)),
        "keeps_hours": hours is not None,
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
    wanted = summaries.wanted_by(token)
    if wanted is None:
        return _private(render(request, "approvals/summary_stop.html", {}, status=404))
    here, person = wanted
    if request.method == "POST":
        summaries.choose(here, person, None)
    context = {
        "name": here.name,
        "is_over": summaries.hour_of(here, person) is None,
        "settings_url": reverse("approvals:summary", args=[here.slug]),
    }
    return _private(render(request, "approvals/summary_stop.html", context))


def _private(answer: HttpResponse) -> HttpResponse:
    """The address is a credential of sorts: it leaves by no referrer and stands in no index."""
    answer["X-Robots-Tag"] = "noindex, nofollow"
    answer["Referrer-Policy"] = "same-origin"
    return answer
