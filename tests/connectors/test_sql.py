"""An agent changed rows of the shop's database; the desk puts them back, once."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import psycopg
import pytest
from django.db import connections

from connectors import calls
from connectors.builtin.sql import Sql
from connectors.contract import UNSET, CannotRead, Refused, Target

T182 = Target("ticket", "live/T-182")
NORMAL = {"priority": "normal", "assignee": "mia", "price": "12.50", "tags": {"b": 1, "a": [2]}}
HIGH = {**NORMAL, "priority": "high"}
KEY = "sha256:k1"


@pytest.fixture
def ticket(shop):
    shop.execute(
        "INSERT INTO tickets (world, id, priority, assignee, price, tags, opened) VALUES"
        " ('live', 'T-182', 'high', 'mia', 12.5, '{\"a\": [2], \"b\": 1}', '2026-01-02 03:04+00'),"
        " ('live', 'T-204', 'low', 'tom', 1, null, null)"
    )
    return T182


def now(shop, ticket="T-182"):
    row = shop.execute("SELECT priority, assignee, version FROM tickets WHERE id = %s", [ticket])
    return row.fetchone()


def restore(connection, target=T182, to=NORMAL, key=KEY, expected=HIGH, note=None, **facts):
    args = {"to": to} | ({"note": note} if note else {})
    return calls.apply(connection, "restore_row", args, target, key=key, expected=expected, **facts)


def test_a_changed_ticket_is_restored_and_its_neighbour_is_left_alone(
    shop_connection, shop, ticket
):
    answer = restore(shop_connection, note="Set back to normal: it was raised by mistake.")

    assert answer.outcome == "applied"
    assert now(shop) == ("normal", "mia", 2)
    assert now(shop, "T-204") == ("low", "tom", 1)
    notes = shop.execute("SELECT world, ticket, body, author FROM ticket_notes").fetchall()
    assert notes == [("live", "T-182", "Set back to normal: it was raised by mistake.", "Amends")]


def test_what_the_environment_says_of_the_desks_own_database_is_not_said_of_this_one(
    shop_connection, shop, ticket, monkeypatch, tmp_path
):
    """A search path of the desk's found another table of that name."""
    shop.execute("CREATE SCHEMA aside")
    shop.execute("CREATE TABLE aside.tickets AS SELECT * FROM public.tickets")
    monkeypatch.setenv("PGOPTIONS", "-c search_path=aside")
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    service = "[desk]\nhostaddr=192.0.2.1\ndbname=desk\noptions=-c search_path=aside\n"
    (tmp_path / "services").write_text(service)
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    monkeypatch.setenv("PGSERVICE", "desk")
    try:
        answer = restore(shop_connection)
        aside = shop.execute("SELECT priority FROM aside.tickets WHERE id = 'T-182'").fetchone()
    finally:
        shop.execute("DROP SCHEMA aside CASCADE")

    assert answer.outcome == "applied"
    assert (now(shop), aside) == (("normal", "mia", 2), ("high",))


def test_the_same_key_writes_once_even_after_somebody_else_wrote(shop_connection, shop, ticket):
    restore(shop_connection, note="once")
    shop.execute("UPDATE tickets SET priority = 'high' WHERE id = 'T-182'")

    again = restore(shop_connection, note="once")

    assert again.outcome == "applied"
    assert again.evidence == {"already": True}
    assert now(shop)[0] == "high"
    assert shop.execute("SELECT count(*) FROM ticket_notes").fetchone() == (1,)


def test_another_key_finds_it_done_already(shop_connection, shop, ticket):
    restore(shop_connection)

    again = restore(shop_connection, key="sha256:k2")

    assert again.outcome == "applied"
    assert now(shop) == ("normal", "mia", 2)


def test_a_row_that_the_agent_made_is_deleted_and_gone_is_success(shop_connection, shop, ticket):
    first = restore(shop_connection, to=None)
    second = restore(shop_connection, to=None, key="sha256:k2")

    assert (first.outcome, second.outcome) == ("applied", "applied")
    assert now(shop) is None


def test_a_row_that_the_agent_deleted_is_inserted_again(shop_connection, shop, ticket):
    shop.execute("DELETE FROM tickets WHERE id = 'T-182'")
    before = {**NORMAL, "opened": "2026-01-02T03:04:00+00:00", "version": 5, "shouted": "NORMAL"}

    answer = restore(shop_connection, to=before, expected=None)

    assert answer.outcome == "applied"
    assert now(shop) == ("normal", "mia", 5)


