"""Stories of a call or two: one waits for people, one goes to the wrong place, one is in doubt, and
vouchers, of which the first is asked about, a scripted approver allows more, and the next draw on
that.
"""

import secrets

import httpx

import amends
from demo.stories.stage import Row, Stage
from workspaces import formatting

PAYER = "bill-payer"
PAYEES = {
    "Aero Fuels": "DE89370400440532013000",
    "Gate Gourmand": "FR1420041010050500013M02606",
    "Harbour Hotels": "GB29NWBK60161331926819",
    "Nordic Ground": "NO9386011117947",
    "Pilot Wear": "ES9121000418450200051332",
}
"""Who stands on the list of payees, with their accounts (examples of the IBAN registry)."""
JANITOR = "repo-janitor"


ANSWERS = {
    PAYER: lambda _: (
        "The invoice names contract 2026-118 of 2 November, clause 4: half in advance."
    ),
    JANITOR: lambda _: "I looked at the last commit alone, not at who reads the repository.",
}
"""What these agents answer whatever somebody asks back before deciding: they are scripted."""


# Asking: two agents wait for people before they do what cannot be taken back.


def transfer(stage: Stage) -> None:
    """A transfer to a new payee; the reason that the agent wrote holds a hidden character."""
    with stage.desks[PAYER].run(
        "Pay the new caterer's deposit",
        on_behalf_of={"id": "finance-desk", "name": "Finance desk"},
        model="demo-large",
    ) as run:
        try:
            with run.action(
                "payments.transfer",
                target=("payee", "Riverside Catering, DE02 •••• 1180"),
                args={
                    "amount": 5_000_000,
                    "currency": "eur",
                    "purpose": "deposit 2026-118",
                    "iban": "DE02120300000000202051",
                },
                effect_class="external_irreversible",
                intent={
                    "goal": "pay the deposit in time",
                    "reason": "invoice says due today, cheapest\u202e option",
                    "confidence": 0.62,
                },
            ) as action:
                action.succeeded(
                    result={"transfer": "accepted"},
                    after={"state": "sent"},
                    summary=f"transferred {formatting.money(5_000_000, 'EUR')}",
                    reversibility="irreversible",
                )
        except (amends.Denied, amends.ApprovalTimeout):
            run.cancel(by="a person", reason="the transfer was not approved")


def bill(stage: Stage, payee: str, amount: int) -> None:
    """A small bill of somebody on the list of payees: nobody is asked."""
    with stage.desks[PAYER].run(f"Pay what {payee} has billed", model="demo-large") as run:
        args = {"amount": amount, "currency": "eur", "iban": PAYEES[payee]}
        with run.action(
            "payments.transfer",
            target=("payee", payee),
            args=args,
            effect_class="external_irreversible",
        ) as action:
            action.succeeded(
                result={"transfer": "accepted"},
                after={"state": "sent"},
                summary=f"transferred {formatting.money(amount, 'EUR')} to {payee}",
                reversibility="irreversible",
            )


FORGOTTEN = (
    ("crew-rota-2019", "2025-08-30"),
    ("gate-display-poc", "2025-06-11"),
    ("menu-cards", "2025-02-03"),
)
"""Repositories with their last commits. One is asked about after the other, so that whoever puts a
signing key on record finds a question that came afterwards."""


def tidy(stage: Stage) -> None:
    for name, last_commit in FORGOTTEN:
        delete(stage, name, last_commit)


def delete(stage: Stage, name: str, last_commit: str) -> None:
    with stage.desks[JANITOR].run(
        "Tidy up repositories that nobody has touched for a year",
        on_behalf_of={"id": "platform", "name": "Platform team"},
        model="demo-small",
    ) as run:
        try:
            with run.action(
                "repositories.delete",
                target=("repository", f"skyline/{name}"),
                args={"name": f"skyline/{name}", "last_commit": last_commit},
                effect_class="external_irreversible",
                intent={
                    "goal": "less clutter",
                    "reason": "no commit for a year",
                    "confidence": 0.9,
                },
            ) as action:
                action.succeeded(
                    result={"deleted": True},
                    after=None,
                    summary=f"deleted skyline/{name}",
                    reversibility="irreversible",
                )
        except (amends.Denied, amends.ApprovalTimeout):
            run.cancel(by="a person", reason="the deletion was not approved")


