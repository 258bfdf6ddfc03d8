"""/healthz, /readyz, /statusz and /metrics, served at the edge so that they answer when Django is
busy.

Whom a balancer asks is asked about itself alone. Were one silent loop of the desk to make each web
process unready, it would take them all away, and with them all that still went.
"""

import asyncio
import hmac
import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import redis.asyncio
from django.conf import settings
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    generate_latest,
    multiprocess,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from psycopg import Error as DatabaseError
from psycopg import OperationalError
from psycopg_pool import PoolTimeout

from approvals.grants import RECORDED
from approvals.policy import PolicyUnreadable
from config import celery, pooling
from edge import pools, sockets
from edge.asgi import Receive, Scope, Send, route
from recovery.prometheus import DeskMetrics
from workspaces import encryption, periodic
from workspaces.models import opened_masking_key

logger = logging.getLogger(__name__)

UNREADABLE = """
    SELECT count(*) FROM approvals_policyversion WHERE active AND starts_with(unmet ->> 0, %s)
"""
HELD = """
    SELECT count(*) FROM approvals_pause
    WHERE kind = 'workspace' AND paused_by_id IS NULL AND lifted_at IS NULL
"""
UNPROVEN = f"""
    SELECT count(*) FROM approvals_approval
    WHERE state = 'granted' AND expires_at > now() AND calls <> '[]' AND NOT ({RECORDED})
"""  # noqa: S608 - our own words; an erased one has no calls, and lets nothing pass
SEALED = "SELECT masking_key FROM workspaces_workspace ORDER BY id DESC LIMIT 20"
NONE_OPENS = (
    "no key of AMENDS_SECRET_KEYS opens what the desk has sealed: this process was started with"
    " other keys than those of the last `manage.py rotate_secrets`"
)
CHECK_SECONDS_MAX = 2.0
NO_ANSWER = f"no answer in {CHECK_SECONDS_MAX:g} seconds; the log says what kept this process"
LOOPBACK = ("127.0.0.1", "::1")
WORKER = "worker"


class BrokerMetrics(Collector):
    """How many hints wait in Redis or Valkey; of another broker its own exporter tells."""

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Nothing, so that registering it asks no broker."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        url = settings.BROKER_URL.replace("redis+socket://", "unix://", 1)  # Celery's name of it
        if not url.startswith(("redis", "unix")):
            return
        up = GaugeMetricFamily("amends_broker_up", "1 if the broker answered.")
        names = celery.queues()
        try:
            with redis.Redis.from_url(url, **sockets.redis(url, CHECK_SECONDS_MAX)) as client:
                lengths: list[Any] = [client.llen(name) for name in names]
        except (redis.RedisError, OSError):
            lengths = []
        up.add_metric([], float(bool(lengths)))
        yield up
        waiting = GaugeMetricFamily(
            "amends_broker_messages", "Hints that wait for a worker.", labels=("queue",)
        )
        for name, length in zip(names, lengths, strict=False):
            waiting.add_metric([name], float(length))
        yield waiting


desk_metrics, broker_metrics = DeskMetrics(), BrokerMetrics()
REGISTRY.register(desk_metrics)
REGISTRY.register(broker_metrics)

BEATS = """
    SELECT name, extract(epoch FROM clock_timestamp() - beat_at)::float8, every_seconds, last_error
    FROM workspaces_heartbeat
"""


async def healthz(scope: Scope, receive: Receive, send: Send) -> None:
    """Alive: the loop turns. It looks at nothing else, or a dead database would restart us."""
    await answer(send, 200, b"ok\n", b"text/plain; charset=utf-8")


async def readyz(scope: Scope, receive: Receive, send: Send) -> None:
    """Ready: 200 if this process can serve, which takes the database, a key for what is sealed in
    it, and no more; else 503. The broker is none of it: decisions are committed without one, and
    the sweeper finds them.
    """
    found = {"database": await database()}
    found["keys"] = "" if found["database"] else await keys()
    await report(send, "ready", found)


