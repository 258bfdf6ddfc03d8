"""Rights as a page has them: of one moment while it only reads, and anew for whatever acts."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests import people
from workspaces import teams
from workspaces.access import may, workspaces_of
from workspaces.models import Act
from workspaces.request_cache import request_cache

pytestmark = pytest.mark.django_db


def asked_for_rights(queries):
    return [one["sql"] for one in queries if "workspaces_workspacegrouppermission" in one["sql"]]


def test_a_page_that_only_reads_asks_once_what_its_reader_may(airline, ada, client):
    client.force_login(ada)
    with CaptureQueriesContext(connection) as queries:
        assert client.get("/w/airline/queue/").status_code == 200

    assert sum("array_agg(allowed.codename" in one for one in asked_for_rights(queries)) == 1


def test_what_a_page_found_is_remembered_for_nobody_else_and_no_longer_than_it(airline, ada, ben):
    with request_cache():
        assert may(ada, "recover", airline)
        ada.groups.clear()
        assert may(ada, "recover", airline), "as of one moment"
        assert not may(ben, "administer", airline)
        ben.groups.clear()
    assert not may(ada, "recover", airline)
    assert not workspaces_of(ada).exists()
    assert not may(ben, "view", airline)
    teams.add(airline.teams.get(name="viewers"), ben, by=None)
    assert may(ben, "view", airline), "outside of a page at once"
    ben.groups.clear()
    assert not may(ben, "view", airline)


def test_whoever_was_sent_away_is_refused_by_the_next_page_and_by_the_next_act(
    airline, ada, client
):
    client.force_login(ada)
    assert client.get("/w/airline/queue/").status_code == 200
    ada.groups.clear()
    assert client.get("/w/airline/queue/").status_code == 404
    assert client.post("/w/airline/queue/claim/", {"case": [1]}).status_code == 404


def test_the_people_of_the_stories_stand_in_a_team_as_whoever_is_put_there(airline):
    standing = [*airline.teams.order_by("name")[:2]]
    finn = people.person("finn", *standing)
    gina = people.person("gina")
    for team in standing:
        teams.add(team, gina, by=None)

    def rows_of(who):
        groups = who.groups.order_by("pk").values("pk")
        memberships = who.memberships.order_by("pk").values()
        acts = Act.objects.filter(data__person=who.email).order_by("pk").values()
        own = {"id", "person_id", "at", "added_at", "data"}
        rows = [{k: v for k, v in row.items() if k not in own} for row in (*memberships, *acts)]
        return [*groups, *rows, *(act["data"] | {"person": ""} for act in acts)]

    assert rows_of(finn) == rows_of(gina)
    assert len(rows_of(finn)) == 8, "two groups, memberships, acts, and what these tell"
    assert finn.memberships.exclude(added_at=None).count() == 2
