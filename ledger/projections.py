"""Writing folded rows, set-based: one upsert for all actions of a batch, one for all attempts …

A column is a name and the way it travels: `json` and `moment` as text that PostgreSQL casts,
`words` as a list joined by commas, `number` as an integer with a stand-in for NULL.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from ledger.fold import ActionRow, AttemptRow, CheckpointRow, EffectRow, RunRow
from ledger.statements import (
    LIST,
    NAMELESS_ATTEMPTS,
    WITHDRAW_EFFECTS,
    Statement,
    joined,
    joined_numbers,
    joined_texts,
)

_json = msgspec.json.Encoder()

RUN = {
    "state": "text", "model": "text", "request": "text", "goal": "text", "customer": "text",
    "customer_name": "text", "on_behalf_of": "json", "labels": "json", "trace": "json",
    "summary": "text", "error": "json", "failed_action": "text", "cancelled_by": "text",
    "reason": "text", "resumed_from": "text", "flags": "words", "ended_at": "moment",
}  # fmt: skip
ACTION = {
    "n": "number", "first_place": "whole", "last_place": "whole", "tool": "text",
    "action_class": "text", "risk": "text", "saga": "text", "op": "text", "key": "text",
    "targets": "json", "args": "json", "args_digest": "text", "intent": "json",
    "compensation": "json", "before": "json", "result": "json", "error": "json", "state": "text",
    "compensated": "text", "verified": "text", "checks": "json", "settled_by": "text",
    "flags": "words", "trusted": "claim", "current_attempt": "text", "fence": "whole",
    "planned_at": "moment", "started_at": "moment", "finished_at": "moment",
}  # fmt: skip
ATTEMPT = {
    "state": "text", "fence": "number", "stale": "claim", "retry": "text", "error": "json",
    "started_at": "moment", "finished_at": "moment",
}  # fmt: skip
EFFECT = {
    "target_type": "text", "target_id": "text", "before": "json", "after": "json",
    "has_before": "claim", "has_after": "claim", "source": "text", "summary": "text",
    "reversibility": "text", "undo_until": "moment", "affects": "json", "compensated": "text",
}  # fmt: skip

_LANDS = {
    "text": "coalesce(u.{0}, '')", "json": "u.{0}::jsonb", "moment": "u.{0}::timestamptz",
    "words": "string_to_array(coalesce(u.{0}, ''), ',')", "number": "u.{0}::bigint",
    "whole": "u.{0}::bigint", "claim": "u.{0}::boolean",
}  # fmt: skip


def json_text(value: Any) -> str | None:
    return None if value is None else _json.encode(value).decode()


@lru_cache(maxsize=1024)  # the rows of a batch were received at one moment
def moment_or_none(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


_PACKS: dict[str, Callable[[Iterable[Any]], str]] = {
    "text": joined_texts,
    "json": lambda values: joined(map(json_text, values)),
    "moment": lambda values: joined(map(moment_or_none, values)),
    "words": lambda values: joined(map(",".join, values)),
    "number": lambda values: joined(None if value is None else str(value) for value in values),
    "whole": joined_numbers,
    "claim": lambda values: joined("t" if value else "f" for value in values),
}


def _lists(rows: Sequence[Any], columns: Mapping[str, str]) -> list[str]:
    """The values of each column as one text."""
    by_column = zip(*map(attrgetter(*columns), rows), strict=True)
    return [_PACKS[kind](values) for kind, values in zip(columns.values(), by_column, strict=True)]


def _source(keys: Mapping[str, str], columns: Mapping[str, str]) -> str:
    names = [*keys, *columns]
    return f"unnest({', '.join([LIST] * len(names))}) AS u ({', '.join(names)})"


def _lands(columns: Mapping[str, str]) -> str:
    return ", ".join(_LANDS[kind].format(name) for name, kind in columns.items())


def _excluded(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = excluded.{name}" for name in columns)


# One probe per row. As joins, these read whole tables where the statistics are not up to date.
_AGENT = "(SELECT agent_id FROM ledger_run WHERE id = u.run_id::bigint)"
_ACTION = "(SELECT id FROM ledger_action WHERE run_id = u.run_id::bigint AND action = u.action)"
_KEYS = {"run_id": "whole", "action": "text"}

UPSERT_ACTIONS = f"""
INSERT INTO ledger_action (workspace_id, agent_id, run_id, action, {", ".join(ACTION)})
SELECT %b, {_AGENT}, u.run_id::bigint, u.action, {_lands(ACTION)}
FROM {_source(_KEYS, ACTION)}
ON CONFLICT (run_id, action) DO UPDATE SET {_excluded(ACTION)}"""  # noqa: S608

UPSERT_ATTEMPTS = f"""
INSERT INTO ledger_attempt (action_id, attempt, {", ".join(ATTEMPT)})
SELECT {_ACTION}, coalesce(u.attempt, ''), {_lands(ATTEMPT)}
FROM {_source(_KEYS | {"attempt": "text"}, ATTEMPT)}
ON CONFLICT (action_id, attempt) DO UPDATE SET {_excluded(ATTEMPT)}"""  # noqa: S608

UPSERT_EFFECTS = f"""
INSERT INTO ledger_effect (workspace_id, action_id, position, withdrawn, {", ".join(EFFECT)})
SELECT %b, {_ACTION}, u.position::int, false, {_lands(EFFECT)}
FROM {_source(_KEYS | {"position": "whole"}, EFFECT)}
ON CONFLICT (action_id, position)
DO UPDATE SET withdrawn = false, {_excluded(EFFECT)}"""  # noqa: S608

_RUN_SET = ", ".join(f"{name} = {_LANDS[kind].format(name)}" for name, kind in RUN.items())
UPDATE_RUNS = f"""
UPDATE ledger_run r SET {_RUN_SET}
FROM {_source({"id": "whole"}, RUN)} WHERE r.id = u.id::bigint"""  # noqa: S608


def write_actions(
    workspace_id: int,
    folded: Sequence[tuple[int, ActionRow]],
    had_effects: Mapping[tuple[int, str], int],
) -> list[Statement]:
    """The statements that write folded actions, given as (run's id, row)."""
    if not folded:
        return []
    rows = [row for _, row in folded]
    statements: list[Statement] = [
        (UPSERT_ACTIONS, [workspace_id, *_joined_keys(folded), *_lists(rows, ACTION)])
    ]
    attempts = [(run, row, one) for run, row in folded for one in row.attempts]
    if attempts:
        statements.append(_of_action(UPSERT_ATTEMPTS, [], attempts, "attempt", ATTEMPT))
    effects = [(run, row, one) for run, row in folded for one in row.effects]
    if effects:
        statements.append(_of_action(UPSERT_EFFECTS, [workspace_id], effects, "position", EFFECT))
    named = [
        (run, row)
        for run, row in folded
        if (run, row.action) in had_effects and all(one.attempt for one in row.attempts)
    ]
    if named:
        statements.append((NAMELESS_ATTEMPTS, _keys(named)))
    fewer = [
        (run, row)
        for run, row in folded
        if had_effects.get((run, row.action), 0) > len(row.effects)
    ]
    if fewer:
        kept = [len(row.effects) for _, row in fewer]
        statements.append((WITHDRAW_EFFECTS, [*_keys(fewer), kept]))
    return statements


def _keys(folded: Iterable[tuple[int, ActionRow]]) -> list[list[Any]]:
    runs, actions = zip(*((run, row.action) for run, row in folded), strict=True)
    return [list(runs), list(actions)]


def _joined_keys(folded: Iterable[tuple[int, ActionRow]]) -> list[str]:
    runs, actions = _keys(folded)
    return [joined_numbers(runs), joined_texts(actions)]


def _of_action(
    sql: str,
    leading: list[Any],
    found: Sequence[tuple[int, ActionRow, AttemptRow | EffectRow]],
    name: str,
    columns: Mapping[str, str],
) -> Statement:
    rows = [one for _, _, one in found]
    keys = _joined_keys((run, row) for run, row, _ in found)
    third = joined_texts(str(getattr(row, name)) for row in rows)
    return sql, [*leading, *keys, third, *_lists(rows, columns)]


def write_runs(folded: Sequence[tuple[int, RunRow]]) -> list[Statement]:
    if not folded:
        return []
    rows = [row for _, row in folded]
    return [(UPDATE_RUNS, [joined_numbers(run for run, _ in folded), *_lists(rows, RUN)])]


CHECKPOINT = {
    "event_id": "text", "name": "text", "n": "number", "place": "whole", "at": "moment",
    "state": "json", "state_ref": "text", "completed": "json", "pending": "json",
    "recovery_mode": "text", "instructions": "text", "summary": "text",
}  # fmt: skip
NEW_CHECKPOINTS = f"""
INSERT INTO ledger_checkpoint (run_id, {", ".join(CHECKPOINT)})
SELECT u.run_id::bigint, {_lands(CHECKPOINT)}
FROM {_source({"run_id": "whole"}, CHECKPOINT)}
ON CONFLICT (run_id, event_id) DO NOTHING"""  # noqa: S608


def write_checkpoints(found: Sequence[tuple[int, CheckpointRow]]) -> list[Statement]:
    if not found:
        return []
    rows = [row for _, row in found]
    return [(NEW_CHECKPOINTS, [joined_numbers(run for run, _ in found), *_lists(rows, CHECKPOINT)])]
