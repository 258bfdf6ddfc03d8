"""What agents behind their framework's own gate share: a tool with a journal, and an approver who
is asked.

    python with_langchain.py '{"approver": …, "journal": …, "state": …, "fault": …}'

Each makes one call of `assign_licence`. Where the framework pauses for an approval, what it stores
of the paused run goes to the file `state`; whoever is started where that is there goes on from it,
as after a crash. What the code around the gate does is what the framework's own documentation does.
"""

import atexit
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx

ASKED = json.loads(sys.argv[1])
FAULT = ASKED["fault"]
STATE = Path(ASKED["state"])
TOOL, ARGS = "assign_licence", {"licence": "L-21", "holder": "mia"}
OTHER = "L-99"
LIMIT_SECONDS = 2.0
BESIDE_SECONDS_MAX = 60.0


def assign_licence(licence: str, holder: str) -> dict[str, str]:
    """Give a licence to somebody."""
    come_to("in the tool")
    if FAULT == FIRST:
        await_in_the_tool(SECOND)
    with Path(ASKED["journal"]).open("a") as journal:
        journal.write(json.dumps([TOOL, {"licence": licence, "holder": holder}]) + "\n")
    if FAULT == "dies in the tool":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"licence": licence, "holder": holder}


FIRST, SECOND = "first of two", "second of two"


def come_to(place: str) -> None:
    """Say that this one of two processes is there, where it is one of two."""
    if FAULT in (FIRST, SECOND):
        STATE.with_name(f"{FAULT} {place}").touch()


def await_in_the_tool(other: str) -> None:
    """Until the other process is in the tool, or has ended: which is quicker decides nothing."""
    deadline = time.monotonic() + BESIDE_SECONDS_MAX
    places = [STATE.with_name(f"{other} {place}") for place in ("in the tool", "at its end")]
    while not any(one.exists() for one in places) and time.monotonic() < deadline:
        time.sleep(0.05)


def in_the_hook() -> None:
    """What goes wrong where the framework asks our own code whether to ask."""
    if FAULT == "exception":
        raise RuntimeError("a mistake in the hook")
    if FAULT == "killed hook":
        os.kill(os.getpid(), signal.SIGKILL)


def approved(tool: str, args: dict[str, str], *, limit: float | None = LIMIT_SECONDS) -> bool:
    """What the approver says. Whatever is not a yes raises, as httpx does."""
    in_the_hook()
    asked = {"run": "run_1", "tool": tool, "args": args}
    answer = httpx.post(f"{ASKED['approver']}/ask", json=asked, timeout=limit)
    return answer.raise_for_status().json()["approved"] is True


def story(
    start: Callable[[], str | None],
    go_on: Callable[..., None],
    change: Callable[[str], str] = lambda stored: stored.replace(ARGS["licence"], OTHER),
) -> None:
    """Run until it pauses, ask the approver, go on. `start` gives what is stored of the run."""
    atexit.register(come_to, "at its end")
    if FAULT == SECOND:
        await_in_the_tool(FIRST)
    if not STATE.exists():
        stored = start()
        if stored is None:
            return
        STATE.write_text(stored, "utf-8")
    if FAULT == "pauses":
        return
    stored = STATE.read_text("utf-8")
    yes = approved(TOOL, ARGS)
    go_on(change(stored) if FAULT == "changed" else stored, yes=yes)
