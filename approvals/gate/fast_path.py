"""The fast path: the usual `begin` in one statement.

Most calls come under a key never met, are allowed by rule, and belong to a run that goes well. What
that decision rests on beside the call itself (the policy in force, the pauses, the labels of the
run) this process has seen a moment ago. So it is judged by that, and the function `gate_begin`
proceeds if all of it still holds under the locks and nothing is known of the call.

Whatever is not so is left to the slow path, which looks, decides by the table and records; both
leave the same rows, and a test compares them.
"""

from datetime import datetime
from typing import Any

from psycopg.errors import UniqueViolation

from approvals.gate import guesses
from approvals.gate.asks import Ask
from approvals.gate.replies import Reply, of_proceed
from approvals.gate.table import Proceed, breach_after_pivot, pause_of
from approvals.policy import inforce, verdict
from ledger import begun
from workspaces import hot

FIRST_FENCE = 1

BEGIN = f"SELECT gate_begin(%b::text, %b::bigint[], %b::text, {begun.PARAMETERS})"


async def begin(ask: Ask) -> Reply | None:
    """Proceed at once, or None where the general way must look."""
    given = arguments(ask)
    if given is None:
        return None
    try:
        async with hot.Lent() as connection:
            row = await (await connection.execute(BEGIN, given)).fetchone()
    except UniqueViolation:  # of an event's id: the general way says duplicate or conflict
        return None
    until: datetime | None = row[0] if row else None
    if until is None:
        return None
    decision = Proceed(ask.planned.run, ask.planned.action, FIRST_FENCE, is_planned=False)
    return Reply(of_proceed(decision, until))


def arguments(ask: Ask) -> list[Any] | None:
    """What `gate_begin` is to hold against the database; None where it is no usual call."""
    seen = guesses.standing(ask)
    policy = inforce.known(seen.policy_digest) if seen else None
    if ask.explain or seen is None or policy is None or pause_of(ask, seen.pauses, policy):
        return None
    labels = guesses.labels(ask)
    said, action_class = verdict(policy, ask.deed(labels))
    if said != "AUTO":
        return None
    act = ask.planned
    return [
        seen.policy_digest,
        [one.id for one in seen.pauses],
        ask.subject_key,
        *begun.arguments(
            ask.speaker,
            act,
            ask.started(act.run, act.action, FIRST_FENCE),
            labels=labels if policy.reads_labels else None,
            may_follow_pivot=(
                policy.order_law == "WARN" or not breach_after_pivot(ask, action_class)
            ),
        ),
    ]
