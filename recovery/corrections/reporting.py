"""“Something is still wrong”: the affected person's word opens a case."""

from __future__ import annotations

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from recovery.casework import cases
from recovery.models import Case, Correction, ReportSource

TEXT_CHARACTERS_MAX = 4_000
REPORTS_MAX = 5
"""By one link: more of them tell an operator nothing new, and a link can be shared."""


class TooManyReports(Exception):
    """We stopped because this correction was reported often enough: a person is looking at it."""


@transaction.atomic
def still_wrong(correction: Correction, text: str) -> Case:
    """Bring the case back with what the person says; raises TooManyReports or cases.Empty."""
    correction = Correction.objects.select_for_update(of=("self",)).get(pk=correction.pk)
    reports = correction.case.reports.filter(source=ReportSource.END_USER).count()
    if reports >= REPORTS_MAX:
        raise TooManyReports
    text = text[:TEXT_CHARACTERS_MAX]
    case = cases.report(correction.case.run, text=text, source=ReportSource.END_USER)
    Correction.objects.filter(pk=correction.pk).update(
        still_wrong_at=timezone.now(), still_wrong_text=text.strip(), revision=F("revision") + 1
    )
    return case
