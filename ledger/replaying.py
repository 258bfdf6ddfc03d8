"""The events read anew: a run as it was known after each of them, and every row they come to."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.urls import reverse
from django.utils.html import format_html

from amends.protocol.vocabulary import EventType
from ledger import drivers, snapshots, timestamps
from ledger.api import first_traces
from ledger.append import projection, statements
from ledger.append.projection import ExistingAction, locked_runs, stored_event_of
from ledger.append.statements import LastWrites, StatementGenerator
from ledger.desk_events import people_of
from ledger.drivers import plain_connection
from ledger.fold.actions import CHANGED_NOTHING, ActionRow, fold_action
from ledger.fold.effects import EffectRow
from ledger.fold.meaning import moves_action, moves_run
from ledger.fold.runs import checkpoint_of, fold_run
from ledger.models import UNNAMED, ActionState, Event, Run
from ledger.parsed_events import StoredEvent
from ledger.settlements import OUTCOMES, Settlement, settlements_in
from ledger.snapshots import digest_of, is_ref
from workspaces import formatting
from workspaces.pages import LONG_FROM, folded, tallied

EVENTS_REPLAYED_MAX = 2_000
STEPS_SHOWN = 200
FIELDS_SHOWN_MAX = 60

UNDONE: Mapping[str, str] = {
    "partly": "Undone in part",
    "repaired": "Record repaired; could not be undone",
    "compensated": "Undone",
    "corrected": "Correction sent",
}
"""What became of an effect, as far as the ledger alone tells: pages that know the step say how."""

TOLD: Mapping[str, str] = {
    "requested": "people that they are asked",
    "reminded": "people that half of the time is over",
    "questioned": "people that a decider has a question",
    "answered": "people that a question is answered",
    "affected": "the affected person that they are asked",
    "heard": "people what the affected person wants",
    "ended": "people how the question ended",
}
"""What a message about an approval was about, by the kind that it has there."""

WORDS: Mapping[str, str] = {
    EventType.RUN_STARTED: "The run started",
    EventType.RUN_COMPLETED: "The run completed",
    EventType.RUN_FAILED: "The run failed",
    EventType.RUN_CANCELLED: "The run was cancelled",
    EventType.RUN_RESUMED: "The run resumed",
    EventType.RUN_CHECKPOINT: "Checkpoint",
    EventType.ACTION_PLANNED: "Planned",
    EventType.ACTION_STARTED: "Started",
    EventType.ACTION_SUCCEEDED: "Succeeded",
    EventType.ACTION_FAILED: "Failed",
    EventType.ACTION_VERIFIED: "Checked",
    EventType.ACTION_APPROVED: "Approved",
    EventType.APPROVAL_GRANTED: "Answered yes",
    EventType.APPROVAL_REJECTED: "Answered no",
    EventType.APPROVAL_CHANGED: "An approver changed the arguments",
    EventType.APPROVAL_DRAWN: "Went on under a bounded grant",
    EventType.ACTION_COMPENSATED: "Compensated",
    EventType.ACTION_SETTLED: "Settled",
    EventType.DATA_EXPORTED: "List downloaded as a file",
}


@dataclass
class Replay:
    """The events of a run in the ledger's order, and the step at which we stand (from 1)."""

    run: Run
    events: list[Event]
    step: int
    is_cut: bool

    def shown(self, url: str, *, sensitive: bool) -> dict[str, Any]:
        """What the template needs."""
        until = self.events[: self.step]
        stored_events = [_stored_event(event) for event in until]
        current = until[-1] if until else None
        life = fold_run([stored for stored in stored_events if moves_run(stored.type)])
        first = max(0, self.step - STEPS_SHOWN // 2)
        steps = self.events[first : first + STEPS_SHOWN]
        tools = _tools(self.events)
        settled = settlements_in(until)
        traces = first_traces((event.action, event.trace) for event in until if event.action)
        rows, slug = _actions(until, stored_events), self.run.workspace.slug
        if sensitive:
            told = (effect for row in rows for effect in row.effects)
            snapshots.put_in_place(self.run.workspace_id, told)
        return {
            "step": self.step,
            "count": len(self.events),
            "is_cut": self.is_cut,
            "state": life.state,
            "previous": f"{url}?step={self.step - 1}" if self.step > 1 else "",
            "next": f"{url}?step={self.step + 1}" if self.step < len(self.events) else "",
            "steps": [
                _line(event, n, self.step, url, tools) for n, event in enumerate(steps, first + 1)
            ],
            "event": _event(current, self.run.workspace.slug, sensitive=sensitive)
            if current
            else None,
            "actions": folded(
                [
                    _action(row, settled.get(row.action), slug, sensitive=sensitive)
                    | {
                        "trace": traces.get(row.action),
                        "current": current is not None and row.action == current.action,
                    }
                    for row in rows
                ],
                _went_well,
                _in_short,
            ),
            "outline": tallied(row.tool or UNNAMED for row in rows)
            if len(rows) > LONG_FROM
            else "",
        }


def replay(run: Run, step: int | None) -> Replay:
    """Load the run's events, at most 2,000; without a step we stand after the last one."""
    found = list(
        Event.objects.filter(
            workspace_id=run.workspace_id, run=run.run, received_at__gte=run.started_at
        ).order_by("place")[: EVENTS_REPLAYED_MAX + 1]
    ) if run.started_at else []  # fmt: skip
    events = found[:EVENTS_REPLAYED_MAX]
    at = len(events) if step is None else max(1, min(step, len(events)))
    return Replay(run, events, min(at, len(events)), len(found) > len(events))


def _stored_event(event: Event) -> StoredEvent:
    return StoredEvent(
        event.event_id, event.type, event.n, event.data or {}, event.place, event.received_at,
        event.actor, event.trusted, event.trace,
    )  # fmt: skip


def _actions(events: list[Event], stored_events: list[StoredEvent]) -> list[ActionRow]:
    grouped: dict[str, list[StoredEvent]] = defaultdict(list)
    for event, stored in zip(events, stored_events, strict=True):
        if event.action and moves_action(stored.type):
            grouped[event.action].append(stored)
    rows = [fold_action(action, said) for action, said in grouped.items()]
    return sorted(rows, key=lambda row: (row.n is None, row.n or 0, row.first_place))


def words_of(event: Event) -> str:
    if event.type == EventType.APPROVAL_TOLD:
        told = told_words(event)
        return f"{told[:1].upper()}{told[1:]}"
    word = WORDS.get(event.type)
    return word or event.type.replace(".", " ").replace("_", " ").capitalize()


def told_words(event: Event) -> str:
    """What was told whom about an approval, or could not be: `told people that they are asked`."""
    data = event.data or {}
    told = TOLD.get(str(data.get("about")), "people of the question")
    failed = "arrived" in data and data["arrived"] is None
    return f"could not tell {told}" if failed else f"told {told}"


def _tools(events: list[Event]) -> dict[str, str]:
    """The tool of each action, which only its plan names."""
    planned = (
        (one.action, one.data or {}) for one in events if one.type == EventType.ACTION_PLANNED
    )
    return {action: str(data["tool"]) for action, data in planned if data.get("tool")}


def _line(
    event: Event, number: int, current: int, url: str, tools: dict[str, str]
) -> dict[str, Any]:
    data = event.data or {}
    return {
        "number": number,
        "url": f"{url}?step={number}",
        "current": number == current,
        "words": _checked(event) or words_of(event),
        "what": data.get("tool") or data.get("name") or tools.get(event.action, event.action),
        "time": formatting.moment(event.received_at, "clock"),
    }


def _checked(event: Event) -> str:
    """How a check or a settlement went; nothing of others, or where the payload is erased."""
    if event.type == EventType.ACTION_SETTLED and event.data:
        return f"Settled: {OUTCOMES.get(str(event.data.get('outcome')), 'outcome unknown')}"
    if event.type != EventType.ACTION_VERIFIED or not event.data:
        return ""
    return "Check passed" if event.data.get("ok") is not False else "Check failed"


def _event(event: Event, slug: str, *, sensitive: bool) -> dict[str, Any]:
    who = people_of([event]) if event.actor_kind == "person" else {}
    return {
        "words": _checked(event) or words_of(event),
        "type": event.type,
        "url": reverse("ledger:event", args=[slug, event.event_id]),
        "id": event.event_id,
        "actor": next(map(str, who.values()), event.actor),
        "actor_kind": event.actor_kind,
        "received": formatting.moment(event.received_at, "full"),
        "said_at": formatting.moment(event.time, "full") if event.time else "",
        "astray": timestamps.astray(event.time, event.received_at),
        "erased": event.data is None,
        "data": pretty(event.data) if sensitive else "",
    }


def pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)


