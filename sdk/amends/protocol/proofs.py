"""Proofs: what the ledger hands out can be checked by anybody, offline, with only its public key.

Read are C2SP `tlog-proof@v1` files around C2SP checkpoints (signed notes, Ed25519), and the
downloads of Amends that carry one. docs/proofs.md says which bytes are hashed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amends.protocol.canonical import INTEGER_DIGITS_MAX, canonical, salted_digest

# Merkle tree hashing of RFC 6962, section 2.1, and the check of an inclusion proof.
#
# The check follows RFC 9162, section 2.1.3.2, which works without building the tree.

# The depth of a tree of 2**63 leaves: no honest proof is longer.
PROOF_LENGTH_MAX = 63


def leaf_hash(leaf: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def root_from_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes]) -> bytes:
    """The root that this proof leads to. ValueError if it has the wrong length for index and size.

    `leaf` is the entry itself, `index` counts from zero, `proof` goes from the leaf's sibling up.
    """
    if not 0 <= index < size or len(proof) > PROOF_LENGTH_MAX:
        raise ValueError(f"entry {index} cannot be in a tree of {size}")
    node, last, root = index, size - 1, leaf_hash(leaf)
    for sibling in proof:
        if last == 0:
            raise ValueError("the proof is longer than the tree is deep")
        if node % 2 or node == last:
            root = node_hash(sibling, root)
            while node % 2 == 0 and node:
                node, last = node >> 1, last >> 1
        else:
            root = node_hash(root, sibling)
        node, last = node >> 1, last >> 1
    if last != 0:
        raise ValueError("the proof is shorter than the tree is deep")
    return root


def is_included(leaf: bytes, *, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    try:
        return hmac.compare_digest(root_from_inclusion(leaf, index, size, proof), root)
    except ValueError:
        return False


HEADER = "c2sp.org/tlog-proof@v1"
ED25519 = b"\x01"
FILE_BYTES_MAX = 16 * 1024 * 1024
SIGNATURES_MAX = 32
# Members of a download that stand beside its event, which holds their digests.
SALTED = ("facts", "words")
FIRST, SECOND = 1, 2  # versions of a leaf
HASH_BYTES = KEY_BYTES = SALT_BYTES = 32
HEAD_LINES_MIN = 3  # origin, size, root
DIGITS_MAX = 19  # of a size or an index: 2**63
DEPTH_MAX = 200  # of lists and objects, one in the other; no ledger takes half as much
# What may stand around a key that was copied from somewhere: what JavaScript trims, too.
BLANKS = "\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
WITHOUT_CRYPTOGRAPHY = "signatures need one more package: pip install cryptography"


class NotProven(Exception):
    """We stopped because the file does not prove what it says; do not rely on it."""


class NeedsVerifyExtra(Exception):
    """We stopped because signatures need the package `cryptography`, which is to be installed."""


@dataclass(frozen=True)
class LogKey:
    """A log's public key, written `<name>+<key id in hex>+<base64 of 0x01 and 32 bytes>`."""

    name: str
    key_id: bytes
    public: bytes

    @classmethod
    def parse(cls, text: str) -> LogKey:
        plain = text.strip(BLANKS)
        try:
            name, key_id, encoded = plain.split("+", 2)
            raw = base64.b64decode(encoded, validate=True)
            key = cls(name, bytes.fromhex(key_id), raw[1:])
        except ValueError as error:
            raise NotProven("this is not a public key of a log") from error
        if (
            str(key) != plain
            or not _is_name(name)
            or raw[:1] != ED25519
            or len(key.public) != KEY_BYTES
            or key.key_id != cls.id_of(name, raw[1:])
        ):
            raise NotProven("the public key is not Ed25519 or its id does not fit")
        return key

    @classmethod
    def of(cls, name: str, public: bytes) -> LogKey:
        return cls(name, cls.id_of(name, public), public)

    @staticmethod
    def id_of(name: str, public: bytes) -> bytes:
        """The first four bytes of SHA-256 over name, newline, 0x01 and key (C2SP signed-note)."""
        return hashlib.sha256(name.encode() + b"\n" + ED25519 + public).digest()[:4]

    def __str__(self) -> str:
        encoded = base64.b64encode(ED25519 + self.public).decode()
        return f"{self.name}+{self.key_id.hex()}+{encoded}"


