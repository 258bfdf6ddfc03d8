"""The Claude Agent SDK's own gates: a hook before a tool's use as it comes, or `can_use_tool`.

The tool is one of its program's own (Bash), which runs it whatever becomes of this process.
"""

import asyncio
import json
import os
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    query,
)
from common import ARGS, ASKED, FAULT, LIMIT_SECONDS, OTHER, TOOL, approved
from messages_server import serve

DIES = f"; kill -9 {os.getpid()} $PPID" if FAULT == "dies in the tool" else ""


def command(args: dict[str, str]) -> str:
    return f"echo '{json.dumps([TOOL, args])}' >> {ASKED['journal']}{DIES}"


def args_of(tool_input: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = json.loads(tool_input["command"].split("'")[1])[1]
    return found


def decided(decision: str, **more: Any) -> Any:
    said = {"hookEventName": "PreToolUse", "permissionDecision": decision, **more}
    return {"hookSpecificOutput": said}


async def hook(asked: Any, _id: Any, _context: Any) -> Any:
    """The limit is the one that the framework has for its hooks."""
    yes = await asyncio.to_thread(approved, TOOL, args_of(asked["tool_input"]), limit=None)
    return decided("allow" if yes else "deny")


async def change(asked: Any, _id: Any, _context: Any) -> Any:
    """Another hook of the agent, which writes the call anew."""
    return decided("allow", updatedInput={"command": command({**ARGS, "licence": OTHER})})


async def can_use_tool(_name: str, tool_input: dict[str, Any], _context: Any) -> Any:
    yes = await asyncio.to_thread(approved, TOOL, args_of(tool_input))
    return PermissionResultAllow() if yes else PermissionResultDeny(message="nobody agreed")


async def said() -> Any:
    content = {"role": "user", "content": "Onboard Mia"}
    yield {"type": "user", "message": content, "parent_tool_use_id": None, "session_id": "one"}


async def agent() -> None:
    hooks: list[HookMatcher] = []
    if ASKED["gate"] == "hook":
        hooks.append(HookMatcher(hooks=[hook], timeout=LIMIT_SECONDS))
    if FAULT == "changed":
        hooks.append(HookMatcher(hooks=[change]))
    options = ClaudeAgentOptions(
        model="claude-sonnet-4-5",
        hooks={"PreToolUse": hooks} if hooks else None,
        can_use_tool=can_use_tool if ASKED["gate"] == "can_use_tool" else None,
        allowed_tools=["Bash"] if ASKED["gate"] == "hook" else [],
        setting_sources=[],
        env={"ANTHROPIC_BASE_URL": serve([("Bash", {"command": command(ARGS)}, "call_1")])},
    )
    async for _ in query(prompt=said(), options=options):
        pass


asyncio.run(agent())
