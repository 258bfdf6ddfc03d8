"""The broker's host, or the database's, vanishes without a word: nothing is closed, nothing is
acknowledged, and at last the kernel says ETIMEDOUT. Who talked to it goes on, and comes back.
"""

import asyncio
import json
import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from django.db import connection
from psycopg.conninfo import conninfo_to_dict

from approvals import inbox, signals
from approvals.gate import waiting
from approvals.gate.waiting import Waiters
from approvals.models import Approval
from edge import pools, sockets
from tests.approvals.door import Agent as Trip
from tests.approvals.test_waiting import IRREVERSIBLE
from tests.config.test_door import ask
from tests.config.test_worker import looks_for_a_plan, soon
from tests.conftest import started
from tests.people import acme, ada, ben, leads, operators
from tests.processes import Processes
from tests.proxy import Proxy
from tests.servers import as_runtime
from workspaces import keys
from workspaces.models import Agent

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["acme", "ada", "ben", "leads", "operators"]

NOBODY_WAITS = "SELECT 1 WHERE 1 = ANY(%s) AND false"


@pytest.fixture
def broker() -> Iterator[Proxy]:
    with Proxy(urlsplit(started["valkey"].url).path) as proxy:
        yield proxy


def url(broker: Proxy) -> str:
    return f"redis://127.0.0.1:{broker.port}/0"


def listeners(channel: str = signals.CHANNEL) -> int:
    with redis.Redis.from_url(started["valkey"].url) as talk:
        return int(talk.pubsub_numsub(channel)[0][1])


