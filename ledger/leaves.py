"""The log's entries: which bytes are hashed for an event (docs/proofs.md), and stored nodes."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django.db import connection

from ledger.canonical import canonical
from ledger.merkle import Node

NODES_OF_LEVEL = """
SELECT n.level, n.index, t.hash FROM unnest(%s::int[], %s::bigint[]) AS n (level, index)
JOIN ledger_treenode t ON t.workspace_id = %s AND t.level = n.level AND t.index = n.index"""
LEAVES = """
SELECT 0, l.index, l.hash FROM unnest(%s::bigint[]) AS n (index)
JOIN ledger_leaf l ON l.workspace_id = %s AND l.index = n.index"""


def leaf_bytes(
    *, workspace: str, event: str, type_: str, received: str, actor: str, digest: bytes
) -> bytes:
    """The entry for one event: canonical JSON, no payload; `received` as `received_text` has it."""
    entry = {
        "v": 1,
        "workspace": workspace,
        "event": event,
        "type": type_,
        "received": received,
        "actor": actor,
        "digest": f"sha256:{digest.hex()}",
    }
    return canonical(entry, plain=True)


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
