"""What this process saw last at the gate, to judge by before the database is asked.

Nothing here is ever believed: whoever acts on a guess has the database confirm, under the locks,
that it still holds. A wrong one costs one round trip more.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from approvals.gate.begin_context import BeginContext, Paused
from approvals.gate.begin_request import BeginRequest

# Per process; the oldest are forgotten. A run's labels take some hundred bytes.
WORKSPACES_MAX = 2_000
RUNS_MAX = 10_000

K = TypeVar("K")
V = TypeVar("V")


class Latest(Generic[K, V]):
    """The last values of the keys that were met lately."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        return self._values.get(key)

    def keep(self, key: K, value: V) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._most:
            self._values.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Standing:
    """What held in a workspace: the digest of its policy, and its pauses."""

    policy_digest: str | None
    pauses: Sequence[Paused]


_standing: Latest[int, Standing] = Latest(WORKSPACES_MAX)
_labels: Latest[tuple[int, str], Mapping[str, Any]] = Latest(RUNS_MAX)


def note(ask: BeginRequest, found: BeginContext) -> None:
    """Remember what the gate has just read."""
    workspace = ask.speaker.workspace_id
    _standing.keep(workspace, Standing(found.policy_digest, found.pauses))
    if found.run is not None and found.run.labels:
        _labels.keep((workspace, ask.planned.run), found.run.labels)


def standing(ask: BeginRequest) -> Standing | None:
    return _standing.get(ask.speaker.workspace_id)


def labels(ask: BeginRequest) -> Mapping[str, Any]:
    """The labels of the run as last seen; most runs have none, or none that were met here."""
    return _labels.get((ask.speaker.workspace_id, ask.planned.run)) or {}
