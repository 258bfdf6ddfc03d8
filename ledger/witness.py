"""Remembering heads outside the database, so that a log which went back is noticed.

After a failover to a standby that lagged, the database may have forgotten events whose head was
already signed. Signing another head of that size would fork the log; so the old origin is left as
it is, and a new one starts, whose first head names the last good one. Floors above register what
they do then (approvals/pauses.py holds everything until a person has looked).
"""

import hashlib
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from django.conf import settings

from ledger import logkeys, merkle
from ledger.merkle import Head, Signer
from ledger.models import TreeHead
from ledger.proofs import stored_nodes
from workspaces.models import Workspace

logger = logging.getLogger(__name__)

WentBack = Callable[[Workspace, Head, int], None]
"""Given the last good head and how many entries are left; called in the sealer's transaction."""

_when_back: list[WentBack] = []

# The last head that this process signed, by public key.
_last: dict[bytes, Head] = {}


def when_it_goes_back(tell: WentBack) -> WentBack:
    """Register what is done, in the same transaction, when a log is found to have gone back."""
    _when_back.append(tell)
    return tell


def checked(workspace: Workspace, signer: Signer, size: int) -> tuple[Signer, list[str]]:
    """The key to sign with, and the lines to add, given the size of the tree as it now stands."""
    last = last_of(signer) or _kept(workspace, signer.origin)
    if last is None or _still_there(workspace, last, size):
        return signer, []
    logger.error("the log of %s went back behind %s of %s", workspace, last.size, last.origin)
    root = merkle.base64_text(last.root)
    for tell in _when_back:
        tell(workspace, last, size)
    new = logkeys.begin_anew(workspace, last)
    return new, [f"after {last.origin} {last.size} {root}"]


def _kept(workspace: Workspace, origin: str) -> Head | None:
    """The newest head in the database itself: a process that has just started knows no other."""
    heads = TreeHead.objects.filter(workspace=workspace, origin=origin)
    row = heads.order_by("-size").first()
    return Head(origin, row.size, bytes(row.root)) if row else None


def _still_there(workspace: Workspace, last: Head, size: int) -> bool:
    if size < last.size:
        return False
    stored = stored_nodes(workspace.pk, merkle.stored_for([(0, last.size)]))
    try:
        return merkle.root_of(0, last.size, stored) == last.root
    except KeyError:
        return False


def remember(note: str, signer: Signer) -> None:
    """Keep a head that is committed: in this process, and in a file where one is configured."""
    head = Head.of(note)
    _last[signer.public] = head
    path = _path(head.origin)
    if path is None:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(note)
    Path(name).replace(path)


def last_of(signer: Signer) -> Head | None:
    """The newest head known of a log, from memory or file."""
    known = [h for h in (_last.get(signer.public), _read(signer.origin)) if h is not None]
    return max(known, key=lambda head: head.size, default=None)


def remembered(origin: str) -> Head | None:
    """The head that the file keeps, if there is one."""
    return _read(origin)


def _read(origin: str) -> Head | None:
    path = _path(origin)
    if path is None or not path.exists():
        return None
    try:
        return Head.of(path.read_text())
    except ValueError:
        logger.exception("%s is not a checkpoint", path)
        return None


def _path(origin: str) -> Path | None:
    folder: str = settings.AMENDS_HEADS_FOLDER
    return (
        Path(folder) / f"{hashlib.sha256(origin.encode()).hexdigest()[:32]}.note"
        if folder
        else None
    )
