"""An agent of Strands."""

import json
from collections.abc import AsyncIterator
from typing import Any

from common import ASKED, CALLS, DECLARED, assign_licence, look_up, play, send_welcome
from strands import Agent, tool
from strands.models import Model

import amends
from amends.adapters.strands import gated


class Scripted(Model):
    def __init__(self) -> None:
        self.left = list(CALLS)

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        yield {"messageStart": {"role": "assistant"}}
        if self.left:
            name, args, call = self.left.pop(0)
            yield {"contentBlockStart": {"start": {"toolUse": {"name": name, "toolUseId": call}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(args)}}}}
            reason = "tool_use"
        else:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": "Done."}}}
            reason = "end_turn"
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": reason}}


def agent(desk: amends.Desk) -> list[str]:
    waited = list[str]()
    tools = gated(
        desk, [tool(one) for one in (assign_licence, send_welcome, look_up)], DECLARED,
        interrupts=bool(ASKED.get("interrupts")),
    )  # fmt: skip
    onboarding = Agent(model=Scripted(), tools=tools, callback_handler=None)
    result = onboarding("Onboard Mia and Tom")
    for answer in ASKED.get("resumes", []):
        if result.stop_reason != "interrupt":
            break
        waited += [f"waits for {one.reason['approval']}" for one in result.interrupts]
        # An answer from elsewhere: the desk is asked anew all the same.
        result = onboarding([
            {"interruptResponse": {"interruptId": one.id, "response": answer}}
            for one in result.interrupts
        ])  # fmt: skip
    blocks = [block for message in onboarding.messages for block in message["content"]]
    told = [block["toolResult"]["content"] for block in blocks if "toolResult" in block]
    return [*waited, *(" ".join(str(one.get("text", one)) for one in content) for content in told)]


play(agent)
