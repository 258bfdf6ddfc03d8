"""How a correction reached its person, and whether it was read, on its page and in the list."""

from __future__ import annotations

from typing import Any

from recovery.corrections import publishing
from recovery.models import Correction, CorrectionDelivery, CorrectionState
from recovery.run_facts.sentences import plural
from workspaces import formatting


def sent(one: Correction) -> list[dict[str, Any]]:
    return [
        {
            "words": " ".join(
                part
                for part in (
                    _verb(one, way),
                    way.channel if way.channel != publishing.LINK else "",
                    f"to {way.address}" if way.address else "",
                )
                if part
            ),
            "why": _why_not_sent(one, way),
            "time": formatting.moment(way.sent_at or one.published_at),
        }
        for way in one.deliveries.order_by("pk")
    ]


def _is_taken_back(one: Correction, way: CorrectionDelivery) -> bool:
    is_revoked = one.state == CorrectionState.REVOKED and way.state == "waiting"
    return is_revoked or way.last_error == publishing.TAKEN_BACK


def _verb(one: Correction, way: CorrectionDelivery) -> str:
    if _is_taken_back(one, way):
        return "Revoked before it was sent by"
    waits = "Not sent yet by" if way.tries else "On its way by"
    verbs = {"made": "A link was made", "waiting": waits, "sent": "Sent by"}
    return verbs.get(way.state, "Could not be sent by")


def _why_not_sent(one: Correction, way: CorrectionDelivery) -> str:
    """What came of the tries so far, and what to do; empty where it was sent or was not tried."""
    if way.state in {"made", "sent"} or way.last_error in {"", publishing.TAKEN_BACK}:
        return ""
    tried = f"Tried {plural(way.tries, 'time')}: {way.last_error}"
    return f"{tried}. Hand the link on yourself." if publishing.link_of(one) else tried


def reads(one: Correction) -> list[dict[str, Any]]:
    entries = []
    if one.first_read_at:
        words = f"First read; {plural(one.read_count, 'time')} in all"
        entries.append({"words": words, "time": formatting.moment(one.first_read_at)})
    if one.still_wrong_at:
        entries.append({"words": "Contested", "time": formatting.moment(one.still_wrong_at)})
    return entries


def read(one: Correction) -> str:
    if due := [made.due_at for made in one.contests.all() if made.answered_at is None]:
        return f"contested, answer due {formatting.ago(min(due))}"
    if one.still_wrong_at is not None:
        return "contested"
    if one.first_read_at is None:
        return "not read" if one.published_at else "—"
    return f"read {one.read_count} times" if one.read_count > 1 else "read"


def delivered(one: Correction) -> str:
    deliveries = sorted(one.deliveries.all(), key=lambda way: way.pk)
    return ", ".join(f"{way.channel} {_became(one, way)}" for way in deliveries)


def _became(one: Correction, way: CorrectionDelivery) -> str:
    if _is_taken_back(one, way):
        return "revoked before it was sent"
    states = {
        "waiting": "not sent yet" if way.tries else "on its way",
        "failed": "could not be sent",
    }
    return states.get(way.state, way.state)
