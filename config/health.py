"""/healthz, /readyz and /metrics, served at the door so that they answer when Django is busy."""

import asyncio
import hmac
import json
from typing import Any

import redis.asyncio
from django.conf import settings
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from psycopg import Error as DatabaseError
from psycopg import OperationalError
from psycopg_pool import PoolTimeout

from approvals.policy import Unreadable
from workspaces import beats, hot, periodic
from workspaces.hot import Receive, Scope, Send, route

UNREADABLE = """
    SELECT count(*) FROM approvals_policyversion WHERE active AND starts_with(unmet ->> 0, %s)
"""
CHECK_SECONDS_MAX = 2.0
LOOPBACK = ("127.0.0.1", "::1")
WORKER = "worker"

BEATS = """
    SELECT name, extract(epoch FROM clock_timestamp() - beat_at)::float8, every_seconds, last_error
    FROM workspaces_heartbeat
"""


async def healthz(scope: Scope, receive: Receive, send: Send) -> None:
    """Alive: the loop turns. It looks at nothing else, or a dead database would restart us."""
    await answer(send, 200, b"ok\n", b"text/plain; charset=utf-8")


async def readyz(scope: Scope, receive: Receive, send: Send) -> None:
    """Ready: 200 if database, broker and every loop answer, else 503; what is wrong in words."""
    *checks, notices = await asyncio.gather(database(), broker(), unreadable())
    found = {name: fault for part in checks for name, fault in part.items()}
    faults = {name: fault for name, fault in found.items() if fault}
    body = {"ready": not faults, "checks": {name: fault or "ok" for name, fault in found.items()}}
    body |= {"notices": notices} if notices else {}
    await answer(send, 503 if faults else 200, json.dumps(body).encode(), b"application/json")


async def metrics(scope: Scope, receive: Receive, send: Send) -> None:
    """For Prometheus: with AMENDS_METRICS_TOKEN as bearer; if there is none, from this machine."""
    if not may_read_metrics(scope):
        await answer(send, 403, b"A token is needed.\n", b"text/plain; charset=utf-8")
        return
    body = await asyncio.to_thread(generate_latest)
    await answer(send, 200, body, CONTENT_TYPE_LATEST.encode())


def may_read_metrics(scope: Scope) -> bool:
    if token := settings.AMENDS_METRICS_TOKEN:
        given = dict(scope["headers"]).get(b"authorization", b"")
        return hmac.compare_digest(given, b"Bearer " + token.encode())
    # Behind a proxy on this machine everybody comes from loopback; then only a token counts.
    proxied = any(name == b"x-forwarded-for" for name, _ in scope["headers"])
    host, _ = scope.get("client") or ("", 0)
    return host in LOOPBACK and not proxied


async def database() -> dict[str, str]:
    """Does the database answer, and did each loop go round lately?"""
    try:
        async with asyncio.timeout(CHECK_SECONDS_MAX), hot.pool().connection() as connection:
            rows = await (await connection.execute(BEATS)).fetchall()
    except (DatabaseError, PoolTimeout, TimeoutError, hot.Closed) as error:
        if isinstance(error, OperationalError):
            await hot.pool().check()
        return {"database": type(error).__name__}
    beaten = {name: (age, every, error) for name, age, every, error in rows}
    return {"database": ""} | {name: fault(beaten.get(name)) for name in expected()}


async def unreadable() -> dict[str, str]:
    """How many workspaces have a policy that this version refuses, as they were last looked at. The
    desk is ready for all others, so this is a notice. Strangers read it: `check` says which.
    """
    try:
        async with asyncio.timeout(CHECK_SECONDS_MAX), hot.pool().connection() as connection:
            rows = await (await connection.execute(UNREADABLE, [Unreadable.TOLD])).fetchall()
    except (DatabaseError, PoolTimeout, TimeoutError, hot.Closed):
        return {}  # `database` says so
    count = rows[0][0]
    return {"policies": f"{count} cannot be read by this version"} if count else {}


def expected() -> list[str]:
    """The processes that must live, and each of their jobs."""
    jobs = [job.name for job in periodic.jobs()]
    return [WORKER, periodic.SCHEDULER, periodic.SWEEPER, *jobs]


def fault(beat: tuple[float, float, str] | None) -> str:
    if beat is None:
        return "never ran"
    age, every_seconds, error = beat
    if age > beats.patience(every_seconds):
        return f"silent for {age:.0f} s"
    return f"failed: {error}" if error else ""


async def broker() -> dict[str, str]:
    client: Any = redis.asyncio.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=CHECK_SECONDS_MAX,
        socket_connect_timeout=CHECK_SECONDS_MAX,
    )
    try:
        async with asyncio.timeout(CHECK_SECONDS_MAX):
            await client.ping()
    except (redis.RedisError, OSError, TimeoutError) as error:
        return {"broker": type(error).__name__}
    finally:
        await client.aclose()
    return {"broker": ""}


async def answer(send: Send, status: int, body: bytes, content_type: bytes) -> None:
    headers = [(b"content-type", content_type), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


routes = [
    route("GET", "/healthz", healthz),
    route("GET", "/readyz", readyz),
    route("GET", "/metrics", metrics),
]
