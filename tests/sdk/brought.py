"""Files that somebody brings to be checked, true and forged: each verifier says the same of each.

There are three: the client in Python, the one in TypeScript, and the page that people save.
"""

import base64
import hashlib
import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from amends.protocol import proofs, signatures
from amends.protocol.canonical import canonical
from tests.sdk import trees

ORIGIN, WORKSPACE = "desk.example/northwind", "northwind"
SALT = bytes(range(32))
DESK, RP_ID = "https://desk.example", "desk.example"
FACTS = {
    "version": 2,
    "items": [
        {"id": "act_1.0", "what": "The priority of T-182 was changed.", "word": "Put back",
         "did": "It is normal again."},
        {"id": "act_2.0", "what": "A mail was sent.", "did": "Nobody can take it back.",
         "word": "Could not be undone"},
    ],
    "unchanged": [{"id": "unchanged.booking.B-7", "what": "B-7 was seen.", "word": "Unchanged"}],
    "request": "Please move \u202emy flight, n\u0336ot now",
}  # fmt: skip
WORDS = {
    "title": "Your ticket T-182 was changed",
    "lead": "One thing is as before,\n\none is not.",
    "wording": {"act_2.0": "We wrote to you about it."},
}
WIDE = 1152921504606846977
"""An integer that no double holds: who rounds it finds another digest."""


class Brought(NamedTuple):
    """A file with the lines of the key beside it; `reason` is one of proofs.ts, empty if proven."""

    name: str
    text: str
    key: str
    reason: str = ""


def leaf_of(event: dict[str, Any], **more: Any) -> bytes:
    return canonical({
        "v": 2, "workspace": WORKSPACE, "event": event["id"], "type": event["type"], "key": "",
        "received": "2026-11-21T10:02:15.120034Z", "actor": "person:4", "trusted": False,
        "digest": proofs.event_digest(SALT, event), **more,
    })  # fmt: skip


def record(kind: str = "correction.published") -> tuple[dict[str, Any], trees.Log]:
    """The record of a correction, as the desk hands it out, and its log."""
    event = {
        "id": "0192f7",
        "type": kind,
        "data": {
            "correction": "C-2K7F",
            "number": WIDE,
            "facts_digest": proofs.event_digest(SALT, FACTS),
            "words_digest": proofs.event_digest(SALT, WORDS),
        },
    }
    log = trees.Log(ORIGIN, [b"one", b"two", leaf_of(event), b"four", b"five"])
    download = {"event": event, "salt": SALT.hex(), "proof": log.proof(2)}
    return download | {"facts": FACTS, "words": WORDS, "facts_salt": SALT.hex()}, log


def of_a_record() -> Iterator[Brought]:
    document, log = record()
    key, proof = f"{log.key}\n", document["proof"]

    def changed(**more: Any) -> str:
        return json.dumps(document | more, ensure_ascii=False)

    event, nobody = deepcopy(document["event"]), trees.Log(ORIGIN, log.leaves)
    event["data"]["number"] = WIDE - 1
    newer = trees.Log(ORIGIN, [leaf_of(document["event"], v=3)])
    yield Brought("a record", changed(), key)
    yield Brought("a record with more beside it", changed(correction="C-2K7F", note="mine"), key)
    yield Brought("a proof", proof, key)
    yield Brought("a key among others", changed(), f"{nobody.key}\n\n{key}")
    yield Brought("an event with one digit changed", changed(event=event), key, "event")
    yield Brought("other facts", changed(facts=FACTS | {"items": []}), key, "facts")
    yield Brought("other words", changed(words=WORDS | {"title": "Nothing"}), key, "words")
    yield Brought("facts without salt", changed(facts_salt=None), key, "facts")
    yield Brought("the key of somebody else", changed(), f"{nobody.key}\n", "signer")
    yield Brought("no key", changed(), "hello\n", "key")
    yield Brought("a signature that was changed", changed(proof=resigned(proof)), key, "signature")
    yield Brought("a head that was changed", proof.replace("\n5\n", "\n6\n"), key, "signature")
    yield Brought("another place", proof.replace("index 2", "index 3"), key, "place")
    yield Brought("an entry that none of ours wrote", log.proof(0), key, "entry")
    yield Brought("an entry of later", newer.proof(0), f"{newer.key}\n", "entry")
    yield Brought("a name twice", changed().replace("{", '{"salt": "00", ', 1), key, "twice")
    deep = changed().replace('"correction":', '"correction": "C-0000", "correction":', 1)
    yield Brought("a name twice, further in", deep, key, "twice")
    yield Brought("not sealed", json.dumps({"facts": FACTS, "proof": None}), key, "unsealed")
    yield Brought("an empty object", "{}", key, "form")
    yield Brought("no end", changed()[:-9], key, "form")
    yield Brought("something else", "Dear Eve,\n", key, "form")
    yield Brought("a short salt", changed(salt=SALT.hex()[:-2]), key, "form")
    yield Brought("a salt with blanks", changed(salt=SALT.hex(" ")), key, "form")
    yield Brought("no number", changed(note=float("nan")), key, "form")
    more = f'{changed()[:-1]}, "n": '
    yield Brought("more digits than any number", f"{more}{'9' * 1001}}}", key, "form")
    yield Brought("as deep as none", f"{more}{'[' * 200}{']' * 200}}}", key, "form")
    yield Brought("deep", f"{more}{'[' * 199}{']' * 199}}}", key)
    odd = changed(proof=log.proof(2, "\ufffd\n"))
    yield Brought("a head with a line more", odd, key)
    yield Brought("half a character", odd.replace("\ufffd", r"\ud800"), key, "form")
    yield from of_a_spelling(proof, str(log.key))


