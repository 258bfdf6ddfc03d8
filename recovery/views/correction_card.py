"""What the page of one correction shows to operators."""

from __future__ import annotations

from typing import Any

from django.urls import reverse

from recovery import corrections
from recovery.corrections import delivery, publishing
from recovery.corrections.facts import review_words
from recovery.models import Correction, CorrectionState
from workspaces import look
from workspaces.access import may
from workspaces.models import Workspace
from workspaces.pages import Request

MARKS = {"restored": "ok", "compensated": "ok", "corrected": "ok", "not_undone": "bad"}


def case_url(here: Workspace, one: Correction) -> str:
    return f"/w/{here.slug}/cases/{one.case_id}/"


def card(request: Request, one: Correction) -> dict[str, Any]:
    here = one.workspace
    is_draft = one.state == CorrectionState.DRAFT
    recovers = may(request.user, "recover", here)
    urls = {
        name: reverse(f"recovery:correction_{name}", args=[here.slug, one.pk])
        for name in ("save", "publish", "revoke", "preview")
    }
    hindrance = publishing.why_not(one) if is_draft else ""
    return {
        "workspace": here,
        "correction": {
            "number": one.reference,
            "state": one.state,
            "title": one.title,
            "lead": one.lead,
            "person": one.person_name or one.person_id,
            "contact": one.contact,
            "case_url": case_url(here, one),
            "run": one.case.run.run,
            "revision": one.revision,
            "expires": look.moment(one.expires_at, "day") if one.expires_at else "",
        },
        "corrections_url": reverse("recovery:corrections", args=[here.slug]),
        "facts_changed": [_fact(one, item) for item in one.facts["items"]],
        "reviewed": review_words(one.facts),
        "delivery": _ways(one) if is_draft else [],
        "link": corrections.link_of(one) if recovers else "",
        "sent": _sent(one),
        "reads": _reads(one),
        "preview_url": urls["preview"],
        "save_url": urls["save"],
        "publish_url": urls["publish"] if is_draft else "",
        "revoke_url": urls["revoke"] if one.state == CorrectionState.PUBLISHED else "",
        "publish_label": f"Publish for {one.person_name or one.person_id}",
        "why_not": hindrance or ("" if recovers else "This needs the permission to recover."),
    }


def _fact(one: Correction, item: dict[str, Any]) -> dict[str, Any]:
    return {
        "mark": MARKS.get(item["outcome"], "calm"),
        "what": item["what"],
        "did": item["did"],
        "state_word": item["word"],
        "field": f"word-{item['id']}",
        "wording": one.wording.get(item["id"], ""),
    }


def _ways(one: Correction) -> list[dict[str, Any]]:
    said = {
        delivery.MAIL: ("By mail", f"to {one.contact or 'nobody'}"),
        delivery.WEBHOOK: ("By signed webhook", "to your own product, which shows it"),
        delivery.LINK: ("By a link", "that you copy and hand on yourself"),
    }
    hindrances = {way: delivery.why_not(one, [way]) for way in said}
    first = next(way for way in said if not hindrances[way])
    return [
        {
            "value": way,
            "label": label,
            "note": note,
            "selected": way == first,
            "why_not": hindrances[way],
        }
        for way, (label, note) in said.items()
    ]


def _sent(one: Correction) -> list[dict[str, Any]]:
    said = {"made": "A link was made", "waiting": "On its way by", "sent": "Sent by"}
    return [
        {
            "words": " ".join(
                part
                for part in (
                    said.get(sent.state, "Could not be sent by"),
                    sent.channel if sent.channel != delivery.LINK else "",
                    f"to {sent.address}" if sent.address else "",
                )
                if part
            ),
            "time": look.moment(sent.sent_at or one.published_at),
        }
        for sent in one.deliveries.order_by("pk")
    ]


def _reads(one: Correction) -> list[dict[str, Any]]:
    entries = []
    if one.first_read_at:
        words = f"First read; {one.read_count} times in all"
        entries.append({"words": words, "time": look.moment(one.first_read_at)})
    if one.still_wrong_at:
        words = f"Says that something is still wrong: {look.visible(one.still_wrong_text)}"
        entries.append({"words": words, "time": look.moment(one.still_wrong_at)})
    return entries
