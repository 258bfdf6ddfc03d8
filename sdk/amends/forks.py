"""Forks: what a process holds open is its own, and a child that it forks opens everything anew.

A connection in two processes hands the answer for one to the other; a lock that a thread held is
held for ever where that thread is not; and SQLite forbids to carry a connection over a fork.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Protocol


class Forked(Protocol):
    """What is told of forks: let go before, and begin anew in the child."""

    def before_fork(self) -> None: ...
    def after_fork(self) -> None: ...
    def born_of_fork(self) -> None: ...


def tell(one: Forked) -> None:
    """Have `one` told of every fork for as long as it lives."""
    if not hasattr(os, "register_at_fork"):  # nothing forks on Windows
        return
    living = weakref.ref(one)

    def telling(name: str) -> Callable[[], None]:
        def told() -> None:
            if (it := living()) is not None:
                getattr(it, name)()

        return told

    os.register_at_fork(
        before=telling("before_fork"),
        after_in_parent=telling("after_fork"),
        after_in_child=telling("born_of_fork"),
    )
