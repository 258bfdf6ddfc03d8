"""The Merkle tree of RFC 6962, section 2.1, over stored nodes, and how its head is written.

Arithmetic, hashing and signing alone. A node (level, index) is the root of the 2**level leaves from
index * 2**level on; a full node never changes. Any aligned run of leaves is covered by a few full
nodes, its peaks; proofs are lists of such runs, so one query for the peaks of all of them answers a
proof. Which levels are stored is the caller's business (`parts_of`).

A head is a signed note (https://c2sp.org/signed-note) that holds a checkpoint
(https://c2sp.org/tlog-checkpoint), with Ed25519.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from amends.protocol.proofs import LogKey, node_hash

Node = tuple[int, int]
Range = tuple[int, int]

EMPTY_ROOT = hashlib.sha256(b"").digest()
# Inner nodes are stored at every fourth level: a fifteenth of the rows, and a missing one is hashed
# from at most eight stored ones.
STORED_EVERY = 4


def split(size: int) -> int:
    """The largest power of two smaller than `size` (which is at least 2)."""
    return 1 << ((size - 1).bit_length() - 1)


def peaks(since: int, until: int) -> list[Node]:
    """The full nodes that cover leaves [since, until), left to right.

    `since` must be a multiple of the largest power of two that fits, as it is in every range here.
    """
    found = []
    while since < until:
        level = (until - since).bit_length() - 1
        found.append((level, since >> level))
        since += 1 << level
    return found


def bag(hashes: Sequence[bytes]) -> bytes:
    """The root over peaks, given left to right."""
    if not hashes:
        return EMPTY_ROOT
    root = hashes[-1]
    for left in reversed(hashes[:-1]):
        root = node_hash(left, root)
    return root


def inclusion(index: int, size: int) -> list[Range]:
    """The runs whose roots prove leaf `index` in a tree of `size`, from its sibling up."""
    if not 0 <= index < size:
        raise ValueError(f"leaf {index} is not in a tree of {size}")
    found: list[Range] = []
    since, until = 0, size
    while until - since > 1:
        middle = since + split(until - since)
        if index < middle:
            found.append((middle, until))
            until = middle
        else:
            found.append((since, middle))
            since = middle
    return found[::-1]


def consistency(old: int, new: int) -> list[Range]:
    """The runs whose roots prove that the tree of `old` is the beginning of the `new` one."""
    if not 0 < old <= new:
        raise ValueError(f"a tree of {old} cannot have grown to {new}")
    found: list[Range] = []
    since, until, whole = 0, new, True
    while old != until:
        middle = since + split(until - since)
        if old <= middle:
            found.append((middle, until))
            until = middle
        else:
            found.append((since, middle))
            since, whole = middle, False
    if not whole:
        found.append((since, until))
    return found[::-1]


def parts_of(node: Node) -> list[Node]:
    """The stored nodes below a full node from which it can be hashed; itself if it is stored."""
    level, index = node
    spare = level % STORED_EVERY
    return [(level - spare, (index << spare) + offset) for offset in range(1 << spare)]


def hashed(node: Node, stored: Mapping[Node, bytes]) -> bytes:
    """The hash of a full node out of the stored ones; KeyError if one of them is missing."""
    return root_of_row([stored[part] for part in parts_of(node)])


def root_of_row(row: list[bytes]) -> bytes:
    """The hash over a power of two of full nodes, side by side on one level."""
    while len(row) > 1:
        row = [node_hash(row[n], row[n + 1]) for n in range(0, len(row), 2)]
    return row[0]


def stored_for(ranges: Iterable[Range]) -> set[Node]:
    """The stored nodes that the roots of these runs need."""
    return {
        part for since, until in ranges for node in peaks(since, until) for part in parts_of(node)
    }


def root_of(since: int, until: int, stored: Mapping[Node, bytes]) -> bytes:
    return bag([hashed(node, stored) for node in peaks(since, until)])


class Growth:
    """Appending: the peaks of a tree, to which leaves are added; `fresh` are nodes to be stored."""

    def __init__(self, size: int, frontier: Sequence[bytes]) -> None:
        """`frontier` holds the hashes of `peaks(0, size)`."""
        self.size = size
        self.fresh: list[tuple[int, int, bytes]] = []
        levels = [level for level, _ in peaks(0, size)]
        self._peaks = list(zip(levels, frontier, strict=True))

    def add(self, leaf: bytes) -> None:
        """Add the hash of a leaf."""
        level, found = 0, leaf
        while self._peaks and self._peaks[-1][0] == level:
            found = node_hash(self._peaks.pop()[1], found)
            level += 1
            if level % STORED_EVERY == 0:
                self.fresh.append((level, self.size >> level, found))
        self._peaks.append((level, found))
        self.size += 1

    @property
    def root(self) -> bytes:
        return bag([found for _, found in self._peaks])


def base64_text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


@dataclass(frozen=True)
class Signer:
    """The living key of a log."""

    origin: str
    private: Ed25519PrivateKey

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
class ParsedHead:
    """The signed text of a note, read back. Only for notes that we wrote ourselves."""

    origin: str
    size: int
    root: bytes

    @classmethod
    def of(cls, note: str) -> "ParsedHead":
        origin, size, root = note.split("\n")[:3]
        return cls(origin, int(size), base64.b64decode(root))
