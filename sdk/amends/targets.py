"""Targets: what a call changes, and the snapshots of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from amends.values import UNSET, plain

Target = tuple[str, object] | Mapping[str, object]
PAIR = 2


def per_target(snapshot: Any, count: int) -> list[Any]:
    """Snapshots, one per target. ValueError if there are not as many."""
    if snapshot is UNSET or count == 0:
        return [UNSET] * count
    snapshots = [snapshot] if count == 1 and not isinstance(snapshot, list) else snapshot
    if not isinstance(snapshots, list) or len(snapshots) != count:
        raise ValueError(f"{count} targets need a list of {count} snapshots")
    return [plain(one) for one in snapshots]


def as_targets(target: Target | Sequence[Target] | None) -> list[dict[str, str]]:
    """`("reservation", "XEHM4B")`, a mapping of type and id, or a list of these."""
    if target is None:
        return []
    if isinstance(target, Mapping):
        return [{"type": str(target["type"]), "id": str(target["id"])}]
    if isinstance(target, tuple) and len(target) == PAIR and isinstance(target[0], str):
        return [{"type": target[0], "id": str(target[1])}]
    return [one for each in target for one in as_targets(each)]  # type: ignore[arg-type]
