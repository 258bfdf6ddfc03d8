"""Mail: an invoice goes to the wrong person. It cannot be unsent; a correction can be sent."""

import secrets

from demo.stories.stage import Stage

AGENT = "billing-clerk"
TOTAL_MINOR = 21_400


def play(stage: Stage) -> str:
    """Play it; the run's id. The invoice of Jonas Weber goes to Jonas Weiss."""
    number = f"INV-{secrets.randbelow(9000) + 1000}"
    right, wrong = "jonas.weber@example.com", "jonas.weiss@example.com"
    with stage.desks[AGENT].run(
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
