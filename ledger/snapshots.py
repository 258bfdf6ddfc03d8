"""Large snapshots: those of an effect that are kept as blobs, put in its place to be compared.

A page or a look of triage takes in a few megabytes of them; a larger one stays a reference, and is
said to be too large, with a link to it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any, Protocol

from ledger.models import Blob
from ledger.models.runs import REF_CHARACTERS

REF = "ref"
PREFIX = "sha256:"
NAME = re.compile(f"{PREFIX}[0-9a-f]{{64}}")
BYTES_EACH_MAX = 1024 * 1024
BYTES_MAX = 4 * 1024 * 1024
"""Of all that are taken in at one look, the first ones first."""


def naming(ref: str) -> str:
    """SQL for the actions of a workspace with an effect that holds this reference, itself SQL. What
    is said of its length is what the two indexes say.
    """
    return " UNION ALL ".join(
        f"SELECT action_id FROM ledger_effect WHERE workspace_id = %(workspace)s"  # noqa: S608
        f" AND {column} ->> '{REF}' = {ref} AND length({column} ->> '{REF}') = {REF_CHARACTERS}"
        for column in ("before", "after")
    )


class HasSnapshots(Protocol):
    before: Any
    after: Any


def is_ref(value: Any) -> bool:
    """Whether it names a snapshot and is none itself; a row may have a column of that name."""
    return (
        isinstance(value, dict)
        and set(value) == {REF}
        and isinstance(value[REF], str)
        and NAME.fullmatch(value[REF]) is not None
    )


def digest_of(value: dict[str, Any]) -> str:
    return str(value[REF]).removeprefix(PREFIX)


def content_of(workspace_id: int, sha256: str) -> bytes | None:
    """The JSON of a snapshot by its digest; None where it is not kept, or no longer what the events
    name: the row may be written, what it has to say may not.
    """
    rows = Blob.objects.filter(workspace=workspace_id, sha256=sha256)
    return _as_named(sha256, rows.values_list("content", flat=True).first())


def _as_named(sha256: str, content: bytes | memoryview | None) -> bytes | None:
    found = None if content is None else bytes(content)
    if found is None or hashlib.sha256(found).hexdigest() != sha256:
        return None
    return found


def looked_up(workspace_id: int, said: Any) -> Any:
    """What a call came with, a snapshot or one for each target: with those that are kept as blobs
    in place of their references, within the limits.
    """
    each = said if isinstance(said, list) else [said]
    wanted = {digest_of(one) for one in each if is_ref(one)}
    if not wanted:
        return said
    found = _read(workspace_id, wanted)
    placed = [found.get(digest_of(one), one) if is_ref(one) else one for one in each]
    return placed if isinstance(said, list) else placed[0]


def put_in_place(workspace_id: int, effects: Iterable[HasSnapshots]) -> None:
    """Replace references by the snapshots that they name, in memory alone and within the limits.

    What is gone or too large stays a reference.
    """
    holding = [one for one in effects if is_ref(one.before) or is_ref(one.after)]
    wanted = {
        digest_of(value) for one in holding for value in (one.before, one.after) if is_ref(value)
    }
    if not wanted:
        return
    found = _read(workspace_id, wanted)
    for one in holding:
        for name in ("before", "after"):
            value = getattr(one, name)
            if is_ref(value) and digest_of(value) in found:
                setattr(one, name, found[digest_of(value)])


def _read(workspace_id: int, wanted: set[str]) -> dict[str, Any]:
    known = Blob.objects.filter(workspace=workspace_id, sha256__in=wanted, content__isnull=False)
    sizes = known.filter(byte_count__lte=BYTES_EACH_MAX).values_list("pk", "byte_count")
    chosen, total = [], 0
    for pk, size in sizes.order_by("byte_count", "pk"):
        total += size
        if total > BYTES_MAX:
            break
        chosen.append(pk)
    rows = Blob.objects.filter(pk__in=chosen).values_list("sha256", "content")
    kept = ((sha256, _as_named(sha256, content)) for sha256, content in rows)
    return {sha256: json.loads(content) for sha256, content in kept if content is not None}
