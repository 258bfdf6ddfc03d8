"""Bulk over HTTP: a dry run on frozen cases, the job that it becomes, and how each went."""

from typing import Any

from django.shortcuts import get_object_or_404
from ninja import Field, Router, Schema

from ledger import disclosure
from recovery import search
from recovery.api import allowed, answering
from recovery.casework import bulk
from recovery.casework.bulk_verbs import USUAL, VERBS
from recovery.models import BulkJob
from workspaces import access
from workspaces.free_text import REASON_CHARACTERS_MAX, InvalidInput
from workspaces.keys import AsPerson, ByPerson, TokenOwner
from workspaces.pages import problem_response

router = Router(auth=ByPerson(), tags=["recovery"])

VERB_CHARACTERS_MAX = 20
CHOICE_CHARACTERS_MAX = 200


class BulkPreview(Schema):
    verb: str = Field(default=USUAL, max_length=VERB_CHARACTERS_MAX)
    q: str = Field(default="", max_length=search.QUERY_CHARACTERS_MAX)
    cases: list[int] | None = Field(default=None, max_length=bulk.CASES_MAX)
    chosen: str = Field(default="", max_length=CHOICE_CHARACTERS_MAX)


class SeenCase(Schema):
    case: int
    revision: int
    digest: str = Field(default="", max_length=64)
    restores: str = Field(default="", max_length=64)


class BulkStart(Schema):
    verb: str = Field(max_length=VERB_CHARACTERS_MAX)
    reason: str = Field(min_length=1, max_length=REASON_CHARACTERS_MAX)
    cases: list[SeenCase] = Field(min_length=1, max_length=bulk.CASES_MAX)
    q: str = Field(default="", max_length=search.QUERY_CHARACTERS_MAX)
    chosen: str = Field(default="", max_length=CHOICE_CHARACTERS_MAX)


@router.post("/bulk/preview", summary="What one act would do to many cases; writes nothing")
@answering
def preview_bulk(request: AsPerson, given: BulkPreview) -> Any:
    """Of the cases that `q` means, or of those named in `cases`."""
    token = acting(request, given.verb)
    if given.cases is None and not given.q.strip():
        return problem_response(422, "Of which?", "Say which cases: by q, or by their numbers.")
    try:
        seen = bulk.dry_run(
            token.workspace, given.verb, by=token.person, query=given.q, ids=given.cases,
            chosen=given.chosen,
        )  # fmt: skip
    except bulk.TooManyCases as many:
        return problem_response(422, "Too many cases", str(many))
    return {
        "verb": seen.verb,
        "eligible": [
            {
                "case": one.case.pk,
                "revision": one.case.revision,
                "digest": one.digest,
                "restores": one.restores,
                "headline": disclosure.without_secrets(one.headline),
                "approval": one.approval,
                "amount_minor": one.money.amount_minor if one.money else None,
                "currency": one.money.currency if one.money else "",
                "reversibility": one.reversibility,
                "unread": one.unread,
            }
            for one in seen.eligible
        ],
        "not_eligible": [
            {"case": one.case.pk, "why": disclosure.without_secrets(one.why)}
            for one in seen.not_eligible
        ],
    }


@router.post("/bulk", summary="Begin a job on what the preview showed")
@answering
def start_bulk(request: AsPerson, given: BulkStart) -> Any:
    token = acting(request, given.verb)
    frozen = [
        bulk.FrozenCase(one.case, one.revision, one.digest, one.restores) for one in given.cases
    ]
    try:
        job = bulk.start(
            token.workspace, given.verb, by=token.person, reason=given.reason, frozen=frozen,
            query=given.q, chosen=given.chosen,
        )  # fmt: skip
    except bulk.TooManyCases as many:
        return problem_response(422, "Too many cases", str(many))
    return _job(job)


@router.get("/bulk/{int:pk}", summary="A job, and how each of its cases went")
@answering
def get_bulk(request: AsPerson, pk: int) -> Any:
    token = allowed(request, "view")
    return _job(get_object_or_404(BulkJob, workspace=token.workspace, pk=pk))


@router.post("/bulk/{int:pk}/stop", summary="Leave out what has not begun")
@answering
def stop_bulk(request: AsPerson, pk: int) -> Any:
    token = allowed(request, "view")
    job = get_object_or_404(BulkJob, workspace=token.workspace, pk=pk)
    acting(request, job.verb)
    bulk.stop(job, by=token.person)
    job.refresh_from_db()
    return _job(job)


def acting(request: AsPerson, verb: str) -> TokenOwner:
    """The caller; raises InvalidInput (422) for an act that there is not, NotAllowed (403)."""
    if verb not in VERBS:
        raise InvalidInput(f"There is no “{verb}” for many cases: {', '.join(VERBS)}.")
    access.require(request.auth.person, VERBS[verb].permission, request.auth.workspace)
    return request.auth


def _job(job: BulkJob) -> dict[str, Any]:
    items = job.items.order_by("pk").values("case_id", "state", "detail", "case__state")
    return {
        "job": job.pk,
        "verb": job.verb,
        "reason": job.reason,
        "state": bulk.state_of(job),
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "cases": [
            {
                "case": one["case_id"],
                "state": one["state"],
                "detail": disclosure.without_secrets(one["detail"]),
                "case_state": one["case__state"],
            }
            for one in items
        ],
    }
