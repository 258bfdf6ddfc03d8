"""What the stories of large batches are told with: a real web process, and a run that is held."""

import http.client
import json
import os
import time
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connection

from ledger.intake import INLINE_BYTES_MAX
from ledger.parsed_events import new_id
from tests.ledger.conftest import bearer, event
from tests.processes import Process

OK = 200
WAIT_SECONDS_MAX = 90.0
WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'amends hot'"
    " AND datname = current_database() AND wait_event_type = 'Lock'"
)
TERMINATE = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def until(true) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not true():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)


def asked(statement: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return int(cursor.fetchone()[0])


def large(run: str = "run_1", count: int = 4, **members) -> list[Any]:
    data = {"tool": "pay", "args": "x" * (INLINE_BYTES_MAX // 3)}
    return [event("action.planned", run, new_id(), data=data, **members) for _ in range(count)]


def words(answer) -> list[str]:
    return [one["status"] for one in answer[1]["results"]]


@pytest.fixture
def send(token):
    def one(web: Process, body, media="application/json"):
        parts = urlsplit(web.url)
        channel = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        channel.request("POST", "/api/v1/events", content, bearer(token, media))
        answer = channel.getresponse()
        found = answer.status, json.loads(answer.read()), dict(answer.headers)
        channel.close()
        return found

    return one


@pytest.fixture
def web(processes, send):
    """Its threads have found out that the connections of the story before were cut."""
    found = processes.kept_web()
    until(lambda: send(found, large("warm"))[0] == OK)
    return found


@pytest.fixture
def held(web, send):
    """A transaction that holds run_1, which a first batch has opened."""
    send(web, [event("run.started")])
    with psycopg.connect(os.environ["DATABASE_URL"]) as holder:
        holder.execute("SELECT 1 FROM ledger_run WHERE run = 'run_1' FOR UPDATE")
        yield holder
