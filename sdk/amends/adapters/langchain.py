"""LangChain and LangGraph: middleware that puts every tool call of an agent to the desk.

    agent = create_agent(model, tools, middleware=[AmendsMiddleware(desk)])
    with desk.run("Move my return flight"):
        agent.invoke(...)

For a `ToolNode` of your own give `middleware.wrap_tool_call` and `middleware.awrap_tool_call`.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

from langchain.agents.middleware import AgentMiddleware
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.errors import GraphInterrupt
from langgraph.types import Command, interrupt

from amends.actions import CHANGED
from amends.adapters import NOT_MADE, GatedTools, is_over, not_made
from amends.client import Desk
from amends.drivers import refuse_lazy, whole
from amends.errors import AmendsError, ApprovalTimeout, ArgumentsChanged, NoEffect
from amends.tools import Declaration, Performed

Answer: TypeAlias = ToolMessage | Command[Any]


AGAIN = (
    "this call was made, and one yes is for one call: it was not made again. Let retries stand"
    " before the gate, where each asks the desk"
)
NO_TOOL = (
    "no tool of this name is known here. Where a middleware brings it along, let that one stand"
    " before the gate"
)
OWN_QUESTION = (
    "{} asks something of its own (`interrupt()`), and with `interrupts=True` would be given what"
    " was said to a pause for people: leave that out, and the call waits instead"
)


class ToolError(AmendsError):
    """The tool said that it failed. Whether it had an effect by then, nobody knows."""

    def __init__(self, answer: ToolMessage) -> None:
        super().__init__(str(answer.content))
        self.answer = answer


class _Asks(NoEffect):
    """The tool itself asks somebody, by the interrupt that is the cause, and has done nothing yet:
    the graph is resumed from the start of the node, and calls it again.
    """


class AmendsMiddleware(AgentMiddleware[Any, Any]):
    """Asks the desk before each tool call and says afterwards how it went.

    `declared`, `repeatable` and `wait_seconds` are those of `amends.adapters.GatedTools`. With
    `interrupts` a call that waits for people pauses the graph (`interrupt()` with the approval and
    its address) instead of waiting: whatever it is resumed with, the desk is asked anew. NoEffect
    for a tool that then calls `interrupt()` itself: it would be given that answer.
    """

    def __init__(
        self,
        desk: Desk,
        declared: Mapping[str, Declaration] | None = None,
        *,
        repeatable: Iterable[str] = (),
        wait_seconds: float | None = None,
        interrupts: bool = False,
    ) -> None:
        super().__init__()
        waits = 0.0 if interrupts else wait_seconds
        self._tools = GatedTools(desk, declared or {}, frozenset(repeatable), waits)
        self._interrupts = interrupts

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Answer]
    ) -> Answer:
        if (tool := request.tool) is None:
            return _refused(request, NO_TOOL)
        _refuse_bits(tool, is_awaited=False)

        def call(now: Mapping[str, Any]) -> Answer:
            bound = _Bound(request, tool, now)
            with bound.asking(is_refused=self._interrupts):
                return bound.heard(handler(bound.request))

        while True:
            try:
                asked, schema = _asked(request), _schema(tool)
                done = self._tools.call(*asked, call, told=_result, schema=schema)
            except Exception as error:  # noqa: BLE001 - told, or raised again
                if (said := self._said(request, error)) is not None:
                    return said
            else:
                return _message(request, done)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Answer]]
    ) -> Answer:
        if (tool := request.tool) is None:
            return _refused(request, NO_TOOL)
        _refuse_bits(tool, is_awaited=True)

        async def call(now: Mapping[str, Any]) -> Answer:
            bound = _Bound(request, tool, now)
            with bound.asking(is_refused=self._interrupts):
                return bound.heard(await handler(bound.request))

        while True:
            try:
                asked, schema = _asked(request), _schema(tool)
                done = await self._tools.acall(*asked, call, told=_result, schema=schema)
            except Exception as error:  # noqa: BLE001 - told, or raised again
                if (said := self._said(request, error)) is not None:
                    return said
            else:
                return _message(request, done)

    def _said(self, request: ToolCallRequest, error: Exception) -> ToolMessage | None:
        """What the model reads of an error; None where the desk is to be asked anew. Raises what is
        none of the model's business, and what pauses the graph.
        """
        if isinstance(error, ToolError):
            return error.answer
        if isinstance(error, _Asks) and error.__cause__ is not None:
            raise error.__cause__
        if self._interrupts and isinstance(error, ApprovalTimeout):
            # Pauses the graph; resumed, it gives what the graph was resumed with, which is no word
            # of the desk's.
            interrupt({"approval": error.approval, "url": error.url})
            return None
        if is_over(error) or not isinstance(error, NOT_MADE):
            raise error
        return _refused(request, error)


def _refused(request: ToolCallRequest, why: AmendsError | str) -> ToolMessage:
    return ToolMessage(
        not_made(why), name=request.tool_call["name"],
        tool_call_id=str(request.tool_call["id"]), status="error",
    )  # fmt: skip


def _asked(request: ToolCallRequest) -> tuple[str, dict[str, Any], str | None]:
    return request.tool_call["name"], request.tool_call["args"], request.tool_call["id"]


def _schema(tool: BaseTool) -> dict[str, Any]:
    """Which arguments the model was told that the tool takes."""
    return {"type": "object", "properties": tool.args}


def _refuse_bits(tool: BaseTool, *, is_awaited: bool) -> None:
    """LangChain would make a text of a generator, and nobody go through it."""
    taken = ["func", "_run"]
    if is_awaited:
        has_own = type(tool)._arun is not BaseTool._arun  # noqa: SLF001 - what a tool overrides
        is_coroutine = getattr(tool, "coroutine", None) is not None
        taken = ["coroutine" if is_coroutine else "func", "_arun" if has_own else "_run"]
    for name in taken:
        if callable(function := getattr(tool, name, None)):
            refuse_lazy(function)


def _whole(tool: BaseTool) -> BaseTool:
    """The same tool; of what it answers, nothing is taken for an answer that is still to be gone
    through or to be awaited.
    """
    found = copy.copy(tool)
    for name in ("_run", "_arun"):
        function = whole(getattr(found, name), tool.name, is_awaited=name == "_arun")
        object.__setattr__(found, name, function)
    return found


class _Bound:
    """A request whose tool takes the arguments that were agreed to and no others, once: a
    middleware behind the gate may write the call anew, or make it again.
    """

    def __init__(self, request: ToolCallRequest, tool: BaseTool, args: Mapping[str, Any]) -> None:
        self._is_changed, self._agreed = False, copy.deepcopy(dict(args))
        self._once = threading.Lock()
        self._tool = tool
        self.request = request.override(
            tool_call={**request.tool_call, "args": dict(args)}, tool=self._guarded(tool)
        )

    @contextmanager
    def asking(self, *, is_refused: bool) -> Iterator[None]:
        """Of a tool that asks somebody itself, that it has done nothing. `is_refused` is whether
        the graph pauses for people as well: LangGraph tells by their order alone which answer is
        whose, so nothing that was said before reaches the tool, and its own question is refused.
        """
        if is_refused:
            _forget_answers()
        try:
            yield
        except GraphInterrupt as question:
            if self._once.locked():  # something was done: what asks is another middleware, or comes
                raise  # after what a graph or task of the tool's has done, which is not done anew
            if is_refused and not _is_for_people(question):
                raise NoEffect(OWN_QUESTION.format(self._tool.name)) from question
            raise _Asks("the tool asks for an answer first", retryable=True) from question

    def heard(self, answer: Answer) -> Answer:
        """`ToolNode` makes a message of what a tool raises, and that is no success."""
        if self._is_changed:
            raise ArgumentsChanged(CHANGED)
        if isinstance(answer, ToolMessage) and answer.status == "error":
            raise ToolError(answer)
        return answer

    def _guarded(self, tool: BaseTool) -> BaseTool:
        guarded, inner = copy.copy(tool), _whole(tool)

        def invoke(call: Any, config: Any = None, **more: Any) -> Any:
            self._check(tool, call)
            with self._refusable():
                return inner.invoke(call, config, **more)

        async def ainvoke(call: Any, config: Any = None, **more: Any) -> Any:
            self._check(tool, call)
            with self._refusable():
                return await inner.ainvoke(call, config, **more)

        object.__setattr__(guarded, "invoke", invoke)
        object.__setattr__(guarded, "ainvoke", ainvoke)
        return guarded

    def _check(self, tool: BaseTool, call: Any) -> None:
        """Without what the graph injects, which no model says."""
        found, said = call["args"], self._agreed.keys() | tool.args.keys()
        if {name: found[name] for name in found if name in said} != self._agreed:
            self._is_changed = True
            raise ArgumentsChanged(CHANGED)
        if not self._once.acquire(blocking=False):
            raise AmendsError(AGAIN)

    @contextmanager
    def _refusable(self) -> Iterator[None]:
        """Of a call that has done nothing, as the tool says, another may follow."""
        try:
            yield
        except GraphInterrupt as question:
            if _is_for_people(question) or _is_own(question):
                self._once.release()
            raise
        except NoEffect as refusal:
            if not refusal.told:
                self._once.release()
            raise


def _forget_answers() -> None:
    """What the graph was resumed with so far was said to pauses for people."""
    with suppress(Exception):  # there is none left, or no graph
        while True:
            interrupt(None)


def _is_for_people(question: GraphInterrupt) -> bool:
    """Whether it is such a pause, of an agent that the tool has called."""
    asked = [one.value for one in question.args[0]]
    return all(isinstance(one, dict) and one.keys() == {"approval", "url"} for one in asked)


def _is_own(question: GraphInterrupt) -> bool:
    """Whether the tool asks it by itself, and no graph or task that it has called: LangGraph names
    a question by the place that it is asked at.
    """
    try:
        interrupt(None)
    except GraphInterrupt as here:
        return {one.id for one in question.args[0]} == {one.id for one in here.args[0]}
    return False


def _result(answer: Answer) -> Any:
    return answer.content if isinstance(answer, ToolMessage) else str(answer)


def _message(request: ToolCallRequest, done: Performed) -> Answer:
    """The tool's own answer, or a message of what it answered when the call was first made."""
    if done.is_first:
        answer: Answer = done.answer
        return answer
    return ToolMessage(
        done.answer if isinstance(done.answer, str | list) else str(done.answer),
        name=request.tool_call["name"], tool_call_id=str(request.tool_call["id"]),
    )  # fmt: skip
