"""The HTTP API of the recovery queue: the same verbs as the pages, with the same checks.

A person's token acts like its owner, in its one workspace. It posts the digest and the revision
that it saw, and it never decides an approval. What cannot be done is an RFC 9457 problem.

An agent asks about its own runs with its key: their cases, and says that a run did wrong. Of a case
it is told how it stands and what becomes of its plans; never what people wrote about it, who they
are, what an affected person is told, or what a connector read in an outside system.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from django.db.models import QuerySet
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from ninja import Field, Router, Schema
from pydantic import AwareDatetime

from ledger import disclosure
from ledger.models import Action, Checkpoint, Run
from ledger.models.events import ACTION_ID_CHARACTERS_MAX
from recovery import search, serializers
from recovery.cases.lifecycle import REFUSALS, NotPossible, OutOfDate, reread
from recovery.casework import cases, closing, resuming, settling
from recovery.casework.closing import CannotClose, Remainder
from recovery.corrections import draft, publish
from recovery.corrections.facts import without_values
from recovery.engine.steps import RELATED
from recovery.models import Case, CaseState, Correction, Plan, Report, ReportSource, Step
from recovery.planning import plans
from recovery.planning.plans import TargetsDrifted
from workspaces import access
from workspaces.free_text import InvalidInput
from workspaces.keys import AsPerson, ByAgent, ByPerson, TokenOwner, caller_of
from workspaces.models import User, Workspace
from workspaces.pages import is_number, problem_response

LIMIT_DEFAULT = 50
F = TypeVar("F", bound=Callable[..., Any])


router = Router(auth=ByPerson(), tags=["recovery"])


class Compensate(Schema):
    digest: str = Field(max_length=64)
    restores: str = Field(default="", max_length=64)
    revision: int
    reason: str = Field(min_length=1, max_length=2_000)
    reach: int | None = None
    choices: dict[int, str] = Field(default_factory=dict, max_length=1_000)


class Resume(Schema):
    digest: str = Field(max_length=64)
    revision: int
    reason: str = Field(default="", max_length=2_000)
    checkpoint: int | None = None


class Residue(Schema):
    text: str = Field(min_length=1, max_length=4_000)
    owner: str = Field(max_length=320)
    due_at: AwareDatetime
    effect: int | None = None


class Close(Schema):
    outcome: str = Field(max_length=20)
    reason: str = Field(min_length=1, max_length=4_000)
    revision: int
    left: list[Residue] = Field(default_factory=list, max_length=200)


class Settle(Schema):
    revision: int
    outcome: str = Field(max_length=20)
    evidence: str = Field(min_length=1, max_length=settling.EVIDENCE_CHARACTERS_MAX)
    action: str = Field(default="", max_length=ACTION_ID_CHARACTERS_MAX)
    step: int | None = None
    against_probe: bool = False


class Reopen(Schema):
    revision: int
    reason: str = Field(min_length=1, max_length=cases.TEXT_CHARACTERS_MAX)


class ResidueNote(Schema):
    note: str = Field(min_length=1, max_length=4_000)


class SeenRevision(Schema):
    revision: int


class Publish(Schema):
    revision: int
    ways: list[str] = Field(default_factory=lambda: ["link"], max_length=3)


def answering(operation: F) -> F:
    """Say what stopped us as a problem, with what the caller needs to try again."""

    @wraps(operation)
    def answered(*args: Any, **given: Any) -> Any:
        try:
            return operation(*args, **given)
        except OutOfDate as stale:
            return problem_response(409, "Out of date", str(stale), revision=stale.case.revision)
        except search.QueryError as wrong:
            return problem_response(
                422, "The query cannot be read", wrong.message, position=wrong.position
            )
        except TargetsDrifted as drifted:
            return _drifted(args[0], drifted)
        except (NotPossible, InvalidInput) as stopped:
            return _stopped(stopped)
        except search.BadPlace as wrong:
            return problem_response(400, "No such place", str(wrong))

    return answered  # type: ignore[return-value]


@router.get("/cases", summary="Cases that a query means, a page at a time")
@answering
def list_cases(
    request: AsPerson,
    q: str = "",
    order: str = search.DEFAULT_ORDER,
    after: str = "",
    limit: int = LIMIT_DEFAULT,
    everything: bool = False,  # noqa: FBT001, FBT002 - a query parameter has a name on the wire
) -> Any:
    token = allowed(request, "view")
    found = search.find(
        token.workspace,
        q,
        by=token.person,
        order=order,
        after=after,
        limit=limit,
        everything=everything,
    )
    number = search.count(token.workspace, q, by=token.person, everything=everything, found=found)
    return {
        "cases": [serializers.case(one) for one in found.cases],
        "after": found.after,
        "count": number.number,
        "count_is_capped": number.capped,
        "is_cut_to_recent": found.is_cut,
    }


@router.get("/cases/{int:pk}", summary="One case with its plans and corrections")
@answering
def get_case(request: AsPerson, pk: int) -> Any:
    case = case_of(request, pk, "view")
    made = list(case.plans.order_by("number"))
    sees = bool(made) and reveals(request, case)
    told = case.corrections.order_by("pk")
    return serializers.case(case) | {
        "plans": [serializers.plan(one, sensitive=sees) for one in made],
        "corrections": [serializers.correction(one, recovers=recovers(request)) for one in told],
        "in_doubt": serializers.in_doubt(case),
    }


@router.get("/cases/{int:pk}/preview", summary="What compensating, resuming or closing would do")
@answering
def preview(
    request: AsPerson,
    pk: int,
    verb: str = "compensate",
    checkpoint: int | None = None,
    choice: str = "",
) -> Any:
    """`choice` is `effect:how` pairs with commas between, how being rebase, override or skip."""
    case = case_of(request, pk, "view")
    place = checkpoint_of(case, checkpoint)
    if verb == "resume":
        return serializers.resume(resuming.preview(case, checkpoint=place))
    if verb == "close":
        return serializers.closing(case)
    if verb != "compensate":
        return problem_response(422, "No such verb", "compensate, resume or close")
    drafted = plans.draft(case, reach=place, choices=read_choices(choice))
    return serializers.draft(drafted, sensitive=reveals(request, case))


@router.post("/cases/{int:pk}/compensate", summary="Submit the plan that was previewed")
@answering
def compensate(request: AsPerson, pk: int, given: Compensate) -> Any:
    case = case_of(request, pk, "recover")
    plan = plans.submit(
        case,
        digest=given.digest,
        revision=given.revision,
        restores=given.restores,
        by=request.auth.person,
        reason=given.reason,
        reach=checkpoint_of(case, given.reach),
        choices=given.choices,
    )
    return serializers.plan(plan, sensitive=reveals(request, case))


@router.post("/cases/{int:pk}/resume", summary="Issue the directive that was previewed")
@answering
def resume(request: AsPerson, pk: int, given: Resume) -> Any:
    case = case_of(request, pk, "recover")
    directive = resuming.commit(
        case,
        digest=given.digest,
        revision=given.revision,
        by=request.auth.person,
        reason=given.reason,
        checkpoint=checkpoint_of(case, given.checkpoint),
    )
    return {"directive": directive.pk, "acknowledge_by": directive.acknowledge_by}


@router.post("/cases/{int:pk}/close", summary="Close the case")
@answering
def close(request: AsPerson, pk: int, given: Close) -> Any:
    case = case_of(request, pk, "recover")
    closed = closing.close(
        case,
        outcome=given.outcome,
        reason=given.reason,
        by=request.auth.person,
        seen=given.revision,
        left=[left_of(one, case.workspace) for one in given.left],
    )
    return serializers.case(closed)


@router.post("/cases/{int:pk}/settle", summary="Say what became of a call in doubt")
@answering
def settle(request: AsPerson, pk: int, given: Settle) -> Any:
    """One of the case's `in_doubt`: an `action` of the run (`applied`, `no_effect`), or a `step` of
    a plan (these, `again` or `skip`). Where a probe shows the opposite just now it is 409, unless
    `against_probe` says that the system is wrong.
    """
    case = case_of(request, pk, "recover")
    by, seen, words = request.auth.person, given.revision, given.evidence
    if bool(given.action) == (given.step is not None):
        return problem_response(422, "Of which?", "Name an action or a step, and not both.")
    subject: Action | Step
    if given.step is not None:
        found = Step.objects.select_related(*RELATED)
        subject = get_object_or_404(found, pk=given.step, plan__case=case)
    else:
        subject = get_object_or_404(Action, run=case.run_id, action=given.action)
    said = {"outcome": given.outcome, "evidence": words}
    try:
        if isinstance(subject, Step):
            settling.decide_step(subject, way=given.outcome, words=words, by=by, seen=seen)
        else:
            settling.settle_call(
                case, subject, by=by, seen=seen, against_probe=given.against_probe, **said
            )
    except REFUSALS:
        if not settling.is_said(case, subject, way=given.outcome, words=words, by=by, seen=seen):
            raise
    return serializers.case(reread(case)) | {"in_doubt": serializers.in_doubt(case)}


@router.post("/cases/{int:pk}/reopen", summary="Bring a closed case back into the queue")
@answering
def reopen(request: AsPerson, pk: int, given: Reopen) -> Any:
    case = case_of(request, pk, "recover")
    by, seen = request.auth.person, given.revision
    return serializers.case(cases.reopen(case, by=by, seen=seen, reason=given.reason))


@router.post("/cases/{int:pk}/claim", summary="Take the case in hand for a quarter of an hour")
@answering
def claim(request: AsPerson, pk: int, given: SeenRevision) -> Any:
    case = case_of(request, pk, "recover")
    return serializers.case(cases.claim(case, by=request.auth.person, seen=given.revision))


@router.post("/cases/{int:pk}/release", summary="Give the case back")
@answering
def release(request: AsPerson, pk: int, given: SeenRevision) -> Any:
    case = case_of(request, pk, "recover")
    return serializers.case(cases.release(case, by=request.auth.person, seen=given.revision))


@router.post("/cases/{int:pk}/corrections", summary="Draft what each affected person is told")
@answering
def draft_corrections(request: AsPerson, pk: int) -> Any:
    case = case_of(request, pk, "recover")
    return {"corrections": [serializers.correction(one, recovers=True) for one in draft(case)]}


@router.get("/corrections/{int:pk}", summary="One correction with its facts")
@answering
def get_correction(request: AsPerson, pk: int) -> Any:
    found = correction_of(request, pk, "view")
    shown = serializers.correction(found, recovers=recovers(request))
    if recovers(request) or reveals(request, found.case):
        return shown | {"facts": found.facts, "wording": found.wording}
    return shown | {"facts": without_values(found.facts)}


@router.post("/corrections/{int:pk}/publish", summary="Publish a correction and send it")
@answering
def publish_correction(request: AsPerson, pk: int, given: Publish) -> Any:
    found = correction_of(request, pk, "recover")
    published = publish(found, by=request.auth.person, seen=given.revision, ways=given.ways)
    return serializers.correction(published, recovers=True)


@router.get("/residues", summary="What could not be undone, the first due first")
@answering
def list_residues(request: AsPerson, state: str = "open", after: str = "") -> Any:
    """`state` is open, done or all; `after` goes on where an answer ended."""
    token = allowed(request, "view")
    if state not in closing.RESIDUE_STATES:
        return problem_response(422, "No such state", "open, done or all")
    rows, more = closing.residues_after(closing.residues_of(token.workspace), state, after)
    return {"residues": [serializers.residue(one) for one in rows], "after": more}


@router.post("/residues/{int:pk}/done", summary="Say that it is dealt with, and how")
@answering
def residue_done(request: AsPerson, pk: int, given: ResidueNote) -> Any:
    """By whoever may recover, and by the owner."""
    token = allowed(request, "view")
    found = get_object_or_404(closing.residues_of(token.workspace), pk=pk)
    return serializers.residue(closing.residue_done(found, note=given.note, by=token.person))


@router.get("/plans/{int:pk}", summary="A plan and how its steps stand")
@answering
def get_plan(request: AsPerson, pk: int) -> Any:
    token = allowed(request, "view")
    plan = get_object_or_404(
        Plan.objects.select_related("case__run"), pk=pk, workspace=token.workspace
    )
    return serializers.plan(plan, sensitive=reveals(request, plan.case))


def _stopped(why: Exception) -> JsonResponse:
    if isinstance(why, settling.ProbeDisagrees):
        kind = "urn:amends:problem:probe-disagrees"
        return problem_response(409, "The system says otherwise", str(why), type=kind)
    return problem_response(422, "Not possible now", str(why))


def _drifted(request: AsPerson, stopped: TargetsDrifted) -> JsonResponse:
    found = stopped.draft
    return problem_response(
        409,
        "The target has drifted",
        str(stopped),
        type="urn:amends:problem:drifted",
        revision=found.case.revision,
        digest=found.digest,
        restores=found.restores,
        drifted=serializers.drifted_steps(found, sensitive=reveals(request, found.case)),
    )


def reveals(request: AsPerson, case: Case) -> bool:
    """Whether this person is shown payloads; who is, is on the record, as for a run."""
    token = request.auth
    return disclosure.reveals(token.person, token.workspace, run=case.run.run, case=case.pk)


def recovers(request: AsPerson) -> bool:
    return access.may(request.auth.person, "recover", request.auth.workspace)


def allowed(request: AsPerson, codename: access.Codename) -> TokenOwner:
    """The caller; raises NotAllowed (403) unless the owner holds the permission there."""
    access.require(request.auth.person, codename, request.auth.workspace)
    return request.auth


def case_of(request: AsPerson, pk: int, codename: access.Codename) -> Case:
    token = allowed(request, codename)
    found = Case.objects.select_related("run", "workspace", "agent", "cause", "claimed_by")
    return get_object_or_404(found, pk=pk, workspace=token.workspace)


def correction_of(request: AsPerson, pk: int, codename: access.Codename) -> Correction:
    token = allowed(request, codename)
    found = Correction.objects.select_related("case__run", "workspace")
    return get_object_or_404(found, pk=pk, workspace=token.workspace)


def checkpoint_of(case: Case, pk: int | None) -> Checkpoint | None:
    return None if pk is None else get_object_or_404(Checkpoint, pk=pk, run=case.run_id)


def read_choices(text: str) -> dict[int, str]:
    """`17:rebase,18:skip`; what cannot be read is left out."""
    pairs = (one.partition(":") for one in text.split(",")[:1_000])
    return {int(effect): how for effect, _, how in pairs if is_number(effect.strip())}


def left_of(given: Residue, workspace: Workspace) -> Remainder:
    """Who is somewhere else at this desk is nobody here: nobody learns who has an account."""
    owner = User.objects.filter(email__iexact=given.owner, is_active=True).first()
    if owner is None or not access.may(owner, "view", workspace):
        raise CannotClose(f"There is nobody here with the address {given.owner}.")
    return Remainder(text=given.text, owner=owner, due_at=given.due_at, effect_id=given.effect)


# What an agent asks about its own runs.

CASES_A_PAGE = 50


@router.get(
    "/agent/cases",
    summary="The cases of this agent's runs, the newest first",
    auth=ByAgent("read"),
    tags=["agents"],
)
@answering
def list_own_cases(request: HttpRequest, run: str = "", after: str = "") -> Any:
    """`run` narrows them to one run; `after` goes on where an answer ended."""
    own = own_cases(request).order_by("-pk")
    if run:
        own = own.filter(run__run=run)
    if after and not is_number(after):
        return problem_response(400, "No such place", "after is what the last answer gave")
    if after:
        own = own.filter(pk__lt=int(after))
    found = list(own[: CASES_A_PAGE + 1])
    page = found[:CASES_A_PAGE]
    return {
        "cases": [serializers.case_of_agent(one) for one in page],
        "after": str(page[-1].pk) if len(found) > CASES_A_PAGE else "",
    }


@router.get(
    "/agent/cases/{int:pk}",
    summary="One of them, and how its plans stand",
    auth=ByAgent("read"),
    tags=["agents"],
)
@answering
def get_own_case(request: HttpRequest, pk: int) -> Any:
    case = get_object_or_404(own_cases(request), pk=pk)
    plans = case.plans.select_related("workspace").order_by("number")
    return serializers.case_of_agent(case) | {
        "plans": [serializers.plan_of_agent(one) for one in plans]
    }


def own_cases(request: HttpRequest) -> QuerySet[Case]:
    caller = caller_of(request)
    own = Case.objects.filter(workspace=caller.workspace, run__agent=caller.agent)
    return own.select_related("run")


STANDING_MAX = 20
"""Reports of an agent on one run; whoever says more is talking to itself."""


class ReportRequest(Schema):
    text: str = Field(min_length=1, max_length=4_000, pattern=r"\S")


@router.post(
    "/runs/{path:run}/report",
    summary="Say that this run did wrong",
    auth=ByAgent("ingest"),
    tags=["agents"],
)
@answering
def report(request: HttpRequest, run: str, given: ReportRequest) -> Any:
    """Opens the run's case, as an operator or an affected person does. The same words again, while
    they stand, are the same report, so that a lost answer may be asked for again.
    """
    caller = caller_of(request)
    found = get_object_or_404(Run, workspace=caller.workspace, run=run, agent=caller.agent)
    standing = Report.objects.filter(case__run=found, source=ReportSource.AGENT)
    standing = standing.exclude(case__state=CaseState.CLOSED)
    text = cases.plain(given.text)
    known = standing.filter(text=text).select_related("case").first()
    if known is None and standing.count() >= STANDING_MAX:
        return problem_response(429, "Too many reports", "People know of this run; wait for them.")
    case = known.case if known else cases.report(found, text=text, source=ReportSource.AGENT)
    return {"case": case.pk, "state": case.state, "headline": case.headline}
