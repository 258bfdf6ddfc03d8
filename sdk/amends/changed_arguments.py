"""Arguments that an approver has changed, as the desk has them: what is secret in them is masked.

A placeholder stands for our own value at its place, or the call is not made.
"""

from __future__ import annotations

from typing import Any

from amends.errors import ArgumentsChanged
from amends.protocol.masking import MaskingKey, holds_bare, holds_mask, kind_of, without_last4
from amends.values import UNSET

NOT_OURS = (
    "an approver changed the arguments, and one of them holds a masked value that this call did not"
    " have there: it is not made"
)


def with_own_secrets(changed: Any, own: Any, masked: Any, key: MaskingKey | None) -> Any:
    """`changed` with our own values wherever it has what the desk knows of them, a placeholder.

    `own` are the arguments as they were given, `masked` is what was told of them. Raises
    ArgumentsChanged for a placeholder that is not known to stand for the value at its place.
    """
    if isinstance(changed, dict | list):
        places = changed.items() if isinstance(changed, dict) else enumerate(changed)
        found = {
            place: with_own_secrets(one, _at(own, place), _at(masked, place), key)
            for place, one in places
        }
        return found if isinstance(changed, dict) else list(found.values())
    if not holds_mask(changed):
        return changed
    if own is UNSET or holds_bare(changed):
        raise ArgumentsChanged(NOT_OURS)
    kind = kind_of(changed)
    ours = key.placeholder(kind, own) if kind and key else masked
    if _compared(changed) not in (_compared(ours), _compared(masked)):
        raise ArgumentsChanged(NOT_OURS)
    return own


def _at(value: Any, place: Any) -> Any:
    try:
        return value[place]
    except (KeyError, IndexError, TypeError):
        return UNSET


def _compared(text: Any) -> bytes:
    return without_last4(str(text).encode())
