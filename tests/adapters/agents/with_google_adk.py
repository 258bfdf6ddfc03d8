"""An agent of Google's Agent Development Kit."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from common import ASKED, CALLS, DECLARED, assign_licence, look_up, play, send_welcome
from google.adk.agents import Agent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

import amends
from amends.adapters.google_adk import gated

CONFIRMS = "adk_request_confirmation"


class Scripted(BaseLlm):
    left: list[Any]

    async def generate_content_async(self, *_: Any, **__: Any) -> AsyncGenerator[LlmResponse, None]:
        parts = [types.Part(text="Done.")]
        if self.left:
            tool, args, call = self.left.pop(0)
            parts = [types.Part(function_call=types.FunctionCall(name=tool, args=args, id=call))]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def agent(desk: amends.Desk) -> list[str]:
    waited, told = list[str](), list[str]()
    tools = gated(
        desk, [assign_licence, send_welcome, look_up], DECLARED,
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
        asks = await turn(session, types.Part(text="Onboard Mia and Tom"))
        for _ in ASKED.get("resumes", []):
            waited.extend(
                f"waits for {one.args['toolConfirmation']['payload']['approval']}" for one in asks
            )
            if not asks:
                break
            # A confirmation from elsewhere: the desk is asked anew all the same.
            yes = types.FunctionResponse(id=asks[0].id, name=CONFIRMS, response={"confirmed": True})
            asks = await turn(session, types.Part(function_response=yes))

    asyncio.run(story())
    return [*waited, *told]


play(agent)
