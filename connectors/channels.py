"""Telling people: messages on their way to a channel or to one person, tried until they are there.

`announce` and `write_to` only write rows, in the transaction of what they tell of; a
periodic job sends them. A message says what happened and where to look. It carries no arguments and
no snapshots, and its link opens a page: nothing is decided by following it.

Signed heads go to witnesses, so that no one here can go back behind them: a webhook channel that
names the subject `ledger.head` gets the newest signed head of its workspace's log at most once a
minute, as a signed, repeated delivery like any other; the head stands verbatim in its text.
Channels for everything are not witnesses: nobody wants a mail a minute. A folder of files is the
other kind (AMENDS_HEADS_FOLDER), written by the sealer itself.
"""

from __future__ import annotations

import re
import smtplib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from html import escape
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
from django.conf import settings as deployment
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.validators import validate_email
from django.db import connection as database
from django.db import transaction
from django.db.models import DurationField, ExpressionWrapper, F, Value
from django.db.models.functions import Now

from amends.protocol.vocabulary import EventType
from connectors.models import Channel, ChannelKind, Delivery, DeliveryState, Tier
from connectors.normalization import Redaction
from connectors.outbound import OK, Deadline, Outbound, headers_of, signer
from workspaces import clock, outbox
from workspaces.encryption import CannotOpen
from workspaces.locks import ROW_LOCK
from workspaces.models import Secret, User, Workspace

# How a message leaves by each kind of channel.

SEND_SECONDS_MAX = 10.0
RECIPIENTS_MAX = 20
ADDRESS = re.compile(r"(?P<name>[^<>@,;:\r\n\u2028]*<)?[^\s<>@,;:]+@[^\s<>@,;:]+(?(name)>)")

SMTP = "connectors.builtin.smtp.EmailBackend"

EPOCH = datetime.fromtimestamp(0, UTC)

SENDS, FACTS = "sends", "facts"
"""The setting of a webhook whose receiver knows another form than ours: the facts alone, by the id
among them.
"""


class NotTaken(Exception):
    """We stopped because the other side did not take the message; it is tried again later."""


@dataclass(frozen=True, slots=True)
class Transport:
    """How messages leave by one kind of channel.

    `needs` raises ValueError with one sentence where settings and secret are not enough to send;
    `send` raises whatever means that the message has to be tried again. `secrets` are the fields of
    the channel's form that open something, and are sealed.
    """

    needs: Callable[[Mapping[str, Any], Mapping[str, Any]], None]
    send: Callable[[Delivery], None]
    secrets: tuple[str, ...] = ("url",)


def check(kind: str, settings: Mapping[str, Any], secret: Mapping[str, Any]) -> None:
    """Raise ValueError with one sentence where a channel of this kind could not send."""
    if kind not in KINDS:
        *others, last = KINDS
        raise ValueError(f"A channel is of the kind {', '.join(others)} or {last}.")
    KINDS[kind].needs(settings, secret)


def _needs_recipients(settings: Mapping[str, Any], _secret: Mapping[str, Any]) -> None:
    to = settings.get("to")
    if not isinstance(to, list) or not 0 < len(to) <= RECIPIENTS_MAX:
        raise ValueError(f"A mail channel needs 1 to {RECIPIENTS_MAX} addresses in “to”.")
    for address in to:
        try:
            validate_email(str(address))
        except ValidationError:
            raise ValueError(f"{address} is no mail address.") from None


def _needs_address(_settings: Mapping[str, Any], secret: Mapping[str, Any]) -> None:
    if not str(secret.get("url", "")).startswith(("https://", "http://")):
        raise ValueError("This channel needs the address that messages are posted to.")


def _needs_address_and_key(settings: Mapping[str, Any], secret: Mapping[str, Any]) -> None:
    _needs_address(settings, secret)
    signer(str(secret.get("secret", "")))


