"""Whose the events are, in front of Django: the agent whose key was shown.

Whether a key opens is decided by `workspaces.keys.opens`, as for the rest of the API. Here it is
read without the ORM, and remembered for a second.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from amends.protocol.masking import MaskingKey
from edge import pools
from edge.asgi import Refused, Scope, bearer, header, problem, refuse
from ledger.parsed_events import Actor
from workspaces import encryption, keys, rates
from workspaces.locks import ROW_LOCK
from workspaces.models import opened_masking_key

logger = logging.getLogger(__name__)

# A revoked key opens nothing after this long, on any web process.
KEY_SECONDS_CACHED_MAX = 1.0
KEYS_CACHED_MAX = 5_000
SAY_EVERY_SECONDS = 60.0
LAST_USED_EVERY_SECONDS = 60.0
NO_KEY = "Send Authorization: Bearer amends_…"
# One sentence for all of these: a stranger shall not learn which keys there once were.
UNKNOWN_KEY = (
    "This desk does not know the key, or no longer: mistyped, revoked, expired or another desk's."
    " A new one is made at Settings → Agents and keys."
)

FIND_KEYS = """
SELECT shown.prefix, found.*
FROM unnest(%s::text[]) AS shown (prefix)
CROSS JOIN LATERAL (
    SELECT k.digest, k.revoked_at, k.expires_at, clock_timestamp(), k.scopes,
        k.workspace_id, w.slug, k.agent_id, a.name, k.trusted_runtime, w.mask,
        w.capture_intent, w.capture_snapshot, w.stuck_after_seconds, w.masking_key,
        w.mask_shows_last4, w.rate_key, w.rate_agent, w.rate_workspace
    FROM workspaces_apikey k
    JOIN workspaces_agent a ON a.id = k.agent_id
    JOIN workspaces_workspace w ON w.id = k.workspace_id
    WHERE k.prefix = shown.prefix
    OFFSET 0) found"""
STORED = len(keys.StoredKey._fields)
"""The columns of the key itself come first."""
LIMITS = len(rates.RateLimits._fields)
"""Those of its workspace's limits come last."""
# Who has one of them in hand notes the same.
USED_KEYS = f"""
UPDATE workspaces_apikey SET last_used_at = clock_timestamp() WHERE id IN (
    SELECT k.id FROM workspaces_apikey k WHERE k.prefix = ANY(%s)
        AND (k.last_used_at IS NULL OR k.last_used_at < clock_timestamp() - interval '1 minute')
    {ROW_LOCK} SKIP LOCKED)"""  # noqa: S608 - our own words


class ShownKey(NamedTuple):
    """A living key, whose it is, what its requests fill, and when this process read it."""

    stored: keys.StoredKey
    actor: Actor
    buckets: Sequence[rates.Bucket]
    asked_at: float


async def _look_up(prefixes: list[str]) -> dict[str, tuple[Any, ...]]:
    async with pools.AutocommitConnection() as connection:
        rows = await (await connection.execute(FIND_KEYS, [prefixes])).fetchall()
    return {row[0]: row[1:] for row in rows}


async def _note(prefixes: list[str]) -> dict[str, None]:
    async with pools.AutocommitConnection() as connection:
        await connection.execute(USED_KEYS, [prefixes])
    return {}


class Keys:
    """The keys that were shown lately. A second is short for a person and long for a busy agent."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, ShownKey] = OrderedDict()
        self._used: dict[str, float] = {}
        self._rows = pools.Together(_look_up)
        self._uses = pools.Together(_note)

    def forget(self) -> None:
        self._known.clear()
        self._used.clear()

    async def shown(self, token: str, scope: str) -> ShownKey | None:
        """The living key that `token` is, or None; raises `keys.LacksScope`."""
        prefix = keys.split(token)
        if prefix is None:
            return None
        now = time.monotonic()
        kept = self._known.get(prefix)
        if kept is None or now - kept.asked_at > KEY_SECONDS_CACHED_MAX:
            kept = await self._ask(token, prefix, now)
        return kept if kept and keys.opens(token, kept.stored, scope) else None

    async def _ask(self, token: str, prefix: str, now: float) -> ShownKey | None:
        row = await self._rows.ask(prefix)
        stored = keys.StoredKey(*row[:STORED]) if row else None
        if row is None or stored is None or not stored.is_living:
            self._known.pop(prefix, None)
            return None
        if keys.opens(token, stored):
            await self._note_use(prefix, now)
        of_agent, limits = row[STORED:-LIMITS], rates.RateLimits(*row[-LIMITS:])
        actor = _actor(prefix, stored, *of_agent)
        asked = rates.buckets(limits, actor.workspace_id, actor.name, prefix)
        kept = ShownKey(stored, actor, asked, now)
        self._known[prefix] = kept
        self._known.move_to_end(prefix)
        while len(self._known) > KEYS_CACHED_MAX:
            gone, _ = self._known.popitem(last=False)
            self._used.pop(gone, None)
        return kept

    async def _note_use(self, prefix: str, now: float) -> None:
        if now - self._used.get(prefix, -LAST_USED_EVERY_SECONDS) >= LAST_USED_EVERY_SECONDS:
            self._used[prefix] = now
            await self._uses.ask(prefix)


_said_at: dict[str, float] = {}


def _say(slug: str, wrong: encryption.CannotOpen) -> None:
    """Why agents of this workspace are answered 503; once a minute, however often they ask."""
    now = time.monotonic()
    if now - _said_at.get(slug, -SAY_EVERY_SECONDS) >= SAY_EVERY_SECONDS:
        _said_at[slug] = now
        logger.error("agents of %s are answered 503: their masking key: %s", slug, wrong)


def _actor(prefix: str, stored: keys.StoredKey, *row: Any) -> Actor:
    workspace_id, slug, agent_id, agent, trusted, mask, intent, snapshot, stuck = row[:-2]
    sealed, shows_last4 = row[-2:]
    try:
        key = MaskingKey(opened_masking_key(bytes(sealed)), shows_last4=shows_last4)
    except encryption.CannotOpen as wrong:
        _say(slug, wrong)
        detail = "Put back the encryption key that was taken away, then rotate."
        raise refuse("masking-key", "The masking key cannot be opened", 503, detail) from wrong
    return Actor(
        workspace_id, slug, "agent", agent, agent_id, prefix, trusted, tuple(mask), intent,
        snapshot, stuck, frozenset(stored.scopes), key,
    )  # fmt: skip


known_keys = Keys()


async def actor_of(scope: Scope, needs: str) -> Actor:
    """The agent that shows its key, if the key has the scope and asks no faster than it may; raises
    `Refused` (401, 403, 429).
    """
    token = bearer(scope)
    try:
        found = await known_keys.shown(token, needs) if token else None
    except keys.LacksScope as lacking:
        raise refuse("scope", "The key may not do this", 403, str(lacking)) from lacking
    if found is None:
        raise Refused(
            problem("key", "No valid API key", 401, UNKNOWN_KEY if token else NO_KEY),
            (("www-authenticate", "Bearer"),),
        )
    await _count(scope, found)
    return found.actor


async def _count(scope: Scope, shown: ShownKey) -> None:
    length = header(scope, b"content-length")
    body_bytes = int(length) if length.isdigit() else 0
    try:
        rates.rates.take(shown.actor.workspace_id, shown.buckets, body_bytes)
    except rates.TooFast as fast:
        await rates.rates.hold_back()
        what = problem("rate", "Too many requests, come back later", 429, str(fast))
        raise Refused(what, (("retry-after", str(fast.seconds)),)) from fast
