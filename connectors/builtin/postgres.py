"""Somebody else's PostgreSQL: a session under the address rule and the deadline, and its columns.

An agent records what its driver gave it: a decimal as "12.50", bytes in base64, a moment in another
offset. Whether that is what stands in the column is not for us to guess, so PostgreSQL reads it as
the column's own type (`jsonb_to_record`), and both are compared as PostgreSQL writes them. JSON
columns are compared as JSON, in which a number is never a text.

A driver may have lost what it could not hold: the months of an interval, 1e400 in JSON. What it
recorded then may mean more than one value, and is not written back: `Doubtful` says why.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Annotated, Any, Literal

import certifi
import msgspec
import psycopg
from psycopg import sql
from psycopg.adapt import Transformer
from psycopg.pq import Format
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from amends.protocol.canonical import INTEGER_DIGITS_MAX, INTEGER_MAX
from connectors.contract import Call, Refused, State, meaning
from connectors.outbound import AddressRefused, Deadline, NotSent, Outbound, is_allowed_by_name
from ledger.canonical import canonical_of

Database = psycopg.Connection[tuple[Any, ...]]

# No file can be below a device: libpq looks there in silence. Of the device itself it complains.
NO_FILE = f"{os.devnull}/none"

# What libpq would else take from the desk's environment (PGOPTIONS, PGHOSTADDR, PGSSLCERT …), which
# is for its own database: a search path of it would find another table of that name here.
OF_OUR_OWN = {
    "options": "",
    "hostaddr": "",
    "sslcert": NO_FILE,
    "sslkey": NO_FILE,
    "gssencmode": "disable",
    "target_session_attrs": "any",
}

OUR_TABLES = ["connectors_connection", "connectors_calllog", "workspaces_secret"]
"""A database with all of these is a desk's own, and is never touched through a connection."""


