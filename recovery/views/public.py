"""The correction trail: what an affected person reads, without an account.

Whoever has the link sees this and nothing else. A wrong, an expired and a revoked link are answered
with the same page and the same status.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import wraps
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings as configuration
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import formats, translation
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import now
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_safe

from ledger import audit, logkeys, proofs
from ledger.audit import AuditFinding
from ledger.models import Event
from ledger.views.events import verifier_digest
from recovery import corrections
from recovery.corrections import LinkGone, TooManyReports, drafting, publishing, sentences, wording
from recovery.corrections.publishing import was_opened
from recovery.corrections.sentences import LASTING
from recovery.models import (
    Contest,
    ContestGround,
    Correction,
    CorrectionSettings,
    CorrectionState,
)
from recovery.run_facts.sentences import MAILS
from workspaces import access, client_packages, formatting
from workspaces.free_text import InvalidInput
from workspaces.pages import language_of, languages_offered, private

# Records: what the affected person can download and anybody can check offline.


def record_of(correction: Correction) -> dict[str, Any]:
    """Facts and words with their salt, and, once sealed, the entry that vouches for them.

    `event`, `salt` and `proof` are what `python -m amends verify` checks; `facts_digest` in the
    event is SHA-256 over `facts_salt` and the canonical JSON (RFC 8785) of `facts`.
    """
    found: dict[str, Any] = {
        "correction": correction.reference,
        "facts": correction.facts,
        "words": publishing.words_of(correction),
        "facts_salt": bytes(correction.facts_salt or b"").hex(),
    }
    try:
        _sealed(correction)
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
    except proofs.Tampered:
        words = _("its entry is no longer the one that was sealed")
        return [AuditFinding(_("The entry"), ok=False, words=words)]
    if found is None:
        return []
    entry = audit.check_file(correction.workspace, found.text)
    data = event.data if isinstance(event.data, dict) else {}
    salt = bytes(correction.facts_salt or b"")
    as_published = data.get("facts_digest") == publishing.facts_digest(
        salt, correction.facts
    ) and data.get("words_digest") == publishing.facts_digest(salt, publishing.words_of(correction))
    return [
        AuditFinding(
            _("The entry is in the sealed log"),
            ok=entry.ok,
            words=_("number %(n)s") % {"n": formatting.count(found.index)},
        ),
        AuditFinding(
            _("It is as it was sealed"), ok=proofs.is_as_digested(event), words=found.head.origin
        ),
        AuditFinding(_("This page says what was published"), ok=as_published, words=""),
    ]


def words(correction: Correction) -> str:
    """`entry 18 204 of a sealed log`"""
    if not correction.event_id:
        return _("not published yet")
    try:
        found = _sealed(correction)[1]
    except proofs.Tampered:
        return _("its entry is no longer the one that was sealed")
    if found is None:
        return _("its entry is being sealed")
    number = formatting.count(found.index)
    return _("entry %(number)s of a sealed log") % {"number": number}


def _sealed(correction: Correction) -> tuple[Event, proofs.Inclusion | None]:
    """The event of its publishing, and its place in the sealed log, once it has one; raises
    Tampered. The event came with the publishing, and stays as long as the link opens.
    """
    event = proofs.event_of(correction.workspace, correction.event_id)
    if event is None:
        raise proofs.Tampered("its entry is gone")
    return event, proofs.inclusion_of(correction.workspace, event)


SIGNS = {
    **dict.fromkeys(("restored", "compensated", "as_before"), ("ok", "✓")),
    **dict.fromkeys(LASTING, ("bad", "⊘")),
}

View = Callable[..., HttpResponse]


def by_link(view: View) -> Callable[..., HttpResponse]:
    """A page for whoever has the link, in the reader's language; whatever is wrong with a link, it
    is answered alike.
    """

    @never_cache
    @wraps(view)
    def answered(request: HttpRequest, token: str, **more: str) -> HttpResponse:
        with translation.override(language_of(request)):
            if correction := corrections.find(token):
                with suppress(LinkGone):
                    return private(view(request, correction, token, **more))
            return private(render(request, "recovery/trail_gone.html", {}, status=404))

    return answered


@require_safe
@by_link
def trail(request: HttpRequest, correction: Correction, token: str) -> HttpResponse:
    if request.method == "GET" and not access.may(request.user, "view", correction.workspace):
        was_opened(correction)  # who works at the desk only looks whether it opens
    links = {
        "contest": reverse("recovery:trail_report", args=[token]),
        "download": reverse("recovery:trail_record", args=[token]),
        "verify": reverse("recovery:trail_verify", args=[token]),
        "receipt": lambda one: reverse("recovery:trail_receipt", args=[token, one.receipt]),
    }
    context = trail_context(correction, links) | {"languages": languages_offered()}
    return render(request, "recovery/trail.html", context)


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
    """The record checked here, and how to check it without trusting this page.

    The verifier is a file of its own, since this page carries no script.
    """
    findings = check(correction)
    context = _about(correction, token) | {
        "download_url": reverse("recovery:trail_record", args=[token]),
        "findings": findings,
        "all_well": bool(findings) and all(finding.ok for finding in findings),
        "file": f"{correction.reference}.json",
        "public_keys": logkeys.published(correction.workspace),
        "verifier": {"url": reverse("ledger:verifier"), "digest": verifier_digest()},
        "client_url": client_packages.wheel.url,
    }
    return render(request, "recovery/trail_verify.html", context)


@csrf_exempt  # also where no cookie is kept; whoever has the link may say it, and no one else can
@require_http_methods(["GET", "HEAD", "POST"])
@by_link
def report(request: HttpRequest, correction: Correction, token: str) -> HttpResponse:
    """Contesting it. Reading the form changes nothing; sending it starts the clock and opens the
    case.
    """
    text, ground = request.POST.get("text", ""), request.POST.get("ground", "")
    error, status = "", 200
    if request.method == "POST":
        try:
            made = corrections.contest(correction, ground=ground, text=text)
        except InvalidInput as refusal:
            error, status = str(refusal), 422
        except TooManyReports:
            error = _("We have heard from you several times, and a person is looking at it.")
            status = 429
        else:
            return redirect(_in_language("recovery:trail_receipt", token, made.receipt))
    settings = wording.settings_of(correction.workspace)
    context = _about(correction, token) | {
        "action": _in_language("recovery:trail_report", token),
        "text": text,
        "error": error,
        "grounds": [
            {"value": value, "label": label, "selected": value == ground}
            for value, label in ContestGround.choices
        ],
        "rights": wording.sentence(settings, "rights"),
        "answer_days": settings.answer_days,
    }
    return render(request, "recovery/report.html", context, status=status)


@require_safe
@by_link
def receipt(request: HttpRequest, correction: Correction, token: str, receipt: str) -> HttpResponse:
    """What the person said, when, until when it is answered, and the answer once there is one."""
    found = correction.contests.filter(receipt=receipt).first()
    if found is None:
        raise LinkGone
    context = _about(correction, token) | {"contest": _contest(correction, found)}
    return render(request, "recovery/receipt.html", context)


def _contest(correction: Correction, one: Contest) -> dict[str, Any]:
    return {
        "receipt": one.receipt,
        "ground": one.get_ground_display(),
        "text": one.text,
        "at": _zoned(one.at, correction),
        "due": _zoned(one.due_at, correction),
        "overdue": one.answered_at is None and one.due_at < now(),
        "answered": _zoned(one.answered_at, correction) if one.answered_at else "",
        "verdict": _("You were right") if one.upheld else _("It stays as it is"),
        "answer": one.answer,
    }


def _in_language(name: str, *args: str) -> str:
    """The address in the language that the reader reads now."""
    return f"{reverse(name, args=args)}?lang={translation.get_language()}"


def _about(correction: Correction, token: str) -> dict[str, Any]:
    return {
        "publisher": correction.workspace,
        "correction": {
            "title": (title := drafting.title_of(correction)),
            "quoted": wording.quoted(title),
            "number": correction.reference,
        },
        "trail_url": _in_language("recovery:trail", token),
    }


def trail_context(correction: Correction, links: dict[str, Any]) -> dict[str, Any]:
    """What the trail's template shows, of a draft as of a published correction."""
    settings = wording.settings_of(correction.workspace)
    with wording.naming(wording.fields(settings)):
        return _told(correction, links, settings)


