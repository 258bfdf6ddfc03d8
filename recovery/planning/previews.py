"""Previews: the plan as it would be, in memory, for everybody who asks. It has no rows.

Its digest is what a page posts back: submission drafts again, and only the same calls on the same
states become a plan. Overriding drift and rebasing are other plans, on what the target looks like
now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Max
from django.utils import timezone

from approvals import questions
from approvals.digests import call_digest
from approvals.policy import Judgement, Need, Policy
from connectors.contract import Money
from ledger.models import Checkpoint, Run
from recovery.engine import binding
from recovery.facts.runs import RunFacts, facts_of, facts_of_each
from recovery.models import Case, CaseState, Plan
from recovery.planning import drifts, plan_words
from recovery.planning.drafting import Cannot, Drafted, connections_of, draft_steps, judgement_of
from recovery.planning.making import CannotUndo, DraftStep

TARGETS_MAX = 1_000
"""Of many plans at once; of more it is only known whether they have drifted when they are sent."""

Asked = dict[tuple[int, Sequence[Need]], str]
CHOICES = ("rebase", "override", "skip")


@dataclass(slots=True, kw_only=True)
class Draft:
    """What would run, as it stands at `checked_at`. `digest` is what a preview posts back."""

    case: Case
    facts: RunFacts
    policy: Policy
    drafted: Drafted
    reach: Checkpoint | None
    choices: Mapping[int, str]
    judgement: Judgement | None
    digest: str
    headline: str
    checked_at: datetime
    number: int
    too_long: str = ""
    nobody: str = ""
    """Why nobody could be asked to approve it."""

    @property
    def run(self) -> Run:
        return self.facts.run

    @property
    def steps(self) -> list[DraftStep]:
        return self.drafted.steps

    @property
    def cannot(self) -> list[Cannot]:
        return self.drafted.cannot

    @property
    def skipped(self) -> list[Cannot]:
        return self.drafted.skipped

    @property
    def lead(self) -> str:
        return plan_words.lead(self.drafted)

    @property
    def money(self) -> Money | None:
        return plan_words.money(self.steps)

    @property
    def approval(self) -> str:
        """Who has to approve, in words; empty where nobody has to."""
        return plan_words.approval(self.judgement)

    @property
    def why_not(self) -> str:
        """Why this cannot be submitted, in one sentence; empty where it can."""
        return self.hindrance or _undecided_words(self.undecided)

    @property
    def hindrance(self) -> str:
        """As `why_not`, but for what a choice about drifted targets would settle."""
        return self.too_long or _why_not_now(self.case, self.facts) or _why_not_so(self)

    @property
    def undecided(self) -> list[DraftStep]:
        """The steps whose targets have drifted, and nobody has said what should happen."""
        return [one for one in self.steps if one.needs_choice]


def draft(
    case: Case,
    *,
    reach: Checkpoint | None = None,
    choices: Mapping[int, str] | None = None,
) -> Draft:
    """The plan for everything that stands back to `reach`, with drift seen now.

    `choices` maps effect ids to rebase, override or skip, for targets that have drifted. Reads the
    outside world, so it stands outside any transaction; writes nothing.
    """
    case = _fresh(case)
    facts = facts_of(case.run)
    connections = connections_of([case.workspace_id])
    chosen = {effect: how for effect, how in (choices or {}).items() if how in CHOICES}
    try:
        drafted = draft_steps(facts, connections, reach=reach)
        seen = drifts.look(drafted.steps)
        if chosen:
            drafted = draft_steps(facts, connections, reach=reach, choices=chosen, seen=seen)
            drifts.look(drafted.steps)
        if refused := drifts.refusals(drafted.steps):
            drafted = draft_steps(
                facts, connections, reach=reach, choices=chosen, seen=seen, refused=refused
            )
            drifts.look(drafted.steps)
    except CannotUndo as long:
        return _draft(case, facts, Drafted(), reach=reach, choices=chosen, too_long=str(long))
    return _draft(case, facts, drafted, reach=reach, choices=chosen)


def drafts_of_each(cases: Sequence[Case], *, seconds: float = drifts.SECONDS_MAX) -> list[Draft]:
    """The plans of many cases, for dry runs: what stands in the way of one here would stand in the
    way of its submission. The targets are read side by side, for at most so long.
    """
    found = list(_sketches(cases))
    asking = [one.steps for one in found if not one.why_not]
    drifts.look_at_each(asking, most=TARGETS_MAX, seconds=seconds)
    return found


def _sketches(cases: Sequence[Case]) -> Iterator[Draft]:
    """The same plans without a look at the outside world.

    The digest of each is that of a draft whose targets have not drifted, so it can be submitted.
    Workspace, run and agent of the cases are loaded; what they share is read once.
    """
    asked: Asked = {}
    connections = connections_of({case.workspace_id for case in cases})
    plans = Plan.objects.filter(case__in=[case.pk for case in cases])
    numbers = dict(plans.values_list("case").annotate(last=Max("number")))
    for case, facts in zip(cases, facts_of_each([case.run for case in cases]), strict=True):
        number = numbers.get(case.pk, 0) + 1
        try:
            drafted = draft_steps(facts, connections)
        except CannotUndo as long:
            yield _draft(case, facts, Drafted(), too_long=str(long), number=number)
        else:
            yield _draft(case, facts, drafted, number=number, asked=asked)


def _draft(
    case: Case,
    facts: RunFacts,
    drafted: Drafted,
    *,
    reach: Checkpoint | None = None,
    choices: Mapping[int, str] | None = None,
    too_long: str = "",
    number: int | None = None,
    asked: Asked | None = None,
) -> Draft:
    return Draft(
        case=case,
        facts=facts,
        policy=facts.policy,
        drafted=drafted,
        reach=reach,
        choices=choices or {},
        judgement=judgement_of(drafted),
        digest=_digest(case, reach, drafted),
        headline=plan_words.headline(drafted),
        checked_at=timezone.now(),
        number=number or next_number(case),
        too_long=too_long,
        nobody=_nobody(case, drafted, {} if asked is None else asked),
    )


def _nobody(case: Case, drafted: Drafted, asked: Asked) -> str:
    """Why nobody could be asked to approve it; `asked` holds what is known of the teams."""
    judgement = judgement_of(drafted)
    if judgement is None or judgement.approval != "MANUAL":
        return ""
    known = (case.workspace_id, judgement.requires)
    if known not in asked:
        asked[known] = questions.why_no_team(case.workspace, judgement.requires)
    affected = [one.effect.person for one in drafted.steps]
    return asked[known] or questions.why_not_affected(judgement, affected)


def _why_not_now(case: Case, facts: RunFacts) -> str:
    if case.state == CaseState.CLOSED:
        return "The case is closed: reopen it first."
    if case.state in {CaseState.WAITING, CaseState.RECOVERING}:
        return "A plan of this case is on its way already."
    for step in facts.under_way:
        return f"Plan {step.plan.number} still runs: step {step.position} is under way."
    return facts.calls_to_settle() or facts.steps_to_settle()


def _why_not_so(drafted: Draft) -> str:
    if not drafted.steps:
        return "Nothing that stands can be undone from here."
    if drafted.judgement is not None and drafted.judgement.approval == "DENY":
        return f"The policy does not allow it: {drafted.judgement.why}."
    if drafted.nobody:
        return f"Nobody can be asked to approve it: {drafted.nobody}."
    if refused := [one for one in drafted.steps if one.refused]:
        return f"Step {refused[0].step.position} has no way back: {refused[0].refused}"
    return ""


def _undecided_words(steps: Sequence[DraftStep]) -> str:
    if not steps:
        return ""
    return f"Step {steps[0].step.position} has drifted: choose what should happen."


def _digest(case: Case, reach: Checkpoint | None, drafted: Drafted) -> str:
    return binding.plan_digest(
        Plan(case=case, reach=reach),
        case.workspace.slug,
        [call_digest(one.facts) for one in drafted.steps],
    )


def next_number(case: Case) -> int:
    return (case.plans.aggregate(last=Max("number"))["last"] or 0) + 1


def _fresh(case: Case) -> Case:
    return Case.objects.select_related("workspace", "run__workspace", "run__agent").get(pk=case.pk)
