"""Doubt: the payment provider answers 504 after it had charged. Nobody knows; so nobody guesses."""

import httpx

from demo.stories.stage import Stage

AGENT = "trip-planner"
PRICE_MINOR = 8_900


def play(stage: Stage) -> str:
    """Play it; the run's id. The charge took effect, and the agent cannot know."""
    stage.break_next(stage.where.payments, when="after")
    run = stage.desks[AGENT].run(
        "Add a checked bag to my trip",
        on_behalf_of={"id": "omar.davis", "name": "Omar Davis", "contact": "omar@example.com"},
        model="demo-large",
    )
    try:
        with (
            run,
            run.action(
                "payments.charge",
                target=("card", "ending 0077"),
                args={"amount": PRICE_MINOR, "currency": "usd", "last_four": "0077"},
                effect_class="external_reversible",
            ) as action,
        ):
            paid = stage.charge(PRICE_MINOR, "0077", key=action.row.key, customer="omar.davis")
            action.succeeded(result=paid, after=paid)
    except httpx.HTTPStatusError:
        pass  # recorded as a failure whose outcome is unknown
    return run.id
