"""What recording an action costs an agent: one call of a tool through the client, against the bare
call.

    python -m bench client

Each call is gated (asked for, made, and its outcome put in the spool), awaited, or only spooled
(the desk is away, and the policy lets it go on). The outcomes travel behind the agent's back.
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import amends
from bench.begin import prepare
from bench.servers import own

CALLS = 400
WARM_UP = 40
TOOL = "crm.note"


def note(number: int) -> dict[str, Any]:
    return {"id": number, "text": "called back"}


def seconds(call: Callable[[int], Any], calls: int) -> float:
    """The median of one call."""
    found = []
    for number in range(WARM_UP + calls):
        start = time.perf_counter()
        call(number)
        found.append(time.perf_counter() - start)
    return statistics.median(found[WARM_UP:])


async def awaited(call: Callable[[int], Any], calls: int) -> float:
    found = []
    for number in range(WARM_UP + calls):
        start = time.perf_counter()
        await call(number)
        found.append(time.perf_counter() - start)
    return statistics.median(found[WARM_UP:])


def measured(url: str, token: str, stop: Callable[[], None], calls: int) -> dict[str, float]:
    declared: dict[str, Any] = {
        "target": ("note", "{number}"),
        "before": lambda **_: None,
        "after": lambda result, **_: result,
        "effect_class": "internal_update",
    }
    spool = Path(tempfile.mkdtemp()) / "spool.sqlite"
    with amends.connect(url, token, spool=spool) as desk:
        recorded = desk.tool(TOOL, **declared)(note)

        async def note_async(number: int) -> dict[str, Any]:
            return note(number)

        recorded_async = desk.tool(TOOL, **declared)(note_async)

        async def story() -> float:
            async with desk.run("Note them"):
                found = await awaited(recorded_async, calls)
            await desk.async_driver.close()
            return found

        with desk.run("Note them"):
            gated = seconds(recorded, calls)
        in_loop = asyncio.run(story())
        desk.flush(60)
        stop()
        with desk.run("Note them"):
            recorded(-1)  # finds that nobody answers
            spooled = seconds(recorded, calls)
    bare = seconds(note, calls)
    return {
        "client_overhead": round((gated - bare) * 1000, 2),
        "client_gated_ms": round(gated * 1000, 2),
        "client_awaited_ms": round(in_loop * 1000, 2),
        "client_spooled_ms": round(spooled * 1000, 2),
        "client_bare_us": round(bare * 1_000_000, 2),
    }


def main() -> None:
    running = own()
    try:
        token, _ = prepare()
        running.start_web()
        calls = 40 if "--small" in sys.argv else CALLS
        print(json.dumps(measured(running.url, token, running.stop, calls)))
    finally:
        running.stop()


if __name__ == "__main__":
    main()
