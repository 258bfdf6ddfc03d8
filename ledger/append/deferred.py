"""Noting: the desk's events that go into the ledger and are not folded at once.

A recovery says four things of each step on the way to its end, and only the end changes what
anybody does. So those on the way are written down in one statement, durable and sealed like all
others, and whoever speaks next of the action in the usual way (`desk.say_all`) folds them with it:
the fold always looks at all events of an action. Until then the action's row lags behind its
events; every way on from a note must lead to an event that is said.
"""

import os
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from psycopg import Connection, Cursor

from amends.protocol.canonical import content_digest, salted_digest
from ledger.append.events import SALT_BYTES
from ledger.append.statements import LIST, PARTED, Statement, joined, joined_bytes, joined_numbers
from ledger.parsed_events import Actor, ParsedEvent, StoredEvent

_EVENT = "event_id, type, run, action, data, content, salt, digest"
# Where places and the moment are drawn by the way, and where they were drawn before.
_DRAWING = f"""
WITH moment AS (SELECT clock_timestamp() AS received),
noted AS MATERIALIZED (
    SELECT nextval('ledger_place') AS place, u.* FROM unnest({", ".join([LIST] * 8)})
    AS u ({_EVENT})),"""  # noqa: S608
_DRAWN = f"""
WITH moment AS (SELECT %b::timestamptz AS received),
noted AS MATERIALIZED (
    SELECT n::bigint AS place, {_EVENT} FROM unnest({", ".join([LIST] * 9)})
    AS u (n, {_EVENT})),"""  # noqa: S608
_NOTE = """
keys AS (
    INSERT INTO ledger_eventkey (workspace_id, event_id, content, place, received_at)
    SELECT %b, event_id, decode(content, 'hex'), place, received FROM noted, moment),
waiting AS (
    INSERT INTO ledger_unsealed (place, workspace_id, received_at)
    SELECT place, %b, received FROM noted, moment)
INSERT INTO ledger_event (place, received_at, workspace_id, event_id, type, run, action, actor_kind,
    actor, data, salt, digest)
SELECT place, received, %b, event_id, type, coalesce(run, ''), coalesce(action, ''), %b, %b,
    data::jsonb, decode(salt, 'hex'), decode(digest, 'hex')
FROM noted, moment
RETURNING event_id, place, received_at::text"""
_NOTE_DRAWING, _NOTE_DRAWN = _DRAWING + _NOTE, _DRAWN + _NOTE


class SequenceRange(NamedTuple):
    """The places of some events, in their order, and the moment at which they were drawn."""

    places: Sequence[int]
    received: datetime


def note(
    connection: Connection[Any], speaker: Actor, events: Sequence[ParsedEvent]
) -> list[StoredEvent]:
    """Write down `events`, whose ids are new, in the transaction that is open; gives them as the
    fold will see them, in their order.
    """
    cursor = Cursor(connection)
    cursor.execute(*noted(speaker, events))
    rows = cursor.fetchall()
    places = {event_id: place for event_id, place, _ in rows}
    received = datetime.fromisoformat(rows[0][2])
    return facts(speaker, events, SequenceRange([places[event.id] for event in events], received))


def noted(
    speaker: Actor, events: Sequence[ParsedEvent], drawn: SequenceRange | None = None
) -> Statement:
    """The statement that writes `events` down, with the places that were drawn for them."""
    noise = os.urandom(SALT_BYTES * len(events))
    salts = [noise[i : i + SALT_BYTES] for i in range(0, len(noise), SALT_BYTES)]
    ahead = [] if drawn is None else [drawn.received, joined_numbers(drawn.places)]
    return _NOTE_DRAWING if drawn is None else _NOTE_DRAWN, [
        *ahead,
        joined([event.id for event in events]),
        joined([event.type for event in events]),
        joined([event.run for event in events]),
        joined([event.action for event in events]),
        joined_bytes([event.data_json for event in events]),
        joined([content_digest(event.content).hex() for event in events]),
        noise.hex(PARTED, SALT_BYTES),
        joined([salted_digest(s, e.content).hex() for s, e in zip(salts, events, strict=True)]),
        *[speaker.workspace_id] * 3,
        speaker.kind,
        speaker.name,
    ]


def facts(speaker: Actor, events: Sequence[ParsedEvent], drawn: SequenceRange) -> list[StoredEvent]:
    """The events that were noted, with the places and the one moment that they were given."""
    return [
        StoredEvent(event.id, event.type, event.n, event.data, place, drawn.received,
                    speaker.is_desk, speaker.name, speaker.trusted, event.trace)
        for event, place in zip(events, drawn.places, strict=True)
    ]  # fmt: skip
