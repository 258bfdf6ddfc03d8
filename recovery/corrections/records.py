"""Records: what the affected person can download and anybody can check offline."""

from __future__ import annotations

from typing import Any

from ledger import brought, proofs
from ledger.entries import Finding
from recovery.corrections import publishing
from recovery.models import Correction


def record_of(correction: Correction) -> dict[str, Any]:
    """Facts and words with their salt, and, once sealed, the entry that vouches for them.

    `event`, `salt` and `proof` are what `python -m amends verify` checks; `facts_digest` in the
    event is SHA-256 over `facts_salt` and the canonical JSON (RFC 8785) of `facts`.
    """
    found: dict[str, Any] = {
        "correction": correction.reference,
        "facts": correction.facts,
        "words": {
            "title": correction.title,
            "lead": correction.lead,
            "wording": correction.wording,
        },
        "facts_salt": bytes(correction.facts_salt or b"").hex(),
    }
    try:
        sealed = proofs.download_of(correction.workspace, correction.event_id)
    except proofs.Tampered as tampered:
        return found | {"proof": None, "note": f"This record has no proof any more: {tampered}."}
    if sealed is None:
        return found | {"proof": None, "note": "Not sealed yet: download it again in a minute."}
    return found | sealed


def check(correction: Correction) -> list[Finding]:
    """What a verifier would look at, looked at here: entry, event, and what the page says."""
    event = proofs.event_of(correction.workspace, correction.event_id)
    try:
        found = proofs.inclusion_of(correction.workspace, event) if event is not None else None
    except proofs.Tampered as tampered:
        return [Finding("The entry", ok=False, words=str(tampered))]
    if event is None or found is None:
        return []
    entry = brought.check(correction.workspace, found.text)
    data = event.data if isinstance(event.data, dict) else {}
    salt = bytes(correction.facts_salt or b"")
    as_published = data.get("facts_digest") == publishing.facts_digest(
        salt, correction.facts
    ) and data.get("words_digest") == publishing.facts_digest(salt, publishing.words_of(correction))
    return [
        Finding("The entry is in the sealed log", ok=entry.ok, words=f"number {found.index}"),
        Finding("It is as it was sealed", ok=proofs.is_as_digested(event), words=found.head.origin),
        Finding("This page says what was published", ok=as_published, words=""),
    ]


def words(correction: Correction) -> str:
    """`entry 18 204 of a sealed log`"""
    if not correction.event_id:
        return "not published yet"
    event = proofs.event_of(correction.workspace, correction.event_id)
    try:
        found = proofs.inclusion_of(correction.workspace, event) if event is not None else None
    except proofs.Tampered:
        return "its entry is no longer the one that was sealed"
    if found is None:
        return "its entry is being sealed"
    number = f"{found.index:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return f"entry {number} of a sealed log"
