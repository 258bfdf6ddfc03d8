"""News at the edge: whether there is any for this person, asked in one statement.

Every open console asks every two seconds, and nearly always there is none. That answer is given
here, without Django, and so is news that a floor can tell in one statement. Everything else (no
session, a changed one, no right, a search) Django answers as it always did.

Of a session nothing is kept but what its signed text says, and it counts only as long as the
database has that very text: the statement names it, and asks at the same time whether the person is
active and in a team that may view the workspace. So a log-out, a new password, a deactivated person
or a lost right shows at the next question.

Whoever was told once says so: an answer carries `heard`, the page sends it with the next question,
and there is no news until more happens, though what is new may still wait to be read.
"""

import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.db.models import QuerySet
from django.http.cookie import parse_cookie
from django.utils.crypto import constant_time_compare
from django.utils.dateparse import parse_datetime

from edge import pools
from edge.asgi import PassOn, Receive, Route, Scope, Send, route
from workspaces import clock
from workspaces.models import User

SESSIONS_MAX = 5_000
COOKIE_BYTES_MAX = 8_192
# What was written before an answer was made may be committed after it; that is told with the next.
HEARD_AGAIN = timedelta(seconds=2)
LEFT_MAX = 200

STORED = """
SELECT session_data FROM django_session
WHERE session_key = %s AND expire_date > clock_timestamp()"""

# Of several questions at once: one row for each whose person may look, with their password's hash
# and whether there is news. OFFSET 0 has each looked up by its own keys, however few rows there
# were when PostgreSQL planned this.
ASKED = """
SELECT asked.place, told.*
FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::text[], %s::timestamptz[]) WITH ORDINALITY
    AS asked (session, stored, person, workspace, heard, place)
CROSS JOIN LATERAL (
    SELECT w.id, u.password, {news}
    FROM django_session s
    JOIN workspaces_user u ON u.id = asked.person AND u.is_active
    JOIN workspaces_workspace w ON w.slug = asked.workspace
    WHERE s.session_key = asked.session AND s.session_data = asked.stored
        AND s.expire_date > clock_timestamp()
        AND EXISTS (SELECT FROM workspaces_workspacegrouppermission g
            JOIN workspaces_user_groups m ON m.group_id = g.group_id AND m.user_id = u.id
            JOIN auth_permission p ON p.id = g.permission_id AND p.codename = 'view'
            JOIN django_content_type t
                ON t.id = p.content_type_id AND t.app_label = 'workspaces'
            WHERE g.content_object_id = w.id)
    OFFSET 0) told"""


@dataclass(frozen=True, slots=True)
class Session:
    """What a session's signed text says. `proof` is made of the password that was given then."""

    key: str
    stored: str
    person: int
    proof: str


_sessions: OrderedDict[str, Session] = OrderedDict()


class Question(NamedTuple):
    """Whether there is news since `heard`, for whoever has the session."""

    session: str
    stored: str
    person: int
    workspace: str
    heard: datetime


@dataclass(frozen=True, slots=True)
class NewsRequest:
    """What a page asks: it was drawn at `since` and has been told up to `heard`."""

    workspace: int
    person: int
    since: datetime
    heard: datetime
    params: dict[str, list[str]]


NewsAnswer = Callable[[NewsRequest], Awaitable[dict[str, Any]]]


async def djangos(_asked: NewsRequest) -> dict[str, Any]:
    """What is new is told by Django."""
    raise PassOn


