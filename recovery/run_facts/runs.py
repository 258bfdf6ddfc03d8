"""Runs: what the ledger knows of them, gathered in a constant number of queries per batch.

Everything that decides what a case says (reasons, headline, suggestion, cause) is a pure function
of these facts, so that looking twice says the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple, TypeVar

from django.db.models import CharField, OuterRef, Subquery, Value
from django.db.models.functions import Cast, Concat

from amends.protocol.planning import newest_first, suggested_undo
from amends.protocol.vocabulary import WITHOUT_EFFECT, ActionClass
from approvals import memory
from approvals.policy import Policy, PolicyDecision, ToolCall, class_of, judge
from connectors.models import Connection
from ledger import snapshots
from ledger.fold.actions import CHANGED_NOTHING
from ledger.models import (
    Action,
    ActionState,
    Attempt,
    AttemptState,
    Checkpoint,
    Compensated,
    Effect,
    Reversibility,
    Run,
    RunState,
)
from ledger.schemas import IMPORTED
from ledger.wire import PLAN_RUN
from recovery.engine.steps import PLAN_STEP
from recovery.models import Contest, Directive, PlanState, Readback, Report, ReportSource, Step
from recovery.models.plans import DONE, TROUBLED, UNDER_WAY, try_in_doubt
from recovery.run_facts import long_runs
from recovery.run_facts.long_runs import Whole, is_behind, looked_at
from recovery.run_facts.policies import (
    earlier_policies,
    imported_in,
    kept_in_order,
    pivots_in,
    policies_of,
    ungated,
)
from recovery.run_facts.reused_keys import used_elsewhere
from workspaces.clock import database_time

T = TypeVar("T")


class CallEffect(NamedTuple):
    """Something that a call did, or the call itself where nobody told what it did."""

    action: Action
    effect: Effect | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """One run as it stands now. `actions` are in the order of the run, oldest first; of a long run
    they are those that have to be looked at, and `whole` says what all of it comes to.
    """

    run: Run
    policy: Policy
    now: datetime
    actions: Sequence[Action] = ()
    whole: Whole | None = None
    effects: Mapping[int, Sequence[Effect]] = field(default_factory=dict)
    contradicted: frozenset[int] = frozenset()
    """Actions with an attempt of which both success and no effect were said."""
    imported: frozenset[tuple[int, str]] = frozenset()
    """Run and name of actions of which only keys for imports have told, in runs that say so."""
    checkpoints: Sequence[Checkpoint] = ()
    past_the_gate: frozenset[int] = frozenset()
    """Actions with a try that no `begin` has let through, and that is not known to have come to
    nothing.
    """
    pivots: frozenset[int] = frozenset()
    kept_in_order: frozenset[int] = frozenset()
    used_elsewhere: Mapping[int, Action] = field(default_factory=dict)
    """By action past the gate the one of another run that was made under its key."""
    earlier: Mapping[int, Policy | None] = field(default_factory=dict)
    """The policy that was in force when one of these ran, where that was another one; None where it
    is not known any more.
    """
    troubled: Sequence[Step] = ()
    """Steps that wait for a person, or of which nobody knows what became."""
    under_way: Sequence[Step] = ()
    """Steps that were sent and are seen through, whether or not their plan was stopped."""
    reports: Sequence[Report] = ()
    directive: Directive | None = None
    unread: Mapping[int, Readback] = field(default_factory=dict)
    denied_often: str | None = None
    """The tool that a rule denied last, where rules denied this run's calls again and again."""
    unlike: Sequence[tuple[str, str]] = ()
    """Actions that ran unasked and are unlike what their agent did before, each with why."""
    _judged: dict[int, PolicyDecision] = field(default_factory=dict, init=False, compare=False)

    @property
    def is_silent(self) -> bool:
        """Whether the run has not ended and its lease has. Nobody listens to what was imported: it
        is told of when it is over, and perhaps its end never is.
        """
        lease = self.run.lease_until
        if IMPORTED in self.run.flags and all(
            (self.run.pk, one.action) in self.imported for one in self.actions
        ):
            return False
        return self.run.state == RunState.RUNNING and lease is not None and lease < self.now

    @property
    def more_actions(self) -> int:
        """How many more a long run has than are gathered here."""
        return max(0, self.run.action_count - len(self.actions)) if self.whole else 0

    @property
    def standing_count(self) -> int:
        """Effects of the whole run that stand."""
        known = len(self.standing())
        return max(known, self.whole.standing) if self.whole else known

    def standing_behind(self, reach: Checkpoint | None) -> int:
        """Likewise of what came after a checkpoint."""
        standing = self.standing()
        if reach is None:
            return self.standing_count
        if self.standing_count == len(standing):
            return sum(is_behind(action, reach) for action, _ in standing)
        return long_runs.standing_behind(self.run, reach)

    @property
    def more_remaining(self) -> int:
        """What a closing leaves behind besides what is gathered here."""
        of_all = self.whole.standing + self.whole.lasting if self.whole else 0
        return max(0, of_all - len(self.remaining()))

    @property
    def remaining_count(self) -> int:
        return len(self.remaining()) + self.more_remaining

    @property
    def unknown_count(self) -> int:
        """Calls of the whole run of which nobody knows whether they happened."""
        if self.whole is None:
            return len(self.unknown())
        is_over = self.is_silent or self.has_ended
        return self.whole.unknown + (self.whole.running if is_over else 0)

    @property
    def has_ended(self) -> bool:
        return self.run.state != RunState.RUNNING

    def standing(self) -> list[tuple[Action, Effect]]:
        """Effects that nobody has undone, in the order in which they would be: newest first."""
        happened = {ActionState.SUCCEEDED, ActionState.UNKNOWN}
        acted = [action for action in self.actions if action.state in happened]
        found = newest_first(acted, lambda action: self.effects.get(action.pk, ()), _position)
        return [
            (action, effect) for action, effect in found if effect.compensated == Compensated.NONE
        ]

    def is_irreversible(self, action: Action, effect: Effect | None = None) -> bool:
        """Whether catalogue, agent or twin call it so; repairing a record does not change that."""
        if self.class_of(action) == ActionClass.EXTERNAL_IRREVERSIBLE:
            return True
        if effect is None:
            return False
        twin = self.policy.twin(action.tool, effect.target_type)
        claims = (effect.reversibility, twin.reversibility if twin is not None else None)
        return Reversibility.IRREVERSIBLE in claims

    def reversibility_of(self, action: Action, effect: Effect) -> str:
        """How it is undone as catalogue, agent and twin say, the weaker of these. Nothing where
        they leave it to the connector of a registered way, whose plan tells; unknown where none is.
        """
        if self.is_irreversible(action, effect):
            return Reversibility.IRREVERSIBLE
        twin = self.policy.twin(action.tool, effect.target_type)
        claims = {effect.reversibility, twin.reversibility if twin is not None else None}
        for one in (Reversibility.COMPENSABLE, Reversibility.EXACT):
            if one in claims:
                return one
        has_way = twin is not None or suggested_undo(action.compensation) is not None
        return "" if has_way else Reversibility.UNKNOWN

    def untold(self) -> set[int]:
        """Calls that cannot be undone, and of which nobody told what they did."""
        return {
            one.pk
            for one in self._uncorrected()
            if not self.effects.get(one.pk) and self.is_irreversible(one)
        }

    def _uncorrected(self) -> list[Action]:
        return [
            one
            for one in self.actions
            if one.state == ActionState.SUCCEEDED and one.compensated != Compensated.CORRECTED
        ]

    def irreversible(self) -> list[CallEffect]:
        """What happened, cannot be undone and was not corrected, newest first: whether or not its
        record was repaired, and whether or not anybody told what it did.
        """
        found: list[CallEffect] = []
        untold = self.untold()
        for action in reversed(self._uncorrected()):
            told = sorted(self.effects.get(action.pk, ()), key=_position, reverse=True)
            if action.pk in untold:
                found.append(CallEffect(action, None))
            found += [
                CallEffect(action, effect)
                for effect in told
                if effect.compensated != Compensated.CORRECTED
                and self.is_irreversible(action, effect)
            ]
        return found

    def is_untold(self, action: Action) -> bool:
        """Whether it succeeded, and nobody told what it changed. Who claims that it only reads is
        taken at its word where the catalogue does not know better: it had nothing to tell.
        """
        if action.state != ActionState.SUCCEEDED or action.compensated != Compensated.NONE:
            return False
        if self.effects.get(action.pk) or CHANGED_NOTHING in action.flags:
            return False
        claimed = replace(self.tool_call(action), trusted=True)
        return class_of(self.policy, claimed) not in WITHOUT_EFFECT

    def remaining(self) -> list[CallEffect]:
        """All that a closing leaves behind: what stands, and what cannot be undone."""
        standing = [CallEffect(action, effect) for action, effect in self.standing()]
        known = {one.effect.pk for one in standing if one.effect is not None}
        return standing + [
            one for one in self.irreversible() if one.effect is None or one.effect.pk not in known
        ]

    def done(self) -> list[tuple[Action, Effect]]:
        """Effects of everything that succeeded, undone or not, in the order of the run."""
        return [
            (action, effect)
            for action in self.actions
            if action.state == ActionState.SUCCEEDED
            for effect in self.effects.get(action.pk, ())
        ]

    def unknown(self) -> list[Action]:
        """Actions of which nobody knows whether they happened."""
        return [action for action in self.actions if self.is_unknown(action)]

    def is_unknown(self, action: Action) -> bool:
        is_over = self.is_silent or self.has_ended
        running = action.state == ActionState.RUNNING
        return action.state == ActionState.UNKNOWN or (running and is_over)

    def calls_to_settle(self) -> str:
        """What a person has to find out of a call before the case goes on; empty where nothing."""
        for action in self.unknown():
            return f"Settle {action.tool_words} first: nobody knows whether it happened."
        return ""

    def steps_to_settle(self) -> str:
        """The same of a compensating call, which may have been made."""
        for step in self.troubled:
            if step.is_lost:
                where = f"Settle step {step.position} first"
                return f"{where}: it was sent, and its outcome is unknown."
        return ""

    def tool_call(self, action: Action) -> ToolCall:
        """The action as the policy judges it."""
        return tool_call_of(action, self.run)

    def class_of(self, action: Action) -> ActionClass:
        """As the catalogue has it; an agent's own word may only raise it."""
        return class_of(self.policy, action)

    def judgement(self, action: Action) -> PolicyDecision:
        """Made out once for draft, risk and reasons; facts made of these (`replace`) begin anew."""
        known = self._judged.get(action.pk)
        if known is None:
            known = self._judged[action.pk] = judge(self.policy, self.tool_call(action))
        return known

    def judgement_then(self, action: Action) -> PolicyDecision | None:
        """By the policy that was in force when an action ran past the gate."""
        then = self.earlier.get(action.pk, self.policy)
        if then is self.policy:
            return self.judgement(action)
        return None if then is None else judge(then, self.tool_call(action))

    def action(self, name: str) -> Action | None:
        return next((action for action in self.actions if action.action == name), None)

    def failed_action(self) -> Action | None:
        """The action that the run names as the failed one, else the last that failed."""
        named = self.action(self.run.failed_action) if self.run.failed_action else None
        if named is not None:
            return named
        return next((one for one in reversed(self.actions) if one.error), None)


