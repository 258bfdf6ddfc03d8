"""A Merkle log written straight from the definitions of RFC 6962, slow and obvious: the oracle."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from amends.protocol.proofs import LogKey


def root(leaves: Sequence[bytes]) -> bytes:
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\x01" + root(leaves[:split]) + root(leaves[split:])).digest()


def path(index: int, leaves: Sequence[bytes]) -> list[bytes]:
    if len(leaves) == 1:
        return []
    split = 1 << (len(leaves) - 1).bit_length() - 1
    if index < split:
        return [*path(index, leaves[:split]), root(leaves[split:])]
    return [*path(index - split, leaves[split:]), root(leaves[:split])]


class Log:
    """A signed log that hands out proofs."""

    def __init__(self, origin: str, leaves: Sequence[bytes]) -> None:
        self.origin, self.leaves = origin, leaves
        self.private = Ed25519PrivateKey.generate()
        self.key = LogKey.of(origin, self.private.public_key().public_bytes_raw())

    def head(self, more: str = "") -> str:
        text = f"{self.origin}\n{len(self.leaves)}\n{_text(root(self.leaves))}\n{more}"
        signature = self.key.key_id + self.private.sign(text.encode())
        return f"{text}\n— {self.origin} {_text(signature)}\n"

    def proof(self, index: int, more: str = "") -> str:
        """`more` are lines of its head beyond those that it needs."""
        lines = [_text(node) for node in path(index, self.leaves)]
        head = ["c2sp.org/tlog-proof@v1", f"extra {_text(self.leaves[index])}", f"index {index}"]
        return "\n".join([*head, *lines]) + "\n\n" + self.head(more)


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
