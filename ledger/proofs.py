"""Proofs that an event is in the log, in a form that anybody can check offline (docs/proofs.md)."""

from dataclasses import dataclass
from typing import Any

from amends.protocol.canonical import salted_digest
from amends.protocol.proofs import HEADER
from ledger import logkeys, merkle, notes
from ledger.canonical import canonical
from ledger.leaves import Entry, received_text, sealed_as, stored_nodes
from ledger.models import Event, EventKey, Leaf, TreeHead
from ledger.parsed_events import ParsedEvent
from ledger.wire import as_kept
from workspaces.models import Workspace


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
    return Event.objects.filter(place=key.place, received_at=key.received_at).first()


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


def entry_of(workspace: Workspace, event: Event) -> Entry:
    return Entry(
        workspace.slug, event.event_id, event.type, received_text(event.received_at),
        f"{event.actor_kind}:{event.actor}", bytes(event.digest), event.key_prefix, event.trusted,
    )  # fmt: skip


def proof_text(entry: bytes, index: int, path: list[bytes], note: str) -> str:
    lines = [HEADER, f"extra {notes.base64_text(entry)}", f"index {index}"]
    return "\n".join([*lines, *map(notes.base64_text, path)]) + "\n\n" + note


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
