"""One row of somebody's PostgreSQL: read as JSON, compared under its lock, written from JSON."""

from __future__ import annotations

from typing import Any

import msgspec
from psycopg import sql
from psycopg.types.json import Jsonb

from connectors.builtin.postgres import Column, Database, columns_of, name_of
from connectors.contract import Answer, Call, Observation, Refused, State, checked, drift

MARKER_DDL = """CREATE TABLE IF NOT EXISTS {} (
    key text PRIMARY KEY,
    operation text NOT NULL,
    target text NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
)"""
MAKING_MARKERS = 0x616D656E6473
"""The advisory lock under which the marker table is made, so that two at once do not clash."""


class Note(msgspec.Struct, forbid_unknown_fields=True):
    """Where a note goes: the columns for the target's key, for the text, and fixed ones."""

    table: str
    key: list[str]
    text: str
    fixed: dict[str, Any] = {}


class Table(msgspec.Struct, forbid_unknown_fields=True):
    """One table that may be restored, under the name that targets use for their type.

    `key` are the columns that a target's id, split on "/", names. `version` is a column that every
    write changes; `ignore` are columns that may differ without anybody having changed the row.
    """

    key: list[str]
    table: str = ""
    version: str | None = None
    ignore: list[str] = []
    note: Note | None = None


class RestoreRow(msgspec.Struct, forbid_unknown_fields=True):
    """`to`: the columns to write, or null to delete the row. `note`: a text for the note row."""

    to: dict[str, Any] | None
    note: str | None = None


def written(table: Table, to: State) -> State:
    """The columns that a restore writes: the recorded ones but version, ignored and key."""
    unwritten = {table.version, *table.ignore, *table.key}
    return {name: value for name, value in to.items() if name not in unwritten}


def must_be_true(table: Table, to: State | None) -> State:
    if to is None:
        return {"exists": False}
    return {"exists": True, "fields": written(table, to)}


def read(
    database: Database, table: Table, key: dict[str, str], *, lock: bool = False
) -> Observation:
    """The row as JSON, without its version and ignored columns."""
    query = sql.SQL("SELECT to_jsonb(t) FROM {} AS t WHERE {}{}").format(
        name_of(table.table), matches(key), sql.SQL(" FOR UPDATE" if lock else "")
    )
    rows = database.execute(query, list(key.values())).fetchmany(2)
    if len(rows) > 1:
        raise Refused(f"{table.table}: the key names more than one row.")
    if not rows:
        return Observation(found=False, state=None)
    state: State = rows[0][0]
    version = state.pop(table.version, None) if table.version else None
    for name in table.ignore:
        state.pop(name, None)
    return Observation(found=True, state=state, version=None if version is None else str(version))


def restored(
    database: Database, call: Call, args: RestoreRow, table: Table, key: dict[str, str]
) -> Answer:
    """Everything of a restore but its commit."""
    if not marked(database, call):
        return Answer(outcome="applied", evidence={"already": True})
    found = read(database, table, key, lock=True)
    did = "updated" if found.found else "inserted"
    if args.to is None:
        did = "deleted"
    if checked(must_be_true(table, args.to), found).ok:
        did = "as wanted already"
    else:
        unchanged(call, found, table)
        columns = columns_of(database, table.table)
        write(database, table, key, args.to, columns, is_there=found.found)
    if args.note and table.note:
        note(database, table.note, key, args.note)
    return Answer(outcome="applied", evidence={"row": did, "before": found.fingerprint})


def marked(database: Database, call: Call) -> bool:
    """Leave the key's marker; False where it is there already. The lock tells a probe of us."""
    marker = name_of(call.connection.settings.marker)
    database.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [call.key])
    known = database.execute("SELECT to_regclass(%s)", [marker.as_string()]).fetchone()
    if known is None or known[0] is None:
        database.execute("SELECT pg_advisory_xact_lock(%s)", [MAKING_MARKERS])
        database.execute(sql.SQL(MARKER_DDL).format(marker))
    query = sql.SQL(
        "INSERT INTO {} (key, operation, target) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
    )
    target = f"{call.target.type}/{call.target.id}"
    return (
        database.execute(query.format(marker), [call.key, call.operation.name, target]).rowcount
        == 1
    )