def of_a_spelling(proof: str, key: str) -> Iterator[Brought]:
    """One way to write each thing: what another reader would not take is taken by none."""
    head, path = proof.split("index 2\n", 1)
    other = f"{path[:42]}{chr(ord(path[42]) + 1)}{path[43:]}"  # bits that no byte has room for
    yield Brought("a hash in other letters", f"{head}index 2\n{other}", key, "form")
    yield Brought("ends of lines of another machine", proof.replace("\n", "\r\n"), key, "form")
    yield Brought("a place with a nought", proof.replace("index 2", "index 02"), key, "form")
    yield Brought("a witness", f"{proof}— witness.example AAAAAAAA\n", key)
    for blank in "\x1c\x85\u00a0":
        witness = f"{proof}— wit{blank}ness AAAAAAAA\n"
        yield Brought(f"a witness with U+{ord(blank):04X}", witness, key, "form")
    name, number, encoded = key.split("+", 2)
    yield Brought("a key with blanks around it", proof, f"\ufeff \u00a0\u2003{key} \u00a0\r\n")
    spaced = f"{name}+{number[:2]} {number[2:]}+{encoded}"
    yield Brought("a key whose number has a blank", proof, spaced, "key")
    yield Brought("a key that goes on", proof, f"{key}=", "key")
    yield Brought("a key and a line that is none", proof, f"{key}\nthe key of the desk", "key")


def resigned(proof: str) -> str:
    """With one bit of the signature turned."""
    text, _, encoded = proof.rstrip("\n").rpartition(" ")
    raw = bytearray(base64.b64decode(encoded))
    raw[-1] ^= 1
    return f"{text} {base64.b64encode(raw).decode()}\n"


# Decisions that a person signed.


class Signer:
    """A person's own key in software; `algorithm` as COSE numbers it."""

    def __init__(self, algorithm: int) -> None:
        self.algorithm = algorithm
        self.private: Any = {
            signatures.ES256: lambda: ec.generate_private_key(ec.SECP256R1()),
            signatures.EDDSA: ed25519.Ed25519PrivateKey.generate,
            signatures.RS256: lambda: rsa.generate_private_key(65537, 2048),
        }[algorithm]()

    @property
    def public(self) -> str:
        public = self.private.public_key()
        return _text(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))

    def sign(self, signed: bytes) -> bytes:
        how = {
            signatures.ES256: (ec.ECDSA(SHA256()),),
            signatures.EDDSA: (),
            signatures.RS256: (padding.PKCS1v15(), SHA256()),
        }[self.algorithm]
        return bytes(self.private.sign(signed, *how))


