"""What the hot handlers share: who is speaking, what they sent, and how they are answered.

Everything that can be wrong with a request is a `Refused`, which the wrapper `answering` turns into
an RFC 9457 problem. A bad request is never a 500.
"""

import logging
import time
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from psycopg import AsyncConnection
from psycopg.errors import DeadlockDetected, LockNotAvailable, QueryCanceled, SerializationFailure

from amends.protocol.masking import MaskingKey
from ledger.parsed_events import Actor, Problem, problem
from workspaces import edge, encryption, keys
from workspaces.edge import Handler, Receive, Scope, Send
from workspaces.models import opened_masking_key

logger = logging.getLogger(__name__)

# A revoked key opens nothing after this long, on any web process.
KEY_SECONDS_CACHED_MAX = 1.0
KEYS_CACHED_MAX = 5_000
LAST_USED_EVERY_SECONDS = 60.0
RETRY_AFTER_SECONDS = 1
CHUNKS_MAX = 100_000
NO_KEY = "Send Authorization: Bearer amends_…"
# One sentence for all of these: a stranger shall not learn which keys there once were.
UNKNOWN_KEY = (
    "This desk does not know the key, or no longer: mistyped, revoked, expired or another desk's."
    " A new one is made at Settings → Agents and keys."
)

_json = msgspec.json.Encoder()

FIND_KEY = """
SELECT k.digest, k.workspace_id, w.slug, k.agent_id, a.name, k.scopes, k.trusted_runtime, w.mask,
    w.capture_intent, w.capture_snapshot, w.stuck_after_seconds, w.masking_key, w.mask_shows_last4
FROM workspaces_apikey k
JOIN workspaces_agent a ON a.id = k.agent_id
JOIN workspaces_workspace w ON w.id = k.workspace_id
WHERE k.prefix = %s AND k.revoked_at IS NULL
    AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())"""
USED_KEY = """
UPDATE workspaces_apikey SET last_used_at = clock_timestamp() WHERE prefix = %s
AND (last_used_at IS NULL OR last_used_at < clock_timestamp() - interval '1 minute')"""


class Refused(Exception):
    """We stopped because the request cannot be served; `problem` says why."""

    def __init__(self, what: Problem, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(what.title)
        self.problem = what
        self.headers = headers


def refuse(kind: str, title: str, status: int, detail: str = "") -> Refused:
    return Refused(problem(kind, title, status, detail))


class Keys:
    """The keys that were shown lately. A second is short for a person and long for a busy agent."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[float, bytes, Actor]] = OrderedDict()
        self._used: dict[str, float] = {}

    def forget(self) -> None:
        self._known.clear()
        self._used.clear()

    async def speaker(self, token: str) -> Actor | None:
        """The agent whose living key `token` is, or None."""
        prefix = keys.split(token)
        if prefix is None or not prefix.isalnum():
            return None
        now = time.monotonic()
        kept = self._known.get(prefix)
        if kept is None or now - kept[0] > KEY_SECONDS_CACHED_MAX:
            kept = await self._ask(prefix, now)
        if kept is None or not keys.proves(token, kept[1]):
            return None
        return kept[2]

    async def _ask(self, prefix: str, now: float) -> tuple[float, bytes, Actor] | None:
        async with edge.AutocommitConnection() as connection:
            cursor = await connection.execute(FIND_KEY, [prefix])
            row = await cursor.fetchone()
            if row is None:
                self._known.pop(prefix, None)
                return None
            await self._note_use(connection, prefix, now)
        kept = (now, bytes(row[0]), _speaker(prefix, row))
        self._known[prefix] = kept
        self._known.move_to_end(prefix)
        while len(self._known) > KEYS_CACHED_MAX:
            gone, _ = self._known.popitem(last=False)
            self._used.pop(gone, None)
        return kept

    async def _note_use(self, connection: AsyncConnection[Any], prefix: str, now: float) -> None:
        if now - self._used.get(prefix, -LAST_USED_EVERY_SECONDS) >= LAST_USED_EVERY_SECONDS:
            self._used[prefix] = now
            await connection.execute(USED_KEY, [prefix])


def _speaker(prefix: str, row: tuple[Any, ...]) -> Actor:
    _, workspace_id, slug, agent_id, agent, scopes, trusted, mask, intent, snapshot, stuck = row[
        :11
    ]
    sealed, shows_last4 = row[11:]
    try:
        key = MaskingKey(opened_masking_key(bytes(sealed)), shows_last4=shows_last4)
    except encryption.CannotOpen as wrong:
        said = "Put back the encryption key that was taken away, then rotate."
        raise refuse("masking-key", "The masking key cannot be opened", 503, said) from wrong
    return Actor(
        workspace_id, slug, "agent", agent, agent_id, prefix, trusted, tuple(mask), intent,
        snapshot, stuck, frozenset(scopes), key,
    )  # fmt: skip


known_keys = Keys()


async def speaker_of(scope: Scope, needs: str) -> Actor:
    """The agent that shows its key, if the key has the scope; raises `Refused` (401, 403)."""
    token = bearer(scope)
    found = await known_keys.speaker(token) if token else None
    if found is None:
        raise Refused(
            problem("key", "No valid API key", 401, UNKNOWN_KEY if token else NO_KEY),
            (("www-authenticate", "Bearer"),),
        )
    if needs not in found.scopes:
        raise refuse("scope", "The key may not do this", 403, f"It lacks the scope “{needs}”.")
    return found


def header(scope: Scope, name: bytes) -> str:
    return next((v.decode("latin-1") for n, v in scope["headers"] if n == name), "")


def bearer(scope: Scope) -> str:
    kind, _, token = header(scope, b"authorization").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def media_type(scope: Scope) -> str:
    return header(scope, b"content-type").partition(";")[0].strip().lower()


async def body_of(scope: Scope, receive: Receive, bytes_max: int) -> bytes:
    """The whole body, inflated; raises `Refused` (413, 415, 400). Neither form may be larger."""
    too_large = refuse("too-large", "The body is too large", 413, f"At most {bytes_max} bytes.")
    encoding = header(scope, b"content-encoding").strip().lower()
    if encoding not in {"", "identity", "gzip"}:
        raise refuse("encoding", "Unknown content encoding", 415, "gzip or none.")
    length = header(scope, b"content-length")
    if length.isdigit() and int(length) > bytes_max:
        raise too_large
    body = bytearray()
    for _ in range(CHUNKS_MAX):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise refuse("disconnected", "The client went away", 400)
        body += message.get("body", b"")
        if len(body) > bytes_max:
            raise too_large
        if not message.get("more_body"):
            return inflated(bytes(body), bytes_max) if encoding == "gzip" else bytes(body)
    raise too_large


def inflated(body: bytes, bytes_max: int) -> bytes:
    """gunzip that stops one byte above the limit: a bomb never unfolds."""
    inflater = zlib.decompressobj(wbits=31)
    try:
        plain = inflater.decompress(body, bytes_max + 1)
    except zlib.error as broken:
        raise refuse("encoding", "The body is not gzip", 400, str(broken)) from broken
    if len(plain) > bytes_max:
        raise refuse("too-large", "The body is too large", 413, f"At most {bytes_max} bytes.")
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
