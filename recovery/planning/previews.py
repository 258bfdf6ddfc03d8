"""Previews: the plan as it would be, in memory, for everybody who asks. It has no rows.

Its digest is what a page posts back: submission drafts again, and only the same calls on the same
states become a plan. Overriding drift and rebasing are other plans, on what the target looks like
now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Max
from django.utils import timezone

from approvals import approval_requests
from approvals.policy import Policy, PolicyDecision, RequiredApprovers
from connectors.contract import Money
from ledger.canonical import digest
from ledger.models import Checkpoint, Run
from recovery.cases.lifecycle import reread
from recovery.engine import approved_calls
from recovery.models import Case, CaseState, Plan, PlanState
from recovery.models.cases import UNDER_A_PLAN
from recovery.planning import drifts
from recovery.planning.drafting import (
    NO_TWIN,
    Drafted,
    DraftStep,
    DriftState,
    NotUndoable,
    connections_of,
    draft_steps,
)
from recovery.run_facts.runs import RunFacts, facts_of, facts_of_each
from recovery.run_facts.sentences import (
    HEADLINE_CHARACTERS_MAX,
    capitalised,
    listed,
    many,
    shortened,
    singular,
)
from workspaces import formatting

# How a plan is called, and what people have to do for it, in words.

BRIEF_CHARACTERS_MAX = 90
TITLES_NAMED_MAX = 3
NOTHING = "Nothing can be undone from here"
UNDONE = "Nothing to undo"
TEACH = "Teach the desk to undo"


def headline(drafted: Drafted) -> str:
    """`Refund $1 286.00, then restore reservation XEHM4B`; of many steps those that are alike and
    follow each other stand as one, `Restore priority on 130 tickets`.
    """
    if not drafted.steps:
        return _of_nothing(drafted)
    named = [(_title(one), 1) for one in drafted.steps]
    if len(named) > TITLES_NAMED_MAX:
        named = _stretches(drafted.steps)
    shown = [title for title, _ in named[:TITLES_NAMED_MAX]]
    if len(named) > TITLES_NAMED_MAX:
        more = sum(steps for _, steps in named[TITLES_NAMED_MAX - 1 :])
        shown = [*shown[: TITLES_NAMED_MAX - 1], many(more, "step") + " more"]
    text = ", then ".join([shown[0], *(one[:1].lower() + one[1:] for one in shown[1:])])
    return shortened(text, HEADLINE_CHARACTERS_MAX)


def _of_nothing(drafted: Drafted) -> str:
    if (tools := untaught(drafted)) and not drafted.skipped:
        return shortened(f"{TEACH} {listed(tools)}", HEADLINE_CHARACTERS_MAX)
    return nothing(drafted) if drafted.skipped or drafted.more else NOTHING


def brief(drafted: Drafted) -> str:
    """The headline where it is short, else how it begins and how many follow: for a button."""
    whole = headline(drafted)
    if len(whole) <= BRIEF_CHARACTERS_MAX or not drafted.steps:
        return whole
    first, steps = _title(drafted.steps[0]), 1
    if len(drafted.steps) > TITLES_NAMED_MAX:
        first, steps = _stretches(drafted.steps)[0]
    more = len(drafted.steps) - steps
    first = shortened(first, BRIEF_CHARACTERS_MAX)
    return f"{first}, then {many(more, 'step')} more" if more else first


def _title(one: DraftStep) -> str:
    return one.preview.title.rstrip(".")


def _stretches(steps: Sequence[DraftStep]) -> list[tuple[str, int]]:
    """The titles in order, and of how many steps each is: one of those in a row that do the same
    to different targets of one type. A sum or another number in them would be read as that of all.
    """
    found: list[tuple[str, set[str]]] = []  # what is done to which targets
    told: list[tuple[str, int]] = []
    for one in steps:
        title, kind, target = _title(one), one.step.target_type, one.step.target_id
        does = title.removesuffix(f"{kind} {target}") if formatting.is_identifier(kind) else title
        is_like = does != title and not any(map(str.isdigit, does))
        if found and is_like and found[-1][0] == f"{does}{kind}" and target not in found[-1][1]:
            found[-1][1].add(target)
            told[-1] = (f"{does}{many(len(found[-1][1]), singular(kind))}", len(found[-1][1]))
        else:
            found.append((f"{does}{kind}" if is_like else "", {target}))
            told.append((title, 1))
    return told


def nothing(drafted: Drafted) -> str:
    """That none of it can be undone; of a long run only as much as was looked at is known."""
    if drafted.skipped:
        return "Nothing of what stands would be undone"
    if tools := untaught(drafted):
        return f"Nothing says yet how {listed(tools)} {'is' if len(tools) == 1 else 'are'} undone"
    if not drafted.more:
        return "Nothing that stands can be undone from here"
    return f"None of the newest {many(drafted.known, 'effect')} that stand can be undone from here"


def untaught(drafted: Drafted) -> list[str]:
    """The tools that the desk could be taught to undo, where it can undo nothing else."""
    lacking = () if drafted.steps else filter(lacks_twin, drafted.cannot)
    return list(dict.fromkeys(one.action.tool_words for one in lacking))


def lacks_twin(one: NotUndoable) -> bool:
    """Whether the policy could say how it is undone: of what nobody planned it knows no name."""
    return one.code == NO_TWIN and bool(one.action.tool)


def part_words(drafted: Drafted, number: int) -> str:
    """`Part 1: the newest 1 000 of 3 400; the rest is planned when this is done.`; empty where the
    plan undoes all of it.
    """
    if not drafted.steps or not (drafted.more or number > 1):
        return ""
    if not drafted.more:
        return f"Part {number}, the last: what was left of it."
    steps, of = formatting.count(len(drafted.steps)), formatting.count(drafted.known + drafted.more)
    rest = "the rest is planned when this is done"
    return f"Part {number}: the newest {steps} of {of}; {rest}."


def staying(drafted: Drafted) -> str:
    """`1 effect cannot be undone`"""
    return f"{many(len(drafted.cannot), 'effect')} cannot be undone"


def lead(drafted: Drafted) -> str:
    """`2 steps, newest action first. 1 effect cannot be undone.`"""
    parts = []
    if drafted.steps:
        order = ", newest action first" if len(drafted.steps) > 1 else ""
        parts.append(f"{many(len(drafted.steps), 'step')}{order}.")
    if drafted.steps and drafted.cannot:
        parts.append(f"{staying(drafted)}.")
    if drafted.skipped:
        parts.append(f"{many(len(drafted.skipped), 'effect')} left as you chose.")
    reached = recipients(drafted.steps)
    asked = asks_affected(drafted.judgement)
    if asked:
        parts.append("The affected person is asked first, as soon as you ask for approval.")
    if reached:
        parts.append(f"It writes to {listed(reached)}.")
    elif drafted.steps and not asked:
        parts.append("Nobody is told until you publish the correction.")
    return " ".join(parts)


def asks_affected(judgement: PolicyDecision | None) -> bool:
    """Whether whoever is affected is written to before anybody may say yes."""
    return judgement is not None and judgement.approval == "MANUAL" and bool(judgement.affected)


def recipients(steps: Sequence[DraftStep]) -> list[str]:
    """Whom the plan's own calls reach, each once."""
    return list(dict.fromkeys(who for one in steps for who in one.preview.recipients))


