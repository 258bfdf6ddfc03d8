"""`sql`: put a row of a PostgreSQL database back to how it was.

One operation, `restore_row`: a row that existed gets its recorded columns back; one that is gone is
inserted again; one that had no `before` is deleted. The write is conditional on the version column
where the table has one, and on every recorded column, compared under the row's lock. A marker row
with the key is written in the same transaction, so a second try finds it and a probe proves what
happened; a note row, if asked for, too. Only tables listed in the settings can be touched.

PostgreSQL itself turns rows into JSON and reads what was recorded as the columns' own types (see
`columns`). What cannot be given back as it was is refused in words, when the row is looked at.
"""

from __future__ import annotations

from typing import Any

import msgspec
import psycopg
from psycopg import sql

from connectors.builtin.postgres import Login, Server, name_of, transaction
from connectors.builtin.rows import (
    RestoreRow,
    Table,
    compared,
    must_be_true,
    read,
    restored,
    written,
)
from connectors.contract import (
    UNSET,
    Answer,
    Call,
    CannotRestore,
    Connector,
    DiffRow,
    FieldDiff,
    Finding,
    Observation,
    Operation,
    Preview,
    Refused,
    State,
    drift,
)

FIELDS_NAMED_MAX = 2
ROWS_SHOWN_MAX = 200
"""Columns in a preview's diff; wider rows are still restored whole."""


class Settings(Server, kw_only=True):
    tables: dict[str, Table]
    marker: str = "amends_marker"


class Sql(Connector):
    name = "sql"
    version = "1.1"
    title = "PostgreSQL"
    settings_schema = Settings
    credential_schema = Login
    operations = {
        "restore_row": Operation(
            name="restore_row",
            title="Restore a row",
            args_schema=RestoreRow,
            reversibility="exact",
            idempotency="marker",
            is_partial=True,
            probe="strong",
            limit_seconds=15,
            kind="row",
        )
    }

    def check_settings(self, settings: Any) -> None:
        if not settings.tables:
            raise ValueError("At least one table has to be listed.")
        for name, table in settings.tables.items():
            if not table.key:
                raise ValueError(f"The table {name} needs at least one key column.")
            if table.note and len(table.note.key) != len(table.key):
                raise ValueError(f"The note of {name} needs a column for each key column.")

    def preview(self, call: Call) -> Preview:
        table, key = located(call)
        args: RestoreRow = call.operation.check_args(call.args)
        if args.note is not None and table.note is None:
            raise Refused(f"The table {call.target.type} has no note table in the settings.")
        what = f"{call.target.type} {call.target.id}"
        diff = difference(call, args.to, table)
        title = f"Delete {what}"
        if args.to is not None:
            title = _restored(what, [row.field for row in diff if row.was != row.agent_wrote])
        rows = [("Table", table.table), ("Row", ", ".join(f"{k} = {v}" for k, v in key.items()))]
        if args.note:
            rows.append(("Note", args.note))
        return Preview(
            kind="row",
            title=title,
            rows=rows,
            will_send={"table": table.table, "key": key, "to": args.to, "note": args.note},
            must_be_true=must_be_true(table, args.to),
            diff=diff,
        )

    def observe(self, call: Call) -> Observation:
        table, key = located(call)
        with transaction(call, writes=False) as database:
            row = read(database, call, table, key)
        if row.doubts and "to" in call.args and not self.satisfied(call, row.found):
            row.check()
        return row.found

    def drifted(self, call: Call, observation: Observation) -> list[FieldDiff]:
        table, _ = located(call)
        return drift(compared(table, call.expected), observation)

    def apply(self, call: Call) -> Answer:
        table, key = located(call)
        args: RestoreRow = call.operation.check_args(call.args)
        with transaction(call, writes=True) as database:
            try:
                answer = restored(database, call, args, table, key)
            except CannotRestore as doubtful:
                raise Refused(str(doubtful)) from doubtful
            except psycopg.Error as failure:  # before the commit, so it rolled back
                raise Refused(f"The database refused: {failure}") from failure
            database.commit()  # whose failure tells nothing, and so is not caught
            return answer

    def probe(self, call: Call) -> Finding:
        """Look for the marker; a transaction that still runs holds the key's advisory lock."""
        settings: Settings = call.connection.settings
        with transaction(call, writes=False) as database:
            free = database.execute(
                "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0)),"
                " to_regclass(%s) IS NOT NULL",
                [call.key, name_of(settings.marker).as_string()],
            ).fetchone()
            if free is None or not free[0]:
                return Finding(found="cannot_tell", evidence={"under_way": True})
            if not free[1]:
                return Finding(found="absent", evidence={"marker": None})
            query = sql.SQL("SELECT at::text FROM {} WHERE key = %s")
            row = database.execute(query.format(name_of(settings.marker)), [call.key]).fetchone()
        if row is None:
            return Finding(found="absent", evidence={"marker": None})
        return Finding(found="present", evidence={"marker": row[0]})


def _restored(what: str, fields: list[str]) -> str:
    """`Restore priority on ticket T-182`: the fields by name as long as they are few."""
    if not 0 < len(fields) <= FIELDS_NAMED_MAX:
        return f"Restore {what}"
    return f"Restore {' and '.join(sorted(fields))} on {what}"


def located(call: Call) -> tuple[Table, dict[str, str]]:
    """The table and key columns of the target; raises Refused for one that is not allow-listed."""
    settings: Settings = call.connection.settings
    table = settings.tables.get(call.target.type)
    if table is None:
        raise Refused(f"{call.target.type} is not among the tables of this connection.")
    parts = call.target.id.split("/", len(table.key) - 1)
    if len(parts) != len(table.key) or not all(parts):
        raise Refused(f"{call.target.id} does not name {' and '.join(table.key)}.")
    named = msgspec.structs.replace(table, table=table.table or call.target.type)
    return named, dict(zip(table.key, parts, strict=True))


def difference(call: Call, to: State | None, table: Table) -> list[DiffRow]:
    """Field by field: what it was, what the agent wrote, what is there now."""
    wrote = call.expected if isinstance(call.expected, dict) else {}
    now = (call.observed.state if call.observed else None) or {}
    was = written(table, to) if to is not None else {}
    names = [*was, *(name for name in written(table, wrote) if name not in was)]
    return [
        DiffRow(name, was.get(name), wrote.get(name), now.get(name))
        for name in names[:ROWS_SHOWN_MAX]
        if call.expected is UNSET or to is None or was.get(name) != wrote.get(name)
    ]
