"""Bulk: one act on many cases, on ids frozen at the dry run.

Each case keeps its own plan, its own approval and its own checks: what changed since the dry run is
refused by itself, and says why. Stop works at any time, for what has not begun.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import NamedTuple

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Count, Exists, Q, QuerySet

from amends.protocol.vocabulary import EventType
from ledger import desk_events
from recovery import search
from recovery.cases.lifecycle import held_by_another
from recovery.casework.bulk_verbs import VERBS, BulkDryRun, Eligible, NotEligible, Worked
from recovery.models import BulkItem, BulkItemState, BulkJob, Case, CaseOutcome, CaseState, Plan
from recovery.models.bulk import BULK_ITEM_TO_DO
from workspaces import access, locks
from workspaces.clock import database_time
from workspaces.free_text import REASON_CHARACTERS_MAX, InvalidInput, kept_text
from workspaces.models import User, Workspace
from workspaces.replica import DATABASE_AWAY
from workspaces.request_cache import request_cache

CASES_MAX = 500
"""Of one job; a larger set is worked off in several, each with its own dry run."""

CASES_AT_A_TIME = 100
"""So many runs' facts are in memory at once."""

LOOKING_SECONDS_MAX = 20.0
"""For which a dry run reads the targets of all its plans; the page is not there before."""

SWEEP_SECONDS_MAX = 5.0
"""Of one turn; the next comes soon, and the scheduler's other jobs want the processor, too."""

WORKING_SECONDS_MAX = 300
"""An item in hand for longer was lost with its worker; submitting it again does nothing twice."""

DETAIL_CHARACTERS_MAX = 400


logger = logging.getLogger(__name__)


class FrozenCase(NamedTuple):
    """A case as the dry run showed it; what differs by then is not acted on."""

    pk: int
    revision: int
    digest: str
    restores: str = ""


class TooManyCases(Exception):
    """We stopped because the query means more cases than one job may hold: narrow it down."""


class JobStopped(Exception):
    """We stopped because the job was, before this case had its turn."""

    def __str__(self) -> str:
        return "Stopped; nothing was done."


@request_cache()
def dry_run(
    workspace: Workspace,
    verb: str,
    *,
    by: User,
    query: str = "",
    everything: bool = False,
    ids: Sequence[int] | None = None,
    chosen: str = "",
) -> BulkDryRun:
    """Who would be acted on, who not and why: of the cases that the list of the query shows, with
    `everything` of all time, or of those named. Raises TooManyCases, QueryError; writes nothing.
    """
    if verb not in VERBS:
        raise InvalidInput(f"Choose one: {', '.join(one.label for one in VERBS.values())}.")
    if ids is None:
        found = search.matching(workspace, search.parse(query), by=by, everything=everything)
    else:
        found = Case.objects.filter(workspace=workspace, pk__in=list(ids)[: CASES_MAX + 1])
    meant = sorted(found.order_by().values_list("pk", flat=True)[: CASES_MAX + 1])
    if len(meant) > CASES_MAX:
        raise TooManyCases(f"At most {CASES_MAX} cases at once: narrow the query down.")
    related = Case.objects.select_related(
        "workspace", "run__workspace", "run__agent", "claimed_by"
    ).order_by("pk")
    seen = BulkDryRun(verb, query, chosen=chosen)
    until = time.monotonic() + LOOKING_SECONDS_MAX
    for start in range(0, len(meant), CASES_AT_A_TIME):
        cases = list(related.filter(pk__in=meant[start : start + CASES_AT_A_TIME]))
        left = until - time.monotonic()
        for one in VERBS[verb].tried(cases, chosen, left):
            other = held_by_another(one.case, by)
            if other is not None:
                seen.not_eligible.append(NotEligible(one.case, f"{other} has claimed it."))
            elif isinstance(one, Eligible):
                seen.eligible.append(one)
            else:
                seen.not_eligible.append(one)
    return seen