class Server(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Where the database is: the part of the settings that names a server."""

    host: Annotated[str, meaning("The server’s name, such as db.example.com")]
    port: Annotated[int, meaning("Its port")] = 5432
    database: Annotated[str, meaning("The database in it")]
    sslmode: Annotated[
        Literal["verify-full", "require", "disable"],
        meaning(
            "verify-full: the server proves its name; require: encrypted, but any server will do;"
            " disable: for a sandbox on this machine",
            "Encryption",
        ),
    ] = "verify-full"


class Login(msgspec.Struct, forbid_unknown_fields=True):
    user: Annotated[str, meaning("The role that logs in, with rights for this purpose alone")]
    password: Annotated[str, meaning("Its password; empty where the server asks for none")] = ""


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
        passfile=NO_FILE,
        connect_timeout=max(2, int(deadline.remaining())),
        application_name="amends",
        row_factory=tuple_row,
        **(OF_OUR_OWN | _route(server, call.connection.outbound)),
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


JSON_TYPES = frozenset({"json", "jsonb"})
NUMBER_TYPES = frozenset({"numeric", "int2", "int4", "int8", "float4", "float8", "oid"})
DAY = timedelta(days=1)
# Python's own text of a timedelta, which is how the client records an interval.
TIMEDELTA = re.compile(r"(?:(-?\d+) days?, )?(\d{1,2}):(\d\d):(\d\d(?:\.\d{1,6})?)")
# How the client records a float that is no JSON number; 1e400 is infinite to a driver.
NO_JSON_NUMBERS = frozenset({"nan", "inf", "-inf"})
WORDS_CHARACTERS_MAX = 200


class Doubtful(Exception):
    """We stopped because a recorded value cannot be given back as it was; the text says why."""


class NoDouble(str):
    """The digits of a number in JSON that no driver holds, such as 1e400."""

    __slots__ = ()


def parsed(document: str, columns: Mapping[str, Column]) -> State:
    """A row out of `to_jsonb(row)::text`. A number that no double holds is a text of its digits,
    but for those in JSON columns, which every driver rounds.
    """
    state: State = json.loads(document, parse_float=Decimal, parse_int=_whole)
    return {name: _fitted(value, columns[name]) for name, value in state.items()}


def _whole(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= INTEGER_DIGITS_MAX else Decimal(digits)


def _fitted(value: Any, column: Column) -> Any:
    if isinstance(value, dict):
        return {name: _fitted(inner, column) for name, inner in value.items()}
    if isinstance(value, list):
        return [_fitted(inner, column) for inner in value]
    if not isinstance(value, Decimal):
        return value
    double = float(value)
    if column.kind in JSON_TYPES:
        return double if isfinite(double) else NoDouble(value)
    return double if isfinite(double) and Decimal(repr(double)) == value else str(value)


def readings(
    database: Database, columns: Mapping[str, Column], recorded: State
) -> dict[str, str | Doubtful | None]:
    """Each recorded value as PostgreSQL writes it in its column; JSON columns are left out."""
    found: dict[str, str | Doubtful | None] = {}
    readable: State = {}
    for name, value in recorded.items():
        if columns[name].kind in JSON_TYPES:
            continue
        try:
            readable[name] = written_out(columns[name], value)
        except Doubtful as doubtful:
            found[name] = doubtful
    for name, text in _read(database, columns, readable).items():
        found[name] = text
        if isinstance(text, str) and not _is_kept(columns[name], recorded[name], text):
            found[name] = Doubtful(f"the column would take it as {text[:WORDS_CHARACTERS_MAX]}")
    return found


def _read(
    database: Database, columns: Mapping[str, Column], values: State
) -> dict[str, str | Doubtful | None]:
    """All at once, and one by one where that fails."""
    if not values:
        return {}
    texts = sql.SQL(", ").join(sql.SQL("r.{}::text").format(sql.Identifier(n)) for n in values)
    query = sql.SQL("SELECT {} FROM {}").format(texts, record(columns, values))
    try:
        with database.transaction():
            row = database.execute(query, [Jsonb(values)]).fetchone()
    except (psycopg.DataError, psycopg.IntegrityError, psycopg.NotSupportedError) as wrong:
        if len(values) == 1:
            why = str(wrong).partition("\n")[0][:WORDS_CHARACTERS_MAX]
            return {name: Doubtful(f"the column does not read it ({why})") for name in values}
        each = (_read(database, columns, {name: value}) for name, value in values.items())
        return {name: text for one in each for name, text in one.items()}
    return dict(zip(values, row or (), strict=True))


def record(columns: Mapping[str, Column], values: State) -> sql.Composed:
    """The FROM item `r` that reads a JSON parameter as these columns, and as no others."""
    declared = (
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(columns[name].declared))
        for name in values
    )
    return sql.SQL("jsonb_to_record(%s) AS r({})").format(sql.SQL(", ").join(declared))


def written_out(column: Column, value: Any) -> Any:
    """The recorded value as JSON that PostgreSQL reads as what was meant; raises Doubtful."""
    if column.kind in JSON_TYPES or value is None:
        return value
    if isinstance(value, list) and column.is_array:
        return [written_out(column, item) for item in value]
    if column.is_text and not isinstance(value, str):
        raise Doubtful("the column holds text, and something else was recorded")
    if isinstance(value, str) and column.kind == "bytea":
        return _hex(value)
    if isinstance(value, str) and column.kind == "interval":
        return _interval(value)
    return value


def _hex(text: str) -> str:
    """Bytes as PostgreSQL writes them, or in base64, as the client does."""
    if text.startswith(("\\x", "{")):
        return text
    try:
        return "\\x" + base64.b64decode(text, validate=True).hex()
    except (binascii.Error, ValueError):
        raise Doubtful("it is neither hex (\\x…) nor base64") from None


def _interval(text: str) -> str:
    """Below a day a timedelta is one interval; above it could be days, months or hours."""
    moment = TIMEDELTA.fullmatch(text)
    if moment is None:
        return text
    days, hours, minutes, seconds = (Decimal(part or 0) for part in moment.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if abs(total) >= DAY.total_seconds():
        raise Doubtful(
            f"“{text}” is how a program tells an interval, and could be months, days or hours:"
            " record such a column as text"
        )
    return f"{total} seconds"


def _is_kept(column: Column, value: Any, text: str) -> bool:
    """Whether the column took the value as it is: rounded, or in another money, it is not."""
    if column.is_array:
        return True
    if column.kind == "money":
        return bool(value == text)
    return column.kind != "numeric" or _decimal(value) == _decimal(text)


def agrees(
    column: Column,
    value: Any,
    reading: str | Doubtful | None,
    found: tuple[Any, str | None],
    *,
    spelled: bool,
) -> bool:
    """Whether a recorded value is what was found: `found` as JSON and as PostgreSQL writes it.

    With `spelled`, a decimal that was recorded as text has to have the same digits, zeros and all.
    """
    state, text = found
    if column.kind in JSON_TYPES:
        return _holds(value, state)
    if column.kind == "interval" and isinstance(value, str) and TIMEDELTA.fullmatch(value):
        return text is not None and value == _as_a_driver_has_it(text)
    if isinstance(reading, Doubtful):
        return False
    if reading == text:
        return True
    is_number = column.kind in NUMBER_TYPES and not column.is_array
    if not is_number or (isinstance(value, str) and (spelled or column.kind != "numeric")):
        return False
    return _decimal(reading) is not None and _decimal(reading) == _decimal(text)


def _holds(value: Any, state: Any) -> bool:
    try:
        return canonical_of(value) == canonical_of(state)
    except ValueError:
        return False


def _as_a_driver_has_it(text: str) -> str:
    """An interval as psycopg makes a timedelta of it, which the client records as its text."""
    loader = Transformer().get_loader(psycopg.adapters.types["interval"].oid, Format.TEXT)
    try:
        return str(loader.load(text.encode()))
    except psycopg.DataError:
        return text


def _decimal(value: Any) -> Decimal | None:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def doubt_of_json(recorded: Any, found: Any, left: Any) -> str:
    """Why a recorded JSON value may have been another one; empty if nothing speaks for it.

    Older clients told integers beyond 2^53 as text, and a float beyond doubles is told as `inf`.
    `found` is what stands there now, `left` what the agent says that it left.
    """
    for path, text in _texts(recorded):
        here, there = _at(found, path), _at(left, path)
        if isinstance(here, NoDouble):
            return f"the column holds the number {here[:WORDS_CHARACTERS_MAX]}, beyond all doubles"
        if isinstance(here, str):
            continue  # it is a text in this place
        number = _decimal(text)
        is_wide = number is not None and abs(number) > INTEGER_MAX
        if (told := _number(there)) is not None:  # whoever told this tells numbers as numbers
            is_doubtful = is_wide and abs(told) <= INTEGER_MAX
        else:
            stands = _number(here)
            is_doubtful = stands is not None and (is_wide or stands == number)
        if is_doubtful or text in NO_JSON_NUMBERS:
            return f"“{text[:WORDS_CHARACTERS_MAX]}” was recorded as text, and may be a number"
    return ""


def _number(value: Any) -> Decimal | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return _decimal(value) if is_number else None


def _texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, (*path, index))
    elif isinstance(value, str):
        yield path, value


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value
