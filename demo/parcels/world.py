"""The senders and their parcels, as they stand before each run."""

from datetime import date, timedelta
from random import Random

from demo.recorded.corpus import World
from demo.recorded.desks import Row

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
