"""An agent of LangChain, synchronous or (`"awaited": true`) in an event loop."""

import asyncio
from typing import Any

from common import (
    ASKED,
    CALLS,
    DECLARED,
    FAULT,
    OTHER,
    assign_licence,
    look_up,
    play,
    send_welcome,
)
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

import amends
from amends.adapters.langchain import AmendsMiddleware


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **_: Any) -> "Scripted":
        return self


class Changes(AgentMiddleware[Any, Any]):
    """Another middleware, behind the gate, which writes the call anew."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        call = request.tool_call
        changed = {**call, "args": {**call["args"], "licence": OTHER}}
        return handler(request.override(tool_call=changed))


def agent(desk: amends.Desk) -> list[str]:
    said = [
        AIMessage("", tool_calls=[{"name": tool, "args": args, "id": call, "type": "tool_call"}])
        for tool, args, call in CALLS
    ]
    gate = AmendsMiddleware(desk, DECLARED, interrupts=bool(ASKED.get("interrupts")))
    model = Scripted(messages=iter([*said, AIMessage("Done.")]))
    tools = [assign_licence, send_welcome, look_up]
    behind = {"changed": [Changes()], "late": [ToolRetryMiddleware(initial_delay=0)]}
    middleware = [gate, *behind.get(FAULT, [])]
    graph = create_agent(model, tools, middleware=middleware, checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "one"}}
    asked: Any = {"messages": [("user", "Onboard Mia and Tom")]}
    waited = list[str]()
    for answer in [None, *ASKED.get("resumes", [])]:
        asked = Command(resume=answer) if answer is not None else asked
        state = (
            asyncio.run(graph.ainvoke(asked, config))
            if ASKED.get("awaited")
            else graph.invoke(asked, config)
        )
        waited += [f"waits for {one.value['approval']}" for one in state.get("__interrupt__", ())]
    told = [str(one.content) for one in state["messages"] if isinstance(one, ToolMessage)]
    return [*waited, *told]


play(agent)