def is_address(text: str) -> bool:
    """Whether mail can be sent there: one address, and nothing beside it but a name."""
    return ADDRESS.fullmatch(text) is not None


def sends_mail() -> bool:
    """Whether mail can leave at all: nobody's does where no server is named (config.W040)."""
    return deployment.AMENDS_SENDS_MAIL or deployment.EMAIL_BACKEND != SMTP


def is_server_away(failure: Exception) -> bool:
    """Whether a mail was not taken because of the server itself, and not of this one mailbox."""
    if isinstance(failure, smtplib.SMTPException):
        return isinstance(failure, smtplib.SMTPServerDisconnected | smtplib.SMTPConnectError)
    return isinstance(failure, OSError)


def told(failure: Exception, secret: Secret | None) -> str:
    """The failure for people to read, without the secret of the channel. Of one that no key opens
    nobody could tell anything, and that is the failure itself.
    """
    try:
        redaction = Redaction(secret.open() if secret else {})
    except CannotOpen:
        redaction = Redaction()
    return redaction.text(f"{type(failure).__name__}: {failure}")


def _mail(delivery: Delivery) -> None:
    to = [delivery.recipient] if delivery.recipient else []
    if not to and delivery.channel:
        to = list(delivery.channel.settings.get("to", []))
    if not to:
        raise NotTaken("The channel was removed or has no addresses.")
    said = delivery.message
    text = f"{said['text']}\n\n{said['url']}\n" if said["url"] else f"{said['text']}\n"
    headers = {
        "Auto-Submitted": "auto-generated",
        # Taken, and its answer lost, it is sent once more, and is no other mail (RFC 5322, 3.6.4).
        "Message-ID": f"<{_id(delivery)}@{_host()}>",
        "X-Amends-Delivery": _id(delivery),
    }
    if stop := said.get("stop_url"):
        headers |= {
            "List-Unsubscribe": f"<{stop}>",
            "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
        }
    EmailMessage(subject=said["title"], body=text, to=to, headers=headers).send()


def _host() -> str:
    """The desk's own, as a mail names it; one that no name in the DNS can be is left unsaid."""
    host = urlsplit(deployment.AMENDS_URL).hostname or ""
    try:
        return f"[{host}]" if ":" in host else host.encode("idna").decode() or "localhost"
    except UnicodeError:
        return "localhost"


def _secret_of(delivery: Delivery) -> dict[str, Any]:
    kept = delivery.channel.secret if delivery.channel else None
    secret: dict[str, Any] = kept.open() if kept else {}
    if not secret:
        raise NotTaken("The channel was removed or has lost its secret.")
    return secret


def _slack(delivery: Delivery) -> None:
    """The shape of an incoming webhook; the characters with a meaning are made plain."""
    secret = _secret_of(delivery)
    said = {name: escape(delivery.message[name], quote=False) for name in ("title", "text")}
    link = delivery.message["url"]
    text = f"*{said['title']}*\n{said['text']}" + (f"\n<{link}|Open in Amends>" if link else "")
    post(secret["url"], msgspec.json.encode({"text": text}), {})


def _webhook(delivery: Delivery) -> None:
    secret, body = _secret_of(delivery), _signed_body(delivery)
    clock.now()  # by which it is signed
    id_ = str(delivery.message.get("facts", {}).get("id", _id(delivery)))
    post(secret["url"], body, headers_of(secret["secret"], body, message_id=id_))


def _id(delivery: Delivery) -> str:
    """What a receiver tells a repetition by: the same over all tries, and never another message's.
    Numbers are given anew after a restore, to others than those that were sent already.
    """
    microseconds = (delivery.created_at - EPOCH) // timedelta(microseconds=1)
    return f"msg_{delivery.pk}_{microseconds}"


