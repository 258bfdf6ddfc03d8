"""The log's entries: which bytes are hashed for an event (docs/proofs.md), and stored nodes."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db import connection

from amends.protocol.proofs import leaf_hash
from ledger.canonical import canonical
from ledger.merkle import Node

VERSION = 2
"""Of the leaves that are made now; those of earlier versions stay in the log as they are."""

NODES_OF_LEVEL = """
SELECT n.level, n.index, t.hash FROM unnest(%s::int[], %s::bigint[]) AS n (level, index)
JOIN ledger_treenode t ON t.workspace_id = %s AND t.level = n.level AND t.index = n.index"""
LEAVES = """
SELECT 0, l.index, l.hash FROM unnest(%s::bigint[]) AS n (index)
JOIN ledger_leaf l ON l.workspace_id = %s AND l.index = n.index"""


class Entry(NamedTuple):
    """What an event's leaf is made of; `received` as `received_text` has it."""

    workspace: str
    event: str
    type: str
    received: str
    actor: str
    digest: bytes
    key: str
    trusted: bool


def leaf_bytes(entry: Entry, *, version: int = VERSION) -> bytes:
    """The entry for one event: canonical JSON, no payload.

    Version 1 did not say with which key an event came, nor whether that key was trusted.
    """
    told: dict[str, Any] = {
        "v": version,
        "workspace": entry.workspace,
        "event": entry.event,
        "type": entry.type,
        "received": entry.received,
        "actor": entry.actor,
        "digest": f"sha256:{entry.digest.hex()}",
    }
    if version > 1:
        told |= {"key": entry.key, "trusted": entry.trusted}
    return canonical(told, plain=True)


def sealed_as(entry: Entry, hash_: bytes) -> bytes | None:
    """The leaf of this hash that the event makes, in whichever version it was sealed; None if it
    makes none: then it is not what was sealed.
    """
    made = (leaf_bytes(entry, version=version) for version in range(VERSION, 0, -1))
    return next((one for one in made if leaf_hash(one) == hash_), None)


def received_text(received: datetime) -> str:
    """RFC 3339 in UTC with six digits of a second."""
    return received.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def stored_nodes(workspace_id: int, wanted: Iterable[Node]) -> dict[Node, bytes]:
    """The hashes of stored nodes, leaves (level 0) included."""
    nodes = sorted(wanted)
    leaves = [index for level, index in nodes if level == 0]
    inner = [node for node in nodes if node[0]]
    found: dict[Node, bytes] = {}
    with connection.cursor() as cursor:
        if leaves:
            cursor.execute(LEAVES, [leaves, workspace_id])
            found |= _by_node(cursor.fetchall())
        if inner:
            levels, places = [level for level, _ in inner], [index for _, index in inner]
            cursor.execute(NODES_OF_LEVEL, [levels, places, workspace_id])
            found |= _by_node(cursor.fetchall())
    return found


def _by_node(rows: list[tuple[Any, ...]]) -> dict[Node, bytes]:
    return {(level, index): bytes(hash_) for level, index, hash_ in rows}
