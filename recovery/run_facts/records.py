"""Where a person finds what a call was about in the outside system, by the connection's own link.

The policy says over which connection a tool is undone or asked about; that system has the record.
"""

from __future__ import annotations

from collections.abc import Sequence

from approvals.policy import Policy
from connectors.links import Link, link
from connectors.models import Connection
from ledger.models import Action, Effect
from recovery.models import Step
from workspaces.models import Workspace

LINKS_MAX = 5


class Records:
    """The links of a workspace's connections, read once for a page."""

    def __init__(self, workspace: Workspace, policy: Policy) -> None:
        found = Connection.objects.filter(workspace=workspace).exclude(link="")
        self._patterns = dict(found.values_list("name", "link"))
        self._policy = policy

    def of_target(self, tool: str, kind: str, name: str, key: str = "") -> Link | None:
        """By the twin of the tool, or by its probe where that is in another system."""
        twin = self._policy.twin(tool, kind) if self._patterns else None
        if twin is None:
            return None
        calls = [twin.probe, twin] if twin.probe is not None else [twin]
        for call in calls:
            if call.connection in self._patterns:
                return self._to(call.connection, kind, name, key)
        return None

    def of_effect(self, action: Action, effect: Effect) -> Link | None:
        return self.of_target(action.tool, effect.target_type, effect.target_id, action.key)

    def of_action(self, action: Action) -> Sequence[Link]:
        """Each target's, once."""
        targets = [one for one in action.targets or [] if isinstance(one, dict)]
        found = [
            self.of_target(
                action.tool, str(one.get("type", "")), str(one.get("id", "")), action.key
            )
            for one in targets[:LINKS_MAX]
        ]
        return list(dict.fromkeys(one for one in found if one is not None))

    def of_step(self, step: Step) -> Sequence[Link]:
        name = step.connection.name
        if name not in self._patterns:
            return []
        found = self._to(name, step.target_type, step.target_id, step.key)
        return [found] if found else []

    def _to(self, name: str, kind: str, target: str, key: str) -> Link | None:
        pattern = self._patterns[name]
        return link(pattern, name, target_type=kind, target_id=target, key=key)
