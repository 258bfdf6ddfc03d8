"""The log as a feed: every entry in its order, pushed to a SIEM.

A webhook channel that names the subject `ledger.entries` gets all entries of its workspace's log
from the first on, in signed batches (Standard Webhooks). Where a feed stands is a row that moves
only after the receiver took a batch: a process that dies in between sends it again, so each number
arrives at least once, and once after the numbers are compared. Nothing is skipped, however long the
receiver is away: what comes later waits.

An entry tells who did what when, and what concerns the workspace itself; what agents handle stays
here (`ledger.entries.streamed`).
"""

import logging
import time
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from connectors.channels import Message, NotTaken, addressed, post, told
from connectors.models import Channel, ChannelKind, Delivery, Feed
from connectors.outbound import headers_of
from ledger import entries, proofs
from workspaces import clock, formatting
from workspaces.periodic import Turns

logger = logging.getLogger(__name__)

SUBJECT = "ledger.entries"
"""Only a channel that names it so, and no pattern, is a feed: nobody wants it by mistake."""

FEEDS_MAX = 200
"""In one turn, and so many that failed; the others come first in the next."""

BATCH = 200
TURN_SECONDS_MAX = 5.0
"""For one feed, so that a long one does not keep the others waiting; and for all that failed."""

CLAIM_SECONDS = 15
"""How long a feed is left alone by others; longer than one batch takes to be sent."""

PAUSE_SECONDS_MAX = 300
ERROR_CHARACTERS_MAX = 400
HASH_CHARACTERS = 32
"""Of an entry's hash, enough to tell it from any other."""


def send_all() -> int:
    """Send what is new to the feeds that waited longest, those that failed last after all others;
    returns how many entries were taken.
    """
    found = Channel.objects.filter(
        kind=ChannelKind.WEBHOOK, disabled_at=None, subjects__contains=[SUBJECT]
    )
    waited = found.select_related("workspace", "secret").order_by(
        F("feed__due_at").asc(nulls_first=True), "pk"
    )
    failing = waited.filter(feed__failures__gt=0, feed__due_at__lte=Now())[:FEEDS_MAX]
    until = time.monotonic() + TURN_SECONDS_MAX
    sent = sum(map(_send, waited.exclude(feed__failures__gt=0)[:FEEDS_MAX]))
    for at, channel in enumerate(failing):
        if at and time.monotonic() > until:
            break  # ten seconds each where a receiver hangs: the others' next turn comes first
        sent += _send(channel)
    return sent


def _send(channel: Channel) -> int:
    Feed.objects.get_or_create(channel=channel)
    mine = Feed.objects.filter(channel=channel)
    sent, until = 0, time.monotonic() + TURN_SECONDS_MAX
    while time.monotonic() < until:
        claim = Now() + timedelta(seconds=CLAIM_SECONDS)
        if not mine.filter(due_at__lte=Now()).update(due_at=claim):
            break
        feed = mine.get()
        try:
            taken = _batch(channel, feed)
        except Exception as failure:  # noqa: BLE001 - a receiver may fail in every way
            _note_failure(channel, feed, failure)
            break
        sent += taken
        mine.update(due_at=Now())
        if taken < BATCH:
            break
    return sent


def _batch(channel: Channel, feed: Feed) -> int:
    """Send what comes next and move on; returns how many entries, 0 where there is nothing new."""
    head = proofs.newest_head(channel.workspace)
    if head is None:
        return 0
    since = feed.number
    if feed.origin not in {"", head.origin}:  # the log went back
        since = entries.next_under(head, feed.origin, since)
    found = list(entries.between(channel.workspace, since, min(since + BATCH, head.size)))
    if not found:
        return 0
    said = {
        "type": SUBJECT,
        "data": {
            "workspace": channel.workspace.slug,
            "origin": head.origin,
            "first": found[0].number,
            "next": found[-1].number + 1,
            "entries": [entries.streamed(one) for one in found],
        },
    }
    secret: dict[str, Any] = channel.secret.open() if channel.secret else {}
    if not secret:
        raise NotTaken("The channel has lost its secret.")
    body = msgspec.json.encode(said)
    clock.now()  # by which it is signed
    # Bound to what is sent: a restored log that knew of no head goes on under the same name.
    which = f"{found[0].number}-{found[-1].number}-{found[-1].hash.hex()[:HASH_CHARACTERS]}"
    id_ = f"{channel.pk}-{head.origin}-{which}"
    post(secret["url"], body, headers_of(secret["secret"], body, message_id=id_))
    changes = {"number": found[-1].number + 1, "origin": head.origin, "failures": 0, "error": ""}
    Feed.objects.filter(pk=feed.pk, number=feed.number).update(**changes)
    return len(found)


@transaction.atomic
def _note_failure(channel: Channel, feed: Feed, failure: Exception) -> None:
    logger.warning("The feed of channel %s is not taken: %s", channel.pk, type(failure).__name__)
    pause = min(2 ** min(feed.failures + 1, 10), PAUSE_SECONDS_MAX)
    Feed.objects.filter(pk=feed.pk).update(
        failures=feed.failures + 1,
        error=told(failure, channel.secret)[:ERROR_CHARACTERS_MAX],
        due_at=Now() + timedelta(seconds=pause),
    )


# Heads that others keep, so that the desk cannot tell two of them two stories.

HEAD = "ledger.head"
WITNESSES = Turns(1_000)


def send_heads() -> int:
    """Put the newest heads on their way to the witnesses; returns how many are new."""
    channels = Channel.objects.filter(kind=ChannelKind.WEBHOOK, disabled_at=None)
    subscribed = WITNESSES.next(channels.exclude(subjects=[]).select_related("workspace"))
    witnesses = (one for one in subscribed if any(fnmatchcase(HEAD, glob) for glob in one.subjects))
    made = [_with_head(one) for one in witnesses]
    new = [one for one in made if one is not None]
    Delivery.objects.bulk_create(new, ignore_conflicts=True)
    return len(new)


def _with_head(channel: Channel) -> Delivery | None:
    """The newest head for a witness, unless it is on its way already."""
    head = proofs.newest_head(channel.workspace)
    key = f"head {head.pk}/{channel.pk}" if head else ""
    if head is None or Delivery.objects.filter(workspace=channel.workspace, key=key).exists():
        return None
    page = f"{settings.AMENDS_URL}/w/{channel.workspace.slug}/ledger/verify/"
    message = Message(f"{formatting.count(head.size)} entries of {head.origin}", head.note, page)
    return addressed(channel, HEAD, message, key=key)
