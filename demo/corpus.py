"""Recorded runs of agents: the service desks at which they served, their tables and what each of
their tools does; and a recording, with its runs, the world that each began from, and its database.

`AIRLINE` is of a real agent; its recording is not in the repository. `PARCELS` is invented, with
its runs: `demo.parcels` makes them.
"""

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

Row = dict[str, Any]
ToolClass = Literal["read_only", "draft", "internal_update"]


class UnknownDesk(Exception):
    """We stopped because a recording is of an agent that no description names."""


@dataclass(frozen=True)
class Table:
    """`columns`: name → PostgreSQL type. A field that a recording does not name is NULL."""

    target_type: str
    columns: Mapping[str, str]


@dataclass(frozen=True)
class ServiceDesk:
    """One business.

    `changes` says in words what a writing tool does to a row, `customers` is the table of those
    who ask, and `subjects` are the arguments that name what a call is about, the first found first.
    """

    slug: str
    name: str
    agent: str
    goal: str
    tables: Mapping[str, Table]
    customers: str
    name_of: Callable[[Row], str]
    changes: Mapping[str, str]
    drafts: frozenset[str]
    subjects: tuple[str, ...]

    def class_of(self, tool: str) -> ToolClass:
        if tool in self.changes:
            return "internal_update"
        return "draft" if tool in self.drafts else "read_only"

    def summary(self, tool: str, table: str, row_id: str) -> str:
        """What a call did to one row, as the case tells it."""
        if table == self.customers:
            return f"changed the account of {row_id}"
        return f"{self.changes[tool]} {self.tables[table].target_type} {row_id}"


def _first_and_last(row: Row) -> str:
    name = row.get("name") or {}
    return f"{name.get('first_name', '')} {name.get('last_name', '')}".strip()


AIRLINE = ServiceDesk(
    slug="airline",
    name="Airline desk",
    agent="airline-desk",
    goal="Serve the customer within the airline's policy",
    tables={
        "reservations": Table(
            "reservation",
            {
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
            },
        ),
        "users": Table(
            "customer",
            {
                "name": "jsonb",
                "address": "jsonb",
                "email": "text",
                "dob": "text",
                "payment_methods": "jsonb",
                "saved_passengers": "jsonb",
                "membership": "text",
                "reservations": "jsonb",
            },
        ),
    },
    customers="users",
    name_of=_first_and_last,
    changes={
        "book_reservation": "booked",
        "cancel_reservation": "cancelled",
        "update_reservation_flights": "changed the flights of",
        "update_reservation_baggages": "changed the bags of",
        "update_reservation_passengers": "changed the passengers of",
        "send_certificate": "sent a certificate to",
    },
    drafts=frozenset({"transfer_to_human_agents"}),
    subjects=("reservation_id", "user_id"),
)

PARCELS = ServiceDesk(
    slug="parcels",
    name="Parcel desk",
    agent="parcel-desk",
    goal="Help senders with their parcels within the house rules",
    tables={
        "parcels": Table(
            "parcel",
            {
                "sender": "text",
                "recipient": "jsonb",
                "service": "text",
                "contents": "jsonb",
                "weight_grams": "integer",
                "insured_minor": "integer",
                "needs_signature": "boolean",
                "pickup": "jsonb",
                "charges": "jsonb",
                "handed_in_on": "date",
                "state": "text",
            },
        ),
        "accounts": Table(
            "sender",
            {
                "name": "text",
                "email": "text",
                "town": "text",
                "wallet": "jsonb",
                "parcels": "jsonb",
                "wants_news": "boolean",
            },
        ),
    },
    customers="accounts",
    name_of=lambda row: str(row.get("name") or ""),
    changes={
        "ship_parcel": "shipped",
        "recall_parcel": "recalled",
        "redirect_parcel": "redirected",
        "insure_parcel": "insured",
        "change_service": "changed the service of",
        "book_pickup": "booked a pickup for",
        "grant_voucher": "granted a voucher to",
    },
    drafts=frozenset({"hand_to_colleague"}),
    subjects=("parcel", "account"),
)

