"""What a rule asks for now, held against what it asked for when people said yes, field by field."""

from typing import Any

from approvals.digests import Change, diff
from approvals.policy import PolicyDecision

NOBODY = "nobody"
OWN = {False: "does not count", True: "may be approved"}
AFFECTED = {"": "is not asked", "ask": "is asked first", "must": "must say yes first"}


def differences(approved: PolicyDecision | None, now: PolicyDecision) -> list[Change]:
    """Each thing that is asked for otherwise; without `approved` nobody knows what was asked."""
    return diff(_asked(approved) if approved else {"rule": {}}, _asked(now))


def in_words(changes: list[Change], most: int) -> str:
    """“rule.approval was 'AUTO' and is 'DENY'; …”, at most so many of them."""
    return "; ".join(
        f"{one.field} was {one.approved!r} and is {one.now!r}" for one in changes[:most]
    )


def _asked(judgement: PolicyDecision) -> dict[str, Any]:
    """What people would notice of a judgement; which rule says it comes last."""
    people = " and ".join(map(str, judgement.requires)) or "1 person who may approve"
    return {
        "rule": {
            "affected person": AFFECTED[judgement.affected],
            "answer": judgement.approval,
            "because": judgement.why,
            "fresh log-in": judgement.fresh_login,
            "one's own": OWN[judgement.self_approval],
            "people": people if judgement.approval == "MANUAL" else NOBODY,
        }
    }
