"""Every query that a page issues finds its rows by an index, on a desk with 100,000 of them.

The desk is the benchmarks' own, made in one transaction that is rolled back. What is looked at is
what PostgreSQL would do, and which rows it does read, not how long it takes.
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

from approvals import approval_requests
from bench.generate import cast, fill, made
from bench.lists import places
from bench.servers import Made
from ledger import erasure
from ledger.append import statements
from ledger.drivers import plain_connection
from recovery import search
from recovery.corrections import publishing
from workspaces.models import User, Workspace

RUNS = 42_000
"""They have 100,000 events and 60,000 actions; 8,400 have a case."""
SMALL = {
    "a handful for each deployment, whatever agents do": [
        "auth_permission", "django_content_type", "workspaces_heartbeat", "workspaces_workspace",
        "ledger_logkey"],
    "as many as people, teams, agents and their keys": [
        "auth_group", "django_session", "workspaces_user", "workspaces_user_groups",
        "workspaces_workspacegrouppermission", "workspaces_team", "workspaces_agent",
        "workspaces_apikey", "workspaces_invitation", "workspaces_persontoken",
        "workspaces_secret"],
    "what people set up, at most some hundreds in a workspace": [
        "approvals_policyversion", "approvals_pause", "approvals_namedlist",
        "connectors_connection",
        "connectors_channel", "recovery_savedview", "recovery_correctionsettings"],
}  # fmt: skip
"""Tables that may be read whole, and why they are small by nature. All others must not be."""

WORTH_AN_INDEX = 1_000
"""Rows; PostgreSQL rightly reads a smaller table from end to end, however it may grow."""

SMALL_WEEK = 4_000
"""Rows of a week just begun, of which 200 are sought: to read them all is no worse."""

READ_MAX = 20_000
"""Rows of one table in one query: so many a figure of the insights counts at most."""

FITTING_MIN = 0.05
"""Of a list that stops when it is full: at least so many of the rows that it looks at fit."""

RIGHTLY_WHOLE = {
    "insights/: recovery_case": "a third of the cases failed in its 30 days; it stops at 20,000",
    "approvals/history/?q=is:fast+asked:30d: approvals_approval": "a third was asked in 30 days;"
    " how quick an answer was is told from two of its times",
}
"""What a page reads whole although the table grows, and why PostgreSQL is right to."""

EMPTY_HERE = {
    "approvals/health/: recovery_plan": "of a table without rows it remembers all stopped plans;"
    " where there are some it looks each up by its id",
}

BLOCKING = ("Sort", "Incremental Sort", "Aggregate", "Hash", "WindowAgg", "Materialize")
"""These read all of what is below them, even if only the first rows are wanted above."""


@pytest.fixture(scope="module")
def desk(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Made]:
    with django_db_blocker.unblock(), transaction.atomic():
        people = cast()
        life = fill(plain_connection(), people, RUNS)
        with connection.cursor() as cursor:
            # Of this many every row is looked at: what PostgreSQL knows is the same in every run.
            # A sample differs, and where two plans cost nearly the same so does what it chooses.
            cursor.execute("SET LOCAL default_statistics_target = 1000")
            cursor.execute("ANALYZE")
            cursor.execute("SET LOCAL default_statistics_target TO DEFAULT")
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


def may_be_read_whole(table: str) -> bool:
    return any(table in tables for tables in SMALL.values())


def asked(desk: Made, place: str) -> list[dict[str, Any]]:
    """Every scan of a table that can grow which the page makes."""
    found = [scan for query in queries_of(desk, place) for scan in plan_of(*query)]
    return [
        scan
        for scan in found
        if "Relation Name" in scan and not may_be_read_whole(table_of(scan["Relation Name"]))
    ]


def queries_of(desk: Made, place: str) -> list[tuple[str, Any]]:
    client, heard = Client(), Heard()
    cookie = desk.approver_cookie if place.startswith("approvals/") else desk.cookie
    name, _, value = cookie.partition("=")
    client.cookies[name] = value
    with connection.execute_wrapper(heard):
        status = client.get(desk.page(place)).status_code
    assert status in {200, 204, 302, 404}, f"{place} answered {status}"
    return heard.queries


def as_it_went(sql: str, params: Any) -> dict[str, Any]:
    """The plan of a query, with how many rows each part of it did read."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql}", params)
        (found,) = cursor.fetchone()
    told = json.loads(found) if isinstance(found, str) else found
    plan: dict[str, Any] = told[0]["Plan"]
    return plan


def rows_read(scan: dict[str, Any]) -> float:
    fits, others = scan["Actual Rows"], scan.get("Rows Removed by Filter", 0)
    return float(scan["Actual Loops"] * (fits + others))


def read_whole(sql: str, params: Any) -> Iterator[dict[str, Any]]:
    """The sequential scans as they went, but those that stop when a list is full."""
    yield from _read_whole(as_it_went(sql, params), stops=False)


