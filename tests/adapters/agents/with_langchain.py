"""An agent of LangChain, synchronous or (`"awaited": true`) in an event loop."""

import asyncio
from contextlib import suppress
from typing import Annotated, Any, TypedDict

from common import (
    ASKED,
    CALLS,
    DECLARED,
    FAULT,
    OTHER,
    assign_licence,
    bits,
    look_up,
    people_agree,
    play,
    send_welcome,
)
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import task
from langgraph.graph import StateGraph
from langgraph.types import Command, interrupt
from pydantic import PrivateAttr

import amends
from amends.adapters.langchain import AmendsMiddleware


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **_: Any) -> "Scripted":
        return self


class Given(TypedDict):
    licence: str
    holder: str


class Changes(AgentMiddleware[Any, Any]):
    """Another middleware, behind the gate, which writes the call anew."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        call = request.tool_call
        changed = {**call, "args": {**call["args"], "licence": OTHER}}
        return handler(request.override(tool_call=changed))


class Instead(AgentMiddleware[Any, Any]):
    """One behind the gate that does something else in the tool's place, or beside it."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        call = request.tool_call
        said = ToolMessage("from a cache", tool_call_id=call["id"])
        other = StructuredTool.from_function(look_up, name="assign_licence")
        its_call = {**call, "args": {"name": "tom"}}
        if FAULT == "swapped":
            return handler(request.override(tool=other, tool_call=its_call))
        if FAULT == "swapped past":
            return handler(ToolCallRequest(its_call, other, request.state, request.runtime))
        if FAULT == "more":
            return handler(
                request.override(tool_call={**call, "args": {**call["args"], "force": True}})
            )
        if FAULT == "another as well":
            answer = handler(request)
            with suppress(amends.NoEffect):
                Changes().wrap_tool_call(request, handler)
            return answer
        if FAULT == "swallowed":
            with suppress(TimeoutError):
                return handler(request)
        return said


class Supplies(AgentMiddleware[Any, Any]):
    """One behind the gate that brings a tool along."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        tool = request.tool or StructuredTool.from_function(assign_licence)
        return handler(request.override(tool=tool))


class Reviews(AgentMiddleware[Any, Any]):
    """One behind the gate that asks somebody about what the tool has done."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        answer = handler(request)
        interrupt("well done?")
        return answer


def free(**args: Any) -> Any:
    """Give a licence to somebody."""
    return assign_licence(args["licence"], args["holder"])


def commands(licence: str, holder: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
    """Give a licence to somebody, and tell the graph how that went."""
    given = assign_licence(licence, holder)
    is_wrong = FAULT == "a command of an error"
    said = {"role": "tool", "content": f"gave {given['licence']}", "tool_call_id": tool_call_id,
            "status": "error" if is_wrong else "success"}  # fmt: skip
    other = {**said, "tool_call_id": "another", "status": "error"}
    return Command(update={"messages": [other, said]})


class Remembers(BaseTool):
    """Gives each of its licences once: it keeps in itself that it has."""

    name: str = "assign_licence"
    description: str = "Give a licence to somebody"
    _given: int = PrivateAttr(0)

    def _run(self, licence: str, holder: str) -> Any:
        if self._given:
            return "there is none left"
        self._given += 1
        return assign_licence(licence, holder)


def asks(licence: str, holder: str) -> Any:
    """Give a licence to somebody, once somebody has agreed."""
    said = interrupt(f"{licence} to {holder}?")
    return assign_licence(licence, holder) if said == "do it" else f"nobody agreed: {said}"


def asks_within(licence: str, holder: str) -> Any:
    """Give a licence to somebody, in a graph or a task of its own that asks somebody after it."""

    def give(given: dict[str, str]) -> dict[str, str]:
        return assign_licence(**given)

    def review(given: dict[str, str]) -> dict[str, str]:
        return {"holder": interrupt(f"{given['licence']}, well done?")}

    def give_and_review(given: dict[str, str]) -> dict[str, str]:
        return review(give(given))

    if FAULT == "asks in a task":
        return task(give_and_review)({"licence": licence, "holder": holder}).result()
    graph = StateGraph(Given).add_sequence([give, review]).set_entry_point("give").compile()
    return graph.invoke({"licence": licence, "holder": holder})


def scripted(calls: Any) -> Scripted:
    said = [
        AIMessage("", tool_calls=[{"name": tool, "args": args, "id": call, "type": "tool_call"}])
        for tool, args, call in calls
    ]
    return Scripted(messages=iter([*said, AIMessage("Done.")]))


def giving() -> Any:
    """The tool that gives a licence."""
    if FAULT == "asks":
        return StructuredTool.from_function(asks, name="assign_licence")
    if FAULT == "bits where nobody awaits":

        async def at_once(licence: str, holder: str) -> Any:
            return assign_licence(licence, holder)

        return StructuredTool.from_function(bits, at_once, name="assign_licence")
    if FAULT in ("asks in a graph", "asks in a task"):
        return StructuredTool.from_function(asks_within, name="assign_licence")
    if FAULT in ("a command", "a command of an error"):
        return StructuredTool.from_function(commands, name="assign_licence")
    if FAULT == "more":
        kinds = {name: {"type": "string"} for name in ("licence", "holder")}
        schema = {"type": "object", "properties": kinds, "title": "give", "description": "Give"}
        return StructuredTool.from_function(free, name="assign_licence", args_schema=schema)
    return Remembers() if FAULT == "remembers" else assign_licence


def behind() -> list[Any]:
    """What stands behind the gate."""
    instead = ("answered", "swapped", "swapped past", "more", "another as well", "swallowed")
    found: dict[str, list[Any]] = {
        **{fault: [Instead()] for fault in instead},
        "changed": [Changes()],
        "late": [ToolRetryMiddleware(initial_delay=0)],
        "supplied": [Supplies()],
        "reviewed": [Reviews()],
    }
    return found.get(FAULT, [])


def agent(desk: amends.Desk) -> list[str]:
    gate = AmendsMiddleware(desk, DECLARED, interrupts=bool(ASKED.get("interrupts")))
    tools: list[Any] = [giving(), send_welcome, look_up]
    calls = CALLS
    if FAULT == "handed over":
        other = create_agent(scripted(CALLS), tools, middleware=[gate])

        def hand_over(request: str) -> str:
            """Let another agent do it."""
            state = other.invoke({"messages": [("user", request)]})
            return str(state["messages"][-2].content)

        tools, calls = [hand_over], [("hand_over", {"request": "Onboard Mia"}, "over_1")]
    tools = tools[1:] if FAULT == "supplied" else tools
    middleware = [gate, *behind()]
    graph = create_agent(
        scripted(calls), tools, middleware=middleware, checkpointer=InMemorySaver()
    )
    config = {"configurable": {"thread_id": "one"}}
    asked: Any = {"messages": [("user", "Onboard Mia and Tom")]}
    waited = list[str]()
    for answer in [None, *ASKED.get("resumes", [])]:
        if answer is not None:
            asked = Command(resume=answer)
            if FAULT in ("asks", "handed over"):
                people_agree()
        state = (
            asyncio.run(graph.ainvoke(asked, config))
            if ASKED.get("awaited")
            else graph.invoke(asked, config)
        )
        for one in state.get("__interrupt__", ()):
            said_of = one.value["approval"] if isinstance(one.value, dict) else one.value
            waited.append(f"waits for {said_of}")
    told = [str(one.content) for one in state["messages"] if isinstance(one, ToolMessage)]
    return [*waited, *told]


play(agent)
