"""The trace that the code runs in, if the agent is traced with OpenTelemetry."""

from __future__ import annotations

import importlib
import sys


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
