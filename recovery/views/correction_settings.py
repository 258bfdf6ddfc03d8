"""How corrections are worded in each language, and what is no news to anybody."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods

from recovery.corrections import wording
from workspaces.free_text import InvalidInput
from workspaces.models import Workspace
from workspaces.moves import CannotMove
from workspaces.pages import Request, is_number, page, still_seen, workspace_to


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def settings(request: Request, workspace: str) -> HttpResponse:
    """How corrections are worded in each language, and what is no news to anybody."""
    here = workspace_to("administer", request, workspace)
    asked = request.POST.get("language", request.GET.get("language", "en"))
    language = asked if asked in wording.LANGUAGES else "en"
    problem, status, typed = None, 200, {}
    if request.method == "POST":
        typed = {name: request.POST.get(name, "") for name in (*wording.SENTENCES, *OF_ALL)}
        try:
            wording.word(
                here,
                by=request.user,
                language=language,
                sentences=typed,
                fields=wording.fields_read(typed["fields"].splitlines()),
                internal=typed["internal"].splitlines(),
                valid_days=_number(typed["valid_days"]),
                answer_days=_number(typed["answer_days"]),
                seen=request.POST.get("seen"),
            )
        except (InvalidInput, CannotMove) as refusal:
            problem = {"tone": "bad", "title": "Nothing was changed.", "text": str(refusal)}
            status = 409 if isinstance(refusal, CannotMove) else 422
        else:
            messages.success(request, "Kept. Corrections that are open follow at once.")
            address = reverse("recovery:correction_settings", args=[here.slug])
            return redirect(f"{address}?language={language}")
    context = _settings(here, language, typed) | {"problem": problem}
    context["seen"] = still_seen(request, status) or context["seen"]
    return page(request, "recovery/correction_settings.html", context, status=status)


OF_ALL = ("fields", "internal", "valid_days", "answer_days")
LABELS = {
    "nothing_to_do": "Where nothing is to be done",
    "ask_again": "Where the request was not carried out",
    "look_for_money": "Where money was paid back",
    "delete_mail": "To whoever got somebody else’s mail",
    "left_over": "Where something still stands",
    "rights": "The right to contest",
    "closing": "Under the first sentences",
}


def _number(said: str) -> int:
    return int(said) if is_number(said) else 0


def _settings(here: Workspace, language: str, typed: dict[str, str]) -> dict[str, Any]:
    found = wording.settings_of(here)
    own = found.sentences.get(language, {})
    valid_days = typed.get("valid_days", str(found.valid_days))
    with translation.override(language):
        usual = {name: gettext(text) for name, text in wording.SENTENCES.items()}
        fields = "\n".join(f"{name} = {text}" for name, text in wording.fields(found).items())
    return {
        "workspace": here,
        "corrections_url": reverse("recovery:corrections", args=[here.slug]),
        "language": language,
        "seen": wording.as_seen(found, language),
        "languages": [
            {"code": code, "name": name, "url": f"?language={code}", "current": code == language}
            for code, name in wording.LANGUAGES.items()
        ],
        "sentences": [
            {
                "name": name,
                "label": LABELS[name],
                "usual": usual[name],
                "own": typed.get(name, own.get(name, "")),
            }
            for name in wording.SENTENCES
        ],
        "fields": typed.get("fields", fields),
        "internal": typed.get("internal", "\n".join(found.internal)),
        "days": [
            {"value": days, "label": f"{days} days", "selected": str(days) == valid_days}
            for days in wording.DAYS
        ],
        "answer_days": typed.get("answer_days", str(found.answer_days)),
        "answer_days_max": wording.ANSWER_DAYS_MAX,
    }
