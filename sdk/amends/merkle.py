"""Merkle tree hashing of RFC 6962, section 2.1, and the check of an inclusion proof.

The check follows RFC 9162, section 2.1.3.2, which works without building the tree.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

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
