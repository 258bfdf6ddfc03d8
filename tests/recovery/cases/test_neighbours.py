"""Dev may do everything, at home. Whatever page or endpoint he asks for with the ids of ours, under
his workspace or under ours, none shows him anything of it, and none changes a row of it.

The walk goes over the URL configuration (`test_disclosure`), so a query that forgets its workspace
has a neighbour here before it has one of its own.
"""

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from approvals import pauses, versions
from approvals.models import Approval
from connectors import channels
from recovery.models import BulkJob, Case, SavedView
from tests.people import person, team
from tests.recovery.cases.conftest import POLICY
from tests.recovery.cases.test_disclosure import (
    PLACES,
    SECRETS,
    V1,
    W,
    asked,
    finance,
    known,
)
from workspaces import entrance, keys
from workspaces.models import Delegation, DirectoryPerson, Invitation, PersonToken

__all__ = ["finance", "known"]

# What else of ours the addresses may name, and by which fixture value.
OURS = {
    f"{W}settings/members/invitations/<int:pk>/withdraw/": "invitation",
    f"{W}settings/delegations/<int:pk>/revoke/": "delegation",
    f"{W}settings/directory/tokens/<int:pk>/revoke/": "directory_token",
    f"{W}settings/directory/people/<int:pk>/let-back-in/": "who_left",
    f"{W}settings/teams/<int:pk>/": "team", f"{W}settings/teams/<int:pk>/people/": "team",
    f"{W}settings/teams/<int:pk>/leave/": "team",
    f"{W}settings/keys/<int:pk>/revoke/": "key", f"{W}settings/keys/<int:pk>/first/": "key",
    f"{W}settings/tokens/<int:pk>/revoke/": "token",
    f"{W}channels/<int:pk>/switch/": "channel", f"{W}channels/<int:pk>/test/": "channel",
    f"{W}policies/pauses/<int:pk>/lift/": "pause", f"{V1}pauses/<pk>/lift": "pause",
    f"{W}bulk/<int:pk>/": "job", f"{W}bulk/<int:pk>/progress/": "job",
    f"{W}bulk/<int:pk>/stop/": "job", f"{W}policies/<int:number>/": "version",
    f"{W}policies/<int:number>/activate/": "version",
    f"{W}policies/<int:number>/shadow/": "version",
    **dict.fromkeys((f"{V1}policies/<int:number>{act}"
        for act in ("", "/dry-run", "/activate", "/shadow")), "version"),
}  # fmt: skip
# What a form or script says so that the act would be done, if it were of his workspace.
SAID = {
    "reason": "x", "note": "x", "text": "x", "why": "x", "evidence": "x", "question": "x",
    "answer": "x", "words": "x", "name": "x", "verb": "close", "ending": "expected",
    "outcome": "expected", "decision": "grant", "slug": "mine", "title": "x", "lead": "x",
}  # fmt: skip
CANARIES = (*SECRETS, "Ocelot", "ticket-desk", "Eve Adams", "T-182")
# Whoever was there, and when; the row of a person is theirs in every workspace.
OF_THE_DESK = {"django_session", "workspaces_user", "workspaces_persontoken", "django_migrations"}


@pytest.fixture
def theirs(globex):
    """Dev, who may do all that anybody may there, and a desk of his own that works."""
    may = team(globex, "all", "view", "view_sensitive", "recover", "approve", "administer")
    dev = person("dev", may, team(globex, "leads", "view", "approve"))
    person("gus", globex.teams.get(name="leads"))
    versions.activate(versions.save(globex, POLICY, by=None), by=None)
    return dev


@pytest.fixture
def ours(known, acme, ada, agent):
    """One of everything that an address can name."""
    administrators = team(acme, "Ocelot administrators", "administer", "view")
    channel = channels.create(
        acme, "Ocelot channel", "mail", by=ada, settings={"to": ["ocelot@example.com"]}
    )
    key, _ = keys.create_key(agent, by=ada, name="Ocelot key")
    token, _ = keys.create_token(acme, by=ada, name="Ocelot token")
    directory, _ = keys.create_directory_token(acme, by=ada, name="Ocelot directory")
    who_left = DirectoryPerson.objects.create(
        workspace=acme, user_name="gone", person=ada, active=False, gone_at=timezone.now()
    )
    entrance.invite(acme, "ocelot@example.com", [administrators], by=ada)
    pause = pauses.pause(acme, "tool", "ocelot.*", by=ada, reason="Ocelot")
    job = BulkJob.objects.create(workspace=acme, verb="close", query="Ocelot", started_by=ada)
    SavedView.objects.create(workspace=acme, owner=ada, name="Ocelot", slug="mine", shared=True,
                             query="customer:Ocelot")  # fmt: skip
    now = timezone.now()
    delegation = Delegation.objects.create(
        workspace=acme, delegator=ada, delegate=person("ocelot", administrators),
        reason="Ocelot", starts_at=now, until=now + timedelta(days=1),
    )  # fmt: skip
    policy = POLICY.replace("users.*", "ocelot.*")
    version = versions.save(acme, policy, by=ada, note="Ocelot")
    return known | {
        "team": administrators.pk, "channel": channel.pk, "key": key.pk, "token": token.pk,
        "invitation": Invitation.objects.get().pk, "pause": pause.pk, "job": job.pk,
        "version": version.number, "delegation": delegation.pk,
        "directory_token": directory.pk, "who_left": who_left.pk,
    }  # fmt: skip


def rows():
    """Every row of the database that is no sign of who was there: table and text."""
    found = set()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT format('%I', relname) FROM pg_class WHERE relkind IN ('r', 'p')"
            " AND NOT relispartition AND relnamespace = 'public'::regnamespace"
        )
        for (table,) in cursor.fetchall():
            if table not in OF_THE_DESK:
                cursor.execute(f"SELECT t::text FROM {table} t")
                found |= {(table, text) for (text,) in cursor.fetchall()}
    return found


@pytest.mark.django_db
@pytest.mark.parametrize("home", ["globex", "acme"])
def test_no_address_leads_a_neighbour_to_anything_of_ours(client, ours, theirs, globex, home):
    client.force_login(theirs)
    script = {"Authorization": f"Bearer {keys.create_token(globex, by=theirs, name='s')[1]}"}
    said = SAID | {"revision": Case.objects.get(pk=ours["case"]).revision,
                   "digest": Approval.objects.get(pk=ours["approval"]).digest}  # fmt: skip
    where, before, wrong = ours | {"workspace": home}, rows(), {}

    for post in (False, True):
        for route, places in PLACES.items():
            for place in places:
                there = {
                    name: value.replace("w/acme/", f"w/{home}/") for name, value in place.items()
                }
                if route in OURS:
                    there["number" if "<int:number>" in route else "pk"] = ours[OURS[route]]
                answer = asked(client, route, there, where, script, post=post, body=said)
                text = answer.content.decode(errors="replace")  # one is a file
                assert answer.status_code < 500, (route, text)
                if shown := [one for one in CANARIES if one in text]:
                    wrong[f"{answer.request['PATH_INFO']} {answer.status_code}"] = shown

    assert wrong == {}
    after = rows()
    assert before - after == set()
    assert PersonToken.objects.get(pk=ours["token"]).revoked_at is None
    made = {table for table, _ in after - before}
    own = {"recovery_savedview", "workspaces_act", "workspaces_agent", "workspaces_directorytoken"}
    assert made <= own
