"""Suggestion: what to do next with a case, and why in one sentence."""

from __future__ import annotations

from ledger.models import Action, ActionState, Compensated, RunState
from recovery.facts.runs import RunFacts
from recovery.facts.words import listed, plural
from recovery.models import Suggestion


def suggest(facts: RunFacts) -> tuple[Suggestion, str]:
    """The next step and its reason. Pure: the same facts, the same advice."""
    lost = [step for step in facts.troubled if step.is_lost]
    unknown = facts.unknown()
    if unknown:
        tools = listed(list(dict.fromkeys(action.tool_words for action in unknown)))
        return Suggestion.SETTLE, f"First find out whether {tools} happened: nobody knows yet."
    if lost:
        return Suggestion.SETTLE, f"Step {lost[0].position} was sent and its outcome is unknown."
    forward = _forward(facts)
    if forward:
        return Suggestion.RESUME, forward
    standing = facts.standing()
    if standing:
        effects = plural(len(standing), "effect")
        verb = "stands" if len(standing) == 1 else "stand"
        return Suggestion.COMPENSATE, f"{effects} of this run {verb}, and {_why(facts)}."
    return _without_effects(facts)


def _without_effects(facts: RunFacts) -> tuple[Suggestion, str]:
    lasting = facts.irreversible()
    if lasting:
        tools = listed(list(dict.fromkeys(one.action.tool_words for one in lasting)))
        return Suggestion.CLOSE, f"{tools} cannot be undone: say who looks after what is left."
    if any(action.compensated == Compensated.CORRECTED for action in facts.actions):
        return Suggestion.CLOSE, "What could not be undone was corrected, and nothing else stands."
    if facts.run.state in {RunState.FAILED, RunState.CANCELLED} or facts.is_silent:
        if any(action.compensated != Compensated.NONE for action in facts.actions):
            return Suggestion.CLOSE, _nothing_stands(facts, "Everything that stood was put right")
        return Suggestion.RESUME, "Nothing has taken effect, so the run can be taken up again."
    return Suggestion.CLOSE, _nothing_stands(facts, "No effect stands and no outcome is unknown")


def _nothing_stands(facts: RunFacts, words: str) -> str:
    """What somebody reported may be true all the same, and only a person can tell."""
    return f"{words}, but somebody reports it: answer that first." if facts.reports else f"{words}."


def _forward(facts: RunFacts) -> str:
    """Why going forward is better than going back; empty if it is not."""
    if facts.run.state == RunState.COMPLETED:
        return ""
    pivot = next(
        (
            action
            for action in facts.actions
            if action.saga == "pivot"
            and action.state == ActionState.SUCCEEDED
            and action.compensated == Compensated.NONE
        ),
        None,
    )
    if pivot is None or facts.reports or facts.troubled:
        return ""
    rest = _after(facts, pivot)
    if not all(action.saga == "retriable" for action in rest):
        return ""
    if not rest and not (facts.checkpoints and facts.checkpoints[-1].pending):
        return ""
    return f"{pivot.tool_words} was the point of no return, and what remains can be tried again."


def _after(facts: RunFacts, pivot: Action) -> list[Action]:
    """What came after the pivot and has not succeeded."""
    place = list(facts.actions).index(pivot)
    return [one for one in facts.actions[place + 1 :] if one.state != ActionState.SUCCEEDED]


def _why(facts: RunFacts) -> str:
    if any(action.verified == "failed" for action in facts.actions):
        return "what it did was found to be wrong"
    said = {
        RunState.FAILED: "the run failed before its end",
        RunState.CANCELLED: "the run was cancelled",
    }
    found = said.get(RunState(facts.run.state))
    if found:
        return found
    return "the run fell silent" if facts.is_silent else "they are in doubt"
