"""The sealer: takes events that wait and gives them their places in the workspace's Merkle log.

It runs every 200 ms, beside ingest and not in it: a head under a row lock per request would cost an
order of magnitude. One sealer at a time works on a workspace (advisory lock), and as many as there
are schedulers work at once.

It remembers the heads that it signed outside the database, so that a log which went back is
noticed. After a failover to a standby that lagged, the database may have forgotten events whose
head was already signed. Signing another head of that size would fork the log; so the old origin is
left as it is, and a new one starts, whose first head names the last good one. Floors above register
what they do then (approvals/pauses.py holds everything until a person has looked).
"""

import hashlib
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from psycopg import Cursor

from amends.protocol.proofs import leaf_hash
from ledger import logkeys, merkle
from ledger.append.statements import LIST, joined_numbers
from ledger.drivers import plain_connection
from ledger.merkle import ParsedHead, Signer
from ledger.models import TreeHead
from ledger.proofs import Entry, leaf_bytes, stored_nodes
from workspaces.models import Workspace
from workspaces.periodic import each

logger = logging.getLogger(__name__)


EVENTS_AT_A_TIME = 5_000
TURN_SECONDS_MAX = 5.0
LOCK = 0x5EA1  # the first half of the advisory lock's key; the second is the workspace

# A skip scan: one probe of the index per workspace, however much waits.
WAITING_WORKSPACES = """
WITH RECURSIVE found AS (
    (SELECT workspace_id FROM ledger_unsealed ORDER BY workspace_id LIMIT 1)
    UNION ALL
    SELECT (SELECT u.workspace_id FROM ledger_unsealed u WHERE u.workspace_id > found.workspace_id
            ORDER BY u.workspace_id LIMIT 1)
    FROM found WHERE found.workspace_id IS NOT NULL
) SELECT workspace_id FROM found WHERE workspace_id IS NOT NULL"""

# Nothing may be sorted while we seal: the statistics know little of a table that fills and empties
# all day, and of a backlog of 100,000 PostgreSQL would read and sort all for the first 5,000.
# Without sorting it walks the index, in whose order they are wanted.
TAKE_LOCK = "SELECT pg_try_advisory_xact_lock(%b, %b), set_config('enable_sort', 'off', true)"

# The moment is written as `leaves.received_text` writes it: to read each and write it again took a
# third of the sealer's time. Each event is looked up by itself (OFFSET 0 keeps it so).
WAITING_EVENTS = """
SELECT u.place, e.event_id, e.type,
    to_char(e.received_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    e.actor_kind || ':' || e.actor, e.digest, e.key_prefix, e.trusted
FROM ledger_unsealed u
CROSS JOIN LATERAL (
    SELECT * FROM ledger_event e WHERE e.workspace_id = u.workspace_id AND e.place = u.place
        AND e.received_at = u.received_at OFFSET 0) e
WHERE u.workspace_id = %b ORDER BY u.place LIMIT %b"""

# Hashes travel end to end, 32 bytes each; the leaves follow one another from the tree's size on.
NEW_LEAVES = f"""
INSERT INTO ledger_leaf (workspace_id, index, place, hash)
SELECT %b, %b::bigint + i - 1, place::bigint, substring(%b::bytea FROM 32 * i::int - 31 FOR 32)
FROM unnest({LIST}) WITH ORDINALITY AS u (place, i)"""  # noqa: S608

NEW_NODES = """
INSERT INTO ledger_treenode (workspace_id, level, index, hash)
SELECT %b, level, index, hash FROM unnest(%b::int[], %b::bigint[], %b::bytea[])
AS u (level, index, hash)"""

# The living key of each log, and how many leaves there are.
LOGS = """
SELECT k.workspace_id, k.public_key, k.origin, coalesce((
    SELECT l.index + 1 FROM ledger_leaf l WHERE l.workspace_id = k.workspace_id
    ORDER BY l.index DESC LIMIT 1), 0)
FROM ledger_logkey k WHERE k.retired_at IS NULL"""

SEALED = f"""
DELETE FROM ledger_unsealed WHERE workspace_id = %b AND place = ANY({LIST}::bigint[])"""  # noqa: S608


def seal_all() -> int:
    """Seal what waits, some of every workspace in turn, for at most five seconds."""
    done, until = 0, time.monotonic() + TURN_SECONDS_MAX
    while time.monotonic() < until:
        sealed = each(_waiting(), seal)
        done += sealed
        if not sealed:
            break
    return done


def _waiting() -> list[Workspace]:
    with connection.cursor() as cursor:
        cursor.execute(WAITING_WORKSPACES)
        ids = [workspace_id for (workspace_id,) in cursor.fetchall()]
    return list(Workspace.objects.filter(pk__in=ids)) if ids else []


