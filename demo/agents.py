"""`python -m demo.agents`: the scripted agents. The stories once, then a steady trickle of runs."""

import contextlib
import itertools
import logging
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable

import django
import django.db
import httpx
import psycopg

import amends
from demo import places
from demo.stories import calls, onboarding, trip
from demo.stories.stage import Stage

TRICKLE_SECONDS = 25.0
RUNS_MAX = 3_000
WAITS_SECONDS_MAX = 30.0
READY_SECONDS_MAX = 90.0
# What may stop a story: the desk, a system outside, a disk, or the database of the airline or desk.
TROUBLE = (
    amends.AmendsError, httpx.HTTPError, OSError, psycopg.Error, django.db.Error, sqlite3.Error,
)  # fmt: skip
log = logging.getLogger("demo.agents")

NAMES = ("Maya Lindholm", "Tariq Aziz", "Chloe Martin", "Yusuf Demir", "Ines Costa", "Paul Novak")


def stage() -> Stage:
    kept, url = places.SharedFacts().read(), os.environ["AMENDS_URL"]
    desks = {
        name: amends.connect(
            url, token, spool=places.spool(name), on_question=calls.ANSWERS.get(name)
        )
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
    for story in (calls.transfer, calls.tidy, trip.earlier):
        beside(story, on)
    play(onboarding.play, on)
    play(calls.ticket, on)
    play(trip.play, on)
    forward = trip.play(on, traveller="Raj Brown", pivot=True, price_minor=41_200)
    places.SharedFacts().write(goes_on=[forward])
    play(trip.seat, on)
    play(calls.invoice, on)
    play(calls.doubt, on)
    play(calls.doubt, on, traveller="Lea Roth", card="0088", lags=0)
    play(calls.unanswered, on)
    play(trip.no_room, on)
    play(calls.ticket, on, wanted="T-219", changed="T-233")
    play(calls.ticket_drifts, on, "T-233")
    numbers = [f"T-{number}" for number, *_ in calls.MIXED_UP]
    for wanted, changed in itertools.pairwise(numbers):
        play(calls.ticket, on, wanted=wanted, changed=changed)
    for payee, amount in (("Aero Fuels", 84_000), ("Pilot Wear", 129_900)):
        play(calls.bill, on, payee, amount)
    grants_drawn_down(on)
    places.SharedFacts().write(played=True)


def grants_drawn_down(on: Stage) -> None:
    """The first voucher waits until a scripted approver allows more, and the others draw on that.
    Three are above what was allowed: they are alike, and wait for the newcomer.
    """
    from demo.setting import skyline  # with models, which are there once Django is

    (first, amount), *others = calls.DELAYED
    asked = beside(calls.issue, on, first, amount)
    if not skyline.allow_more(skyline.SLUG, calls.TOOL, "moreau"):
        return
    asked.join(WAITS_SECONDS_MAX)
    for customer, minor in others:
        play(calls.issue, on, customer, minor)
    for customer, minor in calls.STRANDED:
        beside(calls.issue, on, customer, minor)


def beside(story: Callable[..., object], *args: object) -> threading.Thread:
    """Play what may wait for people, while the others go on."""
    thread = threading.Thread(target=play, args=[story, *args], daemon=True)
    thread.start()
    return thread


def play(story: Callable[..., object], *args: object, **how: object) -> None:
    """Play one story. What stops it is told; the agents after it go on."""
    try:
        story(*args, **how)
    except TROUBLE as trouble:
        log.warning("%s stopped: %s", getattr(story, "__qualname__", story), trouble)


def go_on(on: Stage) -> None:
    """The trip that somebody may let go on: its agent listens, also after it was started anew."""
    run, *_ = places.SharedFacts().read().get("goes_on") or [""]
    if run:
        play(trip.go_on, on, run)
        places.SharedFacts().write(goes_on=None)


def one_more(on: Stage) -> None:
    """One run of the trickle: mostly it goes well."""
    name, price = random.choice(NAMES), random.randrange(9_000, 90_000)
    repertoire: list[tuple[int, Callable[[], object]]] = [
        (6, lambda: trip.play(on, traveller=name, hotel=True, price_minor=price)),
        (5, lambda: onboarding.play(on, name=name, fails=False)),
        (2, lambda: beside(calls.issue, on, *random.choice(calls.DELAYED_LATER))),
        (2, lambda: calls.bill(on, random.choice(list(calls.PAYEES)), price)),
        (4, lambda: calls.ticket(on, wanted="T-240", changed="T-240")),
        (1, lambda: trip.play(on, traveller=name)),
        (1, lambda: onboarding.play(on, name=name)),
        (1, lambda: calls.invoice(on)),
    ]  # fmt: skip
    plays, weights = [one for _, one in repertoire], [weight for weight, _ in repertoire]
    play(random.choices(plays, weights)[0])


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()  # for the scripted approver, who answers as a person would
    # Who waits stands under Approvals; here it would push the log-ins out of the terminal.
    logging.getLogger("amends").setLevel(logging.ERROR)
    on = stage()
    wait_until_ready(on.where)
    if not places.SharedFacts().read().get("played"):
        play(premiere, on)
    beside(go_on, on)
    for _ in range(RUNS_MAX):
        time.sleep(TRICKLE_SECONDS * random.uniform(0.5, 1.5))
        one_more(on)


if __name__ == "__main__":
    main()
