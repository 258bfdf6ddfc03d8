"""Ada rehearses the undo of a ticket in the sandbox before anybody needs it."""

import pytest

from connectors import connections
from connectors.contract import Target
from workspaces.models import Act

T1 = Target("ticket", "sandbox/T-1")
TO = {"priority": "normal"}


@pytest.fixture
def sandbox(shop, shop_connection, ada):
    """A schema beside the real one, with a ticket of its own."""
    shop.execute("DROP SCHEMA IF EXISTS sandbox CASCADE; CREATE SCHEMA sandbox")
    shop.execute("CREATE TABLE sandbox.tickets (LIKE tickets INCLUDING ALL)")
    shop.execute(
        "INSERT INTO sandbox.tickets (world, id, priority) VALUES ('sandbox','T-1','high')"
    )
    shop.execute("INSERT INTO tickets (world, id, priority) VALUES ('sandbox', 'T-1', 'high')")
    tables = {"ticket": {"table": "sandbox.tickets", "key": ["world", "id"], "version": "version"}}
    return connections.update(
        shop_connection,
        shop_connection.settings,
        sandbox_settings={"tables": tables},
        by=ada,
        revision=1,
    )


def test_everything_is_tried_and_only_in_the_sandbox(sandbox, shop, ada):
    beats = connections.rehearse(sandbox, "restore_row", {"to": TO}, T1, by=ada)

    assert [(beat.name, beat.ok) for beat in beats] == [
        ("previewed", True),
        ("looked", True),
        ("not done yet, says the probe", True),
        ("done", True),
        ("read back", True),
        ("found again by the probe", True),
        ("done a second time", True),
    ]
    assert shop.execute("SELECT priority FROM sandbox.tickets").fetchone() == ("normal",)
    assert shop.execute("SELECT priority FROM tickets").fetchone() == ("high",)


def test_it_stops_where_something_is_wrong_and_says_what(sandbox, ada):
    beats = connections.rehearse(sandbox, "restore_row", {"to": {"colour": "red"}}, T1, by=ada)

    assert [beat.ok for beat in beats] == [True, True, True, False]
    assert "colour" in beats[-1].detail
    act = Act.objects.get(type="connection.rehearsed")
    assert (act.person, act.data["ok"]) == (ada, False)


def test_what_cannot_be_sent_is_told_and_not_raised(sandbox, ada):
    [beat] = connections.rehearse(sandbox, "restore_row", {}, T1, by=ada)

    assert not beat.ok
    assert "to" in beat.detail


def test_without_a_sandbox_nothing_is_rehearsed(shop_connection, ada):
    with pytest.raises(connections.NoSandbox):
        connections.rehearse(shop_connection, "restore_row", {"to": TO}, T1, by=ada)
