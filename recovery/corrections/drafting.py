"""Drafting: one correction per case and affected person, and the editing of its words."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from amends.protocol.vocabulary import EventType
from recovery.cases.lifecycle import OutOfDate, locked, record
from recovery.corrections.facts import Person, facts_for, friendly, people
from recovery.models import Case, Correction, CorrectionState
from recovery.run_facts.runs import facts_of
from recovery.run_facts.sentences import listed, plural, singular
from workspaces import locks
from workspaces.models import User
from workspaces.moves import CannotMove
from workspaces.written import kept_text

# Wording: headline and first sentence of a correction, by template from its facts.


def title(facts: dict[str, Any]) -> str:
    """`We changed your reservation by mistake, and put it back`"""
    items = facts["items"]
    outcomes = {one["outcome"] for one in items}
    things = _things(items)
    if not items:
        return "Nothing of yours was changed"
    if outcomes == {"corrected"}:
        return "We sent you something by mistake"
    if outcomes <= {"restored"}:
        return _cut(f"We changed {things} by mistake, and put it back")
    if outcomes <= {"restored", "compensated", "corrected"}:
        return _cut(f"We made a mistake with {things}, and put it right")
    if outcomes & {"restored", "compensated", "corrected", "repaired"}:
        return _cut(f"We made a mistake with {things}, and put part of it right")
    return _cut(f"We made a mistake with {things}")


def lead(facts: dict[str, Any]) -> str:
    """Two or three sentences: what our assistant did, what we did about it, and why."""
    items = facts["items"]
    if not items:
        return "Our assistant worked on your request and changed nothing."
    touched = list(
        dict.fromkeys(friendly(one["target"]["type"], one["target"]["id"]) for one in items)
    )
    parts = [f"While it worked on a request, our assistant made a mistake with {listed(touched)}."]
    parts.append(facts["why"])
    done = [one for one in items if one["outcome"] in {"restored", "compensated", "corrected"}]
    lasting = sum(one["outcome"] == "corrected" for one in items)
    if len(done) == len(items) and not lasting:
        parts.append("All of it has been put right.")
    elif lasting == len(items):
        parts.append("It could not be undone, so a correction was sent.")
    elif len(done) == len(items):
        parts.append(
            f"{lasting} of {plural(len(items), 'change')} could not be undone and was corrected;"
            " the rest has been put right."
        )
    elif done:
        parts.append(f"{len(done)} of {plural(len(items), 'change')} have been put right.")
    return " ".join(parts)


def _things(items: list[dict[str, Any]]) -> str:
    kinds = {one["target"]["type"] for one in items}
    names = {(one["target"]["type"], one["target"]["id"]) for one in items}
    if len(kinds) != 1:
        return "some of your details"
    kind = singular(kinds.pop()) or "details"
    kinds_word = plural(2, kind).partition(" ")[2]
    return f"your {kind}" if len(names) == 1 else f"{len(names)} of your {kinds_word}"


def _cut(text: str) -> str:
    return text[:TITLE_CHARACTERS_MAX]


ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
PEOPLE_MAX = 200
TITLE_CHARACTERS_MAX = 200
LEAD_CHARACTERS_MAX = 2_000
SENTENCE_CHARACTERS_MAX = 500


@transaction.atomic
def draft(case: Case) -> list[Correction]:
    """Draft, or draft anew, what each affected person is told. Idempotent.

    A draft follows the facts and keeps edited words; what was published stays, and a new draft is
    made only where the facts have changed since.
    """
    case = locked(case)
    run = facts_of(case.run)
    corrections = []
    for person, theirs in list(people(run).values())[:PEOPLE_MAX]:
        facts = facts_for(case, run, person, theirs)
        corrections.append(_keep(case, person, facts))
    return corrections


def _keep(case: Case, person: Person, facts: dict[str, object]) -> Correction:
    last = case.corrections.filter(person_id=person.id).order_by("-pk").first()
    if last is not None and last.state != CorrectionState.DRAFT:
        if last.state == CorrectionState.PUBLISHED and last.facts == facts:
            return last
        last = None
    if last is None:
        return Correction.objects.create(
            workspace_id=case.workspace_id,
            case=case,
            reference=_reference(),
            person_id=person.id,
            person_name=person.name,
            contact=person.contact,
            facts=facts,
            title=title(facts),
            lead=lead(facts),
        )
    if last.facts != facts:
        _follow(last, facts)
    return last


def _follow(correction: Correction, facts: dict[str, object]) -> None:
    """New facts; words that nobody has edited follow them."""
    if correction.title == title(correction.facts):
        correction.title = title(facts)
    if correction.lead == lead(correction.facts):
        correction.lead = lead(facts)
    correction.facts = facts
    correction.revision += 1
    correction.save(update_fields=["facts", "title", "lead", "revision"])


def _reference() -> str:
    """`AM-2F7K-09QX`: read over the telephone, so without letters that look like others."""
    letters = "".join(secrets.choice(ALPHABET) for _ in range(8))
    return f"AM-{letters[:4]}-{letters[4:]}"


@transaction.atomic
def edit(
    correction: Correction,
    *,
    by: User,
    seen: int,
    title: str,
    lead: str,
    words: Mapping[str, str],
) -> Correction:
    """Change the wording of a draft; raises OutOfDate, CannotMove or InvalidInput. Facts have no
    way in; what is left empty stays as it was, or is said in the record's own words.
    """
    title, lead = kept_text(title, TITLE_CHARACTERS_MAX), kept_text(lead, LEAD_CHARACTERS_MAX)
    words = {name: kept_text(text, SENTENCE_CHARACTERS_MAX) for name, text in words.items()}
    correction = lock(correction, seen=seen)
    if correction.state != CorrectionState.DRAFT:
        raise CannotMove(correction, "edited", "It was published already.")
    known = {str(item["id"]) for item in correction.facts["items"]}
    sentences = {name: text for name, text in words.items() if name in known and text}
    correction.title = title or correction.title
    correction.lead = lead or correction.lead
    correction.wording = sentences
    correction.revision += 1
    correction.save(update_fields=["title", "lead", "wording", "revision"])
    data = {"correction": correction.reference, "title": correction.title, "words": sentences}
    record(correction.case, EventType.CORRECTION_EDITED, by=by, data=data)
    return correction


def lock(correction: Correction, *, seen: int | None = None) -> Correction:
    """The correction under its lock and its case's; raises OutOfDate."""
    locked(correction.case)
    now = (
        locks.locked(Correction.objects.all())
        .select_related("case__run", "case__workspace", "workspace")
        .get(pk=correction.pk)
    )
    if seen is not None and now.revision != seen:
        raise OutOfDate(now.case, "Somebody changed this correction since you saw it.")
    return now
