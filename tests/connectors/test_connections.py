"""Ada configures connections; each change is an act, and no credential is ever seen again."""

import pytest
from django.db import connection as database

from connectors import call_pool, calllog, calls, connections
from connectors.contract import CannotRead, Target
from connectors.models import CallLog, Connection, ConnectionVersion
from connectors.registry import UnknownConnector
from workspaces.models import Act, Secret

SETTINGS = {
    "url": "https://licences.acme.example/amends",
    "operations": {"undo": {"title": "Undo"}},
}
CANARY = "whsec_Y2FuYXJ5LXNlY3JldC10aGF0LW5vYm9keS1zZWVz"
SECOND = "whsec_Y2FuYXJ5LXNlY3JldC10aGF0LWNvbWVzLWFmdGVy"


@pytest.fixture
def service(acme, ada):
    return connections.create(acme, "licences", "webhook", SETTINGS, by=ada)


def test_each_change_is_an_act_with_a_name(service, acme, ada):
    connections.update(service, {**SETTINGS, "url": "https://b.example/"}, by=ada, revision=1)
    connections.set_secret(service, "observe", {"secret": CANARY}, by=ada)
    connections.disable(service, by=ada)
    connections.disable(service, by=ada)
    connections.enable(service, by=ada)

    told = Act.objects.filter(workspace=acme).order_by("id")
    assert [(act.type, act.person) for act in told] == [
        ("connection.created", ada),
        ("connection.updated", ada),
        ("connection.secret_set", ada),
        ("connection.disabled", ada),
        ("connection.enabled", ada),
    ]
    assert "b.example" not in str([act.data for act in told])


def test_what_was_changed_is_kept_by_its_digest_without_secrets(service, ada, monkeypatch):
    monkeypatch.setattr(connections, "VERSIONS_KEPT_MAX", 3)
    first = service.settings_digest
    assert connections.settings_of(service, first) == []  # never changed

    urls = [f"https://ada:{CANARY}@{host}.example/" for host in "bcd"]
    for revision, url in enumerate(urls, start=1):
        second = service.settings_digest
        connections.update(service, {**SETTINGS, "url": url}, by=ada, revision=revision)

    was, now = connections.settings_of(service, second, service.settings_digest)
    assert was["url"] == "https://[redacted]@c.example/"
    assert now["url"] == "https://[redacted]@d.example/"
    assert CANARY not in str(list(ConnectionVersion.objects.values_list("settings", flat=True)))
    assert connections.settings_of(service, first, service.settings_digest) == []  # too old


def test_what_a_call_would_do_changes_the_digest_and_a_secret_does_not(service, ada):
    first = service.settings_digest

    connections.set_secret(service, "compensate", {"secret": CANARY}, by=ada)
    same = Connection.objects.get().settings_digest
    connections.update(service, {**SETTINGS, "url": "https://b.example/"}, by=ada, revision=1)

    assert same == first
    assert service.settings_digest != first
    assert service.revision == 2


def test_two_people_cannot_change_the_same_revision(service, ada):
    connections.update(service, SETTINGS, by=ada, revision=1)

    with pytest.raises(connections.OutOfDate):
        connections.update(service, SETTINGS, by=ada, revision=1)


def test_a_credential_lies_encrypted_and_its_predecessor_is_gone(service, ada):
    connections.set_secret(service, "observe", {"secret": CANARY}, by=ada)
    connections.set_secret(service, "observe", {"secret": SECOND}, by=ada)

    with database.cursor() as cursor:
        cursor.execute("SELECT s::text, encode(sealed, 'escape') FROM workspaces_secret s")
        rows = cursor.fetchall()
    assert Secret.objects.count() == 1
    assert CANARY not in str(rows)


