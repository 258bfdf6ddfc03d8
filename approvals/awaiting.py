"""What waits for a person: the questions that they may answer now, as one condition of SQL.

The inbox, its badge and its polls are this list. It says the same of an approval as
approvals/deciders.py, which says why; a test holds the two against each other and the database.
"""

from collections.abc import Iterable
from typing import NamedTuple

from django.contrib.auth.models import AnonymousUser
from django.db import connection
from django.db.models import BooleanField, Exists, OuterRef
from django.db.models.expressions import RawSQL

from approvals import deciders
from approvals.models import Approval, Decision
from approvals.models.approvals import ApprovalQuerySet
from workspaces import delegations
from workspaces.access import GRANTED
from workspaces.models import User, Workspace
from workspaces.request_cache import cached


class Standing(NamedTuple):
    """What of a person says where they may answer, each as SQL: where it has to be looked up, or as
    it was read.
    """

    is_proven: str
    approves_in: str
    """The workspaces where they may approve."""
    teams: str
    holds: str
    """Whether somebody has handed them a right."""


def _teams(person: str, only: str = "NULL::bigint") -> str:
    """SQL: the teams where they stand, of which `only` that one unless it is NULL."""
    return f"""
SELECT team.id FROM workspaces_team team
JOIN workspaces_user_groups stands ON stands.group_id = team.group_id
WHERE stands.user_id = {person} AND ({only} IS NULL OR team.id = {only})"""  # noqa: S608 - our own words


def _held(person: str) -> str:
    is_living, told = delegations.IS_LIVING.format("lent"), deciders.HANDED_OVER.format("lent")
    return f"""
SELECT FROM workspaces_delegation lent
WHERE lent.delegate_id = {person} AND {is_living} AND {told}"""


def looked_up(person: str) -> Standing:
    """In the statement itself, for one that is planned once and asked again and again."""
    return Standing(
        f"(SELECT workspaces_address_is_proven({person}))",
        GRANTED % (person, "'approve'"),
        _teams(person),
        f"(SELECT EXISTS ({_held(person)}))",
    )


STANDING = f"""
SELECT workspaces_address_is_proven(%(person)s), ARRAY({GRANTED % ("%(person)s", "'approve'")}),
    ARRAY({_teams("%(person)s")}), EXISTS ({_held("%(person)s")})"""


def standing(person: int) -> Standing:
    """As it is now. A page asks of it in several statements, and to plan each of them with all that
    it looks up took longer than to answer it.
    """
    return cached(("standing", person), lambda: _standing(person))


def _standing(person: int) -> Standing:
    with connection.cursor() as cursor:
        cursor.execute(STANDING, {"person": person})
        is_proven, approves_in, teams, holds = cursor.fetchone()
    return Standing(str(is_proven), _listed(approves_in), _listed(teams), str(holds))


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids)) or "NULL"


def asks(approval: str, person: str, standing: Standing) -> str:
    """SQL: whether the row `approval` is asked of `person` and not yet answered by them.

    The same as `entitled` says of it, as one condition; all three are words and numbers of ours.
    Nobody is independent of themselves, so those who ask are left out with their circle.
    Every page counts by it for the badge; built anew by the ORM each time it took six milliseconds.
    """
    return f"""
{approval}.state = 'waiting' AND {approval}.expires_at > statement_timestamp()
AND {standing.is_proven}
AND {_unanswered(approval, person)}
AND (({_asks_themselves(approval, person, standing)})
    OR ({standing.holds} AND {_asks_deputy(approval, person)}))"""


def _asks_themselves(approval: str, person: str, standing: Standing) -> str:
    return f"""
({approval}.self_approval OR {_independent(approval, person, standing.approves_in)})
AND {approval}.workspace_id IN ({standing.approves_in})
AND {_stands(approval, standing.teams)}"""


def _asks_deputy(approval: str, person: str) -> str:
    """Nobody lends what they could not answer with themselves."""
    owner, views = "lent.delegator_id", GRANTED % (person, "'view'")
    theirs = _stands(approval, _teams(owner, "lent.team_id"), "AND lent.team_id IS NULL")
    return f"""
{approval}.subject_kind <> 'grant'
AND EXISTS ({_held(person)} AND lent.workspace_id = {approval}.workspace_id
    AND {approval}.workspace_id IN ({views})
    AND {approval}.workspace_id IN ({GRANTED % (owner, "'approve'")})
    AND workspaces_address_is_proven({owner})
    AND {_independent(approval, person, views)}
    AND workspaces_is_independent({owner},
        ARRAY[{approval}.requested_by_id, {approval}.agent_owner_id], {approval}.workspace_id)
    AND {theirs} AND {_unanswered(approval, owner)})"""


