"""`python -m demo.agents`: the scripted agents. The stories once, then a steady trickle of runs."""

import contextlib
import logging
import os
import random
import threading
import time
from collections.abc import Callable

import httpx

import amends
from demo import places
from demo.stories import calls, onboarding, trip
from demo.stories.stage import Stage

TRICKLE_SECONDS = 25.0
RUNS_MAX = 3_000
READY_SECONDS_MAX = 90.0
log = logging.getLogger("demo.agents")

NAMES = ("Maya Lindholm", "Tariq Aziz", "Chloe Martin", "Yusuf Demir", "Ines Costa", "Paul Novak")


def stage() -> Stage:
    kept, url = places.SharedFacts().read(), os.environ["AMENDS_URL"]
    desks = {
        name: amends.connect(url, token, spool=places.spool(name))
        for name, token in kept["keys"].items()
    }
    return Stage(desks, places.places(), places.outside_url())


def wait_until_ready(where: places.Places) -> None:
    """Wait for the desk and the outside world; agents that come early would only spool."""
    end = time.monotonic() + READY_SECONDS_MAX
    for url in (f"{os.environ['AMENDS_URL']}/statusz", f"{where.mailbox}/journal"):
        while time.monotonic() < end:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(url, trust_env=False).is_success:
                    break
            time.sleep(0.3)


def premiere(on: Stage) -> None:
    """Every story of the demo, once."""
    for story in (calls.transfer, calls.delete):
        threading.Thread(target=play, args=[story, on], daemon=True).start()
    play(onboarding.play, on)
    play(calls.ticket, on)
    play(trip.play, on)
    play(trip.play, on, traveller="Raj Brown", pivot=True, price_minor=41_200)
    play(calls.invoice, on)
    play(calls.doubt, on)
    play(calls.ticket, on, wanted="T-219", changed="T-233")
    play(calls.ticket_drifts, on, "T-233")
    places.SharedFacts().write(played=True)


def play(story: Callable[..., object], *args: object, **how: object) -> None:
    """Play one story. What stops it is told; the agents after it go on."""
    try:
        story(*args, **how)
    except (amends.AmendsError, httpx.HTTPError, OSError) as trouble:
        log.warning("%s stopped: %s", getattr(story, "__qualname__", story), trouble)


def one_more(on: Stage) -> None:
    """One run of the trickle: mostly it goes well."""
    name, price = random.choice(NAMES), random.randrange(9_000, 90_000)
    repertoire: list[tuple[int, Callable[[], object]]] = [
        (6, lambda: trip.play(on, traveller=name, hotel=True, price_minor=price)),
        (5, lambda: onboarding.play(on, name=name, fails=False)),
        (4, lambda: calls.ticket(on, wanted="T-240", changed="T-240")),
        (1, lambda: trip.play(on, traveller=name)),
        (1, lambda: onboarding.play(on, name=name)),
        (1, lambda: calls.invoice(on)),
    ]  # fmt: skip
    plays, weights = [one for _, one in repertoire], [weight for weight, _ in repertoire]
    play(random.choices(plays, weights)[0])


def main() -> None:
    on = stage()
    wait_until_ready(on.where)
    if not places.SharedFacts().read().get("played"):
        premiere(on)
    for _ in range(RUNS_MAX):
        time.sleep(TRICKLE_SECONDS * random.uniform(0.5, 1.5))
        one_more(on)


if __name__ == "__main__":
    main()
