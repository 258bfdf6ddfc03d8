"""The door of the web process: health, metrics, static files, and a database that went away."""

import json
import time
import urllib.request
from datetime import timedelta
from urllib.error import HTTPError

import pytest
from cryptography.fernet import Fernet
from django.db import connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from approvals import pauses, team_coverage
from approvals.models import Approval, PolicyVersion
from config.health import NO_ANSWER, expected
from ledger.canonical import digest
from tests.approvals.cast import asker
from tests.processes import Process, Processes
from workspaces import keys, periodic
from workspaces.models import Agent, Heartbeat, User, Workspace

TERMINATE_OTHERS = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@pytest.fixture
def web(processes: Processes) -> Process:
    return processes.kept_web()


def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, method=method, headers=named), timeout=30
        ) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except HTTPError as error:
        return error.code, dict(error.headers), error.read()


def test_a_web_process_alone_is_ready_and_its_desk_is_not_well_and_says_who_is_missing(
    web: Process,
) -> None:
    alive, _, _ = ask(f"{web.url}/healthz")
    ready, _, said = ask(f"{web.url}/readyz")
    well, _, body = ask(f"{web.url}/statusz")

    assert (alive, ready, well) == (200, 200, 503)
    assert json.loads(said) == {"ready": True, "checks": {"database": "ok", "keys": "ok"}}
    checks = json.loads(body)["checks"]
    assert checks["database"] == checks["broker"] == "ok"
    assert checks["worker"] == checks["scheduler"] == checks["sweeper"] == "never ran"


def test_with_worker_scheduler_and_sweeper_each_says_that_it_lives(
    web: Process, processes: Processes
) -> None:
    with processes.side_by_side():
        processes.worker()
        processes.scheduler()
        processes.sweeper()
    deadline = time.monotonic() + 90

    while ask(f"{web.url}/statusz")[0] != 200 and time.monotonic() < deadline:
        time.sleep(0.2)

    status, _, body = ask(f"{web.url}/statusz")
    assert status == 200, body


def test_one_loop_that_stopped_is_named_and_takes_no_web_process_from_its_balancer(
    web: Process,
) -> None:
    for one in expected():
        periodic.beat(one, every_seconds=5.0)
    assert ask(f"{web.url}/statusz")[0] == 200

    for name in ("sweeper", "scheduler", "worker", "recovery.sweep", "ledger.seal",
                 "ledger.partitions"):  # fmt: skip
        Heartbeat.objects.filter(pk=name).update(beat_at=Now() - timedelta(minutes=5))
        status, _, body = ask(f"{web.url}/statusz")
        checks = json.loads(body)["checks"]
        assert status == 503
        assert checks.pop(name).startswith("silent for 30")
        assert set(checks.values()) == {"ok"}

        periodic.beat(name, every_seconds=5.0, error="PartitionMissing: ledger_event_2026w48")
        status, _, body = ask(f"{web.url}/statusz")
        assert (status, json.loads(body)["checks"][name][:25]) == (503, "failed: PartitionMissing:")
        assert ask(f"{web.url}/readyz")[0] == 200

        periodic.beat(name, every_seconds=5.0)
        assert ask(f"{web.url}/statusz")[0] == 200


def test_a_web_that_missed_the_rotation_of_keys_says_so_and_is_not_asked_any_more(
    web: Process, processes: Processes
) -> None:
    """It was started with the key that is taken away, and opens nothing that is sealed since."""
    acme = Workspace.objects.create(slug="acme", name="Acme")
    agent = Agent.objects.create(workspace=acme, name="trip-agent")
    _, token = keys.create_key(agent, by=None, name="test")
    late = processes.web(AMENDS_SECRET_KEYS=Fernet.generate_key().decode())

    for _ in range(2):
        status, _, said = ask(f"{late.url}/readyz")
        assert status == 503
        assert "no key of AMENDS_SECRET_KEYS opens" in json.loads(said)["checks"]["keys"]
    shown = {"Authorization": f"Bearer {token}"}
    assert [ask(f"{late.url}/api/v1/policy", **shown)[0] for _ in range(2)] == [503, 503]

    assert late.said().count("not ready: no key of AMENDS_SECRET_KEYS opens") == 1
    assert late.said().count("agents of acme are answered 503: their masking key") == 1
    assert ask(f"{web.url}/readyz")[0] == 200, "the other one opens it"


def test_a_part_that_is_not_well_is_a_notice_and_nobody_is_named(web: Process) -> None:
    """Two workers, of which one was killed; and a workspace that was restored."""
    for one in (*expected(), "worker@one/7", "worker@two/9"):
        periodic.beat(one, every_seconds=5.0)
    Heartbeat.objects.filter(pk="worker@two/9").update(beat_at=Now() - timedelta(minutes=5))
    periodic.done(periodic.BACKUP)
    Heartbeat.objects.filter(pk=periodic.BACKUP).update(beat_at=Now() - timedelta(hours=31))
    acme = Workspace.objects.create(slug="acme", name="Acme")
    pauses.hold_after_restore(acme, "The desk was restored.", {}, taken_at=timezone.now())
    ask_people = asker(acme, User.objects.create(email="ada@example.com"))
    _, erased = ask_people(), ask_people()
    Approval.objects.filter(pk=erased.pk).update(calls=[])
    Approval.objects.update(was="waiting", state="granted")

    status, _, body = ask(f"{web.url}/statusz")

    assert (status, json.loads(body)["notices"]) == (200, {
        "ledger": "1 workspaces are held: their log went back, or was restored",
        "approvals": "1 are granted, and the ledger does not tell by whom",
        "backup": "the last good one is 31 hours old",
        "worker": "1 of 2 give no sign of life",
    })  # fmt: skip


