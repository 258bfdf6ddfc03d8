"""Vouchers: the first is asked about, a scripted approver allows more, and the next draw on it."""

import secrets

from demo.stories.stage import Stage

AGENT = "care-desk"
TOOL = "vouchers.issue"
DELAYED = (("Elif Kaya", 4_500), ("Marco Bianchi", 6_000), ("Anna Schmidt", 3_000))
STRANDED = (("Nora Lindt", 9_500), ("Mei Tanaka", 9_500), ("Sofia Rossi", 9_900))
DELAYED_LATER = (("Hugo Laurent", 4_500), ("Sara Lund", 7_500))


def issue(stage: Stage, customer: str, amount: int) -> str:
    """Play one; the run's id. It waits for people unless a bounded grant covers it."""
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
        ) as action:
            stage.write("vouchers", row)
            action.succeeded(
                result={"voucher": number},
                after=stage.read("vouchers", number),
                summary=f"issued voucher {number} to {customer}",
                reversibility="exact",
            )
        run.summary = "A voucher was issued"
    return run.id
