"""Proofs that an event is in the log, in a form that anybody can check offline (docs/proofs.md)."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db import connection

from amends.protocol.canonical import salted_digest
from amends.protocol.proofs import HEADER, is_included, leaf_hash
from ledger import logkeys, merkle
from ledger.canonical import canonical
from ledger.merkle import Node, ParsedHead
from ledger.models import Event, EventKey, Leaf, TreeHead
from ledger.parsed_events import ParsedEvent
from ledger.wire import as_kept
from workspaces.models import Workspace

# The log's entries: which bytes are hashed for an event (docs/proofs.md), and stored nodes.

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


class Tampered(Exception):
    """We stopped because a row no longer is what was sealed, or is gone; the text says which."""


@dataclass(frozen=True)
class Inclusion:
    """Where an event stands in the log, and the file that proves it."""

    index: int
    head: TreeHead
    leaf: bytes
    text: str


def newest_head(workspace: Workspace) -> TreeHead | None:
    key = logkeys.living(workspace)
    if key is None:
        return None
    heads = TreeHead.objects.filter(workspace=workspace, origin=key.origin)
    return heads.order_by("-size").first()


def event_of(workspace: Workspace, event_id: str) -> Event | None:
    """The event of this id, found through its key: the event table itself is too large to ask."""
    key = EventKey.objects.filter(workspace=workspace, event_id=event_id).first()
    if key is None:
        return None
    return Event.objects.filter(pk=(workspace.pk, key.place, key.received_at)).first()


def proof_of(workspace: Workspace, event_id: str) -> str | None:
    """The tlog-proof file for an event; None if there is none, or it is not sealed yet."""
    event = event_of(workspace, event_id)
    found = inclusion_of(workspace, event) if event is not None else None
    return found.text if found else None


def inclusion_of(workspace: Workspace, event: Event) -> Inclusion | None:
    """Raises `Tampered` if the event is not what was sealed."""
    leaf = Leaf.objects.filter(workspace=workspace, place=event.place).first()
    head = newest_head(workspace)
    if leaf is None or head is None or leaf.index >= head.size:
        return None
    entry = sealed_as(entry_of(workspace, event), bytes(leaf.hash))
    if entry is None:
        raise Tampered(f"event {event.event_id} is not the one that was sealed as {leaf.index}")
    path = hashes(workspace, merkle.inclusion(leaf.index, head.size))
    text = proof_text(entry, leaf.index, path, head.note)
    return Inclusion(leaf.index, head, entry, text)


def index_under(workspace: Workspace, event: Event, head: ParsedHead) -> int | None:
    """Where the event stands in the tree of this head, which somebody else kept; None where it does
    not, is not what was sealed, or its payload is gone.
    """
    leaf = Leaf.objects.filter(workspace=workspace, place=event.place).first()
    if leaf is None or leaf.index >= head.size or event.salt is None or not is_as_digested(event):
        return None
    entry = sealed_as(entry_of(workspace, event), bytes(leaf.hash))
    if entry is None:
        return None
    try:
        path = hashes(workspace, merkle.inclusion(leaf.index, head.size))
    except Tampered:
        return None
    is_there = is_included(entry, index=leaf.index, size=head.size, proof=path, root=head.root)
    return leaf.index if is_there else None


def entry_of(workspace: Workspace, event: Event) -> Entry:
    return Entry(
        workspace.slug, event.event_id, event.type, received_text(event.received_at),
        f"{event.actor_kind}:{event.actor}", bytes(event.digest), event.key_prefix, event.trusted,
    )  # fmt: skip


def proof_text(entry: bytes, index: int, path: list[bytes], note: str) -> str:
    lines = [HEADER, f"extra {merkle.base64_text(entry)}", f"index {index}"]
    return "\n".join([*lines, *map(merkle.base64_text, path)]) + "\n\n" + note


def hashes(workspace: Workspace, ranges: list[merkle.Range]) -> list[bytes]:
    """The roots of these runs of leaves; raises `Tampered` where the stored tree has holes."""
    stored = stored_nodes(workspace.pk, merkle.stored_for(ranges))
    try:
        return [merkle.root_of(since, until, stored) for since, until in ranges]
    except KeyError as missing:
        level, index = missing.args[0]
        raise Tampered(f"node {index} on level {level} of the tree is gone") from missing


def consistency(workspace: Workspace, old: int, new: int) -> list[bytes]:
    """The proof that the tree of `old` leaves grew to that of `new`.

    Raises ValueError if it cannot have, `Tampered` where the stored tree has holes.
    """
    return hashes(workspace, merkle.consistency(old, new))


def kept_event(event: Event) -> dict[str, Any]:
    """The event in the form that its digest covers."""
    said = ParsedEvent(
        event.event_id, event.type, event.run, event.action, event.n, event.time, event.trace,
        event.data if event.data is not None else {}, b"",
    )  # fmt: skip
    return as_kept(said)


def download_of(workspace: Workspace, event_id: str) -> dict[str, Any] | None:
    """Facts, salt and proof in one document that `python -m amends verify` takes."""
    event = event_of(workspace, event_id)
    if event is None or event.salt is None:
        return None
    found = inclusion_of(workspace, event)
    if found is None:
        return None
    return {"event": kept_event(event), "salt": bytes(event.salt).hex(), "proof": found.text}


def is_as_digested(event: Event) -> bool:
    """Whether payload and salt still give the digest; erased ones have nothing to compare."""
    if event.salt is None:
        return event.data is None
    return salted_digest(bytes(event.salt), canonical(kept_event(event))) == bytes(event.digest)
