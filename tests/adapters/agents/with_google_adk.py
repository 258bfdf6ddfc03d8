"""An agent of Google's Agent Development Kit."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from common import (
    ASKED,
    CALLS,
    DECLARED,
    FAULT,
    assign_licence,
    look_up,
    people_agree,
    play,
    send_welcome,
)
from google.adk.agents import Agent, LiveRequestQueue
from google.adk.models import BaseLlm, LlmResponse
from google.adk.models.base_llm_connection import BaseLlmConnection
from google.adk.runners import InMemoryRunner
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

import amends
from amends.adapters.google_adk import gated

CONFIRMS = "adk_request_confirmation"


class Live(BaseLlmConnection):
    """A live session, which ends once the call is answered for good."""

    def __init__(self, calls: list[Any]) -> None:
        self.left, self.told = calls, asyncio.Queue[str]()

    async def send_history(self, history: Any) -> None: ...

    async def send_realtime(self, blob: Any) -> None: ...

    async def close(self) -> None: ...

    async def send_content(self, content: types.Content) -> None:
        for part in content.parts or ():
            if part.function_response and "pending" not in str(part.function_response.response):
                self.told.put_nowait(str(part.function_response.response))

    async def receive(self) -> AsyncGenerator[LlmResponse, None]:
        for tool, args, call in self.left:
            asks = types.Part(function_call=types.FunctionCall(name=tool, args=args, id=call))
            yield LlmResponse(content=types.Content(role="model", parts=[asks]))
        await asyncio.Event().wait()


class Scripted(BaseLlm):
    left: list[Any]
    live: Any = None

    @asynccontextmanager
    async def connect(self, _request: Any) -> AsyncIterator[Live]:
        yield self.live

    async def generate_content_async(self, *_: Any, **__: Any) -> AsyncGenerator[LlmResponse, None]:
        parts = [types.Part(text="Done.")]
        if self.left:
            tool, args, call = self.left.pop(0)
            parts = [types.Part(function_call=types.FunctionCall(name=tool, args=args, id=call))]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def asks(licence: str, holder: str, tool_context: ToolContext) -> dict[str, str]:
    """Give a licence to somebody, once somebody has agreed."""
    if tool_context.tool_confirmation is None:
        tool_context.request_confirmation(hint=f"{licence} to {holder}?")
        return {"error": "it waits for a confirmation"}
    if not tool_context.tool_confirmation.confirmed:
        return {"status": "nobody agreed"}
    return assign_licence(licence, holder)


async def streams(licence: str, holder: str) -> AsyncGenerator[str, None]:
    """Give a licence to somebody, and tell how it goes."""
    yield "begun"
    yield str(assign_licence(licence, holder))


async def live(runner: InMemoryRunner, session: Any, connection: Live) -> list[str]:
    queue = LiveRequestQueue()

    async def events() -> None:
        async for _ in runner.run_live(
            user_id="mia", session_id=session.id, live_request_queue=queue
        ):
            pass

    task = asyncio.ensure_future(events())
    told = [await asyncio.wait_for(connection.told.get(), 60) for _ in CALLS]
    queue.close()
    task.cancel()
    await asyncio.wait({task})
    return told


def fails_at_its_server(licence: str, holder: str) -> dict[str, Any]:
    """Give a licence to somebody, as a tool of an MCP server tells its error."""
    assign_licence(licence, holder)
    return {"content": [{"type": "text", "text": "no seat is free"}], "isError": True}


for one in (streams, asks, fails_at_its_server):
    one.__name__ = assign_licence.__name__
TOOLS = {
    "asks": asks,
    "live": streams,
    "fails at its server": fails_at_its_server,
    "asked by the framework": FunctionTool(assign_licence, require_confirmation=True),
}


def agent(desk: amends.Desk) -> list[str]:
    waited, told = list[str](), list[str]()
    tools = gated(
        desk, [TOOLS.get(FAULT, assign_licence), send_welcome, look_up], DECLARED,
        confirms=bool(ASKED.get("interrupts")),
    )  # fmt: skip
    model = Scripted(model="scripted", left=list(CALLS))
    runner = InMemoryRunner(Agent(name="onboarding", model=model, tools=tools), app_name="tests")

    async def turn(session: Any, part: types.Part) -> list[Any]:
        asks = []
        said = types.Content(role="user", parts=[part])
        async for event in runner.run_async(user_id="mia", session_id=session.id, new_message=said):
            for one in (event.content and event.content.parts) or ():
                if one.function_call and one.function_call.name == CONFIRMS:
                    asks.append(one.function_call)
                if one.function_response and one.function_response.name != CONFIRMS:
                    told.append(str(one.function_response.response))
        return asks

    async def story() -> None:
        session = await runner.session_service.create_session(app_name="tests", user_id="mia")
        if FAULT == "live":
            model.live = Live(list(CALLS))
            told.extend(await live(runner, session, model.live))
            return
        asks = await turn(session, types.Part(text="Onboard Mia and Tom"))
        for answer in ASKED.get("resumes", []):
            for one in asks:
                asked = one.args["toolConfirmation"]
                about = asked["payload"]["approval"] if asked.get("payload") else asked["hint"]
                waited.append(f"waits for {about}")
            if not asks:
                break
            if FAULT in TOOLS:
                people_agree()
            # A confirmation from elsewhere: the desk is asked anew all the same.
            said = {"confirmed": answer != "no"}
            yes = types.FunctionResponse(id=asks[0].id, name=CONFIRMS, response=said)
            asks = await turn(session, types.Part(function_response=yes))

    asyncio.run(story())
    return [*waited, *told]


play(agent)
