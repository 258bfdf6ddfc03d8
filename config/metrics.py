"""What is counted for Prometheus at the door. Floors count theirs with the same client."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import REGISTRY, Histogram

from recovery.engine.figures import EngineFigures
from workspaces.hot import Route

# From a quick `begin` to a long-poll of 30 seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 35)

hot_seconds = Histogram(
    "amends_hot_request_seconds",
    "Time to answer at the hot door.",
    ["method", "path", "status"],
    buckets=BUCKETS,
)

REGISTRY.register(EngineFigures())


@dataclass
class Seen:
    status: int = 0


@contextmanager
def observe(route: Route) -> Iterator[Seen]:
    """Count one request of this route; its status is set by whoever serves it."""
    seen, begun = Seen(), time.perf_counter()
    try:
        yield seen
    finally:
        labels = (route.method, route.path.pattern, str(seen.status or "none"))
        hot_seconds.labels(*labels).observe(time.perf_counter() - begun)
