"""A run's record: what it and its calls say to the desk, each statement numbered and masked."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from amends.drivers import Steps, awaits, blocking, waits
from amends.errors import TooLarge
from amends.events import Statement
from amends.link import Link
from amends.protocol.canonical import canonical
from amends.protocol.masking import Unfit, holds_mask
from amends.protocol.vocabulary import EventType
from amends.spool import CannotUse, KeyRow
from amends.values import plain

SCHEMA_BYTES_MAX = 8 * 1024
ENDS = frozenset({EventType.RUN_COMPLETED, EventType.RUN_FAILED, EventType.RUN_CANCELLED})


def current_span() -> dict[str, str] | None:
    """`trace_id` and `span_id` of the current span, in hex (W3C Trace Context), or None.

    OpenTelemetry is not needed: where the agent does not use it, there is no span.
    """
    if "opentelemetry" not in sys.modules:
        return None
    try:
        span = importlib.import_module("opentelemetry.trace").get_current_span()
        context = span.get_span_context()
    except (ImportError, AttributeError):
        return None
    if not context.is_valid:
        return None
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def shape_of(schema: Mapping[str, Any] | None) -> tuple[str, Any] | None:
    """The digest and the schema of what a tool takes; none that the desk would not show."""
    try:
        written = canonical(plain(schema or {}))
    except (TooLarge, Unfit, ValueError):
        return None
    is_told = bool(schema) and len(written) <= SCHEMA_BYTES_MAX
    return (hashlib.sha256(written).hexdigest(), schema) if is_told else None


EFFECT_WORDS = ("before", "after", "summary", "reversibility", "undo_until", "affects")


def must_be_words(said: Mapping[str, Any], effects: Sequence[Mapping[str, Any]]) -> None:
    """TypeError for what is said of a success, or of one of its effects, and nobody would read."""
    told = [(said, (*EFFECT_WORDS, "effects", "undo"))]
    for one, known in (*told, *((effect, (*EFFECT_WORDS, "target")) for effect in effects)):
        if strange := set(one) - set(known):
            words = f"what is said of a success has no {min(strange)!r}: it is {', '.join(known)}"
            raise TypeError(words)


class Record:
    """What a run and its calls write together.

    `directive` is what the desk wants of a resumed run. `on_success` hears the tool of each call
    that succeeds, as soon as that is recorded.
    """

    def __init__(self, desk: Link, run: str, *, trace: dict[str, Any] | None) -> None:
        self.desk, self.id = desk, run
        self.driver, self.async_driver = desk.driver, desk.async_driver
        self.directive: Mapping[str, Any] | None = None
        self.ended = False
        self.failed_action: str | None = None
        self.last_action: str | None = None
        self.on_success: list[Callable[[str], None]] = []
        self._trace = trace

    def repeats(self, key: str) -> bool:
        """Whether the desk has told this run to do an undone call anew, under a new key."""
        steps = (self.directive or {}).get("steps") or []
        return any(s.get("key") == key and s.get("label") == "repeat_new_key" for s in steps)

    def went_well(self, action: str) -> None:
        """Of a call that has succeeded: what fails after it is another's failure."""
        if self.failed_action == action:
            self.failed_action = None
        if self.last_action == action:
            self.last_action = None

    def known(self, key: str) -> KeyRow | None:
        """What this agent knows of a key from this run: in another one a call is another action,
        with a number of its own.
        """
        row = self.desk.spool.find(key)
        return row if row and row.run == self.id else None

    def news_of(self, tool: str, shape: tuple[str, Any] | None) -> dict[str, Any]:
        """What arguments a tool takes, where the desk has not heard it from this process."""
        if shape is None or self.desk.announced.get(tool) == shape[0]:
            return {}
        return {"tool_schema": shape[1]}

    def next_n(self) -> int:
        """The next number in this run; a resumed one counts on from where the desk saw it."""
        return self.desk.spool.next_n(self.id, above=int((self.directive or {}).get("n") or 0))

    def build(
        self,
        kind: str,
        data: dict[str, Any],
        *,
        n: int | None = None,
        action: str | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> Statement:
        """A statement about this run, masked and ready to be sent; with `more` where that can be
        told, too.
        """
        if more:
            with suppress(TooLarge, ValueError, LookupError, TypeError, RecursionError):
                return self.build(kind, {**data, **more}, n=n, action=action)
        trace = self._trace or current_span()
        return self.desk.build(kind, run=self.id, data=data, n=n, action=action, trace=trace)

    def honest(self, effect: dict[str, Any], planned: Any) -> dict[str, Any]:
        """The effect as it may be told: a state that holds a masked field cannot be restored
        exactly. Where it does not say what was there before, the plan has.
        """
        if effect.get("reversibility") != "exact":
            return effect
        told = {"effects": [{**effect, "before": effect.get("before", planned)}]}
        shown = self.desk.masked(told)
        if holds_mask(shown["effects"][0].get("before")):
            effect["reversibility"] = "unknown"
        return effect

    def saying(
        self, kind: str, data: dict[str, Any], *, n: int | None = None, action: str | None = None
    ) -> Steps[None]:
        """Put a statement in the spool, under the run's next number if none is given."""

        def say() -> None:
            number = self._number(kind) if n is None else n
            self.desk.send(self.build(kind, data, n=number, action=action))

        yield from blocking(say)

    def _number(self, kind: str) -> int | None:
        """The next number; None where a full disk has none for the end of the run, which comes last
        without one.
        """
        try:
            return self.next_n()
        except CannotUse:
            if kind not in ENDS:
                raise
            return None

    say, asay = waits(saying), awaits(saying)
