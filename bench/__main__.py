"""All measures, or those named, on servers of their own; the last line is JSON.

    python -m bench [--small] [ingest begin again client waiting steps approve unwind …]

`--small` is a quick look that says nothing about a large desk. A whole run is kept in
bench/latest.json.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import attacks, begin, ingest, lists, sizing, steps, waiting
from bench.servers import own, servers

LATEST = Path(__file__).parent / "latest.json"

# Each runs in a process of its own, against a fresh desk: (desk, small=…) -> {key: figure}.
MEASURES: dict[str, Callable[..., dict[str, Any]]] = {
    "ingest": ingest.ingest,
    "begin": begin.begin,
    "again": begin.again,
    "client": begin.client,
    "waiting": waiting.waiting,
    "noisy": begin.noisy,
    "steps": steps.against_dbos,
    "approve": steps.approve_to_call,
    "unwind": steps.unwind,
    "retention": sizing.retention,
    "attacks": attacks.attacks,
    "growth": sizing.growth,
    "idle": sizing.idle,
}
LISTS = ("queue", "search", "pages")
FAILED: list[str] = []
"""Those that could not be measured."""


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
    more = ["--small"] if small else []
    with servers() as running:
        for name in MEASURES:
            if name in wanted:
                with running.desk(name) as desk:
                    found |= told(name, lambda: desk.run("bench", "--inside", name, *more))  # noqa: B023
        if chosen := set(LISTS) & set(wanted):
            found |= told(", ".join(sorted(chosen)),
                          lambda: lists.measure(running, chosen, small=small))  # fmt: skip
    return found


def inside(name: str, *, small: bool) -> dict[str, Any]:
    """One measure, against the desk that this process was started for."""
    desk = own()
    try:
        return MEASURES[name](desk, small=small)
    finally:
        desk.stop()


def told(name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was measured; nothing of one that failed and said why: the others go on."""
    print(f"{name} …", file=sys.stderr, flush=True)
    begun = time.monotonic()
    try:
        found = measure()
    except subprocess.CalledProcessError:
        found = {}
        FAILED.append(name)
    print(f"  {found or 'failed'} in {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("measures", nargs="*", choices=[[], *MEASURES, *LISTS])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--inside", choices=MEASURES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(inside(options.inside, small=options.small)))
        return
    wanted = options.measures or [*MEASURES, *LISTS]
    facts = machine()
    found = run(wanted, small=options.small)
    if FAILED:
        found["failed"] = FAILED
    if not options.measures and not options.small and not FAILED:
        when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
        kept = {"measured": when, "machine": facts, **found}
        LATEST.write_text(json.dumps(kept, indent=2) + "\n")
    print(json.dumps(found))
    sys.exit(bool(FAILED))


if __name__ == "__main__":
    main()