@transaction.atomic
def start(
    workspace: Workspace,
    verb: str,
    *,
    by: User,
    reason: str,
    frozen: Sequence[FrozenCase],
    query: str = "",
    chosen: str = "",
) -> BulkJob:
    """Begin a job on what the dry run showed.

    `chosen` answers the verb's choice, if it has one; empty for the usual.
    """
    if verb not in VERBS:
        raise InvalidInput("Say what is to be done, and why.")
    reason = kept_text(reason, REASON_CHARACTERS_MAX, asking="Say what is to be done, and why.")
    query = kept_text(query, search.QUERY_CHARACTERS_MAX)
    choice = VERBS[verb].choice
    kept = {choice.column: choice.taken(workspace, chosen)} if choice else {}
    if not 0 < len(frozen) <= CASES_MAX:
        raise TooManyCases(f"Between one and {CASES_MAX} cases at once.")
    items = {one.pk: one for one in frozen}
    known = Case.objects.filter(workspace=workspace, pk__in=items).values_list("pk", flat=True)
    if gone := sorted(items.keys() - set(known)):
        raise InvalidInput(f"There is no case {gone[0]} here: look again, then start.")
    job = BulkJob.objects.create(
        workspace=workspace,
        verb=verb,
        query=query,
        reason=reason,
        started_by=by,
        **kept,
    )
    # What became of its cases is looked for by this, and others write that by the database's.
    job.started_at = database_time()
    job.save(update_fields=["started_at"])
    BulkItem.objects.bulk_create(
        BulkItem(
            job=job,
            case_id=pk,
            revision=one.revision,
            digest=one.digest,
            restores=one.restores,
        )
        for pk, one in sorted(items.items())
    )
    data = {"job": job.pk, "verb": verb, "cases": sorted(items), "query": query, "reason": reason}
    desk_events.record(workspace, EventType.CASE_BULK_STARTED, by=by, data=data)
    return job


@transaction.atomic
def stop(job: BulkJob, *, by: User) -> int:
    """Leave out what has not begun; how many. What was submitted has its own stop, and a job of
    which nothing is left to do is not called stopped.
    """
    left = job.items.filter(state__in=BULK_ITEM_TO_DO)
    living = BulkJob.objects.filter(Exists(left), pk=job.pk, stopped_at=None, ended_at=None)
    living.update(stopped_at=database_time())
    stopped = job.items.filter(state=BulkItemState.WAITING).update(
        state=BulkItemState.STOPPED, detail=f"Stopped by {by}."
    )
    if stopped:
        data = {"job": job.pk, "left": stopped}
        desk_events.record(job.workspace, EventType.CASE_BULK_STOPPED, by=by, data=data)
    return stopped


def sweep() -> int:
    """Work on items of any job, for some seconds; the number that came to an end."""
    done, until = 0, time.monotonic() + SWEEP_SECONDS_MAX
    while time.monotonic() < until and (items := _taken()):
        done += _work_on(items)
    busy = Q(items__state__in=BULK_ITEM_TO_DO)
    over = under_way().annotate(busy=Count("items", filter=busy)).filter(busy=0)
    BulkJob.objects.filter(pk__in=[job.pk for job in over]).update(ended_at=database_time())
    return done


def state_of(job: BulkJob) -> str:
    return "stopped" if job.stopped_at else "ended" if job.ended_at else "running"


def under_way() -> QuerySet[BulkJob]:
    return BulkJob.objects.filter(ended_at=None)


def _work_on(items: Sequence[BulkItem]) -> int:
    """Work on these items of one job; where that is not possible, on each by itself, so that one
    holds up no other. What cannot be worked on stays in hand, is met again when it counts as lost,
    and is in the log; how many came to an end.
    """
    try:
        _work(items)
    except DATABASE_AWAY:
        raise
    except Exception:
        if len(items) == 1:
            logger.exception("Item %d of a bulk job cannot be worked on.", items[0].pk)
            return 0
        logger.warning("%d items of a bulk job are worked on one by one.", len(items))
        return sum(_work_on([item]) for item in items)
    return len(items)