def _told(
    correction: Correction, links: dict[str, Any], settings: CorrectionSettings
) -> dict[str, Any]:
    facts = correction.facts
    receipt_of = links.get("receipt", lambda _one: "")
    return {
        "publisher": correction.workspace,
        "correction": {
            "title": drafting.title_of(correction),
            "lead": drafting.lead_of(correction),
            "when": _zoned(correction.published_at or correction.drafted_at, correction),
            "number": correction.reference,
            "expires": _zoned(correction.expires_at, correction) if correction.expires_at else "",
        },
        "request": {"text": facts.get("request", ""), "words": sentences.request_words(facts)},
        "changed": [
            _line(correction, one) for one in facts["items"] if one["outcome"] not in LASTING
        ]
        + [_untouched(one) for one in facts["unchanged"]],
        "lasting": [_line(correction, one) for one in facts["items"] if one["outcome"] in LASTING],
        "now": sentences.now(facts),
        "to_do": _to_do(facts, settings),
        "closing": wording.sentence(settings, "closing"),
        "reviewed": sentences.review_words(facts),
        "since": _since(correction),
        "record": {
            "words": words(correction),
            "verify_url": links.get("verify", ""),
            "download_url": links.get("download", ""),
        },
        "contest": {
            "url": links.get("contest", ""),
            "address": f"{configuration.AMENDS_URL}{links.get('contest', '')}",
            "rights": wording.sentence(settings, "rights"),
            "answer_days": settings.answer_days,
            "made": [
                _contest(correction, one) | {"url": receipt_of(one)}
                for one in correction.contests.order_by("pk")
            ],
        },
    }


