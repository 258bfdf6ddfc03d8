"""What records of a thing say of it: from what to what it changed, and sums with their currency."""

import re
from collections.abc import Sequence
from typing import Any

from amends.protocol.masking import holds_mask
from connectors.contract import Money
from ledger.models import Effect
from recovery.corrections import sentences, wording
from recovery.models import Step

SUM = re.compile(rf"amount|total|{wording.IN_SMALLEST_UNIT}\Z", re.IGNORECASE)
CHANGES_MAX = 5
"""Fields of which a sentence tells from what to what; of more it says how many."""


def moved(step: Step | None) -> dict[str, Any] | None:
    moved = (step.preview or {}).get("money") if step else None
    return moved if isinstance(moved, dict) and moved.get("amount_minor") else None


def is_refund(operation: str) -> bool:
    """`refund`, `payments.refund_charge`; not `reverse_refund`."""
    return operation.rpartition(".")[2].lower().startswith("refund")


def is_all(effect: Effect, moved: dict[str, Any]) -> bool:
    """Whether the record says that what was moved was all of it: the largest sum in it, in the
    same currency. A number that only happens to be the same, as a fee of it, says nothing.
    """
    row = effect.after if isinstance(effect.after, dict) else {}
    currency = row.get("currency", moved.get("currency"))
    sums = [Money.of(value, currency) for name, value in row.items() if SUM.search(name)]
    most = max((one for one in sums if one), key=lambda one: one.amount_minor, default=None)
    return most is not None and most == Money.of(moved["amount_minor"], moved.get("currency"))


def from_what_to_what(before: Any, after: Any, fields: Sequence[str]) -> dict[str, Any]:
    """From what to what, of one field or of each of several; not of what is hidden, or long."""
    told = [_change(before, after, name) for name in fields[:CHANGES_MAX]]
    if len(fields) == 1:
        (one,) = told
        return {"values": {"was": one["was"], "became": one["became"]}} if "was" in one else {}
    if not any("was" in one for one in told):
        return {}
    return {"changes": told, "more": max(0, len(fields) - CHANGES_MAX)}


def _change(before: Any, after: Any, name: str) -> dict[str, Any]:
    was, became = ((side or {}).get(name) for side in (before, after))
    if any(holds_mask(one) or not sentences.is_plain(one) for one in (was, became)):
        return {"field": name}
    if any(is_unit_lost(side, name) for side in (before, after)):
        return {"field": name}
    told = [as_told(side, name) for side in (before, after)]
    if sentences.said(told[0]) == sentences.said(told[1]):  # they differ where nobody sees it
        return {"field": name}
    return {"field": name, "was": told[0], "became": told[1]}


def recorded(row: Any) -> dict[str, Any]:
    """The one sum that a row holds, as money, where it says of what currency."""
    sums = {name: as_told(row, name) for name in row} if isinstance(row, dict) else {}
    found = [(name, one["money"]) for name, one in sums.items() if isinstance(one, dict)
             and "money" in one]  # fmt: skip
    if len(found) != 1:
        return {}
    ((name, amount),) = found
    return {"recorded": {"field": name, "amount": amount}}


def as_told(row: Any, name: str) -> Any:
    """The value of a field; a sum in the smallest unit as money, where its row says of what."""
    value = row.get(name)
    is_sum = name.endswith(wording.IN_SMALLEST_UNIT)
    money = Money.of(value, row.get("currency")) if is_sum else None
    return {"money": str(money)} if money else value


def is_unit_lost(row: Any, name: str) -> bool:
    """Whether it is a sum in the smallest unit of nobody knows what: without its unit, as the field
    is called for people, it would be told a hundred times too large.
    """
    if not name.endswith(wording.IN_SMALLEST_UNIT) or (row or {}).get(name) is None:
        return False
    told = as_told(row, name)
    return not (isinstance(told, dict) and "money" in told)
