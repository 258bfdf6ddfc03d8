"""The tree against RFC 6962: its definitions, its published vectors, every size up to 300."""

import functools
import hashlib

import pytest

from ledger import merkle

SIZE_MAX = 300
# From the reference implementation (certificate-transparency, merkletree tests).
LEAVES = [bytes.fromhex(text) for text in (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657",
    "606162636465666768696a6b6c6d6e6f")]  # fmt: skip

ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


@functools.cache
def root(leaves):
    """Straight from the definition."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    k = merkle.split(len(leaves))
    return hashlib.sha256(b"\x01" + root(leaves[:k]) + root(leaves[k:])).digest()


def path(m, leaves):
    if len(leaves) == 1:
        return []
    k = merkle.split(len(leaves))
    if m < k:
        return [*path(m, leaves[:k]), root(leaves[k:])]
    return [*path(m - k, leaves[k:]), root(leaves[:k])]


def subproof(m, leaves, whole):
    if m == len(leaves):
        return [] if whole else [root(leaves)]
    k = merkle.split(len(leaves))
    if m <= k:
        return [*subproof(m, leaves[:k], whole), root(leaves[k:])]
    return [*subproof(m - k, leaves[k:], whole=False), root(leaves[:k])]


def grown(leaves):
    growth = merkle.Growth(0, [])
    stored = {}
    for n, leaf in enumerate(leaves):
        stored[0, n] = merkle.leaf_hash(leaf)
        growth.add(stored[0, n])
    stored |= {(level, index): found for level, index, found in growth.fresh}
    return growth, stored


def hashes(ranges, stored):
    assert merkle.stored_for(ranges) <= stored.keys()
    return [merkle.root_of(since, until, stored) for since, until in ranges]


def entries(size):
    return tuple(b"entry %d" % n for n in range(size))


@pytest.mark.parametrize("size", range(9))
def test_the_published_roots(size):
    assert grown(LEAVES[:size])[0].root.hex() == ROOTS[size]


def test_every_root_up_to_300_and_growth_from_every_size():
    leaves = entries(SIZE_MAX)
    _, stored = grown(leaves)
    for size in range(SIZE_MAX + 1):
        wanted = root(leaves[:size])
        assert merkle.root_of(0, size, stored) == wanted
        frontier = [merkle.hashed(node, stored) for node in merkle.peaks(0, size)]
        on = merkle.Growth(size, frontier)
        for leaf in leaves[size : size + 7]:
            on.add(merkle.leaf_hash(leaf))
        assert on.root == root(leaves[: size + 7])
        assert all(stored.get((lv, ix), got) == got for lv, ix, got in on.fresh)


def test_every_inclusion_proof_at_many_sizes():
    leaves = entries(SIZE_MAX)
    _, stored = grown(leaves)
    for size in [*range(1, 40), 64, 65, 127, 128, 129, 255, 256, 257, SIZE_MAX]:
        head = merkle.root_of(0, size, stored)
        for index in range(size):
            proof = hashes(merkle.inclusion(index, size), stored)
            assert proof == path(index, leaves[:size])
            assert merkle.is_included(stored[0, index], index, size, proof, head)
            assert not merkle.is_included(stored[0, index], index + 1, size, proof, head)
            if proof:
                assert not merkle.is_included(stored[0, index], index, size, proof[:-1], head)


def test_every_consistency_proof_at_many_sizes():
    leaves = entries(SIZE_MAX)
    _, stored = grown(leaves)
    roots = [merkle.root_of(0, size, stored) for size in range(SIZE_MAX + 1)]
    for new in [*range(1, 40), 64, 65, 127, 128, 129, 255, 256, 257, SIZE_MAX]:
        for old in range(1, new + 1):
            proof = hashes(merkle.consistency(old, new), stored)
            assert proof == subproof(old, leaves[:new], whole=True)
            assert merkle.is_consistent(old, new, proof, roots[old], roots[new])
            assert old == new or not merkle.is_consistent(
                old, new, proof, roots[old - 1], roots[new]
            )


@pytest.mark.parametrize("bit", [0, 7, 255])
def test_one_changed_bit_anywhere_spoils_a_proof(bit):
    leaves = entries(77)
    _, stored = grown(leaves)
    head = merkle.root_of(0, 77, stored)
    old = merkle.root_of(0, 50, stored)
    for index in (0, 33, 76):
        proof = hashes(merkle.inclusion(index, 77), stored)
        for place in range(len(proof)):
            bad = [flip(h, bit) if n == place else h for n, h in enumerate(proof)]
            assert not merkle.is_included(stored[0, index], index, 77, bad, head)
        assert not merkle.is_included(flip(stored[0, index], bit), index, 77, proof, head)
    proof = hashes(merkle.consistency(50, 77), stored)
    for place in range(len(proof)):
        bad = [flip(h, bit) if n == place else h for n, h in enumerate(proof)]
        assert not merkle.is_consistent(50, 77, bad, old, head)


def flip(value, bit):
    changed = int.from_bytes(value) ^ (1 << bit)
    return changed.to_bytes(len(value))
