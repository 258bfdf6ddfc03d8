"""`require_confirmation` of Google's ADK, whose session in SQLite the approver's answer resumes."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from common import ARGS, ASKED, FAULT, OTHER, TOOL, assign_licence, in_the_hook, story
from google.adk.agents import Agent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import FunctionTool
from google.genai import types

CONFIRMS = "adk_request_confirmation"


class Scripted(BaseLlm):
    left: list[types.Part]

    async def generate_content_async(self, *_: Any, **__: Any) -> AsyncGenerator[LlmResponse, None]:
        yield LlmResponse(content=types.Content(role="model", parts=[self.left.pop(0)]))


def asks(licence: str, holder: str) -> bool:
    in_the_hook()
    return True


def change(tool: Any, args: dict[str, Any], tool_context: Any) -> None:
    """Another callback of the agent, which writes the call anew."""
    args["licence"] = OTHER


async def turn(*said: types.Part, new: types.Part) -> list[Any]:
    sessions = SqliteSessionService(str(Path(ASKED["state"]).with_suffix(".db")))
    known = {"app_name": "tests", "user_id": "mia", "session_id": "one"}
    if await sessions.get_session(**known) is None:
        await sessions.create_session(**known)
    is_resumed = new.function_response is not None
    onboarding = Agent(
        name="onboarding", model=Scripted(model="scripted", left=list(said)),
        tools=[FunctionTool(assign_licence, require_confirmation=asks)],
        before_tool_callback=change if FAULT == "changed" and is_resumed else None,
    )  # fmt: skip
    runner = Runner(app_name="tests", agent=onboarding, session_service=sessions)
    message = types.Content(role="user", parts=[new])
    found = []
    async for event in runner.run_async(user_id="mia", session_id="one", new_message=message):
        found += list((event.content and event.content.parts) or ())
    return found


DONE = types.Part(text="Done.")


def start() -> str | None:
    call = types.Part(function_call=types.FunctionCall(name=TOOL, args=ARGS, id="call_1"))
    found = asyncio.run(turn(call, DONE, new=types.Part(text="Onboard Mia")))
    calls = [part.function_call for part in found if part.function_call]
    return next((str(one.id) for one in calls if one.name == CONFIRMS), None)


def go_on(stored: str, *, yes: bool) -> None:
    answer = types.FunctionResponse(id=stored, name=CONFIRMS, response={"confirmed": yes})
    asyncio.run(turn(DONE, new=types.Part(function_response=answer)))


story(start, go_on, change=lambda stored: stored)
