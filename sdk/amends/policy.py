"""What the last policy says while the desk is away: is this call to be kept back?

The desk judges; this is only the fallback, and where it cannot tell it keeps the call back. A
condition cannot be evaluated here: it counts as met where it asks or forbids, and not where it
allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amends.protocol.lookalikes import skeleton
from amends.protocol.vocabulary import (
    CLASSES,
    RISK_OF_CLASS,
    RISKS,
    UNCATALOGUED,
    WITHOUT_EFFECT,
    ActionClass,
    EffectClass,
    Risk,
    glob_matches,
    glob_specificity,
)

EXTERNAL = frozenset({ActionClass.EXTERNAL_REVERSIBLE, ActionClass.EXTERNAL_IRREVERSIBLE})
ASKED_FROM = RISKS.index(Risk.HIGH)


def is_gated(
    document: Mapping[str, Any] | None, *, tool: str, effect_class: str, risk: str | None
) -> bool:
    """Whether the call needs the desk. Without a policy every external class does."""
    safety = (document or {}).get("agentSafety")
    if not isinstance(safety, Mapping) or effect_class not in CLASSES:
        return effect_class in EXTERNAL or effect_class not in CLASSES
    base = _base_risk(safety, tool, effect_class, risk)
    if _is_guarded(safety, tool, effect_class):
        return True
    if _is_unknown(safety, tool):
        return True
    verdict = _by_rules(safety.get("policies") or {}, tool, base=base, said=_risk(risk))
    return base >= ASKED_FROM if verdict is None else verdict


def catalogued_class(document: Mapping[str, Any] | None, tool: str) -> EffectClass | None:
    """The class that the workspace's catalogue has of a tool, by its most specific entry."""
    safety = (document or {}).get("agentSafety")
    entry = _entry(safety, tool) if isinstance(safety, Mapping) else {}
    found: EffectClass | None = entry.get("class") if entry.get("class") in CLASSES else None
    return found


def keeps_order(document: Mapping[str, Any] | None) -> bool:
    """Whether a call that breaks the order of a saga needs the desk, too. Without a policy it does.

    The order is: what can be undone, one pivot, and then only what can be retried.
    """
    safety = (document or {}).get("agentSafety")
    return not isinstance(safety, Mapping) or safety.get("order") in ("ASK", "DENY")


def is_pivot(
    document: Mapping[str, Any] | None, tool: str, *, effect_class: str, saga: str | None
) -> bool:
    """Whether there is no way back after this call: its agent says so, or says nothing, and it
    cannot be undone and the order of a saga is kept.
    """
    if saga:
        return saga == "pivot"
    classes = (effect_class, catalogued_class(document, tool))
    return ActionClass.EXTERNAL_IRREVERSIBLE in classes and keeps_order(document)


def mask_paths(document: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The paths that the workspace wants masked."""
    safety = (document or {}).get("agentSafety") or {}
    paths = (safety.get("audit") or {}).get("mask") or []
    return tuple(path for path in paths if isinstance(path, str))


def keeps_snapshots(document: Mapping[str, Any] | None) -> bool:
    """Whether the workspace keeps how targets were, which it does where it does not say."""
    safety = (document or {}).get("agentSafety") or {}
    return (safety.get("audit") or {}).get("captureSnapshot") is not False


def shows_last4(document: Mapping[str, Any] | None) -> bool:
    """Whether placeholders of cards and IBANs carry the last four characters."""
    safety = (document or {}).get("agentSafety") or {}
    return (safety.get("audit") or {}).get("showLast4") is True


def _is_guarded(safety: Mapping[str, Any], tool: str, said_class: str) -> bool:
    """Whether a rule under `always`, which asks or denies, could be met by this call. One without
    effect goes on: what it reads is told afterwards.
    """
    classes = {said_class, _entry(safety, tool).get("class") or said_class}
    if classes <= WITHOUT_EFFECT:
        return False
    return any(glob_matches(glob, tool) for glob in safety.get("always") or {})


def _is_unknown(safety: Mapping[str, Any], tool: str) -> bool:
    """Whether unknown tools ask and neither a rule nor the catalogue lists this one; one that only
    looks like a tool that is written out is not listed by a wider glob, either.
    """
    if str(safety.get("unknownTools") or "").upper() != "ASK":
        return False
    listed = (*(safety.get("policies") or {}), *(safety.get("tools") or {}))
    if not any(glob_matches(glob, tool) for glob in listed):
        return True
    written = {*listed, *(safety.get("always") or {})}
    return tool not in written and skeleton(tool) in map(skeleton, written)


def _by_rules(policies: Mapping[str, Any], tool: str, *, base: int, said: int) -> bool | None:
    """Of the rules that are met, the most specific glob decides, among equals the strictest."""
    globs = [glob for glob in policies if glob_matches(glob, tool)]
    for place in sorted({glob_specificity(glob) for glob in globs}, reverse=True):
        rules = [
            rule
            for glob in globs
            if glob_specificity(glob) == place
            for rule in (policies[glob] if isinstance(policies[glob], list) else [policies[glob]])
        ]
        if any(_asks(rule, base, said) for rule in rules):
            return True
        if any(rule.get("when") is None for rule in rules):
            return False
    return None


def _asks(rule: Mapping[str, Any], base: int, said: int) -> bool:
    """An explicit word stands; without one, people are asked from high risk up."""
    approval = str(rule.get("approval") or "").upper()
    if approval:
        return approval != "AUTO"
    own = rule.get("risk")
    return (max(_risk(own), said) if own else base) >= ASKED_FROM


def _base_risk(safety: Mapping[str, Any], tool: str, said_class: str, said: str | None) -> int:
    """The catalogue's class and risk may be raised by what the agent says, never lowered."""
    entry = _entry(safety, tool)
    known = [ActionClass(name) for name in (said_class, entry.get("class")) if name in CLASSES]
    found = max(known, key=CLASSES.index)
    if not entry.get("risk"):
        return max(_risk(RISK_OF_CLASS[found]), _risk(said))
    stands_for = entry.get("class") if entry.get("class") in CLASSES else UNCATALOGUED
    raised = CLASSES.index(found) > CLASSES.index(stands_for)
    return max(_risk(entry["risk"]), _risk(RISK_OF_CLASS[found]) if raised else 0, _risk(said))


def _entry(safety: Mapping[str, Any], tool: str) -> Mapping[str, Any]:
    """What the catalogue has of a tool: the most specific glob, among equals the strictest."""
    tools = safety.get("tools") or {}
    fitting = [(glob_specificity(glob), tools[glob]) for glob in tools if glob_matches(glob, tool)]
    found: Mapping[str, Any] = {}
    if fitting:
        found = max(fitting, key=lambda one: (one[0], *_strictness(one[1])))[1]
    return found


def _strictness(entry: Mapping[str, Any]) -> tuple[int, int]:
    """Among equally specific entries the strictest counts, as on the desk."""
    known = ActionClass(entry["class"]) if entry.get("class") in CLASSES else None
    of_class = _risk(RISK_OF_CLASS[known]) if known else 0
    risk = _risk(entry["risk"]) if entry.get("risk") else of_class
    return risk, CLASSES.index(known) if known else -1


def _risk(said: Any) -> int:
    """A risk as a number; one that is not known counts as the highest, none as the lowest."""
    if not said:
        return 0
    word = str(said).lower()
    return RISKS.index(word) if word in RISKS else len(RISKS) - 1
