"""Trip: flight booked, card charged, hotel fails; with a pivot the rest can go forward instead."""

import secrets
import time

import httpx

import amends
from demo.outside import CALENDAR, OWNER
from demo.stories.stage import FRIDAY, Stage, next_week
from workspaces import formatting

AGENT = "trip-planner"
PRICE_MINOR = 128_600
ASKS_SECONDS = 20.0


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
    number = new_number()
    run = stage.desks[AGENT].run(
        "Book me to Lisbon next week, with a hotel near the river",
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


def no_room(stage: Stage) -> str:
    """Play it; the run's id. It fails at its first call, so there is nothing to put right."""
    person = {"id": "maya.lindholm", "name": "Maya Lindholm", "contact": "maya@example.com"}
    run = stage.desks[AGENT].run(
        "A room in Lisbon for three nights, please", on_behalf_of=person, model="demo-small"
    )
    try:
        with run:
            _book_hotel(run, new_number(), found=False, pivot=False)
    except NoRoom:
        pass  # the run says that it failed, and did nothing
    return run.id


def new_number() -> str:
    return f"{secrets.randbelow(90000) + 10000}"


def go_on(stage: Stage, run_id: str) -> None:
    """Wait until somebody lets a failed trip go on, and book the hotel that is left: as an agent
    that was started anew, which knows of the run what its checkpoint holds.
    """
    desk = stage.desks[AGENT]
    while (wanted := desk.directive(run_id, wait_seconds=ASKS_SECONDS)) is None:
        time.sleep(1)
    if wanted.get("kind") != "resume":
        return
    with desk.resume(run_id) as run:
        _book_hotel(run, run.state["booking"].removeprefix("B-"), found=True, pivot=True)
        run.summary = "The hotel is booked, too"


def earlier(stage: Stage, traveller: str = "Amelia Davis") -> None:
    """Another flight than was booked: the traveller is asked first, then one of the leads."""
    number = new_number()
    row = {"id": f"B-{number}", "traveller": traveller, "flight": "SK 512 to Lisbon",
           "leaves_on": f"{next_week(FRIDAY)}", "state": "confirmed"}  # fmt: skip
    stage.write("bookings", row)
    contact = f"{traveller.partition(' ')[0].lower()}@example.com"
    person = {"id": traveller.lower().replace(" ", "."), "name": traveller, "contact": contact}
    with stage.desks[AGENT].run(
        "SK 512 is full: put one traveller on SK 508", on_behalf_of=person, model="demo-large"
    ) as run:
        try:
            with run.action(
                "flights.change",
                target=("booking", row["id"]),
                args={"flight": "SK 508 to Lisbon", "leaves": "06:10"},
                before=stage.read("bookings", row["id"]),
                effect_class="external_irreversible",
            ) as action:
                stage.write("bookings", row | {"flight": "SK 508 to Lisbon"})
                action.succeeded(
                    result={"flight": "SK 508"},
                    after=stage.read("bookings", row["id"]),
                    summary=f"put {traveller} on SK 508",
                    reversibility="irreversible",
                )
        except (amends.Denied, amends.ApprovalTimeout):
            run.cancel(by="a person", reason="the other flight was not approved")


def seat(stage: Stage) -> str:
    """A seat is held, then the trip fails: the desk lets it go by itself. The run's id."""
    place = f"SK 512, seat {secrets.randbelow(28) + 1}A"
    stage.write("seats", {"id": place, "state": "free", "held_by": None})
    person = {"id": "noah.king", "name": "Noah King", "contact": "noah@example.com"}
    run = stage.desks[AGENT].run(
        "A window seat to Lisbon, please", on_behalf_of=person, model="demo-small"
    )
    try:
        with run:
            with run.action(
                "seats.hold",
                target=("seat", place),
                args={"held_by": "noah.king"},
                before=stage.read("seats", place),
                effect_class="internal_update",
            ) as action:
                stage.write("seats", {"id": place, "state": "held", "held_by": "noah.king"})
                action.succeeded(
                    result={"seat": place},
                    after=stage.read("seats", place),
                    summary=f"held {place}",
                    reversibility="exact",
                )
            _book_hotel(run, place.removeprefix("SK 512, "), found=False, pivot=False)
    except NoRoom:
        pass  # the run says that it failed; the policy lets the desk undo this by itself
    return run.id


def _book_flight(stage: Stage, run: amends.Run, number: str, traveller: str) -> None:
    booking, entry = f"B-{number}", f"trip-{number}"
    row = {"id": booking, "traveller": traveller, "flight": "SK 512 to Lisbon",
           "leaves_on": f"{next_week(FRIDAY)}", "state": "confirmed"}  # fmt: skip
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
    day = f"{next_week(FRIDAY):%Y%m%d}"
    lines = [
        "BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Skyline//Demo//EN", "BEGIN:VEVENT",
        f"UID:{entry}", "DTSTAMP:20261122T080000Z", f"DTSTART:{day}T090000Z",
        f"DTEND:{day}T120000Z", f"SUMMARY:SK 512 to Lisbon\\, {traveller}", "END:VEVENT",
        "END:VCALENDAR", "",
    ]  # fmt: skip
    text = "\r\n".join(lines)
    with httpx.Client(auth=(OWNER, OWNER), trust_env=False) as outside:
        outside.put(
            f"{stage.where.calendar}{CALENDAR}{entry}.ics",
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
                    "summary": f"charged {formatting.money(price_minor)} to the card ending 4421",
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
