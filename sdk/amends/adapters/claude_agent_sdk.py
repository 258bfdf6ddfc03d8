"""Claude Agent SDK: every tool call of an agent, also of its program's own tools, put to the desk.

    server = create_sdk_mcp_server("trips", tools=[gated_tool(update_flight)])
    options = gated(desk, ClaudeAgentOptions(mcp_servers={"trips": server}, setting_sources=[]))
    async with desk.run("Move my return flight"), ClaudeSDKClient(options) as client: ...

A hook sends each call to `can_use_tool`, in every permission mode and whatever is allowed
otherwise; where that hook fails, the call is blocked. The desk is asked in `can_use_tool`, for it
comes after all hooks that may still change the arguments, and its answer holds those that run.
How a call went is told by the program's hooks, as text; `gated_tool` hears what a tool raises, and
knows which arguments it takes: of other tools the SDK tells none, and the desk is told none.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from claude_agent_sdk import (
    ClaudeAgentOptions,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    SdkMcpTool,
    ToolPermissionContext,
)
from claude_agent_sdk.types import CanUseTool, HookContext, HookInput, SyncHookJSONOutput

from amends.adapters import NOT_MADE, GatedTools, is_over, not_made
from amends.client import Desk
from amends.errors import AmendsError, NoEffect
from amends.runs import Run, current_run
from amends.tools import JSON_TYPES, Declaration, Performed
from amends.values import plain

HOOK_SECONDS = 60.0  # to record an outcome; the hook that asks answers at once
MADE_BEFORE = "This call was made before and was not made again. It answered: {}"


class ToolError(AmendsError):
    """The tool failed. Whether it had an effect by then, nobody knows."""


def gated(
    desk: Desk,
    options: ClaudeAgentOptions,
    declared: Mapping[str, Declaration] | None = None,
    *,
    repeatable: Iterable[str] = (),
    wait_seconds: float | None = None,
    ungated: Iterable[str] = (),
) -> ClaudeAgentOptions:
    """A copy of the options under which every tool asks the desk before it runs, and says how it
    went. Connect within the run whose calls they are.

    `declared`, `repeatable` and `wait_seconds` are those of `amends.adapters.GatedTools`. A tool of
    an in-process MCP server has its own name there, each other the one that the hooks see. A hook
    of the kind PermissionRequest may answer in the desk's place, also one of a settings file or a
    plug-in: ValueError where there may be such, or no hook would run, unless `ungated` names what
    brings that.
    """
    left = [one for one in _past_the_gate(options) if one not in set(ungated)]
    if left:
        raise ValueError(PAST.format(", ".join(left)))
    tools = GatedTools(desk, declared or {}, frozenset(repeatable), wait_seconds)
    gate = _Gate(tools, options.can_use_tool, _own_prefixes(options))
    hooks = {event: list(matchers) for event, matchers in (options.hooks or {}).items()}
    hooks.setdefault("PreToolUse", []).append(
        HookMatcher(hooks=[gate.ask], on_failure="block", timeout=HOOK_SECONDS)
    )
    for event in ("PostToolUse", "PostToolUseFailure"):
        hooks.setdefault(event, []).append(HookMatcher(hooks=[gate.hear], timeout=HOOK_SECONDS))
    return dataclasses.replace(options, hooks=hooks, can_use_tool=gate.can_use_tool)


def gated_tool(tool: SdkMcpTool[Any]) -> SdkMcpTool[Any]:
    """A tool for an in-process MCP server, which runs once for each call that the desk has allowed,
    with the arguments it allowed, and for no other. What it raises reaches the desk as it was
    raised: of `NoEffect`, that nothing happened.
    """

    _announce(tool)

    async def handler(args: Any) -> dict[str, Any]:
        alike = _alike((tool.name, args))
        call = next((one for one in alike if not one.is_made), None)
        if call is None:
            raise ToolError(NOT_ALLOWED)
        call.is_made = True
        try:
            return await tool.handler(args)
        except Exception as error:
            # Of calls alike, and side by side, the hooks tell which of them went how.
            if alike == [call] and not call.outcome.done():
                call.outcome.set_exception(error)
            raise
        finally:
            call.is_over = True

    return dataclasses.replace(tool, handler=handler)


_schemas: dict[str, dict[str, Any] | None] = {}
"""Of gated tools by name; None where two of one name take different arguments."""


def _announce(tool: SdkMcpTool[Any]) -> None:
    said = tool.input_schema
    found: dict[str, Any] = said if isinstance(said, dict) else typing.get_type_hints(said)
    if not isinstance(found.get("type"), str) or "properties" not in found:
        properties = {
            name: {"type": JSON_TYPES[kind.__name__]}
            if getattr(kind, "__name__", "") in JSON_TYPES
            else {}
            for name, kind in found.items()
        }
        found = {"type": "object", "properties": properties, "required": list(properties)}
    is_same = _schemas.get(tool.name, found) == found
    _schemas[tool.name] = found if is_same else None


NOT_ALLOWED = "This call was NOT made: the desk has not allowed it"
PAST = (
    "these may let a tool run without the desk being asked: {}. Give setting_sources=[], or name"
    " them in `ungated` if that is what you want"
)


# Flags of the program that count in the place of what the options say, or bring agents with hooks;
# under `bare` it runs no hook, and under a variable of its environment, which is the same.
FLAGS = {
    "agents", "bare", "permission-prompt-tool", "plugin-dir", "plugin-url", "setting-sources",
    "settings",
}  # fmt: skip
BARE, OFF = "CLAUDE_CODE_SIMPLE", {"", "0", "false"}


def _past_the_gate(options: ClaudeAgentOptions) -> Iterator[str]:
    if "PermissionRequest" in (options.hooks or {}):
        yield "PermissionRequest"
    if options.setting_sources != []:
        yield "setting_sources"
    if options.settings is not None:
        yield "settings"
    if options.plugins:
        yield "plugins"
    if FLAGS & {flag.partition("=")[0].lstrip("-") for flag in options.extra_args}:
        yield "extra_args"
    if {**os.environ, **options.env}.get(BARE, "") not in OFF:
        yield BARE


def _own_prefixes(options: ClaudeAgentOptions) -> tuple[str, ...]:
    servers = options.mcp_servers if isinstance(options.mcp_servers, dict) else {}
    return tuple(f"mcp__{name}__" for name, one in servers.items() if one.get("type") == "sdk")


@dataclass
class _UnderWay:
    """A call that the desk allowed, from then until the program tells how it went."""

    asked: tuple[str, dict[str, Any]]
    task: asyncio.Task[Performed]
    outcome: asyncio.Future[Any]
    is_made: bool = False
    is_over: bool = False


_of_runs: WeakKeyDictionary[Run, dict[str, _UnderWay]] = WeakKeyDictionary()


def _under_way() -> dict[str, _UnderWay]:
    """The calls of the current run, by the program's ids."""
    return _of_runs.setdefault(current_run(), {})


