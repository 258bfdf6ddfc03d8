"""Drafting: one correction per case and affected person, and the editing of its words."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from django.db import transaction
from django.db.models import Q
from django.utils import translation

from amends.protocol.vocabulary import EventType
from ledger.models import Action, Compensated, Run
from recovery.cases.lifecycle import OutOfDate, locked, record
from recovery.corrections.facts import (
    NO_OTHERS,
    CorrectionRecipient,
    Others,
    Theirs,
    facts_for,
    people,
)
from recovery.corrections.sentences import TITLE_CHARACTERS_MAX, lead, title
from recovery.corrections.wording import settings_of
from recovery.models import Case, Correction, CorrectionState
from recovery.run_facts import long_runs
from recovery.run_facts.runs import RunFacts, facts_of
from workspaces import locks
from workspaces.erasure_registry import ERASED
from workspaces.free_text import kept_text
from workspaces.models import User
from workspaces.moves import CannotMove

ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
PEOPLE_MAX = 200
LEAD_CHARACTERS_MAX = 2_000
SENTENCE_CHARACTERS_MAX = 500
TAKES_BACK: dict[str, object] = {"takes_back": True, "reviewed": {}}
"""In the facts of who was told of what nobody did to them: this letter says so of the other, and
nothing of who looked at what was done to others."""


@transaction.atomic
def draft(case: Case) -> list[Correction]:
    """Draft, or draft anew, what each affected person is told. Idempotent.

    A draft follows the facts and keeps edited words; what was published stays, and a new draft is
    made only where the facts have changed since. Whoever is affected no more keeps a draft that
    tells of nothing, which cannot be published; but one who was told already is told that it was
    wrong.
    """
    case = locked(case)
    internal = settings_of(case.workspace).internal
    run = facts_of(case.run, also=long_runs.newest_of_each_person(case.run))
    corrections = []
    affected = people(run, internal)
    counted = _counted(run, internal) if run.whole else {}
    for person, theirs in list(affected.values())[:PEOPLE_MAX]:
        others = _others(theirs, counted.get(person.id, NO_OTHERS))
        facts = facts_for(case, run, person, theirs, others)
        corrections.append(_keep(case, person, facts))
    wrongly = _wrongly_told(case, run)
    of_others = case.corrections.exclude(person_id__in=affected).order_by("pk")
    for one in {other.person_id: other for other in of_others}.values():  # the newest of each
        is_told = one.person_id in wrongly
        is_draft = one.state == CorrectionState.DRAFT and one.facts.get("items")
        if is_told or (is_draft and not run.more_actions):
            person = CorrectionRecipient(one.person_id, one.person_name, one.contact, one.language)
            facts = facts_for(case, run, person, [])
            corrections.append(_keep(case, person, facts | TAKES_BACK if is_told else facts))
    return corrections


def _counted(run: RunFacts, internal: Sequence[str]) -> dict[str, Others]:
    """All changes of each person's things in a long run, but for bookkeeping."""
    found: dict[str, Others] = {}
    whose = str((run.run.on_behalf_of or {}).get("id") or "")[:120]
    for who, kind, undone, number in long_runs.effects_by_person(run.run):
        if any(fnmatchcase(kind, glob) for glob in internal):
            continue
        person = (who or whose)[:120]
        known = found.get(person, NO_OTHERS)
        is_undone = number if undone == Compensated.COMPENSATED else 0
        found[person] = Others(known.changes + number, known.undone + is_undone)
    return found


def _others(theirs: Theirs, of_all: Others) -> Others:
    """What was counted beyond the effects that are looked at."""
    here = [effect for _, effect in theirs if effect is not None]
    undone = sum(effect.compensated == Compensated.COMPENSATED for effect in here)
    return Others(max(0, of_all.changes - len(here)), max(0, of_all.undone - undone))


def _wrongly_told(case: Case, run: RunFacts) -> set[str]:
    """Who has read that something of theirs was changed, and is named by nothing of the whole run.
    What is bookkeeping since was so all the same; and what is not looked at in a long run, or was
    forgotten, may name them.
    """
    if run.more_actions or _is_forgotten(run.run):
        return set()
    told = case.corrections.filter(state=CorrectionState.PUBLISHED).exclude(facts__items=[])
    return set(told.values_list("person_id", flat=True)) - people(run).keys()


def _is_forgotten(run: Run) -> bool:
    """All of it, or single calls: of whom else such a one affected, nothing is known any more."""
    erased = Q(args_digest=ERASED) | Q(effects__target_id=ERASED)
    return run.forgotten_at is not None or Action.objects.filter(erased, run=run).exists()


def words_of(facts: dict[str, object]) -> dict[str, str]:
    """Headline and first sentences by template, in English: what nobody has edited is told in the
    reader's language.
    """
    with translation.override("en"):
        return {"title": title(facts), "lead": lead(facts)}


def title_of(correction: Correction) -> str:
    """As somebody worded it, else in the language that is active."""
    written = words_of(correction.facts)["title"]
    return title(correction.facts) if correction.title == written else correction.title


def lead_of(correction: Correction) -> str:
    """Likewise."""
    written = words_of(correction.facts)["lead"]
    return lead(correction.facts) if correction.lead == written else correction.lead


def _keep(case: Case, person: CorrectionRecipient, facts: dict[str, object]) -> Correction:
    last = case.corrections.filter(person_id=person.id).order_by("-pk").first()
    if last is not None and last.state != CorrectionState.DRAFT:
        if last.state == CorrectionState.PUBLISHED and last.facts == facts:
            return last
        last = None
    if last is None:
        return Correction.objects.create(
            workspace_id=case.workspace_id,
            case=case,
            reference=reference(),
            person_id=person.id,
            person_name=person.name,
            contact=person.contact,
            language=person.language,
            facts=facts,
            **words_of(facts),
        )
    if last.facts != facts:
        # New facts; words that nobody has edited follow them, and all once it says the opposite.
        written, now = words_of(last.facts), words_of(facts)
        is_turned = last.facts.get("takes_back") != facts.get("takes_back")
        if is_turned or last.title == written["title"]:
            last.title = now["title"]
        if is_turned or last.lead == written["lead"]:
            last.lead = now["lead"]
        last.facts = facts
        last.revision += 1
        last.save(update_fields=["facts", "title", "lead", "revision"])
    return last


def reference(kind: str = "AM") -> str:
    """`AM-2F7K-09QX`: read over the telephone, so without letters that look like others."""
    letters = "".join(secrets.choice(ALPHABET) for _ in range(8))
    return f"{kind}-{letters[:4]}-{letters[4:]}"


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
    way in; what is left empty stays as it was, or is said in the record's own words. The title and
    what is said of a fact are one line each.
    """
    title = kept_text(_one_line(title), TITLE_CHARACTERS_MAX)
    lead = kept_text(lead, LEAD_CHARACTERS_MAX)
    words = {
        name: kept_text(_one_line(text), SENTENCE_CHARACTERS_MAX) for name, text in words.items()
    }
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


def _one_line(text: str) -> str:
    return " ".join(filter(None, map(str.strip, text.splitlines())))


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
