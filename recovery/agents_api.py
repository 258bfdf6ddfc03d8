"""What an agent asks about its own runs: their cases, and that a run did wrong.

Of a case it is told how it stands and what becomes of its plans; never what people wrote about it,
who they are, what an affected person is told, or what a connector read in an outside system. Its
report opens the run's case, as an operator or an affected person does. The same words again, while
they stand, are the same report, so that a lost answer may be asked for again.
"""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Field, Router, Schema

from ledger.models import Run
from recovery import serializers
from recovery.api import answering, problem
from recovery.casework import cases
from recovery.models import Case, CaseState, Report, ReportSource
from workspaces.keys import ByAgent, caller_of
from workspaces.pages import is_number

router = Router(auth=ByAgent("read"), tags=["agents"])

CASES_A_PAGE = 50


@router.get("/agent/cases", summary="The cases of this agent's runs, the newest first")
@answering
def list_own_cases(request: HttpRequest, run: str = "", after: str = "") -> Any:
    """`run` narrows them to one run; `after` goes on where an answer ended."""
    cases = _own(request).order_by("-pk")
    if run:
        cases = cases.filter(run__run=run)
    if after and not is_number(after):
        return problem(400, "No such place", "after is what the last answer gave")
    if after:
        cases = cases.filter(pk__lt=int(after))
    found = list(cases[: CASES_A_PAGE + 1])
    page = found[:CASES_A_PAGE]
    return {
        "cases": [serializers.case_of_agent(one) for one in page],
        "after": str(page[-1].pk) if len(found) > CASES_A_PAGE else "",
    }


@router.get("/agent/cases/{int:pk}", summary="One of them, and how its plans stand")
@answering
def get_own_case(request: HttpRequest, pk: int) -> Any:
    case = get_object_or_404(_own(request), pk=pk)
    plans = case.plans.select_related("workspace").order_by("number")
    return serializers.case_of_agent(case) | {
        "plans": [serializers.plan_of_agent(one) for one in plans]
    }


def _own(request: HttpRequest) -> QuerySet[Case]:
    caller = caller_of(request)
    own = Case.objects.filter(workspace=caller.workspace, run__agent=caller.agent)
    return own.select_related("run")


STANDING_MAX = 20
"""Reports of an agent on one run; whoever says more is talking to itself."""


class ReportRequest(Schema):
    text: str = Field(min_length=1, max_length=4_000, pattern=r"\S")


@router.post(
    "/runs/{path:run}/report", summary="Say that this run did wrong", auth=ByAgent("ingest")
)
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
