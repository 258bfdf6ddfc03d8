"""A yes of one of two who decide in place of others, loudly; its review, and what pages show of it.

Who may is said in `glass_eligibility`. Everything that a yes is bound to holds here, too: the
digest that was shown, pauses, what the affected person has to say first, and signatures.
"""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models.functions import Now
from django.urls import reverse

from amends.protocol.vocabulary import EventType
from approvals import glass_eligibility, inbox, notifications, signatures
from approvals.digests import record
from approvals.inbox import NeedsFreshLogin, NotEntitled
from approvals.models import Approval, ApprovalState, BrokenGlass
from connectors import channels
from connectors.channels import Message
from workspaces import formatting
from workspaces.access import people_with
from workspaces.free_text import REASON_CHARACTERS_MAX, kept_text
from workspaces.fresh_login import is_fresh
from workspaces.models import User, Workspace

SUBJECT = "approval.break_glass"
TOLD_MAX = 500
"""People who are written to, also those who want no mail of approvals."""
WITHOUT_REASON = "Say why nobody who should decide can be reached."
WITHOUT_REVIEW = "Say what you found."


@transaction.atomic
def agree(
    approval: Approval,
    *,
    by: User,
    seen: str,
    reason: str,
    shown: Mapping[str, Any] | None = None,
    shown_seconds: float | None = None,
    login_at: datetime | None = None,
    signed: Any = None,
) -> Approval:
    """Say yes as one of two; with the second the approval is granted. Raises as `inbox.grant`."""
    began = time.time()
    reason = kept_text(reason, REASON_CHARACTERS_MAX, asking=WITHOUT_REASON)
    approval = inbox.as_shown(approval, seen)
    said = glass_eligibility.allowed(approval)
    why = glass_eligibility.why_not(approval, by) or inbox.held(approval)
    if why or said is None:
        raise NotEntitled(approval, ApprovalState.GRANTED, why)
    if not is_fresh(login_at):
        raise NeedsFreshLogin
    team = glass_eligibility.team_of(said, approval.workspace)
    glass, begun = BrokenGlass.objects.get_or_create(
        approval=approval, defaults={"workspace": approval.workspace, "team": team}
    )
    decision = inbox.decide(
        approval, by, granted=True, seen=seen, reason=reason, shown=shown,
        shown_seconds=shown_seconds, login_at=login_at, break_glass=True,
        signature=signatures.sign(approval, by=by, answer=signed) if approval.signed else None,
    )  # fmt: skip
    given = glass_eligibility.still(approval)
    opened = len(given) >= glass_eligibility.PEOPLE
    signature = {"signature": decision.signature} if decision.signature else {}
    record(
        approval, EventType.APPROVAL_GRANTED, by=by, reason=reason, complete=opened, fills="",
        break_glass=True, **signature,
    )  # fmt: skip
    event = EventType.BREAK_GLASS_OPENED if opened else EventType.BREAK_GLASS_BEGUN
    people = [one.who for one in given]
    record(approval, event, by=by, reason=reason, people=people, first=begun)
    answer = glass_eligibility.broken_by(approval).count()
    _tell(approval, people, reason, opened=opened, answer=answer)
    if opened:
        BrokenGlass.objects.filter(pk=glass.pk).update(opened_at=Now())
        inbox.complete(approval, by)
    inbox.count(approval, "yes", began)
    return approval


def open_again(approval: Approval) -> bool:
    """Grant a locked question for which two have broken the glass, since one of them may again who
    might not when the other did: each has answered, and no more is heard of them.
    """
    given = glass_eligibility.still(approval)
    is_open = Approval.objects.open().filter(pk=approval.pk).exists() and approval.calls
    if not is_open or len(given) < glass_eligibility.PEOPLE or inbox.held(approval):
        return False
    people, reason = [one.who for one in given], given[-1].reason
    record(approval, EventType.BREAK_GLASS_OPENED, reason=reason, people=people, first=False)
    _tell(approval, people, reason, opened=True, answer=0)
    BrokenGlass.objects.filter(approval=approval).update(opened_at=Now())
    inbox.complete(approval, None)
    return True


