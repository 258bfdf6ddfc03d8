"""Writing folded rows, set-based: one upsert for all actions of a batch, one for all attempts …

A column is a name and the way it travels: `json` and `moment` as text that PostgreSQL casts,
`words` as a list joined by commas, `number` as an integer with a stand-in for NULL.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from ledger.append.statements import (
    LIST,
    NAMELESS_ATTEMPTS,
    TOUCH,
    WITHDRAW_EFFECTS,
    Statement,
    joined,
    joined_numbers,
    joined_texts,
    json_text,
)
from ledger.fold import ActionRow, CheckpointRow, RunRow
from ledger.parsed_events import Actor

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


def _columns(rows: Sequence[Any], columns: Mapping[str, str]) -> list[str]:
    """The values of each column as one text."""
    return _lists(rows, columns.values(), columns)


def _lists(rows: Sequence[Any], kinds: Iterable[str], names: Iterable[str]) -> list[str]:
    by_column = zip(*map(attrgetter(*names), rows), strict=True)
    return [_PACKS[kind](values) for kind, values in zip(kinds, by_column, strict=True)]


def _source(keys: Mapping[str, str], columns: Mapping[str, str]) -> str:
    names = [*keys, *columns]
    return f"unnest({', '.join([LIST] * len(names))}) AS u ({', '.join(names)})"


def _lands(columns: Mapping[str, str]) -> str:
    return ", ".join(_LANDS[kind].format(name) for name, kind in columns.items())


def _excluded(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = excluded.{name}" for name in columns)


# Keys were looked up under the run's lock, so what is new is inserted plainly: to ask once more for
# each row whether it is there would cost as much as a third of it.
_ACTION_KEYS = {"id": "whole", "agent_id": "number", "run_id": "whole", "action": "text"}
NEW_ACTIONS = f"""
INSERT INTO ledger_action (workspace_id, {", ".join(_ACTION_KEYS | ACTION)})
SELECT %b, {_lands(_ACTION_KEYS | ACTION)}
FROM {_source({}, _ACTION_KEYS | ACTION)}"""  # noqa: S608
KNOWN_ACTIONS = f"{NEW_ACTIONS} ON CONFLICT (id) DO UPDATE SET {_excluded(ACTION)}"

_ATTEMPT_KEYS = {"action_id": "whole", "attempt": "text"}
NEW_ATTEMPTS = f"""
INSERT INTO ledger_attempt ({", ".join(_ATTEMPT_KEYS | ATTEMPT)})
SELECT {_lands(_ATTEMPT_KEYS | ATTEMPT)}
FROM {_source({}, _ATTEMPT_KEYS | ATTEMPT)}"""  # noqa: S608
KNOWN_ATTEMPTS = (
    f"{NEW_ATTEMPTS} ON CONFLICT (action_id, attempt) DO UPDATE SET {_excluded(ATTEMPT)}"
)

_EFFECT_KEYS = {"action_id": "whole", "position": "whole"}
NEW_EFFECTS = f"""
INSERT INTO ledger_effect (workspace_id, withdrawn, {", ".join(_EFFECT_KEYS | EFFECT)})
SELECT %b, false, {_lands(_EFFECT_KEYS | EFFECT)}
FROM {_source({}, _EFFECT_KEYS | EFFECT)}"""  # noqa: S608
KNOWN_EFFECTS = f"""{NEW_EFFECTS}
ON CONFLICT (action_id, position) DO UPDATE SET withdrawn = false, {_excluded(EFFECT)}"""

_RUN_SET = ", ".join(f"{name} = {_LANDS[kind].format(name)}" for name, kind in RUN.items())
UPDATE_RUNS = f"""
UPDATE ledger_run r SET {_RUN_SET}
FROM {_source({"id": "whole"}, RUN)} WHERE r.id = u.id::bigint"""  # noqa: S608

_TOUCHED = {
    "id": "whole", "first_place": "whole", "last_place": "whole", "actions": "whole",
    "effects": "whole",
}  # fmt: skip
TOUCH_RUNS = f"""
UPDATE ledger_run r SET {TOUCH}
FROM {_source({}, _TOUCHED)} WHERE r.id = u.id::bigint"""  # noqa: S608
MOVE_RUNS = f"""
UPDATE ledger_run r SET {TOUCH}, {_RUN_SET}
FROM {_source(_TOUCHED, RUN)} WHERE r.id = u.id::bigint"""  # noqa: S608


class Folded(NamedTuple):
    """An action as it was folded, and where its row stands or will stand.

    `known_effects` is how many effects its row has so far, None if there is no such row.
    """

    id: int
    run_id: int
    agent_id: int | None
    known_effects: int | None
    row: ActionRow


def write_actions(workspace_id: int, folded: Sequence[Folded]) -> list[Statement]:
    """The statements that write folded actions, their attempts and effects."""
    new = [one for one in folded if one.known_effects is None]
    known = [one for one in folded if one.known_effects is not None]
    named = [one.id for one in known if all(attempt.attempt for attempt in one.row.attempts)]
    fewer = [one for one in known if (one.known_effects or 0) > len(one.row.effects)]
    statements = [
        *_write(workspace_id, new, NEW_ACTIONS, NEW_ATTEMPTS, NEW_EFFECTS),
        *_write(workspace_id, known, KNOWN_ACTIONS, KNOWN_ATTEMPTS, KNOWN_EFFECTS),
    ]
    if named:
        statements.append((NAMELESS_ATTEMPTS, [named]))
    if fewer:
        kept = [len(one.row.effects) for one in fewer]
        statements.append((WITHDRAW_EFFECTS, [[one.id for one in fewer], kept]))
    return statements


def _write(
    workspace_id: int, folded: Sequence[Folded], actions: str, attempts: str, effects: str
) -> list[Statement]:
    if not folded:
        return []
    rows = [one.row for one in folded]
    keys = _lists(folded, ("whole", "number", "whole"), ("id", "agent_id", "run_id"))
    names = joined_texts([row.action for row in rows])
    found: list[Statement] = [(actions, [workspace_id, *keys, names, *_columns(rows, ACTION)])]
    tried = [one for row in rows for one in row.attempts]
    if tried:
        ids = joined_numbers([one.id for one in folded for _ in one.row.attempts])
        names = joined_texts([one.attempt for one in tried])
        found.append((attempts, [ids, names, *_columns(tried, ATTEMPT)]))
    done = [one for row in rows for one in row.effects]
    if done:
        ids = joined_numbers([one.id for one in folded for _ in one.row.effects])
        places = joined_numbers([one.position for one in done])
        found.append((effects, [workspace_id, ids, places, *_columns(done, EFFECT)]))
    return found


def write_runs(folded: Sequence[tuple[int, RunRow]]) -> list[Statement]:
    if not folded:
        return []
    rows = [row for _, row in folded]
    return [(UPDATE_RUNS, [joined_numbers(run for run, _ in folded), *_columns(rows, RUN)])]


class Touch(NamedTuple):
    """What new events do to a run: between which places they stand, and how many rows it gains.

    `row` is what the run as a whole now is, None if they say nothing of it.
    """

    id: int
    first_place: int
    last_place: int
    actions: int
    effects: int
    row: RunRow | None


def touch_runs(touches: Sequence[Touch], actor: Actor, received: datetime) -> list[Statement]:
    """One update for the runs that are folded anew, and one for those that are only touched."""
    now = [received, received, not actor.is_desk, received, float(actor.stuck_after_seconds)]
    moved = [touch for touch in touches if touch.row is not None]
    touched = [touch for touch in touches if touch.row is None]
    found: list[Statement] = []
    if moved:
        rows = [touch.row for touch in moved]
        found.append((MOVE_RUNS, [*now, *_columns(moved, _TOUCHED), *_columns(rows, RUN)]))
    if touched:
        found.append((TOUCH_RUNS, [*now, *_columns(touched, _TOUCHED)]))
    return found


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
    return [
        (NEW_CHECKPOINTS, [joined_numbers(run for run, _ in found), *_columns(rows, CHECKPOINT)])
    ]