@transaction.atomic
def seal(workspace: Workspace) -> int:
    """Give up to 5,000 waiting events their leaves under one new head; returns how many."""
    if not take_lock(workspace):
        return 0
    rows = _run(WAITING_EVENTS, [workspace.pk, EVENTS_AT_A_TIME])
    if not rows:
        return 0
    size = tree_size(workspace)
    signer, extension = checked(workspace, logkeys.signer(workspace), size)
    _sign(workspace, signer, extension, size, rows)
    return len(rows)


def look_back() -> int:
    """Notice each log that went back though nothing waits to be sealed in it, as at a start over an
    older database: else its first act would be let through. Returns how many.

    What could not be kept outside is tried again: `NotKept` until it is, for /statusz to tell.
    """
    found = [
        pk for pk, public, origin, size in _run(LOGS, []) if _is_behind(bytes(public), origin, size)
    ]
    try:
        return each(Workspace.objects.filter(pk__in=found), _look_back) if found else 0
    finally:
        _keep_again()


def _keep_again() -> None:
    with _keeping:
        for note in list(_unkept.values()):
            try:
                _keep(note)
            except OSError as full:
                words = "no head of a log can be kept in AMENDS_HEADS_FOLDER"
                raise NotKept(f"{words}: {full.strerror}") from full


def _is_behind(public: bytes, origin: str, size: int) -> bool:
    last = _last_of(public, origin)
    return is_unreadable(origin, public) if last is None else size < last.size


@transaction.atomic
def _look_back(workspace: Workspace) -> bool:
    if not take_lock(workspace):
        return False  # whoever has it looks
    size = tree_size(workspace)
    signer, extension = checked(workspace, logkeys.signer(workspace), size)
    if not extension:
        return False
    rows = _run(WAITING_EVENTS, [workspace.pk, EVENTS_AT_A_TIME])  # what tells of it among them
    _sign(workspace, signer, extension, size, rows)
    return True


def _sign(
    workspace: Workspace,
    signer: Signer,
    extension: list[str],
    size: int,
    rows: list[tuple[Any, ...]],
) -> None:
    """Sign the tree of so many leaves with these events behind them. Of a log that begins anew also
    what is left of it: so that who read the old one is told from which number on to read again.
    """
    growth = merkle.Growth(size, frontier(workspace, size))
    if extension:
        _sign_one(workspace, signer, extension, growth)
    _grow(workspace, growth, rows)
    _sign_one(workspace, signer, extension, growth)


def _sign_one(
    workspace: Workspace, signer: Signer, extension: list[str], growth: merkle.Growth
) -> None:
    note = signer.sign(merkle.checkpoint(signer.origin, growth.size, growth.root, extension))
    TreeHead.objects.create(
        workspace=workspace, origin=signer.origin, size=growth.size, root=growth.root, note=note
    )
    transaction.on_commit(lambda: remember(note, signer), robust=True)


def take_lock(workspace: Workspace) -> bool:
    """Whether this transaction is the one that seals the workspace; it then sorts nothing."""
    ((is_ours, _),) = _run(TAKE_LOCK, [LOCK, workspace.pk])
    return bool(is_ours)


def tree_size(workspace: Workspace) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT index + 1 FROM ledger_leaf WHERE workspace_id = %s ORDER BY index DESC LIMIT 1",
            [workspace.pk],
        )
        row = cursor.fetchone()
    return row[0] if row else 0


def frontier(workspace: Workspace, size: int) -> list[bytes]:
    """The hashes of the peaks of the present tree."""
    peaks = merkle.peaks(0, size)
    stored = stored_nodes(workspace.pk, merkle.stored_for([(0, size)]))
    return [merkle.hashed(node, stored) for node in peaks]


def _grow(workspace: Workspace, growth: merkle.Growth, rows: list[tuple[Any, ...]]) -> None:
    size, hashes = growth.size, []
    for _, event, type_, received, actor, digest, key, trusted in rows:
        entry = Entry(workspace.slug, event, type_, received, actor, bytes(digest), key, trusted)
        hashes.append(leaf_hash(leaf_bytes(entry)))
        growth.add(hashes[-1])
    places = joined_numbers([row[0] for row in rows])
    _run(NEW_LEAVES, [workspace.pk, size, b"".join(hashes), places])
    if growth.fresh:
        levels, inner, found = (list(column) for column in zip(*growth.fresh, strict=True))
        _run(NEW_NODES, [workspace.pk, levels, inner, found])
    _run(SEALED, [workspace.pk, places])


def _run(sql: str, values: list[Any]) -> list[tuple[Any, ...]]:
    cursor = Cursor(plain_connection())
    cursor.execute(sql, values)
    return cursor.fetchall() if cursor.description else []


