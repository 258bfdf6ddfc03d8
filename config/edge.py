"""The edge: sends a request to the static files, to a hot handler, or to Django.

What goes to Django has a bounded body, for Django reads it whole before anybody looks.
"""

import asyncio
import logging
import mimetypes
import re
import time
from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.contrib.staticfiles import finders
from django.core.exceptions import SuspiciousFileOperation
from django.core.files.base import ContentFile
from prometheus_client import Histogram
from psycopg import OperationalError
from psycopg_pool import PoolTimeout, TooManyRequests
from whitenoise.base import WhiteNoise
from whitenoise.responders import NOT_ALLOWED_RESPONSE, Response
from whitenoise.storage import CompressedManifestStaticFilesStorage

from config import health, pooling
from edge import pools
from edge.asgi import (
    FOR_PROGRAMS,
    PROBLEM,
    RETRY_AFTER_SECONDS,
    Message,
    PassOn,
    Problem,
    Receive,
    Route,
    Scope,
    Send,
    answer_problem,
)

logger = logging.getLogger(__name__)


# Static files, served by WhiteNoise before Django sees the request.
#
# WhiteNoise's middleware is sync only; inside Django it would make the whole chain hold one thread
# for each waiting request. So its file index is used here, from a small ASGI callable, and Django
# stays async.

# A name with the hash of its content may be kept for good; any other is asked for again each time.
HASHED_NAME = r"\.[0-9a-f]{12}\.[a-z0-9]+$"
CHUNK_BYTES = 256 * 1024


# Each statement of the edge goes by keys to an index, whatever it is asked and however few rows
# there are now: it is planned once, and the plan must stand when there are a million.
PLANNING = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off"


# Comments and indents of sheets, and lines of scripts that are nothing but a comment. None of our
# sheets has a `/*` in a string, and none of our scripts has such a line in one.
OF_SHEETS = re.compile(rb"/\*.*?\*/|^\s+", re.DOTALL | re.MULTILINE)
OF_SCRIPTS = re.compile(rb"^[ \t]*//.*\n", re.MULTILINE)


def served(name: str, content: bytes) -> bytes:
    """What a browser is given of a static file, by its name below the folder of these: our own
    sheets, which stand in no folder, and scripts without what is for their readers alone.
    """
    if name.endswith(".css") and "/" not in name:
        return OF_SHEETS.sub(b"", content)
    return OF_SCRIPTS.sub(b"", content) if name.startswith("js/") else content


class HashedStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # untyped
    """Names carry a hash, also those that an ES module imports, so browsers keep them for good.
    They are collected as they are `served`.
    """

    support_js_module_import_aggregation = True

    def _save(self, name: str, content: Any) -> str:
        found = b"".join(content.chunks())
        return str(super()._save(name, ContentFile(served(name, found))))


