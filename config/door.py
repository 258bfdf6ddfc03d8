"""The door: sends a request to the static files, to a hot handler, or to Django."""

import asyncio
import json
import logging
import re
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote

from django.conf import settings
from psycopg import OperationalError
from psycopg_pool import PoolTimeout, TooManyRequests

from config import health, pooling
from config.metrics import observe
from config.static import Files
from workspaces import hot
from workspaces.children import Ended
from workspaces.hot import Message, PassOn, Receive, Route, Scope, Send

logger = logging.getLogger(__name__)

# Every floor that has something to serve in front of Django states `routes`; it may also state
# `opened()` and `closing()`, awaited at the start and end of the process.
HOT_MODULES = (
    "ledger.intake",
    "approvals.gate",
    "approvals.news",
    "recovery.directives",
    "recovery.news",
)
OVERLOADED_RETRY_SECONDS = 1
# What the door looked at and passes on to Django goes through few at a time. It is news that
# two hundred consoles hear of in the same second, and each thread of Django's takes the interpreter
# from the loop, where agents wait.
PASSED_ON_MAX = 2


class Door:
    """`django` is the ASGI application behind it."""

    def __init__(self, django: Any) -> None:
        self._django = django
        self._files = Files()
        self._passing = asyncio.Semaphore(PASSED_ON_MAX)
        self._modules = [import_module(name) for name in HOT_MODULES if find_spec(name)]
        self._routes = [*health.routes, *(r for module in self._modules for r in module.routes)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] != "http":
            raise ValueError(f"Nobody serves {scope['type']} here.")
        elif "\x00" in scope["path"] or b"%00" in scope["query_string"]:
            # No text of ours holds it, and PostgreSQL would fail on the question.
            await problem(send, 400, "The address holds the character NUL")
        elif settings.SECURE_SSL_REDIRECT and not is_secure(scope):
            await to_https(scope, send)
        elif scope["path"].startswith(settings.STATIC_URL):
            await self._files(scope, receive, send)
        elif matches := self._matching(scope["path"]):
            await self._serve(matches, scope, receive, send)
        else:
            await self._django(scope, receive, send)

    def _matching(self, path: str) -> list[tuple[Route, dict[str, str]]]:
        found = ((route, route.path.fullmatch(path)) for route in self._routes)
        return [(route, match.groupdict()) for route, match in found if match]

    async def _serve(
        self,
        matches: list[tuple[Route, dict[str, str]]],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        for route, parameters in matches:
            if route.method == scope["method"]:
                scope["path_params"] = parameters
                try:
                    await watched(route, scope, receive, send)
                except PassOn:
                    async with self._passing:
                        await self._django(scope, receive, send)
                return
        allowed = ", ".join(sorted(route.method for route, _ in matches))
        await problem(send, 405, "Method not allowed", [("allow", allowed)])

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            step = self._open if message["type"] == "lifespan.startup" else self._close
            try:
                await step()
            except Exception as error:
                logger.exception("%s failed", message["type"])
                await send({"type": f"{message['type']}.failed", "message": str(error)})
                return
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def _open(self) -> None:
        try:
            await asyncio.to_thread(pooling.check, settings.DATABASE_URL)
        except OperationalError:
            logger.warning("The database is away; /readyz looks at it again.")
        await hot.open_pool(settings.DATABASE_URL, connections_max=settings.HOT_POOL_SIZE)
        await each(self._modules, "opened")

    async def _close(self) -> None:
        await each(reversed(self._modules), "closing")
        await hot.close_pool()


def is_secure(scope: Scope) -> bool:
    """Whether it came over TLS, as far as we are told, or is a probe's (config/settings.py)."""
    if scope["scheme"] == "https":
        return True
    if any(re.search(one, scope["path"].lstrip("/")) for one in settings.SECURE_REDIRECT_EXEMPT):
        return True
    said = {value for name, value in scope["headers"] if name == b"x-forwarded-proto"}
    return settings.AMENDS_TRUST_PROXY and said == {b"https"}


async def to_https(scope: Scope, send: Send) -> None:
    """The same request there, with its method and body: a key that came in the open is no reason
    to lose an event. It goes to our own address, whatever `Host` says.
    """
    path = scope.get("raw_path") or quote(scope["path"]).encode()
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    location = settings.AMENDS_URL.encode() + path + query
    headers = [(b"location", location), (b"content-length", b"0"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 308, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def each(modules: Iterable[Any], name: str) -> None:
    for module in modules:
        if function := getattr(module, name, None):
            await function()


async def watched(route: Route, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one hot request; whatever escapes the handler becomes an answer and a log line."""
    status = 0
    retry = [("retry-after", str(OVERLOADED_RETRY_SECONDS))]

    async def noting(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        await send(message)

    with observe(route) as seen:
        try:
            await route.handler(scope, receive, noting)
        except Ended:
            logger.warning("%s %s: its process ended", scope["method"], scope["path"])
            await problem(noting, 503, "Interrupted, come back in a moment", retry)
        except (PoolTimeout, TooManyRequests):
            await problem(noting, 503, "Overloaded, come back in a moment", retry)
        except OperationalError:
            # The database went away or restarted: every other idle connection is dead as well.
            logger.warning("%s %s: the database is away", scope["method"], scope["path"])
            await hot.pool().check()
            await problem(noting, 503, "The database is away, come back in a moment", retry)
        except (asyncio.CancelledError, PassOn):
            raise
        except Exception:
            logger.exception("%s %s", scope["method"], scope["path"])
            if status:
                raise  # the server cuts the connection: half an answer must not look whole
            await problem(noting, 500, "The server failed on this request")
        finally:
            seen.status = status


async def problem(
    send: Send, status: int, title: str, headers: list[tuple[str, str]] | None = None
) -> None:
    """An RFC 9457 answer."""
    body = json.dumps({"type": "about:blank", "title": title, "status": status}).encode()
    raw = [(b"content-type", b"application/problem+json"), (b"cache-control", b"no-store")]
    raw += [(name.encode(), value.encode()) for name, value in headers or []]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