WentBack = Callable[[Workspace, ParsedHead, int], None]
"""Given the last good head and how many entries are left; called in the sealer's transaction."""

_when_back: list[WentBack] = []

# The last head that this process signed, by public key.
_last: dict[bytes, ParsedHead] = {}

# Notes for which there was no room in the folder, by origin; the jobs of this process write there.
_unkept: dict[str, str] = {}
_keeping = threading.Lock()


class NotKept(Exception):
    """We stopped because a head that is signed cannot be kept outside the database: make room in
    AMENDS_HEADS_FOLDER. It is kept as soon as there is some.
    """


def when_it_goes_back(tell: WentBack) -> WentBack:
    """Register what is done, in the same transaction, when a log is found to have gone back."""
    _when_back.append(tell)
    return tell


def checked(workspace: Workspace, signer: Signer, size: int) -> tuple[Signer, list[str]]:
    """The key to sign with, and the lines to add, given the size of the tree as it now stands."""
    last = last_of(signer) or _kept(workspace, signer.origin)
    is_told = not is_unreadable(signer.origin, signer.public)
    if last is None or (is_told and _still_there(workspace, last, size)):
        return signer, []
    logger.error("the log of %s went back behind %s of %s", workspace, last.size, last.origin)
    root = merkle.base64_text(last.root)
    for tell in _when_back:
        tell(workspace, last, size)
    new = logkeys.begin_anew(workspace, last, is_taken=_is_kept)
    return new, [f"after {last.origin} {last.size} {root}"]


def _kept(workspace: Workspace, origin: str) -> ParsedHead | None:
    """The newest head in the database itself: a process that has just started knows no other."""
    heads = TreeHead.objects.filter(workspace=workspace, origin=origin)
    row = heads.order_by("-size").first()
    return ParsedHead(origin, row.size, bytes(row.root)) if row else None


def _still_there(workspace: Workspace, last: ParsedHead, size: int) -> bool:
    if size < last.size:
        return False
    stored = stored_nodes(workspace.pk, merkle.stored_for([(0, last.size)]))
    try:
        return merkle.root_of(0, last.size, stored) == last.root
    except KeyError:
        return False


def remember(note: str, signer: Signer) -> None:
    """Keep a head that is committed: in this process, and in a file where one is configured."""
    head = _last[signer.public] = ParsedHead.of(note)
    with _keeping:
        _unkept[head.origin] = note
        _keep(note)


def _keep(note: str) -> None:
    head = ParsedHead.of(note)
    path = _path(head.origin)
    if path is not None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(note)
                file.flush()
                os.fsync(file.fileno())  # half a head after a power cut would hold everything
            known = remembered(head.origin)
            if known is not None and known.size > head.size:  # another sealer was quicker
                Path(name).unlink()
            else:
                Path(name).replace(path)
        except OSError:  # a full disk would be full of them: five a second
            Path(name).unlink(missing_ok=True)
            raise
    del _unkept[head.origin]


def last_of(signer: Signer) -> ParsedHead | None:
    """The newest head known of a log, from memory or file."""
    return _last_of(signer.public, signer.origin)


def _last_of(public: bytes, origin: str) -> ParsedHead | None:
    known = [h for h in (_last.get(public), remembered(origin)) if h is not None]
    return max(known, key=lambda head: head.size, default=None)


def is_unreadable(origin: str, public: bytes = b"") -> bool:
    """Whether a head was kept that nobody can read now, neither in the file nor in memory: then
    nobody knows whether entries are gone.
    """
    return _is_kept(origin) and public not in _last and remembered(origin) is None


def _is_kept(origin: str) -> bool:
    """Whether a head of this log was kept outside, readable or not."""
    path = _path(origin)
    return path is not None and path.exists()


def remembered(origin: str) -> ParsedHead | None:
    """The head that the file keeps, if there is one."""
    path = _path(origin)
    if path is None or not path.exists():
        return None
    try:
        return ParsedHead.of(path.read_text())
    except (ValueError, OSError):
        logger.exception("%s is not a checkpoint", path)
        return None


def all_remembered() -> Iterator[ParsedHead]:
    """The heads that the files keep, of whatever log, but for those that nobody can read."""
    folder: str = settings.AMENDS_HEADS_FOLDER
    for path in sorted(Path(folder).glob("*.note")) if folder else ():
        try:
            yield ParsedHead.of(path.read_text())
        except (ValueError, OSError):
            logger.exception("%s is not a checkpoint", path)


def _path(origin: str) -> Path | None:
    folder: str = settings.AMENDS_HEADS_FOLDER
    return (
        Path(folder) / f"{hashlib.sha256(origin.encode()).hexdigest()[:32]}.note"
        if folder
        else None
    )
