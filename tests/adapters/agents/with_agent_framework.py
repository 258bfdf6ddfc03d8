"""An agent of Microsoft's Agent Framework."""

import asyncio
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
)
from common import CALLS, DECLARED, assign_licence, look_up, play, send_welcome

import amends
from amends.adapters.agent_framework import gated


class Scripted(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    def __init__(self) -> None:
        super().__init__()
        self.left = list(CALLS)
        self.told = list[str]()

    async def _inner_get_response(self, *, messages: Any, **_: Any) -> ChatResponse:
        contents = [one for message in messages for one in message.contents]
        self.told = [str(one.result) for one in contents if one.type == "function_result"]
        if not self.left:
            return ChatResponse(messages=Message("assistant", ["Done."]))
        name, args, call = self.left.pop(0)
        asks = Content.from_function_call(call, name, arguments=args)
        return ChatResponse(messages=Message("assistant", [asks]))


def agent(desk: amends.Desk) -> list[str]:
    model = Scripted()
    tools = gated(desk, [assign_licence, send_welcome, look_up], DECLARED)
    asyncio.run(Agent(client=model, tools=tools).run("Onboard Mia and Tom"))
    return model.told


play(agent)
