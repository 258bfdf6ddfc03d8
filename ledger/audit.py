"""Auditing the log: whether what the database holds is still what was signed.

Edits, deletions, reordering, a cut-off tail and a forked head each show in one of the findings.
"""

import base64
import binascii
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ledger import merkle, notes, proofs, retention, witness
from ledger.leaves import stored_nodes
from ledger.models import Event, Leaf, LogKey, TreeHead
from ledger.sealer import tree_size
from workspaces.models import Workspace

ENTRIES_CHECKED = 2_000
HEADS_CHECKED = 50
PROOF_HASHES_MAX = 63
INDEX_CHARACTERS_MAX = len("index ") + 19


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, in words for people."""

    name: str
    ok: bool
    words: str


def audit(workspace: Workspace, entries: int = ENTRIES_CHECKED) -> list[Finding]:
    """Check the signed heads, that they grew out of one another, and the newest entries."""
    head = proofs.newest_head(workspace)
    if head is None:
        return [Finding("Signed head", ok=True, words="Nothing is sealed yet.")]
    return [
        _signature(workspace, head),
        _tail(workspace, head),
        _root(workspace, head),
        _growth(workspace, head),
        _origin(workspace, head),
        *_entries(workspace, head, entries),
    ]


def _signature(workspace: Workspace, head: TreeHead) -> Finding:
    name = "Signature of the newest head"
    if _signed_by_us(workspace, head.note) and _says(head):
        return Finding(name, ok=True, words=f"{head.origin} signed {head.size} entries.")
    return Finding(name, ok=False, words="The head is not signed by a key of this log.")


def _says(head: TreeHead) -> bool:
    said = notes.Head.of(head.note)
    return (said.origin, said.size, said.root) == (head.origin, head.size, bytes(head.root))


def _signed_by_us(workspace: Workspace, note: str) -> bool:
    text, _, tail = note.rpartition("\n\n")
    for key in LogKey.objects.filter(workspace=workspace):
        public = bytes(key.public_key)
        opening = f"— {key.origin} "
        for line in tail.splitlines():
            if not line.startswith(opening):
                continue
            try:
                signature = base64.b64decode(line.removeprefix(opening), validate=True)
                Ed25519PublicKey.from_public_bytes(public).verify(
                    signature[notes.KEY_ID_BYTES :], f"{text}\n".encode()
                )
            except (InvalidSignature, binascii.Error, ValueError):
                continue
            return True
    return False


def _tail(workspace: Workspace, head: TreeHead) -> Finding:
    """The tree may not be shorter than any head that was signed or remembered elsewhere."""
    name = "Nothing cut off the end"
    size = tree_size(workspace)
    remembered = witness.remembered(head.origin)
    known = max(head.size, remembered.size if remembered else 0)
    if size < known:
        return Finding(name, ok=False, words=f"{known - size} entries of {known} are gone.")
    return Finding(name, ok=True, words=f"All {size} entries are there.")


def _root(workspace: Workspace, head: TreeHead) -> Finding:
    name = "Root of the tree"
    if _root_at(workspace, head.size) == bytes(head.root):
        return Finding(name, ok=True, words="The stored tree leads to the signed root.")
    return Finding(name, ok=False, words="The stored tree does not lead to the signed root.")


def _root_at(workspace: Workspace, size: int) -> bytes | None:
    stored = stored_nodes(workspace.pk, merkle.stored_for([(0, size)]))
    try:
        return merkle.root_of(0, size, stored)
    except KeyError:
        return None


def _growth(workspace: Workspace, head: TreeHead) -> Finding:
    name = "Older heads"
    older = TreeHead.objects.filter(workspace=workspace, origin=head.origin).order_by("-size")
    checked = list(older[1 : HEADS_CHECKED + 1])
    for one in checked:
        if _root_at(workspace, one.size) != bytes(one.root):
            return Finding(name, ok=False, words=f"The head of {one.size} entries forks off.")
    return Finding(name, ok=True, words=f"The last {len(checked)} heads are its beginnings.")


def _origin(workspace: Workspace, head: TreeHead) -> Finding:
    """A new origin starts only where signed entries were lost; it is never signed over."""
    name = "One log from its beginning"
    keys = LogKey.objects.filter(workspace=workspace).exclude(origin=head.origin)
    if last := keys.order_by("-pk").first():
        return Finding(name, ok=False, words=f"{last.origin} went back, and a new one began.")
    return Finding(name, ok=True, words=f"{head.origin} never went back.")


def _entries(workspace: Workspace, head: TreeHead, limit: int) -> list[Finding]:
    since = max(0, head.size - limit)
    leaves = list(Leaf.objects.filter(workspace=workspace, index__gte=since).order_by("index"))
    places = [leaf.place for leaf in leaves]
    events = {event.place: event for event in Event.objects.filter(place__in=places)}
    let_go = retention.let_go_up_to(workspace)
    gone = [leaf.index for leaf in leaves if leaf.place not in events and leaf.place > let_go]
    changed, payloads = [], []
    for leaf in leaves:
        event = events.get(leaf.place)
        if event is None:
            continue
        if merkle.leaf_hash(proofs.entry_of(workspace, event)) != bytes(leaf.hash):
            changed.append(leaf.index)
        elif not proofs.is_as_digested(event):
            payloads.append(leaf.index)
    inner = [] if _leaves_lead_up(workspace, since, head.size) else [since]
    return [
        _list("Every entry is there", gone, "missing", len(leaves)),
        _list("Every entry is as it was sealed", changed, "changed", len(leaves)),
        _list("Every payload is as it was digested", payloads, "changed", len(leaves)),
        _list("The entries stand in their order", inner, "not where they were", len(leaves)),
    ]


def _leaves_lead_up(workspace: Workspace, since: int, size: int) -> bool:
    """Whether stored inner nodes above the checked leaves are their hashes."""
    width = 1 << merkle.STORED_EVERY
    blocks = range(-(-since // width), size // width)
    leaves = {(0, leaf) for block in blocks for leaf in range(block * width, (block + 1) * width)}
    stored = stored_nodes(workspace.pk, leaves | {(merkle.STORED_EVERY, block) for block in blocks})
    try:
        return all(_root_of_block(stored, block, width) for block in blocks)
    except KeyError:
        return False


def _root_of_block(stored: dict[merkle.Node, bytes], block: int, width: int) -> bool:
    row = [stored[0, leaf] for leaf in range(block * width, (block + 1) * width)]
    while len(row) > 1:
        row = [merkle.node_hash(row[n], row[n + 1]) for n in range(0, len(row), 2)]
    return row[0] == stored[merkle.STORED_EVERY, block]


def _list(name: str, bad: list[int], word: str, checked: int) -> Finding:
    if bad:
        listed = ", ".join(map(str, bad[:5])) + (" …" if len(bad) > 5 else "")  # noqa: PLR2004
        return Finding(name, ok=False, words=f"{len(bad)} of {checked} are {word}: {listed}")
    return Finding(name, ok=True, words=f"{checked} entries checked.")


def check_proof(workspace: Workspace, text: str) -> Finding:
    """Check a tlog-proof file against this log's keys."""
    name = "The proof"
    try:
        entry, index, path, note = _parts(text.replace("\r\n", "\n"))
        signed = notes.Head.of(note)
    except (ValueError, IndexError, binascii.Error):
        return Finding(name, ok=False, words="This is not a tlog-proof file of this ledger.")
    if not _signed_by_us(workspace, note):
        return Finding(name, ok=False, words="Its head is not signed by a key of this log.")
    if not merkle.is_included(merkle.leaf_hash(entry), index, signed.size, path, signed.root):
        return Finding(name, ok=False, words="The entry is not where the proof says.")
    said = entry.decode(errors="replace")
    return Finding(name, ok=True, words=f"Entry {index} of {signed.size} is in the log: {said}")


def _parts(text: str) -> tuple[bytes, int, list[bytes], str]:
    """Entry, index, hashes and signed note of a tlog-proof; ValueError or IndexError if not one."""
    head, note = text.split("\n\n", 1)
    header, extra, index, *path = head.split("\n")
    if header != proofs.HEADER or len(path) > PROOF_HASHES_MAX:
        raise ValueError(header)
    if not index.startswith("index ") or len(index) > INDEX_CHARACTERS_MAX:
        raise ValueError(index)
    entry = base64.b64decode(extra.removeprefix("extra "), validate=True)
    hashes = [base64.b64decode(line, validate=True) for line in path]
    return entry, int(index.removeprefix("index ")), hashes, note
