"""Whether an inbox has news: something was asked or decided since, or this person has answered; and
what the news is, where it can be said in one statement.

Ids and the time of asking rise together, so the newest approval speaks for all.

While people decide, every open inbox has news at every question, so the usual one is answered here
as approvals/views/lists.py would, much quicker; a test compares the two. A search, another view,
and whether a second person still counts where one has answered, are left to Django.
"""

from typing import Any

from psycopg import AsyncConnection

from approvals import awaiting
from approvals.models import ApprovalState
from edge.asgi import PassOn
from workspaces import formatting
from workspaces.news import LEFT_MAX, NewsRequest, heard_until, route_of_news
from workspaces.pages import COUNT_MAX
from workspaces.templatetags.formatting import state_word

ANSWERED = "You have answered"
WENT = {one: state_word("granted" if one == "used" else one) for one in ApprovalState.values}
"""What the line of an approval says that is no longer in the list, by its state."""

NEWS = """
    coalesce((SELECT a.asked_at > %(heard)s FROM approvals_approval a
        WHERE a.workspace_id = w.id ORDER BY a.id DESC LIMIT 1), false)
    OR EXISTS (SELECT FROM approvals_approval a
        WHERE a.workspace_id = w.id AND a.decided_at > %(heard)s)
    OR EXISTS (SELECT FROM approvals_decision d WHERE d.person_id = u.id AND d.at > %(heard)s)"""

AWAITING = f"""
    FROM approvals_approval a
    WHERE a.workspace_id = %(workspace)s
        AND {awaiting.asks("a", "%(person)s", awaiting.looked_up("%(person)s"))}"""

TOLD = f"""
WITH mine AS MATERIALIZED (
    SELECT a.asked_at > %(since)s AS is_new,
        EXISTS (SELECT FROM approvals_decision d WHERE d.approval_id = a.id) AS is_begun
    {AWAITING} LIMIT %(count_max)s),
gone AS (SELECT a.id, a.state, a.decided_at FROM approvals_approval a
    WHERE a.workspace_id = %(workspace)s AND a.decided_at > %(heard)s
    ORDER BY a.decided_at LIMIT %(left_max)s)
SELECT
    (SELECT coalesce(bool_or(is_begun), false) FROM mine),
    CASE WHEN (SELECT count(*) FROM mine) < %(count_max)s
        THEN (SELECT count(*) FROM mine WHERE is_new)
        ELSE (SELECT count(*) FROM (
            SELECT {AWAITING} AND a.asked_at > %(since)s LIMIT %(count_max)s) new) END,
    (SELECT count(*) FROM mine),
    ARRAY(SELECT id FROM gone), ARRAY(SELECT state FROM gone), (SELECT max(decided_at) FROM gone),
    ARRAY(SELECT d.approval_id FROM approvals_decision d
        JOIN approvals_approval a ON a.id = d.approval_id AND a.workspace_id = %(workspace)s
        WHERE d.person_id = %(person)s AND d.at > %(heard)s LIMIT %(left_max)s),
    clock_timestamp()"""  # noqa: S608 - our own text


async def answered(connection: AsyncConnection[Any], asked: NewsRequest) -> dict[str, Any]:
    """The answer to a page that shows what waits for this person."""
    if asked.params.keys() & {"q", "view"}:
        raise PassOn
    given = {"workspace": asked.workspace, "person": asked.person, "since": asked.since,
             "heard": asked.heard, "count_max": COUNT_MAX + 1, "left_max": LEFT_MAX}  # fmt: skip
    [row] = await (await connection.execute(TOLD, given)).fetchall()
    partly_answered, new, mine, gone, states, last, answered, now = row
    if partly_answered:
        raise PassOn
    return {
        "new": new,
        "heard": heard_until(now, last if len(gone) == LEFT_MAX else None),
        "counts": {"approvals": formatting.count(mine, COUNT_MAX)},
        "gone": dict.fromkeys(map(str, answered), ANSWERED)
        | {str(pk): WENT[state] for pk, state in zip(gone, states, strict=True)},
    }


INBOX = r"/w/(?P<workspace>[-a-zA-Z0-9_]{1,80})/approvals/fresh/"
routes = [route_of_news(INBOX, NEWS, answered)]