def test_somebody_elses_edit_after_the_agents_is_not_overwritten(shop_connection, shop, ticket):
    shop.execute("UPDATE tickets SET assignee = 'zoe', version = 2 WHERE id = 'T-182'")

    seen = calls.observe(shop_connection, "restore_row", {"to": NORMAL}, T182)
    diff = calls.drifted(shop_connection, "restore_row", {"to": NORMAL}, T182, seen, expected=HIGH)
    answer = restore(shop_connection)

    assert [(one.field, one.expected, one.actual) for one in diff] == [("assignee", "mia", "zoe")]
    assert answer.outcome == "no_effect"
    assert "assignee" in answer.detail
    assert now(shop) == ("high", "zoe", 2)


def test_a_key_that_names_two_rows_names_none(shop_connection, shop):
    shop.execute("ALTER TABLE customers DROP CONSTRAINT customers_pkey")
    shop.execute("INSERT INTO customers (id, name) VALUES (7, 'Mia'), (7, 'Mia')")
    mia, to = Target("customers", "7"), {"name": "Maria"}

    answer = restore(shop_connection, mia, to, expected={"name": "Mia"})

    assert answer.outcome == "no_effect"
    assert "more than one row" in answer.detail
    assert shop.execute("SELECT name FROM customers").fetchall() == [("Mia",), ("Mia",)]


@pytest.mark.parametrize("name", ["t", "r", "key", "Row", "to_jsonb"])
def test_a_column_may_have_any_name(shop_connection, shop, ticket, name):
    shop.execute(f'ALTER TABLE tickets RENAME priority TO "{name}"')
    rest = {field: value for field, value in NORMAL.items() if field != "priority"}

    answer = restore(shop_connection, to={**rest, name: "normal"}, expected={**rest, name: "high"})

    assert answer.outcome == "applied"
    changed = shop.execute(f'SELECT "{name}", assignee FROM tickets WHERE id = %s', ["T-182"])
    assert changed.fetchone() == ("normal", "mia")


def test_a_column_that_is_as_wanted_is_not_written(shop_connection, shop, ticket):
    """Somebody's triggers, and rights to single columns, tell a write of the same from none."""
    shop.execute(
        "CREATE TABLE written (what text);"
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN INSERT INTO written VALUES (TG_ARGV[0]); RETURN NULL; END$$;"
        "CREATE TRIGGER a AFTER UPDATE OF priority ON tickets"
        " FOR EACH ROW EXECUTE FUNCTION tell('priority');"
        "CREATE TRIGGER b AFTER UPDATE OF assignee, price, tags ON tickets"
        " FOR EACH ROW EXECUTE FUNCTION tell('another')"
    )

    assert restore(shop_connection).outcome == "applied"

    assert shop.execute("SELECT what FROM written").fetchall() == [("priority",)]


def test_an_edit_between_the_look_and_the_write_is_noticed_by_its_version(
    shop_connection, shop, ticket
):
    seen = calls.observe(shop_connection, "restore_row", {"to": NORMAL}, T182)
    shop.execute("UPDATE tickets SET opened = now(), version = 2 WHERE id = 'T-182'")

    answer = restore(shop_connection, observed=seen)

    assert answer.outcome == "no_effect"
    assert now(shop)[0] == "high"


def test_numbers_json_and_instants_compare_by_what_they_mean(shop_connection, ticket):
    recorded = {"price": 12.5, "tags": {"a": [2], "b": 1}, "opened": "2026-01-02T04:04:00+01:00"}

    seen = calls.observe(shop_connection, "restore_row", {"to": None}, T182)
    diff = calls.drifted(
        shop_connection, "restore_row", {"to": None}, T182, seen, expected=recorded
    )

    assert diff == []
    assert seen.version == "1"


def test_looking_needs_no_arguments(shop_connection, ticket):
    seen = calls.observe(shop_connection, "restore_row", {}, T182)

    assert seen.found


def test_a_probe_finds_the_marker_or_proves_that_there_is_none(shop_connection, ticket):
    def probe(key):
        return calls.probe(shop_connection, "restore_row", {"to": NORMAL}, T182, key=key).found

    assert probe(KEY) == "absent"
    restore(shop_connection)
    assert probe(KEY) == "present"
    assert probe("sha256:other") == "absent"


@contextmanager
def restoring(shop_url, **more):
    """A restore of T-182 under way, which waits behind the edit that somebody has not committed."""
    with psycopg.connect(shop_url) as zoe, ThreadPoolExecutor(1) as pool:
        zoe.execute("UPDATE tickets SET assignee = 'zoe' WHERE id = 'T-182'")
        with psycopg.connect(shop_url, autocommit=True) as watch:
            answer = pool.submit(_apart, **more)
            until(lambda: watch.execute(WAITING).fetchone() == (1,))
        yield zoe, answer


WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'amends'"
    " AND wait_event_type = 'Lock' AND datname = current_database()"
)


