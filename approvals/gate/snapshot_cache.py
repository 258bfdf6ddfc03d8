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
from ledger.canonical import digest

# Per process; the oldest are forgotten. A run's labels take some hundred bytes.
WORKSPACES_MAX = 2_000
RUNS_MAX = 10_000
SHAPES_MAX = 10_000

K = TypeVar("K")
V = TypeVar("V")


class RecentValues(Generic[K, V]):
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

    def forget(self, key: K) -> None:
        self._values.pop(key, None)


@dataclass(frozen=True, slots=True)
class WorkspaceSnapshot:
    """What held in a workspace: the digest of its policy, and its pauses."""

    policy_digest: str | None
    pauses: Sequence[Paused]


_snapshots: RecentValues[int, WorkspaceSnapshot] = RecentValues(WORKSPACES_MAX)
_labels: RecentValues[tuple[int, str], Mapping[str, Any]] = RecentValues(RUNS_MAX)
_shapes: RecentValues[tuple[int, str], str] = RecentValues(SHAPES_MAX)
"""The shape of arguments that was noted last, by agent and tool."""


def note(request: BeginRequest, context: BeginContext) -> None:
    """Remember what the gate has just read."""
    workspace = request.actor.workspace_id
    _snapshots.keep(workspace, WorkspaceSnapshot(context.policy_digest, context.pauses))
    key = workspace, request.planned.run
    if context.labels:
        _labels.keep(key, context.labels)
    else:
        _labels.forget(key)


def announces_new_schema(request: BeginRequest) -> bool:
    """Whether it announces a shape of arguments that this process has not noted last."""
    schema = request.tool_schema
    return schema is not None and _shapes.get(_tool_of(request)) != digest(schema)


def note_schema(request: BeginRequest) -> None:
    """Remember that the shape is noted, once it is."""
    _shapes.keep(_tool_of(request), digest(request.tool_schema))


def _tool_of(request: BeginRequest) -> tuple[int, str]:
    return request.actor.agent_id or 0, request.tool


def snapshot(request: BeginRequest) -> WorkspaceSnapshot | None:
    return _snapshots.get(request.actor.workspace_id)


def labels(request: BeginRequest) -> Mapping[str, Any]:
    """The labels of the run as last seen; most runs have none, or none that were met here."""
    return _labels.get((request.actor.workspace_id, request.planned.run)) or {}
