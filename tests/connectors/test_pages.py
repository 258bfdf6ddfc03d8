"""The connections' pages: made, given credentials that never come back, tried, disabled."""

import json

import pytest

from connectors.models import Connection
from workspaces import entrance, teams
from workspaces.models import User

pytestmark = pytest.mark.django_db
SETTINGS = {
    "host": "db.example.com",
    "database": "shop",
    "tables": {"order": {"table": "orders", "key": ["id"]}},
}


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
    said = {"name": "shop", "connector": "sql", "settings": json.dumps(SETTINGS)}
    desk.post("/w/airline/connectors/new/", said)
    return Connection.objects.get(name="shop", workspace=airline)


def test_an_empty_list_says_what_that_means(desk):
    assert "nothing can be compensated" in desk.get("/w/airline/connectors/").text


def test_a_connection_is_made_and_shown(desk, shop):
    page = desk.get("/w/airline/connectors/shop/").text

    assert "restore_row" in page
    assert "missing" in page


@pytest.mark.parametrize("settings", ["{", "[]", '{"host": "a"}', '{"host": 3}'])
def test_bad_settings_are_told_in_words_and_nothing_is_made(desk, settings):
    said = {"name": "shop", "connector": "sql", "settings": settings}

    answer = desk.post("/w/airline/connectors/new/", said)

    assert answer.status_code == 422
    assert not Connection.objects.exists()


def test_a_credential_is_written_and_never_shown(desk, shop):
    canary = "canary-7f3a91"
    desk.post(
        "/w/airline/connectors/shop/credentials/observe/",
        {"observe-user": "reader", "observe-password": canary},
    )

    shop.refresh_from_db()
    assert shop.observe_secret.open()["password"] == canary
    assert canary not in desk.get("/w/airline/connectors/shop/").text
    assert canary not in desk.get("/w/airline/connectors/").text


def test_settings_that_somebody_changed_meanwhile_are_not_overwritten(desk, shop):
    said = {"settings": json.dumps(SETTINGS | {"database": "shop2"}), "revision": shop.revision}
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
    desk.post("/w/airline/connectors/shop/switch/", {"act": "disable"})

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
    sandbox = {"host": "127.0.0.1", "port": 9, "sslmode": "disable"}
    desk.post(
        "/w/airline/connectors/shop/settings/",
        {
            "settings": json.dumps(SETTINGS),
            "sandbox_settings": json.dumps(sandbox),
            "revision": shop.revision,
        },
    )
    assert "Rehearse it now" in desk.get("/w/airline/connectors/shop/").text

    said = {"operation": "restore_row", "target_type": "order", "target_id": "7"}
    page = desk.post("/w/airline/connectors/shop/rehearse/", said | {"args": '{"to": null}'}).text

    assert "Delete order 7" in page
    assert "The credential to observe over shop is missing." in page