def test_a_web_process_answers_while_the_brokers_host_is_gone_and_hears_it_again(
    processes: Processes, broker: Proxy, acme: Any, ada: Any, ben: Any, leads: Any
) -> None:
    agent = Agent.objects.create(workspace=acme, name="trip-agent", owner=ada)
    _, token = keys.create_key(agent, by=None, name="test")
    Trip(token).begin(**IRREVERSIBLE)
    approval = Approval.objects.get()
    web = processes.web(REDIS_URL=url(broker), BROKER_URL=url(broker))
    lost = f"{signals.CHANNEL} is not heard"
    others = listeners()  # web processes that are kept for other tests

    def waits() -> dict[str, Any]:
        path = f"{web.url}/api/v1/approvals/{approval.pk}?wait=60"
        asked = urllib.request.Request(path, headers={"authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=120) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    with ThreadPoolExecutor() as agents:
        told = agents.submit(waits)
        assert soon(lambda: listeners() == others + 1)
        broker.vanish()
        while lost not in web.said():  # until then, and after, everybody else is served
            assert ask(f"{web.url}/healthz")[0] == 200
            time.sleep(0.2)
        inbox.grant(approval, by=ben, seen=approval.digest)
        assert told.result(timeout=60)["state"] == "granted"  # the database is asked, meanwhile
        broker.come_back()
        assert soon(lambda: listeners() == others + 1)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel gives up within two seconds; nobody finds it out before by asking."""
    monkeypatch.setattr(sockets, "IDLE_SECONDS", 1)
    monkeypatch.setattr(sockets, "ASK_AGAIN_SECONDS", 1)
    monkeypatch.setattr(sockets, "UNANSWERED_MAX", 1)
    monkeypatch.setattr(sockets, "UNACKNOWLEDGED_SECONDS_MAX", 2)
    monkeypatch.setattr(waiting, "SILENT_SECONDS_MAX", 3_600)


def test_a_connection_that_timed_out_is_no_silence_that_never_ends(
    impatient: None, broker: Proxy, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """redis-py says “no message” at once, for ever, where the kernel says ETIMEDOUT."""
    settings.REDIS_URL = url(broker)
    channel = "amends:test-vanished"

    async def story() -> None:
        await pools.open_pool(as_runtime(settings.DATABASE_URL), connections_max=1)
        waiters = Waiters(channel, NOBODY_WAITS)
        try:
            with waiters.registered(1) as woken:
                await until(lambda: listeners(channel) == 1)
                broker.vanish()
                await until(lambda: "is not heard" in caplog.text)
                broker.come_back()
                await until(lambda: listeners(channel) == 1)
                with redis.Redis.from_url(started["valkey"].url) as talk:
                    talk.publish(channel, 1)
                await asyncio.wait_for(woken, 60)
        finally:
            await waiters.stop()
            await pools.close_pool()

    asyncio.run(story())


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(90):
        while not happened():  # noqa: ASYNC110 - what happens, happens elsewhere
            await asyncio.sleep(0.1)


def test_whoever_vanishes_in_the_middle_of_a_transaction_keeps_its_rows_for_a_moment(
    acme: Any,
) -> None:
    """A machine that is cut off: the database's host would believe in it for two hours."""
    given = conninfo_to_dict(os.environ["DATABASE_URL"])
    socket = f"{given['host']}/.s.PGSQL.{given.get('port') or 5432}"
    row = "SELECT FROM workspaces_workspace WHERE id = %s FOR UPDATE"
    with Proxy(socket) as way:
        there = f"postgresql://{given['user']}@127.0.0.1:{way.port}/{given['dbname']}"
        cut_off = psycopg.connect(there, options=sockets.session_options(1))
        cut_off.execute(row, [acme.pk])
        way.vanish()
        try:
            with psycopg.connect(os.environ["DATABASE_URL"]) as other:
                other.execute("SET LOCAL lock_timeout = '10s'")
                other.execute(row, [acme.pk])
        finally:
            way.cut()
            cut_off.close()


def believed(proxy: Proxy) -> list[str]:
    """The connections to it that callers here still take for living (`/proc/net/tcp`, proc(5))."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    established, there = "01", f":{proxy.port:04X}"
    return [x for x in lines if x.split()[2].endswith(there) and x.split()[3] == established]


def test_a_worker_comes_back_to_a_broker_whose_host_was_gone(
    processes: Processes, broker: Proxy
) -> None:
    worker = processes.worker(concurrency=1, REDIS_URL=url(broker), BROKER_URL=url(broker))
    assert looks_for_a_plan(worker), worker.said()

    broker.vanish()
    assert soon(lambda: not believed(broker))
    broker.come_back()

    assert looks_for_a_plan(worker), worker.said()


def test_pages_and_agents_are_told_to_come_back_while_the_databases_host_is_gone(
    processes: Processes,
) -> None:
    given = conninfo_to_dict(os.environ["DATABASE_URL"])
    port = int(given.get("port") or 5432)
    with Proxy(f"{given['host']}/.s.PGSQL.{port}") as database:
        there = f"postgresql://{given['user']}@127.0.0.1:{database.port}/{given['dbname']}"
        web = processes.web(DATABASE_URL=there, DATABASE_OWNER_URL=there)
        assert ask(f"{web.url}/accounts/login/")[0] == 200
        headers = {"Authorization": "Bearer amends_0123456789_wrong"}
        assert ask(f"{web.url}/api/v1/policy", **headers)[0] == 401

        database.vanish()
        assert ask(f"{web.url}/api/v1/policy", **headers)[0] == 503
        assert ask(f"{web.url}/healthz")[0] == 200
        database.come_back()

        assert soon(lambda: ask(f"{web.url}/api/v1/policy", **headers)[0] == 401), web.said()
        assert soon(lambda: ask(f"{web.url}/accounts/login/")[0] == 200), web.said()


def test_every_connection_of_django_has_deadlines_and_what_the_url_says_stands() -> None:
    given = conninfo_to_dict(sockets.postgres("postgresql://ada@db/x?connect_timeout=2"))

    assert given["connect_timeout"] == "2"
    assert int(given["tcp_user_timeout"]) > 0
    assert int(connection.settings_dict["OPTIONS"]["tcp_user_timeout"]) > 0
