"""Whose account a credential opens: people approve it beside the settings."""

import json
from datetime import timedelta
from http.server import BaseHTTPRequestHandler

import pytest
from django.db import connection as database
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from amends.protocol.vocabulary import EventType
from connectors import accounts, connections
from connectors.builtin.http import Http
from connectors.contract import Refused
from connectors.models import Connection
from connectors.outbound import account_of
from tests.connectors.forms import sent
from tests.people import person, team
from tests.ports import answering
from workspaces.models import Act, Secret

HEARD: list[str | None] = []
OWNERS = {"Bearer one": "acct_1", "Bearer one-renewed": "acct_1", "Bearer other": "acct_2",
          "Bearer restricted": True}  # fmt: skip


class Payments(BaseHTTPRequestHandler):
    """Says whose key it is, unless it is a restricted one, and knows no charge."""

    def do_GET(self):
        HEARD.append(self.headers["authorization"])
        owner = OWNERS.get(self.headers["authorization"])
        known = self.path == "/v1/account" and owner is not None
        body = json.dumps({"id": owner} if known else {"error": {}}).encode()
        self.send_response(200 if known else 403)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


@pytest.fixture
def payments(acme, ada, outbound):
    outbound.append("127.0.0.1")
    with answering(Payments) as url:
        settings = {"manifest": "payments", "base_url": url}
        yield connections.create(acme, "payments", "http", settings, by=ada)


@pytest.fixture
def enter(payments, ada):
    """Enters a token; whether the desk says that it opens another account."""

    def token(text, purpose="compensate"):
        return connections.set_secret(payments, purpose, {"token": text}, by=ada)

    return token


def account(connection, purpose="compensate"):
    return accounts.accounts(Connection.objects.get(pk=connection.pk)).get(purpose)


def test_a_token_is_asked_once_whose_it_is_when_it_is_entered(payments, enter):
    assert not enter("one")
    assert account(payments) == "acct_1"

    assert not enter("one-renewed")
    assert account(payments) == "acct_1"

    assert enter("other")
    assert account(payments) == "acct_2"
    said = [
        one.data.get("other_account") for one in Act.objects.filter(type="connection.secret_set")
    ]
    assert said == [False, False, True]


def test_a_token_of_which_nobody_says_whose_it_is_is_its_own_account(payments, enter):
    enter("restricted")
    was = account(payments)

    assert was.startswith("credential ")
    assert "restricted" not in was
    assert account(payments) == was
    assert enter("restricted too")
    assert account(payments) != was
    assert account(payments, "observe") == accounts.NONE


def test_a_service_that_does_not_answer_keeps_nobody_from_entering_a_token(acme, ada):
    settings = {"manifest": "payments", "base_url": "https://payments.invalid"}
    made = connections.create(acme, "payments", "http", settings, by=ada)

    connections.set_secret(made, "observe", {"token": "one"}, by=ada)

    assert account(made, "observe").startswith("credential ")


SHOP = {"host": "db.example", "database": "shop", "tables": {"orders": {"key": ["id"]}}}
MAIL = {"host": "mail.example", "sender": "desk@acme.example"}
ROLE, LOGIN = {"user": "writer", "password": "x"}, {"user": "desk", "password": "long"}
TRACKER = {"manifest": "roundup", "base_url": "https://tracker.example/acme"}
SIGNED = {"url": "https://acme.example/undo", "operations": {"cancel": {"title": "Cancel it"}}}


@pytest.mark.parametrize(
    ("kind", "settings", "credential", "as_whom", "over"),
    [
        ("sql", SHOP, ROLE, "writer", "shop on db.example:5432"),
        ("smtp", MAIL, LOGIN, "desk", "mail.example:587"),
        ("caldav", {"url": "https://cal.example/desk/"}, LOGIN, "desk", None),
        ("http", TRACKER, LOGIN, "desk", "https://tracker.example/acme"),
        ("webhook", SIGNED, {"secret": f"whsec_{'a' * 32}"}, None, None),
    ],
)
def test_what_each_of_ours_tells_without_a_call(
    acme, ada, kind, settings, credential, as_whom, over
):
    made = connections.create(acme, "one", kind, settings, by=ada)
    for purpose in connections.PURPOSES:
        connections.set_secret(made, purpose, credential, by=ada)

    assert account(made) == as_whom
    rows = dict(accounts.on_card(made, []))
    assert (rows.get("Over"), rows.get("As")) == (over, as_whom)