def money(steps: Sequence[DraftStep]) -> Money | None:
    """What moves in all, if it is of one currency, and known of every step that moves money."""
    if any(one.preview.kind == "money" and one.preview.money is None for one in steps):
        return None
    moved = [one.preview.money for one in steps if one.preview.money is not None]
    currencies = {one.currency for one in moved}
    if len(currencies) != 1:
        return None
    return Money(sum(one.amount_minor for one in moved), currencies.pop())


def warnings(one: DraftStep) -> list[str]:
    """What whoever approves this step has to know beside its call."""
    found = list(one.notes)
    if one.step.override_drift:
        found.append("Somebody changed it since the agent: that later change is overwritten.")
    elif one.drift_state == DriftState.UNTOLD:
        found.append("Nobody told how the agent left it: a later change would be lost.")
    return found


def approval(judgement: PolicyDecision | None) -> str:
    """Who has to approve; empty where nobody has to."""
    if judgement is None or judgement.approval == "AUTO":
        return ""
    if judgement.approval == "DENY":
        return "Never allowed"
    return judgement.people


def is_gone(one: DraftStep) -> bool:
    """Whether the target is not there any more, though the agent left it there."""
    return (
        one.drift_state == DriftState.DRIFTED and one.seen is None and one.step.expected is not None
    )


