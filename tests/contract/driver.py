"""The Python client, driven: one step per line in, what came of it per line out. What the steps are
is told in test_contract.py; driver.ts does the same with the TypeScript client.
"""

import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import amends
import amends.link

URL, KEY, SPOOL, OUTSIDE, WORKSPACE = sys.argv[1:]
Step = dict[str, Any]
now: dict[str, Any] = {}
logging.disable()


def planned(step: Step) -> Step:
    given = {
        name: step[name]
        for name in ("args", "before", "effect_class", "key", "op", "risk", "saga",
                     "wait_seconds", "time_limit_seconds", "accepts_changed_arguments", "schema")
        if name in step
    }  # fmt: skip
    return given | {"target": tuple(step["target"]) if "target" in step else None}


def act(step: Step) -> Step:
    with now["run"].action(step["tool"], **planned(step)) as action:
        if "changes" in step:
            threading.Timer(0.9, step["args"].update, [step["changes"]]).start()
        time.sleep(step.get("thinks", 0))
        try:
            result = action.perform(partial(call, step), **action.args)
        except amends.NoEffect:
            if "tries_again" not in step:
                raise
            result = action.perform(partial(call, step), **action.args)
        if not action.replayed and "after" in step:
            action.succeeded(result, after=step["after"])
        came = "replayed" if action.replayed else "made"
        return {"came": came, "result": result, "waited": now["waited"], "found": action.approval}


def call(step: Step, /, **args: Any) -> Any:
    """The outside world: a line in a journal."""
    with Path(OUTSIDE).open("a", encoding="utf-8") as journal:
        given = json.dumps(args, separators=(",", ":"), ensure_ascii=False)
        journal.write(f"{step['tool']} {given}\n")
    if step.get("hangs"):
        say({"came": "hangs"})
        time.sleep(60)
    time.sleep(step.get("lasts", 0))
    if step.get("pauses"):
        say({"came": "pauses"})
        sys.stdin.readline()
    if step.get("fails") == "no_effect":
        raise amends.NoEffect("sold out")
    if step.get("fails"):
        raise RuntimeError("time is over")
    return step.get("result")


def connect(step: Step) -> None:
    named = {"workspace": WORKSPACE} if step.get("workspace") else {}
    wait = step.get("wait_seconds", 20)
    waited = now["waited"] = []
    now["desk"] = amends.connect(
        URL, step.get("key", KEY), spool=SPOOL, wait_seconds=wait,
        on_wait=lambda answer: waited.append(answer["approval"]), **named,
    )  # fmt: skip


def start(step: Step) -> None:
    now["run"] = now["desk"].run(step.get("request", "Move it"), run=step["run"]).start()


def resume(step: Step) -> Step:
    with now["desk"].resume(step["run"]) as now["run"]:
        mailed = now["run"].is_done("send_mail", target=("mail", "mia"))
        done = [mailed, now["run"].is_done("update_flight")]
        return {"found": now["run"].state, "done": done, "came": act(step)["came"]}


def two_minutes_later(_: Step) -> None:
    fast = SimpleNamespace(monotonic=lambda: time.monotonic() + 120)
    setattr(amends.link, "time", fast)  # noqa: B010 - the clock is not the module's to export


def say_poison(step: Step) -> None:
    now["run"].say("run.checkpoint", {"name": step["name"], "poison": step["name"]})


def parked(_: Step) -> Step:
    aside = [[event["type"], problem.get("title", "")] for event, problem in now["desk"].parked()]
    return {"parked": aside}


STEPS: dict[str, Callable[[Step], Step | None]] = {
    "connect": connect,
    "start": start,
    "resume": resume,
    "act": act,
    "explain": lambda step: {"found": now["run"].explain(step["tool"], **planned(step))},
    "checkpoint": lambda step: now["run"].checkpoint(step["name"], state=step.get("state")),
    "fail": lambda step: now["run"].fail(RuntimeError(step["because"])),
    "complete": lambda _: now["run"].complete(),
    "fetch_policy": lambda _: now["desk"].fetch_policy(),
    "two_minutes_later": two_minutes_later,
    "say_poison": say_poison,
    "flush": lambda step: {"sent": now["desk"].flush(step.get("seconds", 5))},
    "parked": parked,
    "close": lambda _: now["desk"].close(),
}


def say(what: Step) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


while line := sys.stdin.readline():
    asked = json.loads(line)
    try:
        say({"came": "done", **(STEPS[asked["do"]](asked) or {})})
    except Exception as error:  # noqa: BLE001 - it is what the scenario asks about
        say({"came": type(error).__name__, "words": str(error)})
