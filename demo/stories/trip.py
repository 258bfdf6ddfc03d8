"""Trip: flight booked, card charged, hotel fails; with a pivot the rest can go forward instead."""

import secrets

import httpx

import amends
from demo.outside import standards
from demo.stories.stage import Stage

AGENT = "trip-planner"
PRICE_MINOR = 128_600


class NoRoom(amends.NoEffect):
    """We stopped because the hotel has no room; it said so, and nothing was booked."""


def play(
    stage: Stage,
    *,
    traveller: str = "Amelia Davis",
    pivot: bool = False,
    hotel: bool = False,
    price_minor: int = PRICE_MINOR,
) -> str:
    """Play it; the run's id. `pivot`: after the charge there is no way back, only forward."""
    person = {
        "id": traveller.lower().replace(" ", "."),
        "name": traveller,
        "contact": f"{traveller.partition(' ')[0].lower()}@example.com",
    }
    number = f"{secrets.randbelow(90000) + 10000}"
    run = stage.desks[AGENT].run(
        "Book me to Lisbon on 4 December, with a hotel near the river",
        on_behalf_of=person,
        model="demo-large",
        goal="A whole trip: flight, payment, hotel",
    )
    try:
        with run:
            _book_flight(stage, run, number, traveller)
            run.checkpoint(
                "flight_booked",
                state={"booking": f"B-{number}"},
                pending=["hotels.book"],
                summary="The flight is booked; payment and hotel are to come.",
            )
            _charge(stage, run, person["id"], price_minor, pivot=pivot)
            run.checkpoint(
                "paid",
                state={"booking": f"B-{number}", "paid": True},
                summary="Flight and payment stand; the hotel is to come.",
            )
            _book_hotel(run, number, found=hotel, pivot=pivot)
    except NoRoom:
        pass  # the run says that it failed; a person decides what becomes of it
    return run.id


def _book_flight(stage: Stage, run: amends.Run, number: str, traveller: str) -> None:
    booking, entry = f"B-{number}", f"trip-{number}"
    row = {"id": booking, "traveller": traveller, "flight": "SK 512 to Lisbon",
           "leaves_on": "2026-12-04", "state": "confirmed"}  # fmt: skip
    with run.action(
        "flights.book",
        target=[("booking", booking), ("calendar_entry", entry)],
        args=row,
        before=[None, None],
        effect_class="external_reversible",
    ) as action:
        stage.write("bookings", row)
        text = _put_entry(stage, entry, traveller)
        action.succeeded(
            result={"booking": booking},
            effects=[
                {
                    "target": ("booking", booking),
                    "before": None,
                    "after": stage.read("bookings", booking),
                    "summary": f"booked SK 512 to Lisbon for {traveller}",
                    "reversibility": "exact",
                },
                {
                    "target": ("calendar_entry", entry),
                    "before": None,
                    "after": text,
                    "summary": "put the flight into the calendar",
                    "reversibility": "exact",
                },
            ],
        )


def _put_entry(stage: Stage, entry: str, traveller: str) -> dict[str, str]:
    lines = [
        "BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Skyline//Demo//EN", "BEGIN:VEVENT",
        f"UID:{entry}", "DTSTAMP:20261122T080000Z", "DTSTART:20261204T090000Z",
        "DTEND:20261204T120000Z", f"SUMMARY:SK 512 to Lisbon\\, {traveller}", "END:VEVENT",
        "END:VCALENDAR", "",
    ]  # fmt: skip
    text = "\r\n".join(lines)
    with httpx.Client(auth=(standards.OWNER, standards.OWNER), trust_env=False) as outside:
        outside.put(
            f"{stage.where.calendar}{standards.CALENDAR}{entry}.ics",
            content=text,
            headers={"Content-Type": "text/calendar"},
        ).raise_for_status()
    return {"ics": text}


def _charge(stage: Stage, run: amends.Run, person: str, price_minor: int, *, pivot: bool) -> None:
    with run.action(
        "payments.charge",
        target=("card", "ending 4421"),
        args={"amount": price_minor, "currency": "usd", "last_four": "4421"},
        effect_class="external_reversible",
        saga="pivot" if pivot else None,
    ) as action:
        paid = stage.charge(price_minor, "4421", key=action.row.key, customer=person)
        with stage.outside() as outside:
            now = outside.get(f"{stage.where.payments}/charges/{paid['id']}").json()
        action.succeeded(
            result=paid,
            effects=[
                {
                    "target": ("charge", paid["id"]),
                    "before": None,
                    "after": now,
                    "summary": f"charged ${price_minor / 100:,.2f} to the card ending 4421",
                    "reversibility": "compensable",
                }
            ],
        )


def _book_hotel(run: amends.Run, number: str, *, found: bool, pivot: bool) -> None:
    with run.action(
        "hotels.book",
        target=("hotel", f"Ribeira {number}"),
        args={"nights": 3},
        effect_class="external_reversible",
        saga="retriable" if pivot else None,
    ) as action:
        if not found:
            raise NoRoom("No room on these dates; the hotel booked nothing")
        action.succeeded(
            result={"room": "214"},
            after={"room": "214", "nights": 3},
            summary="booked three nights at the Ribeira",
            reversibility="compensable",
        )
