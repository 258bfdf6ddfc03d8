"""The log of calls, and what it says of a connection's health."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Self

from django.db import DatabaseError
from django.db import connection as database

from connectors.breaker import FAILURES_MAX, PAUSE_SECONDS, PAUSE_SECONDS_MAX
from connectors.contract import Target
from connectors.models import Connection
from connectors.models.connections import CallOutcome

logger = logging.getLogger(__name__)

CALLS_KEPT = 500
"""Per connection; enough for a bad afternoon. The ledger has what matters longer."""

HEALTH_SECONDS = 10
"""A healthy connection's `last_ok_at` is written no more often, for all workers share its row."""

# One statement, so one round trip and one commit; that commit need not wait for the disk, because
# the line is not evidence.
_WRITE = """
WITH loose AS (SELECT set_config('synchronous_commit', 'off', true)),
line AS (
    INSERT INTO connectors_calllog
        (connection_id, method, operation, target, milliseconds, outcome, detail)
    SELECT %(connection)s, %(method)s, %(operation)s, %(target)s, %(milliseconds)s, %(outcome)s,
           %(detail)s
    FROM loose
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
WHERE id = %(connection)s AND %(tells)s AND CASE WHEN %(ok)s
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


def write(
    connection: Connection,
    *,
    method: str,
    operation: str,
    target: str,
    seconds: float,
    outcome: CallOutcome,
    detail: str,
    tells: bool = True,
) -> None:
    """Add a line; `tells` if it says something of the connection's health. A database that is away
    costs the line, never the answer that it tells of.
    """
    facts: dict[str, str | int | bool] = {
        "connection": connection.pk,
        "method": method,
        "operation": operation[:80],
        "target": target[:200],
        "milliseconds": round(seconds * 1000),
        "outcome": outcome.value,
        "detail": detail[:400].replace("\x00", ""),
        "ok": outcome in {CallOutcome.OK, CallOutcome.APPLIED},
        "rest": HEALTH_SECONDS,
        "failures": FAILURES_MAX,
        "pause": PAUSE_SECONDS,
        "pause_max": PAUSE_SECONDS_MAX,
        "tells": tells,
    }
    try:
        with database.cursor() as cursor:
            cursor.execute(_WRITE, facts)
    except DatabaseError as failure:
        logger.warning("a %s call of %s was not logged: %s", method, connection.name, failure)


def prune() -> int:
    """Drop all but the newest lines of each connection; returns how many went."""
    with database.cursor() as cursor:
        cursor.execute(_PRUNE, [CALLS_KEPT])
        return int(cursor.rowcount)


@dataclass
class Logged:
    """Writes the call's line in the log at its end, however it ends."""

    connection: Connection
    method: str
    operation: str
    target: Target
    outcome: CallOutcome = CallOutcome.OK
    detail: str = ""
    tells: bool = True

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        return self

    def ended(self, outcome: CallOutcome, detail: str, *, tells: bool = True) -> None:
        """How it ended; a refusal is an answer, and says nothing of the connection's health."""
        self.outcome, self.detail, self.tells = outcome, detail, tells

    def __exit__(self, kind: object, failure: BaseException | None, trace: object) -> None:
        if failure is not None and self.outcome == CallOutcome.OK:
            self.ended(CallOutcome.FAILED, type(failure).__name__)
        write(
            self.connection,
            method=self.method,
            operation=self.operation,
            target=f"{self.target.type}/{self.target.id}",
            seconds=time.monotonic() - self._began,
            outcome=self.outcome,
            detail=self.detail,
            tells=self.tells,
        )
