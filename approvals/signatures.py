"""Decisions that the person signs by a key of their own, so that nobody who owns the database can
make one.

The key is a security key or passkey of theirs (WebAuthn, as allauth keeps it), put on record by an
event in the sealed log. A yes counts while it is used if that key signed this very answer, and its
enrolment stands before the question under a head that is kept outside the database. docs/proofs.md
says the same for whoever checks it offline.
"""

import base64
import json
import logging
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authenticator_removed
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now
from django.dispatch import receiver
from fido2.server import Fido2Server
from fido2.utils import websafe_decode, websafe_encode
from fido2.webauthn import (
    AttestedCredentialData,
    AuthenticatorData,
    PublicKeyCredentialRpEntity,
    UserVerificationRequirement,
)

from amends.protocol import signatures
from amends.protocol.proofs import NotProven
from amends.protocol.signatures import ALGORITHMS, EDDSA, ES256, RS256
from amends.protocol.vocabulary import EventType
from approvals import glass_eligibility, signing_keys
from approvals.digests import events_of
from approvals.models import Approval, Decision, SigningKey
from ledger import desk_events, logkeys, proofs, sealer
from ledger.merkle import ParsedHead
from ledger.models import Event
from workspaces import delegations, locks
from workspaces.access import may
from workspaces.free_text import InvalidInput
from workspaces.models import User, Workspace

logger = logging.getLogger(__name__)

CEREMONY_MILLISECONDS = 120_000
ANSWER_CHARACTERS_MAX = 32 * 1024
KEYS_MAX = 20
"""Of one person in one workspace."""
NO_KEY = (
    "none of your keys was on record here when this was asked; one that is put there now (“Signing"
    " keys”) signs what is asked from then on, so have this asked anew"
)
NOT_NAMED = (
    "none of your keys is named by the server (AMENDS_SIGNING_KEYS), or signed for by one that is"
)
NOT_SEALED = "the question is not yet under a head that is kept outside; try again in a moment"
CURVE_OF_ES256, ED25519 = 1, 6
"""Which curve a key is of (RFC 9053, 7.1)."""
UNREADABLE = (
    ValueError, LookupError, TypeError, AttributeError, RecursionError, struct.error,
)  # fmt: skip
"""What is raised for an answer that is none: a browser may send any bytes."""

Facts = dict[str, Any]


class NotSigned(Exception):
    """We stopped because this takes a signature by a key that counts; the message says why."""


def answered(text: str) -> Any:
    """What a browser's key has said, out of a form; None where it said nothing that can be read."""
    if not text or len(text) > ANSWER_CHARACTERS_MAX:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# The keys of a person, as allauth keeps them.


def authenticators(person: User) -> list[Authenticator]:
    """Their security keys and passkeys, oldest first."""
    rows = Authenticator.objects.filter(user=person, type=Authenticator.Type.WEBAUTHN)
    return list(rows.order_by("pk"))


def credential_of(authenticator: Authenticator) -> AttestedCredentialData:
    found: AttestedCredentialData = authenticator.wrap().authenticator_data.credential_data
    return found


def _by_credential(person: User) -> dict[str, Authenticator]:
    found = {}
    for one in authenticators(person):
        found[websafe_encode(credential_of(one).credential_id)] = one
    return found


def _public_key(data: AttestedCredentialData) -> tuple[str, int]:
    """The public half as base64 of its SubjectPublicKeyInfo, and its algorithm (RFC 9053)."""
    cose = data.public_key
    algorithm = int(cose[3])
    public: Any
    if algorithm == ES256 and cose[-1] == CURVE_OF_ES256:
        point = b"\x04" + bytes(cose[-2]) + bytes(cose[-3])
        public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
    elif algorithm == EDDSA and cose[-1] == ED25519:
        public = ed25519.Ed25519PublicKey.from_public_bytes(bytes(cose[-2]))
    elif algorithm == RS256:
        exponent, modulus = (int.from_bytes(bytes(cose[one]), "big") for one in (-2, -1))
        public = rsa.RSAPublicNumbers(exponent, modulus).public_key()
    else:
        curve = f", curve {cose[-1]}" if algorithm in (ES256, EDDSA) else ""
        raise InvalidInput(
            f"Keys of the algorithms {ALGORITHMS} can sign; this is {algorithm}{curve}."
        )
    written = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(written).decode(), algorithm