def undecided(steps: Sequence[DraftStep]) -> str:
    """`Steps 1 and 3 have drifted, and what step 4 undoes is gone: choose what should happen.`"""
    told = []
    for gone, noun, one_is, more_are in (
        (False, "step", "has drifted", "have drifted"),
        (True, "what step", "undoes is gone", "undo is gone"),
    ):
        found = [str(one.step.position) for one in steps if is_gone(one) == gone]
        if len(found) == 1:
            told.append(f"{noun} {found[0]} {one_is}")
        elif found:
            told.append(f"{noun}s {listed(found)} {more_are}")
    return f"{capitalised(', and '.join(told))}: choose what should happen."


TARGETS_MAX = 1_000
"""Of many plans at once; of more it is only known whether they have drifted when they are sent."""

Asked = dict[tuple[int, Sequence[RequiredApprovers]], str]
CHOICES = ("rebase", "override", "skip")


@dataclass(kw_only=True)
class PlanDraft(Drafted):
    """What would run, as it stands at `checked_at`. `digest` and `restores` are what a
    preview posts back."""

    case: Case
    facts: RunFacts
    reach: Checkpoint | None
    choices: Mapping[int, str]
    digest: str
    restores: str
    """Over what the steps restore, which a connector may send, and whose accounts they go to:
    posted back beside the digest. It is in none that is kept with a plan, for older workers hold
    those against what they know.
    """

    headline: str
    checked_at: datetime
    number: int
    part: int = 1
    """Which part of undoing the run it is, where more stands than one plan can undo."""
    nobody: str = ""
    """Why nobody could be asked to approve it."""

    @property
    def run(self) -> Run:
        return self.facts.run

    @property
    def accounts(self) -> dict[str, dict[str, str]]:
        return accounts_of(self)

    @property
    def policy(self) -> Policy:
        return self.facts.policy

    @property
    def lead(self) -> str:
        return " ".join(filter(None, [part_words(self, self.part), lead(self)]))

    @property
    def money(self) -> Money | None:
        return money(self.steps)

    @property
    def approval(self) -> str:
        """Who has to approve, in words; empty where nobody has to."""
        return approval(self.judgement)

    @property
    def why_not(self) -> str:
        """Why this cannot be submitted, in one sentence; empty where it can."""
        if self.hindrance or not self.undecided:
            return self.hindrance
        return undecided(self.undecided)

    @property
    def hindrance(self) -> str:
        """As `why_not`, but for what a choice about drifted targets would settle."""
        return _why_not_now(self.case, self.facts) or _why_not_so(self)

    @property
    def undecided(self) -> list[DraftStep]:
        """The steps whose targets have drifted, and nobody has said what should happen."""
        return [one for one in self.steps if one.needs_choice]


def draft(
    case: Case,
    *,
    reach: Checkpoint | None = None,
    choices: Mapping[int, str] | None = None,
    most: int = drifts.OBSERVED_MAX,
) -> PlanDraft:
    """The plan for everything that stands back to `reach`, with drift seen now.

    `choices` maps effect ids to rebase, override or skip, for targets that have drifted. Reads the
    outside world, `most` targets of it, so it stands outside any transaction; writes nothing.
    """
    case = reread(case)
    facts = facts_of(case.run)
    connections = connections_of([case.workspace_id])
    chosen = {effect: how for effect, how in (choices or {}).items() if how in CHOICES}
    left = {effect: how for effect, how in chosen.items() if how == "skip"}  # and not looked at
    drafted = draft_steps(facts, connections, reach=reach, choices=left)
    seen = drifts.look(drafted.steps, most=most)
    if chosen != left:
        drafted = draft_steps(facts, connections, reach=reach, choices=chosen, seen=seen)
        drifts.look(drafted.steps, most=most)
    if refused := drifts.refusals(drafted.steps):
        drafted = draft_steps(
            facts, connections, reach=reach, choices=chosen, seen=seen, refused=refused
        )
        drifts.look(drafted.steps, most=most)
    drifts.mark_what_comes_back(case.workspace_id, drafted.steps)
    return _draft(case, facts, drafted, reach=reach, choices=chosen)


def drafts_of_each(cases: Sequence[Case], *, seconds: float) -> list[PlanDraft]:
    """The plans of many cases, for dry runs: what stands in the way of one here would stand in the
    way of its submission. The targets are read side by side, for at most so long.
    """
    found = list(_sketches(cases))
    asking = [one.steps for one in found if not one.why_not]
    drifts.look_at_each(asking, most=TARGETS_MAX, seconds=seconds)
    return found


