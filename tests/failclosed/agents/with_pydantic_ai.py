"""Pydantic AI's deferred tools: `ApprovalRequired`, and a message history that the approver's
answer resumes.
"""

import json
from typing import Any

from common import ARGS, TOOL, assign_licence, in_the_hook, story
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolDenied
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import FunctionToolset


def asks(_context: Any, _tool: Any, _args: dict[str, Any]) -> bool:
    in_the_hook()
    return True


def agent(*said: ModelResponse) -> Agent[Any, Any]:
    left = iter(said)
    toolset = FunctionToolset([assign_licence]).approval_required(asks)
    return Agent(
        FunctionModel(lambda _messages, _info: next(left)),
        toolsets=[toolset], output_type=[str, DeferredToolRequests],
    )  # fmt: skip


DONE = ModelResponse([TextPart("Done.")])


def start() -> str | None:
    call = ModelResponse([ToolCallPart(TOOL, json.dumps(ARGS), tool_call_id="call_1")])
    result = agent(call, DONE).run_sync("Onboard Mia")
    paused = isinstance(result.output, DeferredToolRequests)
    return result.all_messages_json().decode() if paused else None


def go_on(stored: str, *, yes: bool) -> None:
    answer = yes or ToolDenied("no")
    agent(DONE).run_sync(
        message_history=ModelMessagesTypeAdapter.validate_json(stored),
        deferred_tool_results=DeferredToolResults(approvals={"call_1": answer}),
    )


story(start, go_on)
