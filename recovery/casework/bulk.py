"""Bulk: one act on many cases, on ids frozen at the dry run.

Each case keeps its own plan, its own approval and its own checks: what changed since the dry run is
refused by itself, and says why. Stop works at any time, for what has not begun.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import Count, Min, Q

from amends.protocol.vocabulary import EventType
from connectors.contract import Money
from ledger import desk_events
from ledger.models import Checkpoint, Reversibility
from recovery import search
from recovery.cases.lifecycle import Empty, OutOfDate, held_by_another
from recovery.casework import closing, resuming
from recovery.casework.closing import CannotClose
from recovery.casework.resuming import CannotResume
from recovery.models import BulkItem, BulkJob, Case, CaseOutcome, Plan
from recovery.models.bulk import RESUME_FROM_MAX as CHOICE_CHARACTERS_MAX
from recovery.models.plans import LIVING
from recovery.planning import plans
from recovery.planning.plans import CannotSubmit
from recovery.planning.previews import drafts_of_each
from recovery.run_facts.runs import facts_of_each
from workspaces import access
from workspaces.clock import database_time
from workspaces.models import User, Workspace
from workspaces.moves import CannotMove

# Trying an act on many cases: what it would do to each, in a constant number of queries.

IN_SHORT = {
    "skip": "done",
    "repeat_same_key": "repeated under the same key",
    "repeat_new_key": "repeated under a new key",
    "new": "new",
}


@dataclass(frozen=True, slots=True)
class Eligible:
    """A case that the job would act on, as it was seen."""

    case: Case
    digest: str
    headline: str
    approval: str
    money: Money | None
    reversibility: str
    unread: int = 0
    """Targets that could not be read just now: whether they have drifted, the submission finds."""


@dataclass(frozen=True, slots=True)
class NotEligible:
    case: Case
    why: str


def _compensated(
    cases: Sequence[Case], chosen: str, seconds: float
) -> Iterator[Eligible | NotEligible]:
    for draft in drafts_of_each(cases, seconds=seconds):
        if draft.why_not:
            yield NotEligible(draft.case, draft.why_not)
            continue
        yield Eligible(
            draft.case,
            draft.digest,
            draft.headline,
            draft.approval,
            draft.money,
            str(draft.drafted.reversibility),
            unread=sum(one.drift_state == "unknown" for one in draft.steps),
        )


def _closed(cases: Sequence[Case], chosen: str, seconds: float) -> Iterator[Eligible | NotEligible]:
    plans = living(cases)
    for case, facts in zip(cases, facts_of_each([case.run for case in cases]), strict=True):
        hindrance = closing.why_not(case, facts, plans.get(case.pk))
        words = f"Close: {case.headline}"
        yield (
            NotEligible(case, hindrance)
            if hindrance
            else Eligible(case, "", words, "", None, case.reversibility)
        )


def _resumed(
    cases: Sequence[Case], chosen: str, seconds: float
) -> Iterator[Eligible | NotEligible]:
    """Only where nothing could be done twice."""
    plans = living(cases)
    for case, facts in zip(cases, facts_of_each([case.run for case in cases]), strict=True):
        try:
            checkpoint = resuming.chosen(facts.checkpoints, chosen)
        except resuming.CannotResume as none:
            yield NotEligible(case, str(none))
            continue
        seen = resuming.drawn(case, facts, checkpoint, plans.get(case.pk))
        if seen.why_not:
            yield NotEligible(case, seen.why_not)
            continue
        yield Eligible(case, seen.digest, _headline(seen), "", None, case.reversibility)


def _headline(seen: resuming.Resume) -> str:
    """“Resume from flights_moved: 3 done, 1 repeated under the same key, 2 new”"""
    counts = Counter(step.label for step in seen.steps)
    told = [f"{counts[label]} {words}" for label, words in IN_SHORT.items() if counts[label]]
    name = seen.checkpoint.name if seen.checkpoint else "the start"
    return f"Resume from {name}: {', '.join(told) or 'nothing is known of what remains'}"


def living(cases: Sequence[Case]) -> dict[int, Plan]:
    """The plan of each case that has not ended, by case."""
    return {one.case_id: one for one in Plan.objects.filter(case__in=cases, state__in=LIVING)}


CASES_MAX = 500
"""Of one job; a larger set is worked off in several, each with its own dry run."""

CASES_AT_A_TIME = 100
"""So many runs' facts are in memory at once."""

