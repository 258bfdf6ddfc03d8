"""Ticket: during a retry the agent raises T-182 instead of T-204, and leaves T-204 as it was."""

from demo.stories.stage import Row, Stage

AGENT = "support-triage"


def play(stage: Stage, *, wanted: str = "T-204", changed: str = "T-182") -> str:
    """Play it; the run's id. Where `wanted` is `changed` everything goes well."""
    row: Row = stage.read("tickets", changed) or {}
    with stage.desks[AGENT].run(
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


def drift(stage: Stage, ticket: str) -> None:
    """Somebody else goes on working: the customer portal changes the same ticket afterwards."""
    row = stage.read("tickets", ticket) or {}
    stage.write("tickets", row | {"state": "waiting for customer", "updated_by": "customer portal"})