def _since(correction: Correction) -> dict[str, str]:
    """What tells whoever reads it that it is no longer so, and leads to the newer one if there is
    one to read. A further one that nobody has published tells it only where something else has
    happened: it is drafted where only why somebody looked is another, as after a contest. One that
    tells of nothing at all takes back what nothing has changed of, once people have published it.
    """
    of_them = correction.case.corrections.filter(person_id=correction.person_id)
    later = [
        one
        for one in of_them.filter(pk__gt=correction.pk).order_by("-pk")
        if one.state == CorrectionState.PUBLISHED or _tells_more(one, correction)
    ]
    if not later:
        return {}
    links = (corrections.link_of(one) for one in later if one.expires_at and one.expires_at > now())
    return {"url": next(filter(None, links), "")}


def _tells_more(later: Correction, correction: Correction) -> bool:
    return bool(later.facts["items"]) and _happened(later) != _happened(correction)


def _happened(correction: Correction) -> dict[str, Any]:
    return {name: told for name, told in correction.facts.items() if name != "why"}


def _zoned(moment: datetime, correction: Correction) -> SafeString:
    """The time where the workspace is, with the name of its zone; a script puts the reader's own,
    where it runs.
    """
    there = moment.astimezone(ZoneInfo(correction.workspace.timezone or "UTC"))
    return format_html(
        '<time datetime="{}" data-zoned>{} {}</time>',
        moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        formats.date_format(there, "DATETIME_FORMAT"),
        there.tzname() or "UTC",
    )


def _line(correction: Correction, one: dict[str, Any]) -> dict[str, Any]:
    tone, sign = SIGNS.get(one["outcome"], ("calm", "○"))
    return {
        "what": sentences.what(one),
        "did": str(correction.wording.get(one["id"]) or sentences.did(one)),
        "tone": tone,
        "sign": sign,
        "word": sentences.word(one),
        "reference": sentences.reference(one),
        "by": sentences.by_whom(one),
        "approved": sentences.approved(one),
        "at": _moment(one.get("changed_at"), correction),
        "undone_by": sentences.put_right_by(one) if one.get("undone_at") else "",
        "undone_at": _moment(one.get("undone_at"), correction),
    }


def _moment(text: str | None, correction: Correction) -> SafeString | str:
    return _zoned(datetime.fromisoformat(text), correction) if text else ""


def _untouched(one: dict[str, Any]) -> dict[str, Any]:
    what = sentences.untouched(one) if one.get("act") else one["what"]
    return {"what": what, "did": "", "tone": "calm", "sign": "○", "word": sentences.word(one)}


def _to_do(facts: dict[str, Any], settings: CorrectionSettings) -> list[str]:
    """What the person has to do: usually nothing."""
    items = facts["items"]
    own, acts = bool(facts.get("request")), {one.get("act") for one in items}
    is_mail = any(one["target"]["type"] in MAILS for one in items)
    steps = []
    if is_mail and not own and acts & {"corrected", "not_undone"}:
        steps.append("delete_mail")
    if facts.get("request_state") in {"not_done", "not_as_asked"} and own:
        steps.append("ask_again")
    if "refunded" in acts:
        steps.append("look_for_money")
    stands = {one.get("act") for one in items if one["target"]["type"] not in MAILS}
    still = acts & {"left", "not_undone", "repaired"} or "corrected" in stands
    if still and "delete_mail" not in steps:
        steps.append("left_over")
    return [wording.sentence(settings, name) for name in steps or ["nothing_to_do"]]
