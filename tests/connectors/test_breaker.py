"""The licence service goes down; the desk leaves it alone, tries it once, and goes on."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection as database
from django.db.models.functions import Now

from connectors import calllog, calls, connections
from connectors.contract import CannotRead, Target
from connectors.models import Connection

TARGET = Target("licence", "L-none")


def look(connection):
    try:
        calls.observe(connection, "release_licence", {}, TARGET, key="k")
    except CannotRead:
        return False
    return True


def go_down(connection):
    connection.settings["url"] = "http://127.0.0.1:9/amends"


@pytest.fixture
def down(licence_connection):
    """A service that failed often enough in a row."""
    url = licence_connection.settings["url"]
    go_down(licence_connection)
    for _ in range(calllog.FAILURES_MAX):
        assert calllog.may_call(licence_connection) is None
        assert not look(licence_connection)
    licence_connection.settings["url"] = url
    return licence_connection


def pause_is_over():
    Connection.objects.update(open_until=Now() - timedelta(seconds=1))


def test_after_failures_in_a_row_nothing_goes_out(down):
    wait = calllog.may_call(down)

    assert wait is not None
    assert 0 < wait.seconds <= calllog.PAUSE_SECONDS
    assert "failed 5 times in a row" in wait.reason


def test_after_the_pause_one_caller_tries_and_success_closes_the_circuit(down):
    pause_is_over()

    first, second = calllog.may_call(down), calllog.may_call(down)
    assert first is None
    assert second is not None

    assert look(down)
    assert calllog.may_call(down) is None


def test_a_trial_that_fails_doubles_the_pause(down):
    pause_is_over()
    go_down(down)
    assert calllog.may_call(down) is None
    look(down)

    wait = calllog.may_call(down)

    assert wait is not None
    assert calllog.PAUSE_SECONDS < wait.seconds <= 2 * calllog.PAUSE_SECONDS


def test_refusals_are_answers_and_open_nothing(licence_connection, ada):
    for _ in range(2 * calllog.FAILURES_MAX):
        answer = calls.apply(licence_connection, "release_licence", {"seat": "x"}, TARGET, key="k")
        assert answer.outcome == "no_effect"

    assert calllog.may_call(licence_connection) is None


def test_new_settings_are_tried_at_once(down, ada):
    connections.update(down, down.settings, by=ada, revision=1)

    assert calllog.may_call(down) is None


def test_so_many_calls_at_once_and_no_more(licence_connection):
    Connection.objects.update(concurrency=2)

    assert calllog.may_call(licence_connection, under_way=1) is None
    wait = calllog.may_call(licence_connection, under_way=2)
    assert wait is not None
    assert "2 calls are under way" in wait.reason


@pytest.mark.django_db(transaction=True)
def test_eight_workers_ask_at_once_and_one_gets_the_trial(licence_connection):
    Connection.objects.update(failures_in_a_row=9, open_until=Now() - timedelta(seconds=1))

    def ask(_):
        try:
            return calllog.may_call(licence_connection)
        finally:
            database.close()

    with ThreadPoolExecutor(8) as workers:
        answers = list(workers.map(ask, range(8)))

    assert answers.count(None) == 1
