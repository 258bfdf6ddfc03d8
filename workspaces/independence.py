"""Whether a person counts as a second pair of eyes: their address is proven, and they are nobody
whom those who ask brought in a short while ago.

Both questions are functions of the database, so that the inbox, its badge, open consoles and the
constraint on a decision ask the same. The circle of a person is themselves and the sponsors of
their memberships that are younger than the workspace's probation. Two people whose circles meet do
not count as two: one brought the other in, or the same person both. A workspace's founder, whom
nobody brought in, counts from the first day.
"""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from allauth.account.models import EmailAddress
from django.db import connection, transaction
from django.db.models import Q
from django.db.models.functions import Now

from amends.protocol.vocabulary import EventType
from workspaces import outbox
from workspaces.models import Membership, User, Workspace

# Whoever is new, or asks, or stands behind one who asks, is judged by themselves; all others as
# anybody (0), once. Who is new is who has a membership that the function would look at.
COUNTS = """
WITH fresh AS MATERIALIZED (
    SELECT m.person_id, m.sponsors FROM workspaces_membership m
    JOIN workspaces_workspace w ON w.id = m.workspace_id
    WHERE m.workspace_id = %(here)s AND m.vouched_at IS NULL
        AND m.added_at > statement_timestamp() - make_interval(secs => w.probation_seconds)
), concerned AS MATERIALIZED (
    SELECT person_id FROM fresh UNION SELECT unnest(%(others)s::bigint[])
    UNION SELECT unnest(sponsors) FROM fresh WHERE person_id = ANY (%(others)s::bigint[])
)
SELECT p.id, workspaces_address_is_proven(p.id),
    CASE WHEN p.id IN (SELECT person_id FROM concerned)
        THEN workspaces_is_independent(p.id, %(others)s::bigint[], %(here)s)
        ELSE (SELECT workspaces_is_independent(0, %(others)s::bigint[], %(here)s)) END
FROM unnest(%(people)s::bigint[]) AS p (id)"""
UNPROVEN = "prove first that your e-mail address is yours"
SPONSORS_MAX = 50
"""Kept of one membership: longer chains within a day are made by nobody in earnest."""


class NothingToVouchFor(Exception):
    """We stopped because this person needs nobody's word here; the message says why."""


class Independence(NamedTuple):
    """What may keep a person from being a second pair of eyes."""

    is_proven: bool
    is_independent: bool


class Newcomer(NamedTuple):
    """Somebody of the circle of whoever asks, and from when on they count."""

    person: User
    brought_in_by: str
    at: datetime
    counts_at: datetime


def standings(
    people: Iterable[int], others: Iterable[int | None], workspace: Workspace
) -> dict[int, Independence]:
    """Of each person by id, towards `others`: those who ask, and the owner of the agent."""
    with connection.cursor() as cursor:
        asking = [pk for pk in others if pk]
        cursor.execute(COUNTS, {"others": asking, "here": workspace.pk, "people": list(people)})
        return {pk: Independence(proven, apart) for pk, proven, apart in cursor.fetchall()}


def newcomers(
    people: Collection[int], others: Collection[int | None], workspace: Workspace
) -> list[Newcomer]:
    """Those of the people who are held back by a probation, in the order of their names."""
    kept_back = [
        pk for pk, one in standings(people, others, workspace).items() if not one.is_independent
    ]
    probation = timedelta(seconds=workspace.probation_seconds)
    asking = [pk for pk in others if pk]
    fresh = Membership.objects.filter(
        workspace=workspace, vouched_at=None, added_at__gt=Now() - probation
    ).select_related("person", "added_by")
    rows = fresh.filter(Q(person__in=kept_back) | Q(person__in=asking)).order_by("added_at", "pk")
    last: dict[int, Membership] = {row.person_id: row for row in rows}
    found = []
    for person in User.objects.filter(pk__in=kept_back).order_by("name", "email"):
        mine = [last[pk] for pk in (person.pk, *asking) if pk in last]
        if mine:
            until = max(row.added_at for row in mine) + probation
            found.append(Newcomer(person, _words(person, mine[0]), mine[0].added_at, until))
    return found


def _words(person: User, row: Membership) -> str:
    by = str(row.added_by or "somebody who is gone")
    if row.person_id == person.pk:
        return f"was brought in by {by}"
    return f"and {row.person} are of one circle: {by} brought {row.person} in"


def sponsors_of(added_by: User | None, person: User, workspace: Workspace) -> list[int]:
    """Who stands behind `added_by` putting `person` into a team: themselves and their circle."""
    if added_by is None:
        return []
    fresh = Membership.objects.filter(
        workspace=workspace, person=added_by, vouched_at=None,
        added_at__gt=Now() - timedelta(seconds=workspace.probation_seconds),
    )  # fmt: skip
    behind = {pk for row in fresh.values_list("sponsors", flat=True) for pk in row}
    return sorted((behind | {added_by.pk}) - {person.pk})[:SPONSORS_MAX]


def who_brought_in(person: User, workspace: Workspace) -> User:
    """Whoever put them into their first team here: putting oneself into others hides nobody."""
    rows = Membership.objects.filter(workspace=workspace, person=person)
    others = rows.exclude(added_by=None).exclude(added_by=person).select_related("added_by")
    first = others.order_by("added_at", "pk").first()
    return (first and first.added_by) or person


def is_proven(person: User) -> bool:
    """Whether the address that they go by was proven."""
    same = EmailAddress.objects.filter(user=person, email__iexact=person.email)
    return bool(same.filter(verified=True).exists())


def address_of(person: User) -> EmailAddress:
    """Their address as allauth keeps it, made if it is not there yet."""
    found, _ = EmailAddress.objects.get_or_create(
        user=person, email=person.email, defaults={"primary": True}
    )
    return found


def prove(person: User) -> None:
    """Take the address as proven: of a founder by the set-up link, or by word of the server's."""
    address = address_of(person)
    EmailAddress.objects.filter(pk=address.pk).update(verified=True)


@transaction.atomic
def vouch(
    workspace: Workspace, person: User, *, because: str, address: bool, at_once: bool
) -> list[str]:
    """Say at the server that the address is theirs, or that they count from now on; what was said.

    The way out of small teams and of desks without mail; the ledger keeps it, with the reason. Of
    who stands in no workspace the address may be vouched for: a directory that brings them back
    takes them with a proven one alone. Raises NothingToVouchFor.
    """
    here = User.objects.filter(pk=person.pk, groups__team__workspace=workspace).exists()
    is_nowhere = not User.objects.filter(pk=person.pk, groups__team__isnull=False).exists()
    if not (here or (is_nowhere and address and not at_once)):
        raise NothingToVouchFor(f"{person.email} is not a member of {workspace.slug}.")
    said = []
    if address and not is_proven(person):
        prove(person)
        said.append("address")
    fresh = Membership.objects.filter(workspace=workspace, person=person, vouched_at=None)
    if at_once and fresh.update(vouched_at=Now()):
        said.append("counts at once")
    if not said:
        raise NothingToVouchFor(f"{person.email} needs no word for this in {workspace.slug}.")
    data = {"person": person.email, "because": because, "vouched": said, "at": "the server"}
    outbox.record(workspace, EventType.MEMBER_VOUCHED, by=None, data=data)
    return said