# Ticket: during a retry the agent raises T-182 instead of T-204, and leaves T-204 as it was.

TRIAGE = "support-triage"
MIXED_UP = (
    (301, "Bag has not arrived", "Elif Kaya"),
    (302, "Charged twice", "Marco Bianchi"),
    (303, "Name is misspelt", "Anna Schmidt"),
    (304, "Asks for a receipt", "Hugo Laurent"),
    (305, "Cannot log in", "Sara Lund"),
    (306, "Wants a window seat", "Ken Ito"),
)
"""Tickets that one bad afternoon mixes up: each time the next one is raised. One cause, a group."""


def ticket(stage: Stage, *, wanted: str = "T-204", changed: str = "T-182") -> str:
    """Play it; the run's id. Where `wanted` is `changed` everything goes well."""
    row: Row = stage.read("tickets", changed) or {}
    with stage.desks[TRIAGE].run(
        f"Please raise ticket {wanted}: the customer is locked out before a board meeting",
        on_behalf_of={"id": row["customer"].lower().replace(" ", "."), "name": row["customer"],
                      "contact": f"{row['customer'].split()[0].lower()}@example.com"},
        model="demo-small",
    ) as run:  # fmt: skip
        with run.action(
            "tickets.read", target=("ticket", wanted), effect_class="read_only"
        ) as reading:
            reading.succeeded(result=stage.read("tickets", wanted))
        with run.action(
            "tickets.update",
            target=("ticket", changed),
            args={"priority": "high"},
            before=row,
            effect_class="internal_update",
            retry="model" if wanted != changed else None,
            intent={
                "goal": f"raise {wanted}",
                "reason": "the first try timed out",
                "confidence": 0.74,
            },
        ) as action:
            stage.write("tickets", row | {"priority": "high", "updated_by": "support-triage"})
            now = stage.read("tickets", changed)
            action.succeeded(
                result={"priority": "high"},
                after=now,
                summary=f"set {changed} from {row['priority']} to high",
                reversibility="exact",
            )
        asked = stage.read("tickets", wanted) or {}
        action.verified([
            (f"{wanted} is raised", "high", asked.get("priority")),
            ("only the ticket that was asked for is changed", wanted, changed),
        ])  # fmt: skip
    return run.id


def ticket_drifts(stage: Stage, ticket: str) -> None:
    """Somebody else goes on working: the customer portal changes the same ticket afterwards."""
    row = stage.read("tickets", ticket) or {}
    stage.write("tickets", row | {"state": "waiting for customer", "updated_by": "customer portal"})


# Mail: an invoice goes to the wrong person. It cannot be unsent; a correction can be sent.

CLERK = "billing-clerk"
TOTAL_MINOR = 21_400


def invoice(stage: Stage) -> str:
    """Play it; the run's id. The invoice of Jonas Weber goes to Jonas Weiss."""
    number = f"INV-{secrets.randbelow(9000) + 1000}"
    right, wrong = "jonas.weber@example.com", "jonas.weiss@example.com"
    with stage.desks[CLERK].run(
        f"Send invoice {number} to Jonas Weber",
        on_behalf_of={"id": "jonas.weber", "name": "Jonas Weber", "contact": right},
        model="demo-small",
    ) as run:
        subject = f"Invoice {number}"
        with run.action(
            "mail.send_invoice",
            target=("mail", wrong),
            args={
                "to": wrong,
                "subject": subject,
                "attachment": f"{number}.pdf",
                "amount": TOTAL_MINOR,
                "currency": "usd",
            },
            effect_class="external_irreversible",
            intent={
                "goal": "send the invoice",
                "reason": "first match for “Jonas W”",
                "confidence": 0.58,
            },
        ) as action:
            sent = stage.send_mail(
                wrong, subject, f"Please find {number} attached. Total: ${TOTAL_MINOR / 100:.2f}\n"
            )
            action.succeeded(
                result=sent,
                after=sent,
                summary=f"mailed invoice {number} to {wrong}",
                reversibility="irreversible",
                affects={"id": "jonas.weiss", "name": "Jonas Weiss", "contact": wrong},
            )
        action.verified([("the invoice went to the customer", right, wrong)])
    return run.id


