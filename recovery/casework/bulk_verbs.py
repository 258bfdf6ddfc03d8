"""Acts on many cases: one table, of which the queue, the dry run and the job draw themselves.

To add one is to add a row: what it would do to each case, what it does, and what a person chooses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from django.db.models import Count, Min

from connectors.contract import Money
from ledger.models import Checkpoint, Reversibility
from recovery.cases.lifecycle import REFUSALS
from recovery.casework import closing, resuming
from recovery.models import BulkItem, Case, CaseOutcome, Directive, Plan
from recovery.models.bulk import RESUME_FROM_MAX as CHOICE_CHARACTERS_MAX
from recovery.planning import plans
from recovery.planning.drafting import DriftState
from recovery.planning.previews import drafts_of_each
from recovery.run_facts.runs import facts_of_each
from workspaces import access
from workspaces.free_text import InvalidInput
from workspaces.models import Workspace

CHECKPOINTS_MAX = 20

CLOSED_TOGETHER = 50
"""Cases whose runs are held for one transaction: what agents tell of them waits as long."""

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
    restores: str = ""
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
            str(draft.reversibility),
            restores=draft.restores,
            unread=sum(one.drift_state == DriftState.UNKNOWN for one in draft.steps),
        )


def _closed(cases: Sequence[Case], chosen: str, seconds: float) -> Iterator[Eligible | NotEligible]:
    plans = closing.living(cases)
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
    plans = closing.living(cases)
    for case, facts in zip(cases, facts_of_each([case.run for case in cases]), strict=True):
        try:
            checkpoint = resuming.chosen(facts.checkpoints, chosen)
        except resuming.CannotResume as none:
            yield NotEligible(case, str(none))
            continue
        seen = resuming.preview_of(case, facts, checkpoint, plans.get(case.pk))
        if seen.why_not:
            yield NotEligible(case, seen.why_not)
            continue
        yield Eligible(case, seen.digest, _headline(seen), "", None, case.reversibility)


def _headline(seen: resuming.Resume) -> str:
    """“Resume from flights_moved: 3 done, 1 repeated under the same key, 2 new”"""
    counts = Counter(step.label for step in seen.steps)
    parts = [f"{counts[label]} {words}" for label, words in IN_SHORT.items() if counts[label]]
    name = seen.checkpoint.name if seen.checkpoint else "the start"
    return f"Resume from {name}: {', '.join(parts) or 'nothing is known of what remains'}"


@dataclass(frozen=True, slots=True)
class BulkDryRun:
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


# What each does to cases of one job.

Worked = Plan | Case | Directive | None
"""What came of one item: a plan, where there is one to follow."""


def _one_by_one(
    work: Callable[[BulkItem], Plan | None],
) -> Callable[[Sequence[BulkItem]], list[Worked | Exception]]:
    """An act that is done to a case by itself; what stops it is told, and stops no other."""

    def tried(item: BulkItem) -> Worked | Exception:
        try:
            return work(item)
        except REFUSALS as refusal:
            return refusal

    return lambda items: [tried(item) for item in items]


def _compensate(item: BulkItem) -> Plan:
    return plans.submit(
        item.case,
        digest=item.digest,
        revision=item.revision,
        restores=item.restores,
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


def _close(items: Sequence[BulkItem]) -> list[Worked | Exception]:
    job = items[0].job
    return [
        *closing.close_each(
            [closing.Closing(item.case, item.revision) for item in items],
            outcome=job.ending or CaseOutcome.EXPECTED,
            reason=job.reason,
            by=job.started_by,
        )
    ]


# Whether an item that was lost with its worker had its turn: no other act looks the same.


def _submitted(item: BulkItem) -> Plan | None:
    job = item.job
    mine = Plan.objects.filter(
        case=item.case_id, digest=item.digest, drafted_by=job.started_by,
        submitted_at__gte=job.started_at,
    )  # fmt: skip
    return mine.first()


def _directed(item: BulkItem) -> Directive | None:
    job = item.job
    mine = Directive.objects.filter(
        run=item.case.run_id, kind="resume", issued_by=job.started_by,
        issued_at__gte=job.started_at,
    )  # fmt: skip
    return mine.first()


def _ended(item: BulkItem) -> Case | None:
    job = item.job
    mine = Case.objects.filter(
        pk=item.case_id, outcome=job.ending or CaseOutcome.EXPECTED, closed_by=job.started_by,
        closed_at__gte=job.started_at,
    )  # fmt: skip
    return mine.first()


# The verbs.


class Option(NamedTuple):
    value: str
    label: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class VerbOption:
    """What a person chooses once for all cases of a job; it is kept in a column of the job."""

    name: str
    """Of the field in the form and in the address."""

    column: str
    question: str
    options: Callable[[Workspace, BulkDryRun], list[Option]]
    default: str = ""
    redraws: bool = False
    """Each option is a dry run of its own, which also finds out what can be chosen."""

    note: str = ""

    def taken(self, workspace: Workspace, chosen: str) -> str:
        """What is kept in the column; raises InvalidInput for what is not offered."""
        value, none = chosen or self.default, BulkDryRun("", "")
        if not self.redraws and value not in {it.value for it in self.options(workspace, none)}:
            raise InvalidInput(self.question)
        return value[:CHOICE_CHARACTERS_MAX]


def _endings(workspace: Workspace, seen: BulkDryRun) -> list[Option]:
    """As which many cases may be closed at once; what is left, or was corrected, is told one by
    one.
    """
    several = (CaseOutcome.EXPECTED, CaseOutcome.ALREADY_HANDLED, CaseOutcome.DUPLICATE)
    return [Option(one.value, one.label, closing.BY_PEOPLE[one]) for one in several]


def _points(workspace: Workspace, seen: BulkDryRun) -> list[Option]:
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

    work: Callable[[Sequence[BulkItem]], list[Worked | Exception]]
    """What became of each of these items of one job, in their order: a refusal is one's own."""

    found: Callable[[BulkItem], Worked]
    """What came of an item before its worker was lost, if it had its turn."""

    choice: VerbOption | None = None
    permission: access.Codename = "recover"
    together: int = 1
    """So many items are in hand at a time. Of several, cases and items change in one transaction,
    so `work` reaches nothing outside then, and locks the runs of all before the first case.
    """

    restores: bool = False
    """Done is only submitted: how many cases are restored is counted apart."""

    on_causes: bool = False
    """Offered for all cases of a cause."""

    alone: bool = True
    """One case has a page for it, /cases/<id>/<verb>/, which shows each call."""


VERBS: dict[str, Verb] = {
    "compensate": Verb(
        "Compensate",
        "u",
        "Submitted",
        _compensated,
        _one_by_one(_compensate),
        _submitted,
        restores=True,
        on_causes=True,
    ),
    "resume": Verb(
        "Resume",
        "r",
        "Told to go on",
        _resumed,
        _one_by_one(_resume),
        _directed,
        VerbOption(
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
        _ended,
        choice=VerbOption(
            "ending", "ending", "How do they end?", _endings, default=CaseOutcome.EXPECTED
        ),
        on_causes=True,
        together=CLOSED_TOGETHER,
    ),
}
"""The usual one first."""

USUAL = next(iter(VERBS))
