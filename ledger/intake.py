"""Intake: how events reach the ledger.

`record` works in the caller's transaction and answers per event; the handlers here
are what agents call most at the edge, `POST /api/v1/events` and `PUT /api/v1/blobs/{sha256}`.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from psycopg import Connection
from psycopg.errors import DeadlockDetected, SerializationFailure

from amends.protocol.masking import Unfit, masked
from edge import pools
from edge.asgi import (
    Operation,
    Problem,
    Receive,
    Refused,
    Scope,
    Send,
    answer,
    answering,
    body_of,
    media_type,
    refuse,
    route,
)
from ledger import drivers, wire
from ledger.agent_keys import actor_of
from ledger.append import events as append
from ledger.append.events import RecordedBatch
from ledger.canonical import rounded
from ledger.parsed_events import Actor, EventResult, ParsedEvent

NDJSON_TYPES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})
BLOB_BYTES_MAX = 8 * 1024 * 1024
# A larger body is dealt with in a thread, so that those who wait for approvals are not held up.
INLINE_BYTES_MAX = 64 * 1024
# Two batches that lock each other out are told by PostgreSQL; the second try finds the way free.
TRIES_MAX = 3
Read = list[ParsedEvent | tuple[str, Problem]]


class Results(msgspec.Struct):
    """One answer per event, in their order."""

    results: list[EventResult]


class BlobReference(msgspec.Struct):
    """By what name events refer to the blob."""

    ref: str


_json = msgspec.json.Encoder()

KEEP_BLOB = """
INSERT INTO ledger_blob (workspace_id, sha256, content, byte_count, received_at)
VALUES (%b, %b, %b, %b, clock_timestamp())
ON CONFLICT (workspace_id, sha256) DO UPDATE SET received_at = excluded.received_at,
    content = coalesce(ledger_blob.content, excluded.content)
