"""Between an MCP client and a server: all is passed on as it came, but a call of a tool asks first.

One session of a client is one connection to a server and one run at the desk. What the server would
carry out without the desk's yes does not reach it; see `amends.mcp.calls` for what a call goes
through.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.shared.message import ClientMessageMetadata, ServerMessageMetadata, SessionMessage
from mcp.types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from amends.client import Desk
from amends.errors import NoEffect
from amends.mcp.calls import (
    META_OP,
    META_RUN,
    PROTOCOL_VERSION,
    Abandoned,
    McpCall,
    Open,
    ServerGone,
    ServerRefused,
)
from amends.mcp.mapping import UNLISTED, Hints, Mapped, Safe
from amends.runs import Run

log = logging.getLogger("amends.mcp")

# How long the answer to a call is waited for whose client has cancelled it or left: it tells what
# became of it.
CANCEL_GRACE_SECONDS = 3.0
LIST_PAGES_MAX = 50
LIST_SECONDS = 20.0
READ_SECONDS = 20.0
RUNS_MAX = 100
ENVELOPE = "io.modelcontextprotocol/"
CLIENT_INFO, SERVER_INFO = f"{ENVELOPE}clientInfo", f"{ENVELOPE}serverInfo"
NAME_CHARACTERS_MAX = 100
NO_MESSAGE = "this is no message of the protocol, or too long or too deep for one: not passed on"
GONE = "the MCP server has ended, or the connection to it"
# What a transport raises whose other side is gone.
CLOSED = (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)

Id: TypeAlias = str | int


@dataclass(frozen=True)
class Settings:
    """What holds for every session of a gateway."""

    desk: Desk
    mapped: Mapped
    safe: Safe
    prefix: str = ""
    run: str | None = None
    on_behalf_of: Mapping[str, Any] | None = None
    wait_seconds: float = 3600.0


@dataclass
class Session:
    """One client and its server. `client` and `server` are transports' streams of messages."""

    settings: Settings
    client: Any
    server: Any
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    elicits_by_url: bool = False
    open: dict[str, Open] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.mapped, self.safe = self.settings.mapped, self.settings.safe
        self.prefix, self.wait_seconds = self.settings.prefix, self.settings.wait_seconds
        self._run: Run | None = None
        self._named: dict[str, Run] = {}
        self._starting = asyncio.Lock()
        self._calls: dict[Id, McpCall] = {}
        self._asked: dict[Id, str] = {}
        self._waiting: dict[tuple[str, Id], asyncio.Future[Any]] = {}
        self._numbers = 0
        self._hints: dict[str, Hints] = {}
        self._headers: dict[str, Any] = {}
        self._is_listed, self._listing = False, asyncio.Lock()
        self._version: str | None = None
        self._names: dict[str, str] = {}
        self._is_gone = False
        self._failed = ""

    async def relay(self) -> None:
        """Pass messages on until one side ends; then tell how each call and the run ended."""
        directions = [
            asyncio.create_task(self._read(self.client, self._from_client)),
            asyncio.create_task(self._read(self.server, self._from_server)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            if directions[1].done():
                await self._server_is_gone()
        finally:
            ending = asyncio.ensure_future(self._end(directions))
            with anyio.CancelScope(shield=True):  # of anyio, which would cancel again and again
                while not ending.done():
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.shield(ending)

    async def _read(self, streams: Any, heed: Any) -> None:
        async for item in streams[0]:
            if isinstance(item, Exception):
                log.warning("what is no message is not passed on: %s", item)
                if streams is self.client:  # who waits for an answer to it would wait for good
                    error = ErrorData(code=PARSE_ERROR, message=NO_MESSAGE)
                    await self._to_client(JSONRPCError(jsonrpc="2.0", id=None, error=error))
                continue
            await heed(item.message)

    # From the client.

    async def _from_client(self, message: JSONRPCMessage) -> None:
        try:
            await self._pass_on(message)
        except ServerGone:
            if isinstance(message, JSONRPCRequest):
                await self._refuse(message.id, CONNECTION_CLOSED, GONE)

    async def _pass_on(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            if not self._heard("client", message):
                await self._to_server(message)
        elif isinstance(message, JSONRPCNotification):
            if message.method == "notifications/cancelled":
                self._cancel((message.params or {}).get("requestId"))
            if message.method != "tools/call":  # without an id it would run, and nobody would hear
                await self._to_server(message)
        elif message.id in self._asked or message.id in self._calls:
            await self._refuse(message.id, INVALID_REQUEST, "this id is in use already")
        elif message.method == "tools/call":
            await self._start_call(message)
        else:
            self._asked[message.id] = message.method
            self._learn_of_client(message)
            await self._to_server(message)

    def _learn_of_client(self, message: JSONRPCRequest) -> None:
        params = message.params or {}
        if message.method == "initialize":
            elicits = (params.get("capabilities") or {}).get("elicitation")
            self.elicits_by_url = isinstance(elicits, dict) and "url" in elicits
            self._names["client"] = _name(params, "clientInfo")

    async def _start_call(self, message: JSONRPCRequest) -> None:
        params = message.params or {}
        kinds = (
            (params.get("name"), str),
            (params.get("arguments"), dict | None),
            (params.get("_meta"), dict | None),
        )
        meta = params.get("_meta")
        named = (meta.get(META_RUN), meta.get(META_OP)) if isinstance(meta, dict) else ()
        if not all(isinstance(value, kind) for value, kind in kinds):
            await self._refuse(message.id, INVALID_PARAMS, "a call has a name and arguments")
            return
        if not all(isinstance(one, str | None) for one in named):
            await self._refuse(message.id, INVALID_PARAMS, f"{META_RUN} and {META_OP} are texts")
            return
        self._names.setdefault("client", _name(params.get("_meta"), CLIENT_INFO))
        call = McpCall(self, message.id, params)
        self._calls[message.id] = call
        call.task = asyncio.create_task(self._answer(call))

    async def _answer(self, call: McpCall) -> None:
        said: JSONRPCMessage
        try:
            result = await call.answer()
            self._failed = call.name if result.get("isError") and call.is_forwarded else ""
            said = JSONRPCResponse(jsonrpc="2.0", id=call.id, result=result)
        except ServerRefused as refused:
            self._failed = call.name
            said = JSONRPCError(jsonrpc="2.0", id=call.id, error=refused.error)
        except (asyncio.CancelledError, Abandoned):
            return  # nobody waits for an answer
        finally:
            self._calls.pop(call.id, None)
        await self._to_client(said)

    def _cancel(self, request: Any) -> None:
        """The client wants a call no longer. What the server is at may still be answered."""
        call = self._calls.get(request) if isinstance(request, str | int) else None
        if call is None or call.task is None:
            return
        if call.is_forwarded:
            asyncio.get_running_loop().call_later(CANCEL_GRACE_SECONDS, self._give_up, call)
        elif not call.task.cancelling():  # else it is telling that it was not made
            call.task.cancel()

    def _give_up(self, call: McpCall) -> None:
        """Of a call that the server has answered its outcome is being told."""
        if call.task is not None and ("server", call.id) in self._waiting:
            call.task.cancel()

    # From the server.

    async def _from_server(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            if self._heard("server", message):
                return
            method = self._asked.pop(message.id, None) if message.id is not None else ""
            if method is None:  # of a call that it was not given, it has nothing to say
                log.warning("the server answers %s, which nobody has asked", message.id)
                return
            if isinstance(message, JSONRPCResponse):
                self._learn_of_server(method, message.result)
            await self._to_client(message)
            return
        if (
            isinstance(message, JSONRPCNotification)
            and message.method == "notifications/tools/list_changed"
        ):
            self._is_listed = False
        await self._to_client(message, related=self._related(message))

    def _learn_of_server(self, method: str, result: Mapping[str, Any]) -> None:
        if method == "initialize":
            self._version = str(result.get("protocolVersion"))
            self._names["server"] = _name(result, "serverInfo")
        elif SERVER_INFO in (result.get("_meta") or {}):
            self._names["server"] = _name(result["_meta"], SERVER_INFO)
        if method == "tools/list":
            self._learn_tools(result)

    def _learn_tools(self, result: Mapping[str, Any]) -> None:
        for tool in result.get("tools") or ():
            if not (isinstance(tool, dict) and isinstance(tool.get("name"), str)):
                continue
            name, hints = tool["name"], Hints.of(tool)
            self._hints[name] = self._hints[name].met_again(hints) if name in self._hints else hints
            self._headers[name] = x_mcp_header_map(tool.get("inputSchema") or {})

    def _related(self, message: Any) -> Id | None:
        """The call that progress is told of: over HTTP it goes where its answer will."""
        token = (message.params or {}).get("progressToken")
        return next(
            (
                one.id
                for one in self._calls.values()
                if token is not None and one.progress_token == token
            ),
            None,
        )

    def _heard(self, side: str, message: JSONRPCResponse | JSONRPCError) -> bool:
        """Whether it answers something that we have asked ourselves."""
        waiting = self._waiting.pop((side, message.id), None) if message.id is not None else None
        if waiting is None:
            return False
        if not waiting.done():
            if isinstance(message, JSONRPCError):
                waiting.set_exception(ServerRefused(message.error))
            else:
                waiting.set_result(message.result)
        return True

    async def _server_is_gone(self) -> None:
        self._is_gone = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ServerGone(GONE))
        for one in list(self._asked):
            await self._refuse(one, CONNECTION_CLOSED, GONE)
        tasks = {one.task for one in self._calls.values() if one.task}
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_GRACE_SECONDS)

    # What a call needs (`amends.mcp.calls.Session`).

    async def run_of(self, named: str | None) -> Run:
        """The session's run, or the one that is named; it begins with its first call."""
        named = named or self.settings.run
        async with self._starting:
            run = self._named.get(named) if named else self._run
            if run is None:
                if named and len(self._named) >= RUNS_MAX:
                    raise ValueError(f"a session calls in at most {RUNS_MAX} runs")
                run = self._new_run(named)
                await run.astart()
                if named:
                    self._named[named] = run
                else:
                    self._run = run
        return run

    def _new_run(self, named: str | None) -> Run:
        client, server = (self._names.get(one) or "an unnamed one" for one in ("client", "server"))
        return self.settings.desk.run(
            f"MCP session of {client} with {server}", run=named,
            on_behalf_of=self.settings.on_behalf_of,
        )  # fmt: skip

    async def hints_of(self, tool: str, like: Mapping[str, Any]) -> Hints:
        """What the server says of a tool: of all it has said in this session, the strictest."""
        async with self._listing:
            if not self._is_listed:
                try:
                    await self._list(like)
                except (ServerRefused, TimeoutError) as silent:
                    raise ValueError(f"the server does not list its tools ({silent})") from silent
                self._is_listed = True
        return self._hints.get(tool, UNLISTED)

    async def _list(self, like: Mapping[str, Any]) -> None:
        cursor: dict[str, Any] = {}
        for _ in range(LIST_PAGES_MAX):
            params = {**self._envelope(like), **cursor}
            result = await self._ask_server("tools/list", params, limit_seconds=LIST_SECONDS)
            self._learn_tools(result)
            if not result.get("nextCursor"):
                return
            cursor = {"cursor": result["nextCursor"]}
        raise ValueError("the server's list of tools has no end")

    async def forward(self, call: McpCall) -> dict[str, Any]:
        """Give the call to the server; its result. Raises ServerRefused and ServerGone, and
        NoEffect where it was gone before.
        """
        if self._is_gone:
            raise NoEffect(GONE)
        call.is_forwarded = True
        request = JSONRPCRequest(
            jsonrpc="2.0", id=call.id, method="tools/call", params=call.forwarded
        )
        return await self._answered("server", request, self._to_server)

    async def use_tool(
        self, tool: str, args: Mapping[str, Any], like: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Call a tool that the mapping names as one that reads."""
        params = {"name": tool, "arguments": dict(args), **self._envelope(like)}
        return await self._ask_server("tools/call", params, limit_seconds=READ_SECONDS)

    def _envelope(self, like: Mapping[str, Any]) -> dict[str, Any]:
        """What every request says of its client, since 2026-07-28; as the client's own has it."""
        meta = {name: value for name, value in like.items() if name.startswith(ENVELOPE)}
        return {"_meta": meta} if meta else {}

    async def elicit(self, call: McpCall, url: str, message: str) -> str:
        """Ask the client to open an address; what it did: `accept`, `decline` or `cancel`."""
        number = self._own_id()
        params = {"mode": "url", "url": url, "message": message, "elicitationId": number}
        request = JSONRPCRequest(
            jsonrpc="2.0", id=number, method="elicitation/create", params=params
        )

        async def send(asked: JSONRPCMessage) -> None:
            await self._to_client(asked, related=call.id)

        return str((await self._answered("client", request, send)).get("action"))

    async def tell_progress(self, call: McpCall, progress: float, message: str) -> None:
        if call.progress_token is None:
            return
        params = {"progressToken": call.progress_token, "progress": progress, "message": message}
        told = JSONRPCNotification(jsonrpc="2.0", method="notifications/progress", params=params)
        await self._to_client(told, related=call.id)

    async def _ask_server(
        self, method: str, params: dict[str, Any], *, limit_seconds: float
    ) -> dict[str, Any]:
        request = JSONRPCRequest(jsonrpc="2.0", id=self._own_id(), method=method, params=params)
        async with asyncio.timeout(limit_seconds):
            return await self._answered("server", request, self._to_server)

    def _own_id(self) -> str:
        self._numbers += 1
        return f"amends-{self.id}-{self._numbers}"

    async def _answered(self, side: str, request: JSONRPCRequest, send: Any) -> dict[str, Any]:
        if self._is_gone and side == "server":
            raise ServerGone(GONE)
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[side, request.id] = waiting
        try:
            await send(request)
            result: dict[str, Any] = await waiting
        finally:
            self._waiting.pop((side, request.id), None)
        return result

    # The two ways out.

    async def _to_client(self, message: JSONRPCMessage, *, related: Id | None = None) -> None:
        metadata = (
            ServerMessageMetadata(related_request_id=related) if related is not None else None
        )
        with contextlib.suppress(*CLOSED):
            await self.client[1].send(SessionMessage(message, metadata))

    async def _to_server(self, message: JSONRPCMessage) -> None:
        try:
            await self.server[1].send(SessionMessage(message, self._metadata(message)))
        except CLOSED as closed:
            raise ServerGone(GONE) from closed

    def _metadata(self, message: JSONRPCMessage) -> ClientMessageMetadata | None:
        """The headers by which HTTP servers know the version, and since 2026-07-28 the call."""
        params = getattr(message, "params", None) or {}
        version = (params.get("_meta") or {}).get(PROTOCOL_VERSION) or self._version
        if version is None:
            return None
        headers = {MCP_PROTOCOL_VERSION_HEADER: str(version)}
        if version in MODERN_PROTOCOL_VERSIONS and isinstance(message, JSONRPCRequest):
            headers[MCP_METHOD_HEADER] = message.method
            named = params.get(NAME_BEARING_METHODS.get(message.method, ""))
            if isinstance(named, str):
                headers[MCP_NAME_HEADER] = encode_header_value(named)
            if message.method == "tools/call":
                known = self._headers.get(str(named), {})
                headers |= mcp_param_headers(known, params.get("arguments") or {})
        return ClientMessageMetadata(headers=headers)

    async def _refuse(self, request: Id, code: int, words: str) -> None:
        self._asked.pop(request, None)
        error = ErrorData(code=code, message=words)
        await self._to_client(JSONRPCError(jsonrpc="2.0", id=request, error=error))

    # The end.

    async def _end(self, directions: list[asyncio.Task[None]]) -> None:
        """Nobody asks any more: calls that wait for people are not made, of those that the server
        is at the answer is waited for, for a moment; then the run ends.
        """
        directions[0].cancel()
        for call in list(self._calls.values()):
            self._cancel(call.id)
        tasks = {one.task for one in self._calls.values() if one.task}
        if tasks:
            _, slow = await asyncio.wait(tasks, timeout=2 * CANCEL_GRACE_SECONDS)
            for task in slow:
                task.cancel()
            await asyncio.gather(*slow, return_exceptions=True)
        directions[1].cancel()
        await asyncio.wait(directions)
        for begun in self.open.values():
            await begun.leave(
                Abandoned("the client left without answering what the server had asked")
            )
        if self._run is not None and not self._run.ended:
            await self._end_run(self._run)

    async def _end_run(self, run: Run) -> None:
        """A named run is ended by whoever named it."""
        if self._is_gone:
            await run.afail(ServerGone(GONE))
        elif self._failed:
            await run.afail(Abandoned(f"the session ended after {self._failed} had failed"))
        else:
            await run.acomplete("The client ended the session.")


def _name(said: Mapping[str, Any] | None, place: str) -> str:
    """What a client or a server calls itself there."""
    found = (said or {}).get(place)
    return str(found.get("name", ""))[:NAME_CHARACTERS_MAX] if isinstance(found, dict) else ""
