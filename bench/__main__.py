"""All measures, or those named, on servers of their own; the last line is JSON.

    python -m bench [--small] [ingest begin client waiting steps approve unwind retention attacks …]

`--small` is a quick look that says nothing about a large desk. A whole run is kept in
bench/latest.json.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import lists
from bench.servers import Servers, servers

LATEST = Path(__file__).parent / "latest.json"
Measure = Callable[..., dict[str, Any]]


def alone(module: str) -> Measure:
    """A measure that runs as a program of its own against a fresh desk."""

    def measure(running: Servers, *, small: bool) -> dict[str, Any]:
        with running.desk(module) as desk:
            return desk.run(f"bench.{module}", *(["--small"] if small else []))

    return measure


ALONE = ("ingest", "begin", "again", "client", "waiting", "steps", "approve", "unwind", "retention",
         "attacks")  # fmt: skip
LISTS = ("queue", "search", "pages")


def machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "load_before": round(os.getloadavg()[0], 1),
    }


def run(wanted: list[str], *, small: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with servers() as running:
        for name in ALONE:
            if name in wanted:
                found |= told(name, lambda name=name: alone(name)(running, small=small))  # type: ignore[misc]
        if chosen := set(LISTS) & set(wanted):
            found |= told(", ".join(sorted(chosen)),
                          lambda: lists.measure(running, chosen, small=small))  # fmt: skip
    return found


def told(name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    print(f"{name} …", file=sys.stderr, flush=True)
    begun = time.monotonic()
    found = measure()
    print(f"  {found} in {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("measures", nargs="*", choices=[[], *ALONE, *LISTS])
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    wanted = options.measures or [*ALONE, *LISTS]
    facts = machine()
    found = run(wanted, small=options.small)
    if not options.measures and not options.small:
        when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
        kept = {"measured": when, "machine": facts, **found}
        LATEST.write_text(json.dumps(kept, indent=2) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
