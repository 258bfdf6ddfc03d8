"""`needs_approval` of the OpenAI Agents SDK, whose stored `RunState` the approver resumes."""

import asyncio
import json
from typing import Any

from agents import Agent, Runner, RunState, function_tool, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel
from agents.testing.model import assistant_message, function_call
from common import ARGS, TOOL, assign_licence, in_the_hook, story

set_tracing_disabled(True)


async def asks(_context: Any, _args: dict[str, Any], _call: str) -> bool:
    in_the_hook()
    return True


def agent(*steps: ModelStep) -> Agent[Any]:
    tool = function_tool(assign_licence, needs_approval=asks)
    return Agent(name="onboarding", model=ScriptedModel(list(steps)), tools=[tool])


DONE = ModelStep(output=[assistant_message("Done.")])


def start() -> str | None:
    call = ModelStep(output=[function_call(TOOL, ARGS, call_id="call_1")])
    result = asyncio.run(Runner.run(agent(call, DONE), "Onboard Mia"))
    return json.dumps(result.to_state().to_json()) if result.interruptions else None


def go_on(stored: str, *, yes: bool) -> None:
    async def resumed() -> None:
        onboarding = agent(DONE)
        state = await RunState.from_json(onboarding, json.loads(stored))
        for asked in state.get_interruptions():
            state.approve(asked) if yes else state.reject(asked)
        await Runner.run(onboarding, state)

    asyncio.run(resumed())


story(start, go_on)
