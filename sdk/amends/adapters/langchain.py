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
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from langchain.agents.middleware import AgentMiddleware
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.messages import ToolMessage, convert_to_messages
from langchain_core.tools import BaseTool
from langchain_core.utils.pydantic import get_fields
from langgraph.errors import GraphInterrupt
from langgraph.types import Command, interrupt

from amends.actions import CHANGED
from amends.adapters import NOT_MADE, GatedTools, is_over, not_made
from amends.client import Desk
from amends.drivers import refuse_lazy, whole
from amends.errors import AmendsError, ApprovalTimeout, ArgumentsChanged, NoEffect
from amends.tools import Declaration, Performed

Answer: TypeAlias = ToolMessage | Command[Any]
PARTS_DEEP_MAX = 5  # a list of commands, each with an update of lists of messages, as dicts perhaps

AGAIN = (
    "this call was made, and one yes is for one call: it was not made again. Let retries stand"
    " before the gate, where each asks the desk"
)
NO_TOOL = (
    "no tool of this name is known here. Where a middleware brings it along, let that one stand"
    " before the gate"
)
OTHER_TOOL = (
    "a middleware behind the gate put another tool in the place of {}, which is not what was agreed"
    " to: it is not called. Let it stand before the gate"
)
IN_ITS_PLACE = (
    "something behind the gate answered in the place of {}, or called another tool: nobody knows"
    " what was done. Let a middleware that does so stand before the gate"
)
NOT_OVER = "{} had not ended when it was answered for"
OWN_QUESTION = (
    "{} asks something of its own (`interrupt()`), and with `interrupts=True` would be given what"
    " was said to a pause for people: leave that out, and the call waits instead"
)


class ToolError(AmendsError):
    """The tool said that it failed. Whether it had an effect by then, nobody knows."""

    def __init__(self, answer: Answer, words: Any) -> None:
        super().__init__(str(words))
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
                told = partial(_result, request)
                done = self._tools.call(*asked, call, told=told, schema=schema)
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
                told = partial(_result, request)
                done = await self._tools.acall(*asked, call, told=told, schema=schema)
            except Exception as error:  # noqa: BLE001 - told, or raised again
                if (said := self._said(request, error)) is not None:
                    return said
            else:
                return _message(request, done)

    def _said(self, request: ToolCallRequest, error: Exception) -> Answer | None:
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
    return {"type": "object", "properties": _args(tool)}


def _args(tool: BaseTool) -> dict[str, Any]:
    is_bare = isinstance(tool.args_schema, dict) and "properties" not in tool.args_schema
    return {} if is_bare else tool.args


def _injected(tool: BaseTool) -> set[str]:
    """Which arguments the graph gives it, and no model."""
    found: set[str] = {"runtime", *tool._injected_args_keys}  # noqa: SLF001 - of its signature
    if not isinstance(tool.args_schema, dict):
        found |= get_fields(tool.get_input_schema()).keys() - _args(tool).keys()
    return found


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
    """The same tool, which runs as itself, with all that it keeps; of what it answers, nothing is
    taken for an answer that is still to be gone through or to be awaited.
    """
    found = copy.copy(tool)
    for name in ("_run", "_arun"):
        function = whole(getattr(tool, name), tool.name, is_awaited=name == "_arun")
        object.__setattr__(found, name, function)
    return found


@dataclass
class _BoundRequest(ToolCallRequest):
    """A request whose tool stays as it is."""

    guarded: BaseTool

    def __post_init__(self) -> None:
        self._check(self.tool)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "tool" and "guarded" in vars(self):
            self._check(value)
        super().__setattr__(name, value)

    def _check(self, tool: BaseTool | None) -> None:
        if tool is not self.guarded:
            raise ArgumentsChanged(OTHER_TOOL.format(self.guarded.name))


