"""The connections' pages: made, given credentials that never come back, tried, disabled."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from connectors import connections, registry
from connectors.manifest import manifests
from connectors.models import Connection
from connectors.schema_forms import SchemaForm, node_of
from tests.connectors.forms import sent
from workspaces import entrance, teams
from workspaces.models import User

pytestmark = pytest.mark.django_db
SETTINGS = {
    "host": "db.example.com",
    "database": "shop",
    "tables": {"order": {"table": "orders", "key": ["id"]}},
}

FIELDS = {
    "settings-host": "db.example.com",
    "settings-port": "5432",
    "settings-database": "shop",
    "settings-sslmode": "verify-full",
    "settings-marker": "amends_marker",
    "settings-tables:count": "1",
    "settings-tables.0:name": "order",
    "settings-tables.0.table": "orders",
    "settings-tables.0.key": "id",
}
"""SETTINGS, as the page's form sends them."""


@pytest.fixture
def ada():
    return User.objects.create_user("ada@example.com", "a long enough secret", name="Ada")


@pytest.fixture
def airline(ada):
    return entrance.open_workspace("Airline desk", "airline", by=ada)


@pytest.fixture
def desk(client, ada, airline):
    client.force_login(ada)
    return client


@pytest.fixture
def shop(desk, airline):
    said = {"name": "shop", "connector": "sql"} | FIELDS
    desk.post("/w/airline/connectors/new/", said)
    return Connection.objects.get(name="shop", workspace=airline)


def test_an_empty_list_says_what_that_means(desk):
    assert "nothing can be compensated" in desk.get("/w/airline/connectors/").text


def test_a_connection_is_made_and_shown(desk, shop):
    page = desk.get("/w/airline/connectors/shop/").text

    assert "restore_row" in page
    assert "missing" in page


def test_a_connection_whose_connector_is_gone_says_so_and_can_be_disabled(desk, shop):
    """Its package was taken out of this desk; the others on the list go on."""
    Connection.objects.filter(pk=shop.pk).update(connector="gone")

    listed = desk.get("/w/airline/connectors/")
    page = desk.get("/w/airline/connectors/shop/")

    assert (listed.status_code, page.status_code) == (200, 200)
    assert "its connector is not installed here: nothing can be called over it" in listed.text
    assert "<b>Nothing can be called over it.</b> No connector named “gone” is" in page.text
    assert "Its package has to be installed" in page.text
    assert "What it can do" not in page.text
    for act in ("settings", "try", "rehearse", "credentials/observe"):
        assert desk.post(f"/w/airline/connectors/shop/{act}/").status_code == 404
    desk.post("/w/airline/connectors/shop/switch/", {"act": "disable"})
    assert Connection.objects.get().is_disabled


def test_settings_of_another_version_of_a_connector_say_so_and_can_be_mended(desk, shop):
    Connection.objects.filter(pk=shop.pk).update(settings={"database": "shop"})

    page = desk.get("/w/airline/connectors/shop/")

    assert "<b>Nothing can be called over it.</b> The settings of shop do not fit" in page.text
    assert '<details class="more" open><summary>Read or change them' in page.text
    listed = desk.get("/w/airline/connectors/").text
    assert "its settings are not what its connector takes: nothing can be called" in listed
    desk.post(
        "/w/airline/connectors/shop/settings/", FIELDS | {"concurrency": "4", "revision": "1"}
    )
    assert Connection.objects.get().settings["host"] == "db.example.com"
    assert "do not fit" not in desk.get("/w/airline/connectors/shop/").text


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"settings-host": ""}, "“Host” is missing."),
        ({"settings-port": "many"}, "whole number"),
        ({"settings-tables.0.key": ""}, "is missing."),
        ({"settings-tables.0:name": ""}, "is missing."),
        ({"settings-tables.0.note.table": "notes"}, "is missing."),
        ({"settings-sslmode": "perhaps"}, "not one of the available choices"),
        ({"name": "no blanks"}, "Letters, digits, - and _ alone"),
    ],
)
def test_what_is_wrong_is_told_at_its_field_and_nothing_is_made(desk, wrong, words):
    said = {"name": "shop", "connector": "sql"} | FIELDS

    answer = desk.post("/w/airline/connectors/new/", said | wrong)

    assert answer.status_code == 422
    assert words in answer.text
    assert not Connection.objects.exists()


def test_a_form_keeps_what_was_said_and_leaves_out_what_is_so_anyway(desk, shop):
    assert shop.settings == SETTINGS


def test_one_more_is_asked_for_without_sending_anything(desk):
    said = {"name": "shop", "connector": "sql", "more": "settings-tables"} | FIELDS

    page = desk.post("/w/airline/connectors/new/", said | {"settings-host": ""})

    assert page.status_code == 200
    assert "is missing." not in page.text
    assert 'name="settings-tables.1.key"' in page.text
    assert 'value="orders"' in page.text
    assert not Connection.objects.exists()


