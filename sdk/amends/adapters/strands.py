"""Strands Agents: the tools of an agent, each behind the desk.

    agent = Agent(model=model, tools=gated(desk, [update_flight]))
    with desk.run("Move my return flight"):
        agent("Move my return flight to HAT019")

Tools are wrapped and no hook or middleware is used: what comes after a hook that agreed may still
change the arguments, or the tool.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strands.tools import ToolProvider
from strands.tools.decorator import DecoratedFunctionTool
from strands.types._events import ToolInterruptEvent, ToolResultEvent
from strands.types.tools import AgentTool, ToolContext, ToolGenerator, ToolSpec, ToolUse

from amends.adapters import NOT_MADE, TWICE, GatedTools, is_over, not_made
from amends.client import Desk
from amends.drivers import BIT_BY_BIT, whole
from amends.errors import AmendsError, ApprovalTimeout, NoEffect
from amends.runs import current_run
from amends.tools import Declaration
from amends.values import plain


class ToolError(AmendsError):
    """The tool said that it failed. Whether it had an effect by then, nobody knows."""


def gated(
    desk: Desk,
    tools: Iterable[AgentTool | ToolProvider],
    declared: Mapping[str, Declaration] | None = None,
    *,
    repeatable: Iterable[str] = (),
    wait_seconds: float | None = None,
    interrupts: bool = False,
) -> list[AgentTool | ToolProvider]:
    """The tools for an agent: each asks the desk before it runs, and says how it went.

    `declared`, `repeatable` and `wait_seconds` are those of `amends.adapters.GatedTools`. A tool is
    one of `@tool` or another AgentTool; of a ToolProvider (MCP among them) each tool is wrapped.
    TypeError for what Strands would load by itself, such as the name of a module, and for a
    generator function that is none of async: Strands goes through no such. With
    `interrupts` a call that waits for people interrupts the agent, with the approval and its
    address, instead of waiting; whatever it is answered, the desk is asked anew. What a tool
    streams comes once it has ended. A run that the desk has stopped cancels the agent.
    """
    waits = 0.0 if interrupts else wait_seconds
    gate = _Gate(GatedTools(desk, declared or {}, frozenset(repeatable), waits), interrupts)
    return [gate.wrapped(one) for one in tools]


@dataclass(frozen=True)
class _Gate:
    tools: GatedTools
    interrupts: bool

    def wrapped(self, tool: AgentTool | ToolProvider) -> AgentTool | ToolProvider:
        if isinstance(tool, ToolProvider):
            return _GatedProvider(tool, self)
        if not isinstance(tool, AgentTool):
            raise TypeError(f"{tool!r} is no tool yet: Strands would load it past the desk")
        return _GatedTool(tool, self)


@dataclass
class _Call:
    """What a tool did in one call; `error` if that was a failure."""

    events: list[Any] = field(default_factory=list)
    error: Exception | None = None

    def heard(self) -> Any:
        """What its last word comes to, as the desk is told. Raises what it raised."""
        last = self.events[-1] if self.events else {}
        result = last.tool_result if isinstance(last, ToolResultEvent) else last
        if isinstance(last, ToolInterruptEvent):
            # The tool itself asks somebody, and is called again with the answer.
            self.error = NoEffect("the tool asks for an answer first", retryable=True)
        elif isinstance(last, ToolResultEvent) and last.exception is not None:
            self.error = last.exception
        elif isinstance(result, Mapping) and result.get("status") == "error":
            self.error = ToolError(str(_said(result)))
        if self.error is not None:
            raise self.error
        return _said(result)


class _GatedTool(AgentTool):
    def __init__(self, inner: AgentTool, gate: _Gate) -> None:
        super().__init__()
        if isinstance(inner, _GatedTool):
            raise TypeError(TWICE.format(inner.tool_name))
        if inspect.isgeneratorfunction(getattr(inner, "__wrapped__", None)):
            raise TypeError(BIT_BY_BIT.format(inner.tool_name))
        self._inner, self._gate = _whole(inner), gate

    @property
    def tool_name(self) -> str:
        return self._inner.tool_name

    @property
    def tool_spec(self) -> ToolSpec:
        return self._inner.tool_spec

    @property
    def tool_type(self) -> str:
        return self._inner.tool_type

    async def stream(
        self, tool_use: ToolUse, invocation_state: dict[str, Any], **more: Any
    ) -> ToolGenerator:
        made = _Call()

        async def call(now: Mapping[str, Any]) -> Any:
            use: ToolUse = {**tool_use, "input": dict(now)}
            async for event in self._inner.stream(use, invocation_state, **more):
                made.events.append(event)
            return made.heard()

        asked = self.tool_name, tool_use["input"], tool_use["toolUseId"]
        try:
            done = await self._gate.tools.acall(*asked, call, told=plain, schema=self._schema)
        except Exception as error:
            if error is made.error:
                pass
            elif is_over(error):
                agent = invocation_state["agent"]
                agent.cancel(message=str(error))
                await current_run().acancel(by="the desk", reason=str(error))
                made.events = [_result(tool_use, "error", str(error))]
            elif self._gate.interrupts and isinstance(error, ApprovalTimeout):
                _interrupt(
                    ToolContext(tool_use, invocation_state["agent"], invocation_state), error
                )
            elif isinstance(error, NOT_MADE):
                made.events = [_result(tool_use, "error", not_made(error))]
            else:
                raise
        else:
            if not done.is_first:
                made.events = [_result(tool_use, "success", done.answer)]
        for event in made.events:
            yield event

    @property
    def _schema(self) -> dict[str, Any] | None:
        schema: dict[str, Any] | None = dict(self.tool_spec["inputSchema"]).get("json")
        return schema


def _whole(tool: AgentTool) -> AgentTool:
    """The same tool; of what its function returns, no generator is taken for an answer."""
    if type(tool) is not DecoratedFunctionTool:
        return tool
    function: Any = tool._tool_func  # noqa: SLF001 - it has no other way in
    is_plain = inspect.isfunction(function) or inspect.ismethod(function)
    if not is_plain or inspect.isasyncgenfunction(function):  # Strands goes through such a one
        return tool
    found = copy.copy(tool)
    is_awaited = inspect.iscoroutinefunction(function)
    found._tool_func = whole(function, tool.tool_name, is_awaited=is_awaited)  # noqa: SLF001
    return found


class _GatedProvider(ToolProvider):
    """A provider whose tools are gated as they are loaded."""

    def __init__(self, inner: ToolProvider, gate: _Gate) -> None:
        self._inner, self._gate = inner, gate

    async def load_tools(self, **more: Any) -> Sequence[AgentTool]:
        return [_GatedTool(one, self._gate) for one in await self._inner.load_tools(**more)]

    def add_consumer(self, consumer_id: Any, **more: Any) -> None:
        self._inner.add_consumer(consumer_id, **more)

    def remove_consumer(self, consumer_id: Any, **more: Any) -> None:
        self._inner.remove_consumer(consumer_id, **more)


def _interrupt(context: ToolContext[Any], error: ApprovalTimeout) -> None:
    """Interrupts the agent, again where it was answered before: that was no word of the desk's."""
    for time in itertools.count():
        reason = {"approval": error.approval, "url": error.url}
        context.interrupt(f"approval {error.approval} {time}", reason=reason)


def _said(result: Any) -> Any:
    """The content of a result: a single text or value as such, else its blocks."""
    content = result.get("content") if isinstance(result, Mapping) else result
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], Mapping):
        [(kind, value)] = list(content[0].items())[:1] or [("", "")]
        return value if kind in {"text", "json"} else content
    return content


def _result(tool_use: ToolUse, status: Any, answer: Any) -> ToolResultEvent:
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return ToolResultEvent(
        {"toolUseId": tool_use["toolUseId"], "status": status, "content": [{"text": text}]}
    )