# Doubt: the payment provider answers 504 after it had charged. Nobody knows; so nobody guesses.

PLANNER = "trip-planner"
PRICE_MINOR = 8_900
SEARCH_LAGS_SECONDS = 20 * 60
"""So long a probe cannot tell, and a person settles it; whoever looks later sees it found."""


def doubt(
    stage: Stage,
    *,
    traveller: str = "Omar Davis",
    card: str = "0077",
    lags: float = SEARCH_LAGS_SECONDS,
) -> str:
    """Play it; the run's id. The charge took effect, and the agent cannot know. Without a lag of
    the provider's search the desk finds it by itself.
    """
    stage.break_next(stage.where.payments, when="after", lags=lags)
    first = traveller.partition(" ")[0].lower()
    person = {"id": traveller.lower().replace(" ", "."), "name": traveller,
              "contact": f"{first}@example.com"}  # fmt: skip
    run = stage.desks[PLANNER].run(
        "Add a checked bag to my trip", on_behalf_of=person, model="demo-large"
    )
    try:
        with (
            run,
            run.action(
                "payments.charge",
                target=("card", f"ending {card}"),
                args={"amount": PRICE_MINOR, "currency": "usd", "last_four": card},
                effect_class="external_reversible",
            ) as action,
        ):
            paid = stage.charge(PRICE_MINOR, card, key=action.row.key, customer=person["id"])
            action.succeeded(result=paid, after=paid)
    except httpx.HTTPStatusError:
        pass  # recorded as a failure whose outcome is unknown
    return run.id


def unanswered(stage: Stage) -> str:
    """Play it; the run's id. The hotel's portal hung up, and no probe can ask it: only a person who
    looks there knows whether a room is held.
    """
    person = {"id": "ines.costa", "name": "Ines Costa", "contact": "ines@example.com"}
    run = stage.desks[PLANNER].run(
        "Hold a room in Porto for one more night", on_behalf_of=person, model="demo-large"
    )
    try:
        with (
            run,
            run.action(
                "hotels.book",
                target=("hotel", "Ribeira Porto, room 31"),
                args={"nights": 1, "guest": "Ines Costa"},
                effect_class="external_reversible",
            ),
        ):
            _hang_up()
    except TimeoutError:
        pass  # recorded as a failure whose outcome is unknown
    return run.id


def _hang_up() -> None:
    raise TimeoutError("The hotel’s portal did not answer within 10 s")


# Vouchers: the first is asked about, a scripted approver allows more, and the next draw on it.

AGENT = "care-desk"
TOOL = "vouchers.issue"
DELAYED = (("Elif Kaya", 4_500), ("Marco Bianchi", 6_000), ("Anna Schmidt", 3_000))
STRANDED = (("Nora Lindt", 9_500), ("Mei Tanaka", 9_500), ("Sofia Rossi", 9_900))
DELAYED_LATER = (("Hugo Laurent", 4_500), ("Sara Lund", 7_500))


def issue(stage: Stage, customer: str, amount: int) -> str:
    """Play one; the run's id. It waits for people unless a bounded grant covers it, and whoever is
    asked may correct the amount.
    """
    number = f"V-{secrets.randbelow(90000) + 10000}"
    row = {"id": number, "customer": customer, "amount": amount, "state": "issued"}
    with stage.desks[AGENT].run(
        "My flight was four hours late",
        on_behalf_of={"id": customer.lower().replace(" ", "."), "name": customer},
        model="demo-small",
    ) as run:
        with run.action(
            TOOL,
            target=("voucher", number),
            args={"customer": customer, "amount": amount, "currency": "eur"},
            before=None,
            effect_class="internal_update",
            accepts_changed_arguments=True,
        ) as action:
            stage.write("vouchers", row | {"amount": action.args["amount"]})
            action.succeeded(
                result={"voucher": number},
                after=stage.read("vouchers", number),
                summary=f"issued voucher {number} to {customer}",
                reversibility="exact",
            )
        run.summary = "A voucher was issued"
    return run.id
