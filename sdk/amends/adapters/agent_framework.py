"""Microsoft Agent Framework: the tools of an agent, each behind the desk.

    agent = Agent(client=client, tools=gated(desk, [update_flight]))
    with desk.run("Move my return flight"):
        await agent.run("Move my return flight to HAT019")

The tools themselves are wrapped and no middleware is used: another one behind it may still change
the arguments, and an exception in it is a tool's answer after which the agent goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agent_framework import Content, FunctionTool, MiddlewareFailure, tool
from pydantic import BaseModel

from amends.adapters import ELSEWHERE, NOT_MADE, TWICE, GatedTools, not_made
from amends.client import Desk
from amends.errors import Stopped
from amends.tools import Declaration
from amends.values import plain


class RunStopped(Stopped, MiddlewareFailure):
    """We stopped because the desk has stopped the run. The framework hands on no other error."""


def gated(
    desk: Desk,
    tools: Iterable[FunctionTool | Callable[..., Any]],
    declared: Mapping[str, Declaration] | None = None,
    *,
    repeatable: Iterable[str] = (),
    wait_seconds: float | None = None,
) -> list[FunctionTool]:
    """The tools for an agent: each asks the desk before it runs, and says how it went.

    `declared`, `repeatable` and `wait_seconds` are those of `amends.adapters.GatedTools`. A tool is
    a function or one of `@tool`; of an MCP server that is connected these are its `functions`.
    TypeError for what is neither, or has no function: what the model's provider or a client runs
    goes past the desk. A run that the desk has stopped ends the agent's with RunStopped.
    """
    gate = GatedTools(desk, declared or {}, frozenset(repeatable), wait_seconds)
    return [_GatedTool(_function_tool(one), gate) for one in tools]


def _function_tool(given: Any) -> FunctionTool:
    if isinstance(given, _GatedTool):
        raise TypeError(TWICE.format(given.name))
    found = given if isinstance(given, FunctionTool) or not callable(given) else tool(given)
    if not isinstance(found, FunctionTool) or found.declaration_only:
        raise TypeError(ELSEWHERE.format(given))
    return found


class _GatedTool(FunctionTool):
    def __init__(self, inner: FunctionTool, gate: GatedTools) -> None:
        vars(self).update(vars(inner))
        self._gate = gate

    async def invoke(
        self,
        *,
        arguments: BaseModel | Mapping[str, Any] | None = None,
        context: Any = None,
        tool_call_id: str | None = None,
        skip_parsing: bool = False,
        **named: Any,
    ) -> Any:
        given = arguments if arguments is not None else named or getattr(context, "arguments", {})
        args = given.model_dump() if isinstance(given, BaseModel) else dict(given)
        error: list[Exception] = []

        async def call(now: Mapping[str, Any]) -> Any:
            try:
                return await super(_GatedTool, self).invoke(
                    arguments=dict(now), context=context, tool_call_id=tool_call_id,
                    skip_parsing=True,
                )  # fmt: skip
            except Exception as raised:
                error.append(raised)
                raise

        asked = self.name, args, tool_call_id
        try:
            done = await self._gate.acall(*asked, call, told=plain, schema=self.parameters())
        except NOT_MADE as refused:
            if error:
                raise
            if isinstance(refused, Stopped):
                raise RunStopped(refused.reason, refused.answer) from refused
            return self._parsed(not_made(refused), skip_parsing=skip_parsing)
        return self._parsed(done.answer, skip_parsing=skip_parsing)

    def _parsed(self, answer: Any, *, skip_parsing: bool) -> Any:
        """As the framework hands a function's answer to the model."""
        if skip_parsing or (self.result_parser is not None and not callable(self.result_parser)):
            return answer
        parse = self.result_parser or FunctionTool.parse_result
        parsed = parse(answer)
        return [Content.from_text(parsed)] if isinstance(parsed, str) else parsed
