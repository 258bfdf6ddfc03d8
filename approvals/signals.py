"""Signals: they shorten a wait, above or at the edge. Nothing is lost if nobody hears them."""

import logging
from functools import lru_cache

import redis
from django.conf import settings
from django.db import transaction
from django.dispatch import Signal

from edge import sockets

CHANNEL = "amends:approvals"
DIRECTIVES = "amends:directives"
LOOK = "look"
"""Instead of a number: whoever waits here, let the database be asked whose wait is over."""

SECONDS_MAX = 0.5  # a signal may be lost, but may not hold up a decision

log = logging.getLogger(__name__)

approval_decided = Signal()
"""Sent after commit with `approval_id` and its `subject_kind`, whatever the end: granted, rejected,
expired, withdrawn."""


@lru_cache(maxsize=1)
def _client() -> redis.Redis:
    url = settings.REDIS_URL
    return redis.Redis.from_url(url, **sockets.redis(url, SECONDS_MAX))


def publish_on_commit(approval_id: int, subject_kind: str) -> None:
    """Wake whoever waits for this approval, once the transaction is through."""
    transaction.on_commit(lambda: _publish_decision(approval_id, subject_kind))


def _publish_decision(approval_id: int, subject_kind: str) -> None:
    told = {"approval_id": approval_id, "subject_kind": subject_kind}
    for _, answer in approval_decided.send_robust(sender=None, **told):
        if isinstance(answer, Exception):
            log.error("A listener of approval %s failed", approval_id, exc_info=answer)
    publish(CHANNEL, approval_id)


def publish_pauses_on_commit() -> None:
    """Wake the agents that wait to hear what is wanted of their runs, where it is a stop now."""
    transaction.on_commit(lambda: publish(DIRECTIVES, LOOK), robust=True)


def publish(channel: str, what: int | str) -> None:
    """Tell the web processes a number, or `LOOK`; a broker that is away costs little."""
    try:
        _client().publish(channel, str(what))
    except redis.RedisError:
        log.warning("Nobody was woken for %s %s: the broker does not answer", channel, what)
