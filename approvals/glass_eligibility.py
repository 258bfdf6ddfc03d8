"""Breaking the glass: who may decide where nobody who should can be reached, and whether what two
of them said still counts.

Off unless the policy says `breakGlass`. It takes two who are entitled to nothing here, are nobody
of those who ask and nobody of each other's circle, each by a fresh log-in; approvals/inbox.py takes
their yes as it takes any other, and a third person looks at it afterwards.
"""

from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Now

from approvals import deciders
from approvals.models import Approval, ApprovalState, BrokenGlass, Decision, SubjectKind
from approvals.policy import PolicyUnreadable, active
from approvals.policy.document import BreakGlass
from workspaces import clock, formatting, independence
from workspaces.access import may, people_with, teams_with
from workspaces.models import Team, User, Workspace

PEOPLE = 2


def allowed(approval: Approval) -> BreakGlass | None:
    """What the policy in force says of it for this approval; None where nobody may."""
    if approval.subject_kind == SubjectKind.GRANT:  # it lets pass what nobody has seen yet
        return None
    try:
        said = active(approval.workspace_id).break_glass
    except PolicyUnreadable:
        return None
    return said if said and said.covers(approval.risk) else None


def team_of(said: BreakGlass, workspace: Workspace) -> Team | None:
    return Team.objects.filter(workspace=workspace, name=said.group).first() if said.group else None


def able(workspace: Workspace, said: BreakGlass) -> QuerySet[User]:
    """The administrators, or the members of the team that the policy names."""
    if not said.group:
        return people_with("administer", workspace)
    team = team_of(said, workspace)
    people = people_with("view", workspace)
    return people.filter(groups__team=team) if team else people.none()


def has_a_say(team: Team) -> bool:
    """Whether its role has a say at all: who only looks on decides in nobody's place."""
    may = (teams_with(codename, team.workspace) for codename in ("approve", "administer"))
    return any(found.filter(pk=team.pk).exists() for found in may)


def may_take_part(person: User, workspace: Workspace) -> bool:
    """Whether the policy in force names them for any approval."""
    try:
        said = active(workspace).break_glass
    except PolicyUnreadable:
        return False
    return said is not None and able(workspace, said).filter(pk=person.pk).exists()


def why_not(approval: Approval, person: User) -> str:
    """Why this person cannot take part now, in words; empty if they can."""
    said = allowed(approval)
    if said is None:
        return "the policy lets nobody break the glass for this"
    if not able(approval.workspace, said).filter(pk=person.pk).exists():
        return "the policy lets others break the glass"
    if approval.state != ApprovalState.WAITING or not approval.calls:
        return "it is no longer open"
    since = approval.asked_at + timedelta(seconds=said.after_seconds)
    if since > clock.now():
        until = formatting.absolute(since)
        return f"those who are asked have until {until}"
    return _why_not_them(approval, person)


def _why_not_them(approval: Approval, person: User) -> str:
    given = list(approval.decisions.all())
    if any(person.pk in {one.person_id, one.principal_id} for one in given):
        return "you have already answered"
    if person.pk in approval.askers:
        return "whoever asked, and the agent’s owner, take no part in it"
    if deciders.mandates(approval, [person.pk]):
        return "you may decide on this yourself"
    others = [*approval.askers]
    others += [one.person_id for one in given if one.break_glass]
    standing = independence.standings([person.pk], others, approval.workspace)[person.pk]
    if not standing.is_proven:
        return independence.UNPROVEN
    if not standing.is_independent:
        return "one of those who ask or take part brought you in a short while ago, or you them"
    return ""


def broken_by(approval: Approval) -> QuerySet[Decision]:
    rows = Decision.objects.filter(approval=approval, break_glass=True, granted=True)
    return rows.select_related("person").order_by("pk")


def still(approval: Approval) -> list[Decision]:
    """Of the yes of those who have broken the glass what counts: they still may, by the policy that
    is in force.
    """
    given = list(broken_by(approval))
    said = allowed(approval) if given else None
    if said is None:
        return []
    people = able(approval.workspace, said).filter(pk__in=[one.person_id for one in given])
    can = set(people.values_list("pk", flat=True))
    return [one for one in given if one.person_id in can]


def stands(approval: Approval) -> bool:
    """Whether two have broken the glass for it, both still may, and the policy still lets them."""
    return len(still(approval)) >= PEOPLE


# What is to be looked at afterwards.


def unreviewed(workspace: Workspace) -> QuerySet[BrokenGlass]:
    rows = BrokenGlass.objects.filter(workspace=workspace, reviewed_at=None)
    return rows.select_related("approval__workspace").order_by("pk")


def why_no_review(glass: BrokenGlass, person: User) -> str:
    """Why this person cannot close the review, in words; empty if they can."""
    approval = glass.approval
    if approval.state == ApprovalState.WAITING and approval.expires_at > clock.now():
        return "it still waits for the second person, or for those who are asked"
    took_part: set[int | None] = {*approval.askers}
    for one in approval.decisions.all():
        took_part |= {one.person_id, one.principal_id}
    if person.pk in took_part:
        return "somebody who took no part in it has to look at it"
    here = glass.workspace
    if not (may(person, "approve", here) or may(person, "administer", here)):
        return "it takes somebody who may approve or administer"
    return ""


def close(glass: BrokenGlass, *, by: User, review: str) -> bool:
    """Write the review down; whether nobody was faster."""
    row = BrokenGlass.objects.filter(pk=glass.pk, reviewed_at=None)
    changes: dict[str, Any] = {"reviewed_at": Now(), "reviewed_by": by, "review": review}
    return bool(row.update(**changes))