def _alike(asked: tuple[str, dict[str, Any]]) -> list[_UnderWay]:
    """The calls under way of one tool with these arguments: a tool hears no id of its call."""
    return [one for one in _under_way().values() if one.asked == asked]


@dataclass
class _Gate:
    tools: GatedTools
    also: CanUseTool | None
    own_prefixes: tuple[str, ...]

    async def ask(
        self, _asked: HookInput, _call: str | None, _context: HookContext
    ) -> SyncHookJSONOutput:
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask"}}

    async def can_use_tool(
        self, name: str, args: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        if self.also is not None:
            said = await self.also(name, args, context)
            if isinstance(said, PermissionResultDeny):
                return said
            args = args if said.updated_input is None else said.updated_input
        loop, call = asyncio.get_running_loop(), str(context.tool_use_id)
        allowed, outcome = loop.create_future(), loop.create_future()

        async def made(now: Mapping[str, Any]) -> Any:
            allowed.set_result(dict(now))
            return await outcome

        own = self._name(name)
        schema = _schemas.get(own) if own != name else None
        task = asyncio.ensure_future(
            self.tools.acall(own, args, call, made, told=plain, schema=schema)
        )
        try:
            await asyncio.wait({task, allowed}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # the program asks no more, and will make no call
            await self._given_up(task, outcome if allowed.done() else None)
            raise
        if not task.done():
            now = allowed.result()
            _under_way()[call] = _UnderWay((own, now), task, outcome)
            return PermissionResultAllow(updated_input=now)
        return await self._not_now(task)

    async def _given_up(
        self, task: asyncio.Task[Performed], outcome: asyncio.Future[Any] | None
    ) -> None:
        """Ask no more; where the call was allowed at that moment, say that it was not made."""
        if outcome is None:
            task.cancel()
        else:
            outcome.set_exception(NoEffect("cancelled before the call was made"))
        await asyncio.wait({task})
        task.cancelled() or task.exception()

    async def _not_now(self, task: asyncio.Task[Performed]) -> PermissionResultDeny:
        try:
            answer = (await task).answer
        except NOT_MADE as error:
            if is_over(error):
                await current_run().acancel(by="the desk", reason=str(error))
                return PermissionResultDeny(message=str(error), interrupt=True)
            return PermissionResultDeny(message=not_made(error))
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return PermissionResultDeny(message=MADE_BEFORE.format(text))

    async def hear(
        self, asked: HookInput, call: str | None, _context: HookContext
    ) -> SyncHookJSONOutput:
        """How a call went, recorded before the agent goes on."""
        found = _under_way().pop(str(call), None)
        if found is None:
            return {}
        if not found.is_made:  # then it was made on the yes of one alike, which has its own again
            for other in [one for one in _alike(found.asked) if one.is_over][:1]:
                other.is_made = other.is_over = False
        if not found.outcome.done():  # else the tool raised, which says more
            if asked["hook_event_name"] == "PostToolUse":
                found.outcome.set_result(asked["tool_response"])
            elif asked["hook_event_name"] == "PostToolUseFailure":
                found.outcome.set_exception(ToolError(asked["error"]))
        await asyncio.wait({found.task})
        return {}

    def _name(self, name: str) -> str:
        prefix = next((one for one in self.own_prefixes if name.startswith(one)), "")
        return name.removeprefix(prefix)