def route_of_news(path: str, news: str, answered: NewsAnswer = djangos) -> Route:
    """`news` is SQL that says, of the workspace `w` and the person `u`, whether anything happened
    after the moment `asked.heard`; `answered` says what, or passes on.
    """
    statement = ASKED.format(news=news)

    async def look_up(asked: list[Question]) -> dict[Question, list[Any]]:
        columns = [list(column) for column in zip(*asked, strict=True)]
        async with pools.AutocommitConnection() as connection:
            rows = await (await connection.execute(statement, columns)).fetchall()
        return {asked[place - 1]: found for place, *found in rows}

    questions = pools.Together(look_up)

    async def ask(scope: Scope, _receive: Receive, send: Send) -> None:
        params = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        since = moment(params.get("since", [""])[-1])
        heard = moment(params["heard"][-1]) if "heard" in params else since
        key = _cookie(scope)
        if since is None or heard is None:
            raise PassOn
        session = _sessions.get(key) or await _opened(key)
        slug = scope["path_params"]["workspace"]
        # What takes long in one workspace holds up no other's pages.
        row = await questions.ask(Question(key, session.stored, session.person, slug, heard), slug)
        if row is None or not _proves(row[1], session.proof):
            _sessions.pop(key, None)
            raise PassOn
        here, _, is_news = row
        asked = NewsRequest(here, session.person, since, heard, params)
        found = await answered(asked) if is_news else None
        await _answer(send, found)

    return route("GET", path, ask)


async def _answer(send: Send, found: dict[str, Any] | None) -> None:
    headers = [(b"cache-control", b"no-store"), (b"vary", b"Cookie")]
    body = b"" if found is None else json.dumps(found).encode()
    if found is not None:
        length = str(len(body)).encode()
        headers += [(b"content-type", b"application/json"), (b"content-length", length)]
    status = 204 if found is None else 200
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def moment(text: str) -> datetime | None:
    """The date and time that a page's question names, or None if that is none. It is of UTC: there
    are offsets that PostgreSQL does not take, and one would fail the statement of all who ask.
    """
    try:
        found = parse_datetime(text.replace(" ", "+"))
        return found.astimezone(UTC) if found is not None and found.tzinfo else None
    except (ValueError, OverflowError):
        return None


def left(
    rows: QuerySet[Any], ended: str, since: datetime, *, how: str
) -> tuple[dict[str, str], str]:
    """Which rows have their time `ended` since then, each with its column that says `how`, and up
    to when that tells; the page sends this moment back. Where there are more than an answer holds,
    the next one goes on.
    """
    now = clock.now()
    found = rows.filter(**{f"{ended}__gt": since}).order_by(ended).values_list("pk", ended, how)
    gone = list(found[:LEFT_MAX])
    last = gone[-1][1] if len(gone) == LEFT_MAX else None
    return {str(pk): became for pk, _, became in gone}, heard_until(now, last)


def heard_until(now: datetime, last: datetime | None) -> str:
    """What the page sends back; `last` is the last that an answer had room for."""
    heard = now - HEARD_AGAIN
    return (heard if last is None else min(heard, last)).isoformat()


def _cookie(scope: Scope) -> str:
    sent = b"; ".join(value for name, value in scope["headers"] if name == b"cookie")
    if len(sent) > COOKIE_BYTES_MAX:
        raise PassOn
    key = parse_cookie(sent.decode("latin-1")).get(settings.SESSION_COOKIE_NAME, "")
    if not key.isalnum():
        raise PassOn
    return key


async def _opened(key: str) -> Session:
    """The session of a key that this process has not met."""
    async with pools.AutocommitConnection() as connection:
        row = await (await connection.execute(STORED, [key])).fetchone()
    if row is None:
        raise PassOn
    stored = _store().decode(row[0])
    person, proof = str(stored.get(SESSION_KEY, "")), stored.get(HASH_SESSION_KEY)
    if not person.isdecimal() or not isinstance(proof, str):
        raise PassOn
    session = Session(key, row[0], int(person), proof)
    _sessions[key] = session
    if len(_sessions) > SESSIONS_MAX:
        _sessions.popitem(last=False)
    return session


@lru_cache(maxsize=1)
def _store() -> Any:
    return import_module(settings.SESSION_ENGINE).SessionStore()


@lru_cache(maxsize=SESSIONS_MAX)
def _proves(password: str, proof: str) -> bool:
    """Whether the session was opened with this password, as Django's own middleware asks."""
    return constant_time_compare(User(password=password).get_session_auth_hash(), proof)
