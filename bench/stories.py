"""What happened in each run of the generated desk, before it is rows."""

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

# What the generated desk talks about: words of a few frequencies, for searches of all kinds.
#
# “please” is in every request, each city in about one case of a hundred, and a booking code in
# one.


class ToolTemplate(NamedTuple):
    """One tool, what it does to what, and how it fails."""

    tool: str
    kind: str
    target: str
    verb: str
    error: str
    message: str
    risk: str
    reversibility: str
    suggestion: str


DEEDS = (
    ToolTemplate("update_reservation_flights", "internal_update", "reservation",
        "changed flights on", "Timeout", "The booking system did not answer within 30 s", "high",
        "exact", "Restore the flights"),
    ToolTemplate("cancel_reservation", "external_reversible", "reservation", "cancelled",
        "FareRuleViolation", "The fare of this booking is not refundable", "high", "compensable",
        "Book again"),
    ToolTemplate("charge_payment_card", "external_irreversible", "charge", "charged",
        "CardDeclined", "The issuer declined the second instalment", "critical", "compensable",
        "Refund the charge"),
    ToolTemplate("crm.update_contact", "internal_update", "contact", "changed",
        "ValidationError", "The field country is required", "medium", "exact",
        "Restore the contact"),
    ToolTemplate("email.send_notification", "external_irreversible", "mail", "sent",
        "BounceError", "The address does not exist", "medium", "irreversible",
        "Send a correction"),
    ToolTemplate("slack.post_message", "external_reversible", "message", "posted",
        "RateLimited", "Too many messages in channel sales", "low", "compensable",
        "Delete the message"),
    ToolTemplate("licences.assign", "external_reversible", "licence", "assigned",
        "QuotaExceeded", "No seat is left in this plan", "low", "exact", "Take the licence back"),
    ToolTemplate("invoice.create", "external_irreversible", "invoice", "wrote",
        "DuplicateNumber", "The invoice number is taken", "medium", "compensable",
        "Write a credit note"),
    ToolTemplate("calendar.move_meeting", "external_reversible", "meeting", "moved",
        "Conflict", "Somebody else changed the meeting meanwhile", "low", "exact",
        "Move the meeting back"),
    ToolTemplate("github.delete_repository", "external_irreversible", "repository", "deleted",
        "Forbidden", "The token may not delete in this organisation", "critical", "irreversible",
        "Tell the owners"),
)  # fmt: skip

FIRST_NAMES = (
    "Eve Noor Mateo Ling Amara Jonas Priya Olek Yuki Sana Hugo Ines Tariq Lena Pavel Rosa Kofi Mina"
    " Arne Zoe"
).split()
LAST_NAMES = (
    "Field Okafor Lindqvist Marchetti Tanaka Novak Alvarez Haddad Iyer Kowalski Brandt Dubois Costa"
    " Nielsen Weber Petrov Mensah Rahman Silva Keller"
).split()
CITIES = (
    "Lisbon Porto Madrid Seville Paris Lyon Nantes Bordeaux Berlin Hamburg Munich Cologne Leipzig"
    " Vienna Graz Zurich Geneva Basel Milan Rome Turin Naples Venice Athens Sofia Bucharest"
    " Budapest Prague Brno Warsaw Krakow Gdansk Vilnius Riga Tallinn Helsinki Turku Stockholm"
    " Malmo Oslo Bergen Copenhagen Aarhus Amsterdam Utrecht Rotterdam Brussels Antwerp Ghent"
    " London Leeds Bristol Glasgow Dublin Cork Reykjavik Boston Chicago Denver Seattle Austin"
    " Dallas Miami Atlanta Phoenix Toronto Montreal Vancouver Calgary Havana Bogota Lima Quito"
    " Santiago Cordoba Recife Salvador Lagos Accra Nairobi Kampala Kigali Cairo Tunis Rabat"
    " Casablanca Dakar Istanbul Ankara Izmir Amman Beirut Dubai Doha Delhi Mumbai Pune Chennai"
    " Tokyo Osaka Kyoto Sapporo Seoul Busan"
).split()
WISHES = (
    "Please move my trip to {city} to Friday and keep the window seat",
    "Please cancel the booking to {city} and give me my money back",
    "Please send the signed offer to our partner in {city} before noon",
    "Please set our new colleague from {city} up with mail and licences",
    "Please correct the address of our branch in {city} everywhere",
)
MODELS = ("opus-4", "sonnet-4", "gpt-5", "gemini-3")

DAYS = 85
CUSTOMERS = 5_000
# Of as many runs, one has an open case and the next a closed one.
EVERY_OPEN = 10
# Of as many runs, one's last call has no answer: a person has to say what became of it.
EVERY_UNKNOWN = 40


Rows = dict[str, list[Any]]
"""By the table's name here, what is to be copied into it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The desk in which all of it happens: agents with id and name, causes by tool."""

    workspace_id: int
    agents: list[tuple[int, str]]
    causes: dict[str, int]
    team_id: int
    total: int
    now: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class GeneratedRun:
    """One run's story."""

    number: int
    run: str
    agent_id: int
    agent: str
    deed: ToolTemplate
    customer: str
    name: str
    request: str
    at: datetime
    failed: bool
    actions: int
    is_open: bool
    in_doubt: bool


def told(number: int, setting: Setting, chance: random.Random) -> GeneratedRun:
    """The story of one run: of one action, or of three where it has a case."""
    pick = chance.random
    agent = setting.agents[number % len(setting.agents)]
    deed = DEEDS[int(pick() * len(DEEDS))]
    customer = int(pick() * CUSTOMERS)
    wish = WISHES[int(pick() * len(WISHES))]
    has_case = number % EVERY_OPEN < 2
    return GeneratedRun(
        number=number + 1,
        run=f"run_{number + 1:07d}",
        agent_id=agent[0],
        agent=agent[1],
        deed=deed,
        customer=f"c-{customer}",
        name=(f"{FIRST_NAMES[customer % 20]} {LAST_NAMES[customer // 20 % 20]}"),
        request=wish.format(city=CITIES[int(pick() * len(CITIES))]),
        at=setting.now - timedelta(seconds=(1 - number / setting.total) * DAYS * 86400),
        failed=has_case,
        actions=3 if has_case else 1,
        is_open=number % EVERY_OPEN == 0,
        in_doubt=number % EVERY_UNKNOWN == 0,
    )
