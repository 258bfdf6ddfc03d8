"""Publishing: the correction gets its link and its entry in the log, and is sent on its way."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from amends.protocol.vocabulary import EventType
from connectors.canonical import canonical
from recovery.cases.lifecycle import say
from recovery.corrections import delivery
from recovery.corrections.drafting import lock
from recovery.models import CaseState, Correction, CorrectionState
from workspaces.models import User
from workspaces.moves import CannotMove

SALT_BYTES = 32


class CannotPublish(Exception):
    """We stopped because the correction may not be published as it is; the sentence says why."""


def why_not(correction: Correction) -> str:
    """Why it cannot be published now; empty where it can."""
    if correction.state != CorrectionState.DRAFT:
        return "It was published already."
    if correction.case.state in {CaseState.WAITING, CaseState.RECOVERING}:
        return "The recovery has not ended yet."
    if not correction.facts["items"]:
        return "Nothing of this person's was changed."
    return ""


@transaction.atomic
def publish(
    correction: Correction, *, by: User | None, seen: int, ways: Sequence[str] = (delivery.LINK,)
) -> Correction:
    """Make it readable by its link and send it; raises OutOfDate, CannotPublish or CannotMove.

    `by` is None where policy publishes what it compensated by itself.
    """
    correction = lock(correction, seen=seen)
    if correction.state != CorrectionState.DRAFT:
        raise CannotMove(correction, CorrectionState.PUBLISHED, "It was published already.")
    hindrance = why_not(correction) or delivery.why_not(correction, ways)
    if hindrance:
        raise CannotPublish(hindrance)
    token, correction.token_digest, correction.token_sealed = delivery.make()
    correction.facts_salt = secrets.token_bytes(SALT_BYTES)
    correction.published_at = timezone.now()
    correction.published_by = by
    correction.expires_at = correction.published_at + timedelta(days=delivery.VALID_DAYS)
    correction.state = CorrectionState.PUBLISHED
    correction.revision += 1
    correction.event_id = say(
        correction.case,
        EventType.CORRECTION_PUBLISHED,
        by=by,
        part="policy",
        data=told(correction, ways),
    )
    correction.save()
    delivery.send(correction, delivery.address(token), ways)
    return correction


def told(correction: Correction, ways: Sequence[str]) -> dict[str, Any]:
    """What the ledger keeps: the digest of facts and words, and on which ways it went out."""
    return {
        "correction": correction.reference,
        "person": correction.person_id,
        "facts_digest": facts_digest(bytes(correction.facts_salt or b""), correction.facts),
        "words_digest": facts_digest(bytes(correction.facts_salt or b""), words_of(correction)),
        "ways": list(ways),
        "expires_at": correction.expires_at.isoformat() if correction.expires_at else None,
    }


def words_of(correction: Correction) -> dict[str, Any]:
    return {
        "title": correction.title,
        "lead": correction.lead,
        "wording": correction.wording,
    }


def facts_digest(salt: bytes, facts: Any) -> str:
    """`sha256:<hex>` over the salt and the canonical JSON (RFC 8785) of the facts."""
    return "sha256:" + hashlib.sha256(salt + canonical(facts)).hexdigest()


@transaction.atomic
def revoke(correction: Correction, *, by: User, seen: int, reason: str = "") -> Correction:
    """Let the link open nothing any more; raises OutOfDate or CannotMove."""
    correction = lock(correction, seen=seen)
    if correction.state != CorrectionState.PUBLISHED:
        raise CannotMove(correction, CorrectionState.REVOKED, "Only what is published is revoked.")
    correction.state = CorrectionState.REVOKED
    correction.revoked_at = timezone.now()
    correction.revision += 1
    correction.save(update_fields=["state", "revoked_at", "revision"])
    data = {"correction": correction.reference, "reason": reason[:2_000]}
    say(correction.case, EventType.CORRECTION_REVOKED, by=by, data=data)
    return correction
