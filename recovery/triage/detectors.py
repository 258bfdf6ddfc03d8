"""Reasons: everything that makes a run a case, each from facts and in one sentence.

A kind of reason is one row of `KINDS`, at the end: how it is found, the headline, what the affected
person is told, and what else hangs on it. A reason's key names it within the run. A closing answers
the keys that it saw; only a key that nobody has answered opens a closed case again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from django.utils.translation import gettext_noop

from amends.protocol.vocabulary import WITHOUT_EFFECT
from approvals.gate.decision_table import NOTHING_BEGUN
from approvals.memory import DENIED_OFTEN as OFTEN
from ledger.fold.actions import NOT_AS_APPROVED
from ledger.models import Action, ActionState, Compensated, Effect, Run, RunState, Verified
from recovery.models import Case, CaseOutcome, CaseState, ReadbackState, StepState
from recovery.run_facts.endings import after_the_end
from recovery.run_facts.policies import ran_at
from recovery.run_facts.runs import RunFacts, living, stands
from recovery.run_facts.sentences import target_words
from recovery.triage.case_reasons import REASONS_MAX, Reason, ReasonKind
from recovery.triage.repeated_calls import keys_reused, the_same_call_twice
from workspaces import formatting

LEFT_MAX = 500
NAMELESS = "Something was done of which no plan is on record, so no rule has allowed it"


def reasons(facts: RunFacts, case: Case | None, most: int = 0) -> list[Reason]:
    """Why this run needs somebody; empty where it does not. The weightiest kind comes first.

    That it failed and did nothing is said only where nothing else is, and never of a `case` that
    was in the queue: what somebody worked on is not taken out of their sight, nor opened again.
    """
    found = [reason for finder in FINDERS for reason in finder(facts)]
    if case is not None:
        found[:0] = told_after_closing(facts, case)
    if not found and (case is None or case.without_effects):
        found = list(failed_without_effects(facts))
    return found[: most or REASONS_MAX]


def changing(facts: RunFacts, action: Action) -> bool:
    """Whether an action of this kind changes anything, as the policy's catalogue has it."""
    if facts.effects.get(action.pk):
        return True
    return facts.judgement(action).action_class not in WITHOUT_EFFECT


def steps_that_wait(facts: RunFacts) -> Iterator[Reason]:
    states = {
        StepState.DRIFTED: "found its target changed",
        StepState.UNKNOWN: "has an unknown outcome",
        StepState.NEEDS_HUMAN: "needs a person",
    }
    for step in facts.troubled:
        state = StepState(step.state)
        words = f"Step {step.position} of plan {step.plan.number} {states[state]}"
        note = f": {step.note}" if step.note else ""
        more = f"{step.plan.number}.{step.position}.{state}"
        yield Reason("step_needs_person", f"{words}{note}", more=more)


def outcomes_unknown(facts: RunFacts) -> Iterator[Reason]:
    for action in facts.unknown():
        if action.pk in facts.contradicted:
            words = f"{action.tool_words} is said to have succeeded and to have had no effect"
            yield Reason("contradiction", words, action.action)
        elif action.state == ActionState.UNKNOWN:
            words = f"{action.tool_words} may have happened: its outcome is unknown"
            yield Reason("outcome_unknown", words, action.action)
        else:
            words = f"{action.tool_words} was started and its time is over: it may have happened"
            yield Reason("past_its_time", words, action.action)


def effects_after_the_end(facts: RunFacts) -> Iterator[Reason]:
    """What came to an end after the user had cancelled, and changed something all the same."""
    if facts.run.state != RunState.CANCELLED:
        return
    late = after_the_end(facts.run, list(living(facts)))
    for action in living(facts):
        if action.pk in late and stands(facts, action):
            words = f"{action.tool_words} took effect after the run was cancelled"
            yield Reason("late_effect", words, action.action)


def stood_at_closing(run: Run) -> Reason:
    """Answered by a closing that kept what stood then; of a run that ended anew it says nothing."""
    return Reason("told_after_undo", "", more=run.ended_at.isoformat() if run.ended_at else "")


def told_after_closing(facts: RunFacts, case: Case) -> Iterator[Reason]:
    """What changed something and was told once the case was closed: a spool that came late. A case
    that was opened for it goes on telling of it.
    """
    told = {str(one["key"]) for one in case.evidence if isinstance(one, dict) and "key" in one}
    stood = stood_at_closing(facts.run).key
    is_kept = stood in case.answered and case.outcome != CaseOutcome.RESUMED
    is_over = case.state == CaseState.CLOSED and (is_kept or case.outcome == CaseOutcome.RESTORED)
    for one in _left(facts):
        if one.key in told or (is_over and one.key not in case.answered):
            yield one


