"""The correction trail: what an affected person reads, without an account.

Whoever has the link sees this and nothing else. A wrong, an expired and a revoked link are answered
with the same page and the same status.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from zoneinfo import ZoneInfo

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from ledger import audit, logkeys, proofs
from ledger.audit import AuditFinding
from ledger.models import Event
from recovery import corrections
from recovery.corrections import TooManyReports, publishing
from recovery.corrections.facts import review_words
from recovery.corrections.publishing import was_read
from recovery.models import Correction
from workspaces.written import InvalidInput

# Records: what the affected person can download and anybody can check offline.


def record_of(correction: Correction) -> dict[str, Any]:
    """Facts and words with their salt, and, once sealed, the entry that vouches for them.

    `event`, `salt` and `proof` are what `python -m amends verify` checks; `facts_digest` in the
    event is SHA-256 over `facts_salt` and the canonical JSON (RFC 8785) of `facts`.
    """
    found: dict[str, Any] = {
        "correction": correction.reference,
        "facts": correction.facts,
        "words": {
            "title": correction.title,
            "lead": correction.lead,
            "wording": correction.wording,
        },
        "facts_salt": bytes(correction.facts_salt or b"").hex(),
    }
    try:
        sealed = proofs.download_of(correction.workspace, correction.event_id)
    except proofs.Tampered as tampered:
        return found | {"proof": None, "note": f"This record has no proof any more: {tampered}."}
    if sealed is None:
        return found | {"proof": None, "note": "Not sealed yet: download it again in a minute."}
    return found | sealed


def check(correction: Correction) -> list[AuditFinding]:
    """What a verifier would look at, looked at here: entry, event, and what the page says."""
    try:
        event, found = _sealed(correction)
    except proofs.Tampered as tampered:
        return [AuditFinding("The entry", ok=False, words=str(tampered))]
    if event is None or found is None:
        return []
    entry = audit.check_file(correction.workspace, found.text)
    data = event.data if isinstance(event.data, dict) else {}
    salt = bytes(correction.facts_salt or b"")
    as_published = data.get("facts_digest") == publishing.facts_digest(
        salt, correction.facts
    ) and data.get("words_digest") == publishing.facts_digest(salt, publishing.words_of(correction))
    return [
        AuditFinding("The entry is in the sealed log", ok=entry.ok, words=f"number {found.index}"),
        AuditFinding(
            "It is as it was sealed", ok=proofs.is_as_digested(event), words=found.head.origin
        ),
        AuditFinding("This page says what was published", ok=as_published, words=""),
    ]


def words(correction: Correction) -> str:
    """`entry 18 204 of a sealed log`"""
    if not correction.event_id:
        return "not published yet"
    try:
        _, found = _sealed(correction)
    except proofs.Tampered:
        return "its entry is no longer the one that was sealed"
    if found is None:
        return "its entry is being sealed"
    number = f"{found.index:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return f"entry {number} of a sealed log"


def _sealed(correction: Correction) -> tuple[Event | None, proofs.Inclusion | None]:
    """The event of its publishing, and its place in the sealed log; raises Tampered."""
    event = proofs.event_of(correction.workspace, correction.event_id)
    return event, proofs.inclusion_of(correction.workspace, event) if event is not None else None


DONE = frozenset({"restored", "compensated", "corrected"})
LASTING = frozenset({"corrected", "repaired", "not_undone"})


View = Callable[[HttpRequest, Correction, str], HttpResponse]


def by_link(view: View) -> Callable[[HttpRequest, str], HttpResponse]:
    """A page for whoever has the link; whatever is wrong with a link, it is answered alike."""

    @never_cache
    @wraps(view)
    def answered(request: HttpRequest, token: str) -> HttpResponse:
        correction = corrections.find(token)
        if correction is None:
            return private(render(request, "recovery/trail_gone.html", {}, status=404))
        return private(view(request, correction, token))

    return answered


@require_safe
@by_link
def trail(request: HttpRequest, correction: Correction, token: str) -> HttpResponse:
    if request.method == "GET":
        was_read(correction)
    links = {
        "report": {
            "url": reverse("recovery:trail_report", args=[token]),
            "sent": "sent" in request.GET,
        },
        "download": reverse("recovery:trail_record", args=[token]),
        "verify": reverse("recovery:trail_verify", args=[token]),
    }
    return render(request, "recovery/trail.html", trail_context(correction, links))


@require_safe
@by_link
def record(request: HttpRequest, correction: Correction, token: str) -> HttpResponse:
    """The facts with their salt and the proof, as `python -m amends verify` takes them."""
    answer = JsonResponse(record_of(correction), json_dumps_params={"indent": 2})
    answer["Content-Disposition"] = f'attachment; filename="{correction.reference}.json"'
    return answer


@require_safe
@by_link
def verify(request: HttpRequest, correction: Correction, token: str) -> HttpResponse:
    """The record checked here, and how to check it without trusting this page."""
    findings = check(correction)
    context = _about(correction, token) | {
        "download_url": reverse("recovery:trail_record", args=[token]),
        "findings": findings,
        "all_well": bool(findings) and all(finding.ok for finding in findings),
        "file": f"{correction.reference}.json",
        "public_keys": logkeys.published(correction.workspace),
    }
    return render(request, "recovery/trail_verify.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@by_link
def report(request: HttpRequest, correction: Correction, token: str) -> HttpResponse:
    """“Something is still wrong.” Reading the form changes nothing; sending it opens a case."""
    text, error, status = request.POST.get("text", ""), "", 200
    if request.method == "POST":
        try:
            corrections.still_wrong(correction, text)
        except InvalidInput as refusal:
            error, status = str(refusal), 422
        except TooManyReports:
            error = "We have heard from you several times, and a person is looking at it."
            status = 429
        else:
            return redirect(f"{reverse('recovery:trail', args=[token])}?sent=1")
    action = reverse("recovery:trail_report", args=[token])
    context = _about(correction, token) | {"action": action, "text": text, "error": error}
    return render(request, "recovery/report.html", context, status=status)


def _about(correction: Correction, token: str) -> dict[str, Any]:
    return {
        "publisher": correction.workspace,
        "correction": {"title": correction.title, "number": correction.reference},
        "trail_url": reverse("recovery:trail", args=[token]),
    }


def private(answer: HttpResponse) -> HttpResponse:
    """Keep the address out of search engines and of other sites' logs.

    To ourselves the browser says where it comes from: without an origin no form would be taken.
    """
    answer["X-Robots-Tag"] = "noindex, nofollow"
    answer["Referrer-Policy"] = "same-origin"
    return answer


def trail_context(correction: Correction, links: dict[str, Any]) -> dict[str, Any]:
    """What the trail's template shows, of a draft as of a published correction."""
    facts = correction.facts
    return {
        "publisher": correction.workspace,
        "correction": {
            "title": correction.title,
            "lead": correction.lead,
            "when": when(correction),
            "number": correction.reference,
        },
        "changed": [*(_changed(correction, one) for one in facts["items"]), *_untouched(facts)],
        "lasting": [
            {"what": f"{one['what']} {_did(correction, one)}", "word": one["word"]}
            for one in facts["items"]
            if one["outcome"] in LASTING
        ],
        "reviewed": review_words(facts),
        "record": {
            "words": words(correction),
            "verify_url": links.get("verify", ""),
            "download_url": links.get("download", ""),
        },
        "report": links.get("report", {}),
        "question": None,
    }


def when(correction: Correction) -> str:
    """The time of publishing where the workspace is, for no script may put the reader's own."""
    moment = correction.published_at or correction.drafted_at
    zone = ZoneInfo(correction.workspace.timezone or "UTC")
    there = moment.astimezone(zone)
    return f"{there:%B} {there.day}, {there:%Y, %H:%M} {there.tzname()}"


def _changed(correction: Correction, one: dict[str, Any]) -> dict[str, str]:
    done = one["outcome"] in DONE
    return {
        "what": one["what"],
        "did": _did(correction, one),
        "tone": "ok" if done else "calm",
        "sign": "✓" if done else "○",
        "word": one["word"],
    }


def _did(correction: Correction, one: dict[str, Any]) -> str:
    return str(correction.wording.get(one["id"]) or one["did"])


def _untouched(facts: dict[str, Any]) -> list[dict[str, str]]:
    return [
        {"what": one["what"], "did": "", "tone": "calm", "sign": "○", "word": one["word"]}
        for one in facts["unchanged"]
    ]
