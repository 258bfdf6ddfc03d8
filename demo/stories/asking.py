"""Asking: two agents wait for people before they do what cannot be taken back."""

import amends
from demo.stories.stage import Stage

AGENT = "bill-payer"
JANITOR = "repo-janitor"


def transfer(stage: Stage) -> None:
    """A transfer to a new payee; the reason that the agent wrote holds a hidden character."""
    with stage.desks[AGENT].run(
        "Pay the new caterer's deposit",
        on_behalf_of={"id": "finance-desk", "name": "Finance desk"},
        model="demo-large",
    ) as run:
        try:
            with run.action(
                "payments.transfer",
                target=("payee", "Riverside Catering, DE02 •••• 1180"),
                args={"amount": 5_000_000, "currency": "eur", "purpose": "deposit 2026-118"},
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
                    summary="transferred €50 000.00",
                    reversibility="irreversible",
                )
        except (amends.Denied, amends.ApprovalTimeout):
            run.cancel(by="a person", reason="the transfer was not approved")


def delete(stage: Stage) -> None:
    with stage.desks[JANITOR].run(
        "Tidy up repositories that nobody has touched for a year",
        on_behalf_of={"id": "platform", "name": "Platform team"},
        model="demo-small",
    ) as run:
        try:
            with run.action(
                "repositories.delete",
                target=("repository", "skyline/crew-rota-2019"),
                args={"name": "skyline/crew-rota-2019", "last_commit": "2025-08-30"},
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
                    summary="deleted skyline/crew-rota-2019",
                    reversibility="irreversible",
                )
        except (amends.Denied, amends.ApprovalTimeout):
            run.cancel(by="a person", reason="the deletion was not approved")
