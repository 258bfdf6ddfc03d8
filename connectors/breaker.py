"""The circuit breaker: a system that is down is left alone for a while, and tried with one call.

What is known stands on the connection's row and is written with each line of the call log, so that
all workers share it. After FAILURES_MAX failures in a row the circuit is open for a pause that
doubles; when that is over, one caller may try (whoever moves `open_until` on first), and its
success closes the circuit. A refusal is an answer, and no failure.

It also bounds how many calls go over a connection at once, so that one slow system cannot hold
every worker.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection as database

from connectors.models import Connection

FAILURES_MAX = 5
PAUSE_SECONDS = 15
PAUSE_SECONDS_MAX = 600
TRIAL_SECONDS = 65
"""How long a trial call keeps others away; longer than any call may last."""

BUSY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now: why, in words for people, and when to ask again."""

    seconds: float
    reason: str


_ASK = """
UPDATE connectors_connection SET open_until = statement_timestamp() + %s * interval '1 second'
WHERE id = %s AND open_until <= statement_timestamp()
"""

_LEFT = """
SELECT extract(epoch FROM open_until - statement_timestamp())::float, failures_in_a_row, concurrency
FROM connectors_connection WHERE id = %s
"""


def may_call(connection: Connection, *, under_way: int = 0) -> Wait | None:
    """None if a call may be made now. Asking is taking: after a pause only one gets the trial call.

    `under_way` is how many calls over this connection the asker knows of.
    """
    with database.cursor() as cursor:
        cursor.execute(_LEFT, [connection.pk])
        row = cursor.fetchone()
        if row is None:
            return Wait(PAUSE_SECONDS, "The connection is gone.")
        left, failures, concurrency = row
        if under_way >= concurrency:
            return Wait(BUSY_SECONDS, f"{under_way} calls are under way over {connection.name}.")
        if left is None:
            return None
        if left <= 0:
            cursor.execute(_ASK, [TRIAL_SECONDS, connection.pk])
            if cursor.rowcount == 1:
                return None
            left = PAUSE_SECONDS
    reason = f"{connection.name} failed {failures} times in a row; it is left alone for a while."
    return Wait(left, reason)