def _server() -> Fido2Server:
    """Signatures are taken from pages of this desk's own address alone."""
    desk = settings.AMENDS_URL.rstrip("/")
    return Fido2Server(
        PublicKeyCredentialRpEntity(name="Amends", id=signing_keys.host()),
        verify_origin=lambda origin: origin == desk,
    )


def _asked(challenge: bytes, credentials: Iterable[str]) -> Facts:
    """What the browser is asked for: the options of `navigator.credentials.get`, in base64url."""
    return {
        "challenge": websafe_encode(challenge),
        "rpId": signing_keys.host(),
        "timeout": CEREMONY_MILLISECONDS,
        "userVerification": UserVerificationRequirement.REQUIRED.value,
        "allowCredentials": [{"type": "public-key", "id": one} for one in credentials],
    }


def _taken(
    answer: Any, challenge: bytes, credentials: Iterable[AttestedCredentialData]
) -> dict[str, str]:
    """What the browser answered, checked by the ceremony. Raises NotSigned."""
    state = {
        "challenge": websafe_encode(challenge),
        "user_verification": UserVerificationRequirement.REQUIRED,
    }
    try:
        _server().authenticate_complete(state, list(credentials), answer)
        given = answer["response"]
        return {
            "credential": websafe_encode(websafe_decode(answer["rawId"])),
            "authenticator": str(given["authenticatorData"]),
            "client": str(given["clientDataJSON"]),
            "signature": str(given["signature"]),
        }
    except UNREADABLE as wrong:
        logger.info("a signature was refused: %s", wrong)
        raise NotSigned("the key did not sign this") from wrong


# Putting a key on record.


def may_enrol(person: User, workspace: Workspace) -> bool:
    """Whoever may decide here: in their own right, in one that was handed to them, now or to come,
    or where the policy lets them break the glass.
    """
    if may(person, "approve", workspace) or glass_eligibility.may_take_part(person, workspace):
        return True
    handed = delegations.of(workspace).filter(delegate=person)
    return may(person, "view", workspace) and handed.exists()


def on_record(workspace: Workspace, person: User) -> list[SigningKey]:
    """The keys by which this person can sign here, oldest first."""
    living = SigningKey.objects.filter(workspace=workspace, person=person, removed_at=None)
    return list(living.order_by("pk"))


def told_of(workspace: Workspace, person: User) -> dict[str, signatures.SigningKey]:
    """The same by credential, as the ledger tells it and the desk has signed it: a row says that a
    key is on record, or was taken away, to whoever wrote the row.
    """
    gone = set(signing_keys.events_of(workspace, person, EventType.SIGNING_KEY_REMOVED).values_list(
        "data__enrolment", flat=True
    ))  # fmt: skip
    known = signing_keys.believed(workspace, person).items()
    return {key.credential: key for enrolment, key in known if enrolment not in gone}


def _facts(workspace: Workspace, person: User, authenticator: Authenticator) -> Facts:
    data = credential_of(authenticator)
    public, algorithm = _public_key(data)
    return {
        "workspace": workspace.slug,
        "person": str(person.pk),
        "credential": websafe_encode(data.credential_id),
        "public_key": public,
        "alg": algorithm,
        "rp_id": signing_keys.host(),
    }


def enrolment_options(workspace: Workspace, person: User, authenticator: Authenticator) -> Facts:
    """What the browser is asked, to put this key on record: a signature by a key that is on record
    already, and of the first key by itself.
    """
    facts = _facts(workspace, person, authenticator)
    known = told_of(workspace, person)
    return _asked(signatures.enrolment_challenge(facts), known or [facts["credential"]])