LOOKING_SECONDS_MAX = 20.0
"""For which a dry run reads the targets of all its plans; the page is not there before."""

CHECKPOINTS_MAX = 20
BATCH = 10
WORKING_SECONDS_MAX = 300
"""An item in hand for longer was lost with its worker; submitting it again does nothing twice."""

DETAIL_CHARACTERS_MAX = 400


class TooMany(Exception):
    """We stopped because the query means more cases than one job may hold: narrow it down."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a job would do, on exactly these cases; `amounts` by currency, in its smallest unit."""

    verb: str
    query: str
    eligible: list[Eligible] = field(default_factory=list)
    not_eligible: list[NotEligible] = field(default_factory=list)
    chosen: str = ""
    """What the verb's choice was answered with."""

    @property
    def cases(self) -> list[Case]:
        eligible = [one.case for one in self.eligible]
        return eligible + [one.case for one in self.not_eligible]

    @property
    def checkpoints(self) -> list[str]:
        """The names of checkpoints that every run here has, the one reached first in front."""
        runs = [case.run_id for case in self.cases]
        named = Checkpoint.objects.filter(run__in=runs).values_list("name")
        shared = named.annotate(runs=Count("run", distinct=True)).filter(runs=len(runs))
        ordered = shared.annotate(place=Min("place")).order_by("place")
        return list(ordered.values_list("name", flat=True)[:CHECKPOINTS_MAX])

    @property
    def customers(self) -> int:
        return len({one.case.customer for one in self.eligible if one.case.customer})

    @property
    def unread(self) -> int:
        """Cases with a target that could not be read: a look at their submission decides."""
        return sum(one.unread > 0 for one in self.eligible)

    @property
    def irreversible(self) -> int:
        return sum(one.reversibility == Reversibility.IRREVERSIBLE for one in self.eligible)

    @property
    def amounts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for one in self.eligible:
            if one.money is not None:
                currency = one.money.currency
                found[currency] = found.get(currency, 0) + one.money.amount_minor
        return found


def dry_run(
    workspace: Workspace,
    verb: str,
    *,
    by: User,
    query: str = "",
    ids: Sequence[int] | None = None,
    chosen: str = "",
) -> DryRun:
    """Who would be acted on, and who not and why. Raises TooMany or QueryError; writes nothing."""
    if verb not in VERBS:
        raise Empty(f"Choose one: {', '.join(one.label for one in VERBS.values())}.")
    found = search.matching(workspace, search.parse(query), by=by)
    if ids is not None:
        found = Case.objects.filter(workspace=workspace, pk__in=list(ids)[: CASES_MAX + 1])
    meant = sorted(found.order_by().values_list("pk", flat=True)[: CASES_MAX + 1])
    if len(meant) > CASES_MAX:
        raise TooMany(f"At most {CASES_MAX} cases at once: narrow the query down.")
    related = Case.objects.select_related(
        "workspace", "run__workspace", "run__agent", "claimed_by"
    ).order_by("pk")
    seen = DryRun(verb, query, chosen=chosen)
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
    frozen: Sequence[tuple[int, int, str]],
    query: str = "",
    chosen: str = "",
) -> BulkJob:
    """Begin a job on what the dry run showed: (case id, revision, digest) of each.

    `chosen` answers the verb's choice, if it has one; empty for the usual.
    """
    if verb not in VERBS or not reason.strip():
        raise Empty("Say what is to be done, and why.")
    choice = VERBS[verb].choice
    kept = {choice.column: choice.taken(chosen)} if choice else {}
    if not 0 < len(frozen) <= CASES_MAX:
        raise TooMany(f"Between one and {CASES_MAX} cases at once.")
    known = set(
        Case.objects.filter(workspace=workspace, pk__in=[one[0] for one in frozen]).values_list(
            "pk", flat=True
        )
    )
    job = BulkJob.objects.create(
        workspace=workspace,
        verb=verb,
        query=query[:1000],
        reason=reason[:4_000],
        started_by=by,
        **kept,
    )
    items = {pk: (revision, digest) for pk, revision, digest in frozen if pk in known}
    BulkItem.objects.bulk_create(
        BulkItem(job=job, case_id=pk, revision=revision, digest=digest)
        for pk, (revision, digest) in sorted(items.items())
    )
    data = {"job": job.pk, "verb": verb, "cases": sorted(items), "query": query, "reason": reason}
    desk_events.say(workspace, EventType.CASE_BULK_STARTED, by=by, data=data)
    return job


