"""Auditing the log: whether what the database holds is still what was signed.

Edits, deletions, reordering, a cut-off tail and a forked head each show in one of the findings.
"""

from collections.abc import Callable

from amends.protocol.proofs import NotProven, verify
from ledger import entries, logkeys, merkle, notes, proofs, witness
from ledger.canonical import canonical
from ledger.entries import AuditFinding
from ledger.models import LogKey, TreeHead
from ledger.proofs import stored_nodes
from ledger.sealer import tree_size
from workspaces.models import Workspace

HEADS_CHECKED = 50
ONE_LOG = "One log from its beginning"


def audit(workspace: Workspace) -> list[AuditFinding]:
    """Check the signed heads, that they grew out of one another, and the newest entries."""
    return _looked_at(workspace, entries.newest)


def audit_all(workspace: Workspace) -> list[AuditFinding]:
    """The same with every entry and every node from the first on; it takes minutes."""
    return _looked_at(workspace, entries.every)


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
    said = notes.Head.of(head.note)
    return (said.origin, said.size, said.root) == (head.origin, head.size, bytes(head.root))


def _tail(workspace: Workspace, head: TreeHead) -> AuditFinding:
    """The tree may not be shorter than any head that was signed or remembered elsewhere."""
    name = "Nothing cut off the end"
    size = tree_size(workspace)
    remembered = witness.remembered(head.origin)
    known = max(head.size, remembered.size if remembered else 0)
    if size < known:
        return AuditFinding(name, ok=False, words=f"{known - size} entries of {known} are gone.")
    return AuditFinding(name, ok=True, words=f"All {size} entries are there.")


def _root(workspace: Workspace, head: TreeHead) -> AuditFinding:
    name = "Root of the tree"
    if _root_at(workspace, head.size) == bytes(head.root):
        return AuditFinding(name, ok=True, words="The stored tree leads to the signed root.")
    return AuditFinding(name, ok=False, words="The stored tree does not lead to the signed root.")


def _root_at(workspace: Workspace, size: int) -> bytes | None:
    stored = stored_nodes(workspace.pk, merkle.stored_for([(0, size)]))
    try:
        return merkle.root_of(0, size, stored)
    except KeyError:
        return None


def _growth(workspace: Workspace, head: TreeHead) -> AuditFinding:
    name = "Older heads"
    older = TreeHead.objects.filter(workspace=workspace, origin=head.origin).order_by("-size")
    checked = list(older[1 : HEADS_CHECKED + 1])
    for one in checked:
        if _root_at(workspace, one.size) != bytes(one.root):
            return AuditFinding(name, ok=False, words=f"The head of {one.size} entries forks off.")
    return AuditFinding(name, ok=True, words=f"The last {len(checked)} heads are its beginnings.")


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
    try:
        found = verify(text.replace("\r\n", "\n"), logkeys.public_keys(workspace))
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
    return AuditFinding("The proof", ok=True, words=words)
