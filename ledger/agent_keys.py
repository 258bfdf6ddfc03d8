"""Which agent is speaking, in front of Django: by the key that it shows."""

import time
from collections import OrderedDict
from typing import Any

from psycopg import AsyncConnection

from amends.protocol.masking import MaskingKey
from edge import pools
from edge.asgi import Refused, Scope, bearer, problem, refuse
from ledger.parsed_events import Actor
from workspaces import encryption, keys
from workspaces.models import opened_masking_key

# A revoked key opens nothing after this long, on any web process.
KEY_SECONDS_CACHED_MAX = 1.0
KEYS_CACHED_MAX = 5_000
LAST_USED_EVERY_SECONDS = 60.0
NO_KEY = "Send Authorization: Bearer amends_…"
# One sentence for all of these: a stranger shall not learn which keys there once were.
UNKNOWN_KEY = (
    "This desk does not know the key, or no longer: mistyped, revoked, expired or another desk's."
    " A new one is made at Settings → Agents and keys."
)

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


class Keys:
    """The keys that were shown lately. A second is short for a person and long for a busy agent."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[float, bytes, Actor]] = OrderedDict()
        self._used: dict[str, float] = {}

    def forget(self) -> None:
        self._known.clear()
        self._used.clear()

    async def actor(self, token: str) -> Actor | None:
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
        async with pools.AutocommitConnection() as connection:
            cursor = await connection.execute(FIND_KEY, [prefix])
            row = await cursor.fetchone()
            if row is None:
                self._known.pop(prefix, None)
                return None
            await self._note_use(connection, prefix, now)
        kept = (now, bytes(row[0]), _actor(prefix, row))
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


def _actor(prefix: str, row: tuple[Any, ...]) -> Actor:
    _, workspace_id, slug, agent_id, agent, scopes, trusted, mask, intent, snapshot, stuck = row[
        :11
    ]
    sealed, shows_last4 = row[11:]
    try:
        key = MaskingKey(opened_masking_key(bytes(sealed)), shows_last4=shows_last4)
    except encryption.CannotOpen as wrong:
        detail = "Put back the encryption key that was taken away, then rotate."
        raise refuse("masking-key", "The masking key cannot be opened", 503, detail) from wrong
    return Actor(
        workspace_id, slug, "agent", agent, agent_id, prefix, trusted, tuple(mask), intent,
        snapshot, stuck, frozenset(scopes), key,
    )  # fmt: skip


known_keys = Keys()


async def actor_of(scope: Scope, needs: str) -> Actor:
    """The agent that shows its key, if the key has the scope; raises `Refused` (401, 403)."""
    token = bearer(scope)
    found = await known_keys.actor(token) if token else None
    if found is None:
        raise Refused(
            problem("key", "No valid API key", 401, UNKNOWN_KEY if token else NO_KEY),
            (("www-authenticate", "Bearer"),),
        )
    if needs not in found.scopes:
        raise refuse("scope", "The key may not do this", 403, f"It lacks the scope “{needs}”.")
    return found
