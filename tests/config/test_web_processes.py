"""Two processes behind one socket: what belongs to web as a whole is right whichever answers."""

import json
import os
import signal
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from approvals import inbox
from approvals.models import Approval, Tally
from ledger.models import Action
from tests.approvals.cast import put_in_force
from tests.approvals.door import Agent as Trip
from tests.approvals.door import planned
from tests.approvals.test_waiting import IRREVERSIBLE
from tests.config.test_door import ask
from tests.config.test_vanished_hosts import listeners
from tests.config.test_worker import soon
from tests.crash.faults.room import filled, small_disk
from tests.people import acme, ada, ben, leads, operators
from tests.processes import Process, Processes
from workspaces import keys
from workspaces.models import Agent

__all__ = ["acme", "ada", "ben", "leads", "operators"]
pytestmark = pytest.mark.django_db(transaction=True)
ANSWERED = 'amends_hot_request_seconds_count{method="GET",path="/healthz",status="200"}'


@pytest.fixture
def web(processes: Processes) -> Process:
    return processes.web(AMENDS_WEB_PROCESSES="2", AMENDS_METRICS_TOKEN="")


def serving(parent: int) -> set[int]:
    """Its children that run, without the one that multiprocessing keeps for itself."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, above, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            is_ours = b"spawn_main" in (folder / "cmdline").read_bytes()
        except OSError:
            continue  # it ended while we looked
        if int(above) == parent and is_ours and state != "Z":
            found.add(int(folder.name))
    return found


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def web_of_two(processes: Processes) -> Process:
    """For whoever counts no listeners: both serve, also where a story before killed one."""
    found = processes.kept_web(AMENDS_WEB_PROCESSES="2")
    assert soon(lambda: len(serving(found.pid)) == 2)
    return found


def answered(web: Process) -> float:
    lines = ask(f"{web.url}/metrics")[2].decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(ANSWERED))


def test_whichever_is_asked_tells_what_both_have_counted_also_once_one_was_killed(
    web_of_two: Process,
) -> None:
    before = answered(web_of_two)
    for _ in range(40):
        assert ask(f"{web_of_two.url}/healthz")[0] == 200

    assert {answered(web_of_two) - before for _ in range(10)} == {40.0}

    killed = min(serving(web_of_two.pid))
    os.kill(killed, signal.SIGKILL)
    assert soon(lambda: killed not in serving(web_of_two.pid) and len(serving(web_of_two.pid)) == 2)
    assert {answered(web_of_two) - before for _ in range(10)} == {40.0}
    assert ask(f"{web_of_two.url}/healthz")[0] == 200


def test_who_waits_in_either_is_told_what_was_decided_elsewhere(
    web: Process, acme: Any, ada: Any, ben: Any, leads: Any
) -> None:
    agent = Agent.objects.create(workspace=acme, name="trip-agent", owner=ada)
    _, token = keys.create_key(agent, by=None, name="test")
    Trip(token).begin(**IRREVERSIBLE)
    approval = Approval.objects.get()
    others = listeners()  # web processes that are kept for other tests

    def waits() -> str:
        path = f"{web.url}/api/v1/approvals/{approval.pk}?wait=60"
        asked = urllib.request.Request(path, headers={"authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=120) as answer:
            return str(json.load(answer)["state"])

    with ThreadPoolExecutor(128) as agents:
        told = [agents.submit(waits) for _ in range(32)]

        def each_has_some() -> bool:
            """The kernel chooses which process gets a connection; so one more asks."""
            if len(told) < 128:
                told.append(agents.submit(waits))
            return bool(listeners() == others + 2)

        assert soon(each_has_some)
        inbox.grant(approval, by=ben, seen=approval.digest)
        assert {one.result(timeout=120) for one in told} == {"granted"}


def test_who_waits_is_answered_before_a_process_ends(
    web: Process, acme: Any, ada: Any, leads: Any
) -> None:
    """As in an upgrade: no wait is cut off, and the client asks whoever comes next."""
    agent = Agent.objects.create(workspace=acme, name="trip-agent", owner=ada)
    _, token = keys.create_key(agent, by=None, name="test")
    Trip(token).begin(**IRREVERSIBLE)
    others = listeners()
    paths = [
        f"approvals/{Approval.objects.get().pk}",
        "runs/run_1/directive",
        "runs/run_9/directive",
    ]

    def waits(path: str) -> int:
        asked = urllib.request.Request(
            f"{web.url}/api/v1/{path}?wait=60", headers={"authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(asked, timeout=120) as answer:
            json.load(answer)
            return int(answer.status)

    with ThreadPoolExecutor(24) as agents:
        told = [agents.submit(waits, path) for path in paths * 8]
        assert soon(lambda: listeners() > others)
        time.sleep(2)  # the last of them has arrived, and waits
        os.kill(web.pid, signal.SIGTERM)
        assert [one.result(timeout=120) for one in told] == [200] * 24
    assert soon(lambda: not web.alive())
    assert "graceful shutdown exceeded" not in web.said()


def test_a_full_disk_below_what_is_counted_ends_no_process_and_keeps_none_from_its_start(
    processes: Processes, tmp_path: Path
) -> None:
    """Figures are written as to memory: where no page is left, that is the end of who counts."""
    with small_disk(tmp_path / "small") as disk:
        web = processes.web(AMENDS_WEB_PROCESSES="2", AMENDS_METRICS_TOKEN="", TMPDIR=str(disk))
        assert soon(lambda: len(serving(web.pid)) == 2)
        before = serving(web.pid)
        with filled(disk):
            paths = ("runs/1/directive", "approvals/1", "policy", "events", "actions/begin")
            for path in paths * 8:  # each kind of answer takes room of its own
                ask(f"{web.url}/api/v1/{path}", method="POST" if path in paths[3:] else "GET")
            assert serving(web.pid) == before, web.said()
            killed = before.pop()
            os.kill(killed, signal.SIGKILL)
            assert soon(lambda: len(serving(web.pid) - before - {killed}) == 1)
            [new] = serving(web.pid) - before
            for _ in range(40):
                assert ask(f"{web.url}/healthz")[0] == 200
            assert new in serving(web.pid), web.said()
            assert answered(web) > 0
        processes.stop()


def test_both_together_let_no_more_go_on_than_a_sum_lets_also_while_one_is_killed(
    web_of_two: Process, acme: Any, ada: Any, leads: Any
) -> None:
    """Fifty agents; whoever hears nothing asks again with the same try, as clients do."""
    rule = {"when": "sum(args.amount, over: '24h') > 1000", "approval": "DENY"}
    put_in_force(acme, ada, {"policies": {"pay.*": [rule, {"approval": "AUTO"}]}})
    agent = Agent.objects.create(workspace=acme, name="pay-agent", owner=ada)
    _, token = keys.create_key(agent, by=None, name="test")
    killed: list[int] = []

    def begin(number: int) -> str:
        body = planned(tool="pay.refund", run=f"run_{number % 7}", action=f"act_{number}",
                       key=f"k{number}", args={"amount": 99}, targets=[])  # fmt: skip
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        asked = urllib.request.Request(
            f"{web_of_two.url}/api/v1/actions/begin", json.dumps(body).encode(), headers
        )
        for _ in range(60):
            try:
                with urllib.request.urlopen(asked, timeout=60) as answer:
                    return str(json.load(answer)["answer"])
            except urllib.error.HTTPError as refused:
                if refused.code not in {409, 503}:
                    raise
            except OSError:
                if not killed:
                    raise
            time.sleep(0.1)
        raise AssertionError("no answer came")

    with ThreadPoolExecutor(50) as agents:
        asked = [agents.submit(begin, number) for number in range(100)]
        assert soon(lambda: Action.objects.filter(state="running").count() >= 3)
        killed.append(min(serving(web_of_two.pid)))
        os.kill(killed[0], signal.SIGKILL)
        answers = [one.result(timeout=120) for one in asked]

    assert answers.count("proceed") == 10
    assert answers.count("denied") == 90
    assert Action.objects.filter(state="running").count() == 10
    assert sum(map(float, Tally.objects.get().buckets.values())) == 990


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_none_is_left_when_the_one_that_started_them_ends(web_of_two: Process, number: int) -> None:
    both = serving(web_of_two.pid)
    assert len(both) == 2

    os.kill(web_of_two.pid, number)

    assert soon(lambda: not any(runs(one) for one in both) and not web_of_two.alive())
