"""The airline's database: every run acts in its own copy of the world, told apart by `world`."""

import json
from collections.abc import Iterable
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from demo.airline.corpus import Corpus, Row

# Column → its type. A field that the corpus does not name is NULL.
RESERVATIONS = {
    "reservation_id": "text",
    "user_id": "text",
    "origin": "text",
    "destination": "text",
    "flight_type": "text",
    "cabin": "text",
    "flights": "jsonb",
    "passengers": "jsonb",
    "payment_history": "jsonb",
    "created_at": "text",
    "total_baggages": "integer",
    "nonfree_baggages": "integer",
    "insurance": "text",
    "status": "text",
}
USERS = {
    "name": "jsonb",
    "address": "jsonb",
    "email": "text",
    "dob": "text",
    "payment_methods": "jsonb",
    "saved_passengers": "jsonb",
    "membership": "text",
    "reservations": "jsonb",
}
TABLES = {"reservations": RESERVATIONS, "users": USERS}
TARGET_TYPES = {"reservations": "reservation", "users": "customer"}


def create(database: psycopg.Connection) -> None:
    """Make the airline's tables; existing ones are kept."""
    for table, columns in TABLES.items():
        fields = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
            for name, kind in columns.items()
        )
        database.execute(
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (world text, id text, {},"
                " version integer NOT NULL DEFAULT 1, PRIMARY KEY (world, id))"
            ).format(sql.Identifier(table), fields)
        )


def put_world(database: psycopg.Connection, corpus: Corpus, world: str) -> None:
    """Put the rows as they stood before a run under the name `world`, over whatever is there."""
    for table, rows in corpus.world.items():
        database.execute(
            sql.SQL("DELETE FROM {} WHERE world = %s").format(sql.Identifier(table)), [world]
        )
        columns = TABLES[table]
        copy = sql.SQL("COPY {} (world, id, {}) FROM STDIN").format(
            sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns))
        )
        with database.cursor() as cursor, cursor.copy(copy) as lines:
            for row_id, row in rows.items():
                lines.write_row([world, row_id, *_values(columns, row)])


def _values(columns: dict[str, str], row: Row) -> list[Any]:
    return [
        Jsonb(row[name]) if kind == "jsonb" and row.get(name) is not None else row.get(name)
        for name, kind in columns.items()
    ]


def read(database: psycopg.Connection, table: str, world: str, row_id: str) -> Row | None:
    """The row as the agent sees it, without `world`, `id` and `version`; None if absent."""
    found = database.execute(
        sql.SQL(
            "SELECT to_jsonb(t) - 'world' - 'id' - 'version' FROM {} t WHERE world = %s AND id = %s"
        ).format(sql.Identifier(table)),
        [world, row_id],
    ).fetchone()
    row: Row | None = found[0] if found else None
    return row


def write(database: psycopg.Connection, table: str, world: str, row_id: str, row: Row) -> None:
    """Write the row as the agent's tool does; every write raises its version."""
    columns = TABLES[table]
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    changes = sql.SQL(", ").join(
        sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in columns
    )
    database.execute(
        sql.SQL(
            "INSERT INTO {0} (world, id, {1}) VALUES (%s, %s, {2})"
            " ON CONFLICT (world, id) DO UPDATE SET {3}, version = {0}.version + 1"
        ).format(
            sql.Identifier(table),
            names,
            sql.SQL(", ").join(sql.Placeholder() for _ in columns),
            changes,
        ),
        [world, row_id, *_values(columns, row)],
    )


def differences(
    database: psycopg.Connection,
    corpus: Corpus,
    world: str,
    touched: Iterable[tuple[str, str]],
) -> list[str]:
    """What of the touched rows is not as the world says: the oracle of the replay.

    Compared column by column as canonical JSON, the version aside; a row that the world does not
    have must be gone.
    """
    found = []
    for table, row_id in sorted(touched):
        should = corpus.world[table].get(row_id)
        row = read(database, table, world, row_id)
        if should is None or row is None:
            if (should is None) != (row is None):
                found.append(f"{table} {row_id} {'is still there' if row else 'is gone'}")
            continue
        found += [
            f"{table} {row_id}.{name}: {_text(row[name])} instead of {_text(should.get(name))}"
            for name in TABLES[table]
            if _text(row[name]) != _text(should.get(name))
        ]
    return found


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
