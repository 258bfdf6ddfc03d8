"""What somebody brings to be checked against this log: a tlog-proof, or a download with its facts.

The client's `python -m amends verify` checks the same offline; this is for who has no Python.
"""

import base64
import binascii
import json
from typing import Any

from ledger import logkeys, merkle, notes, proofs
from ledger.append.events import SALT_BYTES
from ledger.canonical import canonical, salted_digest
from ledger.entries import Finding
from workspaces.models import Workspace

NAME = "The proof"
PROOF_HASHES_MAX = 63
INDEX_CHARACTERS_MAX = len("index ") + 19
SALTED = ("facts", "words")
"""What stands beside the event in a correction's record, each with its digest in the event."""


class _NotProven(Exception):
    """We stopped because what was brought does not prove what it says; the text says why."""


def check(workspace: Workspace, text: str) -> Finding:
    """Check the text of a proof or of a download against this log's keys."""
    try:
        words = _download(workspace, text) if text.lstrip().startswith("{") else None
        if words is None:
            entry, where = _proof(workspace, text)
            words = f"{where}: {entry.decode(errors='replace')}"
    except _NotProven as reason:
        return Finding(NAME, ok=False, words=str(reason))
    return Finding(NAME, ok=True, words=words)


def _proof(workspace: Workspace, text: str) -> tuple[bytes, str]:
    """The entry that a tlog-proof proves, and where it stands."""
    try:
        entry, index, path, note = _parts(text.replace("\r\n", "\n"))
        signed = notes.Head.of(note)
    except (ValueError, IndexError, binascii.Error):
        raise _NotProven("This is not a tlog-proof file of this ledger.") from None
    if not logkeys.has_signed(workspace, note):
        raise _NotProven("Its head is not signed by a key of this log.")
    if not merkle.is_included(merkle.leaf_hash(entry), index, signed.size, path, signed.root):
        raise _NotProven("The entry is not where the proof says.")
    return entry, f"Entry {index} of {signed.size} is in the log"


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


def _download(workspace: Workspace, text: str) -> str:
    try:
        document = json.loads(text, object_pairs_hook=_once)
        event, salt, proof = document["event"], bytes.fromhex(document["salt"]), document["proof"]
        digest = salted_digest(_whole(salt), canonical(event))
        data = dict(event["data"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _NotProven("This is not a download with event, salt and proof.") from None
    entry, where = _proof(workspace, str(proof))
    if json.loads(entry).get("digest") != f"sha256:{digest.hex()}":
        raise _NotProven("The event is not the one whose digest is in the log.")
    for name in SALTED:
        if name in document and _digest_of(document, name) != data.get(f"{name}_digest"):
            raise _NotProven(f"The {name} are not the ones whose digest is in the log.")
    return f"{where}, and what the file says of {event.get('type')} is what was recorded"


def _digest_of(document: dict[str, Any], name: str) -> str:
    try:
        salt = _whole(bytes.fromhex(document["facts_salt"]))
        return f"sha256:{salted_digest(salt, canonical(document[name])).hex()}"
    except (ValueError, KeyError, TypeError):
        raise _NotProven(f"The salt of the {name} is missing.") from None


def _whole(salt: bytes) -> bytes:
    """Of another length, it could hold the beginning of what is salted."""
    if len(salt) != SALT_BYTES:
        raise ValueError(salt)
    return salt


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """What stands twice is read one way and checked another."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _NotProven("A name stands twice in the file.")
    return found
