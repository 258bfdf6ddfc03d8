"""Traces of the desk itself (OpenTelemetry): what it did of a call or a plan, and how long it took.

Off unless AMENDS_TRACES is set and the package is there (`pip install 'amends-desk[traces]'`); then
whatever OTEL_EXPORTER_OTLP_ENDPOINT and its like say holds. A span carries ids, states and counts,
and never what agents handle: ATTRIBUTES is all that it may name.

`begin` goes on in the trace that the agent names. What a worker does for a plan is one trace,
whatever process does it: its id is made of the plan's.
"""

import hashlib
import logging
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

logger = logging.getLogger(__name__)

ATTRIBUTES = frozenset(
    {"workspace", "run", "action", "agent", "answer", "approval", "plan", "step", "position",
     "connection", "operation", "state", "steps"}
)  # fmt: skip
PREFIX = "amends."
TRACE_HEX, SPAN_HEX = 32, 16


class Span:
    """One piece of work; `set` adds attributes before it ends. This one goes nowhere."""

    def set(self, **attributes: Any) -> None:
        """Attributes of ATTRIBUTES, each an id, a state or a count."""


class Exported(Span):
    """A span that is sent to the collector when it ends."""

    def __init__(self, otel: Any) -> None:
        self._otel = otel

    def set(self, **attributes: Any) -> None:
        _set(self._otel, attributes)


NOWHERE = Span()


class Tracing:
    """The tracer of this process, made anew after a fork: its thread does not survive one."""

    def __init__(self) -> None:
        self._tracer: Any = None
        self._pid = 0

    @property
    def is_on(self) -> bool:
        return bool(os.environ.get("AMENDS_TRACES"))

    def tracer(self) -> Any:
        """None where the package is not there; that is said once."""
        if self._pid != os.getpid():
            self._pid, self._tracer = os.getpid(), _made()
        return self._tracer


tracing = Tracing()


def _made() -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        logger.warning("AMENDS_TRACES is set, and the packages of the extra “traces” are missing.")
        return None
    process = os.environ.get("AMENDS_PROCESS", "command")
    named = {"service.name": "amends", "service.instance.id": f"{process}-{os.getpid()}"}
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider.get_tracer("amends")


def span(
    name: str, *, trace: dict[str, Any] | None = None, **attributes: Any
) -> AbstractContextManager[Span]:
    """Around a piece of work. It belongs to the `trace` that an agent names (`trace_id`, `span_id`
    in hex), or is one of its own.
    """
    tracer = tracing.tracer() if tracing.is_on else None
    return _exported(tracer, name, trace, attributes) if tracer else nullcontext(NOWHERE)


@contextmanager
def _exported(
    tracer: Any, name: str, trace: dict[str, Any] | None, attributes: dict[str, Any]
) -> Iterator[Span]:
    with tracer.start_as_current_span(name, context=_context(_named(trace))) as otel:
        _set(otel, attributes)
        yield Exported(otel)


def record(name: str, began: float, *, of_plan: str = "", **attributes: Any) -> None:
    """A piece of work that is over and began at `began` (`time.time()`); in the trace of a plan, or
    one of its own.
    """
    tracer = tracing.tracer() if tracing.is_on else None
    if tracer is None:
        return
    otel = tracer.start_span(name, context=_context(_of_plan(of_plan)), start_time=int(began * 1e9))
    _set(otel, attributes)
    otel.end(int(time.time() * 1e9))


def _set(otel: Any, attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        if name in ATTRIBUTES and value not in {None, ""}:
            otel.set_attribute(PREFIX + name, value)


def _context(ids: tuple[int, int] | None) -> Any:
    """What a span hangs under, sampled; None for a trace of its own."""
    from opentelemetry import trace as api

    if ids is None:
        return None
    sampled = api.TraceFlags(api.TraceFlags.SAMPLED)
    above = api.SpanContext(*ids, is_remote=True, trace_flags=sampled)
    return api.set_span_in_context(api.NonRecordingSpan(above))


def _named(trace: dict[str, Any] | None) -> tuple[int, int] | None:
    told = [str((trace or {}).get(name, "")) for name in ("trace_id", "span_id")]
    if [len(one) for one in told] != [TRACE_HEX, SPAN_HEX]:
        return None
    try:
        trace_id, span_id = (int(one, 16) for one in told)
    except ValueError:
        return None
    return (trace_id, span_id) if trace_id and span_id else None


def _of_plan(plan: str) -> tuple[int, int] | None:
    if not plan:
        return None
    digest = hashlib.sha256(plan.encode()).digest()
    return int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big")