@transaction.atomic
def enrol(
    workspace: Workspace, authenticator: Authenticator, *, by: User, answer: Any
) -> SigningKey:
    """Put a key of `by` on record here. Raises NotSigned, or InvalidInput where it cannot be."""
    if why := signing_keys.unavailable():
        raise InvalidInput(f"Nobody can sign here: {why}.")
    list(locks.locked(Workspace.objects.filter(pk=workspace.pk)).values_list("pk"))
    known = told_of(workspace, by)
    facts = _facts(workspace, by, authenticator)
    if facts["credential"] in known:
        raise InvalidInput("This key is on record here already.")
    if len(known) >= KEYS_MAX:
        raise InvalidInput(f"At most {KEYS_MAX} keys of one person.")
    theirs = _by_credential(by)
    signers = [theirs[one] for one in known if one in theirs]
    if known and not signers:
        raise InvalidInput("A key that is on record here has to sign for this one.")
    by_which = [credential_of(one) for one in signers or [authenticator]]
    challenge = signatures.enrolment_challenge(facts)
    signed = _taken(answer, challenge, by_which)
    if known:  # by the key that was put on record, whatever the account says that it is
        _checked(signed, known[signed["credential"]], challenge)
    note = logkeys.signer(workspace).sign(signatures.enrolment_text(facts))
    event = desk_events.record(
        workspace,
        EventType.SIGNING_KEY_ENROLLED,
        by=by,
        part="gate",
        data={name: one for name, one in facts.items() if name != "workspace"}
        | {"label": str(authenticator)[:200], "desk": note, "signature": signed},
    )
    row = {"workspace": workspace, "person": by, "credential": facts["credential"]}
    rows = SigningKey.objects.filter(**row, removed_at=None)
    rows.update(removed_at=Now())  # one that was put on record under a key of the log now lost
    SigningKey.objects.create(**row, label=str(authenticator)[:200], event=event)
    count = AuthenticatorData(websafe_decode(signed["authenticator"])).counter
    _count(by, signed["credential"], count)
    return rows.get()


@receiver(authenticator_removed)
def _when_removed(user: User, authenticator: Authenticator, **_: Any) -> None:
    """A key that its person takes away signs nothing more, and what it signed is not used."""
    if authenticator.type != Authenticator.Type.WEBAUTHN:
        return
    credential = websafe_encode(credential_of(authenticator).credential_id)
    rows = SigningKey.objects.filter(person=user, credential=credential, removed_at=None)
    with transaction.atomic():
        for row in rows.select_related("workspace"):
            desk_events.record(
                row.workspace, EventType.SIGNING_KEY_REMOVED, by=user, part="gate",
                data={"person": str(user.pk), "credential": credential, "enrolment": row.event},
            )  # fmt: skip
        rows.update(removed_at=Now())


# Signing a decision.


def challenge_of(approval: Approval, person: User) -> bytes:
    return signatures.decision_challenge(
        workspace=approval.workspace.slug,
        approval=approval.pk,
        digest=approval.digest,
        person=str(person.pk),
    )


def options(approval: Approval, person: User) -> Facts | str:
    """What the browser is asked for a yes of this person, or why they cannot sign, in words."""
    if why := signing_keys.unavailable():
        return why
    keys = _keys_before(approval, person)
    if isinstance(keys, str):
        return keys
    return _asked(challenge_of(approval, person), keys)


def sign(approval: Approval, *, by: User, answer: Any) -> dict[str, str]:
    """The signature of a yes, which the caller keeps with it, in the transaction that writes both.
    Raises NotSigned.
    """
    if why := signing_keys.unavailable():
        raise NotSigned(why)
    keys = _keys_before(approval, by)
    if isinstance(keys, str):
        raise NotSigned(keys)
    theirs = _by_credential(by)
    given = [credential_of(theirs[one]) for one in keys if one in theirs]
    signed = _taken(answer, challenge_of(approval, by), given)
    said = _checked(signed, keys[signed["credential"]], challenge_of(approval, by))
    _count(by, said.credential, said.sign_count)
    return signed


def _checked(
    signed: Mapping[str, str], key: signatures.SigningKey, challenge: bytes
) -> signatures.Assertion:
    """What was signed, by this key as its enrolment has it. Raises NotSigned."""
    try:
        return signatures.check(signed, key, challenge)
    except NotProven as wrong:
        raise NotSigned(str(wrong)) from wrong


def _count(person: User, credential: str, count: int) -> None:
    """A counter that does not rise is of a copy of the key (WebAuthn, section 6.1.1); keys that do
    not count say 0.
    """
    rows = SigningKey.objects.filter(person=person, credential=credential)
    is_over = rows.filter(sign_count__gte=max(count, 1)).exists()  # in another workspace, too
    if not is_over and rows.filter(sign_count__lt=count).update(sign_count=count):
        return
    if count or is_over:
        raise NotSigned(
            f"the counter of the key went back to {count}: somebody may have a copy of"
            " it. Take it off your account"
        )


