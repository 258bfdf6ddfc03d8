"""The usual begin: an action of which nothing is known yet is planned and started at once.

Such an action is folded from these two events alone, so its rows are made here, before the database
is asked anything. One server-side function (`ledger_begin`, in the last migration of that name)
looks whether nothing is known of it indeed, and writes. It leaves the same rows as `ledger.record`,
which a test compares, and does the work of its dozen statements in three.
"""

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from ledger.canonical import content_digest, salted_digest
from ledger.fold.actions import planned_alone
from ledger.record import SALT_BYTES
from ledger.said import Said, Speaker

ATTEMPT_CHARACTERS_MAX = 120
RETRY_CHARACTERS_MAX = 10

# The parameters of `ledger_begin`: the names and types that its migration gives them, in the order
# of `arguments`.
SIGNATURE = {
    "here": "bigint", "of_agent": "bigint", "said_by": "text", "by_key": "text",
    "is_trusted": "boolean", "of_run": "text", "of_action": "text", "at_n": "integer",
    "at_time": "timestamptz", "traced": "jsonb",
    "planned_id": "text", "planned_data": "jsonb", "planned_content": "bytea",
    "planned_salt": "bytea", "planned_digest": "bytea",
    "started_id": "text", "started_data": "jsonb", "started_content": "bytea",
    "started_salt": "bytea", "started_digest": "bytea",
    "with_tool": "text", "in_class": "text", "at_risk": "text", "in_saga": "text", "for_op": "text",
    "under_key": "text", "with_targets": "jsonb", "with_args": "jsonb", "with_digest": "text",
    "with_intent": "jsonb", "with_compensation": "jsonb", "with_before": "jsonb",
    "try": "text", "tried_by": "text",
    "labels_seen": "jsonb", "may_follow_pivot": "boolean", "stuck_after": "interval",
}  # fmt: skip
_PASSED = {"interval": "make_interval(secs => %b)"}
PARAMETERS = ", ".join(_PASSED.get(kind, f"%b::{kind}") for kind in SIGNATURE.values())

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
    row = planned_alone(planned.action, planned.data)
    return [
        speaker.workspace_id, speaker.agent_id, speaker.name, speaker.key_prefix, speaker.trusted,
        planned.run, planned.action, planned.n, planned.time, _text(planned.trace),
        *_event(planned), *_event(started),
        row.tool, row.action_class, row.risk, row.saga, row.op, row.key, _text(row.targets),
        _text(row.args), row.args_digest, _text(row.intent), _text(row.compensation),
        _text(row.before),
        started.data["attempt"][:ATTEMPT_CHARACTERS_MAX],
        started.data.get("retry", "")[:RETRY_CHARACTERS_MAX],
        _text(labels), may_follow_pivot, float(speaker.stuck_after_seconds),
    ]  # fmt: skip


def _text(value: Any) -> str | None:
    return None if value is None else _json.encode(value).decode()


def _event(said: Said) -> tuple[str, str, bytes, bytes, bytes]:
    salt = os.urandom(SALT_BYTES)
    digest = salted_digest(salt, said.content)
    return said.id, said.data_json.decode(), content_digest(said.content), salt, digest
