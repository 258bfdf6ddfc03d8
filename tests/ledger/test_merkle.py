"""The tree against RFC 6962: its definitions, its published vectors, every size up to 130."""

import functools
import hashlib
import random

import pytest

from amends.protocol.proofs import is_included, leaf_hash
from bench.sizing import is_consistent
from ledger import merkle

SIZE_MAX = 130
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


# Straight from the definitions of RFC 6962, section 2.1, over the entries [since, until).


@functools.cache
def mth(since, until):
    if until == since:
        return hashlib.sha256(b"").digest()
    if until == since + 1:
        return hashlib.sha256(b"\x00" + entry(since)).digest()
    k = since + largest_power_below(until - since)
    return hashlib.sha256(b"\x01" + mth(since, k) + mth(k, until)).digest()


def path(m, since, until):
    if until == since + 1:
        return []
    k = since + largest_power_below(until - since)
    if m < k:
        return [*path(m, since, k), mth(k, until)]
    return [*path(m, k, until), mth(since, k)]


def subproof(m, since, until, whole):
    if m == until:
        return [] if whole else [mth(since, until)]
    k = since + largest_power_below(until - since)
    if m <= k:
        return [*subproof(m, since, k, whole), mth(k, until)]
    return [*subproof(m, k, until, whole=False), mth(since, k)]


def largest_power_below(n):
    return max(1 << level for level in range(10) if 1 << level < n)


def grown(leaves):
    growth = merkle.Growth(0, [])
    stored = {}
    for n, leaf in enumerate(leaves):
        stored[0, n] = leaf_hash(leaf)
        growth.add(stored[0, n])
    stored |= {(level, index): found for level, index, found in growth.fresh}
    return growth, stored


def hashes(ranges, stored):
    assert merkle.stored_for(ranges) <= stored.keys()
    return [merkle.root_of(since, until, stored) for since, until in ranges]


def entry(n):
    return b"entry %d" % n


@pytest.fixture(scope="module")
def stored():
    """What is stored of a log of 130 entries; a smaller one is its beginning."""
    return grown([entry(n) for n in range(SIZE_MAX)])[1]


@pytest.mark.parametrize("size", range(9))
def test_the_published_roots(size):
    assert grown(LEAVES[:size])[0].root.hex() == ROOTS[size]


PATHS = [
    (0, 1, []),
    (0, 8, ["96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"]),
    (5, 8, ["bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"]),
    (2, 3, ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"]),
    (1, 5, ["6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"]),
]  # fmt: skip
GROWTHS = [
    (1, 1, []),
    (1, 8, ["96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"]),
    (6, 8, ["0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"]),
    (2, 5, ["5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"]),
]  # fmt: skip
"""From the same tests as the roots: index or old size, size, hashes."""


@pytest.mark.parametrize(("index", "size", "wanted"), PATHS)
def test_the_published_inclusion_proofs(index, size, wanted):
    growth, stored = grown(LEAVES[:size])
    proof = hashes(merkle.inclusion(index, size), stored)

    assert [one.hex() for one in proof] == wanted
    there = {"index": index, "size": size, "proof": proof, "root": growth.root}
    assert is_included(LEAVES[index], **there)


@pytest.mark.parametrize(("old", "new", "wanted"), GROWTHS)
def test_the_published_consistency_proofs(old, new, wanted):
    growth, stored = grown(LEAVES[:new])
    proof = hashes(merkle.consistency(old, new), stored)

    assert [one.hex() for one in proof] == wanted
    assert is_consistent(old, new, proof, bytes.fromhex(ROOTS[old]), growth.root)


def test_every_root_up_to_130_and_growth_from_every_size(stored):
    for size in range(SIZE_MAX + 1):
        wanted = mth(0, size)
        assert merkle.root_of(0, size, stored) == wanted
        frontier = [merkle.hashed(node, stored) for node in merkle.peaks(0, size)]
        on = merkle.Growth(size, frontier)
        for n in range(size, size + 7):
            on.add(leaf_hash(entry(n)))
        assert on.root == mth(0, size + 7)
        assert all(stored.get((lv, ix), got) == got for lv, ix, got in on.fresh)


def test_every_inclusion_proof_at_every_size_up_to_130(stored):
    """Each also with one bit changed, of a hash or the root, or one hash too few or too many."""
    chance = random.Random(6962)  # noqa: S311 - the same in every run
    for size in range(1, SIZE_MAX + 1):
        head = merkle.root_of(0, size, stored)
        for index in range(size):
            proof = hashes(merkle.inclusion(index, size), stored)
            assert proof == path(index, 0, size)
            there = {"index": index, "size": size, "proof": proof, "root": head}
            assert is_included(entry(index), **there)
            assert not is_included(entry(index + 1), **there)
            assert not is_included(entry(index), **there | {"index": index + 1})
            for bad in one_bit_changed([head, *proof], chance):
                assert not is_included(entry(index), **there | {"proof": bad[1:], "root": bad[0]})
            if proof:
                assert not is_included(entry(index), **there | {"proof": proof[:-1]})
                assert not is_included(entry(index), **there | {"proof": [*proof, head]})


def test_every_consistency_proof_between_any_sizes_up_to_130(stored):
    chance = random.Random(6962)  # noqa: S311 - the same in every run
    roots = [merkle.root_of(0, size, stored) for size in range(SIZE_MAX + 1)]
    for new in range(1, SIZE_MAX + 1):
        for old in range(1, new + 1):
            proof = hashes(merkle.consistency(old, new), stored)
            assert proof == subproof(old, 0, new, whole=True)
            assert is_consistent(old, new, proof, roots[old], roots[new])
            for bad in one_bit_changed([roots[old], roots[new], *proof], chance):
                assert not is_consistent(old, new, bad[2:], bad[0], bad[1])
            if old != new:
                assert not is_consistent(old, new, proof, roots[old - 1], roots[new])
                assert not is_consistent(old, new, proof[:-1], roots[old], roots[new])


def one_bit_changed(parts, chance):
    """Two of these lists of hashes, each with one bit changed, anywhere."""
    for _ in range(2):
        place, bit = chance.randrange(len(parts)), chance.randrange(256)
        yield [flip(one, bit) if n == place else one for n, one in enumerate(parts)]


def test_each_of_the_bits_of_a_proof_counts(stored):
    head, old = merkle.root_of(0, 77, stored), merkle.root_of(0, 50, stored)
    inclusion = hashes(merkle.inclusion(33, 77), stored)
    growth = hashes(merkle.consistency(50, 77), stored)
    for bit in range(256):
        for place in range(len(inclusion)):
            bad = [flip(h, bit) if n == place else h for n, h in enumerate(inclusion)]
            assert not is_included(entry(33), index=33, size=77, proof=bad, root=head)
        for place in range(len(growth)):
            bad = [flip(h, bit) if n == place else h for n, h in enumerate(growth)]
            assert not is_consistent(50, 77, bad, old, head)


def flip(value, bit):
    changed = int.from_bytes(value) ^ (1 << bit)
    return changed.to_bytes(len(value))
