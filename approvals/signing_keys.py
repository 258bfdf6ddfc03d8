"""Whether this desk can ask people to sign what they decide, and which keys of theirs it believes:
as the ledger tells them and the desk has signed them, and where the server names first keys
(AMENDS_SIGNING_KEYS), only those and what they signed for.
"""

import contextlib
import hashlib
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import QuerySet

from amends.protocol import signatures
from amends.protocol.proofs import NotProven
from amends.protocol.vocabulary import EventType
from ledger import logkeys
from ledger.models import Event
from workspaces.models import User, Workspace


def host() -> str:
    """The host by which keys know the desk (the relying party id of WebAuthn)."""
    return urlsplit(settings.AMENDS_URL).hostname or ""


def unavailable() -> str:
    """Why nobody can sign a decision on this desk, in words; empty where people can."""
    name = host()
    if not name or _is_address(name):
        return (
            f"keys sign for a host name, and AMENDS_URL has none ({name or 'nothing'}): give the"
            " desk a name, or localhost"
        )
    if urlsplit(settings.AMENDS_URL).scheme != "https" and not signatures.is_local(name):
        return "browsers sign only on pages that come over https"
    if not settings.AMENDS_HEADS_FOLDER:
        return (
            "no head of the log is kept outside the database (AMENDS_HEADS_FOLDER), so no key could"
            " be known for one that was there before"
        )
    return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def fingerprint(person: str, public_key: str) -> str:
    """Whose key it is and which, to be compared and to be named in AMENDS_SIGNING_KEYS: the
    person's number, and of SHA-256 over the public half (in base64, as the ledger has it) the
    first 16 bytes in hexadecimal. The id of a key would say nothing: another can be made under it.
    """
    return f"{person}:{hashlib.sha256(public_key.encode()).hexdigest()[:32]}"


def fingerprints(workspace: Workspace, enrolments: Iterable[str]) -> dict[str, str]:
    """By their enrolments, of keys as the ledger tells them."""
    rows = Event.objects.filter(
        workspace=workspace, type=EventType.SIGNING_KEY_ENROLLED, event_id__in=list(enrolments)
    )
    said = rows.values_list("event_id", "actor", "data__public_key")
    return {event: fingerprint(person, str(key)) for event, person, key in said}


def events_of(workspace: Workspace, person: User, kind: EventType) -> QuerySet[Event]:
    """What the ledger tells of the person's keys, oldest first."""
    mine = {"actor_kind": "person", "actor": str(person.pk)}
    return Event.objects.filter(workspace=workspace, run="", action="", type=kind, **mine).order_by(
        "place"
    )


def believed(workspace: Workspace, person: User) -> dict[str, signatures.SigningKey]:
    """The person's keys by their enrolments, those included that were taken away since. Where the
    server names first keys, only those count, and what they signed for.
    """
    named = settings.AMENDS_SIGNING_KEYS
    found: dict[str, signatures.SigningKey] = {}
    for event in events_of(workspace, person, EventType.SIGNING_KEY_ENROLLED):
        key = signed_by_desk(event, workspace)
        if key is None:
            continue
        is_named = fingerprint(str(person.pk), key.public_key) in named
        if not named or is_named or _is_signed_for(event, found.values()):
            found[event.event_id] = key
    return found


def _is_signed_for(event: Event, by: Iterable[signatures.SigningKey]) -> bool:
    """Whether one of these keys signed for the one that was put on record."""
    signed = (event.data or {}).get("signature") or {}
    challenge = signatures.enrolment_challenge(
        (event.data or {}) | {"workspace": event.workspace.slug}
    )
    for key in by:
        with contextlib.suppress(NotProven):
            signatures.check(signed, key, challenge)
            return True
    return False


def signed_by_desk(event: Event, workspace: Workspace) -> signatures.SigningKey | None:
    """The key of an enrolment; None where the desk did not sign that one."""
    facts: Mapping[str, Any] = (event.data or {}) | {"workspace": workspace.slug}
    if event.actor_kind != "person" or event.actor != facts.get("person"):
        return None
    try:
        key = signatures.SigningKey.of(facts)
        signatures.check_enrolment(facts, facts.get("desk"), logkeys.own_keys(workspace))
    except (NotProven, KeyError):
        return None
    return key