async def statusz(scope: Scope, receive: Receive, send: Send) -> None:
    """The desk as a whole: 200 if the database, the broker and every process and loop gave a sign
    of life lately, else 503; what is wrong in words.
    """
    *checks, notices = await asyncio.gather(loops(), broker(), noticed())
    await report(send, "well", {k: fault for part in checks for k, fault in part.items()}, notices)


async def report(
    send: Send, word: str, found: dict[str, str], notices: dict[str, str] | None = None
) -> None:
    """`found` has what is wrong by name, or nothing."""
    is_well = not any(found.values())
    body = {word: is_well, "checks": {name: fault or "ok" for name, fault in found.items()}}
    body |= {"notices": notices} if notices else {}
    await answer(send, 200 if is_well else 503, json.dumps(body).encode(), b"application/json")


async def metrics(scope: Scope, receive: Receive, send: Send) -> None:
    """For Prometheus: with AMENDS_METRICS_TOKEN as bearer; if there is none, from this machine."""
    if not may_read_metrics(scope):
        await answer(send, 403, b"A token is needed.\n", b"text/plain; charset=utf-8")
        return
    body = await asyncio.to_thread(figures)
    await answer(send, 200, body, CONTENT_TYPE_LATEST.encode())


def figures() -> bytes:
    """What is counted, in this process or, where there are several behind the socket, in all."""
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if not folder:
        return generate_latest(REGISTRY)
    # Who was killed cannot say that nobody waits there any more.
    for file in Path(folder).glob("gauge_live*_*.db"):
        pid = int(file.stem.rpartition("_")[2])
        if not is_alive(pid):
            multiprocess.mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
    registry.register(desk_metrics)
    registry.register(broker_metrics)
    return generate_latest(registry)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def may_read_metrics(scope: Scope) -> bool:
    if token := settings.AMENDS_METRICS_TOKEN:
        given = dict(scope["headers"]).get(b"authorization", b"")
        return hmac.compare_digest(given, b"Bearer " + token.encode())
    # Behind a proxy on this machine everybody comes from loopback; then only a token counts.
    proxied = any(name == b"x-forwarded-for" for name, _ in scope["headers"])
    host, _ = scope.get("client") or ("", 0)
    return host in LOOPBACK and not proxied


async def database() -> str:
    """What is wrong with the database, or nothing."""
    found = await asked("SELECT 1")
    if isinstance(found, str):
        return found
    try:
        await asyncio.to_thread(pooling.check, settings.DATABASE_URL)
    except (pooling.UnfitDatabase, DatabaseError) as wrong:
        return str(wrong) if isinstance(wrong, pooling.UnfitDatabase) else type(wrong).__name__
    return ""


_said: dict[str, str] = {}


async def keys() -> str:
    """Why no agent can be served by the keys of this process, or nothing; the log says it once.

    One workspace whose key is lost takes no process away: only if none of the newest opens.
    """
    found = await asked(SEALED)
    rows = [] if isinstance(found, str) else found
    fault = "" if not rows or any(_opens(bytes(sealed)) for (sealed,) in rows) else NONE_OPENS
    if fault and _said.get("keys") != fault:
        logger.error("not ready: %s", fault)
    _said["keys"] = fault
    return fault


def _opens(sealed: bytes) -> bool:
    try:
        return bool(opened_masking_key(sealed))
    except encryption.CannotOpen:
        return False


async def loops() -> dict[str, str]:
    """Does the database answer, and did each loop go round lately?"""
    found = await asked(BEATS)
    if isinstance(found, str):
        return {"database": found}
    beaten = {name: (age, every, error) for name, age, every, error in found}
    return {"database": ""} | {name: fault(beaten.get(name)) for name in expected()}


