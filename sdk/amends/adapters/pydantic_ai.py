"""Pydantic AI: a toolset that puts each call to the desk.

    toolset = AmendsToolset(FunctionToolset([update_flight]), desk)
    agent = Agent(model, toolsets=[toolset])
    async with desk.run("Move my return flight"):
        await agent.run("Move my return flight")

Tools that are given to the agent itself (`tools=`, `@agent.tool`) are not in the toolset: put them
in one.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai import ModelRetry, RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed
from pydantic_ai.toolsets import WrapperToolset
from pydantic_ai.toolsets.abstract import ToolsetTool

from amends.adapters import NOT_MADE, GatedTools, is_over, not_made
from amends.client import Desk
from amends.errors import ApprovalTimeout, NoEffect
from amends.tools import Declaration
from amends.values import plain

OWN_APPROVAL = (
    "{} asks for an approval of its own, and with `defers=True` would be given what was said to a"
    " pause for people: put `.approval_required(...)` around this toolset, or leave `defers` out,"
    " and the call waits instead"
)


@dataclass
class AmendsToolset(WrapperToolset[Any]):
    """Asks the desk before each call of the wrapped toolset and says afterwards how it went.

    `declared`, `repeatable` and `wait_seconds` are those of `amends.adapters.GatedTools`. With
    `defers` a call that waits for people ends the run with a deferred request (`ApprovalRequired`,
    with the approval and its address) instead of waiting. Whatever it is resumed with, the desk is
    asked anew: an approval from elsewhere is none, and a durable retry does nothing twice. NoEffect
    for what then asks for an approval within this toolset, which would be given that one.
    """

    desk: Desk
    declared: dict[str, Declaration] = field(default_factory=dict)
    repeatable: frozenset[str] = frozenset()
    wait_seconds: float | None = None
    defers: bool = False

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        # What a tool requires by itself the framework has asked for before it came here.
        is_own = not self.defers or tool.tool_def.kind == "unapproved"
        within = ctx if is_own else replace(ctx, tool_call_approved=False)

        async def call(now: Mapping[str, Any]) -> Any:
            try:
                return await self.wrapped.call_tool(name, dict(now), within, tool)
            except (ModelRetry, ApprovalRequired, CallDeferred) as error:
                if self.defers and isinstance(error, ApprovalRequired):
                    raise NoEffect(OWN_APPROVAL.format(name)) from error
                if isinstance(error, ModelRetry) and not _is_the_tools(error):
                    raise
                # The tool itself says that it has not done it, and wants to be called again.
                raise _NotDone(str(error), retryable=True) from error

        waits = 0.0 if self.defers else self.wait_seconds
        tools = GatedTools(self.desk, self.declared, frozenset(self.repeatable), waits)
        asked = name, tool_args, ctx.tool_call_id
        try:
            schema = tool.tool_def.parameters_json_schema
            return (await tools.acall(*asked, call, told=plain, schema=schema)).answer
        except _NotDone as error:
            raise error.__cause__ or error from None
        except NOT_MADE as error:
            if is_over(error):
                raise
            if self.defers and isinstance(error, ApprovalTimeout):
                waits_for = {"approval": error.approval, "url": error.url}
                raise ApprovalRequired(metadata=waits_for) from error
            raise ToolFailed(not_made(error)) from error


def _is_the_tools(error: ModelRetry) -> bool:
    """Pydantic AI raises one by itself where a tool takes too long, or an MCP server tells an
    error: nobody knows then what was done.
    """
    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    module = str(frame.f_globals.get("__name__"))
    return not module.startswith("pydantic_ai.")


class _NotDone(NoEffect):
    """What the tool raised to be called again."""
