"""Requests and answers in front of Django: what the handlers of every floor share, and what the
API's page says of them.

A handler is a plain ASGI callable: no middleware, no session. config/edge.py routes to it. All that
can be wrong with a request is a `Refused`, which the wrapper `answering` turns into an RFC 9457
problem. A bad request is never a 500.
"""

import logging
import re
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import msgspec
from psycopg.errors import DeadlockDetected, LockNotAvailable, QueryCanceled, SerializationFailure

logger = logging.getLogger(__name__)

RETRY_AFTER_SECONDS = 1
CHUNKS_MAX = 100_000
WAIT_SECONDS_MAX = 60
"""Of one request that waits for people; what stands between may cut longer ones off."""
WAIT = {"type": "number", "minimum": 0, "maximum": WAIT_SECONDS_MAX}, "Seconds to wait"
"""How an Operation describes `wait`, which `wait_seconds` reads."""

_json = msgspec.json.Encoder()

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Operation:
    """What the API's page says of a route.

    `body` is the type by which its request is read, in one of `media` if it takes any, and `answer`
    the one in which it answers. Of each name in the `query` there is its schema, and what it does;
    of each status in `refusals` what was wrong, where that is not plain from the status. `failure`
    stands in their place where they are no problems (RFC 9457) but of another form.
    """

    name: str
    summary: str
    answer: Any = Any
    body: Any = Any
    media: tuple[str, ...] = ()
    query: Mapping[str, tuple[dict[str, Any], str]] = field(default_factory=dict)
    answers: Mapping[int, str] = field(default_factory=lambda: {200: "Done"})
    refusals: Mapping[int, str] = field(default_factory=dict)
    failure: str = ""
    tag: str = "agents"


class Route(NamedTuple):
    """`path` is a regular expression for the whole path; its groups arrive in `path_params`."""

    method: str
    path: "re.Pattern[str]"
    handler: Handler
    operation: Operation | None


# A process that ends answers first whom it lets wait (config/web.py begins it).
_at_shutdown: list[Callable[[], None]] = []


def on_shutdown(call: Callable[[], None]) -> None:
    """Have `call` made, on the event loop, as soon as this process takes no more requests."""
    _at_shutdown.append(call)


def shut_down() -> None:
    for call in _at_shutdown:
        call()


def route(method: str, path: str, handler: Handler, operation: Operation | None = None) -> Route:
    """A route of the edge; one with an `operation` stands on the page of the API."""
    return Route(method, re.compile(path), handler, operation)


