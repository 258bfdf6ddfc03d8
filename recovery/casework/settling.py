"""Settling: what became of a call whose outcome nobody knows, said by a person with evidence.

The word of a person is an event with their name. For an action of an agent it ends the doubt in the
ledger; for a step it moves the step, and the engine goes on from there.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import F

from amends.protocol.vocabulary import EventType
from connectors.contract import Refused
from ledger.models import Action, ActionState, Event, Run, Verified
from recovery.cases.lifecycle import NotPossible, OutOfDate, locked, refuse_if_claimed, reread
from recovery.engine import approved_calls, outbound_calls, plan_lifecycle, preconditions, steps
from recovery.models import Case, CaseState, PlanState, Step, StepState
from recovery.models.plans import TROUBLED
from recovery.run_facts.runs import RunFacts, facts_of
from recovery.tasks import run_plan
from recovery.triage import outcome_probes, triage
from workspaces import formatting, locks
from workspaces.free_text import InvalidInput, kept_text
from workspaces.models import User
from workspaces.moves import CannotMove
from workspaces.pages import is_number
from workspaces.wakeups import wake_on_commit

APPLIED, NO_EFFECT = "applied", "no_effect"
OUTCOMES = (APPLIED, NO_EFFECT)
AGAIN, SKIP = "again", "skip"
"""What else may be said of a step: once more, or leave the effect as it is."""

EVIDENCE_CHARACTERS_MAX = 8_000
IN_DOUBT = {*TROUBLED, ActionState.UNKNOWN, ActionState.RUNNING}


class ProbeDisagrees(NotPossible):
    """We stopped because the outside system, asked just now, shows the opposite. Say so again, and
    why the system is wrong, if it is."""


def settle_call(
    case: Case,
    action: Action,
    *,
    outcome: str,
    evidence: str,
    by: User,
    seen: int,
    against_probe: bool = False,
) -> Case:
    """Say whether an agent's call happened, after the policy's probe was asked; raises
    ProbeDisagrees where it proves the opposite, unless the person knows that (`against_probe`), and
    what `settle_action` raises.
    """
    shown = _opposite(facts_now(case), action, outcome)
    if shown and not against_probe:
        happened = "did not happen" if outcome == APPLIED else "happened"
        raise ProbeDisagrees(f"The system says that it {happened}: {shown}")
    return settle_action(
        case, action, outcome=outcome, evidence=evidence, by=by, seen=seen, against=shown
    )


def _opposite(facts: RunFacts, action: Action, outcome: str) -> str:
    """What a probe shows, in words, where it proves the opposite; asked only of what is in doubt,
    and has an outcome that may be said.
    """
    doubtful = action.pk in {one.pk for one in facts.unknown()}
    if not doubtful or outcome not in OUTCOMES or not outcome_probes.can_ask(facts, action):
        return ""
    asked = outcome_probes.ask(facts, action)
    return asked.words if asked.outcome not in {"", outcome} else ""


@transaction.atomic
def settle_action(
    case: Case,
    action: Action,
    *,
    outcome: str,
    evidence: str,
    by: User,
    seen: int,
    against: str = "",
) -> Case:
    """Say whether an agent's call happened, `against` what a probe has shown, if it is so; raises
    OutOfDate, CannotMove or InvalidInput.
    """
    case = locked(case, seen=seen)
    _check(case, by, outcome)
    doubtful = {one.pk for one in facts_of(case.run).unknown()}
    if action.pk not in doubtful:
        raise CannotMove(action, outcome, f"The outcome of {action.tool_words} is known.")
    kept = {"text": _text(evidence)} | ({"against_probe": against} if against else {})
    data = {"outcome": outcome, "evidence": kept, "case": case.pk, "revision": seen}
    return triage.record_of_call(case, action, EventType.ACTION_SETTLED, data=data, by=by)


def decide_step(step: Step, *, way: str, words: str, by: User, seen: int) -> None:
    """Say what becomes of a step that waits: one of OUTCOMES, AGAIN or SKIP, as far as the step's
    state allows; raises as above.
    """
    if way == SKIP and not step.is_lost:
        skip(step, reason=words, by=by, seen=seen)
    elif way == AGAIN and not step.is_lost:
        try_again(step, reason=words, by=by, seen=seen)
    else:
        outcome = NO_EFFECT if way in {AGAIN, SKIP} else way
        settle_step(step, outcome=outcome, evidence=words, by=by, seen=seen, again=way == AGAIN)


@transaction.atomic
def settle_step(
    step: Step, *, outcome: str, evidence: str, by: User, seen: int, again: bool = False
) -> Step:
    """Say whether a compensating call happened; raises OutOfDate, CannotMove or InvalidInput.

    What happened is read back. What did not is tried once more if the person says so (`again`), and
    else the step is skipped; of a step that is still unknown the absence itself leads to a try, not
    before a probe would have proven it: the first call may be on its way, and a look not show it.
    A probe that is under way just now changes nothing any more.
    """
    step = _locked_step(step, by, outcome, seen)
    text = _text(evidence)
    data = {"outcome": outcome, "evidence": {"text": text}, "again": again, "revision": seen}
    kept = (step.evidence or {}) | {"person": {"id": by.pk, "outcome": outcome, "text": text}}
    if step.state not in {StepState.UNKNOWN, StepState.NEEDS_HUMAN}:
        raise CannotMove(step, outcome, "The outcome of this step is known.")
    if again:
        _check_that_it_runs(step)
    if outcome == NO_EFFECT:
        preconditions.rule_out_tries(step)
    if outcome == APPLIED:
        found = {"evidence": kept, "drift": None, "probes": 0}
        _move(step, StepState.APPLIED, by=by, note=text, data=data, **found)
    elif step.state == StepState.NEEDS_HUMAN and not again:
        _move(step, StepState.SKIPPED, by=by, note=text, data=data, evidence=kept)
        steps.release_sums_of_no_effect([step])
    else:
        _move(step, StepState.READY, by=by, note=text, data=data, evidence=kept, **_again(step))
    return step


@transaction.atomic
def try_again(step: Step, *, reason: str, by: User, seen: int) -> Step:
    """Authorise one more try of a step that certainly had no effect; raises as above."""
    step = _locked_step(step, by, NO_EFFECT, seen)
    if step.is_lost:
        raise CannotMove(step, StepState.READY, "First say whether it happened.")
    _check_that_it_runs(step)
    data = {"again": True, "revision": seen}
    _move(step, StepState.READY, by=by, note=_text(reason), data=data, **_again(step))
    return step


@transaction.atomic
def skip(step: Step, *, reason: str, by: User, seen: int) -> Step:
    """Leave the effect as it is; raises CannotMove for what was sent and is not settled."""
    step = _locked_step(step, by, NO_EFFECT, seen)
    if step.is_lost:
        raise CannotMove(step, StepState.SKIPPED, "First say whether it happened.")
    data = {"skipped": True, "revision": seen}
    _move(step, StepState.SKIPPED, by=by, note=_text(reason), data=data)
    steps.release_sums([step])
    return step


def _check_that_it_runs(step: Step) -> None:
    """Of a stopped plan nothing more is sent, so nobody is told that it would be."""
    if step.plan.state != PlanState.RUNNING:
        words = "Its plan was stopped, so it is not tried again: make a new plan."
        raise CannotMove(step, StepState.READY, words)


def steps_in_doubt(case: Case) -> list[Step]:
    """Steps of the case that wait for a person's word, newest plan first."""
    waiting = Step.objects.filter(plan__case=case, state__in=TROUBLED).exclude(
        plan__state=PlanState.SUPERSEDED
    )
    return list(waiting.select_related(*steps.RELATED).order_by("-plan__number", "position"))