async def asked(question: str) -> "list[tuple[Any, ...]] | str":
    """The rows, or what went wrong."""
    try:
        async with asyncio.timeout(CHECK_SECONDS_MAX), pools.pool().connection() as connection:
            return await (await connection.execute(question)).fetchall()
    except (DatabaseError, PoolTimeout, TimeoutError, pools.Closed) as error:
        if isinstance(error, OperationalError):
            await pools.pool().check()
        return NO_ANSWER if isinstance(error, TimeoutError) else type(error).__name__


async def noticed() -> dict[str, str]:
    """What concerns a part of the desk, which is well all the same. Strangers read it, so it has no
    names: policies that this version refuses, as they were last looked at; workspaces that the desk
    itself holds, since their log went back; approvals on whose row somebody wrote a yes; of several
    processes of a kind those that fell silent.
    """
    try:
        async with asyncio.timeout(CHECK_SECONDS_MAX), pools.pool().connection() as connection:
            rows = await (await connection.execute(UNREADABLE, [PolicyUnreadable.TOLD])).fetchall()
            held = await (await connection.execute(HELD)).fetchall()
            unproven = await (await connection.execute(UNPROVEN)).fetchall()
            lives = await (await connection.execute(BEATS)).fetchall()
    except (DatabaseError, PoolTimeout, TimeoutError, pools.Closed):
        return {}  # `database` says so
    found = {}
    if count := rows[0][0]:
        found["policies"] = f"{count} cannot be read by this version"
    if count := held[0][0]:
        found["ledger"] = f"{count} workspaces are held: their log went back, or was restored"
    if count := unproven[0][0]:
        found["approvals"] = f"{count} are granted, and the ledger does not tell by whom"
    if late := backup_fault({name: age for name, age, *_ in lives}.get(periodic.BACKUP)):
        found["backup"] = late
    for kind in (WORKER, periodic.SCHEDULER, periodic.SWEEPER):
        faults = [fault(row) for name, *row in lives if name.startswith(kind + periodic.OF)]
        if silent := sum(map(bool, faults)):
            found[kind] = f"{silent} of {len(faults)} give no sign of life"
    return found


def backup_fault(age: float | None) -> str:
    """What is wrong with the backups of a desk that makes some, or nothing."""
    if age is None:
        return "none was made yet" if settings.AMENDS_BACKUP_RECIPIENTS else ""
    is_late = age > periodic.LATE_HOURS * 3600
    return f"the last good one is {age / 3600:.0f} hours old" if is_late else ""


def expected() -> list[str]:
    """The processes that must live, and each of their jobs."""
    jobs = [job.name for job in periodic.jobs()]
    return [WORKER, periodic.SCHEDULER, periodic.SWEEPER, *jobs]


def fault(beat: Sequence[Any] | None) -> str:
    if beat is None:
        return "never ran"
    age, every_seconds, error = beat
    if age > periodic.patience(every_seconds):
        return f"silent for {age:.0f} s"
    return f"failed: {error}" if error else ""


async def broker() -> dict[str, str]:
    """What is wrong with Celery's broker and, where it is another server, with REDIS_URL's."""
    if not settings.OWN_BROKER:
        return {"broker": await redis_fault()}
    fault = await asyncio.to_thread(celery.broker_fault, CHECK_SECONDS_MAX)
    return {"broker": fault or "", "cache": await redis_fault()}


async def redis_fault() -> str:
    url = settings.REDIS_URL
    client: Any = redis.asyncio.Redis.from_url(url, **sockets.redis(url, CHECK_SECONDS_MAX))
    try:
        async with asyncio.timeout(CHECK_SECONDS_MAX):
            await client.ping()
    except (redis.RedisError, OSError, TimeoutError) as error:
        return type(error).__name__
    finally:
        await client.aclose()
    return ""


async def answer(send: Send, status: int, body: bytes, content_type: bytes) -> None:
    headers = [(b"content-type", content_type), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


routes = [
    route("GET", "/healthz", healthz),
    route("GET", "/readyz", readyz),
    route("GET", "/statusz", statusz),
    route("GET", "/metrics", metrics),
]
