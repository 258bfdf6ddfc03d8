"""Standard Webhooks signatures (standardwebhooks.com, version 1): HMAC-SHA256, symmetric keys only.

Signed is `<webhook-id>.<webhook-timestamp>.<body>`, byte for byte.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Iterable, Mapping

# How far the sender's clock may be off; older messages could be replayed.
TOLERANCE_SECONDS = 300
# A header may carry several signatures while secrets are changed.
SIGNATURES_MAX = 8
TIMESTAMP_DIGITS_MAX = 12


class BadSignature(Exception):
    """We stopped because nobody who holds the secret has signed this message, or not lately."""


def secret_bytes(secret: str) -> bytes:
    """The key in `whsec_<base64>`. ValueError if it is empty or not base64."""
    text = secret.removeprefix("whsec_")
    raw = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    if not raw:
        raise ValueError("the webhook secret is empty")
    return raw


def sign(secret: str, *, message_id: str, timestamp: int, body: bytes) -> str:
    """The value of the header `webhook-signature` for one secret."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    mac = hmac.new(secret_bytes(secret), signed, hashlib.sha256).digest()
    return "v1," + base64.b64encode(mac).decode()


def check(
    secrets: Iterable[str], *, headers: Mapping[str, str], body: bytes, now: float | None = None
) -> None:
    """Raise BadSignature unless one of the secrets signed this body within the tolerance."""
    named = {name.lower(): value for name, value in headers.items()}
    message_id, sent = named.get("webhook-id", ""), named.get("webhook-timestamp", "")
    given = named.get("webhook-signature", "").split(" ")[:SIGNATURES_MAX]
    if (
        not message_id
        or not sent.isascii()
        or not sent.isdigit()
        or len(sent) > TIMESTAMP_DIGITS_MAX
    ):
        raise BadSignature("the headers webhook-id and webhook-timestamp are missing or malformed")
    if abs((time.time() if now is None else now) - int(sent)) > TOLERANCE_SECONDS:
        raise BadSignature("the message is too old or its sender's clock is ahead")
    for secret in secrets:
        wanted = sign(secret, message_id=message_id, timestamp=int(sent), body=body).encode()
        if any(hmac.compare_digest(wanted, signature.encode()) for signature in given):
            return
    raise BadSignature("no signature fits a known secret")
