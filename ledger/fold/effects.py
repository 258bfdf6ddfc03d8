"""Effects: what an action did to each target, one row per position.

`before` is what the desk observed, else what `action.planned` said, else what the completion said;
a replayed completion therefore never alters it. An action whose outcome is unknown, or which
succeeded without a word about effects, may have done anything to its planned targets: each of them
is an effect, but where its plan, or the gate by the policy's catalogue, says that it only reads.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from amends.protocol.masking import holds_mask
from amends.protocol.vocabulary import WITHOUT_EFFECT, EventType
from ledger import timestamps
from ledger.canonical import canonical
from ledger.fold.attempts import AttemptRow
from ledger.fold.meaning import fence_of, text
from ledger.parsed_events import StoredEvent

COMPENSATION_ORDER = ("none", "repaired", "corrected", "compensated")
"""Of two words about one effect the later here stands, in whatever order they came; of an action
whose effects differ the earlier, and `partly` where some stand (`all_compensated`). The statements
that change the rows where they stand are made of it (`ledger.append.statements`).
"""
EFFECTS_OF_ACTION_MAX = 1_000
NO_TARGET = ("", "")


@dataclass(slots=True)
class EffectRow:
    position: int
    target_type: str
    target_id: str
    before: Any = None
    after: Any = None
    has_before: bool = False
    has_after: bool = False
    source: str = "reported"
    summary: str = ""
    reversibility: str = "unknown"
    undo_until: datetime | None = None
    affects: Any = None
    compensated: str = "none"


def planned_targets(data: dict[str, Any]) -> list[dict[str, Any]]:
    """`target` alone is short for a list of one."""
    targets = data.get("targets")
    if isinstance(targets, list) and targets:
        return targets
    return [data["target"]] if isinstance(data.get("target"), dict) else []


def fold_effects(
    kinds: dict[str, list[StoredEvent]],
    rows: list[AttemptRow],
    state: str,
    class_: str,
    flags: set[str],
) -> list[EffectRow]:
    """The standing and undone effects of an action in this state, by position."""
    if state not in {"succeeded", "unknown"}:
        return []
    targets: list[dict[str, Any]] = []
    for event in kinds[EventType.ACTION_PLANNED]:
        if targets := planned_targets(event.data):
            break
    undone = kinds[EventType.ACTION_COMPENSATED]
    stated = _said_effects(rows, targets, undone, flags)
    if stated is None:
        stated = [] if _only_reads(kinds, class_) else [{"target": target} for target in targets]
    known = SnapshotIndex(kinds)
    stated = stated[:EFFECTS_OF_ACTION_MAX]
    outcomes = _put_in_place(stated, undone) if undone else {}
    effects = [_row(n, one, known) for n, one in enumerate(stated)]
    for position, outcome in outcomes.items():
        effects[position].compensated = outcome
    return effects


def _only_reads(kinds: dict[str, list[StoredEvent]], class_: str) -> bool:
    """By its plan; or by `begin`, which alone gives a fence, at each try."""
    begun = [one.data for one in kinds[EventType.ACTION_STARTED] if fence_of(one) is not None]
    return class_ in WITHOUT_EFFECT or (
        bool(begun) and all(text(data.get("class"), 24) in WITHOUT_EFFECT for data in begun)
    )


def _said_effects(
    rows: list[AttemptRow],
    targets: list[dict[str, Any]],
    undone: list[StoredEvent],
    flags: set[str],
) -> list[dict[str, Any]] | None:
    """Of each attempt that succeeded the list of its smallest event id; None if none has one.

    A second attempt that succeeded did its effects once more; what it repeats word for word is one.
    What was told after some were undone comes after them, for these are named by their positions.
    """
    if len(rows) == 1 and len(rows[0].successes) == 1:
        return _listed(rows[0].successes[0].data, targets)  # the usual case
    told = []

    def undone_by_then(row: AttemptRow) -> int:
        told_at = min((event.sequence for event in row.successes), default=0)
        return sum(event.sequence < told_at for event in undone)

    for row in sorted(rows, key=undone_by_then):
        lists = [
            one for event in row.successes if (one := _listed(event.data, targets)) is not None
        ]
        if any(other != lists[0] for other in lists[1:]):
            flags.add("disagree:effects")
        if lists:
            told.append(lists[0])
    if len(told) < 2:  # noqa: PLR2004 - nothing to compare
        return told[0] if told else None
    found: list[dict[str, Any]] = []
    known: set[bytes] = set()
    for effects in told:
        found += [effect for effect in effects if canonical(effect) not in known]
        known |= {canonical(effect) for effect in effects}
    return found


def _listed(data: dict[str, Any], targets: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    effects = data.get("effects")
    if isinstance(effects, list):
        filled = (
            effect if "target" in effect or not targets else effect | {"target": targets[0]}
            for effect in effects
            if isinstance(effect, dict)
        )
        return [effect for effect in filled if isinstance(effect.get("target"), dict)]
    if not ({"target", "before", "after"} & data.keys()):
        return None
    target = data.get("target") or (targets[0] if targets else None)
    if not isinstance(target, dict):
        return None
    names = ("before", "after", "summary", "reversibility", "undo_until", "affects")
    return [{"target": target} | {name: data[name] for name in names if name in data}]


class SnapshotIndex:
    """Which snapshot of a target was taken before the act, and by whom."""

    def __init__(self, kinds: dict[str, list[StoredEvent]]) -> None:
        self.observed: dict[tuple[str, str], list[Any]] = {}
        self.planned: dict[tuple[str, str], list[Any]] = {}
        for event in kinds[EventType.ACTION_PLANNED]:
            own = planned_targets(event.data)
            self._keep(self.observed, own, event.data, "observed")
            self._keep(self.planned, own, event.data, "before")

    @staticmethod
    def _keep(
        into: dict[tuple[str, str], list[Any]],
        targets: list[dict[str, Any]],
        data: dict[str, Any],
        name: str,
    ) -> None:
        if name not in data:
            return
        snapshots = data[name] if isinstance(data[name], list) else [data[name]]
        fresh: dict[tuple[str, str], list[Any]] = {}
        for target, snapshot in zip(targets, snapshots, strict=False):
            fresh.setdefault(name_of(target), []).append(snapshot)
        for of_target, values in fresh.items():
            into.setdefault(of_target, values)


def name_of(target: dict[str, Any]) -> tuple[str, str]:
    return str(target.get("type", ""))[:120], str(target.get("id", ""))[:400]


def _row(position: int, stated: dict[str, Any], known: SnapshotIndex) -> EffectRow:
    name = name_of(stated["target"])
    row = EffectRow(position, *name)
    if name in known.observed:
        row.before, row.has_before, row.source = known.observed[name][0], True, "observed"
    elif name in known.planned:
        row.before, row.has_before = known.planned[name][0], True
    elif "before" in stated:
        row.before, row.has_before = stated["before"], True
    if "after" in stated:
        row.after, row.has_after = stated["after"], True
    row.summary = text(stated.get("summary"), 400)
    row.reversibility = stated.get("reversibility") or "unknown"
    if row.reversibility == "exact" and holds_mask([row.before, row.after]):
        row.reversibility = "compensable"
    if isinstance(until := stated.get("undo_until"), str):
        row.undo_until = timestamps.parse(until)
    row.affects = stated.get("affects")
    return row


def _put_in_place(stated: list[dict[str, Any]], events: list[StoredEvent]) -> dict[int, str]:
    """Put each effect that was undone back to where it was then, in place, for it is named by its
    position; returns what became of which.

    What was told later may have set others before it, or others in its place: then that one of
    the same target is meant, and none where there is none any more. Older events name no target.
    """
    names = [name_of(one["target"]) for one in stated]
    meant: dict[tuple[int, tuple[str, str]], int] = {}
    outcomes: dict[int, str] = {}
    for event in sorted(events, key=lambda one: one.sequence):
        name, outcome = _undone_target(event.data, names), compensation_of(event.data)
        for position in _positions(event.data):
            at = meant.get((position, name), -1)
            if at < 0:
                at = _moved_back(stated, names, position, name, taken=outcomes)
            if at >= 0:
                meant[position, name] = at
                outcomes[at] = max(outcomes.get(at, outcome), outcome, key=COMPENSATION_ORDER.index)
    return outcomes


def _moved_back(
    stated: list[Any],
    names: list[tuple[str, str]],
    position: int,
    name: tuple[str, str],
    *,
    taken: Container[int],
) -> int:
    """Where the effect now stands that was undone at this position, -1 if there is none. It is put
    there unless one stands there that was undone, too.
    """
    if name == NO_TARGET:
        return position if position < len(names) else -1
    left = [n for n, one in enumerate(names) if one == name and n not in taken]
    if not left or position in left:
        return position if left else -1
    if position in taken or position >= len(names):
        return left[0]
    for row in (stated, names):
        row[position], row[left[0]] = row[left[0]], row[position]
    return position


def _positions(data: Mapping[str, Any]) -> list[int]:
    positions = data.get("positions")
    return [data.get("position", 0)] if positions is None else positions


def _undone_target(data: Mapping[str, Any], known: list[tuple[str, str]]) -> tuple[str, str]:
    """The target that was put right; none where none is named, or by a mask of another time."""
    target = data.get("target")
    name = name_of(target) if isinstance(target, dict) else NO_TARGET
    return NO_TARGET if holds_mask([*name]) and name not in known else name


def compensation_of(data: Mapping[str, Any]) -> str:
    """What an `action.compensated` says of the effects that it names."""
    outcome = data.get("outcome")
    return outcome if outcome in {"corrected", "repaired"} else "compensated"


def all_compensated(effects: list[EffectRow], events: list[StoredEvent]) -> str:
    """What the action as a whole is: the weaker word where its effects differ."""
    states = {effect.compensated for effect in effects}
    if not effects:
        outcomes = (compensation_of(event.data) for event in events)
        return max(outcomes, default="none", key=COMPENSATION_ORDER.index)
    if states == {"none"}:
        return "none"
    if "none" in states:
        return "partly"
    return min(states, key=COMPENSATION_ORDER.index)
