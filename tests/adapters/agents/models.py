"""A scripted model for the lines of docs/frameworks.md: it asks once for `update_flight`."""

import json
import os
from typing import Any

ASKED = {"reservation": "XEHM4B", "flight": "HAT019"}

if os.environ["FRAMEWORK"] == "langchain":
    from langchain_core.language_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    class Scripted(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **_: Any) -> "Scripted":
            return self

    call = {"name": "update_flight", "args": ASKED, "id": "call_1", "type": "tool_call"}
    model: Any = Scripted(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("Done.")]))

elif os.environ["FRAMEWORK"] == "openai_agents":
    from agents import function_tool, set_tracing_disabled
    from agents.testing import ModelStep, ScriptedModel
    from agents.testing.model import assistant_message, function_call

    set_tracing_disabled(True)
    asks = ModelStep(output=[function_call("update_flight", ASKED, call_id="call_1")])
    model = ScriptedModel([asks, ModelStep(output=[assistant_message("Done.")])])
    update_flight = function_tool(update_flight)  # noqa: F821 - it stands before these lines

elif os.environ["FRAMEWORK"] == "google_adk":
    from google.adk.models import BaseLlm, LlmResponse
    from google.genai import types

    class Adk(BaseLlm):
        left: list[Any]

        async def generate_content_async(self, *_: Any, **__: Any) -> Any:
            yield LlmResponse(content=types.Content(role="model", parts=[self.left.pop(0)]))

    asked = types.FunctionCall(name="update_flight", args=ASKED, id="call_1")
    model = Adk(model="scripted", left=[types.Part(function_call=asked), types.Part(text="Done.")])

elif os.environ["FRAMEWORK"] == "crewai":
    from crewai import BaseLLM
    from crewai.tools import tool

    class Crewed(BaseLLM):
        left: list[Any]

        def call(self, *_: Any, **__: Any) -> Any:
            return self.left.pop(0)

        def supports_function_calling(self) -> bool:
            return True

    function = {"name": "update_flight", "arguments": json.dumps(ASKED)}
    asked = {"id": "call_1", "type": "function", "function": function}
    model = Crewed(model="scripted", left=[[asked], "Done."])
    update_flight = tool(update_flight)

elif os.environ["FRAMEWORK"] == "strands":
    from strands import tool
    from strands.models import Model

    class Strands(Model):
        left: list[Any] = [ASKED]

        def update_config(self, **_: Any) -> None: ...

        def get_config(self) -> Any:
            return {}

        def structured_output(self, *_: Any, **__: Any) -> Any: ...

        async def stream(self, *_: Any, **__: Any) -> Any:
            asks = self.left.pop() if self.left else None
            use = {"toolUse": {"name": "update_flight", "toolUseId": "call_1"}}
            said = {"toolUse": {"input": json.dumps(asks)}} if asks else {"text": "Done."}
            yield {"messageStart": {"role": "assistant"}}
            yield {"contentBlockStart": {"start": use if asks else {}}}
            yield {"contentBlockDelta": {"delta": said}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "tool_use" if asks else "end_turn"}}

    model = Strands()
    update_flight = tool(update_flight)

elif os.environ["FRAMEWORK"] == "smolagents":
    from smolagents import Model, Tool
    from smolagents.models import (
        ChatMessage,
        ChatMessageToolCall,
        ChatMessageToolCallFunction,
        MessageRole,
    )

    class Small(Model):
        left: list[Any] = [("final_answer", {"answer": "Done."}), ("update_flight", ASKED)]

        def generate(self, *_: Any, **__: Any) -> Any:
            name, args = self.left.pop()
            function = ChatMessageToolCallFunction(name=name, arguments=args)
            call = ChatMessageToolCall(id="call_1", type="function", function=function)
            return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call])

    class UpdateFlight(Tool):
        name, description = "update_flight", "Move a reservation to another flight."
        inputs = {one: {"type": "string", "description": one} for one in ASKED}
        output_type = "any"
        plain = staticmethod(update_flight)

        def forward(self, reservation: str, flight: str) -> Any:
            return self.plain(reservation, flight)

    model, update_flight = Small(), UpdateFlight()

elif os.environ["FRAMEWORK"] == "claude_agent_sdk":
    from claude_agent_sdk import tool
    from messages_server import serve

    os.environ["ANTHROPIC_BASE_URL"] = serve([("mcp__trips__update_flight", ASKED, "call_1")])
    plain = update_flight

    @tool("update_flight", plain.__doc__, {"reservation": str, "flight": str})
    async def update_flight(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": str(plain(**args))}]}

elif os.environ["FRAMEWORK"] == "ag2":
    from ag2.events import ToolCallEvent
    from ag2.testing import TestConfig

    asks = ToolCallEvent("update_flight", arguments=json.dumps(ASKED), id="call_1")
    model = TestConfig(asks, "Done.")

elif os.environ["FRAMEWORK"] == "agent_framework":
    from agent_framework import (
        BaseChatClient,
        ChatResponse,
        Content,
        FunctionInvocationLayer,
        Message,
    )

    class Chat(FunctionInvocationLayer, BaseChatClient):
        left: list[Any] = [
            "Done.",
            Content.from_function_call("call_1", "update_flight", arguments=ASKED),
        ]

        async def _inner_get_response(self, **_: Any) -> Any:
            return ChatResponse(messages=Message("assistant", [self.left.pop()]))

    model = Chat()

else:
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    said = iter([
        ModelResponse([ToolCallPart("update_flight", json.dumps(ASKED), tool_call_id="call_1")]),
        ModelResponse([TextPart("Done.")]),
    ])  # fmt: skip
    model = FunctionModel(lambda _messages, _info: next(said))
