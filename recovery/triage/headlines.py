"""Headlines: one sentence from facts, never from what a model wrote.

“Agent “airline-desk” changed flights on reservation XEHM4B, then its verification failed.”
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ledger.models import Action, Effect
from recovery.run_facts.runs import RunFacts
from recovery.run_facts.sentences import (
    capitalised,
    changed_fields,
    listed,
    plural,
    shortened,
    singular,
    target_words,
    without_addresses,
)
from recovery.triage.detectors import Reason
from workspaces import formatting

HEADLINE_CHARACTERS_MAX = 400
BRIEF_CHARACTERS_MAX = 120
ERROR_CHARACTERS_MAX = 120
CHECK_CHARACTERS_MAX = 80
FIELDS_NAMED_MAX = 3


def headline(facts: RunFacts, reasons: Sequence[Reason]) -> str:
    """What went wrong, in one sentence."""
    who = f"Agent {formatting.quoted(facts.run.agent.name)}" if facts.run.agent else "The desk"
    did = deeds(facts)
    wrong = trouble(facts, reasons)
    bare = wrong.removeprefix("then ").removeprefix("and ")
    return shortened(f"{who} {did}, {wrong}" if did else f"{who} {bare}", HEADLINE_CHARACTERS_MAX)


def brief(facts: RunFacts, reasons: Sequence[Reason]) -> str:
    """The trouble alone, for a line that names the action beside it: `Failed: 504 Gateway …`."""
    said = trouble(facts, reasons).removeprefix("then ").removeprefix("and ")
    first = reasons[0] if reasons else None
    code = first.code if first else ""
    if first and code == "verification_failed":
        said = f"Verification failed{_check(facts, first).replace(' at', ':', 1)}"
    elif code in {"failed_with_effects", "failed_without_effects", "outcome_unknown"}:
        start = "Outcome unknown" if code == "outcome_unknown" else "Failed"
        why = _error(facts)
        said = f"{start}: {why}" if why else start
    is_tool = "." in said.partition(" ")[0]
    return shortened(said if is_tool else capitalised(said), BRIEF_CHARACTERS_MAX)


def deeds(facts: RunFacts) -> str:
    """`changed flights on reservation XEHM4B and created user 12`; empty where nothing was done.

    What nobody knows to have happened is no deed; what was undone meanwhile still is one, so that a
    headline does not change under the hands of those who recover.
    """
    groups: dict[tuple[str, str], list[tuple[Action, Effect]]] = defaultdict(list)
    for action, effect in facts.done():
        groups[verb(effect, action), effect.target_type].append((action, effect))
    said: dict[str, list[str]] = defaultdict(list)
    for (how, kind), found in groups.items():
        said[_how(how, found)].append(_what(kind, found))
    return listed([f"{how} {listed(whats)}" for how, whats in said.items()])


def verb(effect: Effect, action: Action) -> str:
    """What happened to the target, as far as snapshots tell; else that the tool ran on it."""
    if effect.has_before and effect.before is None and effect.after is not None:
        return "created"
    if effect.has_after and effect.after is None and effect.before is not None:
        return "deleted"
    if effect.before is not None:
        return "changed"
    return f"ran {action.tool_words} on"


def _how(how: str, found: Sequence[tuple[Action, Effect]]) -> str:
    """`changed`, or `changed priority on` where all that was changed is few fields of one."""
    if how != "changed" or len({effect.target_id for _, effect in found}) > 1:
        return how
    effect = found[-1][1]
    fields = changed_fields(effect.before, effect.after)
    return f"changed {listed(fields)} on" if 0 < len(fields) <= FIELDS_NAMED_MAX else how


def _what(kind: str, found: Sequence[tuple[Action, Effect]]) -> str:
    targets = list(dict.fromkeys(effect.target_id for _, effect in found))
    if len(targets) > 1:
        return plural(len(targets), singular(kind) or "target")
    return target_words(kind, targets[0])


def trouble(facts: RunFacts, reasons: Sequence[Reason]) -> str:
    """What went wrong, as the second half of a sentence; the weightiest reason decides."""
    if not reasons:
        return "then ended without anything that needs a person"
    reason = reasons[0]
    tool = getattr(facts.action(reason.action), "tool_words", "") if reason.action else ""
    said = {
        "step_needs_person": "and undoing it needs a person",
        "outcome_unknown": f"and may have run {tool}: its outcome is unknown",
        "past_its_time": f"and may have run {tool}: it never said how it ended",
        "contradiction": f"and says both that {tool} succeeded and that it did not",
        "late_effect": f"and {tool} took effect after the run was cancelled",
        "verification_failed": f"then its verification failed{_check(facts, reason)}",
        "verification_missing": "and nobody has verified it",
        "failed_with_effects": f"then failed{_failure(facts)}",
        "cancelled_with_effects": "and was cancelled half-way",
        "stalled": "then fell silent",
        "key_reused": f"and used the key of {tool} again with other arguments",
        "effect_twice": f"and {tool} took effect twice",
        "same_call_twice": f"and called {tool} twice with the same arguments",
        "unapproved": f"and ran {tool or 'a call'} without the approval that its rule asks for",
        "denied": f"and ran {tool}, which is never allowed",
        "denied_often": "and asked again and again for what its rules never allow",
        "out_of_order": f"and ran {tool} out of order, after the pivot",
        "not_resumed": "and did not resume in time",
        "reported": "and somebody reported it",
        "failed_without_effects": f"failed{_failure(facts)} and nothing took effect",
    }
    return said[reason.code]


def _check(facts: RunFacts, reason: Reason) -> str:
    """` at “T-204 is raised”`: the first check that failed, by its name alone."""
    action = facts.action(reason.action) if reason.action else None
    names = [
        str(check.get("name") or "")
        for check in (action.checks if action else None) or []
        if isinstance(check, dict) and not check.get("ok")
    ]
    return f" at {formatting.quoted(names[0], CHECK_CHARACTERS_MAX)}" if any(names[:1]) else ""


def _failure(facts: RunFacts) -> str:
    """` at send_email (504 Gateway Timeout)`"""
    action, text = facts.failed_action(), _error(facts)
    at = f" at {action.tool_words}" if action and action.tool else ""
    return f"{at} ({text})" if text else at


def _error(facts: RunFacts) -> str:
    action = facts.failed_action()
    error = (action.error if action else None) or facts.run.error or {}
    if not isinstance(error, dict):
        return ""
    said = str(error.get("message") or error.get("type") or "")
    return shortened(without_addresses(said), ERROR_CHARACTERS_MAX)


def blamed_action(facts: RunFacts, reasons: Sequence[Reason]) -> Action | None:
    """The action that the queue shows as the failed one."""
    for reason in reasons:
        found = facts.action(reason.action) if reason.action else None
        if reason.code == "failed_with_effects":
            found = facts.failed_action() or found
        if found is not None:
            return found
    standing = facts.standing()
    return standing[0][0] if standing else facts.failed_action()
