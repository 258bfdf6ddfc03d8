"""The desk's way to undo over an MCP server: each kind of thing is put back by the server's tools.

A service that the desk calls (`amends.twins`), with a connection to the server of its own for each
request, so that it lives longer than any agent. A thing is put back from the safe, byte for byte,
and read again afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import Client

from amends.errors import NoEffect
from amends.mcp.mapping import CALL_TOOL, RESTORE, Mapped, ResourceKind, ResourceState, Safe
from amends.mcp.transports import OpenServer
from amends.twins import Twins

# Less than the desk waits, so that it hears of it.
CALL_SECONDS = 12.0


@dataclass(frozen=True)
class Restorer:
    """What undoes. Twins run in threads, and the server is spoken to in the event loop."""

    open_server: OpenServer
    safe: Safe
    loop: asyncio.AbstractEventLoop

    def call(self, tool: str, args: Mapping[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = self._wait(self._call(tool, args))
        return result

    def look(self, kind: ResourceKind, target: Mapping[str, Any]) -> dict[str, Any] | None:
        """The fields of the thing, or None where it is not there."""
        seen: ResourceState | None = self._wait(kind.look(self._call, target["id"]))
        return seen.state if seen else None

    def put_back(
        self, kind: ResourceKind, was: Any, target: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Put it back as `was` says, None for: not there. Raises NoEffect where it is not done."""
        if was is not None and not isinstance(was, dict):
            raise NoEffect("the call does not say how it was")
        now = self.look(kind, target)
        if now == was:
            return now
        raw = self.safe.get(str(was.get("sha256"))) if was else None
        chosen = kind.putting_back(str(target["id"]), was, raw)
        if chosen is None:
            raise NoEffect(f"how this {kind.name} was is not kept here, or nothing puts it back")
        result = self.call(*chosen)
        left = self.look(kind, target)
        if result.get("isError") and left == now:
            raise NoEffect(f"{chosen[0]} says: {result.get('content')}")
        return left

    def _wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    async def _call(self, tool: str, args: Mapping[str, Any]) -> dict[str, Any]:
        async with asyncio.timeout(CALL_SECONDS), Client(self.open_server()) as client:
            result = await client.call_tool(tool, dict(args))
        found: dict[str, Any] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        return found


def twins_of(mapped: Mapped, restorer: Restorer, *, secrets: list[str], store: Path) -> Twins:
    """What the desk may ask for: an operation for each kind, and a tool that a server named."""
    store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    twins = Twins(secrets, store=str(store))
    for kind in mapped.kinds.values():
        _restoring(twins, kind, restorer)

    @twins.undo(CALL_TOOL)
    def call_tool(args: dict[str, Any], target: dict[str, Any], key: str) -> None:
        result = restorer.call(str(args["tool"]), args.get("arguments") or {})
        if result.get("isError"):
            raise RuntimeError(f"{args['tool']} says: {result.get('content')}")

    return twins


def _restoring(twins: Twins, kind: ResourceKind, restorer: Restorer) -> None:
    @twins.undo(f"{RESTORE}{kind.name}")
    def restore(args: dict[str, Any], target: dict[str, Any], key: str) -> dict[str, Any] | None:
        return restorer.put_back(kind, args.get("was"), target)

    @restore.observe
    def look(args: dict[str, Any], target: dict[str, Any]) -> dict[str, Any] | None:
        return restorer.look(kind, target)

    @restore.probe
    def was_restored(args: dict[str, Any], target: dict[str, Any], key: str) -> bool | None:
        return True if restorer.look(kind, target) == args.get("was") else None
