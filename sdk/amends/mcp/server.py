"""`amends mcp-server`: an agent reads its own runs, asks why it was stopped, and reports a mistake.

It decides nothing: no tool here approves, undoes, closes or goes on with anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, ParamSpec
from urllib.parse import quote

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from amends.client import Desk
from amends.drivers import Steps
from amends.errors import AmendsError
from amends.wire import get

P = ParamSpec("P")
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
REPORTS = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
ABOUT = (
    "What the recovery desk knows of this agent's own runs. People decide there; nothing here"
    " approves, undoes or resumes anything."
)
# Of an action, what says why it is as it is.
KEPT = ("action", "n", "tool", "state", "targets", "risk", "error", "compensated", "settled")


def server_of(desk: Desk) -> MCPServer:
    """The server of one agent, under its own key."""
    server = MCPServer("amends", instructions=ABOUT)

    async def read(path: str, **params: str) -> dict[str, Any]:
        def asking() -> Steps[dict[str, Any]]:
            found: dict[str, Any] = yield get(path, params={k: v for k, v in params.items() if v})
            return found

        return await desk.async_driver.run(asking())

    @server.tool(annotations=READS)
    @_in_words
    async def read_run(run: str) -> dict[str, Any]:
        """One of this agent's runs: its state, its calls and what became of each."""
        return await read(f"runs/{quote(run, safe='')}")

    @server.tool(annotations=READS)
    @_in_words
    async def list_cases(run: str = "", after: str = "") -> dict[str, Any]:
        """The recovery cases of this agent's runs, the newest first; or those of one run."""
        return await read("agent/cases", run=run, after=after)

    @server.tool(annotations=READS)
    @_in_words
    async def read_case(case: int) -> dict[str, Any]:
        """One of these cases, and how the plans to put it right stand."""
        return await read(f"agent/cases/{case}")

    @server.tool(annotations=READS)
    @_in_words
    async def why_stopped(run: str) -> dict[str, Any]:
        """Why a run does not go on: what the desk wants, calls that did not succeed, cases."""
        found = await read(f"runs/{quote(run, safe='')}")
        cases = await read("agent/cases", run=run)
        return {
            "state": found["state"], "held_by": found["held_by"], "reason": found.get("reason"),
            "directive": await desk.adirective(run),
            "calls": [
                {name: one[name] for name in KEPT if one.get(name) is not None}
                for one in found["actions"]
                if (one["state"], one["compensated"]) != ("succeeded", "none")
            ],
            "cases": cases["cases"],
        }  # fmt: skip

    @server.tool(annotations=REPORTS)
    @_in_words
    async def report_mistake(run: str, text: str) -> dict[str, Any]:
        """Say that one of this agent's own runs did wrong, and what; people look at it."""
        return {"case": await desk.areport(run, text)}

    return server


def _in_words(
    tool: Callable[P, Awaitable[dict[str, Any]]],
) -> Callable[P, Awaitable[dict[str, Any]]]:
    """What the desk refuses is for the model to read."""

    @wraps(tool)
    async def answering(*args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        try:
            return await tool(*args, **kwargs)
        except AmendsError as error:
            raise ToolError(str(error)) from error

    return answering
