"""A check at the start: is the ledger append-only three times over? It says what is missing."""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Info, Tags, register
from django.db import DatabaseError, connections

UNGUARDED = """
SELECT c.relname FROM pg_class c
WHERE (c.oid = 'ledger_event'::regclass
       OR c.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'ledger_event'::regclass))
  AND (SELECT count(*) FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgenabled = 'O'
       AND t.tgfoid = 'ledger_event_only_grows'::regproc) < 2
ORDER BY 1"""
RIGHTS = """
SELECT has_table_privilege('ledger_event', 'DELETE')
    OR has_table_privilege('ledger_event', 'UPDATE')
    OR has_table_privilege('ledger_event', 'TRUNCATE')"""


@register(Tags.database)
def append_only(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Triggers on every partition, and a runtime role without the right to change events."""
    if "default" not in (databases or ()):
        return []
    try:
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT to_regclass('ledger_event')")
            if cursor.fetchone()[0] is None:
                return []
            cursor.execute(UNGUARDED)
            unguarded = [name for (name,) in cursor.fetchall()]
            cursor.execute(RIGHTS)
            may_change = cursor.fetchone()[0]
    except DatabaseError:
        return []  # other checks say that the database is away
    return _messages(unguarded, may_change=may_change)


def _messages(unguarded: list[str], *, may_change: bool) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    if unguarded:
        found.append(
            Error(
                f"Nothing in the database refuses changes to {', '.join(unguarded)}.",
                hint="The triggers are gone. Find out who removed them, then make them again.",
                id="ledger.E001",
            )
        )
    if may_change:
        found.append(
            Info(
                "The runtime's database role could change events if the triggers were gone.",
                hint="Set DATABASE_OWNER_URL to the owner, and DATABASE_URL to a role without"
                " UPDATE, DELETE and TRUNCATE on ledger_event.",
                id="ledger.I001",
            )
        )
    return found
