"""Large batches are taken in by processes of their own, and one that is killed costs only a retry.

The web process is real, and so are its children.
"""

import http.client
import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connection

from ledger.ids import new_id
from ledger.intake import INLINE_BYTES_MAX, TRIES_MAX
from ledger.models import Event
from ledger.wire import BATCH_BYTES_MAX, BATCH_EVENTS_MAX
from tests.ledger.conftest import bearer, event
from tests.processes import Process
from workspaces.children import CALLS_AT_ONCE
from workspaces.hot import THREADS_WAITING_MAX

pytestmark = pytest.mark.django_db(transaction=True)
WAIT_SECONDS_MAX = 40.0
# Only they connect under this name: what they take in is told from what threads do.
SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE application_name = 'amends intake' AND datname = current_database()"
)
WAITING = f"{SESSIONS} AND wait_event_type = 'Lock'"
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
# What Python imports first of all, in every process that is given its folder: no child starts.
NO_CHILD = """
import os
if os.environ.get("AMENDS_PROCESS") == "intake":
    os._exit(3)
"""
TERMINATE = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def children_of(pid: int) -> set[int]:
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"workspaces.child" in (folder / "cmdline").read_bytes():
                found.add(int(folder.name))
        except OSError:
            continue  # it ended while we looked
    return found


def goes(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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
    """A web process both of whose children have taken in batches, two at once."""
    found = processes.web(AMENDS_INTAKE_PROCESSES="2")
    assert children_of(found.pid) == set()  # who sends no large batch pays nothing
    assert words(send(found, large("warm"))) == ["accepted"] * 4

    def both_take_in() -> bool:
        with ThreadPoolExecutor(4) as together:
            answers = list(together.map(lambda n: send(found, large(f"warm{n}")), range(4)))
        assert {status for status, _, _ in answers} == {200}
        return asked(SESSIONS) == 2 * CALLS_AT_ONCE

    until(both_take_in)
    return found


@pytest.fixture
def held(web, send):
    """A transaction that holds run_1, which a first batch has opened."""
    send(web, [event("run.started")])
    with psycopg.connect(os.environ["DATABASE_URL"]) as holder:
        holder.execute("SELECT 1 FROM ledger_run WHERE run = 'run_1' FOR UPDATE")
        yield holder


def test_the_same_batch_in_two_children_at_once_is_kept_once(web, send, held):
    batch = large()
    with ThreadPoolExecutor(2) as together:
        sent = [together.submit(send, web, batch) for _ in range(2)]
        until(lambda: asked(WAITING) == 2)
        held.rollback()
        answers = sorted(words(one.result()) for one in sent)

    assert answers == [["accepted"] * 4, ["duplicate"] * 4]
    assert Event.objects.filter(run="run_1", action__gt="").count() == 4


def test_a_child_killed_with_a_batch_costs_a_retry_and_another_takes_its_place(web, send, held):
    batch = large()
    before = children_of(web.pid)
    with ThreadPoolExecutor(1) as aside:
        sent = aside.submit(send, web, batch)
        until(lambda: asked(WAITING) == 1)
        for child in before:
            os.kill(child, signal.SIGKILL)
        status, told, headers = sent.result()
    held.rollback()

    assert status == 503
    assert int(headers["retry-after"]) >= 1
    assert headers["content-type"] == "application/problem+json"
    assert told["title"].startswith("Interrupted")
    assert set(words(send(web, batch))) in ({"accepted"}, {"duplicate"})
    assert Event.objects.filter(run="run_1", action__gt="").count() == 4
    send(web, large("another"))
    until(lambda: len(children_of(web.pid) - before) == 2)
    assert words(send(web, batch)) == ["duplicate"] * 4


def test_what_is_wrong_with_a_batch_is_told_as_ever(web, send):
    of_another_type = event("run.flew")
    too_many = [event("run.started", run=f"r{n}") for n in range(BATCH_EVENTS_MAX + 1)]
    spaces = b" " * INLINE_BYTES_MAX
    before = children_of(web.pid)
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
    assert children_of(web.pid) == before  # nothing of it ended a child


def test_a_batch_that_waits_too_long_for_its_run_is_told_to_come_back(web, send, held):
    status, told, headers = send(web, large())

    assert (status, told["type"]) == (503, "urn:amends:problem:overloaded")
    assert int(headers["retry-after"]) >= 1


def test_children_whose_connections_were_cut_find_the_database_again(web, send):
    asked(TERMINATE)

    batch = large()
    until(lambda: send(web, batch)[0] == 200)
    assert words(send(web, batch)) == ["duplicate"] * 4
    assert len(children_of(web.pid)) == 2


def test_while_the_database_is_away_children_say_come_back(web, send):
    batch = large()
    name = connection.settings_dict["NAME"]
    allow = f"ALTER DATABASE {name} ALLOW_CONNECTIONS"
    elsewhere = os.environ["DATABASE_URL"].replace(f"/{name}?", "/postgres?")
    with psycopg.connect(elsewhere, autocommit=True) as administrator:
        send(web, large("warm"))  # its key is known for the next second: a child is what fails
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
def test_a_batch_that_is_locked_out_is_tried_again_by_its_child(web, send, locked_out, code):
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
    assert len(kept) >= THREADS_WAITING_MAX - 2 * CALLS_AT_ONCE
    assert all(each == ["accepted"] * 4 for each in kept)
    assert Event.objects.filter(run="run_1", action__gt="").count() == 4 * len(kept)


def test_threads_take_in_batches_where_no_child_starts_and_the_log_says_so(
    processes, send, tmp_path
):
    (tmp_path / "sitecustomize.py").write_text(NO_CHILD)
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    web = processes.web(AMENDS_INTAKE_PROCESSES="2", PYTHONPATH=paths)

    assert words(send(web, large("first"))) == ["accepted"] * 4
    until(lambda: web.said().count("did not start; threads do its work") == 2)
    assert words(send(web, large("second"))) == ["accepted"] * 4
    assert children_of(web.pid) == set()
    assert asked(SESSIONS) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_child_is_left_when_the_web_process_ends(web, send, held, number):
    children = children_of(web.pid)
    with ThreadPoolExecutor(1) as aside:
        sent = aside.submit(send, web, large())
        until(lambda: asked(WAITING) == 1)  # one of them is in the middle of a batch
        os.kill(web.pid, number)
        until(lambda: not any(goes(child) for child in children))
        until(lambda: not web.alive())
        held.rollback()
        sent.exception()


def test_without_any_threads_take_in_large_batches(processes, send):
    web = processes.web(AMENDS_INTAKE_PROCESSES="0")

    assert words(send(web, large())) == ["accepted"] * 4
    assert children_of(web.pid) == set()
    assert asked(SESSIONS) == 0
