"""An agent of smolagents; with `"codes": true` one whose model writes code."""

from typing import Any

from common import ASKED, CALLS, DECLARED, assign_licence, look_up, play, send_welcome
from smolagents import CodeAgent, Model, Tool, ToolCallingAgent
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
)

import amends
from amends.adapters.smolagents import RunStopped, gated


class Scripted(Model):
    left = [*CALLS, ("final_answer", {"answer": "Done."}, "call_last")]

    def generate(self, *_: Any, **__: Any) -> ChatMessage:
        name, args, call = self.left.pop(0)
        function = ChatMessageToolCallFunction(name=name, arguments=args)
        asked = ChatMessageToolCall(id=call, type="function", function=function)
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[asked])


class Codes(Scripted):
    def generate(self, *_: Any, **__: Any) -> ChatMessage:
        name, args, _call = self.left.pop(0)
        said = ", ".join(map(repr, args.values()))
        code = f"<code>\nprint({name}({said}))\n</code>" if name != "final_answer" else FINAL
        return ChatMessage(role=MessageRole.ASSISTANT, content=code)


FINAL = '<code>\nfinal_answer("Done.")\n</code>'


def tool_of(function: Any, *names: str) -> Tool:
    """As `@tool` makes it of a function whose docstring names each argument."""

    class Made(Tool):
        name, description, output_type = function.__name__, function.__doc__, "any"
        inputs = {one: {"type": "string", "description": one} for one in names}
        skip_forward_signature_validation = True

        def forward(self, **args: Any) -> Any:
            return function(**args)

    return Made()


def agent(desk: amends.Desk) -> list[str]:
    tools = [tool_of(assign_licence, "licence", "holder"), tool_of(send_welcome, "to"),
             tool_of(look_up, "name")]  # fmt: skip
    behind = gated(desk, tools, DECLARED)
    if ASKED.get("codes"):
        no_limit = {"timeout_seconds": None}
        onboarding: Any = CodeAgent(
            tools=behind, model=Codes(), executor_kwargs=no_limit, verbosity_level=0
        )
    else:
        onboarding = ToolCallingAgent(tools=behind, model=Scripted(), verbosity_level=0)
    try:
        onboarding.run("Onboard Mia and Tom")
    except RunStopped as over:
        raise over.__cause__ or over from None
    steps = [one for one in onboarding.memory.steps if hasattr(one, "observations")]
    return [str(one.error.message if one.error else one.observations) for one in steps[:-1]]


play(agent)
