"""Links: the public address of a correction, known by its digest only.

Whoever has the link can read the correction until it expires or is revoked; a wrong, an expired and
a revoked one look the same.
"""

from __future__ import annotations

import hashlib
import secrets

from django.conf import settings
from django.db.models import F
from django.db.models.functions import Coalesce, Now

from recovery.models import Correction, CorrectionState
from workspaces import crypt

TOKEN_BYTES = 24
TOKEN_CHARACTERS_MAX = 64
VALID_DAYS = 180


def make() -> tuple[str, str, bytes]:
    """A new token, its digest, and the sealed copy for operators."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    return token, digest_of(token), crypt.seal(token)


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def find(token: str) -> Correction | None:
    """The living correction of this token, or None whatever is wrong with it."""
    if not token or len(token) > TOKEN_CHARACTERS_MAX:
        return None
    return (
        Correction.objects.select_related("case__run", "case__workspace", "workspace")
        .filter(
            token_digest=digest_of(token),
            state=CorrectionState.PUBLISHED,
            revoked_at=None,
            expires_at__gt=Now(),
        )
        .first()
    )


def link_of(correction: Correction) -> str:
    """The whole address, for operators; empty where there is none (any more)."""
    if correction.state != CorrectionState.PUBLISHED or correction.token_sealed is None:
        return ""
    return address(crypt.open_sealed(bytes(correction.token_sealed)))


def address(token: str) -> str:
    return f"{settings.AMENDS_URL}/c/{token}/"


def was_read(correction: Correction) -> None:
    """Count a reading of the page."""
    Correction.objects.filter(pk=correction.pk).update(
        first_read_at=Coalesce("first_read_at", Now()), read_count=F("read_count") + 1
    )