def test_each_process_lives_by_a_name_of_its_own_until_it_ends_in_order(
    processes: Processes,
) -> None:
    def names() -> set[str]:
        rows = Heartbeat.objects.filter(name__contains="@")
        return {f"{one.partition('@')[0]} {one.rpartition('/')[2]}" for one in rows.values_list(
            "pk", flat=True)}  # fmt: skip

    with processes.side_by_side():
        started = [processes.worker(), processes.scheduler(), processes.scheduler()]
    alive = {f"{one.name} {one.pid}" for one in started}
    started[0].wait_until(lambda: names() == alive)

    started[1].kill()
    for one in (started[0], started[2]):
        one.stop()
    assert names() == {f"scheduler {started[1].pid}"}, "who was killed is missed"


def test_a_policy_that_this_version_refuses_is_counted_and_not_named_to_strangers(
    web: Process,
) -> None:
    for one in expected():
        periodic.beat(one, every_seconds=5.0)
    document = {"policies": {"a": {"approval": "PERHAPS"}}}
    PolicyVersion.objects.create(
        workspace=Workspace.objects.create(slug="acme", name="Acme"),
        number=1, document=document, digest=digest(document), active=True,
    )  # fmt: skip
    team_coverage.sweep()

    status, _, body = ask(f"{web.url}/statusz")

    assert status == 200
    assert json.loads(body)["notices"] == {"policies": "1 cannot be read by this version"}
    assert b"PERHAPS" not in body
    assert b"acme" not in body


def test_metrics_are_for_this_machine_or_for_who_has_the_token(
    web: Process, processes: Processes
) -> None:
    guarded = processes.web(AMENDS_METRICS_TOKEN="a-token-for-prometheus")
    ask(f"{web.url}/healthz")

    status, _, body = ask(f"{web.url}/metrics")
    proxied, _, _ = ask(f"{web.url}/metrics", X_Forwarded_For="203.0.113.9")
    without, _, _ = ask(f"{guarded.url}/metrics")
    with_token, _, _ = ask(f"{guarded.url}/metrics", Authorization="Bearer a-token-for-prometheus")

    assert (status, proxied, without, with_token) == (200, 403, 403, 200)
    assert b'amends_hot_request_seconds_count{method="GET",path="/healthz"' in body
    assert b"amends_figures_up 1.0" in body


def test_the_wrong_method_is_told_which_one_is_right(web: Process) -> None:
    status, headers, body = ask(f"{web.url}/healthz", "POST")

    assert status == 405
    assert headers["allow"] == "GET"
    told = json.loads(body)
    assert (told["type"], told["title"]) == ("urn:amends:problem:method", "Method not allowed")


def test_an_address_with_nul_in_it_is_refused_before_anybody_looks_it_up(web: Process) -> None:
    hot, _, _ = ask(f"{web.url}/api/v1/runs/%00/directive")
    slow, _, _ = ask(f"{web.url}/api/v1/runs/%00")
    asked, _, _ = ask(f"{web.url}/accounts/login/?next=%00")

    assert (hot, slow, asked) == (400, 400, 400)


def test_static_files_are_served_before_django_and_nothing_above_them(web: Process) -> None:
    status, headers, body = ask(f"{web.url}/static/amends.css")
    again, _, _ = ask(f"{web.url}/static/amends.css", If_None_Match=headers["etag"])
    above, _, _ = ask(f"{web.url}/static/../pyproject.toml")
    escaped, _, _ = ask(f"{web.url}/static/%2e%2e/pyproject.toml")
    posted, _, _ = ask(f"{web.url}/static/amends.css", "POST")

    assert status == 200
    assert body
    assert headers["content-type"].startswith("text/css")
    assert headers["x-content-type-options"] == "nosniff"
    assert (again, above, escaped, posted) == (304, 404, 404, 405)


def test_a_web_process_finds_its_database_again_after_every_connection_was_cut(
    web: Process,
) -> None:
    ask(f"{web.url}/readyz")
    with connection.cursor() as cursor:
        cursor.execute(TERMINATE_OTHERS)
    deadline = time.monotonic() + 60

    while json.loads(ask(f"{web.url}/readyz")[2])["checks"]["database"] != "ok":
        assert time.monotonic() < deadline

    assert ask(f"{web.url}/accounts/login/")[0] == 200


def test_a_database_that_does_not_answer_is_told_in_words(web: Process) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("LOCK TABLE workspaces_heartbeat")
        status, _, said = ask(f"{web.url}/statusz")

    assert status == 503
    assert json.loads(said)["checks"]["database"] == NO_ANSWER