@transaction.atomic
def stop(job: BulkJob, *, by: User) -> int:
    """Leave out what has not begun; how many. What was submitted has its own stop."""
    now = database_time()
    BulkJob.objects.filter(pk=job.pk, stopped_at=None, ended_at=None).update(stopped_at=now)
    left = job.items.filter(state="waiting").update(state="stopped", detail=f"Stopped by {by}.")
    if left:
        desk_events.say(
            job.workspace, EventType.CASE_BULK_STOPPED, by=by, data={"job": job.pk, "left": left}
        )
    return left


def sweep() -> int:
    """Work on a few items of any job; the number that came to an end."""
    lost = database_time() - timedelta(seconds=WORKING_SECONDS_MAX)
    todo = BulkItem.objects.filter(
        Q(state="waiting") | Q(state="working", taken_at__lt=lost), job__stopped_at=None
    ).select_related("job__workspace", "job__started_by", "case__workspace")
    done = 0
    for item in todo.order_by("pk")[:BATCH]:
        taken = BulkItem.objects.filter(pk=item.pk, state=item.state, taken_at=item.taken_at)
        if taken.update(state="working", taken_at=database_time()):
            _work(item)
            done += 1
    _end_jobs()
    return done


def _work(item: BulkItem) -> None:
    state, detail, plan = "done", "", None
    job = item.job
    try:
        verb = VERBS[job.verb]
        access.require(job.started_by, verb.permission, job.workspace)
        plan = verb.work(item)
        detail = plan.headline if plan else ""
    except access.NotAllowed as refused:
        state, detail = "refused", f"{job.started_by} may no longer do this: {refused}"
    except (OutOfDate, CannotSubmit, CannotResume, CannotClose, CannotMove, Empty) as refused:
        state, detail = "refused", str(refused)
    BulkItem.objects.filter(pk=item.pk).update(
        state=state, detail=detail[:DETAIL_CHARACTERS_MAX], plan_id=plan.pk if plan else None
    )


def _compensate(item: BulkItem) -> Plan:
    return plans.submit(
        item.case,
        digest=item.digest,
        revision=item.revision,
        by=item.job.started_by,
        reason=item.job.reason,
    )


def _resume(item: BulkItem) -> None:
    """From where the dry run showed; if that is another checkpoint by now, the digest tells."""
    checkpoints = Checkpoint.objects.filter(run=item.case.run_id).order_by("place")
    resuming.commit(
        item.case,
        digest=item.digest,
        revision=item.revision,
        by=item.job.started_by,
        reason=item.job.reason,
        checkpoint=resuming.chosen(list(checkpoints), item.job.resume_from),
    )


def _close(item: BulkItem) -> None:
    closing.close(
        item.case,
        outcome=item.job.ending or CaseOutcome.EXPECTED,
        reason=item.job.reason,
        by=item.job.started_by,
        seen=item.revision,
    )