def test_a_card_says_as_whom_is_read_where_that_is_somebody_else(acme, ada):
    made = connections.create(acme, "shop", "sql", SHOP, by=ada)
    connections.set_secret(made, "compensate", ROLE, by=ada)
    assert dict(accounts.on_card(made, []))["As"] == f"writer; reads as {accounts.NONE}"

    connections.set_secret(made, "observe", ROLE | {"user": "reader"}, by=ada)
    assert dict(accounts.on_card(made, []))["As"] == "writer; reads as reader"


def test_how_a_manifest_asks_whose_account_it_is_changes_no_version(acme, ada, monkeypatch):
    """What was approved over the manifest before it asked would have stopped."""
    from connectors import manifest

    asks = manifest.manifests()["payments"]
    silent = manifest.parsed(
        json.dumps({"name": "payments", "version": "1.0", "title": "x", "operations": {}}).encode()
    )
    same = manifest.parsed(
        json.dumps(
            {"name": "payments", "version": "1.0", "title": "x", "operations": {},
             "account": {"request": {"method": "GET", "path": "/me"}, "at": "id"}}
        ).encode()
    )  # fmt: skip
    assert asks.account is not None
    assert manifest.fingerprint_of(silent) == manifest.fingerprint_of(same)


def test_a_plug_in_is_asked_once_of_a_credential_and_once_of_none(acme, ada, monkeypatch):
    made, asked = connections.create(acme, "tracker", "http", TRACKER, by=ada), []
    told = Http.account

    def heard(*given):
        asked.append(given)
        return told(*given)

    monkeypatch.setattr(accounts, "_known", {})
    monkeypatch.setattr(Http, "account", heard)
    assert [account(made), account(made), account(made, "observe")] == [None] * 3
    assert len(asked) == 1

    connections.set_secret(made, "compensate", LOGIN, by=ada)
    asked.clear()
    assert [account(made), account(made)] == ["desk"] * 2
    assert len(asked) == 1


def test_two_long_accounts_that_begin_alike_are_two(acme, ada):
    made = connections.create(acme, "shop", "sql", SHOP, by=ada)
    long = "w" * accounts.ACCOUNT_CHARACTERS_MAX
    connections.set_secret(made, "compensate", ROLE | {"user": f"{long}1"}, by=ada)

    assert connections.set_secret(made, "compensate", ROLE | {"user": f"{long}2"}, by=ada)
    assert len(account(made)) <= accounts.ACCOUNT_CHARACTERS_MAX + 1


@pytest.mark.parametrize(
    ("approved", "now", "alike"),
    [
        ("pager@1.0", "pager@1.9", True),
        ("pager@1.0", "pager@2.0", False),
        ("pager@1.0", "phone@1.0", False),
        ("http@1.1+5f0c", "http@1.2+5f0c", True),
        ("http@1.1+5f0c", "http@1.1+77aa", False),
        ("pager@1.0-long…0123456789abcdef", "pager@1.0-long…fedcba9876543210", False),
        ("pager@1.0-long…0123456789abcdef", "pager@1.0-long…0123456789abcdef", True),
    ],
)
def test_which_versions_find_what_the_other_did(approved, now, alike):
    assert accounts.reads_alike(approved, now) is alike


def test_a_token_that_was_entered_for_another_server_is_asked_nothing(payments, ada):
    """It was sent to the new one, and only then refused."""
    shown = payments.revision
    connections.update(payments, payments.settings, by=ada, revision=shown)
    HEARD.clear()

    with pytest.raises(connections.OutOfDate):
        connections.set_secret(payments, "observe", {"token": "one"}, by=ada, revision=shown)

    assert HEARD == []


