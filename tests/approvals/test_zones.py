"""One clock to a page: what stands on it and what is typed on it go by the reader's own zone."""

import html
import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from amends.protocol.vocabulary import EventType
from approvals.models import Approval
from ledger import desk_events
from ledger.models import Event
from tests.approvals.cast import put_in_force
from tests.approvals.door import Agent as Trip
from tests.people import person
from workspaces import teams

pytestmark = pytest.mark.django_db(transaction=True)
SETTINGS = "/w/acme/settings/"
TOKYO, NEW_YORK = ZoneInfo("Asia/Tokyo"), ZoneInfo("America/New_York")


@pytest.fixture
def asked(key, acme, ada, ben, client):
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})
    Trip(key).begin(tool="pay.card")
    client.force_login(ben)
    return Approval.objects.get()


def choose(client, zone):
    said = {"single_keys_known": "1", "name": "Ben", "timezone": zone}
    return client.post(SETTINGS, said)


def behind(text):
    return [html.unescape(one) for one in re.findall(r'data-exact="([^"]+)"', text)]


@pytest.mark.parametrize("chosen", [True, False])
def test_what_is_typed_goes_by_the_clock_that_the_page_shows(client, ben, asked, chosen):
    if chosen:
        assert choose(client, str(TOKYO)).status_code == 302
    else:  # the browser has said so, and nobody chose another
        client.cookies["zone"] = str(TOKYO)
    card = f"/w/acme/approvals/{asked.pk}/"
    soon = datetime.now(UTC) + timedelta(minutes=20)

    shown = client.get(card).text
    typed = f"{soon.astimezone(TOKYO):%Y-%m-%dT%H:%M}"
    answer = client.post(f"{card}later/", {"digest": asked.digest, "not-before": typed})

    assert answer.status_code in {200, 302}
    asked.refresh_from_db()
    assert asked.not_before == soon.replace(second=0, microsecond=0)
    assert f'data-zone="{TOKYO}"' in shown
    assert ("data-zone-chosen" in shown) == chosen
    assert behind(shown)
    assert all(" JST = " in one and one.endswith(" UTC") for one in behind(shown))


def test_the_zone_of_the_browser_is_proposed_and_a_choice_counts_more(client, ben, asked):
    client.cookies["zone"] = str(NEW_YORK)
    assert "As this browser says: America/New_York" in client.get(SETTINGS).text

    choose(client, str(TOKYO))

    ben.refresh_from_db()
    assert ben.timezone == str(TOKYO)
    page = client.get(SETTINGS).text
    assert f"<option selected>{TOKYO}</option>" in page
    assert f'data-zone="{TOKYO}" data-zone-chosen' in page
    assert choose(client, "").status_code == 302
    assert f'data-zone="{NEW_YORK}"' in client.get(SETTINGS).text


def test_sentences_with_a_time_go_by_the_readers_clock_too(client, acme, ada, ben, asked, leads):
    """Who may break the glass, until when somebody new does not count, what an act said, when an
    event came: each stood in UTC beside times of the reader's own."""
    rules = {"policies": {"pay.*": {"approval": "MANUAL"}}, "breakGlass": {"after": "15m"}}
    put_in_force(acme, ada, rules)
    data = {"expires_at": "2026-11-23T18:57:47.433+00:00"}
    desk_events.record(acme, EventType.CASE_COMMENTED, by=ada, data=data)
    event = Event.objects.get(type="action.planned")
    Approval.objects.update(requested_by=ben)
    new = person("new")
    teams.add(leads, new, by=ben)
    client.force_login(ada)
    client.cookies["zone"] = str(TOKYO)

    card = client.get(f"/w/acme/approvals/{asked.pk}/").text
    acts = client.get("/w/acme/audit/").context["acts"]
    entry = client.get(f"/w/acme/ledger/{event.event_id}/").context["facts"]

    assert re.search(r"have until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d JST", card)
    said = [str(field) for act in acts for field in act["fields"]]
    assert "Until: 2026-11-24 03:57:47 JST" in said
    assert [" JST = " in one["time"] for one in entry if "time" in one] == [True]
    client.force_login(new)
    card = client.get(f"/w/acme/approvals/{asked.pk}/").text
    assert re.search(r"takes somebody else until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d JST", card)


def test_a_zone_that_nobody_knows_is_none(client, asked):
    for said in ("Mars/Olympus", "../../etc/passwd", '"><b>', "UTC\x00", ""):
        client.cookies["zone"] = said

        assert 'data-zone="UTC"' in client.get(SETTINGS).text, said
        assert choose(client, said or "Nowhere").status_code == 422, said