def _signed_body(delivery: Delivery) -> bytes:
    if delivery.channel and delivery.channel.settings.get(SENDS) == FACTS:
        return msgspec.json.encode({"type": delivery.subject, **delivery.message["facts"]})
    return msgspec.json.encode(
        {
            "type": delivery.subject,
            "timestamp": delivery.created_at.isoformat(),
            "data": {"workspace": delivery.workspace.slug, **delivery.message},
        }
    )


def post(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Post JSON to a receiver; raises NotTaken, or what `Outbound.request` raises."""
    answer = Outbound(Deadline(SEND_SECONDS_MAX)).request(
        "POST", url, headers={"content-type": "application/json", **headers}, content=body
    )
    if answer.status not in OK:
        raise NotTaken(f"The receiver answered {answer.status}.")


KINDS: Mapping[str, Transport] = {
    ChannelKind.MAIL: Transport(_needs_recipients, _mail, secrets=()),
    ChannelKind.SLACK: Transport(_needs_address, _slack),
    ChannelKind.WEBHOOK: Transport(_needs_address_and_key, _webhook, secrets=("url", "secret")),
}


CHANNELS_MAX = 50
TITLE_CHARACTERS_MAX = 200
TEXT_CHARACTERS_MAX = 20_000
PAUSES_SECONDS = (30, 120, 600, 3600, 3 * 3600, 6 * 3600, 12 * 3600)
"""Between tries; after the last one the message has failed, about a day after it was written."""

CLAIM_SECONDS = 300
"""How long a claimed message is left alone; longer than any send takes."""

BATCH = 50

LATE_SECONDS = 300.0
_failed_at: dict[int, float] = {}
"""Channels that took nothing lately, by this process's clock. A receiver that hangs takes ten
seconds each time, and a hundred of them would hold up what everybody else waits for.
"""

TEST = "channel.test"
FORGOTTEN_AT_A_TIME = 10_000


@dataclass(frozen=True, slots=True)
class Message:
    """What is said: a title in one line, a text, and a link to a page of ours.

    `facts` are for programs: a signed webhook carries them, people do not see them. `stop_url` ends
    the mails of this kind to this person, by one POST without a log-in (RFC 8058).
    """

    title: str
    text: str
    url: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    stop_url: str = ""

    def cut(self) -> dict[str, Any]:
        title = " ".join(self.title.split())[:TITLE_CHARACTERS_MAX]
        text = self.text[:TEXT_CHARACTERS_MAX]
        said = asdict(Message(title, text, self.url, dict(self.facts), self.stop_url))
        return said if self.stop_url else {k: said[k] for k in said if k != "stop_url"}


class BadChannel(ValueError):
    """We stopped because the channel could not deliver anything like this; the text says why."""


@transaction.atomic
def create(
    workspace: Workspace,
    name: str,
    kind: str,
    *,
    by: User | None,
    settings: dict[str, Any] | None = None,
    secret: dict[str, Any] | None = None,
    subjects: list[str] | None = None,
    tier: str = Tier.OUTLINE,
) -> Channel:
    """Add a channel: mail wants settings "to", slack a secret "url", webhook "url" and "secret"."""
    mine = Channel.objects.filter(workspace=workspace)
    if mine.filter(name=name).exists():
        raise BadChannel(f"There is a channel named “{name}” already.")
    if mine.count() >= CHANNELS_MAX:
        raise BadChannel(f"A workspace has at most {CHANNELS_MAX} channels.")
    try:
        check(kind, settings or {}, secret or {})
    except ValueError as wrong:
        raise BadChannel(str(wrong)) from wrong
    channel = Channel.objects.create(
        workspace=workspace,
        name=name,
        kind=kind,
        settings=settings or {},
        subjects=subjects or [],
        tier=Tier(tier),
        secret=Secret.objects.seal(workspace, f"channel {name}", secret) if secret else None,
    )
    data = {"channel": name, "kind": kind, "tier": channel.tier, "subjects": channel.subjects}
    outbox.record(workspace, EventType.CHANNEL_CREATED, by=by, data=data)
    return channel


@transaction.atomic
def disable(channel: Channel, *, by: User | None) -> None:
    if Channel.objects.filter(pk=channel.pk, disabled_at=None).update(disabled_at=Now()):
        outbox.record(
            channel.workspace, EventType.CHANNEL_DISABLED, by=by, data={"channel": channel.name}
        )


@transaction.atomic
def enable(channel: Channel, *, by: User | None) -> None:
    """Let messages out again; what happened meanwhile is not told afterwards."""
    if Channel.objects.filter(pk=channel.pk).exclude(disabled_at=None).update(disabled_at=None):
        outbox.record(
            channel.workspace, EventType.CHANNEL_ENABLED, by=by, data={"channel": channel.name}
        )


@transaction.atomic
def try_out(channel: Channel, *, by: User) -> Delivery:
    """Put a test message on its way, whatever subjects the channel carries."""
    outbox.record(channel.workspace, EventType.CHANNEL_TRIED, by=by, data={"channel": channel.name})
    message = Message(
        "A test message of Amends",
        f"{by} asked for it, to see whether “{channel.name}” arrives. Nothing else happened.",
        f"{deployment.AMENDS_URL}/w/{channel.workspace.slug}/channels/",
    )
    delivery = addressed(channel, TEST, message, key=f"test/{channel.pk}/{uuid4().hex}")
    delivery.save()
    return delivery


def addressed(channel: Channel, subject: str, message: Message, *, key: str) -> Delivery:
    """A message for one channel, which is not on its way yet."""
    return Delivery(
        workspace_id=channel.workspace_id, channel=channel, kind=channel.kind, subject=subject,
        key=key, message=message.cut(),
    )  # fmt: skip


def announce(
    workspace: Workspace,
    subject: str,
    message: Message,
    *,
    key: str,
    fuller: Message | None = None,
) -> list[Delivery]:
    """Put a message on its way to every channel of the subject; the same key, once each.

    Channels whose tier allows more carry `fuller` where it is given.
    """
    channels = Channel.objects.filter(workspace=workspace, disabled_at=None)
    made = [
        addressed(
            channel,
            subject,
            fuller if fuller and channel.tier == Tier.IN_FULL else message,
            key=f"{key}/{channel.pk}",
        )
        for channel in channels[:CHANNELS_MAX]
        if not channel.subjects or any(fnmatchcase(subject, glob) for glob in channel.subjects)
    ]
    Delivery.objects.bulk_create(made, ignore_conflicts=True)
    keys = [one.key for one in made]
    return list(Delivery.objects.filter(workspace=workspace, key__in=keys))


def tell(channel: Channel, subject: str, message: Message, *, key: str) -> None:
    """Put a message on its way to one channel, whatever it carries else; the same key, once."""
    made = addressed(channel, subject, message, key=f"{key}/{channel.pk}")
    Delivery.objects.bulk_create([made], ignore_conflicts=True)


def write_to_each(
    workspace: Workspace, addresses: Mapping[str, str], subject: str, message: Message
) -> list[Delivery]:
    """Put a mail to each of several people on its way: key → address; the same key, once."""
    made = [
        Delivery(
            workspace=workspace,
            kind=ChannelKind.MAIL,
            recipient=address,
            subject=subject,
            key=key,
            message=message.cut(),
        )
        for key, address in addresses.items()
    ]
    Delivery.objects.bulk_create(made, ignore_conflicts=True)
    return list(Delivery.objects.filter(workspace=workspace, key__in=list(addresses)))


def write_to(
    workspace: Workspace, address: str, subject: str, message: Message, *, key: str
) -> Delivery:
    """Put a mail to one person on its way; the same key, once."""
    return write_to_each(workspace, {key: address}, subject, message)[0]


# `=` and not `IN`: PostgreSQL may ask a list anew for each row, and each time lock another.
_CLAIM = f"""
UPDATE connectors_delivery
SET tries = tries + 1, next_try_at = statement_timestamp() + %s * interval '1 second'
WHERE id = (SELECT id FROM connectors_delivery
            WHERE state = 'waiting' AND next_try_at <= statement_timestamp()
              AND NOT coalesce(channel_id = ANY(%s), false) AND NOT kind = ANY(%s)
            ORDER BY next_try_at LIMIT 1 {ROW_LOCK} SKIP LOCKED)
RETURNING id
"""  # noqa: S608 - our own words


def send_due() -> int:
    """Send what is due, one claimed message after the other; returns how many were tried.

    A process killed while sending leaves its message claimed for CLAIM_SECONDS; then it is sent
    again: hearing of a case twice is better than never. A channel that did not take a message, and
    a mail server that is away, are left alone for the rest of the turn: others do not wait for it.
    Those that took nothing lately come after all others, in the next turns, too.
    """
    away: list[int] = []
    kinds: list[str] = []
    for tried in range(BATCH):
        late = _late()
        pk = _claim([*away, *late], kinds) or (_claim(away, kinds) if late else None)
        if pk is None:
            return tried
        delivery = Delivery.objects.select_related("channel__secret", "workspace").get(pk=pk)
        failure = _send(delivery)
        if failure is None:
            _failed_at.pop(delivery.channel_id or 0, None)
            continue
        if delivery.channel_id is not None:
            away.append(delivery.channel_id)
            _failed_at[delivery.channel_id] = time.monotonic()
        if delivery.kind == ChannelKind.MAIL and is_server_away(failure):
            kinds.append(ChannelKind.MAIL)
    return BATCH


def _claim(but: list[int], kinds: list[str]) -> int | None:
    """The message that is due longest, but for those of these channels and kinds; None if none."""
    with database.cursor() as cursor:
        cursor.execute(_CLAIM, [CLAIM_SECONDS, but, kinds])
        row = cursor.fetchone()
    return row[0] if row else None


def _late() -> list[int]:
    """After a while a channel is as any other again: it may take what it is sent."""
    for channel, at in list(_failed_at.items()):
        if time.monotonic() - at > LATE_SECONDS:
            _failed_at.pop(channel, None)  # the watch sends, too, where it has to
    return list(_failed_at)


def _send(delivery: Delivery) -> Exception | None:
    """Send one message; what kept it from being taken, or None."""
    try:
        KINDS[delivery.kind].send(delivery)
    except Exception as failure:  # noqa: BLE001 - a mail library may raise anything; it is kept
        _put_off(delivery, told(failure, delivery.channel.secret if delivery.channel else None))
        return failure
    Delivery.objects.filter(pk=delivery.pk).update(
        state=DeliveryState.SENT, sent_at=Now(), last_error=""
    )
    return None


def _put_off(delivery: Delivery, error: str) -> None:
    """Of one that was taken back or erased meanwhile nothing is said: it is tried no more."""
    waiting = Delivery.objects.filter(pk=delivery.pk, state=DeliveryState.WAITING)
    if delivery.tries > len(PAUSES_SECONDS):
        waiting.update(state=DeliveryState.FAILED, last_error=error)
        return
    pause = timedelta(seconds=PAUSES_SECONDS[delivery.tries - 1])
    waiting.update(next_try_at=Now() + pause, last_error=error)


def forget_old() -> int:
    """Drop messages that are older than their workspace keeps what was said; how many went."""
    days = F("workspace__retention_days") * Value(timedelta(days=1))
    kept_for = ExpressionWrapper(days, output_field=DurationField())
    over = Delivery.objects.exclude(state=DeliveryState.WAITING).filter(
        created_at__lt=Now() - kept_for
    )
    old = list(over.order_by("pk").values_list("pk", flat=True)[:FORGOTTEN_AT_A_TIME])
    Delivery.objects.filter(pk__in=old).delete()  # rows of higher floors that point at them let go
    return len(old)
