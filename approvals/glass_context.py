"""What pages show of a broken glass: the part of the card, and what is to be reviewed."""

from datetime import tzinfo
from typing import Any

from django.urls import reverse

from approvals import glass_eligibility
from approvals.models import Approval, BrokenGlass
from workspaces import formatting
from workspaces.models import User, Workspace


def offer(approval: Approval, person: User, *, fresh_login_url: str) -> dict[str, Any] | None:
    """The part of the card, for whom the policy names; None for everybody else. `fresh_login_url`
    is where they prove who they are, or empty.
    """
    said = glass_eligibility.allowed(approval)
    if (
        said is None
        or not glass_eligibility.able(approval.workspace, said).filter(pk=person.pk).exists()
    ):
        return None
    if why := glass_eligibility.why_not(approval, person):
        return {"why_not": why} if "have until" in why else None
    if fresh_login_url:
        return {"fresh_login_url": fresh_login_url}
    given = [one.who for one in glass_eligibility.broken_by(approval)]
    return {
        "url": reverse("approvals:break_glass", args=[approval.workspace.slug, approval.pk]),
        "given": ", ".join(given),
        "label": f"Break the glass ({len(given) + 1} of {glass_eligibility.PEOPLE})",
    }


def broken(approval: Approval, zone: tzinfo) -> dict[str, Any] | None:
    """What a card says of a glass that was broken for it."""
    glass = BrokenGlass.objects.filter(approval=approval).select_related("reviewed_by").first()
    if glass is None:
        return None
    return {
        "people": " and ".join(one.who for one in glass_eligibility.broken_by(approval)),
        "opened": formatting.moment(glass.opened_at, "ago", zone) if glass.opened_at else "",
        "reviewed_by": str(glass.reviewed_by or ""),
        "reviewed": formatting.moment(glass.reviewed_at, "ago", zone) if glass.reviewed_at else "",
        "review": glass.review,
    }


SHOWN_MAX = 50


def to_review(here: Workspace, person: User, zone: tzinfo) -> list[dict[str, Any]]:
    """For the page of the health: what nobody has looked at yet."""
    slug = here.slug
    return [
        {
            "title": glass.approval.headline,
            "url": reverse("approvals:card", args=[slug, glass.approval.pk]),
            "people": " and ".join(one.who for one in glass_eligibility.broken_by(glass.approval)),
            "opened": glass.opened_at is not None,
            "since": formatting.moment(glass.begun_at, "ago", zone),
            "why_not": glass_eligibility.why_no_review(glass, person),
            "review_url": reverse("approvals:review_glass", args=[slug, glass.approval.pk]),
            "id": glass.approval.pk,
        }
        for glass in glass_eligibility.unreviewed(here)[:SHOWN_MAX]
    ]