def left_at_closing(facts: RunFacts) -> list[Reason]:
    """What stands as a case is closed, to answer it: whatever else comes was told late. Empty where
    the run may go on, and where so much stands that the row cannot keep it.
    """
    left = [stood_at_closing(facts.run), *_left(facts)]
    is_whole = facts.run.ended_at and not (facts.whole and facts.whole.is_cut)
    return left if is_whole and len(left) <= LEFT_MAX else []


def _left(facts: RunFacts) -> Iterator[Reason]:
    untold = facts.untold()
    for action in living(facts):
        if stands(facts, action) or action.pk in untold or facts.is_untold(action):
            words = f"{action.tool_words} was told of after the case had been closed, and stands"
            yield Reason("told_after_undo", words, action.action)


def verifications(facts: RunFacts) -> Iterator[Reason]:
    for action in living(facts):
        if action.verified == Verified.FAILED:
            wrong = ", ".join(
                formatting.plain(str(check.get("name", "check")))
                for check in action.checks or []
                if isinstance(check, dict) and not check.get("ok")
            )
            words = f"{action.tool_words} did not pass its verification"
            yield Reason("verification_failed", f"{words}{wrong and f': {wrong}'}", action.action)


def never_verified(facts: RunFacts) -> Iterator[Reason]:
    for action in living(facts) if facts.has_ended or facts.is_silent else ():
        if action.verified != Verified.NOT_YET or action.state != ActionState.SUCCEEDED:
            continue
        wanted, read = facts.judgement(action).verify, facts.unread.get(action.pk)
        if wanted == "CONNECTOR":  # the desk reads it back itself, and says so if it cannot
            is_lacking = read is not None and read.state == ReadbackState.GIVEN_UP
        else:
            is_lacking = wanted != "NONE"
        if is_lacking and stands(facts, action):
            words = f"{action.tool_words} was never verified, and its rule asks for that"
            yield Reason("verification_missing", words, action.action)


def ended_badly(facts: RunFacts) -> Iterator[Reason]:
    """Failed, cancelled or silent, and something it did stands."""
    states = {
        RunState.FAILED: ("failed_with_effects", "The run failed and {}"),
        RunState.CANCELLED: ("cancelled_with_effects", "The run was cancelled and {}"),
    }
    code, words = states.get(RunState(facts.run.state), ("", ""))
    if facts.is_silent:
        code, words = "stalled", "The run fell silent and {}"
    if not code:
        return
    untold, acted = facts.untold(), [(one, stands(facts, one)) for one in living(facts)]
    silent = [a for a, found in acted if not found and (a.pk in untold or _is_untold(facts, a))]
    if facts.whole and silent:  # one for all, first, by a key that outlives what is gathered
        yield Reason(code, words.format(_standing_words(silent.pop())), more="untold")
    pks = {action.pk for action in silent if not facts.whole}
    for action, standing in acted:
        if standing or action.pk in pks:
            yield Reason(code, words.format(_standing_words(action, standing)), action.action)


def _is_untold(facts: RunFacts, action: Action) -> bool:
    """A failed run's agent is believed less: not even that a call of it only read."""
    is_doubted = facts.run.state == RunState.FAILED and _may_have_changed(facts, action)
    return is_doubted or facts.is_untold(action)


def without_approval(facts: RunFacts) -> Iterator[Reason]:
    """What ran past the gate, whatever was said of it: a success alone, or effects alone, will do.

    Judged by the policy that was in force when the action ran; of one that is no longer known no
    reason is made. What has no plan no policy can have allowed.
    """
    for action in living(facts):
        if (facts.run.pk, action.action) in facts.imported:
            continue
        if NOT_AS_APPROVED in action.flags:
            words = f"{action.tool_words} was made with other arguments than it was allowed with"
            yield Reason("not_as_allowed", words, action.action)
            continue
        if action.pk not in facts.past_the_gate:
            continue
        if not action.tool:
            if facts.has_ended or facts.is_silent or _plan_is_late(facts, ran_at(action)):
                yield Reason("unplanned", NAMELESS, action.action)
            continue
        judgement = facts.judgement_then(action)
        if judgement is not None and judgement.approval == "MANUAL":
            words = f"{action.tool_words} ran without the approval that its rule asks for"
            yield Reason("unapproved", words, action.action)
        elif judgement is not None and judgement.approval == "DENY":
            words = f"{action.tool_words} ran although it is never allowed"
            yield Reason("denied", words, action.action)


def _plan_is_late(facts: RunFacts, ran_at: datetime | None) -> bool:
    """Whether a plan that is still on its way would have come, though its run goes on and on."""
    patience = timedelta(seconds=facts.policy.stuck_after_seconds)
    return ran_at is not None and facts.now - ran_at > patience