@dataclass(frozen=True)
class Checkpoint:
    """A signed head of a log: how many entries it has and the root over all of them."""

    origin: str
    size: int
    root: bytes
    text: bytes
    signatures: tuple[tuple[str, bytes], ...]

    @classmethod
    def parse(cls, note: str) -> Checkpoint:
        text, blank, tail = note.rpartition("\n\n")
        lines = text.split("\n")
        if not blank or not tail.endswith("\n") or len(lines) < HEAD_LINES_MIN or "" in lines:
            raise NotProven("the checkpoint is not a signed note of at least three lines")
        signatures = tuple(_signature(line) for line in tail[:-1].split("\n"))
        if len(signatures) > SIGNATURES_MAX:
            raise NotProven("the checkpoint has too many signatures")
        root = _base64(lines[2])
        if len(root) != HASH_BYTES:
            raise NotProven("the root of the checkpoint is not 32 bytes long")
        return cls(lines[0], _number(lines[1]), root, (text + "\n").encode(), signatures)

    def check(self, keys: list[LogKey]) -> LogKey:
        """The known key that signed this head. A bad signature of a known key spoils the note."""
        signers = []
        for name, signature in self.signatures:
            for key in keys:
                if (name, signature[:4]) == (key.name, key.key_id):
                    _check_signature(key.public, signature[4:], self.text)
                    signers.append(key)
        for key in signers:
            if key.name == self.origin:
                return key
        raise NotProven("no known key of this log has signed the checkpoint")


@dataclass(frozen=True)
class Proof:
    """One entry's place under one head.

    `extra` is the entry itself, and is trusted only because its hash leads to the signed root.
    """

    index: int
    path: tuple[bytes, ...]
    checkpoint: Checkpoint
    extra: bytes

    @classmethod
    def parse(cls, text: str) -> Proof:
        head, blank, note = text.partition("\n\n")
        lines = head.split("\n")
        if not blank or lines.pop(0) != HEADER:
            raise NotProven(f"the file does not start with {HEADER}")
        has_extra = bool(lines) and lines[0].startswith("extra ")
        extra = _base64(lines.pop(0).removeprefix("extra ")) if has_extra else b""
        if not lines or not lines[0].startswith("index "):
            raise NotProven("the line with the index is missing")
        index = _number(lines.pop(0).removeprefix("index "))
        path = tuple(_base64(line) for line in lines)
        if any(len(node) != HASH_BYTES for node in path):
            raise NotProven("a hash of the proof is not 32 bytes long")
        return cls(index, path, Checkpoint.parse(note), extra)

    def check(self, leaf: bytes, keys: list[LogKey]) -> LogKey:
        """Raise NotProven unless the leaf stands at the index under a head that a key signed."""
        signer, head = self.checkpoint.check(keys), self.checkpoint
        if not is_included(leaf, index=self.index, size=head.size, proof=self.path, root=head.root):
            raise NotProven("the entry is not in the log where the proof says")
        return signer


@dataclass(frozen=True)
class Verified:
    """What a file was found to prove."""

    leaf: dict[str, Any]
    index: int
    size: int
    origin: str
    event: dict[str, Any] | None


def check_note(note: str, keys: list[LogKey]) -> LogKey:
    """The known key that signed this note, which is no checkpoint. Raises NotProven."""
    text, _, tail = note.rpartition("\n\n")
    for line in tail.rstrip("\n").split("\n")[:SIGNATURES_MAX]:
        name, signature = _signature(line)
        for key in keys:
            if (name, signature[:4]) == (key.name, key.key_id):
                _check_signature(key.public, signature[4:], f"{text}\n".encode())
                return key
    raise NotProven("no known key of this log has signed it")


def event_digest(salt: bytes, event: Any) -> str:
    """`sha256:<hex>` over the salt and the canonical JSON of what it covers, in its masked form.

    Raises NotProven for what no ledger can hold (NaN, or nested too deeply to be written).
    """
    try:
        return "sha256:" + salted_digest(salt, canonical(event)).hex()
    except (ValueError, RecursionError) as error:
        raise NotProven("the download holds what no ledger can hold") from error