def _sketches(cases: Sequence[Case]) -> Iterator[PlanDraft]:
    """The same plans without a look at the outside world.

    The digest of each is that of a draft whose targets have not drifted, so it can be submitted.
    Workspace, run and agent of the cases are loaded; what they share is read once.
    """
    asked: Asked = {}
    connections = connections_of({case.workspace_id for case in cases})
    numbers = _numbers(cases)
    for case, facts in zip(cases, facts_of_each([case.run for case in cases]), strict=True):
        drafted = draft_steps(facts, connections)
        yield _draft(case, facts, drafted, numbers=numbers, asked=asked)


def _draft(
    case: Case,
    facts: RunFacts,
    drafted: Drafted,
    *,
    reach: Checkpoint | None = None,
    choices: Mapping[int, str] | None = None,
    numbers: Mapping[int, tuple[int, int]] | None = None,
    asked: Asked | None = None,
) -> PlanDraft:
    numbers = _numbers([case]) if numbers is None else numbers
    number, part = numbers.get(case.pk, (1, 1))
    return PlanDraft(
        case=case,
        facts=facts,
        steps=drafted.steps,
        cannot=drafted.cannot,
        skipped=drafted.skipped,
        reach=reach,
        choices=choices or {},
        digest=approved_calls.plan_digest(
            Plan(case=case, reach=reach),
            case.workspace.slug,
            [one.step.digest for one in drafted.steps],
        ),
        restores=_restores([one.step.before for one in drafted.steps], accounts_of(drafted)),
        more=drafted.more,
        headline=headline(drafted),
        checked_at=timezone.now(),
        number=number,
        part=part,
        nobody=_nobody(case, drafted, {} if asked is None else asked),
    )


def _numbers(cases: Sequence[Case]) -> dict[int, tuple[int, int]]:
    """By case that has plans, of the next one its number, and which part of undoing the run it is:
    one more than those that ended and left something to it, since the last one that left nothing.
    """
    plans = Plan.objects.filter(case__in=[case.pk for case in cases]).order_by("case", "number")
    found: dict[int, tuple[int, int]] = {}
    for case, number, state, more in plans.values_list("case", "number", "state", "more_standing"):
        part = found.get(case, (1, 1))[1]
        if state == PlanState.FINISHED:
            part = part + 1 if more else 1
        found[case] = (number + 1, part)
    return found


def accounts_of(drafted: Drafted) -> dict[str, dict[str, str]]:
    return approved_calls.accounts_of(one.step.connection for one in drafted.steps)


def restores_of(plan: Plan) -> str:
    """What the draft of a plan that was submitted had as `restores`."""
    befores = plan.steps.order_by("position").values_list("before", flat=True)
    return _restores(befores, plan.accounts or {})


def _restores(befores: Iterable[Any], accounts: Mapping[str, Mapping[str, str]]) -> str:
    return digest([*befores, *([accounts] if any(accounts.values()) else [])])


def _nobody(case: Case, drafted: Drafted, asked: Asked) -> str:
    """Why nobody could be asked to approve it; `asked` holds what is known of the teams."""
    judgement = drafted.judgement
    if judgement is None or judgement.approval != "MANUAL":
        return ""
    known = (case.workspace_id, judgement.requires)
    if known not in asked:
        asked[known] = approval_requests.why_no_team(case.workspace, judgement.requires)
    affected = [one.effect.person for one in drafted.steps]
    return asked[known] or approval_requests.why_not_affected(judgement, affected)


def _why_not_now(case: Case, facts: RunFacts) -> str:
    if case.state == CaseState.CLOSED:
        return "The case is closed: reopen it first."
    if case.state in UNDER_A_PLAN:
        return "A plan of this case is on its way already."
    for step in facts.under_way:
        return f"Plan {step.plan.number} still runs: step {step.position} is under way."
    return facts.calls_to_settle() or facts.steps_to_settle()


def _why_not_so(drafted: PlanDraft) -> str:
    if not drafted.steps:
        return f"{nothing(drafted)}."
    if drafted.judgement is not None and drafted.judgement.approval == "DENY":
        return f"The policy does not allow it: {drafted.judgement.why}."
    if drafted.nobody:
        return f"Nobody can be asked to approve it: {drafted.nobody}."
    if refused := [one for one in drafted.steps if one.refused]:
        return f"Step {refused[0].step.position} has no way back: {refused[0].refused}"
    return ""


def next_number(case: Case) -> int:
    return (case.plans.aggregate(last=Max("number"))["last"] or 0) + 1