def _read_whole(node: dict[str, Any], *, stops: bool) -> Iterator[dict[str, Any]]:
    kind = node["Node Type"]
    stops = kind == "Limit" or (stops and kind not in BLOCKING)
    if kind == "Seq Scan":
        loops, fits = node["Actual Loops"], node["Actual Rows"]
        looked_at = fits + node.get("Rows Removed by Filter", 0)
        is_full_list = stops and fits >= FITTING_MIN * looked_at
        if loops and looked_at >= WORTH_AN_INDEX and not is_full_list:
            yield node
    for inner in node.get("Plans", []):
        yield from _read_whole(inner, stops=stops)


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
    assert read - set(EMPTY_HERE) == set()


def test_with_what_postgresql_knows_no_page_reads_a_table_that_grows_from_end_to_end(
    desk: Made,
) -> None:
    read = {
        f"{place}: {scan['Relation Name']}"
        for place in places(desk)
        for query in queries_of(desk, place)
        for scan in read_whole(*query)
        if not may_be_read_whole(table_of(scan["Relation Name"]))
    }
    assert read - set(RIGHTLY_WHOLE) == set()


def test_no_page_reads_by_an_index_more_rows_than_it_counts_to(desk: Made) -> None:
    """One that is not in the order that is asked for is read from end to end, and sorted."""
    read = {
        f"{place}: {scan.get('Relation Name')} {rows_read(scan):,.0f}"
        for place in places(desk)
        for query in queries_of(desk, place)
        for scan in scans(as_it_went(*query))
        if scan["Node Type"] != "Seq Scan" and rows_read(scan) > READ_MAX
    }
    assert read == set()


LISTS = {
    "queue/": "case_open_as_called",
    "queue/?sort=newest": "case_open_as_named",
    "queue/?sort=due": "case_open_by_due",
    "queue/?q=is:closed": "case_closed_as_called",
    "queue/?q=is:unknown": "case_of_unknown_outcome",
    "queue/?q=is:irreversible": "case_irreversible",
    "queue/?q=state:waiting": "case_under_way",
    "queue/?q=target:*000B3*": "case_short_fields",
    "queue/?q=tool:*no_such_tool": "case_short_fields",
    "queue/?q=run:run_0000010": "recovery_case_run_id_key",
    "runs/": "run_newest_first",
    "runs/?state=cancelled": "run_ended_badly",
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


READ_BY_AN_INDEX = {
    "run:a*": "case_open_as_named",
    "model:none is:open": "case_open_as_named",
    "amount:>1000 risk:critical": "case_open_as_called",
    "amount:>2000 is:unclaimed": "case_open_as_called",
    "customer:c* agent:airline-desk": "case_open_as_named",
    "target:*Q9*": "case_open_as_called",
    "tool:*x_ risk:>low": "case_open_as_called",
    "is:closed run:a*": "case_closed_as_called",
    "is:closed model:none risk:high": "case_closed_as_called",
}
"""What nothing puts in order, and the index of which alone it is asked."""


@pytest.mark.parametrize(("q", "index"), READ_BY_AN_INDEX.items(), ids=READ_BY_AN_INDEX)
def test_what_nothing_puts_in_order_is_not_asked_of_each_row(
    desk: Made, q: str, index: str
) -> None:
    """The rows are wide: of 100,000 they took half a second."""
    workspace = Workspace.objects.get(slug=desk.slug)
    for by in (User.objects.get(email__startswith="ada@"), None):
        keys = search.matching(workspace, search.parse(q), by=by).order_by().values("pk")[:1001]
        with connection.cursor() as cursor:
            # As after a vacuum, which a transaction cannot have.
            cursor.execute("UPDATE pg_class SET relallvisible = relpages"
                           " WHERE relname = 'recovery_case'")  # fmt: skip
        [read] = plan_of(*keys.query.sql_with_params())
        assert (read["Node Type"], read.get("Index Name")) == ("Index Only Scan", index)


@pytest.mark.parametrize("q", ["tool:no_such_tool", "reason:no_such_reason", "has:comment"])
def test_what_few_cases_have_is_found_without_reading_those_that_have_it_not(
    desk: Made, q: str
) -> None:
    """Of each of all open cases its tools were read."""
    workspace, heard = Workspace.objects.get(slug=desk.slug), Heard()
    with connection.execute_wrapper(heard):
        search.find(workspace, q, by=None)
    read = [scan for query in heard.queries for scan in scans(as_it_went(*query))]
    of_cases = [one for one in read if one.get("Relation Name") == "recovery_case"]
    assert sum(map(rows_read, of_cases)) < WORTH_AN_INDEX, of_cases


BESIDE_OTHERS = {
    "model:none reason:failed_with_effects": {"case_open_as_named"},
    "target:*Q9* model:none": {"case_open_as_named", "case_open_as_called"},
    "amount:>1000000 tool:charge_payment_card": {"case_open_as_called"},
    "is:closed run:a* tool:charge_payment_card": {"case_closed_as_called"},
    "target:*Q9* has:comment -is:closed": {"case_open_as_called"},
}
"""What nothing puts in order, beside what its index has not; and the indexes that say it alone."""


@pytest.mark.parametrize(("q", "indexes"), BESIDE_OTHERS.items(), ids=BESIDE_OTHERS)
def test_beside_others_too_it_is_asked_of_its_index_first(
    desk: Made, q: str, indexes: set[str]
) -> None:
    workspace = Workspace.objects.get(slug=desk.slug)
    ada = User.objects.get(email__startswith="ada@")
    heard = Heard()
    with connection.execute_wrapper(heard):
        search.find(workspace, q, by=ada)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pg_class SET relallvisible = relpages"
                       " WHERE relname = 'recovery_case'")  # fmt: skip
    keys = [query for query in heard.queries if "LIMIT 1001" in query[0]]
    read = [scan for query in keys for scan in plan_of(*query)]
    alone = {one["Index Name"] for one in read if one["Node Type"] == "Index Only Scan"}
    assert alone >= indexes, read
    assert "Seq Scan" not in {one["Node Type"] for one in read}