def _action(
    row: ActionRow, settled: Settlement | None, slug: str, *, sensitive: bool
) -> dict[str, Any]:
    return {
        "action": row.action,
        "tool": row.tool or UNNAMED,
        "targets": ", ".join(f"{one.get('type')} {one.get('id')}" for one in row.targets),
        "state": (settled.state if settled else "") or row.state,
        "settled": f"{settled.words}: “{settled.text}”" if settled else "",
        "check": "" if row.verified == "not_yet" else row.verified,
        "compensated": UNDONE.get(row.compensated, ""),
        "attempts": len(row.attempts),
        "flags": [in_words(flag) for flag in row.flags],
        "args": pretty(row.args) if sensitive and row.args is not None else "",
        "asked": pretty(row.asked_args) if sensitive and row.asked_args is not None else "",
        "effects": [_effect(effect, slug, sensitive=sensitive) for effect in row.effects],
    }


def in_words(flag: str) -> str:
    return flag.replace("_", " ").replace("disagree:", "its events disagree about ")


def _went_well(action: dict[str, Any]) -> bool:
    """Whether somebody who looks for what went wrong may pass over it."""
    flags = set(action["flags"]) - {in_words(CHANGED_NOTHING)}
    told = action["current"] or action["settled"] or flags or action["compensated"]
    return not told and action["state"] == ActionState.SUCCEEDED and action["check"] != "failed"