DESKS = {desk.agent: desk for desk in (AIRLINE, PARCELS)}


def desk_of(agent: str) -> ServiceDesk:
    """The desk at which this agent serves; raises `UnknownDesk`."""
    if agent not in DESKS:
        raise UnknownDesk(f"No desk is described for the agent “{agent}”: {', '.join(DESKS)}")
    return DESKS[agent]


# A recording.

RUNS, WORLD = "runs.jsonl.gz", "world.json.gz"
COMPRESSION = 1  # quick: a recording that is made is read once


class NoCorpus(Exception):
    """We stopped because the folder holds no recorded runs; the message says what is missing."""


World = dict[str, dict[str, Row]]
"""Table → id → row."""


@dataclass(frozen=True)
class Effect:
    table: str
    id: str
    before: Row | None
    after: Row


@dataclass(frozen=True)
class RecordedCall:
    n: int
    tool: str
    args: Row
    ok: bool
    result: str
    effects: tuple[Effect, ...]


@dataclass(frozen=True)
class RecordedRun:
    """`expected` are the calls that would have been right, each its `tool` and `args`.

    `mistake` is the kind of mistake that was made, where who made the recording knows it.
    """

    run: str
    customer: str
    model: str
    agent: str
    request: str
    correct: bool
    expected: tuple[Row, ...]
    calls: tuple[RecordedCall, ...]
    mistake: str = ""

    @property
    def touched(self) -> set[tuple[str, str]]:
        return set(self.left)

    @property
    def left(self) -> dict[tuple[str, str], Row]:
        """The touched rows as the run left them, by table and id."""
        return {
            (effect.table, effect.id): effect.after
            for call in self.calls
            for effect in call.effects
        }


@dataclass(frozen=True)
class Corpus:
    """`world` is as it stood before each run."""

    desk: ServiceDesk
    world: World
    runs: tuple[RecordedRun, ...]


def save(folder: Path, world: World, runs: Iterable[Row]) -> None:
    """Write a recording; a run is a JSON object, as `_run` reads it."""
    with gzip.open(folder / WORLD, "wt", compresslevel=COMPRESSION) as file:
        json.dump(world, file)
    with gzip.open(folder / RUNS, "wt", compresslevel=COMPRESSION) as file:
        file.writelines(json.dumps(run) + "\n" for run in runs)


def load(folder: Path, *, limit: int | None = None) -> Corpus:
    """Read the recording in `folder`, or its first `limit` runs.

    Raises `NoCorpus` where a file is missing or empty, `UnknownDesk` where no description fits.
    """
    for name in (RUNS, WORLD):
        if not (folder / name).is_file():
            raise NoCorpus(f"{folder} has no {name}")
    with gzip.open(folder / WORLD, "rt") as file:
        world = json.load(file)
    runs = tuple(_runs(folder, limit))
    if not runs:
        raise NoCorpus(f"{folder / RUNS} holds no run")
    return Corpus(desk=desk_of(runs[0].agent), world=world, runs=runs)


def _runs(folder: Path, limit: int | None) -> Iterator[RecordedRun]:
    with gzip.open(folder / RUNS, "rt") as file:
        for number, line in enumerate(file):
            if limit is not None and number >= limit:
                return
            yield _run(json.loads(line))


def _run(said: Row) -> RecordedRun:
    return RecordedRun(
        run=said["run"],
        customer=said["customer"],
        model=said["model"],
        agent=said["agent"],
        request=said["request"],
        correct=said["correct"],
        expected=tuple(said["expected"]),
        calls=tuple(
            RecordedCall(
                n=call["n"],
                tool=call["tool"],
                args=call["args"],
                ok=call["ok"],
                result=call["result"],
                effects=tuple(Effect(**effect) for effect in call["effects"]),
            )
            for call in said["calls"]
        ),
        mistake=said.get("mistake", ""),
    )


# A desk's database: every run acts in its own copy of the world, told apart by `world`.


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
