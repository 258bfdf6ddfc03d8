"""A desk's database: every run acts in its own copy of the world, told apart by `world`."""

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from demo.recorded.corpus import Corpus
from demo.recorded.desks import Row, ServiceDesk


def create(database: psycopg.Connection, desk: ServiceDesk) -> None:
    """Make the desk's tables; existing ones are kept."""
    for name, table in desk.tables.items():
        fields = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(kind))
            for column, kind in table.columns.items()
        )
        database.execute(
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (world text, id text, {},"
                " version integer NOT NULL DEFAULT 1, PRIMARY KEY (world, id))"
            ).format(sql.Identifier(name), fields)
        )


def put_world(database: psycopg.Connection, corpus: Corpus, world: str) -> None:
    """Put the rows as they stood before a run under the name `world`, over whatever is there."""
    for table, rows in corpus.world.items():
        database.execute(
            sql.SQL("DELETE FROM {} WHERE world = %s").format(sql.Identifier(table)), [world]
        )
        columns = corpus.desk.tables[table].columns
        copy = sql.SQL("COPY {} (world, id, {}) FROM STDIN").format(
            sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns))
        )
        with database.cursor() as cursor, cursor.copy(copy) as lines:
            for row_id, row in rows.items():
                lines.write_row([world, row_id, *_values(columns, row)])


def _values(columns: Mapping[str, str], row: Row) -> list[Any]:
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


def write(
    database: psycopg.Connection, desk: ServiceDesk, world: str, key: tuple[str, str], row: Row
) -> None:
    """Write the row as the agent's tool does; `key` is its table and id.

    Every write raises its version.
    """
    table, row_id = key
    columns = desk.tables[table].columns
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
