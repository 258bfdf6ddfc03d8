"""Company: which other plans a worker takes along, so that their steps share its commits.

They are of one workspace and wait for the same connectors. Only half of those that wait are taken,
for other workers want some, too. A step that was claimed before and never came to an end may be one
that takes its worker down: it goes alone, so that it takes nobody else with it again.
"""

import time
from collections.abc import Collection

from recovery.engine import queues
from recovery.engine.sql import LIVING, ask

SEATS = 32
"""Plans in one worker's hands; beyond that a commit is shared by enough."""

LOOK_SECONDS = 0.25
"""Between two looks for company while nobody was found."""

WAITING_SQL = f"""
SELECT p.id, c.concurrency FROM recovery_plan p
CROSS JOIN LATERAL (
    SELECT state, wake_at, claims, connection_id FROM recovery_step s
    WHERE s.plan_id = p.id AND {LIVING.format("s")}
    ORDER BY position LIMIT 1) s
JOIN connectors_connection c ON c.id = s.connection_id
WHERE p.state = 'running' AND NOT p.id = ANY(%s::bigint[])
    AND p.workspace_id = (SELECT workspace_id FROM recovery_plan WHERE id = %s)
    AND s.state IN ('blocked', 'ready') AND s.claims = 0 AND c.connector = %s
    AND (s.wake_at IS NULL OR s.wake_at <= clock_timestamp())
    AND c.concurrency > (SELECT count(*) FROM recovery_step h
        WHERE h.connection_id = c.id AND h.state IN ('claimed', 'intended'))
ORDER BY p.id LIMIT %s
"""  # noqa: S608


class Company:
    """The free seats beside one plan, in a worker of one queue."""

    def __init__(self, plan_id: int, queue: str, seats: int) -> None:
        self.is_closed = seats == 1 or queue in {"", queues.ENGINE}
        self._plan_id = plan_id
        self._connector = queues.connector_of(queue)
        self._seats = seats
        self._look_at = 0.0

    def newcomers(self, present: Collection[int]) -> list[int]:
        """Plans to take along now."""
        free = self._seats - len(present)
        if self.is_closed or free <= 0 or time.monotonic() < self._look_at:
            return []
        values = [list(present), self._plan_id, self._connector, 2 * free]
        waiting = ask(WAITING_SQL, values)
        half = (len(waiting) + 1) // 2
        taken = [
            pk
            for others, (pk, concurrency) in enumerate(waiting[:half], len(present))
            if others < concurrency
        ]
        if not taken:
            self._look_at = time.monotonic() + LOOK_SECONDS
        return taken