class Files:
    """ASGI callable for everything below STATIC_URL."""

    def __init__(self) -> None:
        mimetypes.add_type("text/javascript", ".js")
        self._index = WhiteNoise(
            None,
            max_age=0,
            allow_all_origins=False,
            immutable_file_test=HASHED_NAME,
            add_headers_function=self._add_headers,
        )
        if settings.HASHED_STATIC:
            self._index.add_files(settings.STATIC_ROOT, prefix=settings.STATIC_URL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = self._find(scope)
        status, headers = (
            (404, []) if response is None else (int(response.status), response.headers)
        )
        raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        file = response.file if response else None
        while file is not None and (chunk := await asyncio.to_thread(file.read, CHUNK_BYTES)):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if file is not None:
            file.close()
        await send({"type": "http.response.body", "body": b""})

    def _find(self, scope: Scope) -> Response | None:
        if scope["method"] not in {"GET", "HEAD"}:
            return NOT_ALLOWED_RESPONSE
        asked = {
            "HTTP_" + name.decode("latin-1").upper().replace("-", "_"): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        file = self._index.files.get(scope["path"]) or self._unhashed(scope["path"])
        return file.get_response(scope["method"], asked) if file else None

    def _unhashed(self, path: str) -> Any:
        """Without collected files (tests, DEBUG) each is looked up where it lives."""
        if settings.HASHED_STATIC:
            return None
        try:
            found = finders.find(path.removeprefix(settings.STATIC_URL))
        except SuspiciousFileOperation:  # a path that climbs out of the folder
            return None
        return self._index.get_static_file(found, path) if isinstance(found, str) else None

    @staticmethod
    def _add_headers(headers: Any, path: str, url: str) -> None:
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Cross-Origin-Resource-Policy"] = "same-origin"


# What is counted for Prometheus at the edge. Floors count theirs with the same client.

# From a quick `begin` to a long-poll of 30 seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 35)

hot_seconds = Histogram(
    "amends_hot_request_seconds",
    "Time to answer at the edge.",
    ["method", "path", "status"],
    buckets=BUCKETS,
)


def count(route: Route, status: int, seconds: float) -> None:
    """Count one request of this route, and how long it took to answer."""
    hot_seconds.labels(route.method, route.path.pattern, str(status or "none")).observe(seconds)


# Every floor that has something to serve in front of Django states `routes`; it may also state
# `opened()` and `closing()`, awaited at the start and end of the process.
HOT_MODULES = (
    "ledger.intake",
    "ledger.foreign",
    "approvals.gate",
    "approvals.interchange",
    "approvals.news",
    "recovery.edge",
)
# What the edge looked at and passes on to Django goes through few at a time. It is news that
# two hundred consoles hear of in the same second, and each thread of Django's takes the interpreter
# from the loop, where agents wait.
PASSED_ON_MAX = 2


class Edge:
    """`django` is the ASGI application behind it."""

    def __init__(self, django: Any) -> None:
        self._django = django
        self._files = Files()
        self._passing = asyncio.Semaphore(PASSED_ON_MAX)
        self._modules = [import_module(name) for name in HOT_MODULES]
        self._routes = [*health.routes, *(r for module in self._modules for r in module.routes)]
        # Most patterns are plain paths: what fits such an address is found once.
        self._plain = {one.path.pattern: self._matching(one.path.pattern) for one in self._routes}

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
        elif matches := self._plain.get(scope["path"]) or self._matching(scope["path"]):
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
                    await self._pass_on(scope, receive, send)
                return
        allowed = ", ".join(sorted(route.method for route, _ in matches))
        await problem(send, 405, "Method not allowed", (("allow", allowed),))

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have Django answer, once the whole request is here: who is passed on while a body is on
        its way, which nothing here takes, keeps the others from their turn.
        """
        while (end := await receive()).get("more_body"):
            if end.get("body"):
                await problem(send, 413, "Nothing here takes a body", (("connection", "close"),))
                return
        heard = iter([end])

        async def receive_again() -> Message:
            return next(heard, None) or await receive()

        async with self._passing:
            await self._django(scope, receive_again, send)

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
        await pools.open_pool(
            settings.DATABASE_URL,
            connections_max=settings.HOT_POOL_SIZE,
            prepare_after=settings.PREPARE_AFTER,
            options="" if settings.POOLER else f"{settings.SESSION_OPTIONS} {PLANNING}",
        )
        await each(self._modules, "opened")

    async def _close(self) -> None:
        await each(reversed(self._modules), "closing")
        await pools.close_pool()


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
    status, begun = 0, time.perf_counter()
    retry = (("retry-after", str(RETRY_AFTER_SECONDS)),)

    async def noting(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        await send(message)

    try:
        await route.handler(scope, receive, noting)
    except (PoolTimeout, TooManyRequests):
        await problem(noting, 503, "Overloaded, come back in a moment", retry)
    except pools.AWAY as away:
        # It went away or restarted: every other idle connection is dead as well.
        logger.warning("%s %s: the database is away", scope["method"], scope["path"])
        await pools.pool().heal(away)
        await problem(noting, 503, "The database is away, come back in a moment", retry)
    except (asyncio.CancelledError, PassOn):
        raise
    except Exception:
        logger.exception("%s %s", scope["method"], scope["path"])
        if status:
            raise  # the server cuts the connection: half an answer must not look whole
        await problem(noting, 500, "The server failed on this request")
    finally:
        # What was written is sent at the end of this turn of the loop: nobody waits for the next.
        seconds = time.perf_counter() - begun
        asyncio.get_running_loop().call_soon(count, route, status, seconds)


KINDS = {405: f"{PROBLEM}method", 413: f"{PROBLEM}too-large"}
"""The types of problems that are told of behind the edge, too."""


async def problem(
    send: Send, status: int, title: str, headers: tuple[tuple[str, str], ...] = ()
) -> None:
    kind = KINDS.get(status, "about:blank")
    await answer_problem(send, Problem(kind, title, status), headers)


# Bodies of pages: Django reads a whole body before anybody looks at the request, onto the disk
# where it is large. So what may come, and how many at once, is decided in front of it. The edge
# reads its own, and only of who showed a key (ledger/agent_keys.py).

# How many bodies may be arriving at once that did not come whole with their head, as a form does.
LARGE_AT_ONCE_MAX = 32
LARGE_PER_ADDRESS_MAX = 8
RETRY_SECONDS = "2"


class BodyTooLarge(Exception):
    """We stopped because the body is larger than any page takes."""


class TooManyBodies(Exception):
    """We stopped because too many large bodies are arriving at once; come back in a moment."""


class Bounded:
    """`application` with bodies of at most DATA_UPLOAD_MAX_MEMORY_SIZE bytes, a few at a time."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._arriving: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        began = False

        async def noting(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        body = Body(self, scope, receive)
        try:
            check_length(scope)
            await self._application(scope, body.receive, noting)
        except (BodyTooLarge, TooManyBodies) as refusal:
            if began:
                raise
            await refuse(scope, send, refusal)
        finally:
            body.leave()

    def enter(self, address: str) -> None:
        all_of_them, its_own = self._arriving.total(), self._arriving[address]
        if all_of_them >= LARGE_AT_ONCE_MAX or its_own >= LARGE_PER_ADDRESS_MAX:
            raise TooManyBodies
        self._arriving[address] += 1

    def leave(self, address: str) -> None:
        self._arriving[address] -= 1
        if not self._arriving[address]:
            del self._arriving[address]


class Body:
    """One body on its way; counted among those that arrive once it did not come whole."""

    def __init__(self, bounded: Bounded, scope: Scope, receive: Receive) -> None:
        self._bounded, self._receive = bounded, receive
        self._address = str((scope.get("client") or ("",))[0])
        self._bytes = 0
        self._is_counted = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._bytes += len(message.get("body", b""))
        if self._bytes > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            raise BodyTooLarge
        if not message.get("more_body"):
            self.leave()
        elif not self._is_counted:
            self._bounded.enter(self._address)
            self._is_counted = True
        return message

    def leave(self) -> None:
        if self._is_counted:
            self._is_counted = False
            self._bounded.leave(self._address)


def check_length(scope: Scope) -> None:
    """Raise `BodyTooLarge` if `content-length` says so, before anything is read."""
    said = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if said.isdigit() and int(said) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
        raise BodyTooLarge


async def refuse(scope: Scope, send: Send, refusal: Exception) -> None:
    """A program reads a problem, a person one line."""
    status, words, headers = 413, "The body is too large", [("connection", "close")]
    if isinstance(refusal, TooManyBodies):
        status, words = 503, "Overloaded, come back in a moment"
        headers.append(("retry-after", RETRY_SECONDS))
    if scope["path"].startswith(FOR_PROGRAMS):
        await problem(send, status, words, tuple(headers))
        return
    text = f"{words}.\n".encode()
    said = [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(text)))]
    raw = [(name.encode(), value.encode()) for name, value in (*headers, *said)]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": text})