def facts_now(case: Case) -> RunFacts:
    """What is known of the case's run at this moment, read anew."""
    return facts_of(reread(case).run)


def _locked_step(step: Step, by: User, outcome: str, seen: int) -> Step:
    """The step as it is, under its lock, then its runs' and last its case's: a worker holds a step
    while it writes to its runs, and triage a run while it writes to its case. Runs are locked in
    the order of their names, as the ledger locks them.
    """
    locks.locked(Step.objects.only("pk")).get(pk=step.pk)
    step = steps.load(step.pk)
    mine = locks.locked(Run.objects.filter(workspace=step.workspace_id))
    for name in sorted({steps.run_of(step.plan), step.effect.action.run.run}):
        mine.only("pk").filter(run=name).first()
    case = locks.locked(Case.objects.all()).get(pk=step.plan.case_id)
    if case.revision != seen:
        raise OutOfDate(case)
    _check(case, by, outcome)
    return step


def _check(case: Case, by: User, outcome: str) -> None:
    if outcome not in OUTCOMES:
        raise InvalidInput("Say whether it happened or not.")
    refuse_if_claimed(case, by, outcome)


def _again(step: Step) -> dict[str, Any]:
    """A named person authorises one more try: where the old key might be dead, under a new one."""
    changes: dict[str, Any] = {"lease_until": None, "probes": 0, "claims": 0, "drift": None}
    if step.state != StepState.UNKNOWN:
        changes["wake_at"] = None
    elif may_repeat(step):
        return changes
    generation = step.generation + 1
    action = step.effect.action
    return changes | {
        "generation": generation,
        "key": approved_calls.key_of_undo(
            workspace=step.workspace.slug,
            connection=step.connection.name,
            operation=step.operation,
            run=action.run.run,
            action=action.action,
            position=step.effect.position,
            args=step.args,
            generation=generation,
        ),
    }


def may_repeat(step: Step) -> bool:
    """Whether something keeps a second try under the step's key from doing it twice."""
    try:
        return outbound_calls.operation_of(step).may_repeat
    except Refused:  # a connector that is gone promises nothing
        return False


def reads_back(step: Step) -> bool:
    """Whether what it did can be read afterwards, where it was done, so that a person's word does
    not end it.
    """
    try:
        reads = outbound_calls.operation_of(step).reads_back
        return reads and approved_calls.reads_elsewhere(step) is None
    except Refused:  # of a connector that is gone no word counts before it can be read again
        return True


