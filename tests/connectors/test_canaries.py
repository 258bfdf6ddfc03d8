"""Credentials with a canary in them: after good calls and bad ones nobody finds a feather."""

import logging

import pytest
from django.db import connection as database

from connectors import calls, channels
from connectors.channels import Message
from connectors.contract import CannotRead, Target

TRIED = {
    "shop_connection": ("restore_row", {"to": None}, Target("ticket", "live/T-1")),
    "mail_connection": (
        "send_correction",
        {"subject": "canaries", "text": "none here"},
        Target("mail", "eve@other.example"),
    ),
    "licence_connection": ("release_licence", {}, Target("licence", "L-canary")),
    "payments_connection": ("refund", {}, Target("charge", "ch_canary_not")),
    "calendar_connection": ("delete_event", {}, Target("event", "none")),
}


def everything_in_the_database():
    with database.cursor() as cursor:
        for table in database.introspection.table_names(cursor):
            cursor.execute(f'SELECT t::text FROM "{table}" AS t')
            yield from (row[0] for row in cursor.fetchall())


def call_in_every_way(connection, operation, args, target):
    said = []
    for method in (calls.preview, calls.observe, calls.probe, calls.apply, calls.verify):
        try:
            said.append(repr(method(connection, operation, args, target, key="canary-free")))
        except CannotRead as failure:
            said.append(str(failure))
    return said


@pytest.mark.parametrize("name", sorted(TRIED))
def test_a_credential_is_in_no_row_no_log_and_no_answer(request, caplog, name, acme, ada):
    caplog.set_level(logging.DEBUG)
    connection = request.getfixturevalue(name)
    credential = connection.compensate_secret.open()
    hidden = [value for field, value in credential.items() if field != "user" and value]
    assert hidden

    said = call_in_every_way(connection, *TRIED[name])
    for broken in ("base_url", "url", "host"):
        if broken in connection.settings:
            connection.settings[broken] = "http://127.0.0.1:9/" if "url" in broken else "127.0.0.9"
    said += call_in_every_way(connection, *TRIED[name])

    rows = list(everything_in_the_database())
    assert any("connection.secret_set" in row for row in rows)
    for secret in hidden:
        assert not [row for row in rows if secret in row]
        assert secret not in caplog.text
        assert secret not in "".join(said)


def test_a_channels_address_is_in_no_row_and_no_log(acme, ada, outbound, caplog):
    caplog.set_level(logging.DEBUG)
    outbound.append("127.0.0.1")
    url = "http://127.0.0.1:9/services/canary-hook"
    channels.create(acme, "chat", "slack", by=ada, secret={"url": url})
    channels.announce(acme, "case.opened", Message("A case", "was opened"), key="c-1")

    channels.send_due()

    assert not [row for row in everything_in_the_database() if "canary-hook" in row]
    assert "canary-hook" not in caplog.text
