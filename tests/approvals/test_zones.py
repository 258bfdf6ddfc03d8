"""One clock to a page: what stands on it and what is typed on it go by the reader's own zone."""

import html
import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from approvals.models import Approval
from tests.approvals.cast import put_in_force
from tests.approvals.door import Agent as Trip

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


@pytest.mark.parametrize("said", ["Mars/Olympus", "../../etc/passwd", '"><b>', "UTC\x00", ""])
def test_a_zone_that_nobody_knows_is_none(client, asked, said):
    client.cookies["zone"] = said

    assert 'data-zone="UTC"' in client.get(SETTINGS).text
    assert choose(client, said or "Nowhere").status_code == 422