def verify(text: str, keys: list[LogKey]) -> Verified:
    """Check a file and say what it proves, or raise NotProven.

    It is a tlog-proof, or a download: JSON with `event`, `salt` (hex) and `proof`.
    """
    if not text.lstrip().startswith("{"):
        return _verified(Proof.parse(text), keys, event=None)
    try:
        document = read(text)
        event, salt = document["event"], _salt(document["salt"])
        proof = str.encode(document["proof"]).decode()  # a text, and one that can be written
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NotProven("the download has no event, salt and proof") from error
    verified = _verified(Proof.parse(proof), keys, event=event)
    _same(event_digest(salt, event), verified.leaf.get("digest"), "the event is not the one")
    for name in SALTED:
        if name in document:
            _check_salted(name, document, event)
    return verified


def read(text: str) -> Any:
    """JSON, with a limit to all of which another reader might have another. Raises ValueError."""
    value = json.loads(text, object_pairs_hook=_once, parse_int=_integer, parse_constant=_none)
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return value
    raise ValueError("nested too deeply")


def _inside(value: Any) -> list[Any]:
    found = value.values() if isinstance(value, dict) else value
    return [one for one in found if isinstance(one, dict | list)]


def _integer(digits: str) -> int:
    if len(digits.removeprefix("-")) > INTEGER_DIGITS_MAX:
        raise ValueError("an integer of too many digits")
    return int(digits)


def _none(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _salt(text: str, what: str = "the salt") -> bytes:
    if not re.fullmatch(r"[0-9a-fA-F]*", text) or len(text) != 2 * SALT_BYTES:
        raise NotProven(f"{what} is not {SALT_BYTES} bytes long")
    return bytes.fromhex(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """What stands twice is read one way and checked another."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise NotProven(f"“{name[:80]}” stands twice in the download")
        found[name] = value
    return found


def _check_salted(name: str, document: dict[str, Any], event: Any) -> None:
    """What stands beside the event is believed because its digest is in the event's data."""
    try:
        salt = _salt(document["facts_salt"], f"the salt of the {name}")
        said = event["data"][f"{name}_digest"]
    except (ValueError, KeyError, TypeError) as error:
        raise NotProven(
            f"the event has no digest of the {name}, or their salt is missing"
        ) from error
    _same(event_digest(salt, document[name]), said, f"the {name} are not the ones")


def _same(found: str, wanted: Any, what: str) -> None:
    if not hmac.compare_digest(found.encode(), str(wanted).encode()):
        raise NotProven(f"{what} whose digest is in the log")


def _verified(proof: Proof, keys: list[LogKey], event: dict[str, Any] | None) -> Verified:
    proof.check(proof.extra, keys)
    try:
        leaf = read(proof.extra.decode())
        is_ours = isinstance(leaf, dict) and _is_known(leaf) and canonical(leaf) == proof.extra
    except (NotProven, ValueError, RecursionError) as error:
        raise NotProven("the entry of the log is not one of Amends") from error
    if not is_ours:
        raise NotProven("the entry of the log is not one of Amends, version 1 or 2")
    head = proof.checkpoint
    return Verified(leaf, proof.index, head.size, head.origin, event)


def _is_known(leaf: dict[str, Any]) -> bool:
    """Of a version that we know, with all that it says.

    The second says with which key its event came, and whether that key was trusted.
    """
    version, key, trusted = (leaf.get(name) for name in ("v", "key", "trusted"))
    return (version == FIRST and version is not True) or (
        version == SECOND and isinstance(key, str) and isinstance(trusted, bool)
    )


def _check_signature(public: bytes, signature: bytes, text: bytes) -> None:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise NeedsVerifyExtra(WITHOUT_CRYPTOGRAPHY) from error
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except InvalidSignature as error:
        raise NotProven("the signature under the checkpoint is not of that key") from error


def _signature(line: str) -> tuple[str, bytes]:
    dash, _, rest = line.partition(" ")
    name, _, encoded = rest.partition(" ")
    if dash != "—" or not _is_name(name) or not encoded:
        raise NotProven("a signature line of the checkpoint is malformed")
    return name, _base64(encoded)


def _is_name(text: str) -> bool:
    """Whether C2SP takes it for the name of a key."""
    return re.fullmatch(r"[^\s\ufeff\ud800-\udfff]+", text) is not None


def _base64(text: str) -> bytes:
    """The bytes of base64 that is written in the one way that encoders write it."""
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise NotProven("a line is not base64") from error
    if base64.b64encode(found).decode() != text:
        raise NotProven("a line is not base64")
    return found


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > DIGITS_MAX or text != str(int(text)):
        raise NotProven("a number is malformed")
    return int(text)