def _independent(approval: str, person: str, workspaces: str) -> str:
    """SQL: whether they are independent of who asked and of whose agent it is, in `workspaces`."""
    # The inner query does not name the approval, so PostgreSQL asks it once and keeps the answer; a
    # thousand questions have a few askers. OFFSET 0 keeps its condition behind the DISTINCT.
    return f"""({approval}.workspace_id,
        coalesce({approval}.requested_by_id, 0), coalesce({approval}.agent_owner_id, 0)) IN (
    SELECT two.workspace_id, coalesce(two.requested_by_id, 0), coalesce(two.agent_owner_id, 0)
    FROM (
        SELECT DISTINCT waits.workspace_id, waits.requested_by_id, waits.agent_owner_id
        FROM approvals_approval waits
        WHERE waits.state = 'waiting' AND waits.workspace_id IN ({workspaces}) OFFSET 0) two
    WHERE workspaces_is_independent(
        {person}, ARRAY[two.requested_by_id, two.agent_owner_id], two.workspace_id))"""  # noqa: S608


def _unanswered(approval: str, person: str) -> str:
    return f"""NOT EXISTS (
    SELECT FROM approvals_decision answer WHERE answer.approval_id = {approval}.id
        AND (answer.person_id = {person} OR answer.principal_id = {person}))"""


def _stands(approval: str, teams: str, of_everybody: str = "") -> str:
    """SQL: whether it is asked in one of these teams, or of everybody."""
    # OFFSET 0 lets the requirements of each approval be looked up, never all of them be read at
    # once.
    return f"""EXISTS (
    SELECT FROM approvals_requirement asked
    WHERE asked.approval_id = {approval}.id
        AND (asked.team_id IS NULL {of_everybody}
            OR asked.team_id IN ({teams})
            OR asked.escalated_to_id IN ({teams}))
    OFFSET 0)"""


KEYS = """
SELECT approvals_approval.id, EXISTS (SELECT FROM approvals_decision answer
    WHERE answer.approval_id = approvals_approval.id)
FROM approvals_approval WHERE approvals_approval.workspace_id = %s AND {asked}
LIMIT %s"""


def among(rows: ApprovalQuerySet, person: User | AnonymousUser) -> ApprovalQuerySet:
    """Exactly those that this person may decide now; the inbox and its badge are this list."""
    candidates = _candidates(rows, person)
    answered = Exists(Decision.objects.filter(approval=OuterRef("pk")))
    begun = (
        candidates.filter(answered)
        .select_related(None)
        .select_related("workspace")
        .prefetch_related("requirements", "decisions")
    )
    done = [approval.pk for approval in begun if not deciders.counts(approval, person)]
    return candidates.exclude(pk__in=done) if done else candidates


def listed(
    rows: ApprovalQuerySet, workspace: Workspace, person: User | AnonymousUser, limit: int
) -> ApprovalQuerySet:
    """As `among`, of the rows of a workspace; where fewer than `limit` are asked, by their keys. A
    page asks of its list in several statements, and its badge has counted them already.
    """
    keys = _keys(workspace, person, limit)
    if len(keys) >= limit:
        return among(rows, person)
    # One array: a thousand blanks in each statement took longer to fill than to answer.
    one_of = RawSQL("approvals_approval.id = ANY(%s::bigint[])", (keys,), BooleanField())
    return rows.filter(one_of)


def count(workspace: Workspace, person: User | AnonymousUser, limit: int) -> int:
    """How many of the workspace are asked of this person, counted no further than `limit`."""
    return len(_keys(workspace, person, limit))


def _keys(workspace: Workspace, person: User | AnonymousUser, limit: int) -> list[int]:
    if not person.is_authenticated:
        return []
    key = ("awaiting", workspace.pk, person.pk, limit)
    return cached(key, lambda: _looked_up_keys(workspace, person, limit))


def _looked_up_keys(workspace: Workspace, person: User, limit: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(KEYS.format(asked=_asked(person)), (workspace.pk, limit))
        found = cursor.fetchall()
    if not any(is_begun for _, is_begun in found):
        return [pk for pk, _ in found]
    rows = among(Approval.objects.filter(workspace=workspace), person)
    return list(rows.order_by().values_list("pk", flat=True)[:limit])


def _candidates(rows: ApprovalQuerySet, person: User | AnonymousUser) -> ApprovalQuerySet:
    if not person.is_authenticated:
        return rows.none()
    asked = RawSQL(_asked(person), (), output_field=BooleanField())  # noqa: S611 - our own words
    return rows.filter(asked)


def _asked(person: User) -> str:
    """`asks` of an approval as Django names it, as the person stands now."""
    return asks("approvals_approval", str(person.pk), standing(person.pk))
