"""Long lists of steps: what went as it should lies in folds, and an outline says what there is."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from workspaces import formatting

LONG_FROM = 12
"""A list of more steps than these is long."""
OPEN_ENDS = 3
"""So many at its beginning and at its end stay open."""
LEAST = 3
"""A fold of fewer would spare nobody anything."""
NAMED_MAX = 6

Item = dict[str, Any]


def folded(
    items: list[Item], is_quiet: Callable[[Item], bool], words: Callable[[Sequence[Item]], str]
) -> list[Item]:
    """The items; of a long list the first of each fold has `opens_fold`, what stands on it, and the
    last `closes_fold`. Only what `is_quiet` is folded, and nothing at either end.
    """
    if len(items) <= LONG_FROM:
        return items
    stretch: list[Item] = []
    inner = items[OPEN_ENDS : len(items) - OPEN_ENDS]
    for item in [*inner, None]:
        if item is not None and is_quiet(item):
            stretch.append(item)
            continue
        if len(stretch) >= LEAST:
            stretch[0]["opens_fold"], stretch[-1]["closes_fold"] = words(stretch), True
        stretch = []
    return items


def counted(names: Iterable[str]) -> str:
    """How often each occurs, the most frequent first: “30 × tickets.update, 6 × mail.read”."""
    found = Counter(names).most_common()
    told = [f"{formatting.count(number)} × {name}" for name, number in found[:NAMED_MAX]]
    left = len(found) - NAMED_MAX
    return ", ".join(told) + (f" and {left} more kinds" if left > 0 else "")
