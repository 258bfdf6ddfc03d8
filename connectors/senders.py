"""How a message leaves by each kind of channel."""

from __future__ import annotations

import smtplib
from typing import Any

import msgspec
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.validators import validate_email

from connectors import signing
from connectors.models import Delivery
from connectors.models.channels import ChannelKind
from connectors.outbound import Deadline, Outbound
from connectors.redaction import Redaction

SEND_SECONDS_MAX = 15.0
RECIPIENTS_MAX = 20
OK = range(200, 300)


class NotTaken(Exception):
    """We stopped because the other side did not take the message; it is tried again later."""


def check(kind: str, settings: dict[str, Any], secret: dict[str, Any]) -> None:
    """Raise ValueError with one sentence where a channel of this kind could not send."""
    if kind == ChannelKind.MAIL:
        to = settings.get("to")
        if not isinstance(to, list) or not 0 < len(to) <= RECIPIENTS_MAX:
            raise ValueError(f"A mail channel needs 1 to {RECIPIENTS_MAX} addresses in “to”.")
        for address in to:
            _check_address(str(address))
        return
    if kind not in ChannelKind.values:
        raise ValueError("A channel is of the kind mail, slack or webhook.")
    if not str(secret.get("url", "")).startswith(("https://", "http://")):
        raise ValueError("This channel needs the address that messages are posted to.")
    if kind == ChannelKind.WEBHOOK:
        signing.signer(str(secret.get("secret", "")))


def _check_address(address: str) -> None:
    try:
        validate_email(address)
    except ValidationError:
        raise ValueError(f"{address} is no mail address.") from None


def send(delivery: Delivery) -> None:
    """Send one message; whatever is raised means that it has to be tried again."""
    if delivery.kind == ChannelKind.MAIL:
        _mail(delivery)
        return
    secret = delivery.channel.secret.open() if delivery.channel and delivery.channel.secret else {}
    if not secret:
        raise NotTaken("The channel was removed or has lost its secret.")
    if delivery.kind == ChannelKind.SLACK:
        _post(secret["url"], _slack(delivery), {})
    else:
        body = _signed_body(delivery)
        # The id stays the same over all tries, so that a receiver can tell a repetition.
        headers = signing.headers_of(secret["secret"], body, message_id=f"msg_{delivery.pk}")
        _post(secret["url"], body, headers)


def is_server_away(failure: Exception) -> bool:
    """Whether a mail was not taken because of the server itself, and not of this one mailbox."""
    if isinstance(failure, smtplib.SMTPException):
        return isinstance(failure, smtplib.SMTPServerDisconnected | smtplib.SMTPConnectError)
    return isinstance(failure, OSError)


def said(delivery: Delivery, failure: Exception) -> str:
    """The failure for people to read, without the channel's secrets."""
    secret = delivery.channel.secret if delivery.channel else None
    return Redaction(secret.open() if secret else {}).text(f"{type(failure).__name__}: {failure}")


def _mail(delivery: Delivery) -> None:
    to = [delivery.recipient] if delivery.recipient else []
    if not to and delivery.channel:
        to = list(delivery.channel.settings.get("to", []))
    if not to:
        raise NotTaken("The channel was removed or has no addresses.")
    said = delivery.message
    text = f"{said['text']}\n\n{said['url']}\n" if said["url"] else f"{said['text']}\n"
    mail = EmailMessage(
        subject=said["title"],
        body=text,
        to=to,
        headers={"Auto-Submitted": "auto-generated", "X-Amends-Delivery": str(delivery.pk)},
    )
    mail.send()


def _slack(delivery: Delivery) -> bytes:
    """The shape of an incoming webhook; the characters with a meaning are made plain."""
    said = {name: _plain(delivery.message[name]) for name in ("title", "text")}
    link = delivery.message["url"]
    text = f"*{said['title']}*\n{said['text']}" + (f"\n<{link}|Open in Amends>" if link else "")
    return msgspec.json.encode({"text": text})


def _plain(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _signed_body(delivery: Delivery) -> bytes:
    return msgspec.json.encode(
        {
            "type": delivery.subject,
            "timestamp": delivery.created_at.isoformat(),
            "data": {"workspace": delivery.workspace.slug, **delivery.message},
        }
    )


def _post(url: str, body: bytes, headers: dict[str, str]) -> None:
    answer = Outbound(Deadline(SEND_SECONDS_MAX)).request(
        "POST", url, headers={"content-type": "application/json", **headers}, content=body
    )
    if answer.status not in OK:
        raise NotTaken(f"The receiver answered {answer.status}.")
