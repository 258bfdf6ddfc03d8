"""Who may approve is said once in Python and once in SQL, and guarded once more by the database.

Here all of them are held against each other, over workspaces that chance has made.
"""

import random
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.db import IntegrityError, transaction
from django.utils import timezone

from amends.protocol.vocabulary import EventType
from approvals import awaiting, deciders
from approvals.models import Approval, Decision
from approvals.policy import RequiredApprovers
from ledger import desk_events
from tests.approvals.cast import asker
from tests.people import person, team
from workspaces.models import Delegation, Membership, User, Workspace

WORLDS = 24
RIGHTS = (("view",), ("view", "approve"), ("view", "recover", "approve"))


@pytest.mark.parametrize("seed", range(WORLDS))
def test_python_sql_and_the_database_agree_on_who_may_approve(acme, globex, seed):
    draw = random.Random(seed)  # noqa: S311 - the same worlds in every run
    people = _people(draw, acme, globex)
    ask = asker(acme, people[0])
    approvals = [_asked(draw, ask, people) for _ in range(3)]
    _lent(draw, acme, people)

    answered = {approval.pk: _answered(draw, approval, people) for approval in approvals}
    for approval in approvals:
        for one in people:
            entitled = one.pk in deciders.entitled(approval, [one.pk])
            listed = awaiting.among(Approval.objects.filter(pk=approval.pk), one).exists()
            brings_further = one.pk not in answered[approval.pk] and deciders.counts(approval, one)
            assert listed == (brings_further and approval.expires_at > timezone.now()), one
            assert entitled or not listed, one
            may_write = one.pk in answered[approval.pk] or _may_write(approval, one)
            assert may_write or one.pk not in deciders.themselves(approval, [one.pk]), one
            for mandate in deciders.mandates(approval, [one.pk]):
                assert _may_write(approval, one, mandate.delegation), one
            for row in one.delegations_held.all():
                both = {row.delegator_id, row.delegate_id}
                if not both & answered[approval.pk] and _may_write(approval, one, row):
                    assert not both & {approval.requested_by_id, approval.agent_owner_id}
    for one in people:
        waiting = awaiting.among(Approval.objects.filter(workspace=acme), one).count()
        assert awaiting.count(acme, one, limit=10) == waiting


def test_the_worlds_have_those_who_may_and_those_who_may_not(acme, globex):
    draw = random.Random(1)  # noqa: S311
    people = _people(draw, acme, globex)
    ask = asker(acme, people[0])
    found = [deciders.entitled(_asked(draw, ask, people)) for _ in range(3)]

    assert 0 < sum(map(len, found)) < len(found) * len(people)


def _people(draw: random.Random, acme: Workspace, globex: Workspace) -> list[User]:
    """Eight, in teams of one workspace or two, new or not, active, proven and sponsored or not."""
    rooms = [team(acme, name, "view", "approve") for name in ("finance", "leads")]
    rooms.append(team(acme, "guests", *draw.choice(RIGHTS)))
    rooms.append(team(globex, "finance", "view", "approve"))
    people = [
        person(f"person{number}", *draw.sample(rooms, draw.randint(0, 3))) for number in range(8)
    ]
    for one in people:
        if draw.random() < 0.15:
            type(one).objects.filter(pk=one.pk).update(is_active=False)
        if draw.random() < 0.2:
            EmailAddress.objects.filter(user=one).update(verified=False)
    for entry in Membership.objects.filter(workspace=acme):
        sponsors = [each.pk for each in draw.sample(people, draw.randint(0, 2))]
        if draw.random() < 0.4:
            Membership.objects.filter(pk=entry.pk).update(
                added_at=timezone.now() - timedelta(hours=draw.choice([1, 23, 25])),
                sponsors=sponsors,
                vouched_at=timezone.now() if draw.random() < 0.2 else None,
            )
    if draw.random() < 0.3:
        Workspace.objects.filter(pk=acme.pk).update(founder=draw.choice(people))
    for one in people:
        one.refresh_from_db()
    acme.refresh_from_db()
    return people


def _asked(draw: random.Random, ask, people: list[User]) -> Approval:
    wanted = draw.sample([None, "finance", "leads"], draw.randint(1, 2))
    approval = ask(
        *(RequiredApprovers(name, draw.randint(1, 2)) for name in wanted),
        by=draw.choice(people),
        self_approval=draw.random() < 0.25,
    )
    changes: dict[str, Any] = {"agent_owner": draw.choice([None, *people])}
    if draw.random() < 0.2:
        changes["expires_at"] = timezone.now() - timedelta(seconds=1)
    Approval.objects.filter(pk=approval.pk).update(**changes)
    return Approval.objects.get(pk=approval.pk)


def _lent(draw: random.Random, acme: Workspace, people: list[User]) -> None:
    """Some hand their right to others: now, later or long ago, for a team or for all, or took it
    back; whether they have any is another question. Of a few nobody is told: those are nobody's.
    """
    for _ in range(draw.randint(0, 8)):
        delegator, delegate = draw.sample(people, 2)
        begin = timezone.now() + timedelta(days=draw.choice([-9, -1, -1, -1, 1]))
        ended = draw.random() < 0.15
        row = Delegation.objects.create(
            workspace=acme, delegator=delegator, delegate=delegate, reason="away",
            team=draw.choice([None, None, *acme.teams.all()]),
            starts_at=begin, until=begin + timedelta(days=3),
            ended_at=timezone.now() if ended else None, end="revoked" if ended else "",
        )  # fmt: skip
        if draw.random() < 0.85:
            told = {"delegation": row.pk}
            desk_events.record(acme, EventType.DELEGATION_GIVEN, by=delegator, data=told)


def _answered(draw: random.Random, approval: Approval, people: list[User]) -> set[int]:
    """One who could has said yes already, in half of them; the others may bring it further."""
    able = sorted(deciders.mandates(approval), key=lambda one: (one.person, sorted(one.both)))
    if not able or draw.random() < 0.5:
        return set()
    mandate = draw.choice(able)
    Decision.objects.create(
        approval=approval, person_id=mandate.person, granted=True, delegation=mandate.delegation
    )
    return mandate.both


def _may_write(approval: Approval, one, delegation=None) -> bool:
    """Whether the database itself takes a yes of this person, whatever the code says."""
    with suppress(IntegrityError), transaction.atomic():
        Decision.objects.create(approval=approval, person=one, granted=True, delegation=delegation)
        transaction.set_rollback(True)
        return True
    return False
