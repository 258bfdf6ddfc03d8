"""How a correction reached its person, and whether its link was opened: its page and the list."""

from __future__ import annotations

from typing import Any

from django.urls import reverse

from amends.protocol.vocabulary import EventType
from connectors.models import DeliveryState
from ledger import desk_events
from ledger.models import Event
from recovery.corrections import contesting, publishing
from recovery.models import (
    Case,
    CaseState,
    Contest,
    Correction,
    CorrectionDelivery,
    CorrectionState,
    Suggestion,
)
from recovery.run_facts.sentences import plural
from workspaces import formatting
from workspaces.access import may
from workspaces.models import User

IS_HOW: dict[str, str] = {
    CorrectionState.DRAFT: "is a draft",
    CorrectionState.PUBLISHED: "is published",
    CorrectionState.REVOKED: "was revoked",
}


def way(one: Correction) -> list[dict[str, Any]]:
    """How it went and what came back, in the order in which it was."""
    told = [*_sent(one), *_handed_on(one), *_heard(one)]
    return [
        entry | {"time": formatting.moment(entry["at"])}
        for entry in sorted(told, key=lambda entry: (entry["at"] is None, entry["at"] or 0))
    ]


def _sent(one: Correction) -> list[dict[str, Any]]:
    answered = dict(one.contests.values_list("receipt", "answered_at"))
    return [
        {
            "words": _how(one, way),
            "why": _why_not_sent(one, way),
            "at": way.sent_at or answered.get(_receipt(one, way), one.published_at),
        }
        for way in one.deliveries.exclude(channel=publishing.HANDED).order_by("pk")
    ]


def tells_of(one: Correction, answered: Contest) -> bool:
    """Whether anything was to go out that says that there is this answer."""
    return any(_receipt(one, way) == answered.receipt for way in one.deliveries.all())


def _receipt(one: Correction, way: CorrectionDelivery) -> str:
    """Of the contest whose answer it tells of; of a letter something else, or empty."""
    return way.message_key.removeprefix(f"correction/{one.reference}/").partition("/")[0]


def _how(one: Correction, way: CorrectionDelivery) -> str:
    to = f" to {way.address}" if way.address else ""
    if way.channel == contesting.ANSWER:
        return f"The answer: {_verb(one, way).lower().removesuffix(' by')}{to}"
    channel = f" {way.channel}" if way.channel != publishing.LINK else ""
    return f"{_verb(one, way)}{channel}{to}"


def _handed_on(one: Correction) -> list[dict[str, Any]]:
    """Who says that they told the person, and how, as the ledger keeps it until it is erased."""
    row = one.deliveries.filter(channel=publishing.HANDED).first()
    if row is None:
        return []
    told = Event.objects.filter(
        workspace=one.workspace_id,
        run=one.case.run.run,
        type=EventType.CORRECTION_HANDED_ON,
        data__correction=one.reference,
    ).first()
    who = desk_events.people_of([told])[int(told.actor)] if told else "Somebody"
    how = formatting.quoted(told.data["how"]) if told and told.data else ""
    return [{"words": f"{who} told them", "why": how, "at": row.sent_at}]


def handing(one: Correction) -> dict[str, Any]:
    """What the form *I handed it on* needs; empty where the person was told already."""
    if not publishing.is_untold(one):
        return {}
    where = [one.case.workspace.slug, one.pk]
    return {
        "url": reverse("recovery:correction_handed_on", args=where),
        "revision": one.revision,
        "person": one.person_name or one.person_id,
        "why": f"{_untold_words(one)}{OPENED if one.first_read_at else ''}",
    }


OPENED = " Its link was opened, by them or by a program that looks at links: ask them."


def _untold_words(one: Correction) -> str:
    ways = {way.state for way in one.deliveries.all()}
    if any(map(_is_in_doubt, one.deliveries.all())):
        return f"{publishing.PERHAPS_SENT}: ask the person, or hand it on."
    if DeliveryState.FAILED in ways:
        return "It could not be sent: nobody has been told yet."
    if DeliveryState.WAITING in ways:
        return "It was not sent yet: nobody has been told."
    return "It goes by a link alone: nobody is told until somebody hands it on."


def _is_taken_back(one: Correction, way: CorrectionDelivery) -> bool:
    is_revoked = one.state == CorrectionState.REVOKED and way.state == "waiting"
    return is_revoked or way.last_error == publishing.TAKEN_BACK


def _is_in_doubt(way: CorrectionDelivery) -> bool:
    return way.last_error == publishing.PERHAPS_SENT


def _verb(one: Correction, way: CorrectionDelivery) -> str:
    if _is_in_doubt(way):
        return "Perhaps sent by"
    if _is_taken_back(one, way):
        return "Revoked before it was sent by"
    waits = "Not sent yet by" if way.tries else "On its way by"
    verbs = {"made": "A link was made", "waiting": waits, "sent": "Sent by"}
    return verbs.get(way.state, "Could not be sent by")