def tool_call_of(action: Action, run: Run) -> ToolCall:
    return ToolCall(
        tool=action.tool,
        args=action.args,
        targets=action.targets or (),
        action_class=action.action_class,
        risk=action.risk,
        agent=run.agent.name if run.agent else "",
        labels=run.labels or {},
        saga=action.saga,
        trusted=action.trusted,
    )


def gather(
    runs: Sequence[Run],
    *,
    policies: Mapping[int, tuple[Policy, datetime | None]],
    now: datetime,
    also: Sequence[int] = (),
) -> list[RunFacts]:
    """Facts of each run, in the given order; `policies` by workspace id, with when each came."""
    ids = [run.pk for run in runs]
    wholes, kept = _actions_of(runs, policies, also)
    action_ids = [action.pk for found in kept.values() for action in found]
    standing = Effect.objects.filter(action__in=action_ids, withdrawn=False)
    effects = _by(standing.order_by("position"), "action_id")
    of_workspace: dict[int, list[Effect]] = defaultdict(list)
    for run in runs:  # who reads on from an effect to its call and its run asks no database
        for action in kept.get(run.pk, ()):
            action.run = run
            for effect in effects.get(action.pk, ()):
                effect.action = action
                of_workspace[effect.workspace_id].append(effect)
    for workspace, of_runs in of_workspace.items():
        snapshots.put_in_place(workspace, of_runs)
    both = Attempt.objects.filter(action__in=action_ids, state=AttemptState.CONTRADICTION)
    contradicted = frozenset(both.values_list("action_id", flat=True))
    checkpoints = _by(Checkpoint.objects.filter(run__in=ids).order_by("place"), "run_id")
    past_the_gate, imported = ungated(action_ids), frozenset(imported_in(runs))
    earlier = earlier_policies(kept, past_the_gate, policies)
    pivots = frozenset(pivots_in(kept, past_the_gate, imported, earlier, policies))
    in_order = kept_in_order(kept, past_the_gate, pivots)
    elsewhere = used_elsewhere(kept, past_the_gate, imported)
    steps, reports = _steps(ids), _reports(ids)
    directives = _resumptions(ids)
    denied, unlike = memory.denied_often(runs), memory.worth_a_look(runs)
    unread = {one.action_id: one for one in Readback.objects.filter(action__in=action_ids)}
    return [
        RunFacts(
            run=run,
            policy=policies[run.workspace_id][0],
            now=now,
            actions=kept.get(run.pk, ()),
            whole=wholes.get(run.pk),
            effects=effects,
            contradicted=contradicted,
            checkpoints=checkpoints.get(run.pk, ()),
            past_the_gate=past_the_gate,
            pivots=pivots,
            kept_in_order=in_order,
            used_elsewhere=elsewhere,
            earlier=earlier,
            imported=imported,
            troubled=[step for step in steps.get(run.pk, ()) if step.state in TROUBLED],
            under_way=[step for step in steps.get(run.pk, ()) if step.state in UNDER_WAY],
            reports=reports.get(run.pk, ()),
            directive=directives.get(run.pk),
            unread=unread,
            denied_often=denied.get(run.pk),
            unlike=unlike.get(run.pk, ()),
        )
        for run in runs
    ]