def test_of_two_credentials_that_are_entered_at_once_one_is_kept(payments, ada):
    """Beside it stood, for ever, the one that nobody used; and the account was held against one
    that was gone already.
    """
    other = Connection.objects.get(pk=payments.pk)
    connections.set_secret(payments, "observe", {"token": "one"}, by=ada)

    with pytest.raises(connections.OutOfDate):
        connections.set_secret(other, "observe", {"token": "other"}, by=ada)

    assert Secret.objects.count() == 1
    assert account(payments, "observe") == "acct_1"


def test_one_that_is_entered_while_a_page_is_made_is_the_one_that_is_told(payments, enter, ada):
    enter("one")
    read = Connection.objects.get(pk=payments.pk)
    enter("other")

    assert accounts.accounts(read)["compensate"] == "acct_2"


def test_an_account_stands_on_the_card_whatever_else_is_called_so(acme, ada):
    made = connections.create(acme, "shop", "sql", SHOP, by=ada)
    for purpose in connections.PURPOSES:
        connections.set_secret(made, purpose, ROLE, by=ada)

    assert ("As", "writer") in accounts.on_card(made, [("Customer", "writer")])


@pytest.mark.parametrize(
    ("user", "password", "told"),
    [
        ("desk@acme.example", "hunter2", "desk@acme.example"),
        ("", "", ""),
        ("a-key", "", None),
        ("a-key", "X", None),
        ("a-key", "api_token", None),
        ("a-key", "x-oauth-basic", None),
        ("a-key", "a-key", None),
        ("apikey", "a-key", None),
        ("", "a-key", None),
    ],
)
def test_a_key_in_a_log_in_is_never_shown_and_what_all_accounts_are_called_names_none(
    user, password, told
):
    """A key stood on the card as the user's name, and of another account *apikey* as before."""
    assert account_of(user, password) == told


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("smtp", MAIL), ("caldav", {"url": "https://cal.example/desk/"}), ("http", TRACKER)],
)
def test_no_card_shows_a_key_that_a_service_takes_as_the_user(acme, ada, kind, settings):
    made = connections.create(acme, "one", kind, settings, by=ada)
    connections.set_secret(made, "compensate", {"user": "canary", "password": "X"}, by=ada)

    assert "canary" not in str([accounts.on_card(made, []), accounts.accounts(made)])


@pytest.mark.parametrize("tells", [True, False])
def test_a_credential_that_is_entered_again_where_one_was_removed_may_be_anothers(acme, ada, tells):
    """With the settings that keep it from strangers the old one had gone, and so the account."""
    made = connections.create(acme, "shop", "sql", SHOP, by=ada)
    connections.set_secret(made, "observe", ROLE, by=ada)
    Act.objects.update(at=timezone.now() - timedelta(hours=2))
    begun = timezone.now() - timedelta(hours=1)
    assert accounts.led_elsewhere(made, begun, ["observe"]) == ""

    if tells:
        weaker = SHOP | {"sslmode": "require"}
        connections.update(made, weaker, by=ada, revision=made.revision)
    connections.set_secret(made, "observe", ROLE | {"user": "eve"}, by=ada)
    for act in Act.objects.filter(at__gt=begun, type="connection.secret_set"):
        act.data.pop("other_account")  # as an older version wrote it
        act.save()
    if tells:
        Act.objects.filter(at__gt=begun, type="connection.secret_set").delete()

    told = accounts.led_elsewhere(made, begun, ["observe"])
    assert told.startswith("the account to observe, changed by Ada")
    assert accounts.led_elsewhere(made, begun, ["compensate"]) == ""


