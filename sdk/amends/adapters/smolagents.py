"""smolagents: the tools of an agent, each behind the desk.

    agent = ToolCallingAgent(tools=gated(desk, [update_flight]), model=model)
    with desk.run("Move my return flight"):
        agent.run("Move my return flight to HAT019")

A CodeAgent calls them from the code that its model writes. It runs that code in a thread which
knows no run, for 30 seconds, in which nobody decides: give it `executor_kwargs={"timeout_seconds":
None}`, else each call is refused. What the code does by itself is no call of a tool: authorize no
import that reaches the world. An executor elsewhere cannot take gated tools, and says so.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from smolagents import Tool

from amends.adapters import NOT_MADE, TWICE, GatedTools, is_over, not_made
from amends.client import Desk
from amends.errors import AmendsError
from amends.tools import Declaration
from amends.values import plain

JSON_TYPES = {"string", "boolean", "integer", "number", "array", "object", "null"}


class RunStopped(BaseException):
    """The desk has stopped the run, as its cause tells. The agent would go on after an Exception,
    and so would code of its own that catches one.
    """


class NotMade(AmendsError):
    """The call was not made, as the text says; the agent's framework tells its model."""


def gated(
    desk: Desk,
    tools: Iterable[Tool],
    declared: Mapping[str, Declaration] | None = None,
    *,
    repeatable: Iterable[str] = (),
    wait_seconds: float | None = None,
) -> list[Tool]:
    """The tools for an agent: each asks the desk before it runs, and says how it went.

    `declared`, `repeatable` and `wait_seconds` are those of `amends.adapters.GatedTools`. What was
    not made is raised (NotMade), for code that was given a text would take it for the answer. What
    an agent gets without its `tools` (`add_base_tools`, `managed_agents` whose tools are not
    wrapped) is not among them.
    """
    gate = GatedTools(desk, declared or {}, frozenset(repeatable), wait_seconds)
    return [_GatedTool(gate, one) for one in tools]


class _GatedTool(Tool):  # type: ignore[misc]
    skip_forward_signature_validation = True

    def __init__(self, gate: GatedTools, inner: Tool) -> None:
        super().__init__()
        self.name, self.description = inner.name, inner.description
        if isinstance(inner, _GatedTool):
            raise TypeError(TWICE.format(self.name))
        self.inputs, self.output_type = inner.inputs, inner.output_type
        self.output_schema = inner.output_schema
        self._gate, self._inner = gate, inner

    def forward(self, *given: Any, **named: Any) -> Any:
        if len(given) > len(self.inputs):
            raise TypeError(f"{self.name} takes {len(self.inputs)} arguments")
        args = dict(zip(self.inputs, given, strict=False)) | named
        # smolagents tells no tool the id of its call.
        asked = self.name, args, secrets.token_hex(8)

        def call(now: Mapping[str, Any]) -> Any:
            return self._inner(**now)

        try:
            return self._gate.call(*asked, call, told=plain, schema=self._schema).answer
        except AmendsError as error:
            if is_over(error):
                raise RunStopped(str(error)) from error
            if isinstance(error, NOT_MADE):
                raise NotMade(not_made(error)) from error
            raise

    def to_dict(self) -> dict[str, Any]:
        """An executor elsewhere would run a copy of the tool, past the desk."""
        raise ValueError(f"{self.name} is behind the desk, and runs in this process alone")

    @property
    def _schema(self) -> dict[str, Any]:
        """Which arguments it takes; smolagents has types that are none of JSON Schema."""
        properties = {
            name: {
                about: value
                for about, value in said.items()
                if about != "type" or isinstance(value, list) or value in JSON_TYPES
            }
            for name, said in self.inputs.items()
        }
        return {"type": "object", "properties": properties}
