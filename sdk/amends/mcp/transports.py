"""How the gateway is reached, and how it reaches the server: stdio and streamable HTTP, both ways.

Over HTTP a session is one of the protocol's handshake versions: since 2026-07-28 requests belong
together by nothing, and a run has to. A client of that version is told so and takes an older one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx2
import uvicorn
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, StreamableHTTPServerTransport
from mcp.server.transport_security import (
    RequestBodyLimitMiddleware,
    TransportSecurityMiddleware,
    TransportSecuritySettings,
)
from mcp.shared.message import SessionMessage
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    UNSUPPORTED_PROTOCOL_VERSION,
    jsonrpc_message_adapter,
)
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from amends.mcp.gateway import Session, Settings

log = logging.getLogger("amends.mcp")

# One message, either way. A snapshot in base64 and its envelope fit.
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
SESSIONS_MAX = 100
IDLE_SECONDS = 30 * 60.0
# A tool may take long; what bounds it is the client's own patience.
HTTP_READ_SECONDS = 3600.0
HTTP_CONNECT_SECONDS = 10.0
# Kinds of an answer that the protocol knows.
JSON, STREAM = "application/json", "text/event-stream"
# A redirect that has the same request made elsewhere, so that it was not carried out here.
ELSEWHERE = frozenset({307, 308})
ACCEPTED, BAD_GATEWAY, ERRORS = 202, 502, range(400, 600)
NO_ANSWER = "no answer came ({}), so it is NOT known whether this took effect"
NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout)
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
PATH = "/mcp"
VERSION_HEADER = b"mcp-protocol-version"

OpenServer = Callable[[], AbstractAsyncContextManager[Any]]
Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


def server_at(command: list[str], url: str | None) -> OpenServer:
    """How a connection to the server is opened. A program gets our environment, but for the agent's
    key and the like; what is remote gets AMENDS_UPSTREAM_AUTHORIZATION.
    """
    if url is not None:
        return lambda: _remote(url)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("AMENDS_")
    }
    program = StdioServerParameters(command=command[0], args=command[1:], env=environment)
    return lambda: stdio_client(program)


class _Client(httpx2.AsyncClient):
    """What comes back for a call and is no answer to it may come after its effect, such as a page
    of a proxy: it is handed on as an error of which nobody knows more. The protocol's package says
    of some such that the call was not carried out, and ends the session for others.
    """

    async def send(self, request: httpx2.Request, **how: Any) -> httpx2.Response:
        if request.method != "POST":
            return await super().send(request, **how)
        try:
            response = await super().send(request, **how)
            if _kind(response).startswith(JSON):
                await response.aread()
        except NOT_SENT as unsent:
            return _error(request, INVALID_REQUEST, f"the server cannot be reached ({unsent})")
        except httpx2.TransportError as lost:
            return _error(request, INTERNAL_ERROR, NO_ANSWER.format(lost))
        if _is_answer(response) or json.loads(request.content).get("method") != "tools/call":
            return response
        await response.aclose()
        said = f"{response.status_code} {_kind(response)}"
        return _error(request, INTERNAL_ERROR, NO_ANSWER.format(said))


def _error(request: httpx2.Request, code: int, words: str) -> httpx2.Response:
    said = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": words}}
    return httpx2.Response(BAD_GATEWAY, json=said, request=request)


def _kind(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").lower()


def _is_answer(response: httpx2.Response) -> bool:
    """Whether it answers a request as the protocol has it, or says that it was not carried out."""
    if response.status_code in ERRORS or response.status_code in ELSEWHERE:
        return True
    return response.status_code != ACCEPTED and _kind(response).startswith((JSON, STREAM))


@contextlib.asynccontextmanager
async def _remote(url: str) -> AsyncIterator[Any]:
    timeout = httpx2.Timeout(HTTP_READ_SECONDS, connect=HTTP_CONNECT_SECONDS)
    given = os.environ.get("AMENDS_UPSTREAM_AUTHORIZATION")
    headers = {"Authorization": given} if given else {}
    async with (
        _Client(timeout=timeout, headers=headers) as client,
        streamable_http_client(
            url, http_client=client, max_sse_event_size=MESSAGE_BYTES_MAX
        ) as streams,
    ):
        yield streams


# Over stdio: one client, whose process usually has started ours.


class _Lines:
    """Messages, one a line, on a file that nothing else writes to."""

    def __init__(self, file: Any) -> None:
        self._file, self._turn = file, asyncio.Lock()

    async def send(self, told: SessionMessage) -> None:
        line = told.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
        async with self._turn:
            await asyncio.to_thread(self._write, line.encode())

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()


async def _messages(reader: asyncio.StreamReader) -> AsyncIterator[SessionMessage | Exception]:
    while True:
        try:
            line = await reader.readline()
        except ValueError as too_long:
            yield too_long
            continue
        if not line:
            return
        if not line.strip():
            continue
        try:
            yield SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValidationError as wrong:
            yield wrong


async def over_stdio(settings: Settings, open_server: OpenServer) -> None:
    """Serve the client at stdin and stdout. What else this process prints goes to stderr."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MESSAGE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    async with open_server() as server:
        await Session(settings, (_messages(reader), _Lines(out)), server).relay()


