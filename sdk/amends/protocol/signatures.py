"""Decisions that a person signed: WebAuthn assertions over what they decided, checked offline.

A yes that is only a row is worth what the database is worth. One that is signed is believed because
a key said it whose enrolment stood in the log before the question was asked. docs/proofs.md says
which bytes are signed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amends.protocol import proofs
from amends.protocol.canonical import canonical
from amends.protocol.proofs import (
    WITHOUT_CRYPTOGRAPHY,
    LogKey,
    NeedsVerifyExtra,
    NotProven,
    Verified,
)
from amends.protocol.vocabulary import EventType

DECISION_FORM = "amends decision 1"
ENROLMENT_FORM = "amends signing key 1"
YES = "granted"

# WebAuthn Level 2: section 6.1 (authenticator data), 5.8.1 (client data).
RP_ID_BYTES, COUNT_END = 32, 37
USER_PRESENT, USER_VERIFIED = 0x01, 0x04
CEREMONY = "webauthn.get"
FIELD_CHARACTERS_MAX = 8_192
ORIGIN = re.compile(r"(https?)://([a-z0-9._-]+)(?::[0-9]{1,5})?")
"""As browsers write it (RFC 6454, section 6.2), of a host with a name."""

# COSE algorithms (RFC 9053 and RFC 8812) that are taken.
ES256, EDDSA, RS256 = -7, -8, -257
ALGORITHMS = (ES256, EDDSA, RS256)

SIGNED_FIELDS = ("credential", "authenticator", "client", "signature")


@dataclass(frozen=True)
class Assertion:
    """What a key said: `sign_count` is its own counter, 0 of keys that have none."""

    credential: str
    sign_count: int
    origin: str


@dataclass(frozen=True)
class SigningKey:
    """A key by which a person signs; `public_key` is base64 of its SubjectPublicKeyInfo (DER)."""

    credential: str
    public_key: str
    algorithm: int
    rp_id: str

    @classmethod
    def of(cls, enrolment: Mapping[str, Any]) -> SigningKey:
        """From the data of its enrolment. Raises NotProven."""
        texts = [enrolment.get(name) for name in ("credential", "public_key", "rp_id")]
        algorithm = enrolment.get("alg")
        if algorithm not in ALGORITHMS or not all(isinstance(one, str) and one for one in texts):
            raise NotProven("the enrolment names no key that can be checked")
        credential, public_key, rp_id = map(str, texts)
        return cls(credential, public_key, int(algorithm), rp_id)


def decision_challenge(*, workspace: str, approval: Any, digest: str, person: str) -> bytes:
    """What the person's key signs: 32 bytes that stand for this yes of theirs and nothing else."""
    said = {
        "form": DECISION_FORM,
        "workspace": workspace,
        "approval": approval,
        "digest": digest,
        "decision": YES,
        "person": person,
    }
    return hashlib.sha256(canonical(said)).digest()


def enrolment_challenge(facts: Mapping[str, Any]) -> bytes:
    """What a key signs when it is put on record: all that is said of the new one."""
    named = ("workspace", "person", "credential", "public_key", "alg", "rp_id")
    said = {"form": ENROLMENT_FORM} | {name: facts[name] for name in named}
    return hashlib.sha256(canonical(said)).digest()


def enrolment_text(facts: Mapping[str, Any]) -> str:
    """What the desk signs with the key of the log; no checkpoint, whose first line is an origin."""
    return f"{ENROLMENT_FORM}\n{enrolment_challenge(facts).hex()}\n"


def check(assertion: Any, key: SigningKey, challenge: bytes) -> Assertion:
    """Raise NotProven unless `key` signed `challenge` with its person present and verified."""
    if not isinstance(assertion, Mapping):
        raise NotProven("there is no signature")
    if assertion.get("credential") != key.credential:
        raise NotProven("another key has signed")
    authenticator, client, signature = (_bytes(assertion.get(name)) for name in SIGNED_FIELDS[1:])
    origin = _check_client(client, challenge, key.rp_id)
    if len(authenticator) < COUNT_END:
        raise NotProven("the authenticator's data are too short")
    rp_id = hashlib.sha256(key.rp_id.encode()).digest()
    if not hmac.compare_digest(authenticator[:RP_ID_BYTES], rp_id):
        raise NotProven("it was signed for another host")
    if authenticator[RP_ID_BYTES] & (both := USER_PRESENT | USER_VERIFIED) != both:
        raise NotProven("the key did not verify its person")
    _check_signature(key, signature, authenticator + hashlib.sha256(client).digest())
    count = int.from_bytes(authenticator[RP_ID_BYTES + 1 : COUNT_END], "big")
    return Assertion(key.credential, count, origin)