def _why_not_sent(one: Correction, way: CorrectionDelivery) -> str:
    """What came of the tries so far, and what to do; empty where it was sent or was not tried."""
    if way.state in {"made", "sent"} or way.last_error in {"", publishing.TAKEN_BACK}:
        return ""
    if _is_in_doubt(way):
        return f"{way.last_error}: ask the person, or hand the link on yourself."
    tried = f"Tried {plural(way.tries, 'time')}: {way.last_error}"
    return f"{tried}. Hand the link on yourself." if publishing.link_of(one) else tried


def _heard(one: Correction) -> list[dict[str, Any]]:
    entries = []
    if one.first_read_at:
        times = plural(one.read_count, "time")
        words = f"Link first opened; {times} in all, by them or by a program that looks at links"
        entries.append({"words": words, "at": one.first_read_at, "back": True})
    if one.still_wrong_at:
        entries.append({"words": "Contested", "at": one.still_wrong_at, "back": True})
    return entries


def since(one: Correction) -> str:
    due = [made.due_at for made in one.contests.all() if made.answered_at is None]
    if due and one.token_digest:
        return f"contested, answer due {formatting.ago(min(due))}"
    if one.still_wrong_at is not None:
        return "contested"
    if one.first_read_at is None:
        return "link not opened" if one.published_at else "—"
    return f"link opened {one.read_count} times" if one.read_count > 1 else "link opened"


def delivered(one: Correction) -> str:
    deliveries = sorted(one.deliveries.all(), key=lambda way: way.pk)
    return ", ".join(
        way.channel if way.channel == publishing.HANDED else f"{way.channel} {_became(one, way)}"
        for way in deliveries
    )


def _became(one: Correction, way: CorrectionDelivery) -> str:
    if _is_taken_back(one, way):
        return "revoked before it was sent"
    if _is_in_doubt(way):
        return "perhaps sent"
    states = {
        "waiting": "not sent yet" if way.tries else "on its way",
        "failed": "could not be sent",
    }
    return states.get(way.state, way.state)


# What an affected person contested, on the page of its case.

CONTESTS_SHOWN_MAX = 5
NO_RIGHT = "Answering it needs the permission to recover."


def to_answer(case: Case, person: User) -> dict[str, list[dict[str, Any]]]:
    """Where what was contested is answered, by the words of the person: they may say the same
    twice, and have two answers.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for one, link in _unanswered(case, person):
        found.setdefault(one.reported, []).append(link)
    return found


def unanswered(case: Case, person: User) -> list[dict[str, Any]]:
    """A closed case is over for the desk, and not for who waits for an answer."""
    return [waits(one.text, [link]) for one, link in _unanswered(case, person)]


def waits(text: str, links: list[dict[str, Any]]) -> dict[str, Any]:
    """What was contested and nobody has answered, by itself."""
    title = "An affected person contests what was done, and nobody has answered:"
    return {"tone": "wait", "title": title, **said(text), "links": links}


SAID_CHARACTERS_MAX = 300


def said(text: str) -> dict[str, str]:
    """What somebody wrote, for a notice: the beginning of a long text, and all of it folded."""
    begins, whole = formatting.straight(text), ""
    if len(begins) > SAID_CHARACTERS_MAX:
        begins, whole = f"{begins[:SAID_CHARACTERS_MAX].rstrip()}…", text
    return {"text": formatting.visible(f"“{begins}”"), "whole": whole}


def _unanswered(case: Case, person: User) -> list[tuple[Contest, dict[str, Any]]]:
    """Each with the way to its answer, or why it is not this person's. The first leads on the page
    where nothing but the end of the case is left.
    """
    waiting = Contest.objects.waiting().filter(correction__case=case)
    found = waiting.select_related("correction__case__run", "correction__workspace").order_by("pk")
    leads = case.state == CaseState.CLOSED or case.suggestion == Suggestion.CLOSE
    answering = []
    for one in found[:CONTESTS_SHOWN_MAX]:
        link = _answering(one, person)
        main = leads and not link["why_not"]
        leads = leads and not main
        answering.append((one, link | {"main": main}))
    return answering


def _answering(one: Contest, person: User) -> dict[str, Any]:
    here = one.correction.workspace
    recovers = may(person, "recover", here)
    hindrance = contesting.why_not_by(one, person) if recovers else NO_RIGHT
    return {
        "label": f"{'See' if hindrance else 'Answer'} {one.receipt}",
        "url": reverse("recovery:correction", args=[here.slug, one.correction_id]),
        "why_not": hindrance,
    }
