"""Whether an inbox has news: something was asked or decided since, or this person has answered; and
what the news is, where it can be said in one statement.

Ids and the time of asking rise together, so the newest approval speaks for all.

While people decide, every open inbox has news at every question, so the usual one is answered here
as approvals/views/lists.py would, much quicker; a test compares the two. A search, another view,
and whether a second person still counts where one has answered, are left to Django.
"""

from typing import Any

from psycopg import AsyncConnection

from approvals.deciders import ASKS, asks
from approvals.views.lists import COUNT_MAX
from workspaces import look
from workspaces.hot import PassOn
from workspaces.news import LEFT_MAX, Asked, heard_until, route_of_news

NEWS = """
    coalesce((SELECT a.asked_at > %(heard)s FROM approvals_approval a
        WHERE a.workspace_id = w.id ORDER BY a.id DESC LIMIT 1), false)
    OR EXISTS (SELECT FROM approvals_approval a
        WHERE a.workspace_id = w.id AND a.decided_at > %(heard)s)
    OR EXISTS (SELECT FROM approvals_decision d WHERE d.person_id = u.id AND d.at > %(heard)s)"""

# `mine` is asked anew at each mention, so that every count stops at its limit.
TOLD = f"""
WITH mine AS NOT MATERIALIZED (SELECT approvals_approval.id, approvals_approval.asked_at
    FROM approvals_approval WHERE approvals_approval.workspace_id = %s AND {ASKS}),
gone AS (SELECT a.id, a.decided_at FROM approvals_approval a
    WHERE a.workspace_id = %s AND a.decided_at > %s ORDER BY a.decided_at LIMIT %s)
SELECT
    EXISTS (SELECT FROM mine WHERE EXISTS (
        SELECT FROM approvals_decision d WHERE d.approval_id = mine.id)),
    (SELECT count(*) FROM (SELECT FROM mine WHERE mine.asked_at > %s LIMIT %s) new),
    (SELECT count(*) FROM (SELECT FROM mine LIMIT %s) counted),
    ARRAY(SELECT id FROM gone), (SELECT max(decided_at) FROM gone),
    ARRAY(SELECT d.approval_id FROM approvals_decision d
        JOIN approvals_approval a ON a.id = d.approval_id AND a.workspace_id = %s
        WHERE d.person_id = %s AND d.at > %s LIMIT %s),
    clock_timestamp()"""  # noqa: S608 - our own text


async def told(connection: AsyncConnection[Any], asked: Asked) -> dict[str, Any]:
    """The answer to a page that shows what waits for this person."""
    if asked.said.keys() & {"q", "view"}:
        raise PassOn
    here, heard, counted = asked.workspace, asked.heard, COUNT_MAX + 1
    given = [
        here, *asks(asked.person), here, heard, LEFT_MAX, asked.since, counted, counted,
        here, asked.person, heard, LEFT_MAX,
    ]  # fmt: skip
    [row] = await (await connection.execute(TOLD, given)).fetchall()
    partly_answered, new, mine, gone, last, answered, now = row
    if partly_answered:
        raise PassOn
    return {
        "new": new,
        "heard": heard_until(now, last if len(gone) == LEFT_MAX else None),
        "counts": {"approvals": look.count(mine, COUNT_MAX)},
        "gone": sorted({str(pk) for pk in [*gone, *answered]}),
    }


INBOX = r"/w/(?P<workspace>[-a-zA-Z0-9_]{1,80})/approvals/fresh/"
routes = [route_of_news(INBOX, NEWS, told)]
