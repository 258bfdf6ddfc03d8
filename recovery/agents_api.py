"""An agent reads the cases of its own runs: `GET /api/v1/agent/cases`, and one of them.

It is told how they stand and what becomes of their plans; never what people wrote about a case, who
they are, what an affected person is told, or what a connector read in an outside system.
"""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Router

from recovery import serializers
from recovery.api import answering, problem
from recovery.models import Case
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
