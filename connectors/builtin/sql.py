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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from amends.protocol.masking import holds_mask
from connectors.builtin import postgres
from connectors.builtin.postgres import (
    Column,
    Database,
    Doubtful,
    Login,
    Server,
    columns_of,
    name_of,
    transaction,
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
    Recorded,
    Refused,
    State,
    checked,
    drift,
    meaning,
)

# One row of somebody's PostgreSQL: read as JSON, compared under its lock, written from JSON.

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

    table: Annotated[str, meaning("The table that takes the note, schema.table or table")]
    key: Annotated[
        list[str], meaning("Its columns for the target's key, in the order of the key's parts")
    ]
    text: Annotated[str, meaning("Its column for the note's text")]
    fixed: Annotated[
        dict[str, Any],
        meaning("Columns that are the same in every note, a line each: author: Amends"),
    ] = {}


class Table(msgspec.Struct, forbid_unknown_fields=True):
    """One table that may be restored, under the name that targets use for their type.

    `key` are the columns that a target's id, split on "/", names. `version` is a column that every
    write changes; `ignore` are columns that may differ without anybody having changed the row.
    """

    key: Annotated[
        list[str],
        meaning("The columns that a target's id, split on “/”, names, such as id", "Key columns"),
    ]
    table: Annotated[str, meaning("Its name in the database; empty: the same as above")] = ""
    version: Annotated[
        str | None, meaning("A column that every write changes, if there is one", "Version column")
    ] = None
    ignore: Annotated[
        list[str],
        meaning("Columns that may differ without anybody having changed the row, such as seen_at"),
    ] = []
    note: Annotated[Note | None, meaning("Where a note of each restore goes")] = None


class RestoreRow(msgspec.Struct, forbid_unknown_fields=True):
    """`to`: the columns to write, or null to delete the row. `note`: a text for the note row."""

    to: Annotated[
        dict[str, Any] | None,
        meaning("The columns to write, a line each: status: paid. Empty: the row is deleted"),
    ]
    note: Annotated[str | None, meaning("A text for the note's row")] = None


