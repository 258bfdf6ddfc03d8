"""CrewAI: the tools of an agent, each behind the desk.

    agent = Agent(role=..., tools=gated(desk, [update_flight]))
    with desk.run("Move my return flight"):
        Crew(agents=[agent], tasks=[task]).kickoff()

Tools are wrapped and no hook is used: CrewAI takes a hook that raises for one that agrees, and
hooks that come after it may still change the arguments.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from crewai.tools import BaseTool
from crewai.tools.tool_failure import ToolFailure
from pydantic import PrivateAttr

from amends.adapters import NOT_MADE, TWICE, GatedTools, is_over, not_made
from amends.client import Desk
from amends.errors import AmendsError
from amends.tools import Declaration
from amends.values import plain


class RunStopped(BaseException):
    """The desk has stopped the run, as its cause tells. CrewAI would go on after an Exception."""


class ToolError(AmendsError):
    """The tool said that it failed. Whether it had an effect by then, nobody knows."""

    def __init__(self, answer: ToolFailure) -> None:
        super().__init__(answer.message)
        self.answer = answer


def gated(
    desk: Desk,
    tools: Iterable[BaseTool],
    declared: Mapping[str, Declaration] | None = None,
    *,
    repeatable: Iterable[str] = (),
    wait_seconds: float | None = None,
) -> list[BaseTool]:
    """The tools for an agent: each asks the desk before it runs, and says how it went.

    `declared`, `repeatable` and `wait_seconds` are those of `amends.adapters.GatedTools`. What an
    agent gets without its `tools` (`mcps`, `apps`, delegation) is not among them. CrewAI's cache of
    results is not used for them: the desk remembers what was done.
    """
    gate = GatedTools(desk, declared or {}, frozenset(repeatable), wait_seconds)
    return [_GatedTool.around(gate, one) for one in tools]


class _GatedTool(BaseTool):
    _gate: GatedTools = PrivateAttr()
    _inner: BaseTool = PrivateAttr()

    @classmethod
    def around(cls, gate: GatedTools, inner: BaseTool) -> _GatedTool:
        if isinstance(inner, _GatedTool):
            raise TypeError(TWICE.format(inner.name))
        found = cls(
            name=inner.name, description=inner.description, args_schema=inner.args_schema,
            result_as_answer=inner.result_as_answer, cache_function=_is_cached,
        )  # fmt: skip
        found._gate, found._inner = gate, inner
        return found

    def _run(self, **args: Any) -> Any:
        def call(now: Mapping[str, Any]) -> Any:
            return _heard(self._inner.run(**now))

        try:
            return self._gate.call(*self._asked(args), call, told=plain, schema=self._schema).answer
        except Exception as error:  # noqa: BLE001 - told, or raised again
            return _said(error)

    async def _arun(self, **args: Any) -> Any:
        async def call(now: Mapping[str, Any]) -> Any:
            return _heard(await asyncio.to_thread(self._inner.run, **now))

        asked = self._asked(args)
        try:
            found = await self._gate.acall(*asked, call, told=plain, schema=self._schema)
        except Exception as error:  # noqa: BLE001 - told, or raised again
            return _said(error)
        return found.answer

    @property
    def _schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = self._inner.args_schema.model_json_schema()
        return schema

    def _asked(self, args: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
        return self.name, args, secrets.token_hex(8)  # CrewAI tells no tool the id of its call


def _is_cached(_args: Any = None, _result: Any = None) -> bool:
    return False


def _heard(answer: Any) -> Any:
    if isinstance(answer, ToolFailure):
        raise ToolError(answer)
    return answer


def _said(error: Exception) -> Any:
    """What the model reads of an error. Raises what is none of the model's business."""
    if isinstance(error, ToolError):
        return error.answer
    if is_over(error):
        raise RunStopped(str(error)) from error
    if not isinstance(error, NOT_MADE):
        raise error
    return not_made(error)
