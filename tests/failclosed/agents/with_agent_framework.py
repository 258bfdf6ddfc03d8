"""`approval_mode="always_require"` of Microsoft's Agent Framework, and a session that the
approver's answer resumes.
"""

import asyncio
import json
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)
from common import ARGS, TOOL, assign_licence, in_the_hook, story


class Scripted(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    def __init__(self, *, asks: bool) -> None:
        super().__init__()
        self.asks = asks

    async def _inner_get_response(self, **_: Any) -> ChatResponse:
        if not self.asks:
            return ChatResponse(messages=Message("assistant", ["Done."]))
        self.asks = False
        call = Content.from_function_call("call_1", TOOL, arguments=ARGS)
        return ChatResponse(messages=Message("assistant", [call]))


def agent(*, asks: bool) -> Agent[Any]:
    gated = tool(approval_mode="always_require")(assign_licence)
    return Agent(client=Scripted(asks=asks), tools=[gated])


def start() -> str | None:
    session = AgentSession()
    in_the_hook()
    result = asyncio.run(agent(asks=True).run("Onboard Mia", session=session))
    asked = [one.to_dict() for one in result.user_input_requests]
    return json.dumps({"asked": asked, "session": session.to_dict()}) if asked else None


def go_on(stored: str, *, yes: bool) -> None:
    kept = json.loads(stored)
    answers: list[Any] = [
        Content.from_dict(one).to_function_approval_response(yes) for one in kept["asked"]
    ]
    session = AgentSession.from_dict(kept["session"])
    asyncio.run(agent(asks=False).run(Message("user", answers), session=session))


story(start, go_on)
