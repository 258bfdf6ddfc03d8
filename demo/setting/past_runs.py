"""What the agents of the seeded month said: runs that went well, and some that did not."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from demo.stories import calls, onboarding, trip
from workspaces import formatting

PEOPLE = (
    "Maya Lindholm", "Tariq Aziz", "Chloe Martin", "Yusuf Demir", "Ines Costa", "Paul Novak",
    "Hanna Berg", "Leo Fontaine", "Mina Sato", "Oskar Wolf", "Priya Nair", "Tom Keller",
)  # fmt: skip
PAYER = calls.PAYER
TRANSFER = "payments.transfer"
Data = dict[str, Any]


@dataclass(frozen=True)
class PastEvent:
    """One event of an agent, at the time that it says itself."""

    type: str
    run: str
    at: datetime
    data: Data
    action: str = ""
    n: int | None = None


@dataclass
class PastRun:
    """A run and what was told of it; `tell` and `call` go on a few seconds later each."""

    agent: str
    run: str
    at: datetime
    events: list[PastEvent] = field(default_factory=list)
    calls: int = 0

    def tell(self, kind: str, action: str = "", **data: Any) -> None:
        """Every event of an action carries its number, as what agents say does."""
        self.at += timedelta(seconds=2)
        act = int(action.rpartition("-")[2]) if action else self.calls + bool(self.events)
        self.events.append(PastEvent(kind, self.run, self.at, data, action, act))

    def call(self, tool: str, target: tuple[str, str], args: Data, /, **came: Any) -> str:
        """One call that succeeded with `came`, or failed where that has an `error`."""
        self.calls += 1
        action = f"{self.run}-{self.calls}"
        of = {"type": target[0], "id": target[1]}
        key = f"{action}-key"
        self.tell("action.planned", action, tool=tool, targets=[of], args=args, key=key)
        if "error" in came:
            self.tell("action.failed", action, outcome="no_effect", **came)
        else:
            self.tell("action.succeeded", action, **came)
        return action


class RunParameters(NamedTuple):
    """What chance has drawn for one run, and chance itself for the rest of it."""

    chance: random.Random
    number: int
    at: datetime
    wrong: bool


def of_days(chance: random.Random, now: datetime, *, days: int, a_day: int) -> Iterator[PastRun]:
    """`a_day` runs on each of the days before today, at working hours; three in ten go wrong."""
    number = 0
    for ago in range(days, 0, -1):
        for _ in range(a_day):
            number += 1
            at = now - timedelta(days=ago) + timedelta(minutes=chance.uniform(0, 60 * 9))
            story = STORIES[(number + ago) % len(STORIES)]
            yield story(RunParameters(chance, number, at, chance.random() < WRONG))


WRONG = 0.3
NOT_SMALL, LARGE = 300_000, 1_000_000


def _begin(agent: str, number: int, at: datetime, story: str, request: str, **more: Any) -> PastRun:
    labels = {"story": story, "seeded": "yes"} | more.pop("labels", {})
    run = PastRun(agent, f"run_seed{number:04}", at)
    run.tell("run.started", agent=agent, request=request, labels=labels, **more)
    return run


def _person(name: str) -> Data:
    first = name.partition(" ")[0].lower()
    return {"id": name.lower().replace(" ", "."), "name": name, "contact": f"{first}@example.com"}


def _effect(kind: str, id_: str, before: Any, after: Any, *words: str) -> Data:
    of = {"type": kind, "id": id_}
    said = {"target": of, "before": before, "after": after}
    return said | {"summary": words[0], "reversibility": words[1]}


def _trip(parameters: RunParameters) -> PastRun:
    chance, number, at, wrong = parameters
    name, price = chance.choice(PEOPLE), chance.randrange(9_000, 90_000)
    words = "Book me to Lisbon next week, with a hotel near the river"
    run = _begin(trip.AGENT, number, at, "trip", words, on_behalf_of=_person(name))
    booking: Data = {"id": f"B-S{number}", "traveller": name, "state": "confirmed"}
    booked = _effect(
        "booking", booking["id"], None, booking, f"booked a flight for {name}", "exact"
    )
    run.call("flights.book", ("booking", booking["id"]), booking, effects=[booked])
    charge: Data = {"id": f"ch_s{number}", "amount": price, "currency": "usd"}
    charge |= {"card": "4421", "status": "paid"}
    told = f"charged {formatting.money(price)} to the card ending 4421"
    paid = _effect("charge", charge["id"], None, charge, told, "compensable")
    args = {"amount": price, "currency": "usd", "last_four": "4421"}
    run.call("payments.charge", ("card", "ending 4421"), args, effects=[paid])
    if wrong:
        error = {"type": "NoRoom", "message": "No room on these dates; the hotel booked nothing"}
        failed = run.call(
            "hotels.book", ("hotel", f"Ribeira S{number}"), {"nights": 3}, error=error
        )
        run.tell("run.failed", error=error, failed_action=failed)
        return run
    room = _effect(
        "hotel", f"Ribeira S{number}", None, {"room": "214"}, "booked a room", "compensable"
    )
    run.call("hotels.book", ("hotel", f"Ribeira S{number}"), {"nights": 3}, effects=[room])
    run.tell("run.completed", summary="The trip is booked")
    return run


def _ticket(parameters: RunParameters) -> PastRun:
    chance, number, at, wrong = parameters
    name, wanted = chance.choice(PEOPLE), f"T-S{number}"
    changed = f"T-S{number + 5000}" if wrong else wanted
    run = _begin(
        calls.TRIAGE, number, at, "ticket", f"Please raise ticket {wanted}: I am locked out",
        on_behalf_of=_person(name),
    )  # fmt: skip
    before, after = ({"id": changed, "priority": one} for one in ("normal", "high"))
    raised = _effect(
        "ticket", changed, before, after, f"set {changed} from normal to high", "exact"
    )
    action = run.call("tickets.update", ("ticket", changed), {"priority": "high"}, effects=[raised])
    check = {"name": "only the ticket that was asked for is changed", "expected": wanted}
    checks = [check | {"actual": changed, "ok": not wrong}]
    run.tell("action.verified", action, ok=not wrong, checks=checks)
    run.tell("run.completed", summary="Raised")
    return run


def _invoice(parameters: RunParameters) -> PastRun:
    chance, number, at, wrong = parameters
    name, other = chance.sample(PEOPLE, 2)
    right, amount = _person(name)["contact"], chance.randrange(4_000, 60_000)
    to, invoice = _person(other)["contact"] if wrong else right, f"INV-S{number}"
    run = _begin(
        calls.CLERK, number, at, "invoice", f"Send invoice {invoice} to {name}",
        on_behalf_of=_person(name),
    )  # fmt: skip
    args = {"to": to, "subject": f"Invoice {invoice}", "amount": amount, "currency": "usd"}
    sent = {"to": to, "subject": args["subject"], "message_id": f"<s{number}@skyline.example>"}
    mailed = _effect("mail", to, None, sent, f"mailed invoice {invoice} to {to}", "irreversible")
    action = run.call("mail.send_invoice", ("mail", to), args, effects=[mailed])
    checks = [{"name": "the invoice went to the customer", "expected": right, "actual": to}]
    run.tell("action.verified", action, ok=not wrong, checks=[checks[0] | {"ok": not wrong}])
    run.tell("run.completed", summary="Sent")
    return run


def _hire(parameters: RunParameters) -> PastRun:
    chance, number, at, wrong = parameters
    name, staff = chance.choice(PEOPLE), f"E-S{number}"
    run = _begin(
        onboarding.AGENT, number, at, "hire", f"Onboard {name}, who starts on Monday",
        on_behalf_of=_person(name),
    )  # fmt: skip
    row = {"id": staff, "name": name, "role": "dispatcher", "state": "active"}
    made = _effect("employee", staff, None, row, f"created the HR record of {name}", "exact")
    run.call("hr.create_record", ("employee", staff), row, effects=[made])
    to = _person(name)["contact"]
    args = {"to": to, "subject": "Welcome to Skyline"}
    if wrong:
        error = {"type": "NoEffect", "message": "4.4.1 504 gateway time-out, nothing was accepted"}
        failed = run.call("mail.send_welcome", ("mail", to), args, error=error)
        run.tell("run.failed", error=error, failed_action=failed)
        return run
    mailed = _effect("mail", to, None, args, "sent the welcome mail", "irreversible")
    run.call("mail.send_welcome", ("mail", to), args, effects=[mailed])
    run.tell("run.completed", summary="Ready for the first day")
    return run


def _transfer(parameters: RunParameters) -> PastRun:
    chance, number, at, wrong = parameters
    """People were asked: most said yes at once, some no, and of some nobody heard in time."""
    payee, amount = chance.choice(list(calls.PAYEES)), chance.randrange(210_000, 1_600_000)
    seconds = min(chance.lognormvariate(5.5 if amount > LARGE else 3.8, 1.1), 3_000)
    end = chance.choice(["rejected", "expired"]) if wrong and amount > NOT_SMALL else "used"
    run = _begin(
        PAYER, number, at, "transfer", f"Pay what {payee} has billed",
        labels={"end": end, "seconds": f"{seconds:.1f}"},
    )  # fmt: skip
    args = {"amount": amount, "currency": "eur", "purpose": f"bill 2026-{number:03}"}
    of = ("payee", f"{payee}, DE02 •••• {1000 + number}")
    if end != "used":
        run.call(TRANSFER, of, args, error={"type": "Denied", "message": "It was not approved"})
        run.tell("run.cancelled", by="a person", reason="the transfer was not approved")
        return run
    run.at += timedelta(seconds=seconds)
    told = f"transferred {formatting.money(amount, 'EUR')}"
    sent = _effect("payee", of[1], None, {"state": "sent"}, told, "irreversible")
    run.call(TRANSFER, of, args, effects=[sent])
    run.tell("run.completed", summary="Paid")
    return run


STORIES = (_trip, _ticket, _transfer, _invoice, _transfer, _hire)