# Whether what people signed stands.


def lacking(approval: Approval) -> str:
    """Why the signatures under an approval do not suffice, in words; empty where they do.

    Looked at when a grant is used, not only when it is given: rows may have been written since by
    somebody who owns the database. Only what stands under the head outside is believed.
    """
    if why := signing_keys.unavailable():
        return why
    decisions = list(approval.decisions.filter(granted=True).select_related("person"))
    if not decisions:
        return "nobody has signed it"
    return next(filter(None, (_unsigned(approval, one) for one in decisions)), "")


def _unsigned(approval: Approval, decision: Decision) -> str:
    signed = decision.signature
    if not signed:
        return f"{decision.person} did not sign it"
    keys = _keys_before(approval, decision.person)
    if isinstance(keys, str):
        return f"{decision.person}: {keys}"
    key = keys.get(str(signed.get("credential")))
    if key is None:
        return (
            f"the key of {decision.person} is no longer on record, or was not when this was asked"
        )
    try:
        signatures.check(signed, key, challenge_of(approval, decision.person))
    except NotProven as wrong:
        return f"the signature of {decision.person} does not fit: {wrong}"
    return ""


def _keys_before(approval: Approval, person: User) -> dict[str, signatures.SigningKey] | str:
    """The person's keys, by credential, that stood in the log before the question was asked, and
    still are theirs; or why there are none, in words.
    """
    workspace = approval.workspace
    head = _head_outside(workspace)
    asked = _question(approval)
    place = proofs.index_under(workspace, asked, head) if asked and head else None
    if head is None or place is None:
        return NOT_SEALED
    theirs = _by_credential(person)
    named = signing_keys.believed(workspace, person) if settings.AMENDS_SIGNING_KEYS else None
    found, not_named = {}, False
    for row in on_record(workspace, person):
        key = _enrolled(row, head, before=place)
        if key is not None and key.credential in theirs:
            if named is not None and row.event not in named:
                not_named = True
            else:
                found[key.credential] = key
    return found or (NOT_NAMED if not_named else NO_KEY)


def _head_outside(workspace: Workspace) -> ParsedHead | None:
    living = logkeys.living(workspace)
    return sealer.remembered(living.origin) if living else None


def _enrolled(row: SigningKey, head: ParsedHead, *, before: int) -> signatures.SigningKey | None:
    """The key as its enrolment says, if that stands where it has to; the row says nothing."""
    event = proofs.event_of(row.workspace, row.event)
    if event is None or event.type != EventType.SIGNING_KEY_ENROLLED:
        return None
    place = proofs.index_under(row.workspace, event, head)
    if place is None or place >= before or event.actor != str(row.person_id):
        return None
    return None if _is_removed(row) else signing_keys.signed_by_desk(event, row.workspace)


def _is_removed(row: SigningKey) -> bool:
    """Whether the ledger tells that its person took it away, whatever the row says."""
    told = Event.objects.filter(
        workspace=row.workspace_id, run="", action="", type=EventType.SIGNING_KEY_REMOVED,
        data__enrolment=row.event,
    )  # fmt: skip
    return told.exists()


def _question(approval: Approval) -> Event | None:
    """The event by which it was asked, of these very bytes."""
    return _event(approval, EventType.APPROVAL_REQUESTED)


def _event(approval: Approval, kind: EventType, **more: Any) -> Event | None:
    return events_of(approval, kind).filter(**more).order_by("place").first()


# What anybody can check offline.


def document(approval: Approval, decision: Decision) -> Facts | None:
    """The signed decision with all that proves it, for `python -m amends verify`; None where it is
    not signed, not sealed yet, or something of it was forgotten.
    """
    here, person = approval.workspace, decision.person
    if not decision.signature:
        return None
    credential = decision.signature.get("credential")
    row = SigningKey.objects.filter(workspace=here, person=person, credential=credential).last()
    said = _event(approval, EventType.APPROVAL_GRANTED, actor=str(person.pk))
    asked = _question(approval)
    if row is None or said is None or asked is None:
        return None
    found = proofs.download_of(here, said.event_id)
    enrolment = proofs.download_of(here, row.event)
    question = proofs.download_of(here, asked.event_id)
    if found is None or enrolment is None or question is None:
        return None
    return found | {"enrolment": enrolment, "question": question}
