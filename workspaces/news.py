"""News at the hot door: whether there is any for this person, asked in one statement.

Every open console asks every two seconds, and nearly always there is none. That answer is given
here, without Django. Where there is news, or anything is not as usual (no session, a changed one,
no right), Django answers as it always did: nobody is told here what they may not see, but only that
there is nothing.

Of a session nothing is kept but what its signed text says, and it counts only as long as the
database has that very text: the statement names it, and asks at the same time whether the person is
active and in a team that may view the workspace. So a log-out, a new password, a deactivated person
or a lost right shows at the next question.
"""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.http.cookie import parse_cookie
from django.utils.crypto import constant_time_compare
from django.utils.dateparse import parse_datetime

from workspaces import hot
from workspaces.hot import PassOn, Receive, Route, Scope, Send, route
from workspaces.models import User

SESSIONS_MAX = 5_000
COOKIE_BYTES_MAX = 8_192

STORED = """
SELECT session_data FROM django_session
WHERE session_key = %(session)s AND expire_date > clock_timestamp()"""

# One row if the person may look, with their password's hash and whether there is news.
ASKED = """
SELECT u.password, {news}
FROM django_session s
JOIN workspaces_user u ON u.id = %(person)s AND u.is_active
JOIN workspaces_workspace w ON w.slug = %(workspace)s
WHERE s.session_key = %(session)s AND s.session_data = %(stored)s
    AND s.expire_date > clock_timestamp()
    AND EXISTS (SELECT FROM workspaces_workspacegrouppermission g
        JOIN workspaces_user_groups m ON m.group_id = g.group_id AND m.user_id = u.id
        JOIN auth_permission p ON p.id = g.permission_id AND p.codename = 'view'
        JOIN django_content_type t ON t.id = p.content_type_id AND t.app_label = 'workspaces'
        WHERE g.content_object_id = w.id)"""


@dataclass(frozen=True, slots=True)
class Session:
    """What a session's signed text says. `proof` is made of the password that was given then."""

    key: str
    stored: str
    person: int
    proof: str


_sessions: OrderedDict[str, Session] = OrderedDict()


def route_of_news(path: str, news: str) -> Route:
    """`news` is SQL that says, of the workspace `w` and the person `u`, whether anything happened
    after the moment %(since)s.
    """
    statement = ASKED.format(news=news)

    async def unless_news(scope: Scope, _receive: Receive, send: Send) -> None:
        since, key = _since(scope), _cookie(scope)
        async with hot.Lent() as connection:
            session = _sessions.get(key) or await _opened(connection, key)
            given = {"session": key, "stored": session.stored, "person": session.person,
                     "workspace": scope["path_params"]["workspace"], "since": since}  # fmt: skip
            row = await (await connection.execute(statement, given)).fetchone()
        if row is None or not _proves(row[0], session.proof):
            _sessions.pop(key, None)
            raise PassOn
        if row[1]:
            raise PassOn
        headers = [(b"cache-control", b"no-store"), (b"vary", b"Cookie")]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    return route("GET", path, unless_news)


def _since(scope: Scope) -> datetime:
    query = scope.get("query_string", b"").decode("latin-1")
    text = parse_qs(query).get("since", [""])[-1].replace(" ", "+")
    try:
        found = parse_datetime(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise PassOn
    return found


def _cookie(scope: Scope) -> str:
    sent = b"; ".join(value for name, value in scope["headers"] if name == b"cookie")
    if len(sent) > COOKIE_BYTES_MAX:
        raise PassOn
    key = parse_cookie(sent.decode("latin-1")).get(settings.SESSION_COOKIE_NAME, "")
    if not key.isalnum():
        raise PassOn
    return key


async def _opened(connection: Any, key: str) -> Session:
    """The session of a key that this process has not met."""
    row = await (await connection.execute(STORED, {"session": key})).fetchone()
    if row is None:
        raise PassOn
    said = _store().decode(row[0])
    person, proof = str(said.get(SESSION_KEY, "")), said.get(HASH_SESSION_KEY)
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