def decision(
    signer: Signer, *, flags: int = 5, page: str = DESK, approval: int = 17, coding: str = "utf-8"
) -> tuple[dict[str, Any], trees.Log]:
    """A signed yes to question 17 with all that proves it, and its log."""
    log = trees.Log(ORIGIN, [])
    enrolled = {
        "person": "4", "credential": "blue", "public_key": signer.public,
        "alg": signer.algorithm, "rp_id": RP_ID,
    }  # fmt: skip
    text = signatures.enrolment_text(enrolled | {"workspace": WORKSPACE})
    signed = log.key.key_id + log.private.sign(text.encode())
    enrolled["desk"] = f"{text}\n— {ORIGIN} {_text(signed)}\n"
    asked = {"approval": 17, "digest": "sha256:" + "0" * 64}
    challenge = signatures.decision_challenge(
        workspace=WORKSPACE, approval=approval, digest=str(asked["digest"]), person="4"
    )
    client = {"type": "webauthn.get", "challenge": _url(challenge), "origin": page}
    raw = json.dumps(client).encode(coding)
    authenticator = hashlib.sha256(RP_ID.encode()).digest() + bytes([flags, 0, 0, 0, 1])
    said = asked | {
        "signature": {
            "credential": "blue",
            "authenticator": _url(authenticator),
            "client": _url(raw),
            "signature": _url(signer.sign(authenticator + hashlib.sha256(raw).digest())),
        }
    }
    events = [
        {"id": "1", "type": "signing_key.enrolled", "data": enrolled},
        {"id": "2", "type": "approval.requested", "data": asked},
        {"id": "3", "type": "approval.granted", "data": said},
    ]
    log.leaves = [leaf_of(event) for event in events]
    enrolment, question, answer = (
        {"event": event, "salt": SALT.hex(), "proof": log.proof(place)}
        for place, event in enumerate(events)
    )
    return answer | {"enrolment": enrolment, "question": question}, log


def of_a_decision() -> Iterator[Brought]:
    for algorithm in signatures.ALGORITHMS:
        document, log = decision(Signer(algorithm))
        yield Brought(f"a decision signed by {algorithm}", json.dumps(document), f"{log.key}\n")
        other = Signer(algorithm)
        forged, log = decision(_Forger(other, public=Signer(algorithm).public))
        yield Brought(
            f"a decision signed by another {algorithm}",
            json.dumps(forged),
            f"{log.key}\n",
            "person",
        )
    larger = Signer(signatures.ES256)
    larger.private = ec.generate_private_key(ec.SECP384R1())
    document, log = decision(larger)
    name = "a decision signed on a curve that ES256 does not have"
    yield Brought(name, json.dumps(document), f"{log.key}\n", "person")
    blue = Signer(signatures.ES256)
    for name, how in (
        ("without its person", {"flags": 1}),
        ("on the page of another host", {"page": "https://desk.example.evil"}),
        ("on a page that two readers read as two", {"page": r"https://evil.com\.desk.example"}),
        ("on a page that is no origin", {"page": f"{DESK}/path"}),
        ("in letters of two bytes", {"coding": "utf-16"}),
        ("for another question", {"approval": 18}),
    ):
        document, log = decision(blue, **how)
        yield Brought(f"a decision signed {name}", json.dumps(document), f"{log.key}\n", "person")
    document, log = decision(_Padded(signatures.ES256))
    name = "a decision whose signature is spelled at length"
    yield Brought(name, json.dumps(document), f"{log.key}\n", "person")
    document, log = decision(blue)
    key = f"{log.key}\n"
    alone = {name: value for name, value in document.items() if name != "enrolment"}
    yield Brought("a decision without its enrolment", json.dumps(alone), key, "person")
    swapped = document | {"enrolment": document["question"], "question": document["enrolment"]}
    yield Brought("a decision with parts exchanged", json.dumps(swapped), key, "person")
    beyond = json.dumps(document | {"question": document["question"] | {"n": 0}})
    beyond = beyond.replace('"n": 0', '"n": 1e400')
    yield Brought("a decision with a number beyond all", beyond, key, "form")
    question = deepcopy(document["question"])
    question["event"]["data"]["approval"] = 18
    yield Brought(
        "a decision on a question that was changed",
        json.dumps(document | {"question": question}), key, "event",
    )  # fmt: skip


class _Forger(Signer):
    """Signs with one key, and puts another on record."""

    def __init__(self, signer: Signer, *, public: str) -> None:
        self.algorithm, self.private, self._public = signer.algorithm, signer.private, public

    @property
    def public(self) -> str:
        return self._public


class _Padded(Signer):
    """Its numbers have a nought before them that DER leaves out (X.690, 8.3.2)."""

    def sign(self, signed: bytes) -> bytes:
        two = (number.to_bytes(34, "big") for number in decode_dss_signature(super().sign(signed)))
        body = b"".join(b"\x02\x22" + number for number in two)
        return bytes([0x30, len(body)]) + body


def everything() -> list[Brought]:
    return [*of_a_record(), *of_a_decision()]


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
