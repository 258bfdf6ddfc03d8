"""OpenAI Agents SDK: the function tools of an agent, each behind the desk.

agent = gated(desk, Agent(name="trips", tools=[update_flight]))
with desk.run("Move my return flight"):
    await Runner.run(agent, "Move my return flight")
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agents import Agent, FunctionTool
from agents.tool import (
    maybe_invoke_function_tool_failure_error_function,
    set_function_tool_failure_error_function,
)
from agents.tool_context import ToolContext

from amends.adapters import NOT_MADE, TWICE, GatedTools, is_over, not_made
from amends.client import Desk
from amends.tools import Declaration
from amends.values import plain


def gated(
    desk: Desk,
    agent: Agent[Any],
    declared: Mapping[str, Declaration] | None = None,
    *,
    repeatable: Iterable[str] = (),
    wait_seconds: float | None = None,
    ungated: Iterable[str] = (),
) -> Agent[Any]:
    """A copy of the agent whose function tools ask the desk before they run, and say how it went.

    `declared`, `repeatable` and `wait_seconds` are those of `amends.adapters.GatedTools`. The SDK
    runs hosted tools, the tools of MCP servers and the agents that it hands over to past whatever
    is put around this agent's own tools. An agent that has such raises ValueError unless `ungated`
    names them; an agent to hand over to may also be one that was given to `gated` before.
    """
    left = [one for one in _past_the_gate(agent) if one not in set(ungated)]
    if left:
        raise ValueError(PAST.format(agent.name, ", ".join(left)))
    tools = GatedTools(desk, declared or {}, frozenset(repeatable), wait_seconds)
    return agent.clone(
        tools=[_gated(tools, one) if isinstance(one, FunctionTool) else one for one in agent.tools]
    )


PAST = (
    "{}: these would run without the desk being asked: {}. Name them in `ungated` if that is what"
    " you want"
)


def _past_the_gate(agent: Agent[Any], met: tuple[Agent[Any], ...] = ()) -> Iterator[str]:
    """Also what the agents that it hands over to have, and those that they hand over to."""
    for tool in agent.tools:
        if not isinstance(tool, FunctionTool):
            yield tool.name
    for server in agent.mcp_servers:
        yield server.name
    for other in agent.handoffs:
        if not isinstance(other, Agent):
            yield other.agent_name
        elif not any(other is one for one in met):
            functions = [one for one in other.tools if isinstance(one, FunctionTool)]
            if not all(isinstance(one.on_invoke_tool, _Gate) for one in functions):
                yield other.name
            yield from _past_the_gate(other, (*met, other))


def _gated(tools: GatedTools, tool: FunctionTool) -> FunctionTool:
    """The tool behind the desk. What it raises is heard before its own words are made of it."""
    if isinstance(tool.on_invoke_tool, _Gate):
        raise TypeError(TWICE.format(tool.name))
    inner = set_function_tool_failure_error_function(copy.copy(tool), None)
    outer = copy.copy(tool)
    outer.on_invoke_tool = _Gate(tools, tool, inner)
    return outer


@dataclass(frozen=True)
class _Gate:
    tools: GatedTools
    tool: FunctionTool
    inner: FunctionTool

    async def __call__(self, context: ToolContext[Any], text: str) -> Any:
        async def call(now: Mapping[str, Any]) -> Any:
            said = text if now is args else json.dumps(now)
            return await self.inner.on_invoke_tool(context, said)

        try:
            args = json.loads(text or "{}")
            asked = self.tool.name, args, context.tool_call_id
            schema = self.tool.params_json_schema
            return (await self.tools.acall(*asked, call, told=plain, schema=schema)).answer
        except NOT_MADE as error:
            if is_over(error):
                raise
            return not_made(error)
        except Exception as error:
            said = await maybe_invoke_function_tool_failure_error_function(
                function_tool=self.tool, context=context, error=error
            )
            if said is None:
                raise
            return said
