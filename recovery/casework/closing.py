"""Closing: how a person ends a case, and never with a doubt in it (`cases.lifecycle` writes it).

A closing answers the reasons that stand at that moment: only another one brings the case back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from amends.protocol.vocabulary import EventType
from ledger.models import Compensated, Effect, Run
from recovery.cases.lifecycle import (
    NotPossible,
    end,
    kept_text,
    locked,
    refuse_if_claimed,
    reread,
    say,
)
from recovery.engine import plan_lifecycle
from recovery.models import Case, CaseOutcome, CaseState, CorrectionState, Plan, PlanState, Residue
from recovery.models.plans import LIVING
from recovery.run_facts.runs import RunFacts, facts_of
from recovery.run_facts.sentences import plural
from recovery.triage.detectors import reasons
from workspaces import access, row_locks
from workspaces.clock import Clock
from workspaces.models import User, Workspace
from workspaces.moves import CannotMove
from workspaces.pages import is_number

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


def living_plan(case: Case) -> Plan | None:
    return case.plans.filter(state__in=LIVING).first()


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
    if case.corrections.filter(state=CorrectionState.PUBLISHED).exists() or sent.exists():
        return ""
    return "Nobody was told: no correction of this case is published, and no plan sent one."


@transaction.atomic
def close(
    case: Case,
    *,
    outcome: str,
    reason: str,
    by: User,
    seen: int,
    left: Sequence[Remainder] = (),
) -> Case:
    """End the case as `outcome`; raises CannotClose, OutOfDate, InvalidInput, or
    CannotMove if another has it.

    What its plans have left for people is locked before its run, and the plans between its run and
    itself: whoever settles a step or submits a new plan holds them before the case, and another
    order would meet them in a deadlock.
    """
    plan_lifecycle.lock_leftovers(case)
    row_locks.locked(Run.objects.only("pk")).get(pk=case.run_id)
    plan_lifecycle.locked_of(case)
    case = locked(case, seen=seen)
    refuse_if_claimed(case, by, CaseState.CLOSED)
    facts = facts_of(reread(case).run)
    hindrance = why_not(case, facts, living_plan(case)) or _unfit(case, outcome, left)
    if hindrance:
        raise CannotClose(hindrance)
    reason = kept_text(reason, TEXT_CHARACTERS_MAX, asking="Say why it is closed.")
    for one in left:
        Residue.objects.create(
            case=case,
            effect_id=one.effect_id,
            text=kept_text(one.text, TEXT_CHARACTERS_MAX),
            owner=one.owner,
            due_at=one.due_at,
        )
    # Steps of a stopped plan that waited for a person wait no longer.
    for plan in Plan.objects.filter(case=case, state=PlanState.STOPPED):
        plan_lifecycle.supersede(plan, by=by, why="The case was closed.")
    end(
        case,
        outcome,
        reason,
        by=by,
        present=reasons(facts, case),
        standing=facts.remaining(),
        left=[{"text": one.text, "owner": one.owner.pk} for one in left],
    )
    if outcome == CaseOutcome.EXPECTED:
        Run.objects.filter(pk=case.run_id, held_by=f"case {case.pk}").update(held_by="")
    return case


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
    if one.due_at <= timezone.now():
        return "A due date lies ahead."
    effects = Effect.objects.filter(action__run=case.run_id)
    if one.effect_id is not None and not effects.filter(pk=one.effect_id).exists():
        return "What is left is an effect of this run."
    return ""


# Residues: what could not be undone, until its owner says what became of it.
#
# A residue ends once, by name and in words; from then on nothing of it holds its run back from
# retention, and what was said stays on the record.


RESIDUE_DONE = "done"
RESIDUES_A_PAGE = 50
RESIDUE_STATES: dict[str, dict[str, Any]] = {
    "open": {"done_at__isnull": True},
    "done": {"done_at__isnull": False},
    "all": {},
}


def residues_of(workspace: Workspace) -> QuerySet[Residue]:
    """All of a workspace, with what every reader shows of them."""
    related = ("owner", "done_by", "case__workspace", "case__run")
    return Residue.objects.filter(case__workspace=workspace).select_related(*related)


def residues_after(found: QuerySet[Residue], state: str, after: str) -> tuple[list[Residue], str]:
    """A page in the order of due dates, and where the next one begins; empty where none does.

    What is no place of such a list is its beginning.
    """
    found = found.filter(**RESIDUE_STATES[state])
    due, _, number = after.rpartition("_")
    moment = parse_datetime(due) if due and is_number(number) else None
    if moment is not None and moment.tzinfo is not None:
        found = found.filter(Q(due_at__gt=moment) | Q(due_at=moment, pk__gt=int(number)))
    rows = list(found.order_by("due_at", "pk")[: RESIDUES_A_PAGE + 1])
    last = rows[RESIDUES_A_PAGE - 1] if len(rows) > RESIDUES_A_PAGE else None
    return rows[:RESIDUES_A_PAGE], f"{last.due_at.isoformat()}_{last.pk}" if last else ""


def may_end_residue(residue: Residue, person: User) -> bool:
    """Whoever recovers, and the owner as long as they are in the workspace."""
    here = residue.case.workspace
    is_owner = residue.owner_id == person.pk and access.may(person, "view", here)
    return is_owner or access.may(person, "recover", here)


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
        raise CannotMove(
            residue, RESIDUE_DONE, f"{residue.done_by or 'Somebody'} has said so already."
        )
    residue.refresh_from_db()
    data = {"residue": residue.pk, "what": residue.text, "owner": residue.owner_id, "note": words}
    say(residue.case, EventType.CASE_RESIDUE_DONE, by=by, data=data)
    return residue
