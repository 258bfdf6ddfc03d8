"""COPY into the product's own tables, with the defaults of their models."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
from django.contrib.postgres.fields import ArrayField
from django.db.models import JSONField, Model
from django.db.models.fields import Field

Row = tuple[Any, ...]


class Table:
    """One table: `row(…)` fills in what is not said; JSON is given as text, an array as `{a,b}`."""

    def __init__(self, model: type[Model], *, without: Iterable[str] = ()) -> None:
        meta = model._meta  # noqa: SLF001 - documented, in spite of its name
        fields = [one for one in meta.concrete_fields if one.column and not one.generated]
        self.name = meta.db_table
        left_out = set(without)
        self.defaults: dict[str, Any] = {
            str(field.column): _default(field) for field in fields if field.column not in left_out
        }

    def row(self, **values: Any) -> Row:
        return tuple({**self.defaults, **values}.values())

    def copy(
        self, connection: psycopg.Connection[Any], rows: Iterable[Row], *, into: str = ""
    ) -> None:
        columns = ", ".join(f'"{column}"' for column in self.defaults)
        statement = f"COPY {into or self.name} ({columns}) FROM STDIN"
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)


def _default(field: "Field[Any, Any]") -> Any:
    if getattr(field, "auto_now_add", False) or getattr(field, "auto_now", False):
        return datetime.now(UTC)
    value = field.get_default()
    if isinstance(field, ArrayField):
        return "{}"
    if isinstance(field, JSONField) and value is not None:
        return json.dumps(value)
    return value


def chunks(total: int, size: int) -> Iterator[range]:
    for start in range(0, total, size):
        yield range(start, min(start + size, total))


def restart_sequences(connection: psycopg.Connection[Any], *tables: str) -> None:
    """Let ids go on behind those that were copied in."""
    for table in tables:
        connection.execute(
            f"SELECT setval(pg_get_serial_sequence('{table}', 'id'),"  # noqa: S608 - our own names
            f" (SELECT greatest(max(id), 1) FROM {table}))"
        )
