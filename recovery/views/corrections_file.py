"""The list of corrections as a file."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponseBase

from ledger import disclosure
from recovery.models import Correction
from workspaces import exporting
from workspaces.models import Workspace
from workspaces.pages import Request

COLUMNS = (
    "correction", "state", "title", "person", "case", "run", "published_at", "first_read_at",
    "read_count", "contested_at",
)  # fmt: skip


def answer(request: Request, here: Workspace, found: QuerySet[Correction]) -> HttpResponseBase:
    def read(keys: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        for one in exporting.in_order(found.select_related("case__run"), keys):
            yield (one.reference, one.state, one.title, one.person_name or one.person_id,
                   one.case_id, one.case.run.run, one.published_at, one.first_read_at,
                   one.read_count, one.still_wrong_at)  # fmt: skip

    clean = disclosure.cleaner(request.user, here)
    rows = exporting.keys(found.order_by("-pk"))
    export = exporting.Export("corrections", COLUMNS, rows, read, clean)
    return exporting.answer(request, export)