class _Bound:
    """A request whose tool takes the arguments that were agreed to and no others, once: a
    middleware behind the gate may write the call anew, make it again, or answer in its place.
    """

    def __init__(self, request: ToolCallRequest, tool: BaseTool, args: Mapping[str, Any]) -> None:
        self._is_changed, self._agreed = False, copy.deepcopy(dict(args))
        self._once, self._is_made = threading.Lock(), False
        self._error: BaseException | None = None
        self._tool, guarded = tool, self._guarded(tool)
        call: Any = {**request.tool_call, "args": dict(args)}
        self.request = _BoundRequest(call, guarded, request.state, request.runtime, guarded)

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
        except NoEffect as refusal:
            # What a middleware refuses is another call than the one that was made.
            if self._once.locked() and refusal is not self._error:
                raise AmendsError(f"{self._tool.name} was called, and then: {refusal}") from refusal
            raise

    def heard(self, answer: Answer) -> Answer:
        """`ToolNode` makes a message of what a tool raises, and that is no success; nor is what
        others answered where the tool did not.
        """
        if self._is_changed:
            raise ArgumentsChanged(CHANGED)
        for message in _own(self.request, answer):
            if message.status == "error":
                raise ToolError(answer, message.content)
        if self._error is not None:
            raise ToolError(answer, self._error) from self._error
        if not self._is_made:
            name = self._tool.name
            if self._once.locked():
                raise ToolError(answer, NOT_OVER.format(name))
            raise AmendsError(IN_ITS_PLACE.format(name))
        return answer

    def _guarded(self, tool: BaseTool) -> BaseTool:
        guarded, inner = copy.copy(tool), _whole(tool)

        def invoke(call: Any, config: Any = None, **more: Any) -> Any:
            self._check(tool, call)
            with self._making():
                return inner.invoke(call, config, **more)

        async def ainvoke(call: Any, config: Any = None, **more: Any) -> Any:
            self._check(tool, call)
            with self._making():
                return await inner.ainvoke(call, config, **more)

        object.__setattr__(guarded, "invoke", invoke)
        object.__setattr__(guarded, "ainvoke", ainvoke)
        return guarded

    def _check(self, tool: BaseTool, call: Any) -> None:
        """Without what the graph injects, which no model says."""
        found, injected = call["args"], _injected(tool) - self._agreed.keys()
        if {name: found[name] for name in found if name not in injected} != self._agreed:
            self._is_changed = True
            raise ArgumentsChanged(CHANGED)
        if not self._once.acquire(blocking=False):
            raise AmendsError(AGAIN)

    @contextmanager
    def _making(self) -> Iterator[None]:
        """Of a call that has done nothing, as the tool says, another may follow."""
        self._error = None
        try:
            yield
            self._is_made = True
        except BaseException as error:
            self._error = error
            self._may_follow(error)
            raise

    def _may_follow(self, error: BaseException) -> None:
        if isinstance(error, GraphInterrupt):
            is_free = _is_for_people(error) or _is_own(error)
        else:
            is_free = isinstance(error, NoEffect) and not error.told
        if is_free:
            self._once.release()


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


def _own(request: ToolCallRequest, answer: Answer) -> list[ToolMessage]:
    """What an answer tells the model of this call: a `Command` holds it in what it updates."""
    if isinstance(answer, ToolMessage):
        return [answer]
    found = _messages(answer, PARTS_DEEP_MAX)
    return [one for one in found if one.tool_call_id == request.tool_call["id"]]


def _messages(found: Any, deep: int) -> Iterator[ToolMessage]:
    if isinstance(found, ToolMessage):
        yield found
    elif isinstance(found, Command):
        update = found.update
        is_plain = isinstance(update, Mapping | list | tuple)
        yield from _messages(update if is_plain else getattr(update, "__dict__", {}), deep)
    elif isinstance(found, Mapping) and "tool_call_id" in found:
        with suppress(Exception):  # it only looks like one
            yield from _messages(convert_to_messages([dict(found)]), 1)
    elif deep and isinstance(found, Mapping | list | tuple):
        for part in found.values() if isinstance(found, Mapping) else found:
            yield from _messages(part, deep - 1)


def _result(request: ToolCallRequest, answer: Answer) -> Any:
    told = [one.content for one in _own(request, answer)]
    return told[0] if len(told) == 1 else str(answer)


def _message(request: ToolCallRequest, done: Performed) -> Answer:
    """The tool's own answer, or a message of what it answered when the call was first made."""
    if done.is_first:
        answer: Answer = done.answer
        return answer
    return ToolMessage(
        done.answer if isinstance(done.answer, str | list) else str(done.answer),
        name=request.tool_call["name"], tool_call_id=str(request.tool_call["id"]),
    )  # fmt: skip
