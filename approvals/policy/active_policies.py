"""The policy in force, compiled once per digest and shared by every request of the process.

There is no signal and no restart: each look asks the database for the digest of the active version,
which is one row by a unique index, and only an unknown digest is read and compiled.

Bounds of a newer version may refuse what an older one has saved. Then nothing is judged there,
which is safe; a check at the start says so to whoever deploys, before agents hear of it.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple

from django.core.checks import CheckMessage, Tags, Warning, register  # noqa: A004
from django.db import DatabaseError

from amends.protocol.vocabulary import EventType
from approvals.models import PolicyVersion
from approvals.policy.document import Policy
from approvals.policy.loading import load
from approvals.policy.reading import Invalid, Mistake, PolicyUnreadable
from ledger.models import Event
from workspaces.models import Workspace

COMPILED_MAX = 500  # policies kept per process; the largest takes about a megabyte


class KnownChanges(NamedTuple):
    """What `changes` found while this version, activated then, was in force."""

    last: tuple[int, datetime | None]
    rows: Sequence[tuple[datetime, str]]


_compiled: OrderedDict[str, Policy] = OrderedDict()
_changes: OrderedDict[int, KnownChanges] = OrderedDict()
_lock = Lock()


@lru_cache(maxsize=1)
def default() -> Policy:
    """What holds where nobody has written a policy: the defaults of the classes."""
    return load({"agentSafety": {"policies": {}}})


def known(digest: str | None) -> Policy | None:
    """The compiled policy of a digest, if this process has it; the default for None."""
    if digest is None:
        return default()
    with _lock:
        found = _compiled.get(digest)
        if found is not None:
            _compiled.move_to_end(digest)
        return found


def keep(digest: str, document: Mapping[str, Any]) -> Policy:
    """Compile a stored document and keep it under its digest. Raises PolicyUnreadable, also of one
    that has another digest: it was not written by the desk.
    """
    try:
        policy = load(document)
    except Invalid as wrong:
        raise PolicyUnreadable(wrong.problems) from wrong
    if policy.digest != digest:
        raise PolicyUnreadable([Mistake("it is not the document that was saved under its digest")])
    with _lock:
        _compiled[digest] = policy
        while len(_compiled) > COMPILED_MAX:
            _compiled.popitem(last=False)
    return policy


def of_digest(workspace_id: int, digest: str) -> Policy | None:
    """The policy of a version that is still kept, compiled once; None where it is not."""
    found = default() if digest in {"", default().digest} else known(digest)
    if found is not None:
        return found
    rows = PolicyVersion.objects.filter(workspace_id=workspace_id, digest=digest)
    document = rows.values_list("document", flat=True).first()
    return None if document is None else keep(digest, document)


def active(workspace: Workspace | int) -> Policy:
    """The policy in force in a workspace. Raises PolicyUnreadable where it is none."""
    workspace_id = workspace if isinstance(workspace, int) else workspace.pk
    versions = PolicyVersion.objects.filter(workspace_id=workspace_id, active=True)
    digest = versions.values_list("digest", flat=True).first()
    found = known(digest)
    if found is not None:
        return found
    document = versions.values_list("digest", "document").get()
    return keep(*document)


def changes(workspace_id: int) -> Sequence[tuple[datetime, str]]:
    """When another version came into force and which one had been until then, by its digest (empty
    for none), oldest first: the ledger tells, for a version knows no more than its last time.

    All that people did outside a run is read for it, so it is kept until a version is activated
    anew, and kept only once the ledger tells of the last activation.
    """
    versions = PolicyVersion.objects.filter(workspace=workspace_id, active=True)
    last = versions.values_list("pk", "activated_at").first()
    with _lock:
        kept = _changes.get(workspace_id)
    if kept is not None and kept.last == last:
        return kept.rows
    told = Event.objects.filter(
        workspace=workspace_id, run="", type=EventType.POLICY_ACTIVATED
    ).order_by("place")
    found = told.values_list("received_at", "data__previous__digest")
    rows = tuple((moment, digest or "") for moment, digest in found)
    if last is not None and last[1] is not None and rows and rows[-1][0] >= last[1]:
        with _lock:
            _changes[workspace_id] = KnownChanges(last, rows)
            while len(_changes) > COMPILED_MAX:
                _changes.popitem(last=False)
    return rows


POLICIES_MAX = 1_000


@register(Tags.database)
def policies_can_be_read(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    if "default" not in (databases or ()):
        return []
    try:
        return unreadable()
    except DatabaseError:
        return []  # other checks say that the database is away, or has no tables yet


def unreadable() -> list[CheckMessage]:
    """One warning for each workspace: the others are judged as ever."""
    found: list[CheckMessage] = []
    versions = PolicyVersion.objects.filter(active=True).order_by("workspace__slug")
    rows = versions.values_list("workspace__slug", "number", "document")[:POLICIES_MAX]
    for slug, number, document in rows.iterator(chunk_size=50):
        try:
            load(document)
        except Invalid as wrong:
            found.append(
                Warning(
                    f"The policy in force in {slug} (version {number}) cannot be read: {wrong}",
                    hint="No agent is let through there until its policy page has a version in"
                    " force that can be.",
                    id="approvals.W001",
                )
            )
    return found