def _taken() -> list[BulkItem]:
    """The next items of one job, in hand from now on: as many as its act takes at a time."""
    lost = database_time() - timedelta(seconds=WORKING_SECONDS_MAX)
    todo = BulkItem.objects.filter(
        Q(state=BulkItemState.WAITING, job__stopped_at=None)
        | Q(state=BulkItemState.WORKING, taken_at__lt=lost)
    ).order_by("pk")
    first = todo.select_related("job").first()
    if first is None:
        return []
    related = todo.filter(job=first.job).select_related("job__workspace", "job__started_by", "case")
    with transaction.atomic():
        free = locks.not_in_hand(related)
        items = list(free[: VERBS[first.job.verb].together])
        mine = BulkItem.objects.filter(pk__in=[item.pk for item in items])
        now = database_time()
        mine.update(state=BulkItemState.WORKING, taken_at=now)
    for item in items:
        item.was_lost, item.taken_at = item.taken_at is not None, now
    return items


def _work(items: Sequence[BulkItem]) -> None:
    """What became of these items of one job, each by its own checks.

    Of one that was lost with its worker the act may be done: then that is told, and not that it was
    refused the second time. Where the job was stopped meanwhile, nothing is done anew.
    """
    job = items[0].job
    verb = VERBS[job.verb]
    lost = [item for item in items if item.was_lost]
    found = {item.pk: came for item in lost if (came := verb.found(item)) is not None}
    _keep([item for item in lost if item.pk in found], list(found.values()))
    items = [item for item in items if item.pk not in found]
    if job.stopped_at is not None:
        _keep(items, [JobStopped()] * len(items))
        return
    try:
        access.require(job.started_by, verb.permission, job.workspace)
    except access.NotAllowed as refused:
        why = f"{job.started_by} may no longer do this: {refused}"
        _keep(items, [PermissionDenied(why)] * len(items))
        return
    with transaction.atomic() if verb.together > 1 else nullcontext():
        _keep(
            items, [_told(item, came) for item, came in zip(items, verb.work(items), strict=True)]
        )


def _told(item: BulkItem, came: Worked | Exception) -> Worked | Exception:
    """Who counted as lost may only have been slow, and done it while we tried."""
    if not (item.was_lost and isinstance(came, Exception)):
        return came
    return VERBS[item.job.verb].found(item) or came


def _keep(items: Sequence[BulkItem], worked: Sequence[Worked | Exception]) -> None:
    """Write down what became of each that is still in our hand: who came late tells nothing."""
    taken = {item.taken_at for item in items}
    in_hand = BulkItem.objects.filter(state=BulkItemState.WORKING, taken_at__in=taken)
    for item, came in zip(items, worked, strict=True):
        item.state, detail = BulkItemState.DONE, ""
        if isinstance(came, JobStopped):
            item.state, detail = BulkItemState.STOPPED, str(came)
        elif isinstance(came, Exception):
            item.state, detail = BulkItemState.REFUSED, str(came)
        elif isinstance(came, Plan):
            item.plan_id, detail = came.pk, came.headline
        item.detail = detail[:DETAIL_CHARACTERS_MAX]
    in_hand.bulk_update(items, ["state", "detail", "plan_id"])


def counts(job: BulkJob) -> dict[str, int]:
    """How many items stand in each state, and how many cases wait or are restored: done is not
    fixed."""
    found = dict(job.items.values_list("state").annotate(number=Count("pk")))
    cases = job.items.aggregate(
        restored=Count("pk", filter=Q(case__outcome=CaseOutcome.RESTORED)),
        asked=Count("pk", filter=Q(state=BulkItemState.DONE, case__state=CaseState.WAITING)),
    )
    return {str(state): int(number) for state, number in found.items()} | cases
