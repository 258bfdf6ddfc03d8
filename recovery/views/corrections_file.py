"""The list of corrections as a file."""

from django.db.models import QuerySet
from django.http import HttpResponseBase

from ledger import disclosure
from recovery.models import Correction
from workspaces import exporting
from workspaces.models import Workspace
from workspaces.pages import Request

COLUMNS: exporting.Columns = {
    "correction": "reference",
    "state": "state",
    "title": "title",
    "person": lambda one: one.person_name or one.person_id,
    "case": "case_id",
    "run": "case.run.run",
    "published_at": "published_at",
    "first_opened_at": "first_read_at",
    "times_opened": "read_count",
    "contested_at": "still_wrong_at",
}


def answer(request: Request, here: Workspace, found: QuerySet[Correction]) -> HttpResponseBase:
    rows = found.select_related("case__run").order_by("-pk")
    clean = disclosure.cleaner(request.user, here)
    return exporting.sheet(request, "corrections", rows, COLUMNS, clean)