def test_a_credential_that_does_not_fit_is_refused_without_being_quoted(service, ada):
    with pytest.raises(connections.BadSettings) as refused:
        connections.set_secret(service, "observe", {"password": CANARY}, by=ada)

    assert "secret" in str(refused.value)
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("licences", SETTINGS, "already"),
        ("a b", SETTINGS, "letters"),
        ("x", {}, "url"),
        ("x", {**SETTINGS, "colour": "red"}, "colour.*wants: url, operations"),
        ("x", {**SETTINGS, "operations": {}}, "At least one"),
        ("x", {**SETTINGS, "operations": {"a": {"title": 3}}}, r"operations.*title"),
        ("x", {**SETTINGS, "url": "x" * 70_000}, "bytes"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_place(
    service, acme, ada, name, settings, why
):
    with pytest.raises(connections.BadSettings, match=why):
        connections.create(acme, name, "webhook", settings, by=ada)


def test_a_connector_that_is_not_installed_is_refused(acme, ada):
    with pytest.raises(UnknownConnector):
        connections.create(acme, "x", "carrier-pigeon", {}, by=ada)


def test_reading_never_holds_the_credential_that_can_write(licence_connection, licences, ada):
    wrong = {"secret": CANARY}
    connections.set_secret(licence_connection, "compensate", wrong, by=ada)
    target = Target("licence", "L-none")

    seen = calls.observe(licence_connection, "release_licence", {}, target, key="k")
    answer = calls.apply(licence_connection, "release_licence", {}, target, key="k")

    assert not seen.found
    assert answer.outcome == "no_effect"


def test_a_missing_credential_and_a_disabled_connection_send_nothing(service, ada):
    target = Target("licence", "L-7")

    without = calls.apply(service, "undo", {}, target, key="k")
    connections.set_secret(service, "compensate", {"secret": CANARY}, by=ada)
    connections.disable(service, by=ada)
    disabled = calls.apply(service, "undo", {}, target, key="k")

    assert (without.outcome, disabled.outcome) == ("no_effect", "no_effect")
    assert "missing" in without.detail
    assert "disabled" in disabled.detail
    with pytest.raises(CannotRead, match="disabled"):
        calls.observe(service, "undo", {}, target, key="k")


def test_every_call_leaves_a_line_and_only_so_many(licence_connection, monkeypatch):
    monkeypatch.setattr(calllog, "CALLS_KEPT", 2)
    for number in range(4):
        target = Target("licence", f"L-none-{number}")
        calls.apply(licence_connection, "release_licence", {}, target, key=f"k-{number}")

    dropped = calllog.prune()

    kept = CallLog.objects.order_by("id")
    assert dropped == 2
    assert [line.target for line in kept] == ["licence/L-none-2", "licence/L-none-3"]
    assert {line.outcome for line in kept} == {"applied"}
    licence_connection.refresh_from_db()
    assert not licence_connection.is_failing


def test_a_plug_in_that_hangs_is_left_behind(licence_connection, monkeypatch):
    import threading
    import time

    from connectors.builtin.webhook import Webhook

    over = threading.Event()
    monkeypatch.setattr(call_pool, "GRACE_SECONDS", -14.5)
    monkeypatch.setattr(Webhook, "apply", lambda *_: over.wait(60))
    began = time.monotonic()

    answer = calls.apply(licence_connection, "release_licence", {}, Target("licence", "L"), key="k")

    assert answer.outcome == "unknown"
    assert time.monotonic() - began < 20
    over.set()


@pytest.mark.parametrize(
    "changed",
    [
        {"url": "https://evil.example/amends"},
        {"url": "http://licences.acme.example/amends"},
        {"url": "https://licences.acme.example:8443/amends"},
    ],
)
def test_credentials_never_go_to_another_server_than_they_were_entered_for(
    service, acme, ada, changed
):
    """Who administers could point a connection at a server of their own, and read its secret."""
    for purpose in ("observe", "compensate"):
        connections.set_secret(service, purpose, {"secret": CANARY}, by=ada)

    connections.update(service, SETTINGS | changed, by=ada, revision=1)

    service = Connection.objects.get(pk=service.pk)
    assert (service.observe_secret, service.compensate_secret) == (None, None)
    assert not Secret.objects.exists()
    told = Act.objects.filter(type="connection.updated").get().data
    assert told["credentials_removed"] == ["observe", "compensate"]
    with pytest.raises(CannotRead, match="is missing"):
        calls.observe(service, "undo", {}, Target("licence", "1"))


def test_a_sandbox_on_another_server_gets_no_credentials_of_the_real_one(service, ada):
    connections.set_secret(service, "observe", {"secret": CANARY}, by=ada)

    connections.update(
        service, SETTINGS, by=ada, revision=1, sandbox_settings={"url": "https://evil.example/"}
    )

    assert Connection.objects.get(pk=service.pk).observe_secret is None


def test_other_settings_leave_the_credentials_where_they_are(service, ada):
    connections.set_secret(service, "observe", {"secret": CANARY}, by=ada)
    changed = {"url": "https://licences.acme.example/other", "operations": {"undo": {"title": "U"}}}

    connections.update(service, changed, by=ada, revision=1)

    assert Connection.objects.get(pk=service.pk).observe_secret is not None
    assert "credentials_removed" not in Act.objects.get(type="connection.updated").data


def test_a_database_at_another_port_or_without_tls_is_another_server(shop_connection, ada):
    settings = shop_connection.settings

    same = connections.update(
        shop_connection, settings | {"port": int(settings["port"])}, by=ada, revision=1
    )
    assert same.observe_secret is not None
    connections.update(shop_connection, settings | {"port": 6543}, by=ada, revision=2)

    assert Connection.objects.get(pk=shop_connection.pk).observe_secret is None
