"""A stranger's check that one head of the log grew out of another, from the proof alone."""

import hmac
from collections.abc import Sequence

from amends.protocol.proofs import node_hash
from ledger.merkle import EMPTY_ROOT


def is_consistent(
    old: int, new: int, proof: Sequence[bytes], old_root: bytes, new_root: bytes
) -> bool:
    """Whether the tree with `old_root` is the beginning of the other (RFC 9162, 2.1.4.2)."""
    if old in {0, new}:
        return not proof and hmac.compare_digest(old_root, new_root if old else EMPTY_ROOT)
    if not 0 < old < new:
        return False
    nodes = [old_root, *proof] if old & (old - 1) == 0 else list(proof)
    if not nodes:
        return False
    place, last = old - 1, new - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    of_old = of_new = nodes[0]
    for node in nodes[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            of_old, of_new = node_hash(node, of_old), node_hash(node, of_new)
            while place & 1 == 0 and place:
                place, last = place >> 1, last >> 1
        else:
            of_new = node_hash(of_new, node)
        place, last = place >> 1, last >> 1
    return last == 0 and hmac.compare_digest(of_old, old_root) and of_new == new_root