# Over HTTP: many clients, each session with a server of its own.


@dataclass
class HttpFace:
    """An ASGI application. With a token, every request has to bring it."""

    settings: Settings
    open_server: OpenServer
    allowed_hosts: list[str]
    token: str | None = None
    sessions: dict[str, StreamableHTTPServerTransport] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        bearer = headers.get(b"authorization", b"").decode("latin-1").removeprefix("Bearer ")
        if self.token is not None and not hmac.compare_digest(bearer.encode(), self.token.encode()):
            await _say(send, 401, "this gateway asks for a token")
        elif scope["path"].rstrip("/") != PATH:
            await _say(send, 404, f"the gateway is at {PATH}")
        elif headers.get(VERSION_HEADER, b"").decode("latin-1") not in {
            "",
            *HANDSHAKE_PROTOCOL_VERSIONS,
        }:
            await _say_older(send)
        else:
            await self._in_session(scope, receive, send, headers)

    async def _in_session(
        self, scope: Scope, receive: Receive, send: Send, headers: Mapping[bytes, bytes]
    ) -> None:
        named = headers.get(MCP_SESSION_ID_HEADER.encode(), b"").decode("latin-1")
        if named and named not in self.sessions:
            await _say(send, 404, "there is no such session")
            return
        if not named and (refusal := await self._refusal(scope)):
            await refusal(scope, receive, send)  # type: ignore[arg-type]
            return
        if not named and len(self.sessions) >= SESSIONS_MAX:
            await _say(send, 503, "too many sessions are open")
            return
        transport = self.sessions[named] if named else await self._new_session()
        if transport is None:
            await _say(send, 502, "the server cannot be started or reached")
            return
        await transport.handle_request(scope, receive, send)  # type: ignore[arg-type]

    async def _refusal(self, scope: Scope) -> Response | None:
        """Asked before a server is started: a browser sends what any page wants sent."""
        if scope["method"] != "POST":
            return Response("A session begins with a POST", status_code=400)
        request = Request(scope)  # type: ignore[arg-type]
        return await TransportSecurityMiddleware(self._security).validate_request(
            request, is_post=True
        )

    @property
    def _security(self) -> TransportSecuritySettings:
        return TransportSecuritySettings(allowed_hosts=self.allowed_hosts)

    async def _new_session(self) -> StreamableHTTPServerTransport | None:
        transport = StreamableHTTPServerTransport(
            uuid4().hex, idle_timeout=IDLE_SECONDS,
            security_settings=self._security,
        )  # fmt: skip
        ready = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._serve(transport, ready))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        return transport if ready.done() else None

    async def _serve(
        self, transport: StreamableHTTPServerTransport, ready: asyncio.Future[None]
    ) -> None:
        name = str(transport.mcp_session_id)
        try:
            async with transport.connect() as client, self.open_server() as server:
                self.sessions[name] = transport
                ready.set_result(None)
                with transport.idle_scope or contextlib.nullcontext():
                    await Session(self.settings, client, server).relay()
                await transport.terminate()
        except Exception:
            log.exception("a session has ended")
        finally:
            self.sessions.pop(name, None)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)


async def over_http(settings: Settings, open_server: OpenServer, host: str, port: int) -> None:
    """Listen until asked to end. ValueError where others could reach it and no token is set."""
    token = os.environ.get("AMENDS_GATEWAY_TOKEN")
    if host not in LOOPBACK and not token:
        raise ValueError("to listen where others can reach it, set AMENDS_GATEWAY_TOKEN")
    hosts = [f"{name}:{port}" for name in (host, "localhost", "127.0.0.1", "[::1]")]
    face = HttpFace(settings, open_server, hosts, token)
    try:
        await listen(RequestBodyLimitMiddleware(face, MESSAGE_BYTES_MAX), host, port)
    finally:
        await face.close()


async def listen(app: Any, host: str, port: int) -> None:
    """Serve an ASGI application until the process is asked to end."""
    config = uvicorn.Config(
        app, host=host, port=port, interface="asgi3", lifespan="off", log_level="warning",
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    await uvicorn.Server(config).serve()


async def _say(send: Send, status: int, words: str, **more: Any) -> None:
    error = {"code": more.pop("code", -32600), "message": words, **more}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    kind = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": kind})
    await send({"type": "http.response.body", "body": body})


async def _say_older(send: Send) -> None:
    versions = {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": ""}
    words = "over HTTP this gateway speaks the versions that have sessions"
    await _say(send, 400, words, code=UNSUPPORTED_PROTOCOL_VERSION, data=versions)
