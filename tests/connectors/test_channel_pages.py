"""The channels' page: administrators add, try and switch off; addresses are never shown again."""

import pytest

from connectors import channels
from connectors.models import Channel, Connection, Delivery
from tests.connectors.forms import sent
from tests.people import logged_in
from workspaces import teams

PAGE = "/w/acme/channels/"


@pytest.fixture
def browser(acme, ada):
    team = teams.create(acme, "operators", by=None, may=["view", "recover", "administer"])
    teams.add(team, ada, by=None)
    return logged_in(ada)


def test_ada_adds_a_channel_tries_it_and_switches_it_off(browser, acme, outsides, outbound):
    outbound.append("127.0.0.1")
    receiver = outsides("receiver")
    address = f"{receiver.at['url']}/canary-page"
    said = {"name": "chat", "kind": "slack", "url": address, "tier": "headline"}
    carried = {"carries": ["approval.*", "desk.*"], "subjects": "case.critical"}
    assert browser.post(f"{PAGE}new/", said | carried).status_code == 302

    made = Channel.objects.get()
    assert (made.subjects, made.tier) == (["approval.*", "desk.*", "case.critical"], "headline")
    listed = browser.get(PAGE).text
    assert "approvals: asked, reminded, decided; the desk itself" in listed
    assert "Every entry of the log, for a SIEM" in listed
    browser.post(f"{PAGE}{made.pk}/test/")
    channels.send_due()
    assert [one["path"] for one in receiver.journal.entries()][-1] == "/canary-page"
    shown = browser.get(PAGE).content.decode()
    assert "A test message of Amends" in shown
    assert "canary-page" not in shown

    off = browser.post(f"{PAGE}{made.pk}/switch/", {"act": "disable"}, follow=True)
    assert "“chat” is switched off: nothing goes by it." in off.text
    browser.post(f"{PAGE}{made.pk}/test/")
    assert Delivery.objects.count() == 1
    browser.post(f"{PAGE}{made.pk}/switch/", {"act": "enable"})
    made.refresh_from_db()
    assert made.disabled_at is None


def test_a_signing_secret_is_made_and_shown_once(browser):
    said = {"name": "product", "kind": "webhook", "url": "https://x.example", "tier": "outline"}

    shown = browser.post(f"{PAGE}new/", said).content.decode()

    secret = Channel.objects.get().secret.open()["secret"]
    assert secret.startswith("whsec_")
    assert secret in shown
    assert secret not in browser.get(PAGE).content.decode()


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "mail", "to": "nobody"},
        {"kind": "slack", "url": "ftp://x"},
        {"kind": "mail", "to": "a@b.example", "subjects": "DROP TABLE"},
        {"kind": "mail", "to": "a@b.example", "carries": "DROP TABLE"},
        {"kind": "pigeon"},
    ],
)
def test_what_could_not_send_is_not_added(browser, wrong):
    answered = browser.post(f"{PAGE}new/", {"name": "x", "tier": "outline"} | wrong)

    assert answered.status_code == 422
    assert Channel.objects.count() == 0


def test_who_does_not_administer_reads_and_changes_nothing(browser, acme):
    from workspaces.models import User

    channels.create(acme, "ops", "mail", by=None, settings={"to": ["ops@acme.example"]})
    ben = User.objects.create_user("ben@acme.example", name="Ben")
    teams.add(teams.create(acme, "readers", by=None, may=["view"]), ben, by=None)
    reader = logged_in(ben)
    pk = Channel.objects.get().pk

    assert reader.get(PAGE).status_code == 200
    for path in ("new/", f"{pk}/switch/", f"{pk}/test/"):
        assert reader.post(PAGE + path, {}).status_code == 403
    assert Delivery.objects.count() == 0


def test_how_many_calls_at_once_is_a_setting(browser, acme, shop_connection):
    page = f"/w/acme/connectors/{shop_connection.name}/"
    assert 'name="concurrency"' in browser.get(page).content.decode()
    said = sent("sql", shop_connection.settings) | {"revision": shop_connection.revision}

    assert browser.post(f"{page}settings/", said | {"concurrency": "2"}).status_code == 302
    assert browser.post(f"{page}settings/", said | {"concurrency": "0"}).status_code == 422
    assert Connection.objects.get().concurrency == 2
