"""Replay: a run read back from the ledger alone, as it was known after each event."""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.html import format_html

from amends.protocol.vocabulary import EventType
from ledger import clocks, snapshots
from ledger.fold import ActionRow, fold_action, fold_run, moves_action, moves_run
from ledger.fold.effects import EffectRow
from ledger.models import Event, Run
from ledger.parsed_events import StoredEvent
from ledger.settlements import OUTCOMES, Settlement, settlements_in
from ledger.snapshots import digest_of, is_ref
from workspaces import formatting

EVENTS_REPLAYED_MAX = 2_000
STEPS_SHOWN = 200
FIELDS_SHOWN_MAX = 60

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
    EventType.ACTION_COMPENSATED: "Compensated",
    EventType.ACTION_SETTLED: "Settled",
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
            "actions": [
                _action(row, settled.get(row.action), slug, sensitive=sensitive) for row in rows
            ],
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
        event.actor_kind != "agent", event.actor, event.trusted, event.trace,
    )  # fmt: skip


def _actions(events: list[Event], stored_events: list[StoredEvent]) -> list[ActionRow]:
    grouped: dict[str, list[StoredEvent]] = defaultdict(list)
    for event, stored in zip(events, stored_events, strict=True):
        if event.action and moves_action(stored.type):
            grouped[event.action].append(stored)
    rows = [fold_action(action, said) for action, said in grouped.items()]
    return sorted(rows, key=lambda row: (row.n is None, row.n or 0, row.first_place))


def words_of(event: Event) -> str:
    word = WORDS.get(event.type)
    return word or event.type.replace(".", " ").replace("_", " ").capitalize()


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
    return {
        "words": _checked(event) or words_of(event),
        "type": event.type,
        "url": reverse("ledger:event", args=[slug, event.event_id]),
        "id": event.event_id,
        "actor": event.actor,
        "actor_kind": event.actor_kind,
        "received": formatting.moment(event.received_at, "full"),
        "said_at": formatting.moment(event.time, "full") if event.time else "",
        "astray": clocks.astray(event.time, event.received_at),
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
        "tool": row.tool or "a tool not named yet",
        "targets": ", ".join(f"{one.get('type')} {one.get('id')}" for one in row.targets),
        "state": (settled.state if settled else "") or row.state,
        "settled": f"{settled.words}: “{settled.text}”" if settled else "",
        "check": "" if row.verified == "not_yet" else row.verified,
        "compensated": "" if row.compensated == "none" else row.compensated,
        "attempts": len(row.attempts),
        "flags": [flag.replace("_", " ").replace(":", " on ") for flag in row.flags],
        "args": pretty(row.args) if sensitive and row.args is not None else "",
        "effects": [_effect(effect, slug, sensitive=sensitive) for effect in row.effects],
    }


def _effect(effect: EffectRow, slug: str, *, sensitive: bool) -> dict[str, Any]:
    return {
        "target": f"{effect.target_type} {effect.target_id}",
        "summary": effect.summary,
        "reversibility": effect.reversibility,
        "compensated": "" if effect.compensated == "none" else effect.compensated,
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
