"""Row locks: in which order the whole product takes them, and how strongly.

Whoever locks rows of several kinds goes down `ORDER`, and takes rows of one kind in the order of
their ids (runs of a recording by their names), so that two of them never wait for each other.
docs/architecture.md says of each kind why it stands where it does.

There is one strength. FOR NO KEY UPDATE keeps out everybody who locks or changes the row; FOR
UPDATE would also hold up each row that only refers to it, and no row here changes its key.
"""

from typing import TypeVar

from django.db.models import Model, QuerySet

ORDER = (
    "workspaces_workspace",
    "approvals_gatekey",
    "recovery_step",
    "ledger_run",
    "workspaces_agent",
    "recovery_plan",
    "recovery_case",
    "recovery_correction",
    "approvals_approval",
)
"""The tables of which rows are waited for, the first to be locked first."""

ROW_LOCK = "FOR NO KEY UPDATE"
"""For SQL: at the end of a query, and with SKIP LOCKED behind it where the rows are a queue."""

M = TypeVar("M", bound=Model)


def locked(rows: QuerySet[M]) -> QuerySet[M]:
    """The same rows, locked when they are read; of a table that has its place in `ORDER`."""
    table = rows.model._meta.db_table  # noqa: SLF001 - Django's own name for it
    if table not in ORDER:
        raise LookupError(f"{table} has no place in the order of locks")
    return rows.select_for_update(of=("self",), no_key=True)


def not_in_hand(rows: QuerySet[M]) -> QuerySet[M]:
    """Those of a queue's rows that nobody else has in hand, locked. It waits for nobody, so that
    any table may be such a queue.
    """
    return rows.select_for_update(of=("self",), no_key=True, skip_locked=True)
