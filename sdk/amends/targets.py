"""Targets: what a call changes, and the snapshots of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from amends.values import UNSET, plain

Target = tuple[str, object] | Mapping[str, object]
PAIR = 2
NO_TARGET = (
    "{!r} is no target: give a pair of type and id, such as ('reservation', 'XEHM4B'), a mapping of"
    " both, or a list of these"
)


def per_target(snapshot: Any, count: int) -> list[Any]:
    """Snapshots, one per target. ValueError if there are not as many."""
    if snapshot is UNSET or count == 0:
        return [UNSET] * count
    snapshots = [snapshot] if count == 1 and not isinstance(snapshot, list) else snapshot
    if not isinstance(snapshots, list) or len(snapshots) != count:
        raise ValueError(f"{count} targets need a list of {count} snapshots")
    return [plain(one) for one in snapshots]


def as_targets(target: object) -> list[dict[str, str]]:
    """`("reservation", "XEHM4B")`, a mapping of type and id, or a list of these, or ValueError."""
    if target is None:
        return []
    if isinstance(target, str) or not isinstance(target, Sequence | Mapping):
        raise ValueError(NO_TARGET.format(target))  # noqa: TRY004 - as for a pair of three
    if isinstance(target, Mapping):
        if not {"type", "id"} <= set(target):
            raise ValueError(NO_TARGET.format(target))
        return [{"type": str(target["type"]), "id": str(target["id"])}]
    if isinstance(target, tuple) and len(target) == PAIR and isinstance(target[0], str):
        return [{"type": target[0], "id": str(target[1])}]
    return [one for each in target for one in as_targets(each)]
