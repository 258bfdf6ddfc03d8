"""The log of calls, what it says of a connection's health, and the breaker that goes by it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from django.db import DatabaseError, InterfaceError
from django.db import connection as database
from psycopg import Cursor

from connectors.contract import Target
from connectors.models import CallOutcome, Connection
from ledger.append.statements import array
from ledger.drivers import plain_connection

logger = logging.getLogger(__name__)

CALLS_KEPT = 500
"""Per connection; enough for a bad afternoon. The ledger has what matters longer."""

GATHER_SECONDS = 0.2
"""How long lines of calls that went well wait for others, so as to be written with them."""

HEALTH_SECONDS = 10
"""A healthy connection's `last_ok_at` is written no more often, for all workers share its row."""

# One statement, so one round trip and one commit, for many lines; that commit need not wait for the
# disk, because a line is not evidence.
_WRITE = """
WITH loose AS (SELECT set_config('synchronous_commit', 'off', true)),
line AS (
    INSERT INTO connectors_calllog
        (connection_id, method, operation, target, milliseconds, outcome, detail, at)
    SELECT u.connection_id, u.method, u.operation, u.target, u.milliseconds, u.outcome, u.detail,
        statement_timestamp() - u.age * interval '1 second'
    FROM loose, unnest(
        %(connections)s::bigint[], %(methods)s::text[], %(operations)s::text[],
        %(targets)s::text[], %(milliseconds)s::int[], %(outcomes)s::text[], %(details)s::text[],
        %(ages)s::float8[]
    ) AS u (connection_id, method, operation, target, milliseconds, outcome, detail, age)
)
UPDATE connectors_connection SET
    last_ok_at = CASE WHEN %(ok)s THEN statement_timestamp() ELSE last_ok_at END,
    last_error_at = CASE WHEN %(ok)s THEN last_error_at ELSE statement_timestamp() END,
    last_error = CASE WHEN %(ok)s THEN last_error ELSE %(detail)s END,
    failures_in_a_row = CASE WHEN %(ok)s THEN 0 ELSE failures_in_a_row + 1 END,
    open_until = CASE
        WHEN %(ok)s OR failures_in_a_row + 1 < %(failures)s THEN NULL
        ELSE statement_timestamp() + interval '1 second' * least(
            %(pause_max)s, %(pause)s * 2 ^ least(20, failures_in_a_row + 1 - %(failures)s)) END
WHERE id = ANY(%(telling)s::bigint[]) AND CASE WHEN %(ok)s
    THEN last_ok_at IS NULL OR last_ok_at < statement_timestamp() - %(rest)s * interval '1 second'
         OR last_error_at >= last_ok_at OR failures_in_a_row > 0
    ELSE true END
"""

_PRUNE = """
DELETE FROM connectors_calllog WHERE id IN (
    SELECT old.id FROM connectors_connection, LATERAL (
        SELECT id FROM connectors_calllog WHERE connection_id = connectors_connection.id
        ORDER BY id DESC OFFSET %s LIMIT 10000) AS old)
"""


@dataclass(slots=True, eq=False)
class CallRecord:
    """One call: what it was, and, once it has ended, how; `heard_at` is by `time.monotonic()`.

    One of many that look over a connection at once does not count for its health: another does.
    """

    connection: Connection
    method: str
    operation: str
    target: Target
    seconds: float = 0.0
    outcome: CallOutcome = CallOutcome.OK
    detail: str = ""
    tells: bool = True
    counts: bool = True
    heard_at: float | None = None

    def ended(self, outcome: CallOutcome, detail: str, *, tells: bool = True) -> None:
        """How it ended; a refusal is an answer, and says nothing of the connection's health."""
        self.outcome, self.detail, self.tells = outcome, detail, tells

    @property
    def is_well(self) -> bool:
        return self.outcome in {CallOutcome.OK, CallOutcome.APPLIED}


class Log:
    """The lines of many calls, gathered for a moment; one that did not go well waits for nobody,
    for the circuit breaker counts it.
    """

    def __init__(self) -> None:
        self._lines: list[CallRecord] = []
        self._since = 0.0

    def add(self, lines: Iterable[CallRecord]) -> None:
        now = time.monotonic()
        if not self._lines:
            self._since = now
        for line in lines:
            line.heard_at = now
            self._lines.append(line)
        is_well = all(line.is_well for line in self._lines)
        if not is_well or now - self._since > GATHER_SECONDS:
            self.write()

    def write(self) -> None:
        lines, self._lines = self._lines, []
        write(lines)


