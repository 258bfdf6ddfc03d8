"""Exports of a workspace: whether what was taken along is still all that was signed.

Checked offline, with the log's public key alone (docs/keeping.md has the files): every file is the
one that was written, every entry of the log leads to the signed head, and every event is the one
whose digest stands in its entry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amends.protocol.canonical import canonical
from amends.protocol.proofs import (
    HASH_BYTES,
    Checkpoint,
    LogKey,
    NotProven,
    event_digest,
    leaf_hash,
    node_hash,
    read,
)

NOTE, LOG, HEAD = "export.json", "log.ndjson", "head.txt"
CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True)
class VerifiedExport:
    """What a folder was found to hold: entries of the log, of how many the event is there.
    `workspace` is empty where no entry is left that names it.
    """

    workspace: str
    origin: str
    size: int
    events: int


class Tree:
    """A Merkle tree (RFC 6962, 2.1) that only grows: the roots of its full subtrees."""

    def __init__(self) -> None:
        self.size = 0
        self._full: list[tuple[int, bytes]] = []

    def add(self, hash_: bytes) -> None:
        level = 0
        while self._full and self._full[-1][0] == level:
            hash_ = node_hash(self._full.pop()[1], hash_)
            level += 1
        self._full.append((level, hash_))
        self.size += 1

    @property
    def root(self) -> bytes:
        found = b""
        for _, hash_ in reversed(self._full):
            found = node_hash(hash_, found) if found else hash_
        return found or hashlib.sha256(b"").digest()


def verify_export(folder: Path, keys: list[LogKey]) -> VerifiedExport:
    """Check a folder and say what it proves, or raise NotProven; OSError where it cannot be read.

    The log is proven. The tables beside it are what the desk said when it wrote them: of them it is
    checked that they are whole.
    """
    note = _object((folder / NOTE).read_text("utf-8"), NOTE)
    _check_files(folder, note.get("files"))
    head = Checkpoint.parse((folder / HEAD).read_text("utf-8"))
    head.check(keys)
    tree, events, workspace = Tree(), 0, ""
    for line in _lines(folder / LOG):
        entry = _object(line, f"line {tree.size + 1} of {LOG}")
        if entry.get("index") != tree.size:
            raise NotProven(f"entry {tree.size} is missing in {LOG}")
        hash_, has_event = _entry(entry, str(note.get("workspace")))
        if entry.get("leaf") is not None:
            workspace = str(note.get("workspace"))
        tree.add(hash_)
        events += has_event
    if (tree.size, tree.root) != (head.size, head.root):
        raise NotProven(f"the {tree.size} entries in {LOG} do not lead to the signed head")
    return VerifiedExport(workspace, head.origin, head.size, events)


def _entry(entry: dict[str, Any], workspace: str) -> tuple[bytes, bool]:
    """Its hash, and whether its event is there, and is the one of the leaf."""
    leaf, index = entry.get("leaf"), entry["index"]
    if entry.get("altered"):
        raise NotProven(f"entry {index} had been altered in the desk when it was exported")
    try:
        if leaf is None and "event" in entry:
            raise NotProven(f"entry {index} has an event that nothing proves")
        if leaf is None:
            return _hash(entry["hash"]), False
        salt = bytes.fromhex(entry.get("salt", ""))
        hash_, of = leaf_hash(canonical(leaf)), leaf.get("workspace")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NotProven(f"entry {index} cannot be read") from error
    if of != workspace:
        raise NotProven(f"entry {index} is another workspace’s")
    if "event" not in entry:
        return hash_, False
    if event_digest(salt, entry["event"]) != leaf.get("digest"):
        raise NotProven(f"the event of entry {index} is not the one whose digest is in the log")
    return hash_, True


def _hash(text: str) -> bytes:
    found = bytes.fromhex(text)
    if len(found) != HASH_BYTES:
        raise ValueError("a hash is not 32 bytes long")
    return found


def _check_files(folder: Path, files: Any) -> None:
    if not isinstance(files, dict) or not {LOG, HEAD} <= files.keys():
        raise NotProven(f"{NOTE} does not name the files")
    for name, wanted in files.items():
        path = folder / name
        if path.resolve().parent not in {folder.resolve(), folder.resolve() / "blobs"}:
            raise NotProven(f"{name} is no file of an export")
        if not path.is_file() or _digest(path) != wanted:
            raise NotProven(f"{name} is not the file that was written")


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            found.update(chunk)
    return f"sha256:{found.hexdigest()}"


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        yield from file


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        found = read(text)
    except (ValueError, RecursionError) as error:
        raise NotProven(f"{what} is not JSON") from error
    if not isinstance(found, dict):
        raise NotProven(f"{what} is no object")
    return found
