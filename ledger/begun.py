"""The usual begin: an action of which nothing is known yet is planned and started at once.

Such an action is folded from these two events alone, so its rows are made here, before the database
is asked anything. One server-side function (`ledger_begin`, in the migration of that name) looks
whether nothing is known of it indeed, and writes. It leaves the same rows as `ledger.record`, which
a test compares, and does the work of its dozen statements in one.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from ledger.canonical import content_digest, salted_digest
from ledger.fold import fold_action
from ledger.record import SALT_BYTES
from ledger.said import Fact, Said, Speaker
from ledger.wire import moment_text

# Places and the time are given by the database; the fold needs some in the right order.
PLACES = (1, 2)
SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)

# The parameters of `ledger_begin`, in their order, as `arguments` gives them.
PARAMETERS = """%b::bigint, jsonb_populate_record(NULL::ledger_event, %b::jsonb),
    jsonb_populate_record(NULL::ledger_event, %b::jsonb), %b::bytea[],
    jsonb_populate_record(NULL::ledger_action, %b::jsonb),
    jsonb_populate_record(NULL::ledger_attempt, %b::jsonb), %b::jsonb, %b::boolean,
    make_interval(secs => %b)"""

_json = msgspec.json.Encoder()


def arguments(
    speaker: Speaker,
    planned: Said,
    started: Said,
    *,
    labels: Mapping[str, Any] | None,
    may_follow_pivot: bool,
) -> list[Any]:
    """What `ledger_begin` is given. With `labels` the run must have these, else it may have any."""
    said = (planned, started)
    facts = [
        Fact(one.id, one.type, one.n, one.data, place, SOME_TIME, trusted=speaker.trusted,
             actor=speaker.name, trace=one.trace)
        for one, place in zip(said, PLACES, strict=True)
    ]  # fmt: skip
    row = fold_action(planned.action, facts)
    (attempt,) = row.attempts
    return [
        speaker.agent_id,
        *(_text(_event(speaker, one)) for one in said),
        [content_digest(one.content) for one in said],
        _text(row),
        _text(attempt),
        None if labels is None else _text(labels),
        may_follow_pivot,
        float(speaker.stuck_after_seconds),
    ]


def _text(value: Any) -> str:
    return _json.encode(value).decode()


def _event(speaker: Speaker, said: Said) -> dict[str, Any]:
    """The row of an event, but for its place and time."""
    salt = os.urandom(SALT_BYTES)
    return {
        "workspace_id": speaker.workspace_id,
        "event_id": said.id,
        "type": said.type,
        "time": None if said.time is None else moment_text(said.time),
        "run": said.run,
        "action": said.action,
        "n": said.n,
        "trace": said.trace,
        "actor_kind": speaker.kind,
        "actor": speaker.name,
        "key_prefix": speaker.key_prefix,
        "trusted": speaker.trusted,
        "data": said.data,
        "salt": f"\\x{salt.hex()}",
        "digest": f"\\x{salted_digest(salt, said.content).hex()}",
    }
