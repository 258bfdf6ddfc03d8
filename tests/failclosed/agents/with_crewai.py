"""CrewAI's hook before a tool call, in which the approver is asked; a no is `HookAborted`."""

import json
from typing import Any

from common import ARGS, FAULT, OTHER, TOOL, approved, assign_licence
from crewai import Agent, BaseLLM, Crew, Task
from crewai.hooks import HookAborted, InterceptionPoint, on
from crewai.tools import tool


class Scripted(BaseLLM):
    left: list[Any]

    def call(self, *_: Any, **__: Any) -> Any:
        return self.left.pop(0)

    def supports_function_calling(self) -> bool:
        return True


@on(InterceptionPoint.PRE_TOOL_CALL)
def ask(context: Any) -> None:
    if not approved(context.tool_name, dict(context.tool_input)):
        raise HookAborted("nobody agreed")


if FAULT == "changed":

    @on(InterceptionPoint.PRE_TOOL_CALL)
    def change(context: Any) -> None:
        """Another hook of the crew, which writes the call anew."""
        context.tool_input["licence"] = OTHER


function = {"name": TOOL, "arguments": json.dumps(ARGS)}
call = [{"id": "call_1", "type": "function", "function": function}]
agent = Agent(
    role="Onboarding", goal="Onboard people", backstory="You onboard.",
    llm=Scripted(model="scripted", left=[call, "Done."]), tools=[tool(assign_licence)],
)  # fmt: skip
task = Task(description="Onboard Mia", expected_output="Done", agent=agent)
Crew(agents=[agent], tasks=[task]).kickoff()