def test_just_after_an_upgrade_no_query_looks_at_each_case_for_one_without_its_run(
    desk: Made,
) -> None:
    """PostgreSQL took it that the first one is such a case, and read all of them."""
    with connection.cursor() as cursor, transaction.atomic():
        cursor.execute("UPDATE recovery_case SET run_ref = ''")
        cursor.execute("ANALYZE recovery_case")
        cursor.execute("UPDATE recovery_case SET run_ref = id")
        used = [
            (scan["Node Type"], scan["Index Name"])
            for query in queries_of(desk, "queue/?q=model:none")
            if """."run_ref" = """ in query[0]
            for scan in plan_of(*query)
        ]
        transaction.set_rollback(True)
    assert used == [("Index Only Scan", "case_without_its_run")]


def test_recording_finds_what_it_needs_in_a_workspace_without_statistics(desk: Made) -> None:
    """It is newer than the statistics, and an index that lists the newest looks as good."""
    with connection.cursor() as cursor:
        # Not the last hour: on a Monday morning its partition is so small that any index will do.
        cursor.execute(
            "SELECT mid - interval '1 hour', mid FROM (SELECT percentile_disc(0.5)"
            " WITHIN GROUP (ORDER BY received_at) AS mid FROM ledger_event) AS middle"
        )
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


def test_an_erasure_finds_its_events_by_an_index(desk: Made) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT run FROM ledger_run ORDER BY id LIMIT 200 OFFSET 2000")
        names = [name for (name,) in cursor.fetchall()]
        cursor.execute("SELECT id FROM workspaces_workspace WHERE slug = %s", [desk.slug])
        (workspace,) = cursor.fetchone()
        cursor.execute(
            "SELECT place, received_at, event_id FROM ledger_event WHERE run = ANY(%s)", [names]
        )
        places, moments, events = (list(column) for column in zip(*cursor, strict=True))
    given = {"workspace": workspace, "runs": names, "actions": ["a1"] * 200, "places": places,
             "at_most": erasure.EVENTS_OF_PART,
             "moments": moments, "events": events, "snapshots": ["a" * 64],
             "refs": [f"sha256:{'a' * 64}"] * 200, "whole": [0], "single": [0]}  # fmt: skip
    asked_ = (
        erasure.OF_RUNS, erasure.OF_ACTIONS, erasure.EMPTY_EVENTS, erasure.EMPTY_KEYS,
        erasure.EMPTY_SNAPSHOTS, erasure.NAMED_BY_OTHERS,
    )  # fmt: skip

    read = [scan for sql in asked_ for scan in plan_of(sql, given)]

    assert len(read) >= len(asked_)
    whole = {scan["Relation Name"] for scan in read if scan["Node Type"] == "Seq Scan"}
    assert {name: rows for name in whole if (rows := rows_in(name)) > SMALL_WEEK} == {}


def test_a_turn_of_letters_reads_the_cases_that_wait_for_one(desk: Made) -> None:
    """Ordered by their id, and a case that was put right is found among all that were closed."""
    for_one, for_a_turn = publishing.QUEUES[0]().order_by(), publishing.QUEUES[0]().order_by("pk")
    for waiting in (for_one.values("pk")[:1], for_a_turn.filter(pk__gt=1)[: publishing.DRAFTS]):
        read = plan_of(*waiting.query.sql_with_params())
        assert "case_without_its_letter" in {one.get("Index Name") for one in read}, read


def test_a_turn_that_withdraws_questions_looks_their_calls_up(
    desk: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes every second: of each question that waits all actions of the desk were read."""
    monkeypatch.setattr(approval_requests, "BATCH", 1)
    heard = Heard()
    with transaction.atomic(), connection.execute_wrapper(heard):
        assert approval_requests.sweep() == 1
        transaction.set_rollback(True)

    read = [scan for query in heard.queries for scan in plan_of(*query)]
    assert "action_by_key" in {one.get("Index Name") for one in read}
    whole = {one["Relation Name"] for one in read if one["Node Type"] == "Seq Scan"}
    assert not whole & {"ledger_action", "ledger_attempt", "ledger_run"}


def rows_in(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT reltuples FROM pg_class WHERE relname = %s", [table])
        (rows,) = cursor.fetchone()
    return int(rows)