def facts_of(run: Run, *, also: Sequence[int] = ()) -> RunFacts:
    """The facts of one run, for pages and previews; its workspace and agent are loaded."""
    return gather([run], policies=policies_of([run]), now=database_time(), also=also)[0]


def facts_of_each(runs: Sequence[Run]) -> list[RunFacts]:
    """The facts of many runs, in their order, for as many queries as of one."""
    return gather(runs, policies=policies_of(runs), now=database_time())


def steps_of(run: int, effects: Sequence[int]) -> dict[int, Step]:
    """The last step that ended well for each effect of a run, and whether it `is_undone_again`."""
    ended = Step.objects.filter(plan__case__run=run, effect__in=effects, state__in=DONE)
    found = ended.prefetch_related("plan__drafted_by").order_by("pk")  # one plan, mostly
    steps = {step.effect_id: step for step in found}
    for number in _undone_again([step.pk for step in steps.values()]):
        steps[number].is_undone_again = True
    return steps


def _undone_again(steps: Sequence[int]) -> set[int]:
    """The effects whose undo by one of these steps was itself undone, and that not again."""
    undone = Effect.objects.filter(
        workspace=OuterRef("workspace"),
        action__run__run=Concat(Value(PLAN_RUN), Cast(OuterRef("plan_id"), CharField())),
        action__action=Concat(Value(PLAN_STEP), Cast(OuterRef("position"), CharField())),
        compensated=Compensated.COMPENSATED,
    )
    own = Subquery(undone.values("pk")[:1])
    found = Step.objects.filter(pk__in=steps).annotate(own=own).exclude(own=None)
    told = dict(found.values_list("effect_id", "own"))
    if not told:
        return set()
    last = Step.objects.filter(effect__in=told.values(), state__in=DONE).order_by("pk")
    stands = _undone_again([*dict(last.values_list("effect_id", "pk")).values()])
    return {effect for effect, own_effect in told.items() if own_effect not in stands}