def test_a_credential_of_another_server_is_not_told_of_for_the_one_that_was_read(payments, ada):
    """Who had read the connection before it was moved went to the old server with the new token."""
    connections.set_secret(payments, "compensate", {"token": "one"}, by=ada)
    read = Connection.objects.get(pk=payments.pk)
    moved = payments.settings | {"base_url": "https://payments.invalid"}
    connections.update(payments, moved, by=ada, revision=payments.revision)
    connections.set_secret(payments, "compensate", {"token": "other"}, by=ada)

    with pytest.raises(Refused, match="payments was changed meanwhile"):
        accounts.accounts(read)
    with pytest.raises(connections.OutOfDate):
        connections.set_secret(read, "compensate", {"token": "third"}, by=ada)
    assert HEARD[-1] == "Bearer third", "it was entered for the old one"
    assert accounts.in_words(Connection.objects.get(pk=read.pk), "compensate").startswith("opens ")


def test_what_the_system_said_of_a_token_holds_for_the_settings_with_which_it_was_asked(
    payments, enter, ada
):
    """A card said the old account, where a setting made the calls go to another one."""
    enter("one")
    same = payments.settings
    connections.update(payments, same, by=ada, revision=payments.revision, concurrency=2)
    assert account(payments) == "acct_1"

    below = same | {"base_url": f"{same['base_url']}/v2"}
    connections.update(payments, below, by=ada, revision=payments.revision)

    payments.refresh_from_db()
    assert payments.compensate_secret.open() == {"token": "one"}
    assert account(payments).startswith("credential ")
    connections.update(payments, same, by=ada, revision=payments.revision)
    assert enter("one")
    assert account(payments) == "acct_1"


@pytest.mark.django_db(transaction=True)
def test_on_a_desk_such_a_setting_is_changed_on_its_page_and_the_token_stays(
    payments, enter, acme, client
):
    """Its own role may not change a credential without an act that tells of that: it was a 500, and
    the page would have said that the credentials are removed.
    """
    enter("one")
    client.force_login(person("olga", team(acme, "admins", "view", "administer")))
    below = {**payments.settings, "base_url": f"{payments.settings['base_url']}/v2"}
    said = sent("http", below) | {"revision": payments.revision, "concurrency": 4}

    saved = client.post("/w/acme/connectors/payments/settings/", said, follow=True)

    assert "Saved. Plans that were approved over the old settings will stop." in saved.text
    assert "credentials are removed" not in saved.text
    assert account(payments).startswith("credential ")


def test_a_token_that_was_asked_with_other_settings_is_not_kept(payments, ada):
    read = Connection.objects.get(pk=payments.pk)
    below = payments.settings | {"base_url": f"{payments.settings['base_url']}/v2"}
    connections.update(payments, below, by=ada, revision=payments.revision)

    with pytest.raises(connections.OutOfDate):
        connections.set_secret(read, "compensate", {"token": "one"}, by=ada)


@pytest.mark.parametrize("user", ["desk\x00", "desk\n"])
def test_an_account_that_cannot_be_shown_is_told_by_its_digest(acme, ada, user):
    """PostgreSQL keeps no NUL in the JSON of a plan, so that its submission ended in a 500."""
    made = connections.create(acme, "shop", "sql", SHOP, by=ada)
    connections.set_secret(made, "compensate", ROLE | {"user": user}, by=ada)

    assert account(made).startswith("desk…")
    assert account(made).isprintable()


def test_where_a_connection_led_is_asked_without_reading_what_else_people_did(acme, ada):
    made, then = connections.create(acme, "shop", "sql", SHOP, by=ada), timezone.now()
    seen = EventType.PAYLOAD_REVEALED
    Act.objects.bulk_create(Act(workspace=acme, type=seen, person=ada) for _ in range(3_000))
    Act.objects.create(workspace=acme, type=EventType.CONNECTION_SECRET_SET, person=ada,
                       data={"connection": "shop", "purpose": "observe"})  # fmt: skip
    with database.cursor() as cursor:
        cursor.execute("ANALYZE workspaces_act")
        with CaptureQueriesContext(database) as asked:
            assert accounts.led_elsewhere(made, then).startswith("the account to observe")
        cursor.execute(f"EXPLAIN {asked[0]['sql']}")
        plan = "\n".join(line for (line,) in cursor.fetchall())

    assert "act_of_connections" in plan, plan
