"""An agent says that a run of its own did wrong: `POST /api/v1/runs/{run}/report`.

It opens the run's case, as an operator or an affected person does. The same words again, while they
stand, are the same report, so that a lost answer may be asked for again.
"""

from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Field, Router, Schema

from ledger.models import Run
from recovery.api import answering, problem
from recovery.casework import cases
from recovery.models import CaseState, Report, ReportSource
from workspaces.keys import ByAgent, caller_of

router = Router(auth=ByAgent("ingest"), tags=["agents"])

STANDING_MAX = 20
"""Reports of an agent on one run; whoever says more is talking to itself."""


class ReportRequest(Schema):
    text: str = Field(min_length=1, max_length=4_000, pattern=r"\S")


@router.post("/runs/{path:run}/report", summary="Say that this run did wrong")
@answering
def report(request: HttpRequest, run: str, given: ReportRequest) -> Any:
    caller = caller_of(request)
    found = get_object_or_404(Run, workspace=caller.workspace, run=run, agent=caller.agent)
    standing = Report.objects.filter(case__run=found, source=ReportSource.AGENT)
    standing = standing.exclude(case__state=CaseState.CLOSED)
    text = cases.plain(given.text)
    known = standing.filter(text=text).select_related("case").first()
    if known is None and standing.count() >= STANDING_MAX:
        return problem(429, "Too many reports", "People know of this run; wait for them.")
    case = known.case if known else cases.report(found, text=text, source=ReportSource.AGENT)
    return {"case": case.pk, "state": case.state, "headline": case.headline}
