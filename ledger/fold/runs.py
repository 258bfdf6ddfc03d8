"""A run's row, and its checkpoints, out of the events that speak of the run as a whole.

A resumed run lives on, so the last statement about its life counts; last by the agent's own
count `n` where it gave one, and by event id otherwise, never by arrival. Between two resumptions
the smaller event id wins where two endings disagree.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from amends.protocol.vocabulary import EventType
from ledger.fold.meaning import PLAN_MEANS, in_order, text, value_of
from ledger.parsed_events import StoredEvent
from ledger.schemas import IMPORTED, is_import

ENDINGS: Mapping[str, str] = {
    EventType.RUN_COMPLETED: "completed",
    EventType.RUN_FAILED: "failed",
    EventType.RUN_CANCELLED: "cancelled",
}
BY_A_RESTORE = "restore "
"""How `Run.held_by` begins for a run that lived at the backup from which the desk was restored: a
call that is not known may have been made since, so `begin` answers that it is in doubt."""

N_LAST = 2**31


@dataclass(slots=True)
class RunRow:
    state: str = "running"
    model: str = ""
    request: str = ""
    goal: str = ""
    customer: str = ""
    customer_name: str = ""
    on_behalf_of: Any = None
    labels: Any = field(default_factory=dict)
    trace: Any = None
    summary: str = ""
    error: Any = None
    failed_action: str = ""
    cancelled_by: str = ""
    reason: str = ""
    resumed_from: str = ""
    flags: list[str] = field(default_factory=list)
    ended_at: datetime | None = None


@dataclass(slots=True)
class CheckpointRow:
    event_id: str
    name: str
    n: int | None
    place: int
    at: datetime
    state: Any
    state_ref: str
    completed: Any
    pending: Any
    recovery_mode: str
    instructions: str
    summary: str


def kind_of(event: StoredEvent) -> str:
    return PLAN_MEANS.get(event.type, event.type)


def fold_run(events: Iterable[StoredEvent]) -> RunRow:
    """What all events about one run add up to."""
    ordered = in_order(events)
    flags: set[str] = set()
    row = RunRow(trace=next((event.trace for event in ordered if event.trace), None))
    _beginning(row, [event for event in ordered if kind_of(event) == EventType.RUN_STARTED], flags)
    _life(row, ordered, flags)
    row.flags = sorted(flags)
    return row


def _beginning(row: RunRow, starts: list[StoredEvent], flags: set[str]) -> None:
    row.model = text(value_of(starts, "model", flags), 120)
    row.request = text(value_of(starts, "request", flags), 64 * 1024)
    row.goal = text(value_of(starts, "goal", flags), 64 * 1024)
    row.labels = value_of(starts, "labels", flags) or {}
    if any(is_import(EventType.RUN_STARTED, event.data) for event in starts):
        flags.add(IMPORTED)
    person = value_of(starts, "on_behalf_of", flags)
    if isinstance(person, dict):
        row.on_behalf_of = person
        row.customer = text(person.get("id"), 120)
        row.customer_name = text(person.get("name"), 200)


def _life(row: RunRow, ordered: list[StoredEvent], flags: set[str]) -> None:
    resumes = [event for event in ordered if kind_of(event) == EventType.RUN_RESUMED]
    resumed = max(resumes, key=_when, default=None)
    endings = [
        event
        for event in ordered
        if kind_of(event) in ENDINGS and (resumed is None or _when(event) > _when(resumed))
    ]
    if resumed is not None:
        row.resumed_from = text(resumed.data.get("from"), 200)
    if not endings:
        return
    if len({kind_of(event) for event in endings}) > 1:
        flags.add("disagree:end")
    end = endings[0]
    row.state = ENDINGS[kind_of(end)]
    row.ended_at = end.received
    row.summary = text(end.data.get("summary"), 64 * 1024)
    row.error = end.data.get("error")
    row.failed_action = text(end.data.get("failed_action"), 120)
    row.cancelled_by = text(end.data.get("by"), 200)
    row.reason = text(end.data.get("reason"), 64 * 1024)


def _when(event: StoredEvent) -> tuple[int, str]:
    return (N_LAST if event.n is None else event.n, event.event_id)


def checkpoint_of(event: StoredEvent) -> CheckpointRow:
    data = event.data
    return CheckpointRow(
        event.event_id,
        text(data.get("name"), 200),
        event.n,
        event.sequence,
        event.received,
        data.get("state"),
        text(data.get("state_ref"), 200),
        data.get("completed") or [],
        data.get("pending") or [],
        text(data.get("recovery_mode"), 60),
        text(data.get("instructions"), 64 * 1024),
        text(data.get("summary"), 64 * 1024),
    )
