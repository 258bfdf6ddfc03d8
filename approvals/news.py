"""Whether an inbox has news: something was asked or decided since, or this person has answered; and
what the news is, where it can be said in one statement.

Ids and the time of asking rise together, so the newest approval speaks for all.

While people decide, every open inbox has news at every question, so the usual one is answered here
as approvals/views/lists.py would, much quicker; a test compares the two. A search, another view,
and whether a second person still counts where one has answered, are left to Django.
"""

from datetime import datetime
from typing import Any, NamedTuple

from approvals import awaiting
from approvals.models import ApprovalState
from edge import pools
from edge.asgi import PassOn
from workspaces import formatting
from workspaces.news import LEFT_MAX, NewsRequest, heard_until, route_of_news
from workspaces.pages import COUNT_MAX
from workspaces.templatetags.formatting import state_word

ANSWERED = "You have answered"
WENT = {one: state_word("granted" if one == "used" else one) for one in ApprovalState.values}
"""What the line of an approval says that is no longer in the list, by its state."""

NEWS = """
    coalesce((SELECT a.asked_at > asked.heard FROM approvals_approval a
        WHERE a.workspace_id = w.id ORDER BY a.id DESC LIMIT 1), false)
    OR EXISTS (SELECT FROM approvals_approval a
        WHERE a.workspace_id = w.id AND a.decided_at > asked.heard)
    OR EXISTS (SELECT FROM approvals_decision d WHERE d.person_id = u.id AND d.at > asked.heard)"""

# Of the workspace $1 and the person $2, as PostgreSQL spells them: psycopg would read a statement
# as long as these anew for each question.
AWAITING = f"""
    FROM approvals_approval a
    WHERE a.workspace_id = $1
        AND {awaiting.asks("a", "$2", awaiting.looked_up("$2"))}"""

# What waits for this person is looked up once, for all their pages that ask in one moment.
TOLD = f"""
WITH mine AS MATERIALIZED (
    SELECT a.asked_at,
        EXISTS (SELECT FROM approvals_decision d WHERE d.approval_id = a.id) AS is_begun
    {AWAITING} LIMIT $5)
SELECT page.place,
    (SELECT coalesce(bool_or(is_begun), false) FROM mine),
    CASE WHEN (SELECT count(*) FROM mine) < $5
        THEN (SELECT count(*) FROM mine WHERE mine.asked_at > page.since)
        ELSE (SELECT count(*) FROM (
            SELECT {AWAITING} AND a.asked_at > page.since LIMIT $5) new) END,
    (SELECT count(*) FROM mine),
    gone.*,
    ARRAY(SELECT d.approval_id FROM approvals_decision d
        JOIN approvals_approval a ON a.id = d.approval_id AND a.workspace_id = $1
        WHERE d.person_id = $2 AND d.at > page.heard LIMIT $6),
    clock_timestamp()
FROM unnest($3::timestamptz[], $4::timestamptz[]) WITH ORDINALITY
    AS page (since, heard, place)
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(id), ARRAY[]::bigint[]), coalesce(array_agg(state), ARRAY[]::text[]),
        max(decided_at)
    FROM (SELECT a.id, a.state, a.decided_at FROM approvals_approval a
        WHERE a.workspace_id = $1 AND a.decided_at > page.heard
        ORDER BY a.decided_at LIMIT $6) one) gone"""  # noqa: S608 - our own text


class Page(NamedTuple):
    """An open inbox: whose it is, when it was drawn, and up to when it has been told."""

    workspace: int
    person: int
    since: datetime
    heard: datetime


async def _look_up(pages: list[Page]) -> dict[Page, list[Any]]:
    """Of pages of one person in one workspace."""
    since, heard = [one.since for one in pages], [one.heard for one in pages]
    given = [pages[0].workspace, pages[0].person, since, heard, COUNT_MAX + 1, LEFT_MAX]
    async with pools.AutocommitConnection() as connection:
        rows = await (await connection.execute_raw(TOLD, given)).fetchall()
    return {pages[place - 1]: found for place, *found in rows}


_told = pools.Together(_look_up)


async def answered(asked: NewsRequest) -> dict[str, Any]:
    """The answer to a page that shows what waits for this person."""
    if asked.params.keys() & {"q", "view"}:
        raise PassOn
    page = Page(asked.workspace, asked.person, asked.since, asked.heard)
    row = await _told.ask(page, (asked.workspace, asked.person))
    assert row is not None  # noqa: S101 - each page has its row
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
