"""Google's Agent Development Kit: the tools of an agent, each behind the desk.

agent = Agent(name="trips", model=model, tools=gated(desk, [update_flight]))
with desk.run("Move my return flight"):
    async for event in runner.run_async(...): ...
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext

from amends.adapters import NOT_MADE, TWICE, GatedTools, is_over, not_made
from amends.client import Desk
from amends.errors import AmendsError, ApprovalTimeout, NoEffect
from amends.tools import Declaration
from amends.values import plain

AdkTool = BaseTool | BaseToolset | Callable[..., Any]

STREAMS = (
    "{} streams its answers to a live session, so that nobody would hear how it ends: let it go"
    " through them and return what came"
)
OWN_CONFIRMATION = (
    "{} asks for a confirmation of its own, and with `confirms=True` would be given what was said"
    " to a request for people: leave that out, and the call waits instead"
)


class ToolError(AmendsError):
    """The tool answered `{"error": …}`, or an MCP server that it is one (`isError`). Whether it had
    an effect by then, nobody knows.
    """

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(str(answer.get("error") or answer.get("content")))
        self.answer = answer


class _Asks(NoEffect):
    """The tool itself asks a person, for a confirmation or a credential, and has done nothing yet:
    it is called again with the answer.
    """

    def __init__(self, answer: Any) -> None:
        super().__init__("the tool asks for an answer first", retryable=True)
        self.answer = answer


class _Streams(NoEffect):
    """The tool would be gone through after it was told as made. It has not begun."""


def gated(
    desk: Desk,
    tools: Iterable[AdkTool],
    declared: Mapping[str, Declaration] | None = None,
    *,
    repeatable: Iterable[str] = (),
    wait_seconds: float | None = None,
    confirms: bool = False,
) -> list[AdkTool]:
    """The tools for an agent: each asks the desk before it runs, and says how it went.

    `declared`, `repeatable` and `wait_seconds` are those of `amends.adapters.GatedTools`. With
    `confirms` a call that waits for people ends the turn with a request for confirmation, which
    holds the approval and its address, instead of waiting; whatever is confirmed, the desk is asked
    anew; NoEffect for a tool that then asks for a confirmation itself, which would be given that
    one. ValueError for a tool that the model's provider runs by itself. A tool that streams to a
    live session is not called.

    Tools are wrapped and no plug-in is used: a plug-in's yes would be given before others may still
    change the arguments, or answer in the tool's place.
    """
    waits = 0.0 if confirms else wait_seconds
    gate = _Gate(GatedTools(desk, declared or {}, frozenset(repeatable), waits), confirms)
    return [gate.wrapped(one) for one in tools]


@dataclass(frozen=True)
class _Gate:
    tools: GatedTools
    confirms: bool

    def wrapped(self, tool: AdkTool) -> AdkTool:
        if isinstance(tool, BaseToolset):
            return _GatedToolset(tool, self)
        return self.tool(tool if isinstance(tool, BaseTool) else FunctionTool(tool))

    def tool(self, tool: BaseTool) -> BaseTool:
        if type(tool).run_async is BaseTool.run_async:
            raise ValueError(f"{tool.name} is run by the model's provider, past the desk")
        if isinstance(tool.run_async, _Run):
            raise TypeError(TWICE.format(tool.name))
        copied = copy.copy(tool)
        copied.run_async = _Run(self, tool)  # type: ignore[method-assign]
        return copied

    async def run(self, tool: BaseTool, args: dict[str, Any], context: ToolContext) -> Any:
        async def call(now: Mapping[str, Any]) -> Any:
            # What a tool requires by itself the framework has asked for before it came here.
            if self.confirms and not await tool.check_require_confirmation(args, context):
                context.tool_confirmation = None
            answer = await tool.run_async(args=dict(now), tool_context=context)
            if inspect.isasyncgen(answer):
                raise _Streams(STREAMS.format(tool.name))
            self._check_asks(tool, answer, context)
            if isinstance(answer, dict) and (set(answer) == {"error"} or _is_error_of_mcp(answer)):
                raise ToolError(answer)
            return answer

        try:
            asked = tool.name, args, str(context.function_call_id)
            schema = _schema(tool)
            return (await self.tools.acall(*asked, call, told=plain, schema=schema)).answer
        except (ToolError, _Asks) as error:
            return error.answer
        except _Streams as error:
            return {"error": not_made(error)}
        except NOT_MADE as error:
            if is_over(error):
                raise
            if self.confirms and isinstance(error, ApprovalTimeout):
                context.request_confirmation(
                    hint=str(error), payload={"approval": error.approval, "url": error.url}
                )
            return {"error": not_made(error)}

    def _check_asks(self, tool: BaseTool, answer: Any, context: ToolContext) -> None:
        call, actions = context.function_call_id, context.actions
        if self.confirms and call in actions.requested_tool_confirmations:
            raise NoEffect(OWN_CONFIRMATION.format(tool.name))
        if call in actions.requested_tool_confirmations or call in actions.requested_auth_configs:
            raise _Asks(answer)


def _is_error_of_mcp(answer: dict[str, Any]) -> bool:
    return isinstance(answer.get("content"), list) and True in (
        answer.get("isError"), answer.get("is_error"),
    )  # fmt: skip


@dataclass(frozen=True)
class _Run:
    """How a gated tool runs."""

    gate: _Gate
    tool: BaseTool

    async def __call__(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        return await self.gate.run(self.tool, args, tool_context)


def _schema(tool: BaseTool) -> dict[str, Any] | None:
    """Which arguments the model was told that the tool takes, where it is told any."""
    declaration = tool._get_declaration()  # noqa: SLF001 - what the model is told
    if declaration is None:
        return None
    if declaration.parameters_json_schema is not None:
        return dict(declaration.parameters_json_schema)
    if declaration.parameters is None:
        return None
    return declaration.parameters.json_schema.model_dump(mode="json", exclude_none=True)


class _GatedToolset(BaseToolset):
    """A toolset whose tools are gated as they are listed."""

    def __init__(self, inner: BaseToolset, gate: _Gate) -> None:
        super().__init__()
        self._inner, self._gate = inner, gate

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        found = await self._inner.get_tools_with_prefix(readonly_context)
        return [self._gate.tool(one) for one in found]

    async def close(self) -> None:
        await self._inner.close()