def _in_short(actions: Sequence[dict[str, Any]]) -> str:
    tools = tallied(action["tool"] for action in actions)
    return f"{len(actions)} that went well: {tools}"


def _effect(effect: EffectRow, slug: str, *, sensitive: bool) -> dict[str, Any]:
    return {
        "target": f"{effect.target_type} {effect.target_id}",
        "summary": effect.summary,
        "reversibility": effect.reversibility,
        "compensated": UNDONE.get(effect.compensated, ""),
        "diff": diff_rows(effect, slug) if sensitive else [],
    }


def too_large(before: Any, after: Any, slug: str) -> dict[str, Any]:
    """The row of a diff whose snapshots are not looked into: each by a link to it."""
    return {
        "field": "the whole",
        "was": _linked(before, slug),
        "now": _linked(after, slug),
        "kind": "changed",
        "note": "too large to compare here, or no longer kept",
    }


def _linked(value: Any, slug: str) -> Any:
    if not is_ref(value):
        return None if value is None else "a snapshot"
    url = reverse("ledger:snapshot", args=[slug, digest_of(value)])
    return format_html('<a href="{}" download>snapshot {}…</a>', url, digest_of(value)[:12])


def diff_rows(effect: EffectRow, slug: str) -> list[dict[str, Any]]:
    """Was and now, field by field, for the diff tag; fields that stayed are left out."""
    if is_ref(effect.before) or is_ref(effect.after):
        same = effect.before == effect.after
        return [] if same else [too_large(effect.before, effect.after, slug)]
    was = effect.before if isinstance(effect.before, dict) else {"value": effect.before}
    now = effect.after if isinstance(effect.after, dict) else {"value": effect.after}
    if effect.before is None and isinstance(effect.after, dict):
        was = {}
    if effect.after is None and isinstance(effect.before, dict):
        now = {}
    rows = []
    for field in [*was, *(name for name in now if name not in was)]:
        if was.get(field) != now.get(field) or (field in was) != (field in now):
            kind = "added" if field not in was else "removed" if field not in now else "changed"
            rows.append({"field": field, "was": _short(was.get(field)),
                         "now": _short(now.get(field)), "kind": kind})  # fmt: skip
    return rows[:FIELDS_SHOWN_MAX]


