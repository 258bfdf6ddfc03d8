"""Signatures as Standard Webhooks say (https://www.standardwebhooks.com)."""

from __future__ import annotations

from datetime import UTC, datetime

from standardwebhooks import Webhook


class BadSecret(ValueError):
    """We stopped because the signing secret is no `whsec_…` secret."""


def headers_of(secret: str, body: bytes, *, message_id: str) -> dict[str, str]:
    """The three headers that sign a body now; raises BadSecret."""
    now = datetime.now(UTC)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signer(secret).sign(
            msg_id=message_id, timestamp=now, data=body.decode()
        ),
    }


def signer(secret: str) -> Webhook:
    """The library's signer; raises BadSecret."""
    try:
        return Webhook(secret)
    except Exception:  # noqa: BLE001 - it raises of three kinds, one of them its own and not exported
        raise BadSecret("The signing secret has to be a whsec_… secret.") from None
