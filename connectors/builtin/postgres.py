"""A session on somebody else's PostgreSQL, under the address rule and the call's deadline."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import certifi
import msgspec
import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from connectors.addresses import AddressRefused, Deadline, NotSent, is_allowed_by_name
from connectors.contract import Call, Refused
from connectors.outbound import Outbound

Database = psycopg.Connection[tuple[Any, ...]]

OUR_TABLES = ["connectors_connection", "connectors_calllog", "workspaces_secret"]
"""A database with all of these is a desk's own, and is never touched through a connection."""


class Server(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Where the database is: the part of the settings that names a server."""

    host: str
    port: int = 5432
    database: str
    sslmode: Literal["verify-full", "require", "disable"] = "verify-full"


class Login(msgspec.Struct, forbid_unknown_fields=True):
    user: str
    password: str = ""


class Column(msgspec.Struct):
    name: str
    type: str
    declared: str
    """The type as a declaration has it, with its length or precision."""
    kind: str
    """The name of the type under domains and arrays."""
    is_array: bool
    is_text: bool
    is_generated: bool
    """Computed by the server (`GENERATED ALWAYS AS`), so it can be neither written nor put back."""


COLUMNS = """
WITH RECURSIVE wanted AS (
    SELECT attname, atttypid, atttypmod, attgenerated <> '' AS generated FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
), under AS (
    SELECT attname, atttypid AS type, false AS in_array FROM wanted
    UNION ALL
    SELECT u.attname, CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END,
        u.in_array OR t.typtype <> 'd'
    FROM under u JOIN pg_type t ON t.oid = u.type
    WHERE t.typtype = 'd' OR (t.typcategory = 'A' AND t.typelem <> 0)
)
SELECT w.attname, format_type(w.atttypid, NULL), format_type(w.atttypid, w.atttypmod),
    t.typname, u.in_array, t.typcategory = 'S', w.generated
FROM wanted w JOIN under u USING (attname) JOIN pg_type t ON t.oid = u.type
WHERE t.typtype <> 'd' AND NOT (t.typcategory = 'A' AND t.typelem <> 0)
"""


@contextmanager
def transaction(call: Call, *, writes: bool) -> Iterator[Database]:
    """A transaction that the caller commits; anything else that ends it rolls it back.

    Raises NotSent where no session came about, Refused on the desk's own database.
    """
    deadline = call.connection.outbound.deadline
    try:
        database = _connect(call, deadline)
    except psycopg.Error as failure:
        raise NotSent(f"No session on the database: {failure}") from failure
    with database, deadline.cutting(database.fileno()):
        milliseconds = str(round(deadline.remaining() * 1000))
        found = database.execute(
            "SELECT set_config('statement_timeout', %(ms)s, true),"
            " set_config('lock_timeout', %(ms)s, true),"
            " set_config('idle_in_transaction_session_timeout', %(ms)s, true),"
            # Values are compared as PostgreSQL writes them.
            " set_config('DateStyle', 'ISO, YMD', true),"
            " set_config('IntervalStyle', 'postgres', true),"
            " set_config('bytea_output', 'hex', true),"
            " set_config('extra_float_digits', '1', true),"
            " (SELECT count(DISTINCT relname) FROM pg_class WHERE relname = ANY(%(ours)s))",
            {"ms": milliseconds, "ours": OUR_TABLES},
        ).fetchone()
        if not writes:
            database.execute("SET TRANSACTION READ ONLY")
        if found is not None and found[-1] == len(OUR_TABLES):
            raise Refused("This is the desk's own database; connections never reach into it.")
        yield database
        database.rollback()  # whatever the caller did not commit


def _connect(call: Call, deadline: Deadline) -> Database:
    server: Server = call.connection.settings
    login: Login = call.connection.credentials
    return psycopg.connect(
        port=server.port,
        dbname=server.database,
        user=login.user,
        password=login.password,
        passfile=os.devnull,
        connect_timeout=max(2, int(deadline.remaining())),
        application_name="amends",
        row_factory=tuple_row,
        **_route(server, call.connection.outbound),
    )


def _route(server: Server, outbound: Outbound) -> dict[str, Any]:
    """How to get there: libpq goes to `hostaddr`, and checks the certificate against `host`."""
    if server.host.startswith("/"):
        return {"host": outbound.local_socket(server.host, server.port)}
    by_name = is_allowed_by_name(server.host, server.port)
    if server.sslmode != "verify-full" and not by_name:
        raise AddressRefused("Only hosts named in OUTBOUND_ALLOW may go without verified TLS.")
    addresses = outbound.addresses(server.host, server.port)
    tls = {"sslrootcert": authorities()} if server.sslmode == "verify-full" else {}
    return {
        "host": ",".join([server.host] * len(addresses)),
        "hostaddr": ",".join(addresses),
        "sslmode": server.sslmode,
        **tls,
    }


def authorities() -> str:
    """The file of trusted authorities; libpq from a wheel does not find the system's."""
    return os.environ.get("SSL_CERT_FILE") or certifi.where()


def name_of(table: str) -> sql.Identifier:
    """`table` or `schema.table`, quoted."""
    return sql.Identifier(*table.split(".", 1))


def columns_of(database: Database, table: str) -> dict[str, Column]:
    """The table's columns by name; raises Refused where there is no such table."""
    rows = database.execute(COLUMNS, [name_of(table).as_string()]).fetchall()
    if not rows:
        raise Refused(f"There is no table {table} in the database.")
    return {row[0]: Column(*row) for row in rows}
