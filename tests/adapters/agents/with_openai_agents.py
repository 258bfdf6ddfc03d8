"""An agent of the OpenAI Agents SDK."""

import asyncio

from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel
from agents.testing.model import assistant_message, function_call
from common import CALLS, DECLARED, assign_licence, look_up, play, send_welcome

import amends
from amends.adapters.openai_agents import gated

set_tracing_disabled(True)


def agent(desk: amends.Desk) -> list[str]:
    steps = [
        ModelStep(output=[function_call(tool, args, call_id=call)]) for tool, args, call in CALLS
    ]
    model = ScriptedModel([*steps, ModelStep(output=[assistant_message("Done.")])])
    tools = [function_tool(one) for one in (assign_licence, send_welcome, look_up)]
    trips = gated(desk, Agent(name="onboarding", model=model, tools=tools), DECLARED)
    result = asyncio.run(Runner.run(trips, "Onboard Mia and Tom"))
    return [str(one.output) for one in result.new_items if one.type == "tool_call_output_item"]


play(agent)
