"""Rights as a page has them: of one moment while it only reads, and anew for whatever acts."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from workspaces import teams
from workspaces.access import may, workspaces_of
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
