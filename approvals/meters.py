"""Meters: what a call, or a step of a plan, adds to a sum or count of a rule, and on whose account.

The gate reads them for a call, and whoever lets a plan run for its steps: both count alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from amends.protocol.masking import holds_bare, without_last4
from approvals import memory
from approvals.memory import Meter
from approvals.policy import UNKNOWN, CannotEvaluate, Lookup
from approvals.policy.conditions import window_seconds
from approvals.policy.spelling import as_one

AMOUNT_MAX = Decimal(10) ** 18
SUBJECTS_MAX = 20


@dataclass(frozen=True, slots=True)
class Account:
    """Whose call it is, of what, and for whom: by what a question says in `per`."""

    agent_id: int
    tool: str
    run: str
    person: str
    """On whose behalf; empty where nobody is named, or more than one was."""
    targets: Sequence[Mapping[str, Any]]


def meter_of(lookup: Lookup, account: Account, facts: Mapping[str, Any]) -> Meter | None:
    """What is added, and for whom; None where it cannot be told, or is less than nothing."""
    amount = Decimal(1) if lookup.function == "count" else number(value_of(lookup, facts))
    subjects = _subjects(lookup.option("per", "workspace"), account, facts)
    if amount is None or not subjects or len(subjects) > SUBJECTS_MAX:
        return None
    return Meter(
        meter=memory.name_of(lookup.key),
        subjects=[memory.digest_of(one) for one in subjects],
        amount=amount,
        window_seconds=window_seconds(lookup.option("over")),
    )


def value_of(lookup: Lookup, facts: Mapping[str, Any]) -> Any:
    """The value that is asked about, of several targets that of each; UNKNOWN where there is
    none.
    """
    if lookup.argument is None:
        return UNKNOWN
    targets = facts.get("targets") or ()
    try:
        if "target" in lookup.argument.names and len(targets) > 1:
            return [lookup.argument.evaluate({**facts, "target": one}) for one in targets]
        return lookup.argument.evaluate(facts)
    except CannotEvaluate:
        return UNKNOWN


def number(value: Any) -> Decimal | None:
    """An amount that can be counted; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = Decimal(str(value))
    return number if number.is_finite() and 0 <= number < AMOUNT_MAX else None


def texts_of(value: Any) -> set[str] | None:
    """The values as they are compared; None where one of them cannot be."""
    if isinstance(value, list):
        parts = [texts_of(one) for one in value]
        known = [one for one in parts if one is not None]
        return set().union(*known) if len(known) == len(parts) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {str(int(value) if value == int(value) else value)}
    if not isinstance(value, str) or not value.strip() or holds_bare(value):
        return None
    return {without_last4(value.encode()).decode()}


def _subjects(per: str, account: Account, facts: Mapping[str, Any]) -> list[str]:
    """Whom or what is counted for; none where it is not known."""
    match per:
        case "workspace":
            found = ["all"]
        case "agent":
            found = [str(account.agent_id)]
        case "tool":
            found = [account.tool]
        case "run":
            found = [account.run]
        case "person":
            found = [as_one(account.person)] if account.person else []
        case "target":
            found = [f"{as_one(one['type'])} {as_one(one['id'])}" for one in account.targets]
        case _:
            value: Any = facts
            for name in per.split("."):
                value = value.get(name) if isinstance(value, Mapping) else None
            found = list(map(as_one, texts_of(value) or ()))
    return sorted(set(found))
