"""Trying an act on many cases: what it would do to each, in a constant number of queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from connectors.contract import Money
from recovery.casework import closing, resuming
from recovery.facts.runs import facts_of_each
from recovery.models import Case, Plan
from recovery.models.plans import LIVING
from recovery.planning.drifts import SECONDS_MAX
from recovery.planning.previews import drafts_of_each

COMPENSATE, RESUME, CLOSE = "compensate", "resume", "close"
VERBS = (COMPENSATE, RESUME, CLOSE)
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


def tried(
    verb: str,
    cases: Sequence[Case],
    resume_from: str = resuming.FROM_LAST,
    *,
    seconds: float = SECONDS_MAX,
) -> Iterator[Eligible | NotEligible]:
    """What the act would do to each case, whoever has claimed it, by the checks of the act itself.

    Where targets are read, that takes at most `seconds`.
    """
    if verb == COMPENSATE:
        return _compensated(cases, seconds)
    return _resumed(cases, resume_from) if verb == RESUME else _closed(cases)


def _compensated(cases: Sequence[Case], seconds: float) -> Iterator[Eligible | NotEligible]:
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


def _closed(cases: Sequence[Case]) -> Iterator[Eligible | NotEligible]:
    plans = living(cases)
    for case, facts in zip(cases, facts_of_each([case.run for case in cases]), strict=True):
        hindrance = closing.why_not(case, facts, plans.get(case.pk))
        words = f"Close: {case.headline}"
        yield (
            NotEligible(case, hindrance)
            if hindrance
            else Eligible(case, "", words, "", None, case.reversibility)
        )


def _resumed(cases: Sequence[Case], resume_from: str) -> Iterator[Eligible | NotEligible]:
    """Only where nothing could be done twice."""
    plans = living(cases)
    for case, facts in zip(cases, facts_of_each([case.run for case in cases]), strict=True):
        try:
            checkpoint = resuming.chosen(facts.checkpoints, resume_from)
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
