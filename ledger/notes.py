"""Signed notes and checkpoints: how a tree head is written and signed.

Formats: https://c2sp.org/signed-note and https://c2sp.org/tlog-checkpoint, with Ed25519.
"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from amends.protocol.proofs import LogKey


def base64_text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


@dataclass(frozen=True)
class Signer:
    """The living key of a log. `log_key_id` is its row."""

    origin: str
    private: Ed25519PrivateKey
    log_key_id: int

    @property
    def public(self) -> bytes:
        return self.private.public_key().public_bytes_raw()

    def sign(self, text: str) -> str:
        """The note: the text, an empty line, and one signature line."""
        signature = LogKey.id_of(self.origin, self.public) + self.private.sign(text.encode())
        return f"{text}\n— {self.origin} {base64_text(signature)}\n"


def checkpoint(origin: str, size: int, root: bytes, more: Iterable[str] = ()) -> str:
    """The text of a tree head; `more` are extension lines."""
    return "\n".join([origin, str(size), base64_text(root), *more]) + "\n"


@dataclass(frozen=True)
class Head:
    """The signed text of a note, read back. Only for notes that we wrote ourselves."""

    origin: str
    size: int
    root: bytes

    @classmethod
    def of(cls, note: str) -> "Head":
        origin, size, root = note.split("\n")[:3]
        return cls(origin, int(size), base64.b64decode(root))