def _move(
    step: Step, to: str, *, by: User, note: str, data: dict[str, Any], **changes: Any
) -> None:
    steps.move(step, to, by=by, note=note, data=data, **changes)
    Run.objects.filter(pk=step.effect.action.run_id).update(revision=F("revision") + 1)
    if step.plan.state == PlanState.RUNNING:
        plan_lifecycle.move_case(step.plan, CaseState.RECOVERING)
    else:
        Case.objects.filter(pk=step.plan.case_id).update(revision=F("revision") + 1)
    wake_on_commit(run_plan, step.plan_id)


def _text(text: str) -> str:
    return kept_text(text, EVIDENCE_CHARACTERS_MAX, asking="Say what you saw, and where.")


def awaited(facts: RunFacts) -> list[Action]:
    """Calls whose rule asks for a verification that has not come."""
    return [
        action
        for action in facts.actions
        if action.state == ActionState.SUCCEEDED
        and action.verified == Verified.NOT_YET
        and facts.policy.may_verify(action.tool)
        and facts.judgement(action).verify != "NONE"
    ]


@transaction.atomic
def confirm(case: Case, action: Action, *, ok: bool, evidence: str, by: User, seen: int) -> Case:
    """Say what was seen of a call; raises OutOfDate, CannotMove or InvalidInput."""
    case = locked(case, seen=seen)
    refuse_if_claimed(case, by, "verified")
    text = _text(evidence)
    if action.pk not in {one.pk for one in awaited(facts_of(case.run))}:
        raise CannotMove(action, "verified", f"{action.tool_words} has been verified meanwhile.")
    check = {"name": f"seen by {by}", "expected": "as it should be", "actual": text, "ok": ok}
    data = {"ok": ok, "checks": [check]}
    return triage.record_of_call(case, action, EventType.ACTION_VERIFIED, data=data, by=by)


def _last_word(case: Case, subject: Action | Step) -> Event | None:
    """What a person said of it last."""
    if isinstance(subject, Step):
        run, action = steps.run_of(subject.plan), steps.action_of(subject)
    else:
        run, action = case.run.run, subject.action
    events = Event.objects.filter(
        workspace=case.workspace_id, run=run, action=action, actor_kind="person"
    )
    return events.order_by("-place").first()


def _text_of(word: Event) -> str:
    """The evidence, or the note, that was given with it."""
    data = word.data or {}
    evidence = data.get("evidence")
    found = evidence.get("text") if isinstance(evidence, dict) else ""
    return str(found or data.get("note") or "")


def is_said(
    case: Case, subject: Action | Step, *, way: str, words: str, by: User, seen: int
) -> bool:
    """Whether this is what this person has said of it last, over what they saw, and it is in doubt
    no more: it was sent once more, by a second click or a proxy that heard no answer.
    """
    subject.refresh_from_db(fields=["state"])
    last = _last_word(case, subject)
    if last is None or subject.state in IN_DOUBT:
        return False
    data = last.data or {}
    told = (last.actor, data.get("revision"), _text_of(last))
    if told != (str(by.pk), seen, kept_text(words, len(words))):
        return False
    became = (data.get("outcome", NO_EFFECT), bool(data.get("again")))
    return became == (NO_EFFECT if way in {AGAIN, SKIP} else way, way == AGAIN)


def settled_meanwhile(case: Case, subject: Action | Step) -> str:
    """“Ben answered it 2 min ago: “T-182 reads normal”. It is verified now.”"""
    last = _last_word(case, subject)
    now = f"It is {subject.get_state_display().lower()} now."
    if last is None:
        return f"It is in doubt no longer. {now}"
    text = _text_of(last)
    words = f": {formatting.quoted(text)}" if text else ""
    return f"{_answered(last)}{words}. {now}"


def _answered(word: Event) -> str:
    person = User.objects.filter(pk=word.actor).first() if is_number(word.actor) else None
    return f"{person or 'Somebody'} answered it {formatting.ago(word.received_at)}"


def is_confirmed(case: Case, action: Action, *, ok: bool, words: str, by: User) -> bool:
    """Whether this is what this person has said of a call that waited to be verified."""
    last = _last_word(case, action)
    if last is None or last.type != EventType.ACTION_VERIFIED or last.actor != str(by.pk):
        return False
    data = last.data or {}
    told = [one.get("actual") for one in data.get("checks", ())]
    return data.get("ok") is ok and told == [kept_text(words, len(words))]


def verified_meanwhile(case: Case, action: Action) -> str:
    """“Ben answered it 2 min ago. It counts as verified now.”; what they saw is not everybody's."""
    last = _last_word(case, action)
    now = {
        Verified.OK: "It counts as verified now.",
        Verified.FAILED: "It counts as found wrong now.",
        Verified.NOT_YET: "It waits for nobody’s word any more.",
    }[Verified(action.verified)]
    is_theirs = last is not None and last.type == EventType.ACTION_VERIFIED
    return f"{_answered(last)}. {now}" if last is not None and is_theirs else now
