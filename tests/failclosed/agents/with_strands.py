"""Strands' interrupt in a hook before a tool call, which the approver's answer resumes, in a
session that is kept in files.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

from common import ARGS, OTHER, STATE, TOOL, assign_licence, in_the_hook, story
from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent, HookProvider, HookRegistry
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager

SESSION = STATE.with_name("session")


class Scripted(Model):
    def __init__(self, *said: Any) -> None:
        self.left = list(said)

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        asks = self.left.pop(0) if self.left else None
        use = {"toolUse": {"name": TOOL, "toolUseId": "call_1"}}
        said = {"toolUse": {"input": json.dumps(asks)}} if asks else {"text": "Done."}
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": use if asks else {}}}
        yield {"contentBlockDelta": {"delta": said}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if asks else "end_turn"}}


class Asks(HookProvider):
    def register_hooks(self, registry: HookRegistry, **_: Any) -> None:
        registry.add_callback(BeforeToolCallEvent, self.ask)

    def ask(self, event: BeforeToolCallEvent) -> None:
        in_the_hook()
        if event.interrupt("approval", reason=event.tool_use["input"]) != "yes":
            event.cancel_tool = "nobody agreed"


def agent(*said: Any) -> Agent:
    kept = FileSessionManager(session_id="one", storage_dir=str(SESSION))
    return Agent(
        model=Scripted(*said), tools=[tool(assign_licence)], hooks=[Asks()], session_manager=kept,
        agent_id="onboarding", callback_handler=None,
    )  # fmt: skip


def start() -> str | None:
    result = agent(ARGS)("Onboard Mia")
    asked = [one.id for one in result.interrupts or ()]
    return json.dumps(asked) if asked else None


def go_on(stored: str, *, yes: bool) -> None:
    answer = "yes" if yes else "no"
    agent()([
        {"interruptResponse": {"interruptId": one, "response": answer}}
        for one in json.loads(stored)
    ])  # fmt: skip


def change(stored: str) -> str:
    """The arguments in the session, as it was kept."""
    for file in SESSION.rglob("*.json"):
        text = file.read_text("utf-8")
        file.write_text(text.replace(ARGS["licence"], OTHER), "utf-8")
    return stored


story(start, go_on, change=change)
