"""Attempts: what is known of each try at an action.

    running < unknown < {succeeded, no_effect} < contradiction

A fence is issued by `begin` alone, with the start of an attempt, and only when all earlier attempts
are known to have had no effect. So a higher fence is itself the statement that the lower ones had
none, and an outcome that comes with a fence other than its attempt's, or says otherwise for a lower
one, is stale: kept, flagged, settling nothing. Where a lower one is said to have succeeded and the
highest had no effect, the call may have been made: that is a contradiction, for people to settle.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from amends.protocol.vocabulary import EventType
from ledger.fold.meaning import fence_of, text
from ledger.parsed_events import StoredEvent

RANK = {"": -1, "running": 0, "unknown": 1, "succeeded": 2, "no_effect": 2, "contradiction": 3}
OUTCOMES = {"applied": "succeeded", "succeeded": "succeeded", "no_effect": "no_effect"}
Kinds = dict[str, list[StoredEvent]]


@dataclass(slots=True)
class AttemptRow:
    attempt: str
    state: str = ""
    fence: int | None = None
    stale: bool = False
    retry: str = ""
    error: Any = None
    started_at: datetime | None = None
    told_at: dict[str, datetime] = field(default_factory=dict)
    """When an outcome was first told, by outcome."""
    successes: list[StoredEvent] = field(default_factory=list)
    success_claimed: bool = False
    late: list[StoredEvent] = field(default_factory=list)
    """Successes of a lower fence."""

    @property
    def finished_at(self) -> datetime | None:
        """When what is known of its outcome was first told; a doubt is the end of it only as long
        as nobody has told more, for what was doubted may have gone on. Of two that contradict each
        other the later.
        """
        known = [at for outcome, at in self.told_at.items() if outcome != "unknown"]
        return max(known, default=self.told_at.get("unknown"))

    def learn(self, state: str) -> None:
        self.state = join(self.state, state)

    def tell(self, outcome: str, at: datetime) -> None:
        self.told_at[outcome] = min(at, self.told_at.get(outcome, at))


@dataclass(slots=True)
class Attempts:
    rows: list[AttemptRow]
    current: str
    fence: int
    settled_by: str


def join(one: str, other: str) -> str:
    """The least state that both are at most."""
    if RANK[one] == RANK[other] == RANK["succeeded"] and one != other:
        return "contradiction"
    return one if RANK[one] >= RANK[other] else other


def fold_attempts(kinds: Kinds, flags: set[str]) -> Attempts:
    """The attempts of an action, in the order of fence and name; `kinds` holds events by kind."""
    return one_success(kinds) or fold_all(kinds, flags)


def one_success(kinds: Kinds) -> Attempts | None:
    """All that is said of most actions: one success, which nothing can contradict yet."""
    succeeded = kinds[EventType.ACTION_SUCCEEDED]
    if (
        len(succeeded) != 1
        or kinds[EventType.ACTION_STARTED]
        or kinds[EventType.ACTION_FAILED]
        or kinds[EventType.ACTION_SETTLED]
    ):
        return None
    row = AttemptRow(
        _name(succeeded[0], ""), "succeeded", told_at={"succeeded": succeeded[0].received},
        successes=succeeded, success_claimed=True,
    )  # fmt: skip
    return Attempts([row], "", 0, "")


def fold_all(kinds: Kinds, flags: set[str]) -> Attempts:
    """The general way."""
    issued = _issued(kinds[EventType.ACTION_STARTED])
    fence = max(issued.values(), default=0)
    current = min((name for name, number in issued.items() if number == fence), default="")
    default = current or _only_name(kinds)
    rows: dict[str, AttemptRow] = {}

    def row(name: str) -> AttemptRow:
        return rows.setdefault(name, AttemptRow(name, fence=issued.get(name)))

    for event in kinds[EventType.ACTION_STARTED]:
        _start(row(_name(event, default)), event)
    settled = _latest_settlements(kinds[EventType.ACTION_SETTLED])
    overruled = {
        seen for event in kinds[EventType.ACTION_SETTLED] for seen in event.data.get("seen") or ()
    }
    for kind in (EventType.ACTION_SUCCEEDED, EventType.ACTION_FAILED):
        for event in kinds[kind]:
            _end(row(_name(event, default)), kind, event, issued, fence, overruled)
    for event in settled:
        for name in event.data.get("attempts") or list(rows) or [default]:
            _settle(row(name), event)
    for found in rows.values():
        if found.fence is not None and found.fence < fence:
            found.state = "no_effect"
    if current:
        _doubt(rows[current], [one for found in rows.values() for one in found.late], overruled)
    _flag(rows.values(), flags)
    ordered = sorted(rows.values(), key=lambda found: (found.fence or 0, found.attempt))
    by = settled[-1].actor if settled else ""
    return Attempts(ordered, current, fence, by)


def action_state(rows: Iterable[AttemptRow], *, approved: bool) -> str:
    states = {found.state for found in rows if found.state}
    if "contradiction" in states:
        return "unknown"
    for state in ("succeeded", "unknown", "running"):
        if state in states:
            return state
    if states:
        return "failed"
    return "approved" if approved else "planned"


def finished_at(rows: Iterable[AttemptRow], state: str) -> datetime | None:
    """When the action came to this state: with the first success, or else with what was told last;
    not while a try of it runs.
    """
    if state == "running":
        return None
    if state == "succeeded":
        rows = [found for found in rows if found.state == "succeeded"]
    ends = [at for found in rows if (at := found.finished_at)]
    return min(ends, default=None) if state == "succeeded" else max(ends, default=None)


def _flag(rows: Collection[AttemptRow], flags: set[str]) -> None:
    if any(found.stale for found in rows):
        flags.add("stale_fence")
    if sum(found.success_claimed for found in rows) > 1:
        flags.add("effect_twice")
    if any(found.state == "contradiction" for found in rows):
        flags.add("contradiction")


def _issued(starts: list[StoredEvent]) -> dict[str, int]:
    issued: dict[str, int] = {}
    for event in starts:
        fence, name = fence_of(event), event.data.get("attempt") or ""
        if fence is not None:
            issued[name] = max(fence, issued.get(name, 0))
    return issued


def _only_name(kinds: Kinds) -> str:
    """Where an outcome names no attempt and only one is known, it is that one's."""
    events = [
        *kinds[EventType.ACTION_STARTED],
        *kinds[EventType.ACTION_SUCCEEDED],
        *kinds[EventType.ACTION_FAILED],
    ]
    names = {name for event in events if (name := event.data.get("attempt"))}
    return str(names.pop()) if len(names) == 1 else ""


