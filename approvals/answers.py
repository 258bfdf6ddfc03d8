"""Who must answer, who has, and who was told: the people of an approval, as its card shows them."""

from datetime import tzinfo
from typing import Any

from django.db.models import F

from approvals import deciders, wishes
from approvals.models import Approval, Told, WishAnswer
from connectors.models.channels import DeliveryState
from workspaces import look
from workspaces.models import Membership, User

TOLD_SHOWN_MAX = 200
WISHED = {WishAnswer.OPEN: "wait", WishAnswer.YES: "ok", WishAnswer.NO: "bad"}
BECAME = {
    DeliveryState.WAITING: ("calm", "on its way"),
    DeliveryState.SENT: ("ok", "arrived"),
    DeliveryState.FAILED: ("bad", "not delivered"),
}


def decided(approval: Approval, zone: tzinfo) -> list[dict[str, Any]]:
    rows = approval.decisions.select_related("person", "requirement__team").order_by("pk")
    brought_in = _brought_in(approval, [one.person_id for one in rows])
    return [
        {
            "who": str(one.person),
            "group": str(one.requirement.team or "") if one.requirement else "",
            "words": ("yes" if one.granted else "no") + (f", {one.reason}" if one.reason else ""),
            "time": look.moment(one.at, "ago", zone),
            "brought_in": brought_in.get(one.person_id, ""),
        }
        for one in rows
    ]


def _brought_in(approval: Approval, people: list[int]) -> dict[int, str]:
    """Who of the people was brought into the workspace by whom, and on which day."""
    rows = Membership.objects.filter(workspace=approval.workspace_id, person__in=people)
    rows = rows.exclude(added_by=None).exclude(added_by=F("person")).select_related("added_by")
    return {
        row.person_id: f"brought in by {row.added_by} on {row.added_at:%Y-%m-%d}"
        for row in rows.order_by("-added_at")
    }


def newcomers(approval: Approval, zone: tzinfo) -> list[dict[str, Any]]:
    """Who could answer but for having been brought in a short while ago by those who ask."""
    return [
        {
            "who": str(one.person),
            "words": one.brought_in_by,
            "time": look.moment(one.at, "ago", zone),
            "counts": look.moment(one.counts_at, "full", zone),
        }
        for one in deciders.newcomers(approval)
    ]


def requirements(standing: deciders.Standing) -> list[dict[str, Any]]:
    names = {person.pk: str(person) for person in User.objects.filter(pk__in=list(standing.filled))}
    found = []
    for place, one in enumerate(standing.requirements):
        people = [names[person] for person, at in standing.filled.items() if at == place]
        who = f"from {one.team}" if one.team else "who may approve"
        words = f"{one.count} {'person' if one.count == 1 else 'people'} {who}"
        met = len(people) == one.count
        missing = (
            "" if met or not people else f" ({len(people)} of {one.count}: {', '.join(people)})"
        )
        found.append({"words": words + missing, "met_by": ", ".join(people) if met else ""})
    return found


def affected(approval: Approval, zone: tzinfo, *, link: bool) -> list[dict[str, Any]]:
    """What affected people were asked first and said; the link only for who may pass it on."""
    return [
        {
            "who": one.name or one.person_ref,
            "contact": one.contact or "no address known: pass the link on",
            "question": one.question,
            "tone": WISHED[WishAnswer(one.answer)],
            "words": one.get_answer_display(),
            "note": one.note,
            "time": look.moment(one.answered_at or one.asked_at, "ago", zone),
            "link": wishes.link_of(one) if link else "",
        }
        for one in approval.wishes.order_by("pk")
    ]


def enquiries(approval: Approval, zone: tzinfo) -> list[dict[str, Any]]:
    """What was asked back, with the answers; an agent's are quoted, as all that it writes."""
    rows = approval.enquiries.select_related("asked_by", "answered_by").order_by("pk")
    return [
        {
            "id": one.pk,
            "who": str(one.asked_by),
            "question": one.question,
            "time": look.moment(one.asked_at, "ago", zone),
            "answer": one.answer,
            "answered_by": str(one.answered_by or approval.agent or "the agent"),
            "by_agent": one.answered_at is not None and one.answered_by is None,
            "answered": look.moment(one.answered_at, "ago", zone) if one.answered_at else "",
        }
        for one in rows
    ]


def told(approval: Approval, zone: tzinfo) -> list[dict[str, Any]]:
    """Who was told what, when and by which channel, and whether it arrived; oldest first."""
    rows = approval.told.select_related("delivery", "person").order_by("pk")
    return [_told(one, zone) for one in rows[:TOLD_SHOWN_MAX]]


def _told(one: Told, zone: tzinfo) -> dict[str, Any]:
    delivery = one.delivery
    tone, word = ("calm", "no longer known")
    if delivery is not None:
        tone, word = BECAME[DeliveryState(delivery.state)]
    return {
        "who": str(one.person) if one.person else one.to,
        "way": delivery.get_kind_display() if delivery else "",
        "words": one.get_about_display(),
        "tone": tone,
        "became": word,
        "why": delivery.last_error if delivery and delivery.state == DeliveryState.FAILED else "",
        "time": look.moment((delivery.sent_at if delivery else None) or one.at, "ago", zone),
    }
