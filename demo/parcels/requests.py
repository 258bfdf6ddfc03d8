"""What senders ask for, and the calls that would be right."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from demo.parcels import world as worlds
from demo.recorded.corpus import World
from demo.recorded.desks import Row


class Step(NamedTuple):
    tool: str
    args: Row


class Change(NamedTuple):
    words: str
    step: Step


@dataclass(frozen=True)
class SenderRequest:
    """One sender's request. `spare` is a parcel of theirs that nobody spoke of."""

    account: str
    request: str
    right: tuple[Step, ...]
    spare: str


def sender_request(chance: Random, world: World, steps: int) -> SenderRequest:
    """A request that takes so many right calls, two at most on parcels of the sender's own."""
    account = chance.choice(list(world["accounts"]))
    spare, *parcels = chance.sample(world["accounts"][account]["parcels"], worlds.PARCELS_EACH)
    if not steps:
        return SenderRequest(account, _idle(chance, parcels[0]), (), spare)
    changes = [change(chance, world, parcel) for parcel in parcels[:steps]]
    if steps > len(parcels) or chance.random() < 1 / 4:
        changes[-1 if steps <= len(parcels) else len(changes) :] = [
            new_parcel(chance, world, account)
        ]
    words = ", and then ".join(change.words for change in changes)
    return SenderRequest(
        account, f"Please {words}.", tuple(change.step for change in changes), spare
    )


def _idle(chance: Random, parcel: str) -> str:
    return chance.choice(
        [
            f"Where is {parcel} today? I only want to know.",
            f"What would express cost for {parcel}? Please do not change it yet.",
            f"My neighbour wants {parcel} for himself. Can he have it without my asking for it?",
            f"{parcel} came a day late and I am cross. I did not ask for money.",
        ]
    )


def means(chance: Random, world: World, account: str) -> str:
    """A way to pay: the sender's card or balance."""
    wallet: Row = world["accounts"][account]["wallet"]
    return chance.choice(list(wallet))


def new_parcel(chance: Random, world: World, account: str) -> Change:
    to, contents = worlds.recipient(chance), chance.sample(worlds.THINGS, 2)
    args = {
        "account": account,
        "recipient": to,
        "service": chance.choice(list(worlds.SERVICES)),
        "contents": contents,
        "pay_with": means(chance, world, account),
    }
    words = f"send {' and '.join(contents)} to {to['name']} in {to['town']}, {args['service']}"
    return Change(words, Step("ship_parcel", args))


def _recall(chance: Random, world: World, parcel: str) -> Change:
    return Change(f"stop {parcel} and bring it back", Step("recall_parcel", {"parcel": parcel}))


def _redirect(chance: Random, world: World, parcel: str) -> Change:
    to = worlds.recipient(chance)
    words = f"let {parcel} go to {to['name']}, {to['street']}, {to['town']}"
    return Change(words, Step("redirect_parcel", {"parcel": parcel, "recipient": to}))


def _insure(chance: Random, world: World, parcel: str) -> Change:
    minor = chance.randrange(5_000, 60_000, 500)
    pay = means(chance, world, world["parcels"][parcel]["sender"])
    args = {"parcel": parcel, "minor": minor, "pay_with": pay}
    return Change(f"insure {parcel} for {minor // 100} euros", Step("insure_parcel", args))


def _service(chance: Random, world: World, parcel: str) -> Change:
    row = world["parcels"][parcel]
    service = chance.choice([name for name in worlds.SERVICES if name != row["service"]])
    pay = means(chance, world, row["sender"])
    args = {"parcel": parcel, "service": service, "pay_with": pay}
    return Change(f"let {parcel} travel {service}", Step("change_service", args))


def _pickup(chance: Random, world: World, parcel: str) -> Change:
    args = {"parcel": parcel, "on": worlds.day(chance), "part_of_day": "morning"}
    return Change(
        f"have {parcel} fetched on {args['on']} in the morning", Step("book_pickup", args)
    )


# Of the recorded mistakes most are about bookings that were changed or cancelled.
CHANGES: tuple[Callable[[Random, World, str], Change], ...] = (
    _recall, _recall, _redirect, _insure, _insure, _service, _service, _pickup,
)  # fmt: skip


def change(chance: Random, world: World, parcel: str) -> Change:
    """Something to be done about one parcel."""
    return chance.choice(CHANGES)(chance, world, parcel)