def law_of_order(facts: RunFacts) -> Iterator[Reason]:
    """After the pivot comes what can be retried, and what people let through; else it breaks."""
    pivot: Action | None = None
    for action in facts.actions:
        if action.saga == "retriable" or action.state == ActionState.FAILED:
            continue
        if pivot is None:
            is_pivot = action.pk in facts.pivots and action.state not in NOTHING_BEGUN
            pivot = action if is_pivot else None
        elif changing(facts, action) and action.pk not in facts.kept_in_order:
            what = "a second pivot" if action.pk in facts.pivots else "neither pivot nor retriable"
            words = f"{action.tool_words} is {what}, and was planned after the pivot"
            yield Reason("out_of_order", f"{words} {pivot.tool_words}", action.action)


def denied_often(facts: RunFacts) -> Iterator[Reason]:
    if facts.denied_often is not None:
        tool = formatting.named(facts.denied_often) if facts.denied_often else "a tool"
        words = f"Rules denied its calls {OFTEN} times or more, {tool} last: it does not take no"
        yield Reason("denied_often", words)


def unlike_before(facts: RunFacts) -> Iterator[Reason]:
    """What the policy wants a person to look at afterwards, once it has taken effect."""
    for name, words in facts.unlike:
        action = facts.action(name)
        if action is None or action.state != ActionState.SUCCEEDED or action not in living(facts):
            continue
        told = f"{action.tool_words} asked nobody, and is unlike what its agent did before: {words}"
        yield Reason("unlike_before", told, action.action, words)


def not_resumed(facts: RunFacts) -> Iterator[Reason]:
    """Told to resume, and nothing came back in time."""
    directive = facts.directive
    if directive is None or directive.acknowledged_at or not directive.acknowledge_by:
        return
    if directive.acknowledge_by < facts.now:
        words = "The agent was told to resume and did not answer in time"
        yield Reason("not_resumed", words, more=str(directive.pk))


def reported(facts: RunFacts) -> Iterator[Reason]:
    for report in facts.reports:
        who = report.get_source_display().lower()
        words = f"Reported by the {who}" if report.source != "operator" else "Reported"
        yield Reason("reported", f"{words}: {formatting.plain(report.text)}", more=str(report.pk))


def failed_without_effects(facts: RunFacts) -> Iterator[Reason]:
    """An agent's run that failed, where all of it is known and none of it changed anything.

    The key holds when it failed: a run that is taken up again and fails anew is a case anew.
    """
    run = facts.run
    if run.agent_id is None or run.state != RunState.FAILED:
        return
    if facts.whole and facts.whole.changing:
        return  # among what was not gathered may be something that was undone
    if facts.unknown() or facts.troubled or facts.under_way:
        return
    if any(_may_have_changed(facts, action) for action in facts.actions):
        return
    failed = facts.failed_action()
    words = f"The run failed{f' at {failed.tool_words}' if failed else ''} and nothing took effect"
    when = run.ended_at.isoformat() if run.ended_at else ""
    yield Reason("failed_without_effects", words, failed.action if failed else "", when)


def _may_have_changed(facts: RunFacts, action: Action) -> bool:
    if facts.effects.get(action.pk) or action.compensated != Compensated.NONE:
        return True
    return action.state == ActionState.SUCCEEDED and changing(facts, action)


def _standing_words(action: Action, effects: Sequence[Effect] = ()) -> str:
    is_known = action.state == ActionState.SUCCEEDED
    did, stands = ("did", "stands") if is_known else ("may have done", "may stand")
    if not effects:
        return f"what {action.tool_words} {did} {stands}"
    more = f" and {len(effects) - 1} more" if len(effects) > 1 else ""
    first = target_words(effects[0].target_type, effects[0].target_id)
    return f"what it {did} to {first}{more} {stands}"