def until(holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _apart(**more):
    try:
        return restore(**more)
    finally:
        connections.close_all()


@pytest.mark.django_db(transaction=True)
def test_a_probe_cannot_tell_while_the_call_is_still_under_way(shop_connection, shop_url, ticket):
    def probe():
        return calls.probe(shop_connection, "restore_row", {"to": NORMAL}, T182, key=KEY).found

    with restoring(shop_url, connection=shop_connection) as (zoe, answer):
        assert probe() == "cannot_tell"
        zoe.rollback()

        assert answer.result().outcome == "applied"
    assert probe() == "present"


@pytest.mark.django_db(transaction=True)
def test_an_edit_at_the_very_moment_of_the_restore_is_not_overwritten(
    shop_connection, shop, shop_url, ticket
):
    """The row is locked when it is compared; compared first, the edit would be lost."""
    with restoring(shop_url, connection=shop_connection) as (zoe, answer):
        zoe.commit()

        assert answer.result().outcome == "no_effect"
    assert now(shop) == ("high", "zoe", 1)


def test_a_connection_that_is_cut_at_the_commit_leaves_nothing_known(shop_connection, shop, ticket):
    shop.execute(
        "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END$$;"
        "CREATE CONSTRAINT TRIGGER cut AFTER UPDATE ON tickets DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION cut()"
    )

    assert restore(shop_connection).outcome == "unknown"


def test_a_restored_row_verifies_field_by_field(shop_connection, ticket):
    before = calls.verify(shop_connection, "restore_row", {"to": NORMAL}, T182)
    restore(shop_connection)
    after = calls.verify(shop_connection, "restore_row", {"to": NORMAL}, T182)

    assert [one["name"] for one in before.checks if not one["ok"]] == ["priority"]
    assert after.ok


def test_only_listed_tables_are_touched(shop_connection, shop):
    shop.execute("INSERT INTO secrets VALUES (1, 'x')")

    with pytest.raises(Refused, match="not among the tables"):
        calls.preview(shop_connection, "restore_row", {"to": None}, Target("secrets", "1"))
    assert restore(shop_connection, Target("secrets", "1"), to=None).outcome == "no_effect"
    assert shop.execute("SELECT count(*) FROM secrets").fetchone() == (1,)


@pytest.mark.parametrize("name", ["T-182", "live/", "/T-182", ""])
def test_an_id_that_does_not_name_every_key_column_is_refused(shop_connection, name):
    with pytest.raises(Refused, match="does not name"):
        calls.preview(shop_connection, "restore_row", {"to": None}, Target("ticket", name))


def test_the_console_never_reaches_into_its_own_database(shop_connection, ada, db):
    from django.db import connection as own

    shop_connection.settings["database"] = own.settings_dict["NAME"]

    with pytest.raises(CannotRead, match="desk's own database"):
        calls.observe(shop_connection, "restore_row", {"to": None}, T182)


def test_a_row_that_is_held_does_not_hold_the_desk(
    shop_connection, shop, shop_url, ticket, monkeypatch
):
    hurried = replace(Sql.operations["restore_row"], limit_seconds=2)
    monkeypatch.setitem(Sql.operations, "restore_row", hurried)
    with psycopg.connect(shop_url) as holder:
        holder.execute("SELECT 1 FROM tickets WHERE id = 'T-182' FOR UPDATE")
        began = time.monotonic()

        answer = restore(shop_connection)

        took = time.monotonic() - began

    assert answer.outcome == "no_effect"
    assert took < 10  # far less than the operation usually may


def test_what_cannot_be_written_is_refused_with_the_databases_words(shop_connection, ticket):
    answer = restore(shop_connection, to={"price": "dear"})

    assert answer.outcome == "no_effect"
    assert "numeric" in answer.detail


def test_the_preview_shows_what_was_what_the_agent_wrote_and_what_is_there(shop_connection, ticket):
    seen = calls.observe(shop_connection, "restore_row", {"to": NORMAL}, T182)

    card = calls.preview(
        shop_connection, "restore_row", {"to": NORMAL}, T182, expected=HIGH, observed=seen
    )

    assert card.title == "Restore priority on ticket live/T-182"
    assert [(d.field, d.was, d.agent_wrote, d.now) for d in card.diff] == [
        ("priority", "normal", "high", "high")
    ]
    assert card.must_be_true == {"exists": True, "fields": NORMAL}


def test_a_wrong_password_shows_nowhere(shop_connection, acme, ticket):
    shop_connection.settings["database"] = "canary-7Q"
    with pytest.raises(CannotRead) as failed:
        calls.observe(shop_connection, "restore_row", {"to": None}, T182, expected=UNSET)

    assert "canary-7Q" not in str(failed.value)
    shop_connection.refresh_from_db()
    assert "[redacted]" in shop_connection.last_error
    assert shop_connection.is_failing
