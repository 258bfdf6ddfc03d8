"""A payment provider: charges and refunds, with idempotency keys, and twins for the desk.

What it can do wrong on purpose: `fail_next` makes the next call answer 504 after (or before) it
took effect, which is how the demo gets an outcome that nobody knows.
"""

import itertools
import os
import secrets
from pathlib import Path

from amends import NoEffect, twins
from demo.outside.service import Answer, Entry, Journal, Json, Service

LIMIT_MINOR = 10_000_000


class Payments:
    """The state is what the journal adds up to, so that a restart forgets nothing."""

    def __init__(self, folder: Path, secret: str) -> None:
        self.journal = Journal(folder / "payments.jsonl")
        self.charges: dict[str, Entry] = {}
        self.refunds: dict[str, Entry] = {}
        self.answers: dict[str, Json] = {}
        self.faults: list[str] = []
        for entry in self.journal.entries():
            self._take(entry)
        self.numbers = itertools.count(len(self.charges) + len(self.refunds) + 1)
        self.service = Service()
        self.service.mounts["/amends"] = self._twins(folder, secret).wsgi
        self.service.route("POST", "/charges")(self.charge)
        self.service.route("GET", "/charges/([^/]+)")(self.read)
        self.service.route("GET", "/journal")(lambda _said, _env: (200, {"entries": self.all()}))
        self.service.route("POST", "/faults")(self.fail_next)

    def all(self) -> list[Entry]:
        return list(self.journal.entries())

    def _take(self, entry: Entry) -> None:
        kept = self.charges if entry["what"] == "charged" else self.refunds
        kept[entry["id"]] = entry
        self.answers[entry["key"]] = {k: v for k, v in entry.items() if k not in ("what", "key")}

    def charge(self, said: Json, environ: Json) -> Answer:
        """Charge a card once per Idempotency-Key; another request under the key is refused."""
        amount = said.get("amount")
        if not isinstance(amount, int) or not 0 < amount <= LIMIT_MINOR:
            return 400, {"error": "amount is a whole number of cents"}
        key = environ.get("HTTP_IDEMPOTENCY_KEY") or secrets.token_hex(8)
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "before":
            return 504, {"error": "gateway time-out"}
        with self.journal.lock:
            if key not in self.answers:
                self._take(
                    self.journal.write(
                        "charged",
                        id=f"ch_{next(self.numbers):05d}",
                        key=key,
                        amount=amount,
                        currency=said.get("currency", "usd"),
                        card=said.get("card", ""),
                        customer=said.get("customer", ""),
                    )
                )
        if fault == "after":
            return 504, {"error": "gateway time-out"}
        return 200, self.answers[key]

    def read(self, _said: Json, _environ: Json, charge: str) -> Answer:
        state = self.state(charge)
        return (200, state) if state else (404, {"error": "no such charge"})

    def state(self, charge: str) -> Json | None:
        kept = self.charges.get(charge)
        if kept is None:
            return None
        back = sum(r["amount"] for r in self.refunds.values() if r["charge"] == charge)
        return {
            "id": charge,
            "amount": kept["amount"],
            "currency": kept["currency"],
            "card": kept["card"],
            "refunded": back,
            "status": "refunded" if back >= kept["amount"] else "paid",
        }

    def fail_next(self, said: Json, _environ: Json) -> Answer:
        """`{"when": "before"|"after"}`: the next charge answers 504 before or after its effect."""
        self.faults.append("after" if said.get("when") == "after" else "before")
        return 200, {"faults": self.faults}

    def _twins(self, folder: Path, secret: str) -> twins.Twins:
        undo = twins.Twins(secret, store=os.fspath(folder / "payments-twins.sqlite"))

        @undo.undo("refund")
        def refund(_args: Json, target: Json, key: str) -> Json | None:
            """Refund what is left of a charge; an already refunded one is a success."""
            with self.journal.lock:
                state = self.state(target["id"])
                if state is None:
                    raise NoEffect("there is no such charge")
                left = state["amount"] - state["refunded"]
                if left > 0 and key not in self.answers:
                    self._take(
                        self.journal.write(
                            "refunded",
                            id=f"re_{next(self.numbers):05d}",
                            key=key,
                            charge=target["id"],
                            amount=left,
                        )
                    )
                return self.state(target["id"])

        @refund.observe
        def charge(_args: Json, target: Json) -> Json | None:
            return self.state(target["id"])

        @refund.probe
        def was_refunded(_args: Json, _target: Json, key: str) -> bool:
            return key in self.answers

        return undo