def living(facts: RunFacts) -> Iterator[Action]:
    """Actions that may have changed something which nobody has undone."""
    for action in facts.actions:
        if action.compensated in {Compensated.NONE, Compensated.PARTLY}:
            yield action


def stands(facts: RunFacts, action: Action) -> list[Effect]:
    """What it is said to have changed, and nobody has undone."""
    if action.state not in {ActionState.SUCCEEDED, ActionState.UNKNOWN}:
        return []
    found = facts.effects.get(action.pk, ())
    return [effect for effect in found if effect.compensated == Compensated.NONE]


def _steps(run_ids: Sequence[int]) -> dict[int, list[Step]]:
    """Steps that wait for a person or are under way, of plans that nobody has replaced."""
    waiting = Step.objects.filter(
        plan__case__run__in=run_ids, state__in=[*TROUBLED, *UNDER_WAY]
    ).exclude(plan__state=PlanState.SUPERSEDED)
    found: dict[int, list[Step]] = defaultdict(list)
    told = waiting.select_related("plan__case").annotate(in_doubt=try_in_doubt())
    for step in told.order_by("pk"):
        step.has_try_in_doubt = step.in_doubt
        found[step.plan.case.run_id].append(step)
    return found


def _resumptions(run_ids: Sequence[int]) -> dict[int, Directive]:
    told = Directive.objects.filter(run__in=run_ids, kind="resume").order_by("pk")
    return {one.run_id: one for one in told}


