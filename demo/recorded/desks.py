"""The service desks whose agents were recorded: their tables and what each of their tools does.

`AIRLINE` is of a real agent; its recording is not in the repository. `PARCELS` is invented, with
its runs: `demo.parcels` makes them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Row = dict[str, Any]
ToolClass = Literal["read_only", "draft", "internal_update"]


class UnknownDesk(Exception):
    """We stopped because a recording is of an agent that no description names."""


@dataclass(frozen=True)
class Table:
    """`columns`: name → PostgreSQL type. A field that a recording does not name is NULL."""

    target_type: str
    columns: Mapping[str, str]


@dataclass(frozen=True)
class ServiceDesk:
    """One business.

    `changes` says in words what a writing tool does to a row, `customers` is the table of those
    who ask, and `subjects` are the arguments that name what a call is about, the first found first.
    """

    slug: str
    name: str
    agent: str
    goal: str
    tables: Mapping[str, Table]
    customers: str
    name_of: Callable[[Row], str]
    changes: Mapping[str, str]
    drafts: frozenset[str]
    subjects: tuple[str, ...]

    def class_of(self, tool: str) -> ToolClass:
        if tool in self.changes:
            return "internal_update"
        return "draft" if tool in self.drafts else "read_only"

    def summary(self, tool: str, table: str, row_id: str) -> str:
        """What a call did to one row, as the case tells it."""
        if table == self.customers:
            return f"changed the account of {row_id}"
        return f"{self.changes[tool]} {self.tables[table].target_type} {row_id}"


def _first_and_last(row: Row) -> str:
    name = row.get("name") or {}
    return f"{name.get('first_name', '')} {name.get('last_name', '')}".strip()


AIRLINE = ServiceDesk(
    slug="airline",
    name="Airline desk",
    agent="airline-desk",
    goal="Serve the customer within the airline's policy",
    tables={
        "reservations": Table(
            "reservation",
            {
                "reservation_id": "text",
                "user_id": "text",
                "origin": "text",
                "destination": "text",
                "flight_type": "text",
                "cabin": "text",
                "flights": "jsonb",
                "passengers": "jsonb",
                "payment_history": "jsonb",
                "created_at": "text",
                "total_baggages": "integer",
                "nonfree_baggages": "integer",
                "insurance": "text",
                "status": "text",
            },
        ),
        "users": Table(
            "customer",
            {
                "name": "jsonb",
                "address": "jsonb",
                "email": "text",
                "dob": "text",
                "payment_methods": "jsonb",
                "saved_passengers": "jsonb",
                "membership": "text",
                "reservations": "jsonb",
            },
        ),
    },
    customers="users",
    name_of=_first_and_last,
    changes={
        "book_reservation": "booked",
        "cancel_reservation": "cancelled",
        "update_reservation_flights": "changed the flights of",
        "update_reservation_baggages": "changed the bags of",
        "update_reservation_passengers": "changed the passengers of",
        "send_certificate": "sent a certificate to",
    },
    drafts=frozenset({"transfer_to_human_agents"}),
    subjects=("reservation_id", "user_id"),
)

PARCELS = ServiceDesk(
    slug="parcels",
    name="Parcel desk",
    agent="parcel-desk",
    goal="Help senders with their parcels within the house rules",
    tables={
        "parcels": Table(
            "parcel",
            {
                "sender": "text",
                "recipient": "jsonb",
                "service": "text",
                "contents": "jsonb",
                "weight_grams": "integer",
                "insured_minor": "integer",
                "needs_signature": "boolean",
                "pickup": "jsonb",
                "charges": "jsonb",
                "handed_in_on": "date",
                "state": "text",
            },
        ),
        "accounts": Table(
            "sender",
            {
                "name": "text",
                "email": "text",
                "town": "text",
                "wallet": "jsonb",
                "parcels": "jsonb",
                "wants_news": "boolean",
            },
        ),
    },
    customers="accounts",
    name_of=lambda row: str(row.get("name") or ""),
    changes={
        "ship_parcel": "shipped",
        "recall_parcel": "recalled",
        "redirect_parcel": "redirected",
        "insure_parcel": "insured",
        "change_service": "changed the service of",
        "book_pickup": "booked a pickup for",
        "grant_voucher": "granted a voucher to",
    },
    drafts=frozenset({"hand_to_colleague"}),
    subjects=("parcel", "account"),
)

DESKS = {desk.agent: desk for desk in (AIRLINE, PARCELS)}


def desk_of(agent: str) -> ServiceDesk:
    """The desk at which this agent serves; raises `UnknownDesk`."""
    if agent not in DESKS:
        raise UnknownDesk(f"No desk is described for the agent “{agent}”: {', '.join(DESKS)}")
    return DESKS[agent]
