"""Every query that a page issues finds its rows by an index, on a desk with 100,000 of them.

The desk is the benchmarks' own, made in one transaction that is rolled back. What is looked at is
what PostgreSQL would do, not how long it takes.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from pytest_django import DjangoDbBlocker

from bench.generate import Made, fill, made
from bench.lists import places
from bench.people import cast
from ledger import statements
from ledger.desk import plain_connection

RUNS = 42_000
"""They have 100,000 events and 60,000 actions; 8,400 have a case."""
LARGE = frozenset(
    {"ledger_run", "ledger_action", "ledger_attempt", "ledger_effect", "ledger_event",
     "ledger_eventkey", "recovery_case", "approvals_approval", "approvals_requirement",
     "recovery_correction"}
)  # fmt: skip


@pytest.fixture(scope="module")
def desk(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Made]:
    with django_db_blocker.unblock(), transaction.atomic():
        people = cast()
        life = fill(plain_connection(), people, RUNS)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        yield made(life, people)
        transaction.set_rollback(True)


@dataclass
class Heard:
    """The queries of one request, for `connection.execute_wrapper`."""

    queries: list[tuple[str, Any]] = field(default_factory=list)

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:  # noqa: FBT001 - Django's
        if sql.lstrip().startswith(("SELECT", "WITH")):
            self.queries.append((sql, params))
        return execute(sql, params, many, context)


def scans(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "Scan" in node["Node Type"] and node["Node Type"] != "Subquery Scan":
        yield node
    for inner in node.get("Plans", []):
        yield from scans(inner)


def plan_of(sql: str, params: Any) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", params)
        (found,) = cursor.fetchone()
    told = json.loads(found) if isinstance(found, str) else found
    return list(scans(told[0]["Plan"]))


def table_of(relation: str) -> str:
    """A partition's table is what it is a part of."""
    return re.sub(r"^(ledger_event)_(\d{4}w\d\d|default)$", r"\1", relation)


def asked(desk: Made, place: str) -> list[dict[str, Any]]:
    """Every scan of a large table that the page makes."""
    client, heard = Client(), Heard()
    cookie = desk.approver_cookie if place.startswith("approvals/") else desk.cookie
    name, _, value = cookie.partition("=")
    client.cookies[name] = value
    with connection.execute_wrapper(heard):
        status = client.get(desk.page(place)).status_code
    assert status in {200, 204, 302, 404}, f"{place} answered {status}"
    found = [scan for query in heard.queries for scan in plan_of(*query)]
    return [scan for scan in found if table_of(scan.get("Relation Name", "")) in LARGE]


def test_every_query_of_a_page_has_an_index_to_go_by(desk: Made) -> None:
    """Sequential scans are forbidden here, for where half of all cases are open one may be right.

    What is still read from end to end has no index that fits.
    """
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    read = {
        f"{place}: {scan['Relation Name']}"
        for place in places(desk)
        for scan in asked(desk, place)
        if scan["Node Type"] == "Seq Scan"
    }
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = on")
    assert read == set()


LISTS = {
    "queue/": "case_open_by_risk",
    "queue/?sort=newest": "case_open_newest",
    "queue/?sort=due": "case_open_by_due",
    "queue/?q=is:closed": "case_closed_by_risk",
    "queue/?q=is:unknown": "case_of_unknown_outcome",
    "queue/?q=is:irreversible": "case_irreversible",
    "runs/": "run_newest_first",
    "runs/?q=R000011": "run_words",
    # Its own index begins with the workspace; on a desk of one workspace the ids alone are as good.
    "approvals/history/": "approvals_approval_pkey",
}


@pytest.mark.parametrize(("place", "index"), LISTS.items(), ids=LISTS)
def test_a_list_walks_its_own_index(desk: Made, place: str, index: str) -> None:
    scans_ = asked(desk, place)
    used = {scan["Index Name"] for scan in scans_ if "Index Name" in scan}
    used |= {
        inner["Index Name"]
        for scan in scans_
        for inner in scan.get("Plans", [])
        if "Index Name" in inner
    }
    assert index in used


def test_recording_finds_what_it_needs_in_a_workspace_without_statistics(desk: Made) -> None:
    """It is newer than the statistics, and an index that lists the newest looks as good."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT now() - interval '1 hour', now()")
        since, until = cursor.fetchone()
        cursor.execute("SELECT max(id) + 1 FROM workspaces_workspace")
        (unknown,) = cursor.fetchone()
    looks_back = statements.PRIOR_EVENTS.replace("%b", "%s")
    locks = statements.LOCK_RUNS.replace("%b", "%s")
    events = plan_of(looks_back, [["run_1"], ["act_1"], unknown, since, until])
    runs = plan_of(locks, [["run_1"], unknown])

    of_events = [s for s in events if table_of(s.get("Relation Name", "")) == "ledger_event"]
    of_runs = [s for s in runs if s.get("Relation Name") == "ledger_run"]
    assert of_events
    assert of_runs
    assert all("u.run" in scan["Index Cond"] for scan in of_events), of_events
    assert all("n.run" in scan["Index Cond"] for scan in of_runs), of_runs
