"""Large snapshots: those of an effect that are kept as blobs, put in its place to be compared.

A page or a look of triage takes in a few megabytes of them; a larger one stays a reference, and is
said to be too large, with a link to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Protocol

from ledger.models import Blob

REF = "ref"
PREFIX = "sha256:"
BYTES_EACH_MAX = 1024 * 1024
BYTES_MAX = 4 * 1024 * 1024
"""Of all that are taken in at one look, the first ones first."""


class HasSnapshots(Protocol):
    before: Any
    after: Any


def is_ref(value: Any) -> bool:
    """Whether it names a snapshot and is none itself."""
    return isinstance(value, dict) and set(value) == {REF} and str(value[REF]).startswith(PREFIX)


def digest_of(value: dict[str, Any]) -> str:
    return str(value[REF]).removeprefix(PREFIX)


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
    return {sha256: json.loads(bytes(content or b"null")) for sha256, content in rows}
