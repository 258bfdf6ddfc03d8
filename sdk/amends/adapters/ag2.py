"""AG2: the tools of an agent, each behind the desk.

    agent = Agent("trips", config=config, tools=gated(desk, [update_flight]))
    with desk.run("Move my return flight"):
        await agent.ask("Move my return flight to HAT019")

The tools themselves are wrapped and no middleware is used: what stands between a middleware that
agreed and the tool may still change the arguments, or answer in its place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any

from ag2.annotations import Context
from ag2.events import ToolCallEvent, ToolErrorEvent, ToolResult, ToolResultEvent
from ag2.exceptions import HumanInputError
from ag2.tools import tool
from ag2.tools.final.function_tool import FunctionTool

from amends.adapters import ELSEWHERE, NOT_MADE, TWICE, GatedTools, not_made
from amends.client import Desk
from amends.drivers import refuse_lazy
from amends.errors import AmendsError, NoEffect, Stopped
from amends.tools import Declaration
from amends.values import plain


class RunStopped(Stopped, HumanInputError):
    """We stopped because the desk has stopped the run. Of what else a tool raises AG2 makes an
    answer to the model.
    """


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
    a function or one of `@tool`. TypeError for what is neither: toolkits, tools that the model's
    provider runs by itself and tools that a client runs elsewhere would go past the desk. A run
    that the desk has stopped ends `ask` with RunStopped.
    """
    gate = _Gate(desk, declared or {}, frozenset(repeatable), wait_seconds)
    return [_GatedTool(_function_tool(one), gate) for one in tools]


def _function_tool(given: Any) -> FunctionTool:
    if isinstance(given, _GatedTool):
        raise TypeError(TWICE.format(given.name))
    found = tool(given) if callable(given) and not hasattr(given, "schemas") else given
    if not isinstance(found, FunctionTool):
        raise TypeError(ELSEWHERE.format(given))
    return found


class _Gate(GatedTools):
    def __deepcopy__(self, _memo: object) -> _Gate:
        """AG2 copies each tool that an agent is given, and the gate is one for all."""
        return self


class _GatedTool(FunctionTool):
    __slots__ = ("_gate",)

    def __init__(self, inner: FunctionTool, gate: _Gate) -> None:
        function = inner.schema.function
        super().__init__(
            inner.model,
            name=inner.name,
            description=function.description,
            schema=function.parameters,
            middleware=[one.middleware for one in inner.middleware],
        )
        self._gate = gate

    async def __call__(self, event: ToolCallEvent, context: Context) -> ToolResultEvent:
        made: list[ToolResultEvent] = []

        async def call(now: Mapping[str, Any]) -> Any:
            asked = copy(event)
            asked.serialized_arguments = dict(now)
            try:
                made.append(await super(_GatedTool, self).__call__(asked, context))
            except HumanInputError as unasked:
                # The tool itself asks somebody first, and there is nobody to be asked.
                raise _NotAsked(str(unasked)) from unasked
            if isinstance(made[0], ToolErrorEvent):
                raise made[0].error
            result = made[0].result
            for part in result.parts:
                data = getattr(part, "data", None)
                try:
                    refuse_lazy(data, asked.name)
                except TypeError as unmade:
                    # Else AG2 would go through it, to show the model what it answers.
                    made[0] = ToolErrorEvent.from_call(event, error=unmade)
                    if inspect.isasyncgen(data):
                        await data.aclose()
                    raise
            return result

        schema = self.schema.function.parameters
        try:
            done = await self._gate.acall(
                self.name, event.serialized_arguments, event.id, call, told=_said, schema=schema
            )
        except _NotAsked as unasked:
            raise unasked.__cause__ or unasked from None
        except Exception as error:
            if made:
                return made[0]
            if isinstance(error, Stopped):
                raise RunStopped(error.reason, error.answer) from error
            if isinstance(error, NOT_MADE):
                return _refused(event, error)
            raise
        return made[0] if made else ToolResultEvent.from_call(event, result=done.answer)


class _NotAsked(NoEffect):
    """The tool has done nothing, for nobody could be asked."""


def _said(result: ToolResult) -> Any:
    """The parts of a result: of a single text or value that, else of each what it is."""
    parts = [
        getattr(part, "content", getattr(part, "data", None)) or plain(part)
        for part in result.parts
    ]
    return plain(parts[0]) if len(parts) == 1 else plain(parts)


def _refused(event: ToolCallEvent, error: AmendsError) -> ToolErrorEvent:
    said = ToolResult(not_made(error))
    return ToolErrorEvent(parent_id=event.id, name=event.name, error=error, result=said)
