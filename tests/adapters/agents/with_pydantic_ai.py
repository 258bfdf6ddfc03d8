"""An agent of Pydantic AI."""

import asyncio
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
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import FunctionToolset

import amends
from amends.adapters.pydantic_ai import AmendsToolset


def agent(desk: amends.Desk) -> list[str]:
    left = list(CALLS)

    def model(_messages: Any, _info: Any) -> ModelResponse:
        if not left:
            return ModelResponse([TextPart("Done.")])
        tool, args, call = left.pop(0)
        return ModelResponse([ToolCallPart(tool, args, tool_call_id=call)])

    limit = 0.5 if FAULT == "takes too long" else None
    giving = Tool(assign_licence, requires_approval=FAULT == "asked first", timeout=limit)
    tools: Any = FunctionToolset([giving, send_welcome, look_up])
    if FAULT == "asks":
        tools = tools.approval_required()
    gate: Any = AmendsToolset(tools, desk, DECLARED, defers=bool(ASKED.get("interrupts")))
    if FAULT == "asked around":
        gate = gate.approval_required()
    onboarding = Agent(
        FunctionModel(model), toolsets=[gate], output_type=[str, DeferredToolRequests]
    )

    async def story() -> list[str]:
        waited = list[str]()
        result = await onboarding.run("Onboard Mia and Tom")
        for _ in ASKED.get("resumes", []):
            if not isinstance(result.output, DeferredToolRequests):
                break
            asked = result.output
            waited += [f"waits for {one['approval']}" for one in asked.metadata.values() if one]
            if FAULT and waited:
                people_agree()
            # An approval from elsewhere: the desk is asked anew all the same.
            yes = DeferredToolResults(approvals={one.tool_call_id: True for one in asked.approvals})
            result = await onboarding.run(
                message_history=result.all_messages(), deferred_tool_results=yes
            )
        parts = [part for message in result.all_messages() for part in message.parts]
        return waited + [str(one.content) for one in parts if isinstance(one, ToolReturnPart)]

    return asyncio.run(story())


play(agent)
