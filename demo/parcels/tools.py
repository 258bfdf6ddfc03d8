"""A parcel company: its senders and parcels before each run, and the tools of its agent.

A tool reads the world and gives back its answer with the rows as they are to be; it writes nothing
itself. Amounts are in cents.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from random import Random
from typing import Any, NamedTuple

from demo.corpus import Row, World

SUNDAY = 7
INSURANCE_PER_CENT = 2
Changes = dict[tuple[str, str], Row]


class ToolRefused(Exception):
    """We stopped because the tool takes no such call; nothing was changed."""


class ToolOutcome(NamedTuple):
    result: str
    changes: Changes


@dataclass
class Desk:
    """The tools over one world, which they change, and the calls that were made, as recorded."""

    world: World
    calls: list[Row] = field(default_factory=list)

    def call(self, tool: str, **args: Any) -> bool:
        """Make a call and record it; whether the tool took it."""
        try:
            answer, took = TOOLS[tool](self.world, **args), True
        except ToolRefused as refused:
            answer, took = ToolOutcome(f"Refused: {refused}", {}), False
        changes = {
            (table, row_id): row
            for (table, row_id), row in answer.changes.items()
            if row != self.world[table].get(row_id)
        }
        effects = [
            {"table": table, "id": row_id, "before": self.world[table].get(row_id), "after": row}
            for (table, row_id), row in changes.items()
        ]
        for (table, row_id), row in changes.items():
            # A new table with a new row: what others hold of the world stays as it was.
            self.world[table] = self.world[table] | {row_id: row}
        self.calls.append(
            {"n": len(self.calls) + 1, "tool": tool, "args": args, "ok": took,
             "result": answer.result, "effects": effects}
        )  # fmt: skip
        return took


def _row(world: World, table: str, row_id: str) -> Row:
    if row_id not in world[table]:
        raise ToolRefused(f"{row_id} is not among the {table}")
    return world[table][row_id]


def _pay(world: World, account: str, means: str, minor: int) -> Changes:
    """Take the amount; the account changes only where its balance pays."""
    row = _row(world, "accounts", account)
    wallet = row["wallet"]
    if means not in wallet:
        raise ToolRefused(f"{account} has no {means} to pay with")
    if wallet[means]["kind"] != "balance":
        return {}
    rest = wallet[means]["holds_minor"] - minor
    if rest < 0:
        raise ToolRefused(f"{means} is {-rest} cents short")
    paid = wallet | {means: wallet[means] | {"holds_minor": rest}}
    return {("accounts", account): row | {"wallet": paid}}


def _served(recipient: Row) -> None:
    if recipient["town"] not in DEPOTS:
        raise ToolRefused(f"no depot delivers to {recipient['town']}")


def _charged(row: Row, minor: int, means: str) -> Row:
    return row | {"charges": [*row["charges"], {"minor": minor, "paid_with": means}]}


def find_account(world: World, *, account: str) -> ToolOutcome:
    return ToolOutcome(json.dumps(_row(world, "accounts", account)), {})


def where_is(world: World, *, parcel: str) -> ToolOutcome:
    return ToolOutcome(json.dumps(_row(world, "parcels", parcel)), {})


def list_prices(world: World) -> ToolOutcome:
    return ToolOutcome(json.dumps(SERVICES), {})


def hand_to_colleague(world: World, *, reason: str) -> ToolOutcome:
    return ToolOutcome("A colleague takes over.", {})


def ship_parcel(
    world: World, *, account: str, recipient: Row, service: str, contents: list[str], pay_with: str
) -> ToolOutcome:
    _served(recipient)
    changes = _pay(world, account, pay_with, SERVICES[service])
    owner = changes.get(("accounts", account)) or _row(world, "accounts", account)
    parcel = f"P{len(world['parcels']) + 901}"
    made = {
        "sender": account, "recipient": recipient, "service": service, "contents": contents,
        "weight_grams": 500 * len(contents), "insured_minor": 0, "needs_signature": False,
        "pickup": None, "charges": [], "handed_in_on": FIRST_DAY.isoformat(),
        "state": "announced",
    }  # fmt: skip
    changes["parcels", parcel] = _charged(made, SERVICES[service], pay_with)
    changes["accounts", account] = owner | {"parcels": [*owner["parcels"], parcel]}
    return ToolOutcome(f"{parcel} is announced.", changes)


def recall_parcel(world: World, *, parcel: str) -> ToolOutcome:
    row = _row(world, "parcels", parcel)
    if row["state"] == "recalled":
        raise ToolRefused(f"{parcel} is recalled already")
    paid = [charge | {"minor": -charge["minor"]} for charge in row["charges"]]
    recalled = row | {"state": "recalled", "charges": row["charges"] + paid, "pickup": None}
    return ToolOutcome(f"{parcel} comes back.", {("parcels", parcel): recalled})


def redirect_parcel(world: World, *, parcel: str, recipient: Row) -> ToolOutcome:
    _served(recipient)
    row = _row(world, "parcels", parcel) | {"recipient": recipient}
    return ToolOutcome(f"{parcel} goes to {recipient['town']}.", {("parcels", parcel): row})


def insure_parcel(world: World, *, parcel: str, minor: int, pay_with: str) -> ToolOutcome:
    row = _row(world, "parcels", parcel)
    premium = minor * INSURANCE_PER_CENT // 100
    changes = _pay(world, row["sender"], pay_with, premium)
    insured = row | {"insured_minor": row["insured_minor"] + minor}
    changes["parcels", parcel] = _charged(insured, premium, pay_with)
    return ToolOutcome(f"{parcel} is insured.", changes)


def change_service(world: World, *, parcel: str, service: str, pay_with: str) -> ToolOutcome:
    row = _row(world, "parcels", parcel)
    if row["service"] == service:
        raise ToolRefused(f"{parcel} travels {service} already")
    more = SERVICES[service] - SERVICES[row["service"]]
    changes = _pay(world, row["sender"], pay_with, more)
    changes["parcels", parcel] = _charged(row | {"service": service}, more, pay_with)
    return ToolOutcome(f"{parcel} travels {service}.", changes)


def book_pickup(world: World, *, parcel: str, on: str, part_of_day: str) -> ToolOutcome:
    row = _row(world, "parcels", parcel)
    if date.fromisoformat(on).isoweekday() == SUNDAY:
        raise ToolRefused(f"nobody drives on {on}, a Sunday")
    pickup = {"on": on, "part_of_day": part_of_day}
    return ToolOutcome(
        f"A driver comes for {parcel}.", {("parcels", parcel): row | {"pickup": pickup}}
    )


def grant_voucher(world: World, *, account: str, minor: int) -> ToolOutcome:
    row = _row(world, "accounts", account)
    voucher = f"voucher-{len(row['wallet']) + 1}"
    wallet = row["wallet"] | {voucher: {"kind": "balance", "holds_minor": minor}}
    return ToolOutcome(f"{voucher} is granted.", {("accounts", account): row | {"wallet": wallet}})


TOOLS: dict[str, Callable[..., ToolOutcome]] = {
    tool.__name__: tool
    for tool in (
        find_account,
        where_is,
        list_prices,
        hand_to_colleague,
        ship_parcel,
        recall_parcel,
        redirect_parcel,
        insure_parcel,
        change_service,
        book_pickup,
        grant_voucher,
    )
}


SENDERS = 20
PARCELS_EACH = 3
FIRST = ("Alma", "Bram", "Carys", "Dario", "Elif", "Fintan", "Greta", "Hamid", "Ilse", "Jory")
LAST = ("Abara", "Birkeland", "Castellan", "Dunmore", "Ekwueme", "Fairweather", "Galanis")
STREETS = ("Ropewalk", "Cooper Lane", "Lantern Yard", "Mill Green", "Saltmarket", "Weavers Row")
# Town → the depot that delivers there; to other towns nothing can be sent.
DEPOTS = {"Ashby": "north", "Brackwell": "north", "Corran": "east", "Dunlow": "south"}
THINGS = ("teapots", "garden shears", "violin strings", "wool blankets", "board games", "lamps")
SERVICES = {"saver": 390, "standard": 620, "express": 1_150}  # prices in cents
FIRST_DAY = date(2031, 3, 3)


def make(chance: Random) -> World:
    """Twenty senders with three parcels each; ids are the same for every seed."""
    world: World = {"accounts": {}, "parcels": {}}
    names = [f"{first} {last}" for first in FIRST for last in LAST]
    for number, name in enumerate(chance.sample(names, SENDERS)):
        account = f"S-{number + 101}"
        owned = [f"P{number + 101}{letter}" for letter in "ABC"[:PARCELS_EACH]]
        card, balance = f"card-{number + 301}", f"balance-{number + 301}"
        world["accounts"][account] = {
            "name": name,
            "email": f"{name.lower().replace(' ', '.')}@parcels.example",
            "town": chance.choice(list(DEPOTS)),
            "wallet": {
                card: {"kind": "card", "ends_in": f"{chance.randrange(10_000):04}"},
                balance: {"kind": "balance", "holds_minor": chance.randrange(9_000, 30_000)},
            },
            "parcels": owned,
            "wants_news": chance.choice([True, False, None]),
        }
        for parcel in owned:
            world["parcels"][parcel] = _parcel(chance, account, card)
    return world


def _parcel(chance: Random, sender: str, card: str) -> Row:
    service = chance.choice(list(SERVICES))
    return {
        "sender": sender,
        "recipient": recipient(chance),
        "service": service,
        "contents": chance.sample(THINGS, chance.randrange(1, 3)),
        "weight_grams": chance.randrange(300, 9_000, 50),
        "insured_minor": 0,
        "needs_signature": chance.choice([True, False]),
        "pickup": None,
        "charges": [{"minor": SERVICES[service], "paid_with": card}],
        "handed_in_on": day(chance),
        "state": chance.choice(["on its way", "at the depot"]),
    }


def recipient(chance: Random) -> Row:
    """Somebody at an address that a depot serves."""
    return {
        "name": f"{chance.choice(FIRST)} {chance.choice(LAST)}",
        "street": f"{chance.randrange(1, 180)} {chance.choice(STREETS)}",
        "town": chance.choice(list(DEPOTS)),
    }


def day(chance: Random) -> str:
    """A weekday of the four weeks in which everything happens."""
    return (FIRST_DAY + timedelta(weeks=chance.randrange(4), days=chance.randrange(5))).isoformat()