def _tell(approval: Approval, people: list[str], reason: str, *, opened: bool, answer: int) -> None:
    """Everybody who approves or administers, by mail, and every channel of the subject: once of
    each `answer`.
    """
    who = " and ".join(people)
    what = notifications.subject(approval)
    title = f"The glass {'was broken' if opened else 'is being broken'}: {what}"
    text = (
        f"{who} approved {what} in place of those who are asked ({approval.risk} risk)."
        if opened
        else f"{who} wants to approve {what} in place of those who are asked, and takes a second"
        " person. Whoever is asked can still decide."
    )
    note = "Somebody who took no part has to look at it afterwards, under Approvals › Health."
    url = notifications.url(approval)
    message = Message(title, f"{text}\n{note}", url, notifications.facts(approval))
    fuller = Message(title, f"{text}\nBecause: {reason}\n{note}", url, message.facts)
    key = f"{SUBJECT}/{approval.pk}/{answer}"
    here = approval.workspace
    channels.announce(here, SUBJECT, message, key=key, fuller=fuller)
    told = (people_with("approve", here) | people_with("administer", here)).distinct()
    mails = {f"{key}/person/{one.pk}": one.email for one in told.order_by("pk")[:TOLD_MAX]}
    if mails:
        channels.write_to_each(here, mails, SUBJECT, message)


@transaction.atomic
def review(glass: BrokenGlass, *, by: User, text: str) -> None:
    """Close it. Raises NotEntitled, or InvalidInput where nothing was said."""
    text = kept_text(text, REASON_CHARACTERS_MAX, asking=WITHOUT_REVIEW)
    if why := glass_eligibility.why_no_review(glass, by):
        raise NotEntitled(glass.approval, "reviewed", why)
    if not glass_eligibility.close(glass, by=by, review=text):
        raise NotEntitled(glass.approval, "reviewed", "somebody was faster")
    record(glass.approval, EventType.BREAK_GLASS_REVIEWED, by=by, review=text)


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
    given = [one.who for one in glass_eligibility.still(approval)]
    if len(given) >= glass_eligibility.PEOPLE:  # it goes on by itself, once nothing holds it
        return None
    return {
        "url": reverse("approvals:break_glass", args=[approval.workspace.slug, approval.pk]),
        "given": ", ".join(given),
        "label": f"Break the glass ({len(given) + 1} of {glass_eligibility.PEOPLE})",
    }


def broken(approval: Approval) -> dict[str, Any] | None:
    """What a card says of a glass that was broken for it."""
    glass = BrokenGlass.objects.filter(approval=approval).select_related("reviewed_by").first()
    if glass is None:
        return None
    return {
        "people": " and ".join(one.who for one in glass_eligibility.broken_by(approval)),
        "opened": formatting.moment(glass.opened_at) if glass.opened_at else "",
        "reviewed_by": str(glass.reviewed_by or ""),
        "reviewed": formatting.moment(glass.reviewed_at) if glass.reviewed_at else "",
        "review": glass.review,
    }


SHOWN_MAX = 50
REVIEWED_SHOWN_MAX = 5


def reviewed(here: Workspace) -> list[dict[str, Any]]:
    """For the page of the health: the newest that somebody has looked at, and what they found."""
    rows = BrokenGlass.objects.filter(workspace=here, reviewed_at__isnull=False)
    rows = rows.select_related("approval", "reviewed_by").order_by("-reviewed_at")
    return [
        {
            "title": glass.approval.headline,
            "url": reverse("approvals:card", args=[here.slug, glass.approval.pk]),
            "people": " and ".join(one.who for one in glass_eligibility.broken_by(glass.approval)),
            "by": str(glass.reviewed_by),
            "at": formatting.moment(glass.reviewed_at),
            "found": glass.review,
        }
        for glass in rows[:REVIEWED_SHOWN_MAX]
    ]


def to_review(here: Workspace, person: User) -> list[dict[str, Any]]:
    """For the page of the health: what nobody has looked at yet."""
    slug = here.slug
    return [
        {
            "title": glass.approval.headline,
            "url": reverse("approvals:card", args=[slug, glass.approval.pk]),
            "people": " and ".join(one.who for one in broken_by),
            "reasons": list(dict.fromkeys(one.reason for one in broken_by)),
            "opened": glass.opened_at is not None,
            "since": formatting.moment(glass.begun_at),
            "why_not": glass_eligibility.why_no_review(glass, person),
            "review_url": reverse("approvals:review_glass", args=[slug, glass.approval.pk]),
            "id": glass.approval.pk,
        }
        for glass in glass_eligibility.unreviewed(here)[:SHOWN_MAX]
        for broken_by in [list(glass_eligibility.broken_by(glass.approval))]
    ]