def unchanged(call: Call, found: Observation, table: Table) -> None:
    """Raise Refused where the row is not as expected, now that it is locked and cannot change."""
    expected = call.expected
    if isinstance(expected, dict):
        expected = written(table, expected)
    observed = call.observed
    if observed and (observed.found, observed.version) != (found.found, found.version):
        raise Refused("The row was changed since it was read.")
    changed = drift(expected, found)
    if observed and not observed.version:
        changed += drift(observed.state, found)
    if changed:
        names = sorted({one.field or "the row itself" for one in changed})
        raise Refused(f"The row is not as the agent left it: {', '.join(names)}.")


def write(
    database: Database,
    table: Table,
    key: dict[str, str],
    to: State | None,
    columns: dict[str, Column],
    *,
    is_there: bool,
) -> None:
    """Delete, update or insert, with PostgreSQL reading the recorded JSON as a row of the table."""
    place = name_of(table.table)
    if to is None:
        query = sql.SQL("DELETE FROM {} AS t WHERE {}").format(place, matches(key))
        database.execute(query, list(key.values()))
        return
    values = written(table, to) if is_there else {**to, **key}
    unknown = sorted(set(values) - set(columns))
    if unknown:
        raise Refused(f"The table {table.table} has no column {', '.join(unknown)}.")
    names = [name for name in values if not columns[name].is_generated]
    chosen = sql.SQL(", ").join(map(sql.Identifier, names))
    if not is_there:
        query = sql.SQL(
            "INSERT INTO {0} ({1}) OVERRIDING SYSTEM VALUE"
            " SELECT {1} FROM jsonb_populate_record(NULL::{0}, %s)"
        ).format(place, chosen)
        database.execute(query, [Jsonb(values)])
        return
    sets = [sql.SQL("{0} = r.{0}").format(sql.Identifier(name)) for name in names]
    if table.version:
        sets.append(next_version(columns[table.version]))
    if sets:
        query = sql.SQL(
            "UPDATE {0} AS t SET {1} FROM jsonb_populate_record(NULL::{0}, %s) AS r WHERE {2}"
        ).format(place, sql.SQL(", ").join(sets), matches(key))
        database.execute(query, [Jsonb(values), *key.values()])


def next_version(column: Column) -> sql.Composed:
    """A version that nobody has read yet, so that whoever read the old one notices."""
    name = sql.Identifier(column.name)
    if column.type in {"smallint", "integer", "bigint", "numeric"}:
        return sql.SQL("{0} = t.{0} + 1").format(name)
    if column.type.startswith("timestamp"):
        return sql.SQL("{0} = clock_timestamp()").format(name)
    if column.type == "uuid":
        return sql.SQL("{0} = gen_random_uuid()").format(name)
    return sql.SQL("{0} = gen_random_uuid()::text").format(name)


def note(database: Database, where: Note, key: dict[str, str], text: str) -> None:
    given = dict(zip(where.key, key.values(), strict=True))
    values: dict[str, Any] = {**where.fixed, **given, where.text: text}
    query = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
        name_of(where.table),
        sql.SQL(", ").join(map(sql.Identifier, values)),
        sql.SQL(", ").join(sql.Placeholder() * len(values)),
    )
    database.execute(
        query, [Jsonb(v) if isinstance(v, dict | list) else v for v in values.values()]
    )


def matches(key: dict[str, str]) -> sql.Composed:
    """The condition that names the row. Parameters stay untyped, so that an index can serve it."""
    parts = [sql.SQL("t.{} = %s").format(sql.Identifier(name)) for name in key]
    return sql.SQL(" AND ").join(parts)
