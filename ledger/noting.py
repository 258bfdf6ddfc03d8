"""Noting: the desk's events that go into the ledger and are not folded at once.

A recovery says four things of each step on the way to its end, and only the end changes what
anybody does. So those on the way are written down in one statement, durable and sealed like all
others, and whoever speaks next of the action in the usual way (`desk.say_all`) folds them with it:
the fold always looks at all events of an action. Until then the action's row lags behind its
events; every way on from a note must lead to an event that is said.
"""

import os
from collections.abc import Sequence

from psycopg import Connection, Cursor

from ledger.canonical import content_digest, salted_digest
from ledger.projections import json_text
from ledger.record import SALT_BYTES
from ledger.said import Said, Speaker
from ledger.statements import LIST, joined

_NOTE = f"""
WITH moment AS (SELECT clock_timestamp() AS received),
noted AS MATERIALIZED (
    SELECT nextval('ledger_place') AS place, u.* FROM unnest({", ".join([LIST] * 8)})
    AS u (event_id, type, run, action, data, content, salt, digest)),
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
FROM noted, moment"""  # noqa: S608


def note(connection: Connection[object], speaker: Speaker, events: Sequence[Said]) -> None:
    """Write down `events`, whose ids are new, in the transaction that is open."""
    noise = os.urandom(SALT_BYTES * len(events))
    salts = [noise[i : i + SALT_BYTES] for i in range(0, len(noise), SALT_BYTES)]
    Cursor(connection).execute(
        _NOTE,
        [
            joined(event.id for event in events),
            joined(event.type for event in events),
            joined(event.run for event in events),
            joined(event.action for event in events),
            joined(json_text(event.data) for event in events),
            joined(content_digest(event.content).hex() for event in events),
            joined(salt.hex() for salt in salts),
            joined(salted_digest(s, e.content).hex() for s, e in zip(salts, events, strict=True)),
            *[speaker.workspace_id] * 3,
            speaker.kind,
            speaker.name,
        ],
    )