def _short(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else json.dumps(value, sort_keys=True)


# Folding everything anew: the projections are a function of the events, and this computes it.
#
# Rows are changed in place, for cases and plans point at them. Leases, holds and what triage has
# seen are not statements of events and stay.

RUNS_AT_A_TIME = 200

EVENTS_OF_RUNS = """
SELECT run, action, event_id, type, n, data::text, place, received_at, actor, trusted, trace::text
FROM ledger_event WHERE workspace_id = (SELECT %b::bigint) AND run = ANY(%b::text[])"""

MISSING_RUNS = """
INSERT INTO ledger_run (workspace_id, run, agent_id, model, request, goal, customer, customer_name,
    labels, state, summary, failed_action, cancelled_by, reason, resumed_from, flags, revision,
    seen_revision, search_revision, held_by, action_count, effect_count)
SELECT %b, e.run, min(a.id), '', '', '', '', '', '{}', 'running', '', '', '', '', '', '{}', 0, 0,
    0, '', 0, 0
FROM ledger_event e
LEFT JOIN workspaces_agent a
    ON e.actor_kind = 'agent' AND a.workspace_id = e.workspace_id AND a.name = e.actor
WHERE e.workspace_id = %b AND e.run <> ''
    AND (e.type LIKE 'run.%%' OR e.type LIKE 'action.%%' OR e.type LIKE 'plan.%%'
         OR e.type LIKE 'step.%%')
GROUP BY e.run ON CONFLICT (workspace_id, run) DO NOTHING"""

SUMS = """
UPDATE ledger_run r SET first_place = u.first_place, last_place = u.last_place,
    started_at = u.started_at::timestamptz, last_event_at = u.last_at::timestamptz,
    action_count = (SELECT count(*) FROM ledger_action a WHERE a.run_id = r.id),
    effect_count = (SELECT count(*) FROM ledger_effect f JOIN ledger_action a ON a.id = f.action_id
        WHERE a.run_id = r.id AND NOT f.withdrawn)
FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::text[], %b::text[])
AS u (id, first_place, last_place, started_at, last_at)
WHERE r.id = u.id"""


def rebuild(workspace_id: int) -> Iterator[int]:
    """Fold all runs of a workspace anew, some at a time; yields how many were done."""
    with connection.cursor() as cursor:
        cursor.execute(MISSING_RUNS.replace("%b", "%s"), [workspace_id, workspace_id])
    after = ""
    while names := _next_names(workspace_id, after):
        with transaction.atomic():
            drivers.run(_fold_runs(workspace_id, names), plain_connection())
        after = names[-1]
        yield len(names)


def _next_names(workspace_id: int, after: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT run FROM ledger_run WHERE workspace_id = %s AND run > %s"
            " AND forgotten_at IS NULL ORDER BY run LIMIT %s",
            [workspace_id, after, RUNS_AT_A_TIME],
        )
        return [name for (name,) in cursor.fetchall()]


def _fold_runs(workspace_id: int, names: list[str]) -> StatementGenerator[None]:
    locked, events = yield [
        (statements.LOCK_RUNS, [names, workspace_id]),
        (EVENTS_OF_RUNS, [workspace_id, names]),
    ]
    runs = locked_runs(locked)
    ids = {name: run.id for name, run in runs.items()}
    of_action: dict[tuple[str, str], list[StoredEvent]] = defaultdict(list)
    of_run: dict[str, list[StoredEvent]] = defaultdict(list)
    moved: dict[str, list[StoredEvent]] = defaultdict(list)
    # What was erased cannot be folded anew: the rows of such an action stand as they are.
    erased = {(run, action) for run, action, _, _, _, data, *_ in events if action and data is None}
    for run, action, *rest in events:
        stored = stored_event_of(*rest)
        if action and moves_action(stored.type) and (run, action) not in erased:
            of_action[run, action].append(stored)
        if moves_run(stored.type):
            of_run[run].append(stored)
        if moves_run(stored.type) or moves_action(stored.type):
            moved[run].append(stored)
    known, fresh = yield [
        (statements.KNOWN_ACTIONS, [[ids[r] for r, _ in of_action], [a for _, a in of_action]]),
        (statements.ACTION_IDS, [len(of_action)]),
    ]
    existing = {(run_id, action): ExistingAction(*row) for run_id, action, *row in known}
    fresh_ids = iter(fresh[0][0] or ())
    actions = []
    for (run, action), found in of_action.items():
        row = existing.get((ids[run], action))
        id_, effects = row or (next(fresh_ids), None)
        folded = fold_action(action, found)
        actions.append(projection.Folded(id_, ids[run], runs[run].agent_id, effects, folded))
    checkpoints = [
        (ids[run], checkpoint_of(stored))
        for run, found in of_run.items()
        for stored in found
        if stored.type == EventType.RUN_CHECKPOINT
    ]
    yield LastWrites(
        [
            *projection.write_actions(workspace_id, actions),
            *projection.write_runs([(ids[run], fold_run(found)) for run, found in of_run.items()]),
            *projection.write_checkpoints(checkpoints),
            (SUMS, _sums(ids, moved)),
        ]
    )


def _sums(ids: dict[str, int], moved: dict[str, list[StoredEvent]]) -> list[list[Any]]:
    return [
        [ids[run] for run in moved],
        [min(stored.sequence for stored in found) for found in moved.values()],
        [max(stored.sequence for stored in found) for found in moved.values()],
        [min(stored.received for stored in found).isoformat() for found in moved.values()],
        [max(stored.received for stored in found).isoformat() for found in moved.values()],
    ]
