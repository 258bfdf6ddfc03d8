"""Deputies: a person hands their right to decide to a member, for a while and with a reason.

The delegate decides with the right that the delegator has at that moment, and with nothing else: it
cannot be handed on, and whoever no longer has it has lent nobody anything. approvals/deciders.py
asks; here it is written down, told to the ledger, and ended.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from amends.protocol.vocabulary import EventType
from workspaces import clock, formatting, locks, outbox
from workspaces.access import NotAllowed, may, people_with, teams_with
from workspaces.free_text import NOTE_CHARACTERS_MAX, InvalidInput, kept_text
from workspaces.models import (
    DELEGATION_DAYS_MAX,
    Delegation,
    DelegationEnd,
    Team,
    User,
    Workspace,
)

LOCK = 0xDE1E
"""The first half of the advisory lock's key; the second is the workspace."""
GIVEN_MAX = 20
"""Of one person in one workspace at a time: each stands on the page of the members."""
BATCH = 200
WITHOUT_REASON = "Say why, so that the others know whom to ask."

IS_LIVING = (
    "{0}.ended_at IS NULL AND {0}.starts_at <= statement_timestamp()"
    " AND {0}.until > statement_timestamp()"
)
"""SQL: whether the row `{0}` is in force. `living` is the same for Django."""


class Term(NamedTuple):
    """From when until when somebody decides for somebody else."""

    starts_at: datetime
    until: datetime


def living() -> Q:
    """In force by the database's clock, as far as the row itself says."""
    return Q(ended_at=None, starts_at__lte=Now(), until__gt=Now())


def not_ended() -> QuerySet[Delegation]:
    return Delegation.objects.filter(ended_at=None)


def of(workspace: Workspace) -> QuerySet[Delegation]:
    """Those that are in force or to come, the next to end first."""
    rows = Delegation.objects.filter(workspace=workspace, ended_at=None, until__gt=Now())
    return rows.select_related("delegator", "delegate", "team").order_by("until", "pk")


def is_deputy(person: User, workspace: Workspace) -> bool:
    """Whether somebody who may decide here has handed that to this person for now."""
    rows = Delegation.objects.filter(living(), workspace=workspace, delegate=person)
    held = rows.filter(delegator__in=people_with("approve", workspace))
    return held.exists() and may(person, "view", workspace)


def may_decide(person: User, workspace: Workspace) -> bool:
    """Whether they may decide on approvals here at all, in their own right or for somebody."""
    return may(person, "approve", workspace) or is_deputy(person, workspace)


def require_decider(person: User, workspace: Workspace) -> None:
    """Raise `NotAllowed` (403) unless they may decide on approvals here at all."""
    if not may_decide(person, workspace):
        raise NotAllowed("approve", workspace)


def teams_of(person: User, workspace: Workspace) -> QuerySet[Team]:
    return Team.objects.filter(workspace=workspace, group__user=person).order_by("name")


def deciding_teams(person: User, workspace: Workspace) -> QuerySet[Team]:
    """Those of their teams whose role may decide: for one of another nobody decides anything."""
    return teams_with("approve", workspace).filter(group__user=person).order_by("name")


@transaction.atomic
def give(
    workspace: Workspace, *, by: User, to: User, team: Team | None, term: Term, reason: str
) -> Delegation:
    """Hand over the right that `by` has themselves; once more, it is the one that stands: of two
    alike one would outlive a revocation. Raises InvalidInput where it cannot be.
    """
    reason = kept_text(reason, NOTE_CHARACTERS_MAX, asking=WITHOUT_REASON)
    locks.advisory(LOCK, workspace.pk)
    now = clock.now()
    same = of(workspace).filter(
        delegator=by, delegate=to, team=team, reason=reason, until=term.until,
        starts_at__lte=max(term.starts_at, now),
    )  # fmt: skip
    if stands := same.first():
        return stands
    _check_people(workspace, by, to, team)
    starts_at = max(term.starts_at, now)
    if term.until <= starts_at:
        raise InvalidInput("Until: it has to end after it begins, and later than now.")
    if starts_at > now + timedelta(days=DELEGATION_DAYS_MAX):
        raise InvalidInput(f"From: {DELEGATION_DAYS_MAX} days ahead at most.")
    if term.until - starts_at > timedelta(days=DELEGATION_DAYS_MAX):
        raise InvalidInput(f"Until: {DELEGATION_DAYS_MAX} days at most.")
    row = Delegation.objects.create(
        workspace=workspace, delegator=by, delegate=to, team=team, reason=reason,
        starts_at=term.starts_at if term.starts_at > now else Now(), until=term.until,
    )  # fmt: skip
    row.refresh_from_db()
    _tell(row, EventType.DELEGATION_GIVEN, by=by)
    _begin(row)
    return row


