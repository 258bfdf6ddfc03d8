"""A licence service with twins of the Python client, driven: a request per line in, an answer out.
What the moods are is told in test_twins.py; twins.ts is the same service in TypeScript.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from amends import NoEffect, twins

STORE, JOURNAL, SECRETS = sys.argv[1:]
mood = ["well"]
undo = twins.Twins(SECRETS.split(), store=STORE)


def done() -> list[str]:
    path = Path(JOURNAL)
    return path.read_text("utf-8").splitlines() if path.exists() else []


@undo.undo("release_licence")
def release(args: dict[str, Any], target: dict[str, Any], key: str) -> None:
    if mood[0] == "locked":
        raise NoEffect("the licence is locked by billing")
    if mood[0] == "killed before":
        os.kill(os.getpid(), signal.SIGKILL)
    if mood[0] == "slow":
        Path(f"{JOURNAL}.begun").touch()
        while not Path(f"{JOURNAL}.go").exists():
            time.sleep(0.02)
    with Path(JOURNAL).open("a", encoding="utf-8") as journal:
        journal.write(f"{target['id']} {key}\n")
    if mood[0] == "killed after":
        os.kill(os.getpid(), signal.SIGKILL)
    if mood[0] == "dying":
        raise TimeoutError


@undo.undo("restore_seat")
def restore(args: dict[str, Any], target: dict[str, Any], key: str, *, before: Any) -> None:
    with Path(JOURNAL).open("a", encoding="utf-8") as journal:
        journal.write(f"{json.dumps(before)}\n")


@release.observe
def licence(_args: dict[str, Any], target: dict[str, Any]) -> dict[str, Any] | None:
    is_gone = any(line.split()[0] == target["id"] for line in done())
    return None if is_gone else {"holder": "Mia Li", "seat": 7}


@release.probe
def was_released(_args: dict[str, Any], target: dict[str, Any], key: str) -> bool | None:
    return None if mood[0] == "forgetful" else f"{target['id']} {key}" in done()


while line := sys.stdin.readline():
    asked = json.loads(line)
    mood[0] = asked.get("mood", "well")
    status, answer = undo.answer(asked["headers"], asked["body"].encode())
    sys.stdout.write(json.dumps({"status": status, **answer}) + "\n")
    sys.stdout.flush()
