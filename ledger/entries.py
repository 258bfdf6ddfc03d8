"""The log's entries in their order: what leaves the desk for good, in an export or entry by entry.

An entry's number is its index in the workspace's Merkle log: without gaps, and given under one lock
at a time, so whoever has read up to a number has read everything below it. After a log that went
back another origin begins, and the two together tell an entry.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from ledger import disclosure
from ledger.models import Event, Leaf, LogKey, TreeHead
from ledger.proofs import entry_of, kept_event, sealed_as
from workspaces.models import Workspace

ENTRIES_AT_A_TIME = 100
"""So many are held at once: an event may have 64 KiB."""


class LogEntry(NamedTuple):
    """One entry. `leaf` and `event` are None where retention let the event go, and where the row
    that is there is not what was sealed: then it `is_altered`, and nothing that it says is told."""

    number: int
    hash: bytes
    leaf: bytes | None
    event: Event | None
    is_altered: bool = False


def read(workspace: Workspace, since: int, until: int) -> list[LogEntry]:
    """Entries `since` to `until`, the latter not included, ENTRIES_AT_A_TIME at most."""
    found = Leaf.objects.filter(workspace=workspace, index__gte=since, index__lt=until)
    leaves = list(found.order_by("index")[:ENTRIES_AT_A_TIME])
    events = Event.objects.filter(workspace=workspace, place__in=[leaf.place for leaf in leaves])
    by_place = {event.place: event for event in events}
    return [_entry(workspace, leaf, by_place.get(leaf.place)) for leaf in leaves]


def _entry(workspace: Workspace, leaf: Leaf, event: Event | None) -> LogEntry:
    hash_ = bytes(leaf.hash)
    sealed = sealed_as(entry_of(workspace, event), hash_) if event else None
    is_altered = event is not None and sealed is None
    return LogEntry(leaf.index, hash_, sealed, event if sealed else None, is_altered)


def between(workspace: Workspace, since: int, until: int) -> Iterator[LogEntry]:
    """Every entry from `since` to `until`, the latter not included, oldest first."""
    while found := read(workspace, since, until):
        yield from found
        since = found[-1].number + 1


def next_under(head: TreeHead, origin: str, number: int) -> int:
    """From where on somebody reads the log of this head who has read one of another origin up to a
    number: never behind where the log went back, this time or one of the times before.
    """
    keys = LogKey.objects.filter(workspace=head.workspace_id)
    theirs = keys.filter(origin=origin).order_by("-pk").first()
    since = keys.filter(pk__gt=theirs.pk) if theirs else keys.filter(origin=head.origin)
    heads = TreeHead.objects.filter(workspace=head.workspace_id).order_by("size")
    began = (
        heads.filter(origin=one).values_list("size", flat=True).first()
        for one in set(since.values_list("origin", flat=True))
    )
    return min([number, *(size for size in began if size is not None)])


def exported(entry: LogEntry) -> dict[str, Any]:
    """As it stands in an export: enough to make the tree anew, and to prove what was said."""
    told: dict[str, Any] = {"index": entry.number}
    if entry.leaf is None:
        return told | _unread(entry)
    told["leaf"] = msgspec.json.decode(entry.leaf)
    if entry.event is not None and entry.event.salt is not None:
        told |= {"event": kept_event(entry.event), "salt": bytes(entry.event.salt).hex()}
    return told


def _unread(entry: LogEntry) -> dict[str, Any]:
    return {"hash": entry.hash.hex()} | ({"altered": True} if entry.is_altered else {})


def streamed(entry: LogEntry, *, sensitive: bool = True) -> dict[str, Any]:
    """As it is told to whoever watches: who did what when, and what concerns the workspace itself.
    What agents handle stays here: `data` is told of no run. Whoever reads payloads nowhere
    (`sensitive`) is told the names in it.
    """
    told: dict[str, Any] = {"index": entry.number}
    if entry.leaf is None or entry.event is None:
        return told | _unread(entry)
    told["leaf"] = msgspec.json.decode(entry.leaf)
    event = entry.event
    if event.run:
        told |= {"run": event.run} | ({"action": event.action} if event.action else {})
    elif event.data is not None:
        told["data"] = {
            name: value if sensitive else disclosure.value(value, sensitive=False)
            for name, value in event.data.items()
        }
    return told
