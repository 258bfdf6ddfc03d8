"""Agents at the real door, in front of the real tables."""

import asyncio
import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.db import connections
from psycopg import AsyncCursor
from psycopg_pool import ConnectionPool

from approvals import inbox, signals
from approvals.gate import gathering, slow_path, waiting
from approvals.models import Approval
from config.edge import Edge, each
from edge import pools
from edge.postgresql.base import DatabaseWrapper
from ledger.agent_keys import known_keys
from ledger.parsed_events import new_id
from tests import servers

_attempts = itertools.count(1)


@pytest.fixture
def only_bells(monkeypatch):
    """Whoever waits hears by a signal or not at all: the database is asked when the first begins
    to wait, and then not for an hour. No signal is lost because the broker was slow for a moment.
    """
    monkeypatch.setattr(waiting, "ASK_EVERY_SECONDS", 3_600)
    monkeypatch.setattr(signals, "SECONDS_MAX", 60)
    signals._client.cache_clear()
    yield
    signals._client.cache_clear()


@pytest.fixture
def statements(monkeypatch):
    """Those that handlers of the door send from now on."""
    sent, execute = [], AsyncCursor.execute

    async def noting(cursor, query, *args, **options):
        if query:  # else the pool looks whether it stands
            sent.append(query)
        return await execute(cursor, query, *args, **options)

    monkeypatch.setattr(AsyncCursor, "execute", noting)
    return sent


async def no_django(scope, receive, send):
    raise AssertionError("the hot door serves this itself")


# From visit to visit and story to story the loop stays, and with it the pools of the door: a new
# server process of PostgreSQL reads the catalogue for longer than it is then asked anything.
CONNECTIONS = 4
_runner = asyncio.Runner()
_kept: dict[str, tuple[pools.Pool, pools.ThreadsPool]] = {}
_of_gate: list[ConnectionPool[Any]] = []


def lend_from_a_pool():
    """As in a web process the gate's thread has its connection from Django's pool, which all of
    them share; that of the story itself is in none.
    """
    asked = connections.settings["default"]
    pool = {"min_size": 0, "max_size": slow_path.THREADS_MAX, "timeout": 10}
    of_web = {"CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": False}
    of_web["OPTIONS"] = asked["OPTIONS"] | {"pool": pool}
    connections["default"] = lent = DatabaseWrapper(asked | of_web)
    _of_gate[:] = [lent.pool]


slow_path._threads._threads = ThreadPoolExecutor(
    slow_path.THREADS_MAX, thread_name_prefix="gate", initializer=lend_from_a_pool
)


def visit(story, connections_max=CONNECTIONS, behind=no_django):
    """Run `story(client)`, an async function, with the door open and `behind` behind it."""

    async def talk():
        known_keys.forget()
        gathering.left_alone.clear()
        door = Edge(behind)
        transport = httpx.ASGITransport(app=door)
        try:
            async with httpx.AsyncClient(
                transport=transport, base_url="http://desk", timeout=60
            ) as client:
                return await story(client)
        finally:
            await each(reversed(door._modules), "closing")

    async def with_pools_of_its_own():
        url = servers.as_runtime(settings.DATABASE_URL)
        await pools.open_pool(url, connections_max=connections_max)
        try:
            return await talk()
        finally:
            await pools.close_pool()

    if connections_max != CONNECTIONS:
        return asyncio.run(with_pools_of_its_own())
    return _runner.run(_with_kept_pools(talk), context=copy_context())


async def _with_kept_pools(talk):
    """Whatever else it leaves behind ends with it, as with a loop of its own."""
    url = servers.as_runtime(settings.DATABASE_URL)
    if url not in _kept:
        await pools.open_pool(url, connections_max=CONNECTIONS)
        _kept[url] = pools._open.pop(), pools._open_for_threads.pop()
    pool, for_threads = _kept[url]
    await pool.check()
    for_threads.check()
    others = asyncio.all_tasks()
    pools._open.append(pool)
    pools._open_for_threads.append(for_threads)
    with ThreadPoolExecutor() as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        try:
            return await talk()
        finally:
            pools._open.remove(pool)
            pools._open_for_threads.remove(for_threads)
            left = [one for one in asyncio.all_tasks() - others if not _is_the_pools(one)]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await pool.check()
            free = [one for kept in (pool, for_threads, *_of_gate) for one in list(kept._pool)]
            servers.spared["door"] = [one.info.backend_pid for one in free]


def _is_the_pools(task):
    code = task.get_coro().cr_code
    return code.co_filename.endswith("asyncio/locks.py") or "psycopg_pool" in code.co_filename


@servers.at_the_end
def _close_kept():
    for pool, for_threads in _kept.values():
        _runner.run(pool.close())
        for_threads.close()
    for of_gate in _of_gate:
        of_gate.close()
    _runner.close()


def planned(tool="crm.update", run="run_1", action="act_1", attempt=None, **more):
    """The body of `begin` as the SDK sends it."""
    data = {
        "tool": tool,
        "targets": [{"type": "contact", "id": "c7"}],
        "args": {"name": "Eve"},
        "class": "external_reversible",
        "key": "key-1",
    }
    members = {name: more.pop(name) for name in ("retry", "n", "id") if name in more}
    return {
        "id": new_id(),
        "type": "action.planned",
        "run": run,
        "action": action,
        "n": 1,
        "attempt": attempt or f"try-{next(_attempts)}",
        "data": data | {name.rstrip("_"): value for name, value in more.items()},
    } | members


class Agent:
    """One agent with its key: what it asks, and what it says of its runs."""

    def __init__(self, token):
        self.token = token

    def request(self, method, path, body=None):
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}

        async def story(client):
            return await client.request(method, path, content=content, headers=headers)

        return visit(story)

    def begin(self, body=None, *, explain=False, **planning):
        query = "?explain=1" if explain else ""
        asked = body if body is not None else planned(**planning)
        return self.request("POST", f"/api/v1/actions/begin{query}", asked)

    def send(self, event_type, run="run_1", action=None, **data):
        event = {"id": new_id(), "type": event_type, "run": run, "data": data}
        if action:
            event["action"] = action
        answer = self.request("POST", "/api/v1/events", [event])
        assert answer.json()["results"][0]["status"] == "accepted", answer.json()

    def succeeded(self, said, **more):
        body = said.json()
        data = {"fence": body["fence"], "attempt": more.pop("attempt"), **more}
        self.send("action.succeeded", body["run"], body["action"], **data)

    def failed(self, said, *, attempt, outcome):
        body = said.json()
        self.send(
            "action.failed",
            body["run"],
            body["action"],
            fence=body["fence"],
            attempt=attempt,
            outcome=outcome,
        )


def pay(trip, key, amount=40, **more):
    """A payment under that key, as an agent begins it; `args` are beside its amount."""
    args = {"amount": amount} | more.pop("args", {})
    asked = {"tool": "pay.refund", "args": args, "action": f"act-{key}", "attempt": f"try-{key}"}
    return trip.begin(key=key, **(asked | more))


def answer(*told, **more):
    """What is answered to such a payment; None where it is refused."""
    return pay(*told, **more).json().get("answer")


def grant_newest(by):
    approval = Approval.objects.latest("pk")
    inbox.grant(approval, by=by, seen=approval.digest, reason="fine")
