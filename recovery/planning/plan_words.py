"""How a plan is called, and what people have to do for it, in words."""

from __future__ import annotations

from collections.abc import Sequence

from approvals.policy import Judgement
from connectors.contract import Money
from recovery.facts.words import listed, plural, shortened
from recovery.planning.drafting import Drafted
from recovery.planning.making import DraftStep

HEADLINE_CHARACTERS_MAX = 400
BRIEF_CHARACTERS_MAX = 90
TITLES_NAMED_MAX = 3


def headline(drafted: Drafted) -> str:
    """`Refund $1 286.00, then restore reservation XEHM4B`."""
    named = [one.preview.title.rstrip(".") for one in drafted.steps]
    if not named:
        return "Nothing can be undone from here"
    shown = named[:TITLES_NAMED_MAX]
    if len(named) > TITLES_NAMED_MAX:
        shown = [*named[: TITLES_NAMED_MAX - 1], plural(len(named) - 2, "step") + " more"]
    text = ", then ".join([shown[0], *(one[:1].lower() + one[1:] for one in shown[1:])])
    return shortened(text, HEADLINE_CHARACTERS_MAX)


def brief(drafted: Drafted) -> str:
    """The headline where it is short, else its first step and how many follow: for a button."""
    whole = headline(drafted)
    if len(whole) <= BRIEF_CHARACTERS_MAX or not drafted.steps:
        return whole
    first = shortened(drafted.steps[0].preview.title.rstrip("."), BRIEF_CHARACTERS_MAX)
    more = len(drafted.steps) - 1
    return f"{first}, then {plural(more, 'step')} more" if more else first


def lead(drafted: Drafted) -> str:
    """`2 steps, newest action first. 1 effect cannot be undone.`"""
    parts = []
    if drafted.steps:
        parts.append(f"{plural(len(drafted.steps), 'step')}, newest action first.")
    if drafted.cannot:
        parts.append(f"{plural(len(drafted.cannot), 'effect')} cannot be undone.")
    if drafted.skipped:
        parts.append(f"{plural(len(drafted.skipped), 'effect')} left as you chose.")
    told = recipients(drafted.steps)
    if told:
        parts.append(f"It writes to {listed(told)}.")
    elif drafted.steps:
        parts.append("Nobody is told until you publish the correction.")
    return " ".join(parts)


def recipients(steps: Sequence[DraftStep]) -> list[str]:
    """Whom the plan's own calls reach, each once."""
    return list(dict.fromkeys(who for one in steps for who in one.preview.recipients))


def money(steps: Sequence[DraftStep]) -> Money | None:
    """What moves in all, if it is of one currency."""
    moved = [one.preview.money for one in steps if one.preview.money is not None]
    currencies = {one.currency for one in moved}
    if len(currencies) != 1:
        return None
    return Money(sum(one.amount_minor for one in moved), currencies.pop())


def approval(judgement: Judgement | None) -> str:
    """Who has to approve; empty where nobody has to."""
    if judgement is None or judgement.approval == "AUTO":
        return ""
    if judgement.approval == "DENY":
        return "Never allowed"
    return " and ".join(map(str, judgement.requires)) or "1 person who may approve"