def write(lines: Sequence[CallRecord]) -> None:
    """Add lines, and what they say of the health of their connections. A database that is away
    costs the lines, never the answers that they tell of.

    Lines of calls that went well are written together; each that did not is counted by itself, for
    the circuit breaker counts failures in a row.
    """
    if not lines:
        return
    try:
        with database.wrap_database_errors:
            cursor = Cursor(plain_connection())  # prepares the statement, as Django's never do
            for ok, several in groupby(lines, key=lambda line: line.is_well):
                for some in [list(several)] if ok else ([one] for one in several):
                    cursor.execute(_WRITE, _facts(some, ok=ok))
    except (DatabaseError, InterfaceError) as failure:
        logger.warning("%d calls were not logged: %s", len(lines), failure)


def _facts(lines: Sequence[CallRecord], *, ok: bool) -> dict[str, Any]:
    now = time.monotonic()
    return {
        "connections": array(line.connection.pk for line in lines),
        "methods": array(line.method for line in lines),
        "operations": array(line.operation[:80] for line in lines),
        "targets": array(f"{line.target.type}/{line.target.id}"[:200] for line in lines),
        "milliseconds": array(round(line.seconds * 1000) for line in lines),
        "outcomes": array(line.outcome.value for line in lines),
        "details": array(_short(line.detail) for line in lines),
        "ages": array(0.0 if line.heard_at is None else now - line.heard_at for line in lines),
        "ok": ok,
        "detail": _short(lines[0].detail),
        "telling": array({line.connection.pk for line in lines if line.tells and line.counts}),
        "rest": HEALTH_SECONDS,
        "failures": FAILURES_MAX,
        "pause": PAUSE_SECONDS,
        "pause_max": PAUSE_SECONDS_MAX,
    }


def _short(detail: str) -> str:
    return detail[:400].replace("\x00", "")


def prune() -> int:
    """Drop all but the newest lines of each connection; returns how many went."""
    with database.cursor() as cursor:
        cursor.execute(_PRUNE, [CALLS_KEPT])
        return int(cursor.rowcount)


# The circuit breaker: a system that is down is left alone for a while, and tried with one call.
#
# What is known stands on the connection's row and is written with each line of the log, so that all
# workers share it. After FAILURES_MAX failures in a row the circuit is open for a pause that
# doubles; when that is over, one caller may try (whoever moves `open_until` on first), and its
# success closes the circuit. A refusal is an answer, and no failure.
#
# It also bounds how many calls go over a connection at once, so that one slow system cannot hold
# every worker.

FAILURES_MAX = 5
PAUSE_SECONDS = 15
PAUSE_SECONDS_MAX = 600
TRIAL_SECONDS = 65
"""How long a trial call keeps others away; longer than any call may last."""

BUSY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Not now: why, in words for people, and when to ask again."""

    seconds: float
    reason: str


_ASK = """
UPDATE connectors_connection SET open_until = statement_timestamp() + %s * interval '1 second'
WHERE id = %s AND open_until <= statement_timestamp()
RETURNING open_until
"""

_RELEASE = """
UPDATE connectors_connection SET open_until = statement_timestamp()
WHERE id = %s AND open_until = %s
"""

_LEFT = """
SELECT extract(epoch FROM open_until - statement_timestamp())::float, open_until,
    failures_in_a_row, concurrency
FROM connectors_connection WHERE id = %s
"""


def may_call(connection: Connection, *, under_way: int = 0) -> RetryLater | None:
    """None if a call may be made now. Asking is taking: after a pause only one gets the trial call,
    and `connection.open_until` says until when it keeps others away.

    `under_way` is how many calls over this connection the asker knows of.
    """
    with database.cursor() as cursor:
        cursor.execute(_LEFT, [connection.pk])
        row = cursor.fetchone()
        if row is None:
            return RetryLater(PAUSE_SECONDS, "The connection is gone.")
        left, until, failures, concurrency = row
        if under_way >= concurrency:
            return RetryLater(
                BUSY_SECONDS, f"{under_way} calls are under way over {connection.name}."
            )
        if left is None:
            return None
        if left <= 0:
            cursor.execute(_ASK, [TRIAL_SECONDS, connection.pk])
            if taken := cursor.fetchone():
                (connection.open_until,) = taken
                return None
            why = f"{connection.name} failed {failures} times in a row; it is tried again just now."
            return RetryLater(PAUSE_SECONDS, why)
    return RetryLater(left, f"{connection.name} {pause_words(failures, until)}.")


def pause_words(failures: int, until: datetime) -> str:
    """`failed 8 times in a row; it is left alone until 01:52 UTC`, of an open circuit."""
    when = until.astimezone(UTC)
    return f"failed {failures} times in a row; it is left alone until {when:%H:%M} UTC"


def release_trial(connection: Connection) -> None:
    """Let the next caller have the trial that was taken with `may_call`, if it was: no call is made
    after all, and the system would be left alone for as long as one may last.
    """
    if connection.open_until is None:
        return
    with database.cursor() as cursor:
        cursor.execute(_RELEASE, [connection.pk, connection.open_until])
