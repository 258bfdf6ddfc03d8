"""An agent of AG2."""

import asyncio
import json

from ag2 import Agent
from ag2.events import BaseEvent, ToolCallEvent, ToolResultEvent
from ag2.stream import MemoryStream
from ag2.testing import TestConfig
from common import CALLS, DECLARED, assign_licence, look_up, play, send_welcome
from pydantic_core import to_json

import amends
from amends.adapters.ag2 import gated


def agent(desk: amends.Desk) -> list[str]:
    told = list[str]()

    async def hear(event: BaseEvent) -> None:
        if isinstance(event, ToolResultEvent):
            [part] = event.result.parts
            said = getattr(part, "content", None)  # of all else a provider is sent the JSON
            told.append(to_json(part.data).decode() if said is None else str(said))

    async def story() -> None:
        calls = [
            ToolCallEvent(name, arguments=json.dumps(args), id=id_) for name, args, id_ in CALLS
        ]
        model = TestConfig(*calls, "Done.", raise_tool_errors=False)
        tools = gated(desk, [assign_licence, send_welcome, look_up], DECLARED)
        stream = MemoryStream()
        stream.subscribe(hear)
        await Agent("onboarding", config=model, tools=tools).ask("Onboard Mia", stream=stream)

    asyncio.run(story())
    return told


play(agent)
