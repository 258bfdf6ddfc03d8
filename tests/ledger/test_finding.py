"""Runs are found by the words of what was asked, what went wrong, and what was touched."""

import pytest
from django.db import connection
from django.db.models import F

from ledger import disclosure, finding
from ledger.models import Run
from tests.ledger.conftest import event, record_events
from tests.worlds import kept
from workspaces.models import Agent, Workspace


@pytest.fixture
@kept(in_turn=True)
def trips(actor):
    for run, words, target in (
        ("run_1", "Move my flight to Lisbon", "XEHM4B"),
        ("run_2", "Cancel the hotel in Porto", "H-7"),
    ):
        record_events(
            actor,
            event("run.started", run=run, data={
                "request": words, "on_behalf_of": {"id": "eve", "name": "Eve Field"}}),
            event("action.planned", run=run, action="a", data={
                "tool": "update_flight", "targets": [{"type": "reservation", "id": target}]}),
        )  # fmt: skip
    record_events(actor, event("run.failed", run="run_2", data={
        "error": {"type": "GatewayTimeout", "message": "the gateway gave up"}}))  # fmt: skip


def found(northwind, q, state=""):
    runs = Run.objects.filter(workspace=northwind)
    return sorted(run.run for run in finding.narrowed(runs, northwind, q, state, sees=True))


def test_words_of_request_error_customer_tool_and_target_find_a_run(northwind, trips):
    assert finding.catch_up() == 2
    assert finding.catch_up() == 0
    assert found(northwind, "lisbon") == ["run_1"]
    assert found(northwind, "GATEWAY gave") == ["run_2"]
    assert found(northwind, "eve field") == ["run_1", "run_2"]
    assert found(northwind, "XEHM4B") == ["run_1"]
    assert found(northwind, "lis*") == ["run_1"]
    assert found(northwind, "lisbon porto") == []
    assert found(northwind, "field", state="failed") == ["run_2"]


@pytest.mark.parametrize("q", ["'", "a & | b", "!", "<->", "\\", "''')) OR 1=1", ":*", "x" * 5000])
def test_no_text_breaks_the_search(northwind, trips, q):
    finding.catch_up()
    found(northwind, q)


def test_another_workspace_finds_nothing(northwind, trips, ada):
    finding.catch_up()
    other = Workspace.objects.create(slug="southwind", name="Southwind")
    Agent.objects.create(workspace=other, name="x", owner=ada)
    assert not finding.narrowed(
        Run.objects.filter(workspace=other), other, "lisbon", sees=True
    ).exists()


def test_a_changed_run_is_found_by_its_new_words(northwind, trips, actor):
    finding.catch_up()
    record_events(
        actor, event("run.cancelled", run="run_1", data={"reason": "the passenger fell ill"})
    )
    assert found(northwind, "passenger") == []
    finding.catch_up()
    assert found(northwind, "passenger") == ["run_1"]


def test_what_changes_while_it_is_read_is_read_again(northwind, trips, monkeypatch):
    parted = disclosure.parted

    def meanwhile(text):
        Run.objects.filter(run="run_1").update(request="to Madrid", revision=F("revision") + 1)
        return parted(text)

    monkeypatch.setattr(disclosure, "parted", meanwhile)
    assert finding.catch_up() == 1
    monkeypatch.setattr(disclosure, "parted", parted)
    assert found(northwind, "lisbon") == found(northwind, "madrid") == []
    assert finding.catch_up() == 1
    assert found(northwind, "madrid") == ["run_1"]


@pytest.mark.parametrize("sees", [False, True])
def test_the_index_of_words_answers(northwind, trips, sees):
    finding.catch_up()
    query = finding._query(northwind, "lisbon", "", sees=sees)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_indexscan = off")
        plan = Run.objects.filter(search=query).order_by().explain()
    assert "run_words" in plan
