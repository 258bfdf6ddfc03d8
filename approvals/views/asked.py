"""The affected person, who is asked first, has no account and a page of their own."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from approvals import consent_requests
from approvals.models import ConsentRequest
from workspaces.moves import CannotMove
from workspaces.pages import private
from workspaces.written import InvalidInput


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def asked(request: HttpRequest, token: str) -> HttpResponse:
    consent = consent_requests.find(token)
    if consent is None:
        return private(render(request, "approvals/asked_gone.html", {}, status=404))
    if request.method != "POST":
        return _consent_page(request, consent, token)
    try:
        consent_requests.answer(
            consent, request.POST.get("answer", ""), request.POST.get("note", "")
        )
    except InvalidInput as wrong:
        return _consent_page(
            request, consent, token, error=f"Nothing was sent. {wrong}", status=422
        )
    except CannotMove as over:
        consent.refresh_from_db()
        return _consent_page(
            request, consent, token, error=f"Nothing was changed: {over}.", status=409
        )
    return redirect("approvals:asked", token=token)


def _consent_page(
    request: HttpRequest, consent: ConsentRequest, token: str, *, error: str = "", status: int = 200
) -> HttpResponse:
    context = {
        "publisher": consent.approval.workspace,
        "consent": consent,
        "error": error,
        "note": request.POST.get("note", ""),
        "action": reverse("approvals:asked", args=[token]),
    }
    return private(render(request, "approvals/asked.html", context, status=status))
