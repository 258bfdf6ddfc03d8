"""The question to an affected person, who is asked first: without an account, in their language.

A wrong link and one whose question is settled are answered alike.
"""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from approvals import consent_requests
from approvals.models import ConsentRequest
from workspaces.free_text import InvalidInput
from workspaces.moves import CannotMove
from workspaces.pages import language_of, languages_offered, private


@csrf_exempt  # also where no cookie is kept; whoever has the link may answer, and no one else can
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def asked(request: HttpRequest, token: str) -> HttpResponse:
    with translation.override(language_of(request)):
        consent = consent_requests.find(token)
        if consent is None:
            return private(render(request, "approvals/asked_gone.html", {}, status=404))
        return private(_answered(request, consent, token))


def _answered(request: HttpRequest, consent: ConsentRequest, token: str) -> HttpResponse:
    here = f"{reverse('approvals:asked', args=[token])}?lang={translation.get_language()}"
    error, status = "", 200
    if request.method == "POST":
        posted = request.POST
        try:
            consent_requests.answer(consent, posted.get("answer", ""), posted.get("note", ""))
        except InvalidInput as wrong:
            error, status = _("Nothing was sent. %(why)s") % {"why": wrong}, 422
        except CannotMove as over:
            consent.refresh_from_db()
            error, status = _("Nothing was changed: %(why)s.") % {"why": over}, 409
        else:
            return redirect(here)
    context = {
        "publisher": consent.approval.workspace,
        "languages": languages_offered(),
        "consent": consent,
        "question": consent_requests.question_words(consent),
        "error": error,
        "note": request.POST.get("note", ""),
        "action": here,
    }
    return render(request, "approvals/asked.html", context, status=status)
