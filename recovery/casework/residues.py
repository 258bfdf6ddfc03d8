"""Residues: what could not be undone, until its owner says what became of it.

A residue ends once, by name and in words; from then on nothing of it holds its run back from
retention, and what was said stays on the record.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.dateparse import parse_datetime

from amends.protocol.vocabulary import EventType
from recovery.cases.lifecycle import kept_text, say
from recovery.models import Residue
from workspaces import access
from workspaces.clock import Clock
from workspaces.models import User, Workspace
from workspaces.moves import CannotMove
from workspaces.pages import is_number

NOTE_CHARACTERS_MAX = 4_000
DONE = "done"
ROWS_A_PAGE = 50
STATES: dict[str, dict[str, Any]] = {
    "open": {"done_at__isnull": True},
    "done": {"done_at__isnull": False},
    "all": {},
}


def of(workspace: Workspace) -> QuerySet[Residue]:
    """All of a workspace, with what every reader shows of them."""
    related = ("owner", "done_by", "case__workspace", "case__run")
    return Residue.objects.filter(case__workspace=workspace).select_related(*related)


def page_after(found: QuerySet[Residue], state: str, after: str) -> tuple[list[Residue], str]:
    """A page in the order of due dates, and where the next one begins; empty where none does.

    What is no place of such a list is its beginning.
    """
    found = found.filter(**STATES[state])
    due, _, number = after.rpartition("_")
    moment = parse_datetime(due) if due and is_number(number) else None
    if moment is not None and moment.tzinfo is not None:
        found = found.filter(Q(due_at__gt=moment) | Q(due_at=moment, pk__gt=int(number)))
    rows = list(found.order_by("due_at", "pk")[: ROWS_A_PAGE + 1])
    last = rows[ROWS_A_PAGE - 1] if len(rows) > ROWS_A_PAGE else None
    return rows[:ROWS_A_PAGE], f"{last.due_at.isoformat()}_{last.pk}" if last else ""


def may_end(residue: Residue, person: User) -> bool:
    """Whoever recovers, and the owner as long as they are in the workspace."""
    here = residue.case.workspace
    is_owner = residue.owner_id == person.pk and access.may(person, "view", here)
    return is_owner or access.may(person, "recover", here)


@transaction.atomic
def done(residue: Residue, *, note: str, by: User) -> Residue:
    """What was left is dealt with, and how. Raises NotAllowed, InvalidInput, or CannotMove
    where somebody has said so already.
    """
    if not may_end(residue, by):
        access.require(by, "recover", residue.case.workspace)
    words = kept_text(note, NOTE_CHARACTERS_MAX, asking="Say what was done about it.")
    living = Residue.objects.filter(pk=residue.pk, done_at=None)
    if not living.update(done_at=Clock(), done_by=by, done_note=words):
        residue.refresh_from_db()
        raise CannotMove(residue, DONE, f"{residue.done_by or 'Somebody'} has said so already.")
    residue.refresh_from_db()
    data = {"residue": residue.pk, "what": residue.text, "owner": residue.owner_id, "note": words}
    say(residue.case, EventType.CASE_RESIDUE_DONE, by=by, data=data)
    return residue
