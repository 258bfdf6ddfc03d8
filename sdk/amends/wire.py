"""The one place that speaks HTTP with the desk, and tells "not reachable" from "refused"."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from amends import forks
from amends.errors import DeskUnreachable, KeyRefused, NotTheDesk, Refused, Throttled, in_words

CONNECT_SECONDS = 3.0
READ_SECONDS = 10.0
# A long poll answers within the seconds asked for; this much later it is lost.
POLL_GRACE_SECONDS = 10.0
# httpx's limit is for each piece of an answer, so one that drips in would never end. A whole one
# has as long from where it begins (what is sent may be large), and what it takes at this pace.
BYTES_A_SECOND_MIN = 10_000
# Answers that say "not now": the same request may succeed later.
NOT_NOW = frozenset({408, 425, 429, 500, 502, 503, 504})
FORBIDDEN = 403
TOO_MANY = 429
API = "/api/v1/"
CHECK = "Is AMENDS_URL right, and is the desk up?"
NO_DESK = "this does not look like a desk: is AMENDS_URL right?"


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the desk. With `wait_seconds` the desk may take that long to answer."""

    method: str
    path: str
    body: bytes | None = None
    params: Mapping[str, str] | None = None
    wait_seconds: float = 0


def get(path: str, *, wait_seconds: float = 0, params: Mapping[str, str] | None = None) -> Request:
    return Request("GET", path, params=params, wait_seconds=wait_seconds)


def post(path: str, body: bytes, *, params: Mapping[str, str] | None = None) -> Request:
    return Request("POST", path, body, params)


def trimmed(url: str) -> str:
    """The desk's address as people paste it, without what every request adds."""
    return url.strip().rstrip("/").removesuffix(API.rstrip("/")).rstrip("/")


def _root(url: str) -> str:
    """The same; ValueError for one that would lead elsewhere."""
    root = trimmed(url)
    if not root.startswith(("http://", "https://")):
        raise ValueError("the address of the desk starts with https:// or http://")
    try:
        has_host = bool(httpx.URL(root).host)
    except httpx.InvalidURL as wrong:
        raise ValueError(f"the address of the desk cannot be read: {wrong}") from None
    if not has_host or "?" in root or "#" in root:
        raise ValueError("the address of the desk is https://, its host and nothing behind ? or #")
    return root


class _Pieces:
    """An answer as it comes in."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._came = bytearray()

    def add(self, piece: bytes) -> None:
        self._came += piece
        if time.monotonic() > self._end + len(self._came) / BYTES_A_SECOND_MIN:
            raise httpx.ReadTimeout("the answer drips in")

    def whole(self, answer: httpx.Response) -> httpx.Response:
        return httpx.Response(
            answer.status_code, headers=answer.headers, content=bytes(self._came),
            extensions=answer.extensions,
        )  # fmt: skip


class _Address:
    """Where the desk is and how it is spoken to, whether its answer blocks or is awaited."""

    def __init__(self, url: str, key: str, *, read_seconds: float = READ_SECONDS) -> None:
        if not (key.isascii() and key.isprintable()) or " " in key:  # else an error would show it
            raise ValueError("the API key holds a space or the end of a line: copy it anew")
        self.options: dict[str, Any] = {
            "base_url": _root(url) + API,
            "headers": {"Authorization": f"Bearer {key}", "Accept": "application/json"},
            "timeout": httpx.Timeout(read_seconds, connect=CONNECT_SECONDS),
            "follow_redirects": False,
            # Each call that waits for people holds one; httpx's own hundred would be the end of it.
            "limits": httpx.Limits(max_connections=None, max_keepalive_connections=20),
        }
        self._read_seconds = read_seconds
        spoken = httpx.URL(self.options["base_url"])
        # As it is told in errors and logs: without a name and password that may stand in it.
        self.address = f"{spoken.scheme}://{spoken.netloc.decode()}{spoken.path}"

    def asked(self, request: Request) -> dict[str, Any]:
        """What httpx is asked with."""
        found: dict[str, Any] = {"method": request.method, "url": request.path}
        if request.body is not None:
            found["content"] = request.body
            found["headers"] = {"Content-Type": "application/json"}
        if request.wait_seconds:
            found["timeout"] = httpx.Timeout(self.limit(request), connect=CONNECT_SECONDS)
            found["params"] = {**(request.params or {}), "wait": str(int(request.wait_seconds))}
        elif request.params:
            found["params"] = request.params
        return found

    def limit(self, request: Request) -> float:
        """Within how many seconds it has to be answered."""
        waits = request.wait_seconds
        return waits + POLL_GRACE_SECONDS if waits else self._read_seconds

    def no_answer(self, error: httpx.HTTPError) -> DeskUnreachable:
        why = f"{type(error).__name__}: {error}"
        return DeskUnreachable(f"no answer from {self.address} ({why}). {CHECK}")

    def read(self, answer: httpx.Response) -> dict[str, Any]:
        """Raises Throttled, DeskUnreachable, KeyRefused, or Refused with status and problem."""
        if answer.status_code == TOO_MANY and "Retry-After" in answer.headers:
            raise Throttled(
                f"{self.address} answers 429: {in_words(self._object(answer))}",
                retry_after=_retry_after(answer),
            )
        if answer.status_code in NOT_NOW:
            raise DeskUnreachable(
                f"{self.address} answers {answer.status_code}: not now, try again.",
                retry_after=_retry_after(answer),
            )
        content = self._object(answer)
        if answer.status_code in (401, 403):
            raise KeyRefused(
                f"{self.address} refuses this API key: {in_words(content)}",
                by_somebody_else=answer.status_code == FORBIDDEN and "type" not in content,
            )
        if not answer.is_success:
            raise Refused(answer.status_code, content)
        return content

    def _object(self, answer: httpx.Response) -> dict[str, Any]:
        """What came as JSON; of an answer that is no desk's it says so, and whose it is."""
        try:
            content = answer.json()
        except (ValueError, RecursionError) as error:
            if answer.is_success:
                raise NotTheDesk(f"{self.address} answers, but {NO_DESK}") from error
            content = {}
        if not isinstance(content, dict):
            content = {"items": content}
        if not answer.is_success and "type" not in content:
            to = answer.headers.get("Location")
            said = in_words(content) if "title" in content else answer.reason_phrase
            at = f"{self.address}{f', which points to {to[:200]}' if to else ''}"
            content["title"] = f"{said} ({at}); {NO_DESK}"
        return content


