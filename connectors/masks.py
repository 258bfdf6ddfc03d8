"""What was recorded masked, held against what is found in clear: by its mark (ledger/masking.py).

A placeholder without a mark says nothing of the value, so nothing found differs from it.
"""

from collections.abc import Sequence
from typing import Any

from amends.protocol.masking import (
    MaskingKey,
    holds_bare,
    holds_mask,
    kind_of,
    masked,
    without_last4,
)
from connectors.canonical import same
from connectors.shapes import FieldDiff
from ledger.desk_events import masking_key
from workspaces.models import Workspace


def still_differ(differences: Sequence[FieldDiff], workspace: Workspace) -> list[FieldDiff]:
    """The differences that are not only there because the recorded side was masked."""
    if not any(map(_is_of_masked, differences)):
        return list(differences)
    key = masking_key(workspace)
    return [
        one
        for one in differences
        if not (_is_of_masked(one) and agrees(one.expected, one.actual, key))
    ]


def _is_of_masked(one: FieldDiff) -> bool:
    return bool(one.field) and holds_mask(one.expected)


def agrees(recorded: Any, found: Any, key: MaskingKey) -> bool:
    """Whether `found`, in clear, is what `recorded` stands for, as far as that can be told."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        return recorded.keys() == found.keys() and all(
            agrees(recorded[name], found[name], key) for name in recorded
        )
    if isinstance(recorded, list) and isinstance(found, list):
        return len(recorded) == len(found) and all(
            agrees(was, now, key) for was, now in zip(recorded, found, strict=True)
        )
    if not (isinstance(recorded, str) and holds_mask(recorded)):
        return same(recorded, found)
    if holds_bare(recorded):
        return True
    try:
        hidden = _hidden(recorded, found, key)
    except ValueError:  # what the ledger would not keep is not what it keeps
        return False
    return without_last4(hidden.encode()) == without_last4(recorded.encode())


def is_unchanged(before: Any, after: Any) -> bool:
    """Whether a field that holds something masked is known to be the same in two snapshots."""
    return not holds_bare([before, after]) and _compared(before) == _compared(after)


def _compared(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _compared(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return list(map(_compared, value))
    return without_last4(value.encode()) if isinstance(value, str) else value


def _hidden(recorded: str, found: Any, key: MaskingKey) -> str:
    """`found` as the ledger would have kept it in the place of `recorded`; raises ValueError."""
    kind = kind_of(recorded)
    if kind is None:
        return str(masked(found, (), key)) if isinstance(found, str) else ""
    inner = masked(found, (), key) if isinstance(found, dict | list) else found
    return "" if inner is None else key.placeholder(kind, inner)
