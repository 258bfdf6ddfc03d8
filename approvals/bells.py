"""Bells: they shorten a wait upstairs and at the door. Nothing is lost if nobody hears them."""

import logging
from functools import lru_cache

import redis
from django.conf import settings
from django.db import transaction
from django.dispatch import Signal

CHANNEL = "amends:approvals"
SECONDS_MAX = 0.5  # a bell may be lost, but may not hold up a decision

log = logging.getLogger(__name__)

approval_decided = Signal()
"""Sent after commit with `approval_id`, whatever the end: granted, rejected, expired, withdrawn."""


@lru_cache(maxsize=1)
def _client() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_timeout=SECONDS_MAX, socket_connect_timeout=SECONDS_MAX
    )


def ring_on_commit(approval_id: int) -> None:
    """Wake whoever waits for this approval, once the transaction is through."""
    transaction.on_commit(lambda: ring(approval_id))


def ring(approval_id: int) -> None:
    for _, answer in approval_decided.send_robust(sender=None, approval_id=approval_id):
        if isinstance(answer, Exception):
            log.error("A listener of approval %s failed", approval_id, exc_info=answer)
    publish(CHANNEL, approval_id)


def publish(channel: str, pk: int) -> None:
    """Tell the web processes a number; a broker that is away costs little."""
    try:
        _client().publish(channel, str(pk))
    except redis.RedisError:
        log.warning("Nobody was woken for %s %s: the broker does not answer", channel, pk)