RETURNING xmax = 0"""


def record(
    connection: Connection[Any], actor: Actor, events: Sequence[ParsedEvent]
) -> RecordedBatch:
    """Record in the transaction that is open on a plain connection."""
    return drivers.run(append.record(actor, events), connection)


async def events(scope: Scope, receive: Receive, send: Send) -> None:
    """`POST /api/v1/events`: a JSON array, or NDJSON where its type says so; gzip or not."""
    actor = await actor_of(scope, "ingest")
    ndjson = media_type(scope) in NDJSON_TYPES
    body = await body_of(scope, receive, wire.BATCH_BYTES_MAX, workspace=actor.workspace_id)
    results: msgspec.Raw | list[EventResult]
    if len(body) > INLINE_BYTES_MAX:
        results = msgspec.Raw(await pools.in_thread(take_in, body, actor, ndjson))
    else:
        read = read_batch(body, actor, ndjson)
        results = await record_read(actor, read)
    await answer(send, 200, {"results": results})


def read_batch(
    body: bytes,
    actor: Actor,
    ndjson: bool,  # noqa: FBT001 - as `take_in`
) -> Read:
    try:
        raws = wire.split(body, ndjson=ndjson)
    except wire.Malformed as malformed:
        raise Refused(malformed.problem) from malformed
    return [wire.read(raw, actor) for raw in raws]


def take_in(
    body: bytes,
    actor: Actor,
    ndjson: bool,  # noqa: FBT001 - positional, through a thread
) -> bytes:
    """Read and record a large batch; its answers as JSON.

    All of it happens in one thread, and all that it made is freed there, where it is still near.
    """
    return _json.encode(record_read_waiting(actor, read_batch(body, actor, ndjson)))


def record_read_waiting(actor: Actor, read: Read) -> list[EventResult]:
    """`record_read`, in a thread."""
    parsed = [one for one in read if isinstance(one, ParsedEvent)]
    recorded = record_waiting(actor, parsed) if parsed else RecordedBatch([])
    return _in_order(read, recorded.results)


def record_waiting(actor: Actor, parsed: Sequence[ParsedEvent]) -> RecordedBatch:
    """Record in a thread, in a transaction of its own."""
    for tries_left in reversed(range(TRIES_MAX)):
        try:
            with pools.threads_pool().connection() as connection:
                return drivers.commit(append.record(actor, parsed), connection)
        except (DeadlockDetected, SerializationFailure):
            if not tries_left:
                raise
    raise AssertionError("unreachable")


async def record_read(actor: Actor, read: Read) -> list[EventResult]:
    """Record what could be read; one answer for each, in order."""
    recorded = await _recorded(actor, [one for one in read if isinstance(one, ParsedEvent)])
    return _in_order(read, recorded.results)


async def _recorded(actor: Actor, parsed: Sequence[ParsedEvent]) -> RecordedBatch:
    if not parsed:
        return RecordedBatch([])
    for tries_left in reversed(range(TRIES_MAX)):
        async with pools.pool().connection() as connection:
            try:
                return await drivers.commit_async(append.record(actor, parsed), connection)
            except (DeadlockDetected, SerializationFailure):
                if not tries_left:
                    raise
    raise AssertionError("unreachable")


def _in_order(read: Read, answers: Sequence[EventResult]) -> list[EventResult]:
    """The answers in the order in which the events came."""
    recorded = iter(answers)
    return [
        next(recorded) if isinstance(one, ParsedEvent) else EventResult(one[0], "rejected", one[1])
        for one in read
    ]


async def blob(scope: Scope, receive: Receive, send: Send) -> None:
    """`PUT /api/v1/blobs/{sha256}`: the canonical JSON of a snapshot or result, already masked."""
    actor = await actor_of(scope, "ingest")
    sha256 = scope["path_params"]["sha256"]
    body = await body_of(scope, receive, BLOB_BYTES_MAX, workspace=actor.workspace_id)
    if len(body) > INLINE_BYTES_MAX:
        await pools.in_thread(check_blob, body, sha256, actor)
    else:
        check_blob(body, sha256, actor)
    async with pools.pool().connection() as connection:
        cursor = await connection.execute(KEEP_BLOB, [actor.workspace_id, sha256, body, len(body)])
        row = await cursor.fetchone()
        is_new = row is not None and row[0]
    await answer(send, 201 if is_new else 200, BlobReference(f"sha256:{sha256}"))


def check_blob(body: bytes, sha256: str, actor: Actor) -> None:
    """Raise `Refused` unless the body is what its name says, JSON, and without a secret."""
    if hashlib.sha256(body).hexdigest() != sha256:
        raise refuse("digest", "The body is not what its name says", 422)
    try:
        value = msgspec.json.decode(body)
        clean = masked(value, _paths_of_snapshots(actor.mask), actor.masking_key)
    except RecursionError as deep:
        raise refuse("unfit", "The blob is nested too deep", 422) from deep
    except Unfit as unfit:
        raise refuse("unfit", "The blob cannot be kept", 422, str(unfit)) from unfit
    except (msgspec.MsgspecError, UnicodeDecodeError) as wrong:
        raise refuse("malformed", "The blob is not JSON", 400, str(wrong)) from wrong
    if number := rounded(body):
        detail = f"{number} has more digits than a double: write it as text."
        raise refuse("unfit", "The blob cannot be kept", 422, detail)
    if clean != value:
        raise refuse("secret", "The blob holds what must be masked first", 422)


# Where a blob may stand in the data of an event, beside the references to it.
PLACES_OF_BLOBS = (
    ("before",), ("after",), ("result",), ("effects", "before"), ("effects", "after"),
)  # fmt: skip


def _paths_of_snapshots(mask: Sequence[str]) -> list[str]:
    """The policy's paths as they apply inside a snapshot or a result, wherever it stands; `*` is
    any name, also that of such a place.
    """
    found: dict[str, None] = {}
    for names in (path.split(".") for path in mask):
        for place in PLACES_OF_BLOBS:
            over, inside = names[: len(place)], names[len(place) :]
            if inside and all(one in {"*", name} for one, name in zip(over, place, strict=True)):
                found[".".join(inside)] = None
    return list(found)


routes = [
    route(
        "POST", r"/api/v1/events", answering(events),
        Operation(
            "ledger_intake_events",
            "Record up to 1,000 events (8 MiB, gzip or not): each has its own answer, in order, and"
            " one that is accepted is durable",
            answer=Results, body=list[wire.Envelope],
            media=("application/json", "application/x-ndjson"),
            refusals=dict.fromkeys((400, 413, 415), ""), tag="ledger",
        ),
    ),
    route(
        "PUT", r"/api/v1/blobs/(?P<sha256>[0-9a-f]{64})", answering(blob),
        Operation(
            "ledger_intake_blob",
            "Keep a snapshot or result above 64 KiB",
            answer=BlobReference, media=("application/json",),
            answers={200: "It was here already", 201: "Kept"},
            refusals=dict.fromkeys((400, 413, 422), ""), tag="ledger",
        ),
    ),
]  # fmt: skip
