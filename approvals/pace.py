"""The pace of deciding: how many approvals were asked, how they ended and how soon, day by day.

The few figures of `approvals.health` that are shown beside others, in one statement.
"""

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from workspaces.models import Workspace

DAYS = 30
APPROVALS_MAX = 2_000  # the newest ones: enough to judge, and read in a few milliseconds

# The newest ones; granted is what people said yes to, whatever became of it.
DECIDING = """
WITH seen AS (
    SELECT was, state, asked_at, extract(epoch FROM decided_at - asked_at) AS seconds
    FROM approvals_approval WHERE workspace_id = %(workspace)s ORDER BY id DESC LIMIT %(limit)s
)
SELECT (asked_at AT TIME ZONE 'UTC')::date AS day, count(*),
    count(*) FILTER (WHERE state IN ('granted', 'used') OR was = 'granted'),
    count(*) FILTER (WHERE state = 'rejected'),
    count(*) FILTER (WHERE state = 'expired' AND was <> 'granted'),
    percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds)
        FILTER (WHERE state IN ('granted', 'used', 'rejected'))
FROM seen WHERE asked_at >= %(since)s
GROUP BY ROLLUP ((asked_at AT TIME ZONE 'UTC')::date) ORDER BY day NULLS LAST"""


@dataclass(frozen=True, slots=True)
class Pace:
    """How approvals ended that were asked on a day, or in the whole time where `day` is None."""

    day: date | None = None
    asked: int = 0
    granted: int = 0
    rejected: int = 0
    expired: int = 0
    median_seconds: float | None = None


def of(workspace: Workspace, *, days: int = DAYS) -> tuple[Pace, list[Pace]]:
    """Of the whole time, and of each of its days on which something was asked."""
    given: dict[str, Any] = {
        "workspace": workspace.pk,
        "since": timezone.now() - timedelta(days=days),
        "limit": APPROVALS_MAX,
    }
    with connection.cursor() as cursor:
        cursor.execute(DECIDING, given)
        *each, whole = [Pace(*row) for row in cursor.fetchall()] or [Pace()]
    return whole, each