_ROWS = (
    ReasonKind(
        "step_needs_person",
        steps_that_wait,
        headline="and undoing it needs a person{at_step}",
        person=gettext_noop("One of our people had to step in to put this right."),
        is_about_repair=True,
        allows_automatic=False,
    ),
    ReasonKind(
        "contradiction",
        outcomes_unknown,
        headline="and says both that {tool} succeeded and that it did not",
        settled="and tells of {tool} otherwise than was settled",
        person=gettext_noop("We were told both that this had been done and that it had not."),
    ),
    ReasonKind(
        "outcome_unknown",
        outcomes_unknown,
        headline="and may have run {tool}: its outcome is unknown",
        known="and left {tool} in doubt: it {ended}",
        brief="Outcome unknown{error}",
        person=gettext_noop("It was not certain whether this had been done."),
    ),
    ReasonKind(
        "past_its_time",
        outcomes_unknown,
        headline="and may have run {tool}: it never said how it ended",
        known="and never said how {tool} ended: it {ended}",
        person=gettext_noop("It was not certain whether this had been done."),
    ),
    ReasonKind(
        "late_effect",
        effects_after_the_end,
        headline="and {tool} took effect after the run was cancelled",
        person=gettext_noop("This was done after the request had been cancelled."),
    ),
    ReasonKind(
        "told_after_undo",  # as kept cases call it: once, it was only said after an undo
        told_after_closing,
        headline="and told of {tool} only after the case had been closed",
        person=gettext_noop("This should not have happened."),
        is_about_repair=True,
        allows_automatic=False,
    ),
    ReasonKind(
        "verification_failed",
        verifications,
        headline="and a check found it wrong{not_so}",
        brief="A check found it wrong{not_so}",
        person=gettext_noop("A check found that this is not what was asked for."),
        likens_by_error=False,
    ),
    ReasonKind(
        "failed_with_effects",
        ended_badly,
        headline="then failed{failure}",
        brief="Failed{error}",
        person=gettext_noop("The work stopped half-way."),
    ),
    ReasonKind(
        "cancelled_with_effects",
        ended_badly,
        headline="and was cancelled half-way",
        person=gettext_noop("The request was cancelled after part of it had been done."),
    ),
    ReasonKind(
        "stalled",
        ended_badly,
        headline="then fell silent",
        person=gettext_noop("The work stopped half-way."),
    ),
    ReasonKind(
        "verification_missing",
        never_verified,
        headline="and nobody has verified it",
        person=gettext_noop("Nobody could confirm that this is what was asked for."),
    ),
    ReasonKind(
        "key_reused",
        keys_reused,
        headline="and used the key of {tool} again with other arguments",
        person=gettext_noop("One request was mixed up with another."),
    ),
    ReasonKind(
        "effect_twice",
        keys_reused,
        headline="and {tool} took effect twice",
        person=gettext_noop("The same thing was done twice."),
    ),
    ReasonKind(
        "same_call_twice",
        the_same_call_twice,
        headline="and called {tool} twice with the same arguments",
        person=gettext_noop("The same thing was done twice."),
    ),
    ReasonKind(
        "unapproved",
        without_approval,
        headline="and ran {call} without the approval that its rule asks for",
        person=gettext_noop("This was done without the approval that it needs."),
    ),
    ReasonKind(
        "not_as_allowed",
        without_approval,
        headline="and ran {tool} with other arguments than it was allowed with",
        person=gettext_noop("This was done otherwise than it had been allowed."),
    ),
    ReasonKind(
        "unplanned",
        without_approval,
        headline="and did something of which no plan is on record, so no rule has allowed it",
        person=gettext_noop("Something was done that nobody had planned."),
    ),
    ReasonKind(
        "denied",
        without_approval,
        headline="and ran {tool}, which is never allowed",
        person=gettext_noop("This should not have been done."),
    ),
    ReasonKind(
        "denied_often",
        denied_often,
        headline="and asked again and again for what its rules never allow",
        person=gettext_noop("The assistant kept trying to do what it is not allowed to do."),
    ),
    ReasonKind(
        "out_of_order",
        law_of_order,
        headline="and ran {tool} out of order, after the pivot",
        person=gettext_noop("This was done in the wrong order."),
    ),
    ReasonKind(
        "not_resumed",
        not_resumed,
        headline="and did not resume in time",
        person=gettext_noop("The work stopped half-way and was not taken up again."),
        is_about_repair=True,
    ),
    ReasonKind(
        "reported",
        reported,
        headline="and {reporter} reported it",
        person=gettext_noop("Somebody told us that this was wrong."),
        likens_by_error=False,
        allows_automatic=False,
    ),
    ReasonKind(
        "unlike_before",
        unlike_before,
        headline="and {tool} is unlike what it did before",
        person=gettext_noop("We are looking at whether this is what was asked for."),
        likens_by_error=False,
        allows_automatic=False,
    ),
    ReasonKind(
        "failed_without_effects",
        failed_without_effects,
        headline="failed{failure} and nothing took effect",
        brief="Failed{error}",
        person=gettext_noop("The work stopped before anything had been changed."),
    ),
)

KINDS = {kind.code: kind for kind in _ROWS}
"""Every kind of reason there is, the weightiest first."""

OF_CASES = (failed_without_effects, told_after_closing)
"""What is looked for by more than the facts of a run."""

FINDERS = tuple(dict.fromkeys(kind.finder for kind in _ROWS if kind.finder not in OF_CASES))
