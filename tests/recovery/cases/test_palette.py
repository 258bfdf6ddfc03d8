"""The palette finds people, teams, pauses, views, connections, lists and settings by name."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals import named_lists, pauses
from connectors.models import ChannelKind
from recovery.views import palette
from recovery.views.saved_views import save_view
from tests.people import logged_in, person, team

pytestmark = pytest.mark.django_db


@pytest.fixture
def desk(acme, ada, ben, policy, shop_connection):
    pauses.pause(acme, "tool", "mail.*", by=ada, reason="The gateway sends twice")
    save_view(acme, by=ada, name="Shop refunds", query="tool:shop.*", shared=True)
    save_view(acme, by=ben, name="My shop", query="tool:shop.*", shared=False)
    named_lists.create(acme, "shop_payees", "mail")
    return acme


def found(who, q):
    """What the palette shows: (kind, label) of each, in its order."""
    browser = logged_in(who)
    answer = browser.get("/w/acme/find/", {"q": q})
    assert answer.status_code == 200
    return [(one["kind"], one["label"]) for one in answer.json()["found"]]


def test_one_word_finds_what_is_called_so_of_each_kind(desk, ada, ben):
    assert found(ada, "shop") == [
        ("View", "Shop refunds"),
        ("Connection", "shop"),
        ("List", "shop_payees"),
    ]
    assert found(ada, "sends paused") == [
        ("Pause", "Tool “mail.*” is paused: The gateway sends twice")
    ]
    assert ("Person", f"Ben, {ben.email}") in found(ada, "BEN")
    assert ("Team", "operators") in found(ada, "operat")
    assert ("Page", "Signing keys") in found(ada, "passkey")
    assert all(("Page", "Channels") in found(ada, kind) for kind in ChannelKind)


def test_each_leads_to_a_page_that_shows_it(desk, ada):
    browser = logged_in(ada)

    for q in ("shop", "ben", "finance", "mail.*", "settings"):
        for one in browser.get("/w/acme/find/", {"q": q}).json()["found"]:
            page = browser.get(one["url"], follow=True)
            assert page.status_code == 200, one
            _, _, place = one["url"].partition("#")
            assert f'id="{place}"' in page.text if place else True


def test_nobody_finds_what_they_may_not_see(desk, ada, ben, dev):
    vic = person("vic", team(desk, "guests", "view"))
    hana = person("hana", team(desk, "heads", "view", "administer"))

    assert ("View", "My shop") in found(ben, "shop")
    assert ("View", "My shop") not in found(ada, "shop")
    assert ("Page", "Kept and forgotten") in found(hana, "retention")
    assert found(vic, "retention") == []
    browser = logged_in(dev)
    assert browser.get("/w/acme/find/", {"q": "shop"}).status_code == 404


def test_thirty_people_are_found_by_as_few_queries_as_three(desk, ada):
    browser = logged_in(ada)
    browser.get("/w/acme/find/", {"q": "member"})
    guests = team(desk, "guests", "view")
    queries = []
    for number in range(30):
        person(f"member{number}", guests)
        if number in {2, 29}:
            with CaptureQueriesContext(connection) as asked:
                answer = browser.get("/w/acme/find/", {"q": "member"})
            queries.append(len(asked))

    assert queries[0] == queries[1]
    people = [one for one in answer.json()["found"] if one["kind"] == "Person"]
    assert len(people) == palette.OF_A_KIND_MAX
    assert found(ada, "") == found(ada, "%") == found(ada, "\x00") == []