def _check_client(raw: bytes, challenge: bytes, rp_id: str) -> str:
    """The origin of the page on which it was signed."""
    try:
        client = json.loads(raw.decode("utf-8-sig"))
        kind, origin = client["type"], str(client["origin"])
        signed = _bytes(client["challenge"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NotProven("the browser's part of the signature cannot be read") from error
    if kind != CEREMONY:
        raise NotProven("this is not a signature of a decision")
    if not hmac.compare_digest(signed, challenge):
        raise NotProven("something else was signed")
    page = ORIGIN.fullmatch(origin)
    if page is None:
        raise NotProven("the page's address cannot be read")
    scheme, host = page.groups()
    is_ours = host == rp_id or host.endswith(f".{rp_id}")
    if not is_ours or not (scheme == "https" or is_local(host)) or client.get("crossOrigin"):
        raise NotProven("it was signed on a page of another host")
    return origin


def is_local(host: str) -> bool:
    """Whether a browser trusts the host without TLS."""
    return host == "localhost" or host.endswith(".localhost")


def _check_signature(key: SigningKey, signature: bytes, signed: bytes) -> None:
    try:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_der_public_key
    except ImportError as error:
        raise NeedsVerifyExtra(WITHOUT_CRYPTOGRAPHY) from error
    try:
        public = load_der_public_key(_bytes(key.public_key))
        if (
            key.algorithm == ES256
            and isinstance(public, ec.EllipticCurvePublicKey)
            and isinstance(public.curve, ec.SECP256R1)
        ):
            public.verify(signature, signed, ec.ECDSA(SHA256()))
        elif key.algorithm == EDDSA and isinstance(public, ed25519.Ed25519PublicKey):
            public.verify(signature, signed)
        elif key.algorithm == RS256 and isinstance(public, rsa.RSAPublicKey):
            public.verify(signature, signed, padding.PKCS1v15(), SHA256())
        else:
            raise NotProven("the key is of another kind than its enrolment says")
    except (InvalidSignature, UnsupportedAlgorithm, ValueError) as error:
        raise NotProven("the signature is not of that key") from error


def check_enrolment(facts: Mapping[str, Any], note: Any, keys: list[LogKey]) -> None:
    """Raise NotProven unless the desk signed this enrolment with a key of its log."""
    text = enrolment_text(facts)
    if not isinstance(note, str) or not note.startswith(f"{text}\n"):
        raise NotProven("the desk did not sign this enrolment")
    proofs.check_note(note, keys)


def verify(text: str, keys: list[LogKey]) -> tuple[Verified, Assertion | None]:
    """As `proofs.verify`; where the download is a signed decision, its signature, too.

    Such a one holds `enrolment` and `question`, each a download of its own.
    """
    verified = proofs.verify(text, keys)
    if verified.event is None:
        return verified, None
    document = json.loads(text)
    if not {"enrolment", "question"} & document.keys():
        return verified, None
    try:
        enrolment, question = (
            proofs.verify(json.dumps(document[name]), keys) for name in ("enrolment", "question")
        )
    except KeyError as missing:
        raise NotProven(f"the download of a signed decision has no {missing}") from missing
    return verified, _check_decision(verified, enrolment, question, keys)


def _check_decision(
    decision: Verified, enrolment: Verified, question: Verified, keys: list[LogKey]
) -> Assertion:
    wanted = (
        EventType.APPROVAL_GRANTED,
        EventType.SIGNING_KEY_ENROLLED,
        EventType.APPROVAL_REQUESTED,
    )
    found = [decision, enrolment, question]
    if [one.leaf.get("type") for one in found] != list(wanted) or not all(
        one.event and one.event.get("type") == one.leaf.get("type") for one in found
    ):
        raise NotProven("these are not a decision, an enrolment and a question")
    if len({(one.origin, one.leaf.get("workspace")) for one in found}) != 1:
        raise NotProven("decision, enrolment and question are of different logs")
    if not enrolment.index < question.index < decision.index:
        raise NotProven("the key was not on record before the question was asked")
    said, asked, enrolled = (_data(one) for one in (decision, question, enrolment))
    person = str(enrolled.get("person"))
    if {decision.leaf.get("actor"), enrolment.leaf.get("actor")} != {f"person:{person}"}:
        raise NotProven("the key is not of the person who decided")
    if (said.get("approval"), said.get("digest")) != (asked.get("approval"), asked.get("digest")):
        raise NotProven("the decision answers another question")
    workspace = str(decision.leaf.get("workspace"))
    facts = enrolled | {"workspace": workspace}
    key = SigningKey.of(facts)
    check_enrolment(facts, enrolled.get("desk"), keys)
    challenge = decision_challenge(
        workspace=workspace,
        approval=said.get("approval"),
        digest=str(said.get("digest")),
        person=person,
    )
    return check(said.get("signature"), key, challenge)


def _data(of: Verified) -> dict[str, Any]:
    data = of.event.get("data") if of.event else None
    return data if isinstance(data, dict) else {}


def _bytes(text: Any) -> bytes:
    """base64, in either alphabet, with or without padding."""
    if not isinstance(text, str) or len(text) > FIELD_CHARACTERS_MAX:
        raise NotProven("a part of the signature is missing")
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise NotProven("a part of the signature is not base64") from error