def _reports(run_ids: Sequence[int]) -> dict[int, list[Report]]:
    told = Report.objects.filter(case__run__in=run_ids).select_related("case", "person")
    reports = list(told.order_by("pk"))
    contested = {one.case.run_id for one in reports if one.source == ReportSource.END_USER}
    upheld = Contest.objects.upheld(list(contested)) if contested else {}
    found: dict[int, list[Report]] = defaultdict(list)
    for one in reports:
        if one.source == ReportSource.END_USER:
            one.upheld = upheld.get((one.case.run_id, one.text))
        found[one.case.run_id].append(one)
    return found


def _actions_of(
    runs: Sequence[Run],
    policies: Mapping[int, tuple[Policy, datetime | None]],
    also: Sequence[int],
) -> tuple[dict[int, Whole], dict[int, list[Action]]]:
    """All of each run; of a long one those to be looked at (and `also` others), and its sums."""
    ordered = Action.objects.order_by("run", "n", "first_place")
    long = [one for one in runs if long_runs.is_long(one)]
    short = {one.pk for one in runs} - {one.pk for one in long}
    kept, wholes = _by(ordered.filter(run__in=short), "run_id"), {}
    for run in long:
        living = Connection.objects.filter(workspace=run.workspace_id, disabled_at=None)
        usable = frozenset(living.values_list("name", flat=True))
        wholes[run.pk], chosen = looked_at(run, policies[run.workspace_id][0], usable)
        kept[run.pk] = list(ordered.filter(run=run, pk__in=[*chosen, *also]))
    return wholes, kept


def _by(rows: Iterable[T], column: str) -> dict[int, list[T]]:
    grouped: dict[int, list[T]] = defaultdict(list)
    for row in rows:
        grouped[getattr(row, column)].append(row)
    return grouped


def _position(effect: Effect) -> int:
    return effect.position
