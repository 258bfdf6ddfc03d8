"""What the agents of all frameworks share: their tools, and what is told of them afterwards.

    python with_langchain.py '{"url": …, "key": …, "spool": …, "service": …, "calls": […]}'

Each plays the calls that are given (a scripted model asks for them one after the other, each as
`[tool, arguments]` or `[tool, arguments, id]`) and prints one line of JSON: which tools `ran`, what
the model was `told` of each call, and the error that ended it, if any. With a `fault` something
goes wrong: in the gate while it waits (`exception`, `killed hook`, or `changed`: the agent changes
the arguments of its first call), or with the tool, which writes to `journal` (`dies in the tool`)
or is not answered (`late`); or it `asks` somebody before it does anything, or answers in `bits`
(`returns bits`: as a function that is none of a generator), with a `map`, or a coroutine.
"""

import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import amends

ASKED = json.loads(sys.argv[1])
CALLS: list[tuple[str, dict[str, Any], str]] = [
    (call[0], call[1], call[2] if len(call) > 2 else f"call_{number}")
    for number, call in enumerate(ASKED["calls"])
]
ran: list[list[Any]] = []
FAULT = ASKED.get("fault", "")
OTHER = "L-99"
if "journal" in ASKED:
    Path("agent.pid").write_text(str(os.getpid()))  # for a tool that ends its agent


def in_the_hook(_answer: dict[str, Any]) -> None:
    """While the gate waits for people."""
    if FAULT == "exception":
        raise RuntimeError("a mistake in the hook")
    if FAULT == "killed hook":
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "changed":
        CALLS[0][1]["licence"] = OTHER


def assign_licence(licence: str, holder: str) -> dict[str, str]:
    """Give a licence to somebody."""
    ran.append(["assign_licence", licence])
    if journal := ASKED.get("journal"):
        with Path(journal).open("a") as file:
            file.write(json.dumps(["assign_licence", licence]) + "\n")
    if FAULT == "takes too long":
        time.sleep(2)
    if FAULT in ("late", "swallowed"):
        raise TimeoutError("no answer within 30 s")
    if FAULT == "dies in the tool":
        os.kill(os.getpid(), signal.SIGKILL)
    if service := ASKED.get("service"):
        said = json.dumps({"id": licence, "holder": holder, "seat": 1}).encode()
        urllib.request.urlopen(f"{service}/hold", data=said, timeout=10).close()
    return {"licence": licence, "holder": holder}


def bits(licence: str, holder: str) -> Iterator[dict[str, str]]:
    """Give a licence to somebody, bit by bit."""
    yield made_at_once(licence, holder)


def returns_bits(licence: str, holder: str) -> Any:
    """Give a licence to somebody, bit by bit."""
    return bits(licence, holder)


def returns_a_map(licence: str, holder: str) -> Any:
    """Give a licence to somebody, once somebody goes through it."""
    return map(made_at_once, [licence], [holder])


def returns_a_coroutine(licence: str, holder: str) -> Any:
    """Give a licence to somebody, once somebody awaits it."""

    async def give() -> dict[str, str]:
        return made_at_once(licence, holder)

    return give()


if FAULT in (later := {"returns a map": returns_a_map, "returns a coroutine": returns_a_coroutine}):
    made_at_once, assign_licence = assign_licence, later[FAULT]
    assign_licence.__name__ = "assign_licence"
if FAULT == "returns bits":
    made_at_once, assign_licence = assign_licence, returns_bits
    returns_bits.__name__ = "assign_licence"
if FAULT == "bits":
    made_at_once, assign_licence = assign_licence, bits  # type: ignore[assignment]
    bits.__name__ = "assign_licence"


def send_welcome(to: str) -> str:
    """Send a letter of welcome."""
    ran.append(["send_welcome", to])
    raise amends.NoEffect("the mail server does not take it")


def look_up(name: str) -> str:
    """Look somebody up."""
    ran.append(["look_up", name])
    return f"{name} is seen for the {len(ran)}. time"


def people_agree() -> None:
    """What waits may be done from now on."""
    said = urllib.request.Request(f"{ASKED['url']}/control", json.dumps({"modes": {}}).encode())
    urllib.request.urlopen(said, timeout=10).close()


DECLARED = {
    "assign_licence": amends.declare(
        target=("licence", "{licence}"),
        before=lambda **_: None,
        after=lambda _result, holder, **_: {"holder": holder, "seat": 1},
        effect_class="internal_update",
    ),
    "send_welcome": amends.declare(target=("mail", "{to}"), effect_class="internal_update"),
    "look_up": amends.declare(effect_class="read_only"),
}


def play(agent: Callable[[amends.Desk], list[str]]) -> None:
    """`agent` makes the calls and returns what the model was told of each."""
    desk = amends.connect(
        ASKED["url"], ASKED["key"], spool=ASKED["spool"],
        wait_seconds=float(ASKED.get("wait_seconds", 30)), on_wait=in_the_hook,
    )  # fmt: skip
    told, error = list[str](), ""
    try:
        mia = {"id": "mia", "name": "Mia Li"}
        with desk.run("Onboard Mia and Tom", run=ASKED["run"], on_behalf_of=mia) as run:
            told = agent(desk)
            if ["send_welcome"] in [one[:1] for one in ran]:
                run.fail(RuntimeError("the welcome could not be sent"))
    except Exception as wrong:  # noqa: BLE001 - it is what the test asks about
        error = f"{type(wrong).__name__}: {wrong}"
    desk.close(seconds=20 if not ASKED.get("is_away") else 0)
    sys.stdout.write(json.dumps({"ran": ran, "told": told, "error": error}) + "\n")
