"""Closing: how a person ends a case, and never with a doubt in it (`cases.lifecycle` writes it).

A closing answers the reasons that stand at that moment: only another one brings the case back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from amends.protocol.vocabulary import EventType
from approvals import pauses
from connectors import channels
from connectors.channels import Message
from ledger.models import Compensated, Effect, Event, Run
from recovery.cases.lifecycle import (
    Ending,
    NotPossible,
    OutOfDate,
    end_each,
    lock_runs,
    locked_each,
    record,
    refuse_if_claimed,
    reread,
)
from recovery.engine import plan_lifecycle
from recovery.models import (
    CASE_MOVES,
    Case,
    CaseOutcome,
    CaseState,
    CorrectionState,
    Plan,
    PlanState,
    Residue,
)
from recovery.models.plans import LIVING
from recovery.run_facts.runs import RunFacts, facts_of_each
from recovery.run_facts.sentences import plural
from recovery.triage.detectors import LEFT_MAX, left_at_closing, reasons
from workspaces import access, clock
from workspaces.clock import Clock
from workspaces.free_text import InvalidInput, kept_text
from workspaces.models import User, Workspace
from workspaces.moves import CannotMove
from workspaces.pages import place_of, read_place

TEXT_CHARACTERS_MAX = 4_000
RESIDUES_MAX = 200
BY_PEOPLE = {
    CaseOutcome.CORRECTED: "it cannot be undone, and the person was told",
    CaseOutcome.PARTLY: "something could not be undone; it gets an owner and a date",
    CaseOutcome.EXPECTED: "the agent did what it should; every effect stays",
    CaseOutcome.ALREADY_HANDLED: "somebody put it right outside the desk",
    CaseOutcome.DUPLICATE: "another case has it",
}
"""`restored` and `resumed` are the desk's to find, not anybody's to say."""


class CannotClose(NotPossible):
    """We stopped because something is in the way of closing; the sentence says what."""


@dataclass(frozen=True, slots=True)
class Remainder:
    """Something that could not be undone: what, who looks after it, and until when."""

    text: str
    owner: User
    due_at: datetime
    effect_id: int | None = None


class Closing(NamedTuple):
    """A case that is to be closed, in which revision it was seen, and what is left of it."""

    case: Case
    seen: int
    left: Sequence[Remainder] = ()


Refusal = CannotClose | CannotMove | OutOfDate | InvalidInput


def living(cases: Sequence[Case]) -> dict[int, Plan]:
    """The plan of each case that has not ended, by case."""
    return {one.case_id: one for one in Plan.objects.filter(case__in=cases, state__in=LIVING)}


def why_not(case: Case, facts: RunFacts, plan: Plan | None) -> str:
    """Why the case cannot be closed now; `plan` is its living one. Empty where it can."""
    if case.state == CaseState.CLOSED:
        return "The case is closed already."
    if plan is not None:
        return f"Plan {plan.number} has not ended: stop it first."
    return facts.calls_to_settle() or facts.steps_to_settle()


def why_not_as(case: Case, outcome: str) -> str:
    """Why the case cannot end so, whatever else is said of it. Empty where it can."""
    if outcome != CaseOutcome.CORRECTED:
        return ""
    sent = Effect.objects.filter(action__run=case.run_id, compensated=Compensated.CORRECTED)
    return "" if sent.exists() else _why_untold(case)


def _why_untold(case: Case) -> str:
    """Why nobody can say that a person of this case was told; empty where a correction of it was
    sent, goes by a link that somebody hands on, was handed on, or was contested.
    """
    published = case.corrections.filter(state=CorrectionState.PUBLISHED)
    if not published.exists():
        return "Nobody was told: no correction of this case is published, and no plan sent one."
    reached = Q(still_wrong_at__isnull=False) | Q(deliveries__state__in=("sent", "made"))
    if published.filter(reached).exists():
        return ""
    return (
        "Nobody is told yet: the correction was not sent, and nobody says that they handed it on."
        " Hand its link on, and say so on its page."
    )


def close(
    case: Case,
    *,
    outcome: str,
    reason: str,
    by: User,
    seen: int,
    left: Sequence[Remainder] = (),
) -> Case:
    """End the case as `outcome`; one that this person has ended so is the one that was ended, as by
    a second click. Raises CannotClose, OutOfDate, InvalidInput, or CannotMove if another has it.
    """
    [ended] = close_each([Closing(case, seen, left)], outcome=outcome, reason=reason, by=by)
    if not isinstance(ended, Exception):
        return ended
    now, reason = reread(case), kept_text(reason, TEXT_CHARACTERS_MAX)
    said = (seen + 1, CaseState.CLOSED, outcome, reason, by.pk)
    owned = {(kept_text(it.text, TEXT_CHARACTERS_MAX), it.owner.pk, it.due_at) for it in left}
    kept = {(it.text, it.owner_id, it.due_at) for it in _left_at_the_end(now)}
    as_said = (now.revision, now.state, now.outcome, now.closing_reason, now.closed_by_id) == said
    if not as_said or kept != owned:
        raise ended
    return now


def _left_at_the_end(case: Case) -> list[Residue]:
    """What its last ending left: what an earlier one did stays on a case that is reopened."""
    ends = Event.objects.filter(
        workspace=case.workspace_id, run=case.run.run, type=EventType.CASE_CLOSED
    )
    last = ends.order_by("-place").first()
    count = len((last.data or {}).get("residue", ())) if last else 0
    return list(case.residues.order_by("-pk")[:count])


@transaction.atomic
def close_each(
    closings: Sequence[Closing], *, outcome: str, reason: str, by: User
) -> list[Case | Refusal]:
    """End each of these cases of one workspace, or say why it cannot be; in their order. Raises
    InvalidInput for a reason that cannot be kept.

    What their plans have left for people is locked before the runs, and the plans between the runs
    and the cases: whoever settles a step or submits a new plan holds them before the case, and
    another order would meet them in a deadlock.
    """
    reason = kept_text(reason, TEXT_CHARACTERS_MAX, asking="Say why it is closed.")
    cases = [one.case for one in closings]
    plan_lifecycle.lock_leftovers(*cases)
    lock_runs(cases)
    plan_lifecycle.locked_of(*cases)
    fresh = locked_each(cases)
    closings = [one._replace(case=fresh[one.case.pk]) for one in closings]
    plans, facts = living(cases), facts_of_each([one.case.run for one in closings])
    answers: list[Case | Refusal] = []
    endings: list[Ending] = []
    for one, known in zip(closings, facts, strict=True):
        refusal = _refusal(one, known, plans.get(one.case.pk), outcome, by)
        answers.append(refusal or one.case)
        if refusal is None:
            left = [{"text": it.text, "owner": it.owner.pk} for it in one.left]
            present = [*reasons(known, one.case, LEFT_MAX), *left_at_closing(known)]
            standing = known.remaining()
            endings.append(Ending(one.case, present, standing, left, known.more_remaining))
            for it in one.left:
                text = kept_text(it.text, TEXT_CHARACTERS_MAX)
                Residue.objects.create(
                    case=one.case,
                    effect_id=it.effect_id,
                    text=text,
                    owner=it.owner,
                    due_at=it.due_at,
                )
    ended = [one.case for one in endings]
    _forget_leftovers(ended, by)
    end_each(endings, outcome, reason, by=by)
    if outcome == CaseOutcome.EXPECTED:
        held = [case.run_id for case in ended if case.run.held_by == f"case {case.pk}"]
        Run.objects.filter(pk__in=held).update(held_by=pauses.still_holds())
    return answers


def _refusal(
    closing: Closing, facts: RunFacts, plan: Plan | None, outcome: str, by: User
) -> Refusal | None:
    """Why one case is not closed as it stands under its lock; None where it is."""
    case = closing.case
    if case.revision != closing.seen:
        return OutOfDate(case)
    try:
        refuse_if_claimed(case, by, CaseState.CLOSED)
        for one in closing.left:
            kept_text(one.text, TEXT_CHARACTERS_MAX)
    except (CannotMove, InvalidInput) as refusal:
        return refusal
    hindrance = why_not(case, facts, plan) or _unfit(case, outcome, closing.left)
    if hindrance:
        return CannotClose(hindrance)
    if CaseState.CLOSED not in CASE_MOVES[case.state]:
        return CannotMove(case, CaseState.CLOSED)
    return None


def _unfit(case: Case, outcome: str, left: Sequence[Remainder]) -> str:
    if outcome not in BY_PEOPLE:
        return "A case cannot be closed as that by hand."
    if unproven := why_not_as(case, outcome):
        return unproven
    if outcome == CaseOutcome.PARTLY and not left:
        return "Say what is left, who looks after it, and until when."
    if len(left) > RESIDUES_MAX:
        return f"At most {plural(RESIDUES_MAX, 'thing')} can be left."
    return next(filter(None, (_unfit_residue(case, one) for one in left)), "")


def _unfit_residue(case: Case, one: Remainder) -> str:
    if not access.may(one.owner, "view", case.workspace):
        return f"{one.owner} is not in this workspace."
    if one.due_at <= clock.now():
        return "A due date lies ahead."
    if one.due_at > clock.now() + timedelta(days=DUE_DAYS_MAX):
        return f"A due date lies at most {DUE_DAYS_MAX // 365} years ahead."
    effects = Effect.objects.filter(action__run=case.run_id)
    if one.effect_id is not None and not effects.filter(pk=one.effect_id).exists():
        return "What is left is an effect of this run."
    return ""


def _forget_leftovers(cases: Sequence[Case], by: User) -> None:
    """Steps of stopped plans that waited for a person wait no longer."""
    for plan in Plan.objects.filter(case__in=cases, state=PlanState.STOPPED).order_by("pk"):
        plan_lifecycle.supersede(plan, by=by, why="The case was closed.")


# Residues: what could not be undone, until its owner says what became of it.
#
# A residue ends once, by name and in words; from then on nothing of it holds its run back from
# retention, and what was said stays on the record.


RESIDUE_DONE = "done"
RESIDUES_A_PAGE = 50
DUE_DAYS_MAX = 100 * 365
REMINDED_MAX = 10
"""People who are told of one thing whose owner has left."""
RESIDUE_STATES: dict[str, dict[str, Any]] = {
    "open": {"done_at__isnull": True},
    "done": {"done_at__isnull": False},
    "all": {},
}


def residues_of(workspace: Workspace) -> QuerySet[Residue]:
    """All of a workspace, with what every reader shows of them; `is_looked_after` where the owner
    is still there.
    """
    related = ("owner", "done_by", "case__workspace", "case__run")
    there = access.people_with("view", workspace).filter(pk=OuterRef("owner"))
    found = Residue.objects.filter(case__workspace=workspace).select_related(*related)
    return found.annotate(is_looked_after=Exists(there))


def residues_after(found: QuerySet[Residue], state: str, after: str) -> tuple[list[Residue], str]:
    """A page in the order of due dates, and where the next one begins; empty where none does.

    What is no place of such a list is its beginning.
    """
    found = found.filter(**RESIDUE_STATES[state])
    if (place := read_place(after)) is not None:
        moment, pk = place
        found = found.filter(Q(due_at__gt=moment) | Q(due_at=moment, pk__gt=pk))
    rows = list(found.order_by("due_at", "pk")[: RESIDUES_A_PAGE + 1])
    last = rows[RESIDUES_A_PAGE - 1] if len(rows) > RESIDUES_A_PAGE else None
    return rows[:RESIDUES_A_PAGE], place_of(last.due_at, last.pk) if last else ""


def may_end_residue(residue: Residue, person: User) -> bool:
    """Whoever recovers, and the owner as long as they are in the workspace."""
    here = residue.case.workspace
    is_owner = residue.owner_id == person.pk and access.may(person, "view", here)
    return is_owner or access.may(person, "recover", here)


def residue_seen(residue: Residue) -> str:
    """Who looks after it until when, as its page showed it."""
    return f"{residue.owner_id} {residue.due_at.isoformat()}"


@transaction.atomic
def residue_moved(
    residue: Residue, *, owner: User, due_at: datetime, by: User, seen: str | None = None
) -> Residue:
    """Somebody else looks after what is left, or until another day; where it is so already, it is.
    Raises NotAllowed, InvalidInput, or CannotMove where it is done, or stands otherwise than was
    `seen`.
    """
    if not may_end_residue(residue, by):
        access.require(by, "recover", residue.case.workspace)
    if unfit := _unfit_residue(residue.case, Remainder(residue.text, owner, due_at)):
        raise InvalidInput(unfit)
    as_shown = Q(pk=residue.pk, owner=residue.owner_id, due_at=residue.due_at)
    is_shown = seen in {None, residue_seen(residue)}
    living = Residue.objects.filter(as_shown, done_at=None)
    if not (is_shown and living.update(owner=owner, due_at=due_at, reminded_at=None)):
        residue.refresh_from_db()
        if (residue.owner_id, residue.due_at, residue.done_at) == (owner.pk, due_at, None):
            return residue
        why = "Somebody else has given it to another, or moved its date, since you saw it."
        raise CannotMove(residue, RESIDUE_DONE, "It is done already." if residue.done_at else why)
    residue.refresh_from_db()
    data = {"residue": residue.pk, "owner": owner.pk, "due_at": due_at.isoformat()}
    record(residue.case, EventType.CASE_RESIDUE_MOVED, by=by, data=data)
    return residue


def remind() -> int:
    """Tell owners by mail, once, of what is due within a day; how many. Where an owner has left, it
    is told to those who can give it another.
    """
    soon = clock.now() + timedelta(days=1)
    waiting = Residue.objects.filter(done_at=None, reminded_at=None, due_at__lte=soon)
    found = waiting.select_related("owner", "case__workspace").order_by("due_at", "pk")
    told = 0
    for one in found[:RESIDUES_A_PAGE]:
        with transaction.atomic():
            if not waiting.filter(pk=one.pk).update(reminded_at=Clock()):
                continue
            workspace = one.case.workspace
            people = _looking_after(one)
            is_owner = people == [one.owner]
            message = Message(
                title="Something that could not be undone is due",
                text="You look after it. Say what was done about it, or move its date."
                if is_owner
                else "Who looked after it is no longer here: give it to somebody else.",
                url=f"{settings.AMENDS_URL}/w/{workspace.slug}/residue/{one.pk}/",
            )
            key = f"residue/{one.pk}/{one.due_at.timestamp():.0f}"
            addresses = {f"{key}/{person.pk}": person.email for person in people}
            channels.write_to_each(workspace, addresses, EventType.CASE_RESIDUE_MOVED, message)
            told += 1
    return told


def _looking_after(residue: Residue) -> list[User]:
    """The owner; who recovers, or else administers, where the owner is not there any more."""
    here = residue.case.workspace
    if access.may(residue.owner, "view", here):
        return [residue.owner]
    recovering = list(access.people_with("recover", here).order_by("pk")[:REMINDED_MAX])
    return recovering or list(access.people_with("administer", here).order_by("pk")[:REMINDED_MAX])


@transaction.atomic
def residue_done(residue: Residue, *, note: str, by: User) -> Residue:
    """What was left is dealt with, and how. Raises NotAllowed, InvalidInput, or CannotMove
    where somebody has said so already.
    """
    if not may_end_residue(residue, by):
        access.require(by, "recover", residue.case.workspace)
    words = kept_text(note, TEXT_CHARACTERS_MAX, asking="Say what was done about it.")
    living = Residue.objects.filter(pk=residue.pk, done_at=None)
    if not living.update(done_at=Clock(), done_by=by, done_note=words):
        residue.refresh_from_db()
        if (residue.done_by, residue.done_note) == (by, words):  # once more, as no answer came
            return residue
        raise CannotMove(
            residue, RESIDUE_DONE, f"{residue.done_by or 'Somebody'} has said so already."
        )
    residue.refresh_from_db()
    data = {"residue": residue.pk, "what": residue.text, "owner": residue.owner_id, "note": words}
    record(residue.case, EventType.CASE_RESIDUE_DONE, by=by, data=data)
    return residue