def test_each_further_entry_begins_as_the_first_does_and_there_can_be_many(desk):
    said = {"name": "ours", "connector": "webhook", "settings-url": "https://undo.example.com"}
    place = "settings-operations"
    for at in (1, 2):
        page = desk.post("/w/airline/connectors/new/", said | {"more": place}).text
        said |= dict(re.findall(r'name="(settings-[^"]+)"[^>]* value="([^"]*)"', page))

        assert f'name="{place}.{at}:name"' in page
        checkbox = page.partition(f'name="{place}.{at}.observes"')[2].partition(">")[0]
        assert "checked" in checkbox
        limit = page.partition(f'name="{place}.{at}.limit_seconds"')[2].partition(">")[0]
        assert 'value="15.0"' in limit


def test_every_field_of_every_connector_says_what_it_means():
    untold = [
        f"{name}: {place}"
        for name in registry.BUILT_IN
        for struct in _schemas(registry.get(name))
        for place, part in _parts(node_of(struct))
        if not part.meaning
    ]

    assert untold == []
    assert all(registry.get(name).summary for name in registry.BUILT_IN)


def _schemas(plug):
    yield plug.settings_schema
    yield plug.credential_schema
    yield from (one.args_schema for one in plug.operations.values())


def _parts(node, path=""):
    for name, part in node.parts.items():
        if name:
            yield f"{path}{name}", part
        yield from _parts(part, f"{path}{name}.")


SERVICE = {
    "url": "https://undo.example.com",
    "operations": {
        "refund": {
            "title": "Refund {money}",
            "args": {"amount": "integer", "note?": "text"},
            "leaves": {"status": "refunded", "count": 2, "code": "7"},
            "observes": False,
        },
        "delete": {"title": "Delete {target}", "leaves": "gone", "limit_seconds": 30.0},
    },
}
API = {"manifest": "payments", "base_url": "https://pay.example.com", "values": {"account": "a1"}}
SHOP = {
    "host": "db.example.com",
    "database": "shop",
    "tables": {
        "order": {
            "key": ["id", "line"],
            "version": "rev",
            "ignore": ["seen_at"],
            "note": {"table": "notes", "key": ["order"], "text": "words", "fixed": {"by": "desk"}},
        },
        "guest": {"key": ["id"], "table": "guests"},
    },
}


@pytest.mark.parametrize(
    ("connector", "settings"), [("webhook", SERVICE), ("http", API), ("sql", SHOP)]
)
def test_what_stands_in_a_form_is_what_was_kept(connector, settings):
    schema = registry.get(connector).settings_schema
    again = SchemaForm(sent(connector, settings), schema=schema, given=settings, prefix="settings")

    assert again.is_valid(), again.errors
    assert again.value() == settings


def test_manifests_are_chosen_and_one_that_is_gone_since_stays_until_another_is(desk):
    page = desk.get("/w/airline/connectors/new/?connector=http").text

    chosen = page.partition('name="settings-manifest"')[2].partition("</select>")[0]
    assert re.findall(r'<option value="(\w+)"', chosen) == sorted(manifests())
    assert "Base URL" in page
    kept = {**API, "manifest": "of-old"}
    plug = registry.get("http")
    again = SchemaForm(
        schema=plug.settings_schema, given=kept, offered=plug.offered(), prefix="settings"
    )
    assert "of-old" in str(again["manifest"])


def test_a_short_name_with_a_space_is_refused_in_words(desk):
    page = desk.post("/w/airline/channels/new/", {"name": "Finance by mail", "kind": "mail"})

    assert "Letters, digits, - and _ alone, with no space between them." in page.text


def test_an_entry_is_removed(desk, shop):
    said = FIELDS | {"settings-tables:count": "2", "settings-tables.1:name": "guest"}
    said |= {"settings-tables.1.key": "id", "settings-tables.0:gone": "on"}

    desk.post("/w/airline/connectors/shop/settings/", said | {"revision": shop.revision})

    shop.refresh_from_db()
    assert shop.settings["tables"] == {"guest": {"key": ["id"]}}


def test_a_sandbox_keeps_what_its_form_does_not_show(desk, ada, shop):
    kept = {"host": "127.0.0.1", "tables": {"order": {"key": ["id"], "table": "sandboxed"}}}
    connections.update(shop, SETTINGS, sandbox_settings=kept, by=ada, revision=shop.revision)
    said = FIELDS | {"sandbox-host": "localhost", "revision": shop.revision}

    desk.post("/w/airline/connectors/shop/settings/", said)

    shop.refresh_from_db()
    assert shop.sandbox_settings == kept | {"host": "localhost"}


CREDENTIAL = "/w/airline/connectors/shop/credentials/observe/"


def test_a_credential_is_written_and_never_shown(desk, shop):
    canary = "canary-7f3a91"
    said = {"observe-user": "reader", "observe-password": canary}
    shown = desk.get("/w/airline/connectors/shop/").text
    assert f'name="observe-at-revision" value="{shop.revision}"' in shown
    desk.post(CREDENTIAL, said | {"observe-at-revision": shop.revision})

    shop.refresh_from_db()
    assert shop.observe_secret.open()["password"] == canary
    assert canary not in desk.get("/w/airline/connectors/shop/").text
    assert canary not in desk.get("/w/airline/connectors/").text