def _check_people(workspace: Workspace, by: User, to: User, team: Team | None) -> None:
    if not may(by, "approve", workspace):
        raise InvalidInput("Only who may decide in their own right can hand it over.")
    if by == to:
        raise InvalidInput("To: choose somebody else.")
    if not may(to, "view", workspace):
        raise InvalidInput(f"To: {to} is not a member of {workspace.name}.")
    if team and not teams_of(by, workspace).filter(pk=team.pk).exists():
        raise InvalidInput(f"For: you do not stand in {team}.")
    if team and not deciding_teams(by, workspace).filter(pk=team.pk).exists():
        raise InvalidInput(f"For: {team} may not decide on approvals, so it has no deputies.")
    if of(workspace).filter(delegator=by).count() >= GIVEN_MAX:
        raise InvalidInput(f"You have handed it over {GIVEN_MAX} times; revoke one first.")


@transaction.atomic
def revoke(row: Delegation, *, by: User) -> None:
    """End it now; an answer that was given under it and is not yet used counts no more. Raises
    PermissionDenied. One that has ended stays as it ended.
    """
    if not may_revoke(row, by):
        raise PermissionDenied("only the two and administrators end a delegation")
    _end(row, DelegationEnd.REVOKED, by=by)


def may_revoke(row: Delegation, person: User) -> bool:
    if not may(person, "view", row.workspace):
        return False
    own = person.pk in {row.delegator_id, row.delegate_id}
    return own or may(person, "administer", row.workspace)


def look(workspace: Workspace | None = None) -> int:
    """Tell of those that began, and end those whose time is over or whose ground is gone; how many.

    Nobody's right waits for this: who decides is asked of the rows and of the clock.
    """
    rows = not_ended().select_related("workspace")
    if workspace is not None:
        rows = rows.filter(workspace=workspace)
    over = list(rows.filter(until__lte=Now()).order_by("until")[:BATCH])
    lost = list(rows.filter(_lost(), until__gt=Now()).order_by("pk")[:BATCH])
    begun = list(rows.filter(living(), begun_at=None).order_by("pk")[:BATCH])
    for row in over:
        _end(row, DelegationEnd.TIME, by=None)
    for row in lost:
        _end(row, DelegationEnd.LOST, by=None)
    for row in begun:
        _begin(row)
    return len(over) + len(lost) + len(begun)


def _lost() -> Q:
    """That the delegator may no longer decide, or left the team, or the delegate the workspace."""

    def holds(codename: str, whose: str) -> Exists:
        held = User.objects.filter(
            pk=OuterRef(whose),
            is_active=True,
            groups__workspacegrouppermission__content_object=OuterRef("workspace"),
            groups__workspacegrouppermission__permission__codename=codename,
            groups__workspacegrouppermission__permission__content_type__app_label="workspaces",
        )
        return Exists(held)

    stands = Team.objects.filter(pk=OuterRef("team"), group__user=OuterRef("delegator"))
    return (
        ~Q(holds("approve", "delegator"))
        | ~Q(holds("view", "delegate"))
        | (Q(team__isnull=False) & ~Q(Exists(stands)))
    )


@transaction.atomic
def _begin(row: Delegation) -> None:
    if Delegation.objects.filter(living(), pk=row.pk, begun_at=None).update(begun_at=Now()):
        _tell(row, EventType.DELEGATION_BEGUN, by=None)


@transaction.atomic
def _end(row: Delegation, end: DelegationEnd, *, by: User | None) -> None:
    unended = Delegation.objects.filter(pk=row.pk, ended_at=None)
    if end != DelegationEnd.TIME:  # one whose time is over ended by that
        unended = unended.filter(until__gt=Now())
    if unended.update(ended_at=Now(), ended_by=by, end=end):
        _tell(row, EventType.DELEGATION_ENDED, by=by, because=end.value)


def _tell(row: Delegation, kind: EventType, *, by: User | None, **more: str) -> None:
    data = {
        "delegation": row.pk,
        "delegator": row.delegator.email,
        "delegate": row.delegate.email,
        "team": row.team.name if row.team else "",
        "from": row.starts_at.isoformat(),
        "until": row.until.isoformat(),
        "reason": row.reason,
        **more,
    }
    outbox.record(row.workspace, kind, by=by, data=data)


def words(row: Delegation) -> str:
    """“Ben (leads), until 2026-12-01 09:00 UTC”: for whom somebody decides."""
    team = f" ({row.team})" if row.team else ""
    return f"{row.delegator}{team}, until {formatting.absolute(row.until)}"