@dataclass(slots=True)
class Row:
    """A row as it was found, and held against what was recorded of it.

    `doubts` says of columns why what was recorded cannot be given back, or compared.
    """

    found: Observation
    columns: dict[str, Column]
    doubts: dict[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raises CannotRestore."""
        for name, why in self.doubts.items():
            raise CannotRestore(f"{name} cannot be restored as it was: {why}.")


def compared(table: Table, expected: Recorded) -> Recorded:
    """What can drift: a version changes with every write, and says nothing that fields do not."""
    if not isinstance(expected, dict):
        return expected
    uncompared = {table.version, *table.ignore}
    return {name: value for name, value in expected.items() if name not in uncompared}


def as_left(table: Table, call: Call) -> Recorded:
    """How the row should be found: as the agent left it, and where it did not say, as it was. What
    stands there instead is somebody else's, and would be written over.
    """
    expected, to = compared(table, call.expected), call.args.get("to")
    if not (isinstance(expected, dict) and isinstance(to, dict)):
        return expected
    return written(table, to) | expected


def written(table: Table, to: State) -> State:
    """The columns that a restore writes: the recorded ones but version, ignored and key."""
    unwritten = {table.version, *table.ignore, *table.key}
    return {name: value for name, value in to.items() if name not in unwritten}


def must_be_true(table: Table, to: State | None) -> State:
    if to is None:
        return {"exists": False}
    return {"exists": True, "fields": written(table, to)}


def read(
    database: Database, call: Call, table: Table, key: dict[str, str], *, lock: bool = False
) -> Row:
    """The row as JSON, without its version and ignored columns, held against what was recorded.

    A field that PostgreSQL finds to be what the agent left is told in the agent's own spelling.
    """
    columns = columns_of(database, table.table)
    left, *wanted = _recorded(call, table, columns)
    names = dict.fromkeys(name for one in (left, *wanted) for name in one)
    texts = [sql.SQL("t.{}::text").format(sql.Identifier(name)) for name in names]
    query = sql.SQL("SELECT {} FROM {} AS t WHERE {}{}").format(
        sql.SQL(", ").join([sql.SQL("to_jsonb(t.*)::text"), *texts]),
        name_of(table.table),
        matches(key),
        sql.SQL(" FOR UPDATE" if lock else ""),
    )
    rows = database.execute(query, list(key.values())).fetchmany(2)
    if len(rows) > 1:
        raise Refused(f"{table.table}: the key names more than one row.")
    state = postgres.parsed(rows[0][0], columns) if rows else {}
    version = state.pop(table.version, None) if table.version else None
    for name in table.ignore:
        state.pop(name, None)
    spellings = dict(zip(names, rows[0][1:], strict=True)) if rows else {}
    row = Row(Observation(found=False, state=None), columns)
    readings: dict[str, list[tuple[Any, bool]]] = {}
    for recorded in (left, *wanted):
        taken = postgres.readings(database, columns, recorded)
        for name, value in recorded.items():
            found = (state.get(name), spellings.get(name))
            is_so = bool(rows) and postgres.agrees(
                columns[name], value, taken.get(name), found, spelled=recorded is not left
            )
            # What the server computes follows the columns that are put back.
            is_so |= bool(rows) and columns[name].is_generated and recorded is not left
            readings.setdefault(name, []).append((value, is_so))
            why = "" if is_so else _doubt(value, taken.get(name), found[0], left.get(name))
            if why:
                row.doubts.setdefault(name, why)
    if not rows:
        return row
    state |= {name: value for name, value in left.items() if readings[name][0][1]}
    version = None if version is None else str(version)
    row.found = Observation(found=True, state=state, version=version, readings=readings)
    return row


def _recorded(call: Call, table: Table, columns: Mapping[str, Column]) -> Iterable[State]:
    """What the agent left, and what is wanted back: columns that there are. What is masked is
    nothing that PostgreSQL could read.
    """
    to = call.args.get("to")
    fields = (call.must_be_true or {}).get("fields")
    expected = compared(table, call.expected)
    for said in (expected, written(table, to) if isinstance(to, dict) else None, fields):
        known = said if isinstance(said, dict) else {}
        yield {
            name: value
            for name, value in known.items()
            if name in columns and not holds_mask(value)
        }


def _doubt(value: Any, reading: str | Doubtful | None, found: Any, left: Any) -> str:
    if isinstance(reading, Doubtful):
        return str(reading)
    if reading is None and value is not None:  # JSON, which is compared as such
        return postgres.doubt_of_json(value, found, left)
    return ""


def restored(
    database: Database, call: Call, args: RestoreRow, table: Table, key: dict[str, str]
) -> Answer:
    """Everything of a restore but its commit."""
    if not marked(database, call):
        return Answer(outcome="applied", evidence={"already": True})
    row = read(database, call, table, key, lock=True)
    found = row.found
    did = "updated" if found.found else "inserted"
    if args.to is None:
        did = "deleted"
    if checked(must_be_true(table, args.to), found).ok:
        did = "as wanted already"
    else:
        row.check()
        unchanged(call, found, table)
        write(database, table, key, args.to, row)
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
    expected, observed = as_left(table, call), call.observed
    if observed and isinstance(expected, dict):
        # Those were held against their marks when the row was read, and it is that row still.
        expected = {name: value for name, value in expected.items() if not holds_mask(value)}
    if observed and (observed.found, observed.version) != (found.found, found.version):
        raise Refused("The row was changed since it was read.")
    changed = drift(expected, found)
    if observed and not observed.version:
        changed += drift(observed.state, found)
    if changed:
        names = sorted({one.field or "the row itself" for one in changed})
        raise Refused(f"The row is not as the agent left it: {', '.join(names)}.")


def write(
    database: Database, table: Table, key: dict[str, str], to: State | None, row: Row
) -> None:
    """Delete, insert, or update what differs, with PostgreSQL reading the recorded JSON."""
    place, columns = name_of(table.table), row.columns
    if to is None:
        query = sql.SQL("DELETE FROM {} AS t WHERE {}").format(place, matches(key))
        database.execute(query, list(key.values()))
        return
    is_there = row.found.found
    values = written(table, to) if is_there else {**to, **key}
    unknown = sorted(set(values) - set(columns))
    if unknown:
        raise Refused(f"The table {table.table} has no column {', '.join(unknown)}.")
    values = {
        name: postgres.written_out(columns[name], value)
        for name, value in values.items()
        if not columns[name].is_generated and not (is_there and row.found.agrees(name, value))
    }
    names = [sql.Identifier(name) for name in values]
    given = postgres.record(columns, values)
    if not is_there:
        query = sql.SQL("INSERT INTO {0} ({1}) OVERRIDING SYSTEM VALUE SELECT {1} FROM {2}").format(
            place, sql.SQL(", ").join(names), given
        )
        database.execute(query, [Jsonb(values)])
        return
    sets = [sql.SQL("{0} = r.{0}").format(name) for name in names]
    if table.version:
        sets.append(postgres.next_version(columns[table.version]))
    if values:
        query = sql.SQL("UPDATE {} AS t SET {} FROM {} WHERE {}").format(
            place, sql.SQL(", ").join(sets), given, matches(key)
        )
        database.execute(query, [Jsonb(values), *key.values()])


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


FIELDS_NAMED_MAX = 2
ROWS_SHOWN_MAX = 200
"""Columns in a preview's diff; wider rows are still restored whole."""


class Settings(Server, kw_only=True):
    tables: Annotated[
        dict[str, Table],
        meaning("Which tables may be restored; no other is ever touched"),
    ]
    marker: Annotated[
        str, meaning("Where a mark of each restore is left, so that none is done twice")
    ] = "amends_marker"


class Sql(Connector):
    name = "sql"
    version = "1.1"
    title = "PostgreSQL"
    summary = "Puts rows back as they were, and deletes rows that should not be there."
    settings_schema = Settings
    credential_schema = Login
    where = frozenset({"host", "port", "database", "marker"})
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

    def place(self, settings: Any) -> str:
        return f"{settings.database} on {settings.host}:{settings.port}"

    def account(self, settings: Any, credentials: Any) -> str:
        role: str = credentials.user
        return role

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
        return drift(as_left(table, call), observation)

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
    wrote, now = call.wrote, call.now
    was = written(table, to) if to is not None else {}
    names = [*was, *(name for name in written(table, wrote) if name not in was)]
    return [
        DiffRow(name, was.get(name), wrote.get(name), now.get(name))
        for name in names[:ROWS_SHOWN_MAX]
        if call.expected is UNSET or to is None or was.get(name) != wrote.get(name)
    ]