# The verbs.


class Option(NamedTuple):
    value: str
    label: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a person chooses once for all cases of a job; it is kept in a column of the job."""

    name: str
    """Of the field in the form and in the address."""

    column: str
    question: str
    options: Callable[[DryRun], list[Option]]
    default: str = ""
    redraws: bool = False
    """Each option is a dry run of its own, which also finds out what can be chosen."""

    note: str = ""

    def taken(self, chosen: str) -> str:
        """What is kept in the column; raises Empty for what is not offered."""
        value = chosen or self.default
        if not self.redraws and value not in {one.value for one in self.options(DryRun("", ""))}:
            raise Empty(self.question)
        return value[:CHOICE_CHARACTERS_MAX]


def _endings(seen: DryRun) -> list[Option]:
    """As which many cases may be closed at once; what is left, or was corrected, is told one by
    one.
    """
    several = (CaseOutcome.EXPECTED, CaseOutcome.ALREADY_HANDLED, CaseOutcome.DUPLICATE)
    return [Option(one.value, one.label, closing.BY_PEOPLE[one]) for one in several]


def _points(seen: DryRun) -> list[Option]:
    named = [Option(f"{resuming.NAMED}{name}", name) for name in seen.checkpoints]
    last = Option(resuming.FROM_LAST, "the last checkpoint of each")
    return [last, *named, Option(resuming.FROM_START, "the start")]


@dataclass(frozen=True, slots=True)
class Verb:
    """One act on many cases: all that the queue, the dry run and the job know of it."""

    label: str
    key: str
    """Pressed in the queue."""

    done: str
    """What an item is called when the job has done its part."""

    tried: Callable[[Sequence[Case], str, float], Iterator[Eligible | NotEligible]]
    """(cases, chosen, seconds): what it would do to each, whoever has claimed it, by the checks of
    the act itself and in a constant number of queries; targets are read for at most `seconds`.
    """

    work: Callable[[BulkItem], Plan | None]
    choice: Choice | None = None
    permission: access.Codename = "recover"
    restores: bool = False
    """Done is only submitted: how many cases are restored is counted apart."""

    on_causes: bool = False
    """Offered for all cases of a cause."""

    alone: bool = True
    """One case has a page for it, /cases/<id>/<verb>/, which shows each call."""


VERBS: dict[str, Verb] = {
    "compensate": Verb(
        "Compensate", "u", "Submitted", _compensated, _compensate, restores=True, on_causes=True
    ),
    "resume": Verb(
        "Resume",
        "r",
        "Told to go on",
        _resumed,
        _resume,
        Choice(
            "from",
            "resume_from",
            "From where?",
            _points,
            default=resuming.FROM_LAST,
            redraws=True,
            note="a checkpoint is offered by name where every run here has it",
        ),
    ),
    "close": Verb(
        "Close",
        "e",
        "Closed",
        _closed,
        _close,
        Choice("ending", "ending", "How do they end?", _endings, default=CaseOutcome.EXPECTED),
        on_causes=True,
    ),
}
"""The usual one first."""

USUAL = next(iter(VERBS))


def _end_jobs() -> None:
    busy = Q(items__state__in=["waiting", "working"])
    over = (
        BulkJob.objects.filter(ended_at=None)
        .annotate(busy=Count("items", filter=busy))
        .filter(busy=0)
    )
    BulkJob.objects.filter(pk__in=[job.pk for job in over]).update(ended_at=database_time())


def counts(job: BulkJob) -> dict[str, int]:
    """How many items stand in each state, and how many cases are restored: done is not fixed."""
    found = dict(job.items.values_list("state").annotate(number=Count("pk")))
    closed = job.items.filter(case__outcome=CaseOutcome.RESTORED).count()
    return {str(state): int(number) for state, number in found.items()} | {"restored": closed}
