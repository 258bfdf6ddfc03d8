"""Looking at the log's entries: whether each event is still what its leaf was made from.

The newest are looked at in the page, all of them by `manage.py check_log`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from django.db.models import Sum

from amends.protocol.proofs import node_hash
from ledger import merkle, proofs, retention
from ledger.models import Erasure, Event, Leaf, TreeHead
from ledger.proofs import sealed_as, stored_nodes
from workspaces.models import Workspace

NEWEST = 2_000
ENTRIES_AT_A_TIME = 2_000
SHOWN = 5


@dataclass(frozen=True)
class AuditFinding:
    """One thing that was looked at, in words for people."""

    name: str
    ok: bool
    words: str


@dataclass
class Seen:
    """Which entries are not as they were, by index, of how many."""

    workspace: Workspace
    checked: int = 0
    gone: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    payloads: list[int] = field(default_factory=list)
    emptied: list[int] = field(default_factory=list)

    def look(self, leaves: list[Leaf]) -> None:
        places = [leaf.place for leaf in leaves]
        events = {event.place: event for event in Event.objects.filter(place__in=places)}
        self.checked += len(leaves)
        # Asked after the events: what retention lets go meanwhile is not missing.
        let_go = retention.let_go_up_to(self.workspace) if len(events) < len(leaves) else 0
        for leaf in leaves:
            event = events.get(leaf.place)
            if event is None:
                self.gone += [leaf.index] if leaf.place > let_go else []
            elif not sealed_as(proofs.entry_of(self.workspace, event), bytes(leaf.hash)):
                self.changed.append(leaf.index)
            elif not proofs.is_as_digested(event):
                self.payloads.append(leaf.index)
            elif event.salt is None:
                self.emptied.append(leaf.index)

    def findings(self, out_of_order: list[int]) -> list[AuditFinding]:
        return [
            _list("Every entry is there", self.gone, "missing", self.checked),
            _list("Every entry is as it was sealed", self.changed, "changed", self.checked),
            _list("Every payload is as it was digested", self.payloads, "changed", self.checked),
            _list("The entries stand in their order", out_of_order, "not where they were",
                  self.checked),
            self._erasures(),
        ]  # fmt: skip

    def _erasures(self) -> AuditFinding:
        """An emptied payload has nothing that could be compared, so each must be accounted for.

        The registry is asked after the events: what is erased meanwhile is counted in both.
        """
        name = "Every emptied payload was erased by somebody"
        erasures = Erasure.objects.filter(workspace=self.workspace)
        erased = erasures.aggregate(events=Sum("event_count"))["events"] or 0
        if len(self.emptied) > erased:
            listed = _first(self.emptied)
            words = f"{len(self.emptied)} are empty, the registry knows of {erased}: {listed}"
            return AuditFinding(name, ok=False, words=words)
        return AuditFinding(name, ok=True, words=f"{len(self.emptied)} are empty.")


def _list(name: str, bad: list[int], word: str, checked: int) -> AuditFinding:
    if bad:
        words = f"{len(bad)} of {checked} are {word}: {_first(bad)}"
        return AuditFinding(name, ok=False, words=words)
    return AuditFinding(name, ok=True, words=f"{checked} entries checked.")


def _first(bad: list[int]) -> str:
    return ", ".join(map(str, bad[:SHOWN])) + (" …" if len(bad) > SHOWN else "")


def newest(workspace: Workspace, head: TreeHead) -> list[AuditFinding]:
    """The newest entries, and that the tree above them is theirs."""
    since, seen = max(0, head.size - NEWEST), Seen(workspace)
    seen.look(list(Leaf.objects.filter(workspace=workspace, index__gte=since).order_by("index")))
    return seen.findings([] if _lead_up(workspace, since, head.size) else [since])


def _lead_up(workspace: Workspace, since: int, size: int) -> bool:
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
        row = [node_hash(row[n], row[n + 1]) for n in range(0, len(row), 2)]
    return row[0] == stored[merkle.STORED_EVERY, block]


def every(workspace: Workspace, head: TreeHead) -> list[AuditFinding]:
    """All entries, and the tree made anew out of their leaves: each node and each head of it."""
    seen, growth = Seen(workspace), merkle.Growth(0, [])
    misplaced: list[int] = []
    forks: list[int] = []
    heads = _heads(workspace, head)
    due = next(heads, None)
    for leaves in _all_leaves(workspace):
        seen.look(leaves)
        for leaf in leaves:
            misplaced += [leaf.index] if leaf.index != growth.size else []
            growth.add(bytes(leaf.hash))
            while due and due[0] == growth.size:
                forks += [] if due[1] == growth.root else [due[0]]
                due = next(heads, None)
        misplaced += _other_nodes(workspace, growth)
    forks += [due[0]] if due else []
    return [*seen.findings(misplaced), _list("Every head is of this tree", forks, "not", head.size)]


def _all_leaves(workspace: Workspace) -> Iterator[list[Leaf]]:
    since, rows = 0, Leaf.objects.filter(workspace=workspace).order_by("index")
    while found := list(rows.filter(index__gte=since)[:ENTRIES_AT_A_TIME]):
        yield found
        since = found[-1].index + 1


def _heads(workspace: Workspace, newest_head: TreeHead) -> Iterator[tuple[int, bytes]]:
    rows = TreeHead.objects.filter(workspace=workspace, origin=newest_head.origin)
    for size, root in rows.order_by("size").values_list("size", "root").iterator():
        yield size, bytes(root)


def _other_nodes(workspace: Workspace, growth: merkle.Growth) -> Iterable[int]:
    """Where stored nodes are not what the leaves make them, by the first leaf below each."""
    made = {(level, index): found for level, index, found in growth.fresh}
    growth.fresh.clear()
    stored = stored_nodes(workspace.pk, made)
    return sorted({index << level for level, index in made
                   if stored.get((level, index)) != made[level, index]})  # fmt: skip
