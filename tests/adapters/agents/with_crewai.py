"""An agent of CrewAI."""

import json
from typing import Any

from common import CALLS, DECLARED, assign_licence, look_up, play, send_welcome
from crewai import Agent, BaseLLM, Crew, Task
from crewai.tools import tool

import amends
from amends.adapters.crewai import RunStopped, gated


class Scripted(BaseLLM):
    left: list[Any]
    told: list[str]

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        self.told[:] = [str(one["content"]) for one in messages if one["role"] == "tool"]
        if not self.left:
            return "Done."
        name, args, call = self.left.pop(0)
        function = {"name": name, "arguments": json.dumps(args)}
        return [{"id": call, "type": "function", "function": function}]

    def supports_function_calling(self) -> bool:
        return True


def agent(desk: amends.Desk) -> list[str]:
    told = list[str]()
    model = Scripted(model="scripted", left=list(CALLS), told=[])
    object.__setattr__(model, "told", told)
    tools = gated(desk, [tool(one) for one in (assign_licence, send_welcome, look_up)], DECLARED)
    onboarding = Agent(
        role="Onboarding", goal="Onboard people", backstory="You onboard.", llm=model, tools=tools
    )
    task = Task(description="Onboard Mia and Tom", expected_output="Done", agent=onboarding)
    try:
        Crew(agents=[onboarding], tasks=[task]).kickoff()
    except RunStopped as over:
        raise over.__cause__ or over from None
    return told


play(agent)