class PassOn(Exception):
    """We stopped because this request is not for the edge: Django answers it. Nothing of the
    body may have been read, and nothing sent.
    """


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An RFC 9457 problem."""

    type: str
    title: str
    status: int
    detail: str = ""


FOR_PROGRAMS = ("/api/v1/", "/aais/", "/aap/", "/v1/")
"""Where all that is refused is a problem, also what no route is there for."""
PROBLEM = "urn:amends:problem:"
"""How the types of our problems begin."""


def problem(kind: str, title: str, status: int, detail: str = "") -> Problem:
    return Problem(f"{PROBLEM}{kind}", title, status, detail)


class Refused(Exception):
    """We stopped because the request cannot be served; `problem` says why."""

    def __init__(self, what: Problem, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(what.title)
        self.problem = what
        self.headers = headers


def refuse(kind: str, title: str, status: int, detail: str = "") -> Refused:
    return Refused(problem(kind, title, status, detail))


def header(scope: Scope, name: bytes) -> str:
    for known, value in scope["headers"]:
        if known == name:
            return str(value, "latin-1")
    return ""


def query(scope: Scope, name: str, default: str) -> str:
    """The last value that the query string has for a name."""
    text: str = scope.get("query_string", b"").decode("latin-1")
    return parse_qs(text).get(name, [default])[-1]


def wait_seconds(scope: Scope) -> float:
    """How long a caller is ready to wait: `wait` in seconds, no longer than anybody waits here."""
    try:
        return max(0.0, min(float(query(scope, "wait", "0")), WAIT_SECONDS_MAX))
    except ValueError:
        raise refuse("schema", "“wait” is a number of seconds", 422) from None


def bearer(scope: Scope) -> str:
    kind, _, token = header(scope, b"authorization").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def media_type(scope: Scope) -> str:
    return header(scope, b"content-type").partition(";")[0].strip().lower()


# What is here of bodies that are still arriving, at most: of all in this process, and of those of
# one workspace. Whoever sends much and does not end it would fill the machine, for a minute each.
ARRIVING_BYTES_MAX = 512 * 1024 * 1024
ARRIVING_OF_ONE_MAX = 128 * 1024 * 1024
UNCOUNTED_BYTES = 72 * 1024
"""The beginning of each body, which the limits on connections bound. A question to the gate is no
larger, so that none is turned away because of what others send: whoever asked would take the desk
for away."""


class Arriving:
    """How much is held of bodies that are not here whole, by workspace."""

    def __init__(self) -> None:
        self._all = 0
        self._of: Counter[int] = Counter()

    def add(self, workspace: int, count: int) -> None:
        """Raises `Refused` (503) where there is no room for so many bytes more."""
        its_own = self._of[workspace] + count
        if self._all + count > ARRIVING_BYTES_MAX or its_own > ARRIVING_OF_ONE_MAX:
            again = (("retry-after", str(RETRY_AFTER_SECONDS)),)
            what = problem("overloaded", "Overloaded, come back in a moment", 503)
            raise Refused(what, again)
        self._all += count
        self._of[workspace] = its_own

    def take_off(self, workspace: int, count: int) -> None:
        self._all -= count
        self._of[workspace] -= count
        if not self._of[workspace]:
            del self._of[workspace]


arriving = Arriving()


async def body_of(scope: Scope, receive: Receive, bytes_max: int, *, workspace: int) -> bytes:
    """The whole body, inflated, neither form larger; raises `Refused` (413, 415, 400, 503).
    `workspace` is the one whose key was shown.
    """
    encoding = header(scope, b"content-encoding").strip().lower()
    if encoding not in {"", "identity", "gzip"}:
        raise refuse("encoding", "Unknown content encoding", 415, "gzip or none.")
    length = header(scope, b"content-length")
    if length.isdigit() and int(length) > bytes_max:
        raise _too_large(bytes_max)
    body, counted = bytearray(), 0
    try:
        for _ in range(CHUNKS_MAX):
            message = await receive()
            if message["type"] == "http.disconnect":
                raise refuse("disconnected", "The client went away", 400)
            body += message.get("body", b"")
            if len(body) > bytes_max:
                raise _too_large(bytes_max)
            if not message.get("more_body"):
                return inflated(bytes(body), bytes_max) if encoding == "gzip" else bytes(body)
            if (more := len(body) - UNCOUNTED_BYTES - counted) > 0:
                arriving.add(workspace, more)
                counted += more
    finally:
        if counted:
            arriving.take_off(workspace, counted)
    raise _too_large(bytes_max)


def _too_large(bytes_max: int) -> Refused:
    return refuse("too-large", "The body is too large", 413, f"At most {bytes_max} bytes.")


def inflated(body: bytes, bytes_max: int) -> bytes:
    """gunzip that stops one byte above the limit: a bomb never unfolds."""
    inflater = zlib.decompressobj(wbits=31)
    try:
        plain = inflater.decompress(body, bytes_max + 1)
    except zlib.error as broken:
        raise refuse("encoding", "The body is not gzip", 400, str(broken)) from broken
    if len(plain) > bytes_max:
        raise _too_large(bytes_max)
    if not inflater.eof or inflater.unused_data:
        raise refuse("encoding", "The body is not one whole gzip member", 400)
    return plain


async def answer(
    send: Send,
    status: int,
    value: Any,
    headers: tuple[tuple[str, str], ...] = (),
    media: str = "application/json",
) -> None:
    body = _json.encode(value)
    raw = [(b"content-type", media.encode()), (b"content-length", str(len(body)).encode())]
    raw += [(b"cache-control", b"no-store")]
    raw += [(name.encode(), text.encode()) for name, text in headers]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


async def answer_problem(
    send: Send, what: Problem, headers: tuple[tuple[str, str], ...] = ()
) -> None:
    await answer(send, what.status, what, headers, "application/problem+json")


def answering(handler: Callable[[Scope, Receive, Send], Awaitable[None]]) -> Handler:
    """The handler with every `Refused`, and a database too busy to lock a row, as a problem."""

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await handler(scope, receive, send)
        except Refused as refused:
            await answer_problem(send, refused.problem, refused.headers)
        except (DeadlockDetected, LockNotAvailable, QueryCanceled, SerializationFailure):
            logger.warning("%s %s: too busy", scope["method"], scope["path"], exc_info=True)
            what = problem("overloaded", "Overloaded, come back in a moment", 503)
            await answer_problem(send, what, (("retry-after", str(RETRY_AFTER_SECONDS)),))

    return answered


# What the API's page says of the endpoints that are served in front of Django.

Schema = dict[str, Any]

REFUSALS = {
    400: "Not JSON, or an address that cannot be read",
    401: "No valid key",
    403: "The key lacks the scope",
    413: "Too large",
    415: "Another media type",
    422: "It does not fit",
    429: "Faster than key, agent or workspace may ask; Retry-After says when to come back",
    503: "Overloaded; Retry-After says when to come back",
}
ALWAYS = (400, 401, 403, 429, 503)
"""The refusals that every endpoint has."""
REF = "#/components/schemas/{name}"
PARAMETER = re.compile(r"\(\?P<(\w+)>([^)]*)\)")


def openapi(routes: Iterable[Route]) -> tuple[dict[str, Schema], dict[str, Schema]]:
    """The path items of these routes by path, and the schemas to which they refer by name."""
    told = [(route, route.operation) for route in routes if route.operation is not None]
    types = [Problem, *(one for _, what in told for one in (what.body, what.answer))]
    (problem, *rest), schemas = msgspec.json.schema_components(types, ref_template=REF)
    paths: dict[str, Schema] = {}
    for (route, operation), body, answer in zip(told, rest[::2], rest[1::2], strict=True):
        path = PARAMETER.sub(r"{\1}", route.path.pattern)
        item = paths.setdefault(path, {})
        item[route.method.lower()] = _item(route, operation, body, answer, problem)
    return paths, schemas


def _item(
    route: Route, operation: Operation, body: Schema, answer: Schema, problem: Schema
) -> Schema:
    in_path = [
        {"name": name, "in": "path", "required": True,
         "schema": {"type": "string", "pattern": f"^{pattern}$"}}
        for name, pattern in PARAMETER.findall(route.path.pattern)
    ]  # fmt: skip
    in_query = [
        {"name": name, "in": "query", "required": False, "schema": schema, "description": words}
        for name, (schema, words) in operation.query.items()
    ]
    refusals = REFUSALS | {status: words for status, words in operation.refusals.items() if words}
    responses: Schema = {
        str(status): {"description": words, "content": {"application/json": {"schema": answer}}}
        for status, words in operation.answers.items()
    }
    if operation.failure:
        responses["default"] = {"description": operation.failure}
    for status in () if operation.failure else sorted({*ALWAYS, *operation.refusals}):
        content = {"application/problem+json": {"schema": problem}}
        responses[str(status)] = {"description": refusals[status], "content": content}
    item: Schema = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [*in_path, *in_query],
        "responses": responses,
        "security": [{"ByAgent": []}],
    }
    if operation.media:
        content = {media: {"schema": body} for media in operation.media}
        item["requestBody"] = {"required": True, "content": content}
    return item
