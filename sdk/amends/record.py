"""A run's record: what it and its calls say to the desk, each statement numbered and masked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from amends.events import Statement
from amends.link import Link
from amends.traces import current_span


class Record:
    """What a run and its calls write together.

    `directive` is what the desk wants of a resumed run. `on_success` hears the tool of each call
    that succeeds, as soon as that is recorded.
    """

    def __init__(
        self,
        desk: Link,
        run: str,
        *,
        trace: dict[str, Any] | None,
        directive: Mapping[str, Any] | None,
    ) -> None:
        self.desk, self.id = desk, run
        self.directive = directive
        self.failed_action: str | None = None
        self.last_action: str | None = None
        self.on_success: list[Callable[[str], None]] = []
        self._trace = trace

    def repeats(self, key: str) -> bool:
        """Whether the desk has told this run to do an undone call anew, under a new key."""
        steps = (self.directive or {}).get("steps") or []
        return any(s.get("key") == key and s.get("label") == "repeat_new_key" for s in steps)

    def next_n(self) -> int:
        """The next number in this run; a resumed one counts on from where the desk saw it."""
        return self.desk.spool.next_n(self.id, above=int((self.directive or {}).get("n") or 0))

    def build(
        self, kind: str, data: dict[str, Any], *, n: int | None = None, action: str | None = None
    ) -> Statement:
        """A statement about this run, masked and ready to be sent."""
        trace = self._trace or current_span()
        return self.desk.build(kind, run=self.id, data=data, n=n, action=action, trace=trace)

    def say(
        self, kind: str, data: dict[str, Any], *, n: int | None = None, action: str | None = None
    ) -> None:
        self.desk.send(self.build(kind, data, n=n, action=action))
