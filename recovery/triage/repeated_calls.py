"""What was called twice, or under a key that is another call's."""

from __future__ import annotations

from collections.abc import Iterator

from amends.protocol.masking import holds_bare
from ledger.models import Action
from recovery.run_facts.runs import RunFacts, living, stands
from recovery.triage.case_reasons import Reason
from workspaces import formatting

KEY_REUSED_FLAGS = frozenset({"key_reused", "disagree:args", "disagree:targets", "disagree:tool"})


def keys_reused(facts: RunFacts) -> Iterator[Reason]:
    for action in facts.actions:
        if KEY_REUSED_FLAGS & set(action.flags):
            words = f"The key of {action.tool_words} was used again with other arguments"
            yield Reason("key_reused", words, action.action)
        if "effect_twice" in action.flags:
            words = f"Two attempts at {action.tool_words} succeeded: it may have taken effect twice"
            yield Reason("effect_twice", words, action.action)
    for action, run in _in_two_runs(facts, same=False):
        words = f"The key of {action.tool_words} was used for another call in run {run}"
        yield Reason("key_reused", words, action.action, "runs")


def the_same_call_twice(facts: RunFacts) -> Iterator[Reason]:
    """One call twice, under two keys or, by who could not ask the desk, under one; both stand."""
    seen: dict[str, Action] = {}
    for action in living(facts):
        if not action.args_digest or not stands(facts, action) or holds_bare(action.args):
            continue
        first = seen.setdefault(action.args_digest, action)
        if first is not action and (first.key or action.key):
            under = "one key, past the desk" if first.key == action.key else "two keys"
            words = f"{action.tool_words} was called twice with the same arguments under {under}"
            yield Reason("same_call_twice", words, action.action)
    for action, run in _in_two_runs(facts, same=True):
        words = f"{action.tool_words} was called with the same arguments in run {run}, too"
        yield Reason(
            "same_call_twice", f"{words}, under one key, past the desk", action.action, "runs"
        )


def _in_two_runs(facts: RunFacts, *, same: bool) -> Iterator[tuple[Action, str]]:
    """Calls under a key that was used in another run, too, by who could not ask the desk: it would
    have given the first one's answer, or refused. With that run's name, as a sentence has it.
    """
    for action in living(facts):
        first = facts.used_elsewhere.get(action.pk)
        if first is None or not (stands(facts, action) or facts.is_untold(action)):
            continue
        if (first.args_digest == action.args_digest and not holds_bare(action.args)) is same:
            yield action, formatting.named(first.run.run)
