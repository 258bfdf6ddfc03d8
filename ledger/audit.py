"""Auditing the log: whether what the database holds is still what was signed.

Edits, deletions, reordering, a cut-off tail and a forked head each show in one of the findings. The
newest entries are looked at in the page, all of them by `manage.py check_log`, and all of them by
and by, one portion of each log a turn, by the job (`go_round`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from django.db import connection
from django.db.models import Sum
from django.db.models.functions import Now

from amends.protocol.proofs import NotProven
from amends.protocol.signatures import verify
from ledger import logkeys, merkle, proofs, retention, sealer
from ledger.canonical import canonical
from ledger.models import AuditRound, Erasure, Event, Leaf, LogKey, TreeHead
from ledger.proofs import sealed_as, stored_nodes
from ledger.sealer import tree_size
from workspaces.models import Workspace
from workspaces.periodic import each

logger = logging.getLogger(__name__)

HEADS_CHECKED = 50
PROOF_CHARACTERS_MAX = 500_000
ONE_LOG = "One log from its beginning"
WRONG_CHARACTERS_MAX = 1_000


def audit(workspace: Workspace) -> list[AuditFinding]:
    """Check the signed heads, that they grew out of one another, and the newest entries."""
    return _looked_at(workspace, newest)


def audit_all(workspace: Workspace) -> list[AuditFinding]:
    """The same with every entry and every node from the first on; it takes minutes."""
    return _looked_at(workspace, every)


class NotAsSigned(Exception):
    """What a log holds is no longer what was signed; the message says what. Of which it says
    nothing, for strangers hear it, and other workspaces: that stands in our own log.
    """


def look() -> int:
    """Audit the logs of all workspaces, as a job does it: raises NotAsSigned, so that /statusz and
    channels tell of it. That a log went back once has its own alarm.
    """
    return each(Workspace.objects.order_by("pk").iterator(), _look_at)


def _look_at(workspace: Workspace) -> int:
    wrong = _wrong(workspace) and _wrong(workspace)  # twice, for it is written to meanwhile
    if told := "; ".join(filter(None, [_told(wrong), go_round(workspace)])):
        logger.error("The log of %s is not what was signed. %s", workspace.slug, told)
        raise NotAsSigned(f"A log is not what was signed (manage.py check_log names it). {told}")
    return 0


def _wrong(workspace: Workspace) -> list[AuditFinding]:
    return [one for one in audit(workspace) if not one.ok and one.name != ONE_LOG]


def _told(wrong: list[AuditFinding]) -> str:
    return "; ".join(f"{one.name}: {one.words}" for one in wrong)


TURNS_A_ROUND = 250
"""Of the job, which has 288 in a day: so each entry is looked at again within a day."""
PORTION_MIN, PORTION_MAX = 500, 20_000
"""Entries a turn; a log of more than 5 million is gone round in more than a day."""


def go_round(workspace: Workspace) -> str:
    """Look at the next portion of the log, and remember how far we are; from its end we begin anew.

    Returns what was found to be wrong, in words, and again each turn until we have passed there
    and it is well, or until the whole log was found to be well (`all_is_well`).
    """
    head = proofs.newest_head(workspace)
    if head is not None and head.size <= NEWEST:  # `newest` looks at all of it in each turn
        rounds = AuditRound.objects.filter(workspace=workspace)
        rounds.filter(wrong_from__lt=head.size).delete()
        return "".join(rounds.values_list("wrong", flat=True))  # of what is cut off since
    round_, _ = AuditRound.objects.get_or_create(workspace=workspace)
    if head is None:
        return round_.wrong
    portion = _portion(round_, head)
    found = _found_in(workspace, head, portion)
    if any(not one.ok for one in found.findings):  # twice, as above
        found = _found_in(workspace, head, portion)
    wrong = _told([one for one in found.findings if not one.ok])
    is_over = portion.until >= head.size
    told = {"wrong": wrong[:WRONG_CHARACTERS_MAX], "wrong_from": portion.since} if wrong else {}
    if not wrong and portion.since <= round_.wrong_from < portion.until:
        told = {"wrong": "", "wrong_from": 0}
    # Only from where we saw it, for another scheduler may have gone on meanwhile.
    AuditRound.objects.filter(pk=round_.pk, next_index=round_.next_index).update(
        next_index=0 if is_over else portion.until,
        after_place=EVERY_PLACE if is_over else found.place,
        emptied=0 if is_over else found.emptied,
        **({"went_round_at": Now()} if is_over else {}),
        **told,
    )
    return str(told.get("wrong", round_.wrong))


def all_is_well(workspace: Workspace) -> None:
    """Somebody has looked at the whole log and found nothing wrong, so the job tells no more."""
    AuditRound.objects.filter(workspace=workspace).update(wrong="", wrong_from=0)


def _portion(round_: AuditRound, head: TreeHead) -> AuditRange:
    since = round_.next_index
    if since >= head.size:  # a log that went back
        return AuditRange(0, min(head.size, PORTION_MIN), EVERY_PLACE, 0)
    entries = min(max(-(-head.size // TURNS_A_ROUND), PORTION_MIN), PORTION_MAX)
    return AuditRange(since, min(head.size, since + entries), round_.after_place, round_.emptied)


def _found_in(workspace: Workspace, head: TreeHead, portion: AuditRange) -> RangeFindings:
    found = _walked(workspace, head, portion)
    place = max(found.place, portion.after_place)
    up_to = LAST_PLACE if portion.until >= head.size else place
    findings = [*found.findings, _unlogged(workspace, portion.after_place, up_to)]
    return RangeFindings(findings, place, found.emptied)


def _looked_at(
    workspace: Workspace, look: Callable[[Workspace, TreeHead], list[AuditFinding]]
) -> list[AuditFinding]:
    head = proofs.newest_head(workspace)
    if head is None:
        return [AuditFinding("Signed head", ok=True, words="Nothing is sealed yet.")]
    return [
        _signature(workspace, head),
        _tail(workspace, head),
        _root(workspace, head),
        _growth(workspace, head),
        _origin(workspace, head),
        *look(workspace, head),
    ]


def _signature(workspace: Workspace, head: TreeHead) -> AuditFinding:
    name = "Signature of the newest head"
    if logkeys.has_signed(workspace, head.note) and _says(head):
        return AuditFinding(name, ok=True, words=f"{head.origin} signed {head.size} entries.")
    return AuditFinding(name, ok=False, words="The head is not signed by a key of this log.")


def _says(head: TreeHead) -> bool:
    said = merkle.ParsedHead.of(head.note)
    return (said.origin, said.size, said.root) == (head.origin, head.size, bytes(head.root))


def _tail(workspace: Workspace, head: TreeHead) -> AuditFinding:
    """The tree may not be shorter than any head that was signed or remembered elsewhere. It is
    measured last, for it grows meanwhile.
    """
    name = "Nothing cut off the end"
    remembered = sealer.remembered(head.origin)
    known = max(head.size, remembered.size if remembered else 0)
    size = tree_size(workspace)
    if size < known:
        return AuditFinding(name, ok=False, words=f"{known - size} entries of {known} are gone.")
    return AuditFinding(name, ok=True, words=f"All {size} entries are there.")


def _root(workspace: Workspace, head: TreeHead) -> AuditFinding:
    name = "Root of the tree"
    if _root_at(head.size, _stored_for(workspace, head.size)) == bytes(head.root):
        return AuditFinding(name, ok=True, words="The stored tree leads to the signed root.")
    return AuditFinding(name, ok=False, words="The stored tree does not lead to the signed root.")


def _stored_for(workspace: Workspace, *sizes: int) -> dict[merkle.Node, bytes]:
    """What the roots of trees of these sizes are made of."""
    return stored_nodes(workspace.pk, merkle.stored_for((0, size) for size in sizes))


def _root_at(size: int, stored: dict[merkle.Node, bytes]) -> bytes | None:
    try:
        return merkle.root_of(0, size, stored)
    except KeyError:
        return None


def _growth(workspace: Workspace, head: TreeHead) -> AuditFinding:
    name = "Older heads"
    older = TreeHead.objects.filter(workspace=workspace, origin=head.origin).order_by("-size")
    checked = list(older[1 : HEADS_CHECKED + 1])
    stored = _stored_for(workspace, *(one.size for one in checked))
    for one in checked:
        if _root_at(one.size, stored) != bytes(one.root):
            return AuditFinding(name, ok=False, words=f"The head of {one.size} entries forks off.")
    return AuditFinding(name, ok=True, words=f"The last {len(checked)} heads are its beginnings.")


# In one statement, so that what is sealed meanwhile is seen on one side or the other.
IN_NO_LOG = """
SELECT count(*), (array_agg(e.type || ' at ' || e.place ORDER BY e.place))[1:%s] FROM ledger_event e
WHERE e.workspace_id = %s AND e.place > %s AND e.place <= %s
    AND NOT EXISTS (SELECT FROM ledger_leaf l
        WHERE l.workspace_id = e.workspace_id AND l.place = e.place)
    AND NOT EXISTS (SELECT FROM ledger_unsealed u
        WHERE u.workspace_id = e.workspace_id AND u.place = e.place)"""


def _unlogged(workspace: Workspace, after: int, up_to: int) -> AuditFinding:
    """An event comes with its turn at the sealer: without one, and without a leaf, the desk never
    wrote it, or somebody kept it from being signed.
    """
    with connection.cursor() as cursor:
        cursor.execute(IN_NO_LOG, [SHOWN, workspace.pk, after, up_to])
        found, some = cursor.fetchone()
    name = "Every event is in the log"
    if found:
        words = f"{found} are in none and wait for none: {', '.join(some)}"
        return AuditFinding(name, ok=False, words=words)
    return AuditFinding(name, ok=True, words="None was kept from being signed.")


def _origin(workspace: Workspace, head: TreeHead) -> AuditFinding:
    """A new origin starts only where signed entries were lost; it is never signed over."""
    keys = LogKey.objects.filter(workspace=workspace).exclude(origin=head.origin)
    if last := keys.order_by("-pk").first():
        return AuditFinding(
            ONE_LOG, ok=False, words=f"{last.origin} went back, and a new one began."
        )
    return AuditFinding(ONE_LOG, ok=True, words=f"{head.origin} never went back.")


def check_file(workspace: Workspace, text: str) -> AuditFinding:
    """What somebody brings, a tlog-proof or a download that carries one, against this log's keys.

    `python -m amends verify` checks the same offline; this is for who has no Python.
    """
    if len(text) > PROOF_CHARACTERS_MAX:
        words = f"It was not read: it has more than {PROOF_CHARACTERS_MAX:,} characters."
        return AuditFinding("The proof", ok=False, words=words)
    try:
        found, signed = verify(text.replace("\r\n", "\n"), logkeys.public_keys(workspace))
    except NotProven as reason:
        why = str(reason)
        return AuditFinding("The proof", ok=False, words=f"{why[:1].upper()}{why[1:]}.")
    where = f"Entry {found.index} of {found.size} is in the log"
    if found.event is None:
        return AuditFinding(
            "The proof", ok=True, words=f"{where}: {canonical(found.leaf).decode()}"
        )
    kind = found.event.get("type")
    words = f"{where}, and what the file says of {kind} is what was recorded"
    if signed is not None:
        words += "; its person signed it, with a key that was on record before it was asked"
    return AuditFinding("The proof", ok=True, words=words)


NEWEST = 2_000
EVERY_PLACE, LAST_PLACE = -(2**63), 2**63 - 1
ENTRIES_AT_A_TIME = 2_000
SHOWN = 5


@dataclass(frozen=True)
class AuditFinding:
    """One thing that was looked at, in words for people."""

    name: str
    ok: bool
    words: str


@dataclass
class TamperReport:
    """Which entries are not as they were, by index, of how many."""

    workspace: Workspace
    emptied_before: int = 0
    checked: int = 0
    gone: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    payloads: list[int] = field(default_factory=list)
    emptied: list[int] = field(default_factory=list)

    def look(self, leaves: list[Leaf]) -> None:
        places = [leaf.place for leaf in leaves]
        found = Event.objects.filter(workspace=self.workspace, place__in=places)
        events = {event.place: event for event in found}
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
        emptied = self.emptied_before + len(self.emptied)
        if emptied > erased:
            listed = _first(self.emptied)
            words = f"{emptied} are empty, the registry knows of {erased}: {listed}"
            return AuditFinding(name, ok=False, words=words)
        return AuditFinding(name, ok=True, words=f"{emptied} are empty.")


def _list(name: str, bad: list[int], word: str, checked: int) -> AuditFinding:
    if bad:
        words = f"{len(bad)} of {checked} are {word}: {_first(bad)}"
        return AuditFinding(name, ok=False, words=words)
    return AuditFinding(name, ok=True, words=f"{checked} entries checked.")


def _first(bad: list[int]) -> str:
    return ", ".join(map(str, bad[:SHOWN])) + (" …" if len(bad) > SHOWN else "")


def newest(workspace: Workspace, head: TreeHead) -> list[AuditFinding]:
    """The newest entries, and that the tree above them is theirs; all of a log that has no more."""
    if head.size <= NEWEST:
        return every(workspace, head)
    since, seen = head.size - NEWEST, TamperReport(workspace)
    leaves = list(Leaf.objects.filter(workspace=workspace, index__gte=since).order_by("index"))
    seen.look(leaves)
    oldest = min((leaf.place for leaf in leaves), default=EVERY_PLACE)
    in_order = [] if _lead_up(workspace, since, head.size) else [since]
    return [*seen.findings(in_order), _unlogged(workspace, oldest, LAST_PLACE)]


def _lead_up(workspace: Workspace, since: int, size: int) -> bool:
    """Whether stored inner nodes above the checked leaves are their hashes."""
    width = 1 << merkle.STORED_EVERY
    blocks = range(-(-since // width), size // width)
    leaves = {(0, leaf) for block in blocks for leaf in range(block * width, (block + 1) * width)}
    stored = stored_nodes(workspace.pk, leaves | {(merkle.STORED_EVERY, block) for block in blocks})
    try:
        return all(
            stored[merkle.STORED_EVERY, block]
            == merkle.root_of_row([stored[0, block * width + leaf] for leaf in range(width)])
            for block in blocks
        )
    except KeyError:
        return False


def every(workspace: Workspace, head: TreeHead) -> list[AuditFinding]:
    """All entries, and the tree made anew out of their leaves: each node and each head of it."""
    found = _walked(workspace, head, AuditRange(0, head.size, EVERY_PLACE, 0))
    return [*found.findings, _unlogged(workspace, EVERY_PLACE, LAST_PLACE)]


@dataclass(frozen=True)
class AuditRange:
    """Entries from `since` up to `until`; with how far the places of events were looked at before,
    and how many payloads before these were found to be emptied.
    """

    since: int
    until: int
    after_place: int
    emptied: int


@dataclass(frozen=True)
class RangeFindings:
    """What was found of a portion; the last place in it, and the emptied payloads up to its end."""

    findings: list[AuditFinding]
    place: int
    emptied: int


def _walked(workspace: Workspace, head: TreeHead, portion: AuditRange) -> RangeFindings:
    """The entries of a portion, and the tree above the ones before grown by their leaves."""
    seen, misplaced = TamperReport(workspace, emptied_before=portion.emptied), list[int]()
    forks: list[int] = []
    place = EVERY_PLACE
    try:
        growth = merkle.Growth(portion.since, sealer.frontier(workspace, portion.since))
    except KeyError:  # inner nodes below are gone
        growth = merkle.Growth(0, [])
    heads = _heads(workspace, head, portion)
    due = next(heads, None)
    for leaves in _leaves(workspace, portion):
        seen.look(leaves)
        for leaf in leaves:
            place = max(place, leaf.place)
            misplaced += [leaf.index] if leaf.index != growth.size else []
            growth.add(bytes(leaf.hash))
            while due and due[0] == growth.size:
                forks += [] if due[1] == growth.root else [due[0]]
                due = next(heads, None)
        misplaced += _other_nodes(workspace, growth)
    forks += [due[0]] if due else []
    if growth.size < portion.until:  # at its end some are gone
        misplaced.append(growth.size)
    of_this_tree = _list("Every head is of this tree", forks, "not", head.size)
    emptied = portion.emptied + len(seen.emptied)
    return RangeFindings([*seen.findings(misplaced), of_this_tree], place, emptied)


def _leaves(workspace: Workspace, portion: AuditRange) -> Iterator[list[Leaf]]:
    rows = Leaf.objects.filter(workspace=workspace, index__lt=portion.until).order_by("index")
    since = portion.since
    while found := list(rows.filter(index__gte=since)[:ENTRIES_AT_A_TIME]):
        yield found
        since = found[-1].index + 1
        if len(found) < ENTRIES_AT_A_TIME:
            break


def _heads(
    workspace: Workspace, newest_head: TreeHead, portion: AuditRange
) -> Iterator[tuple[int, bytes]]:
    rows = TreeHead.objects.filter(workspace=workspace, origin=newest_head.origin)
    rows = rows.filter(size__gt=portion.since, size__lte=portion.until)
    for size, root in rows.order_by("size").values_list("size", "root").iterator():
        yield size, bytes(root)


def _other_nodes(workspace: Workspace, growth: merkle.Growth) -> Iterable[int]:
    """Where stored nodes are not what the leaves make them, by the first leaf below each."""
    made = {(level, index): found for level, index, found in growth.fresh}
    growth.fresh.clear()
    stored = stored_nodes(workspace.pk, made)
    return sorted({index << level for level, index in made
                   if stored.get((level, index)) != made[level, index]})  # fmt: skip