def test_a_credential_is_not_kept_for_a_server_that_it_was_not_entered_for(desk, shop, ada):
    """Whoever else administers leads the connection to a machine of theirs while Ada types."""
    said = {"observe-user": "reader", "observe-password": "canary-7f3a91"}
    said["observe-at-revision"] = shop.revision
    elsewhere = shop.settings | {"host": "evil.example"}
    connections.update(shop, elsewhere, by=ada, revision=shop.revision)

    late = desk.post(CREDENTIAL, said, follow=True)
    unknown = desk.post(CREDENTIAL, {"observe-user": "reader"}, follow=True)

    shop.refresh_from_db()
    assert shop.observe_secret is None
    assert "Somebody changed this connection meanwhile" in late.text
    assert "Enter the credential anew" in unknown.text


def test_settings_that_somebody_changed_meanwhile_are_not_overwritten(desk, shop):
    said = FIELDS | {"settings-database": "shop2", "revision": shop.revision}
    desk.post("/w/airline/connectors/shop/settings/", said)

    late = desk.post("/w/airline/connectors/shop/settings/", said)

    assert late.status_code == 422
    assert "meanwhile" in late.text


def test_trying_reads_and_tells_why_it_could_not(desk, shop):
    answer = desk.post(
        "/w/airline/connectors/shop/try/",
        {"operation": "restore_row", "target_type": "nothing", "target_id": "1"},
    )

    assert answer.status_code == 422


def test_a_disabled_connection_says_so(desk, shop):
    off = desk.post("/w/airline/connectors/shop/switch/", {"act": "disable"}, follow=True)
    assert "Nothing is called over it" in off.text

    assert "nothing is called over it" in desk.get("/w/airline/connectors/").text


def test_a_viewer_sees_the_health_and_changes_nothing(client, airline, shop):
    vik = User.objects.create_user("vik@example.com", "a long enough secret")
    teams.add(airline.teams.get(name="viewers"), vik, by=None)
    client.force_login(vik)

    assert client.get("/w/airline/connectors/shop/").status_code == 200
    assert client.post("/w/airline/connectors/shop/switch/", {}).status_code == 403
    assert client.post("/w/airline/connectors/shop/try/", {}).status_code == 403


def test_a_rehearsal_is_offered_once_there_is_a_sandbox_and_tells_how_it_went(desk, shop):
    assert "Rehearse it now" not in desk.get("/w/airline/connectors/shop/").text
    sandbox = {"sandbox-host": "127.0.0.1", "sandbox-port": "9", "sandbox-sslmode": "disable"}
    desk.post(
        "/w/airline/connectors/shop/settings/", FIELDS | sandbox | {"revision": shop.revision}
    )
    assert "Rehearse it now" in desk.get("/w/airline/connectors/shop/").text

    said = {"operation": "restore_row", "target_type": "order", "target_id": "7"}
    page = desk.post("/w/airline/connectors/shop/rehearse/", said | {"args-to": ""}).text

    assert "Delete order 7" in page
    assert "The credential to observe over shop is missing." in page


def test_a_connection_without_credentials_is_not_called_active(desk, shop, ada):
    reader = {"user": "reader", "password": "canary-7f3a91"}
    connections.set_secret(shop, "observe", reader, by=ada, revision=shop.revision)
    shop.refresh_from_db()
    Connection.objects.filter(pk=shop.pk).update(last_ok_at=timezone.now())
    assert "Active" in desk.get("/w/airline/connectors/").text

    elsewhere = FIELDS | {"settings-host": "other.example.com", "revision": shop.revision}
    moved = desk.post("/w/airline/connectors/shop/settings/", elsewhere, follow=True)

    assert "its credentials are removed: enter them anew" in moved.text
    assert "Lacks credentials" in moved.text
    assert "Active" not in desk.get("/w/airline/connectors/").text
    failed = {"last_error": "the password is wrong", "last_error_at": timezone.now()}
    Connection.objects.filter(pk=shop.pk).update(**failed)
    shop.refresh_from_db()
    connections.set_secret(shop, "observe", reader, by=ada, revision=shop.revision)
    told = desk.get("/w/airline/connectors/").text
    assert "nobody has called it since its credential was set" in told


def test_a_system_that_is_left_alone_says_until_when(desk, shop, ada):
    until = timezone.now() + timedelta(minutes=7)
    failed = {"last_error": "The system hung up.", "last_error_at": timezone.now()}
    Connection.objects.filter(pk=shop.pk).update(**failed, failures_in_a_row=8, open_until=until)
    said = f"failed 8 times in a row; it is left alone until {until:%H:%M} UTC"

    for page in ("/w/airline/connectors/", "/w/airline/connectors/shop/"):
        assert f"{said}. The last time: The system hung up." in desk.get(page).text

    Connection.objects.filter(pk=shop.pk).update(open_until=timezone.now() - timedelta(seconds=1))
    assert "left alone" not in desk.get("/w/airline/connectors/").text
