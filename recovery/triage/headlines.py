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
from recovery.triage.detectors import KINDS, Reason
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
    sentence = trouble(facts, reasons, short=True).removeprefix("then ").removeprefix("and ")
    is_tool = "." in sentence.partition(" ")[0]
    return shortened(sentence if is_tool else capitalised(sentence), BRIEF_CHARACTERS_MAX)


def deeds(facts: RunFacts) -> str:
    """`changed flights on reservation XEHM4B and created user 12`; empty where nothing was done.

    What nobody knows to have happened is no deed; what was undone meanwhile still is one, so that a
    headline does not change under the hands of those who recover.
    """
    groups: dict[tuple[str, str], list[tuple[Action, Effect]]] = defaultdict(list)
    for action, effect in facts.done():
        groups[verb(effect, action), effect.target_type].append((action, effect))
    done: dict[str, list[str]] = defaultdict(list)
    for (how, kind), found in groups.items():
        done[_how(how, found)].append(_what(kind, found))
    return listed([f"{how} {listed(whats)}" for how, whats in done.items()])


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


def trouble(facts: RunFacts, reasons: Sequence[Reason], *, short: bool = False) -> str:
    """What went wrong, as the second half of a sentence; the weightiest reason decides."""
    if not reasons:
        return "then ended without anything that needs a person"
    reason, kind = reasons[0], KINDS[reasons[0].code]
    tool = getattr(facts.action(reason.action), "tool_words", "") if reason.action else ""
    error, check = _error(facts), _check(facts, reason)
    return ((short and kind.brief) or kind.headline).format(
        tool=tool,
        call=tool or "a call",
        failure=_failure(facts),
        error=f": {error}" if error else "",
        check=f": {check}" if check else "",
        at_check=f" at {check}" if check else "",
    )


def _check(facts: RunFacts, reason: Reason) -> str:
    """`“T-204 is raised”`: the first check that failed, by its name alone."""
    action = facts.action(reason.action) if reason.action else None
    names = [
        str(check.get("name") or "")
        for check in (action.checks if action else None) or []
        if isinstance(check, dict) and not check.get("ok")
    ]
    return formatting.quoted(names[0], CHECK_CHARACTERS_MAX) if any(names[:1]) else ""


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
    message = str(error.get("message") or error.get("type") or "")
    return shortened(without_addresses(message), ERROR_CHARACTERS_MAX)


def blamed_action(facts: RunFacts, reasons: Sequence[Reason]) -> Action | None:
    """The action that the queue shows as the failed one."""
    for reason in reasons:
        found = facts.action(reason.action) if reason.action else None
        if KINDS[reason.code].blames_failed_action:
            found = facts.failed_action() or found
        if found is not None:
            return found
    standing = facts.standing()
    return standing[0][0] if standing else facts.failed_action()