def _name(event: StoredEvent, default: str) -> str:
    name = event.data.get("attempt")
    return default if name is None or name == "" else str(name)[:120]


def _start(row: AttemptRow, event: StoredEvent) -> None:
    row.learn("running")
    row.retry = row.retry or text(event.data.get("retry"), 10)
    row.started_at = min(filter(None, (row.started_at, event.received)))


def _end(
    row: AttemptRow,
    kind: str,
    event: StoredEvent,
    issued: dict[str, int],
    fence: int,
    overruled: set[str],
) -> None:
    state = _said_state(kind, event)
    row.success_claimed |= state == "succeeded"
    row.tell(state, event.received)
    if kind == EventType.ACTION_FAILED and row.error is None:
        row.error = event.data.get("error")
    if _is_stale(row, state, event, issued, fence):
        row.stale = True
        if state == "succeeded" and fence_of(event) in {None, row.fence}:
            row.late.append(event)
        return
    if state == "succeeded":
        row.successes.append(event)
    if event.event_id not in overruled:
        row.learn(state)


def _said_state(kind: str, event: StoredEvent) -> str:
    if kind == EventType.ACTION_SUCCEEDED:
        return "succeeded"
    return "no_effect" if event.data.get("outcome") == "no_effect" else "unknown"


def _is_stale(
    row: AttemptRow, state: str, event: StoredEvent, issued: dict[str, int], fence: int
) -> bool:
    given = fence_of(event)
    if row.fence is not None:
        return (given is not None and given != row.fence) or (
            row.fence < fence and state != "no_effect"
        )
    return bool(issued) and given is not None


def _doubt(highest: AttemptRow, late: list[StoredEvent], overruled: Collection[str]) -> None:
    """A success that is told late, and that nobody has settled, against no effect of the last."""
    if highest.state == "no_effect" and any(one.event_id not in overruled for one in late):
        highest.state = "contradiction"
    if highest.state in {"contradiction", "succeeded"} and not highest.successes:
        highest.successes = sorted(late, key=lambda one: one.event_id)


def _settle(row: AttemptRow, event: StoredEvent) -> None:
    state = OUTCOMES.get(str(event.data.get("outcome")))
    if state is not None:
        row.learn("running")
        row.learn(state)
        if "unknown" not in row.told_at:  # it says what became of the call, and not when
            row.tell(state, event.received)


def _latest_settlements(settlements: list[StoredEvent]) -> list[StoredEvent]:
    """Those that no later settlement has seen."""
    seen = {known for event in settlements for known in event.data.get("seen") or ()}
    return [event for event in settlements if event.event_id not in seen]
