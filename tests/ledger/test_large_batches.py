"""What whoever sends a large batch is told, whatever the thread that takes it in meets."""

import http.client
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connection

from edge.pools import THREADS_MAX, THREADS_WAITING_MAX
from ledger.intake import INLINE_BYTES_MAX, TRIES_MAX
from ledger.models import Event
from ledger.parsed_events import new_id
from ledger.wire import BATCH_BYTES_MAX, BATCH_EVENTS_MAX
from tests.ledger.conftest import bearer, event
from tests.processes import Process

pytestmark = pytest.mark.django_db(transaction=True)

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


# As many recordings as the sequence is short of zero fail at their end, as a deadlock would.
LOCKED_OUT = """
CREATE SEQUENCE locked_out MINVALUE -10 START {start};
CREATE FUNCTION lock_out() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF nextval('locked_out') < 0 THEN
        RAISE EXCEPTION USING ERRCODE = '{code}', MESSAGE = 'two of them wait for each other';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER lock_out AFTER INSERT ON ledger_unsealed EXECUTE FUNCTION lock_out();"""
NOT_LOCKED_OUT = "DROP FUNCTION lock_out CASCADE; DROP SEQUENCE locked_out"
DEADLOCK, SERIALIZATION = "40P01", "40001"


def test_the_same_batch_in_two_threads_at_once_is_kept_once(web, send, held):
    batch = large()
    with ThreadPoolExecutor(2) as together:
        sent = [together.submit(send, web, batch) for _ in range(2)]
        until(lambda: asked(WAITING) == 2)
        held.rollback()
        answers = sorted(words(one.result()) for one in sent)

    assert answers == [["accepted"] * 4, ["duplicate"] * 4]
    assert Event.objects.filter(run="run_1", action__gt="").count() == 4


def test_what_is_wrong_with_a_batch_is_told_as_ever(web, send):
    of_another_type = event("run.flew")
    too_many = [event("run.started", run=f"r{n}") for n in range(BATCH_EVENTS_MAX + 1)]
    spaces = b" " * INLINE_BYTES_MAX
    answers = [
        send(web, b"{" + spaces),
        send(web, b"[" * 100_000),
        send(web, too_many),
        send(web, b"[" + b" " * BATCH_BYTES_MAX + b"]"),
    ]
    mixed = send(web, [*large("mixed"), of_another_type])
    lines = b"\n".join(json.dumps(one).encode() for one in [*large("lines"), of_another_type])
    by_line = send(web, lines, "application/x-ndjson")

    assert [status for status, _, _ in answers] == [400, 400, 413, 413]
    kinds = [told["type"].rpartition(":")[2] for _, told, _ in answers]
    assert kinds == ["malformed", "malformed", "too-many", "too-large"]
    assert words(mixed) == words(by_line) == ["accepted"] * 4 + ["rejected"]
    assert mixed[1]["results"][-1]["problem"]["type"] == "urn:amends:problem:unknown-type"


def test_a_batch_that_waits_too_long_for_its_run_is_told_to_come_back(web, send, held):
    status, told, headers = send(web, large())

    assert (status, told["type"]) == (503, "urn:amends:problem:overloaded")
    assert int(headers["retry-after"]) >= 1


def test_while_the_database_is_away_threads_say_come_back(web, send):
    batch = large()
    name = connection.settings_dict["NAME"]
    allow = f"ALTER DATABASE {name} ALLOW_CONNECTIONS"
    elsewhere = os.environ["DATABASE_URL"].replace(f"/{name}?", "/postgres?")
    with psycopg.connect(elsewhere, autocommit=True) as administrator:
        send(web, large("warm"))  # its key is known for the next second: a thread is what fails
        administrator.execute(f"{allow} false")
        try:
            administrator.execute(TERMINATE.replace("current_database()", f"'{name}'"))
            status, _, headers = send(web, batch)
        finally:
            administrator.execute(f"{allow} true")

    assert status == 503
    assert int(headers["retry-after"]) >= 1
    until(lambda: send(web, batch)[0] == 200)
    assert words(send(web, batch)) == ["duplicate"] * 4


@pytest.fixture
def locked_out():
    """`locked_out(3, DEADLOCK)`: the next three recordings end like this."""
    made = []

    def one(times: int, code: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(LOCKED_OUT.format(start=-times, code=code))
        made.append(code)

    yield one
    if made:
        with connection.cursor() as cursor:
            cursor.execute(NOT_LOCKED_OUT)


@pytest.mark.parametrize("code", [DEADLOCK, SERIALIZATION])
def test_a_batch_that_is_locked_out_is_tried_again(web, send, locked_out, code):
    locked_out(TRIES_MAX - 1, code)
    batch = large()

    assert words(send(web, batch)) == ["accepted"] * 4
    assert Event.objects.filter(run="run_1").count() == 4
    assert words(send(web, batch)) == ["duplicate"] * 4


def test_a_batch_that_is_locked_out_each_time_is_told_to_come_back(web, send, locked_out):
    locked_out(TRIES_MAX, DEADLOCK)
    batch = large()
    status, told, headers = send(web, batch)

    assert (status, told["type"]) == (503, "urn:amends:problem:overloaded")
    assert int(headers["retry-after"]) >= 1
    assert not Event.objects.filter(run="run_1").exists()
    assert words(send(web, batch)) == ["accepted"] * 4


def test_more_batches_than_may_wait_are_told_to_come_back_at_once(web, send, held):
    more = 5
    with ThreadPoolExecutor(THREADS_WAITING_MAX + more) as together:
        sent = [together.submit(send, web, large()) for _ in range(THREADS_WAITING_MAX + more)]
        status, told, headers = next(as_completed(sent)).result()
        held.rollback()
        answers = [one.result() for one in sent]

    assert status == 503
    assert told["type"] == "about:blank"  # not of PostgreSQL, which says who waited for a lock
    assert int(headers["retry-after"]) >= 1
    kept = [words(one) for one in answers if one[0] == 200]
    assert len(kept) >= THREADS_WAITING_MAX - THREADS_MAX
    assert all(each == ["accepted"] * 4 for each in kept)
    assert Event.objects.filter(run="run_1", action__gt="").count() == 4 * len(kept)