class Wire(_Address):
    """A connection to one desk under one key. Safe to use from several threads."""

    def __init__(self, url: str, key: str, *, read_seconds: float = READ_SECONDS) -> None:
        super().__init__(url, key, read_seconds=read_seconds)
        self._client = httpx.Client(**self.options)
        self._of_parents: list[httpx.Client] = []
        forks.tell(self)

    def before_fork(self) -> None:
        """Whoever waits for an answer goes on waiting."""

    def after_fork(self) -> None:
        pass

    def born_of_fork(self) -> None:
        """The parent reads what comes over its connections, so they are not even closed here."""
        self._of_parents.append(self._client)
        self._client = httpx.Client(**self.options)

    def send(self, request: Request) -> dict[str, Any]:
        """One JSON object. Raises as `read` does; DeskUnreachable where no answer comes."""
        try:
            with self._client.stream(**self.asked(request)) as answer:
                pieces = _Pieces(self.limit(request))
                for piece in answer.iter_raw():
                    pieces.add(piece)
            whole = pieces.whole(answer)
        except httpx.HTTPError as error:
            raise self.no_answer(error) from error
        return self.read(whole)

    def get(self, path: str, *, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        return self.send(get(path, params=params))

    def post(self, path: str, body: bytes) -> dict[str, Any]:
        return self.send(post(path, body))

    def put_blob(self, sha256: str, body: bytes) -> None:
        self.send(Request("PUT", f"blobs/{sha256}", body))

    def close(self) -> None:
        self._client.close()


class AsyncWire(_Address):
    """The same, awaited: a connection for each event loop, opened when the loop first asks."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__(url, key)
        self._clients: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}
        self._of_parents: list[httpx.AsyncClient] = []
        forks.tell(self)

    def before_fork(self) -> None:
        """Whoever waits for an answer goes on waiting."""

    def after_fork(self) -> None:
        pass

    def born_of_fork(self) -> None:
        """As of `Wire`: what the parent reads from is neither used nor closed here."""
        self._of_parents += self._clients.values()
        self._clients = {}

    async def send(self, request: Request) -> dict[str, Any]:
        try:
            async with self._client().stream(**self.asked(request)) as answer:
                pieces = _Pieces(self.limit(request))
                async for piece in answer.aiter_raw():
                    pieces.add(piece)
            whole = pieces.whole(answer)
        except httpx.HTTPError as error:
            raise self.no_answer(error) from error
        return self.read(whole)

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            for over in [one for one in self._clients if one.is_closed()]:
                del self._clients[over]
            self._clients[loop] = httpx.AsyncClient(**self.options)
        return self._clients[loop]

    async def close(self) -> None:
        """Close this loop's connection."""
        if client := self._clients.pop(asyncio.get_running_loop(), None):
            await client.aclose()


def _retry_after(answer: httpx.Response) -> float:
    text = answer.headers.get("Retry-After", "")
    return min(float(text), 60.0) if text.isascii() and text.isdigit() else 0.0
