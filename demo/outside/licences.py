"""A vendor's licence service: paid seats in workspaces, and twins that release them."""

import os
from pathlib import Path

from amends import NoEffect, twins
from demo.outside.service import Answer, Entry, Journal, Json, Service

PRICE_MINOR = 2_400


class Licences:
    """Seats by id, added up from the journal."""

    def __init__(self, folder: Path, secret: str) -> None:
        self.journal = Journal(folder / "licences.jsonl")
        self.seats: dict[str, Json] = {}
        self.keys: set[str] = set()
        for entry in self.journal.entries():
            self._take(entry)
        self.service = Service()
        self.service.mounts["/amends"] = self._twins(folder, secret).wsgi
        self.service.route("POST", "/seats")(self.assign)
        self.service.route("GET", "/seats/([^/]+)")(self.read)
        self.service.route("GET", "/journal")(lambda _said, _env: (200, {"entries": self.all()}))

    def all(self) -> list[Entry]:
        return list(self.journal.entries())

    def _take(self, entry: Entry) -> None:
        self.keys.add(entry["key"])
        if entry["what"] == "assigned":
            self.seats[entry["id"]] = {
                "id": entry["id"],
                "holder": entry["holder"],
                "plan": entry["plan"],
                "state": "paid",
            }
        else:
            self.seats[entry["id"]] = {**self.seats[entry["id"]], "state": "released"}

    def assign(self, said: Json, environ: Json) -> Answer:
        """Buy a seat for `holder`, once per Idempotency-Key."""
        holder = said.get("holder")
        if not isinstance(holder, str) or not holder:
            return 400, {"error": "holder is a text"}
        key = environ.get("HTTP_IDEMPOTENCY_KEY") or f"seat-{holder}"
        with self.journal.lock:
            seat = f"seat-{len(self.seats) + 1:04d}"
            if key in self.keys:
                seat = next(e["id"] for e in self.all() if e["key"] == key)
            else:
                self._take(
                    self.journal.write(
                        "assigned",
                        id=seat,
                        key=key,
                        holder=holder,
                        plan=said.get("plan", "team"),
                        price=PRICE_MINOR,
                    )
                )
        return 200, self.seats[seat]

    def read(self, _said: Json, _environ: Json, seat: str) -> Answer:
        state = self.seats.get(seat)
        return (200, state) if state else (404, {"error": "no such seat"})

    def _twins(self, folder: Path, secret: str) -> twins.Twins:
        undo = twins.Twins(secret, store=os.fspath(folder / "licences-twins.sqlite"))

        @undo.undo("release_licence")
        def release(_args: Json, target: Json, key: str) -> Json | None:
            """Release a seat; a released one is a success."""
            with self.journal.lock:
                state = self.seats.get(target["id"])
                if state is None:
                    raise NoEffect("there is no such seat")
                if state["state"] != "released":
                    self._take(self.journal.write("released", id=target["id"], key=key))
                return self.seats[target["id"]]

        @release.observe
        def seat(_args: Json, target: Json) -> Json | None:
            return self.seats.get(target["id"])

        @release.probe
        def was_released(_args: Json, _target: Json, key: str) -> bool:
            return key in self.keys

        return undo
