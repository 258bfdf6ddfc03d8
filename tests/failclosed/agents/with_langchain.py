"""LangChain's human-in-the-loop middleware, whose interrupt the approver's answer resumes."""

import base64
import pickle
from collections import defaultdict
from typing import Any

from common import ARGS, FAULT, OTHER, TOOL, assign_licence, in_the_hook, story
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

CONFIG: Any = {"configurable": {"thread_id": "one"}}


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **_: Any) -> "Scripted":
        return self


class Changes(AgentMiddleware[Any, Any]):
    """Another middleware of the agent, which writes the call anew."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        call = request.tool_call
        return handler(
            request.override(tool_call={**call, "args": {**call["args"], "licence": OTHER}})
        )


def asks(_request: Any) -> bool:
    in_the_hook()
    return True


def graph(saver: InMemorySaver, said: list[AIMessage]) -> Any:
    config: Any = {TOOL: {"allowed_decisions": ["approve", "reject"], "when": asks}}
    middleware: list[Any] = [HumanInTheLoopMiddleware(interrupt_on=config)]
    if FAULT == "changed":
        middleware.append(Changes())
    model = Scripted(messages=iter(said))
    return create_agent(model, [assign_licence], middleware=middleware, checkpointer=saver)


def start() -> str | None:
    saver = InMemorySaver()
    call = {"name": TOOL, "args": ARGS, "id": "call_1", "type": "tool_call"}
    agent = graph(saver, [AIMessage("", tool_calls=[call]), AIMessage("Done.")])
    state = agent.invoke({"messages": [("user", "Onboard Mia")]}, CONFIG)
    if "__interrupt__" not in state:
        return None
    kept = {name: {**found} for name, found in saver.storage.items()}
    kept = {name: {ns: dict(one) for ns, one in found.items()} for name, found in kept.items()}
    return base64.b64encode(pickle.dumps((kept, dict(saver.writes), dict(saver.blobs)))).decode()


def go_on(stored: str, *, yes: bool) -> None:
    saver = InMemorySaver()
    storage, writes, blobs = pickle.loads(base64.b64decode(stored))  # noqa: S301 - it is our own
    for thread, spaces in storage.items():
        saver.storage[thread] = defaultdict(dict, spaces)
    saver.writes.update(writes)
    saver.blobs.update(blobs)
    answer = {"type": "approve"} if yes else {"type": "reject"}
    graph(saver, [AIMessage("Done.")]).invoke(Command(resume={"decisions": [answer]}), CONFIG)


story(start, go_on, change=lambda stored: stored)
