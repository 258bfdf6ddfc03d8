"""F18 and F20 in web processes: one whose connections all wait, and ones with wrong clocks."""

import json
import threading
import urllib.request
from datetime import timedelta
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError

import psycopg
from django.utils import timezone

from approvals.models import Approval
from ledger.models import Run
from ledger.parsed_events import new_id
from recovery.casework import cases
from recovery.models import Case
from tests.conftest import started
from tests.crash.catalogue import fault
from tests.crash.faults.processes import astray
from tests.crash.oracle import rest, until
from tests.crash.person import Person
from tests.crash.storm import Storm
from tests.recovery.engine.desk import asked, case_of, plan_for
from workspaces import keys

ANSWER_SECONDS_MAX = 60
AHEAD, BEHIND = "300", "-300"


def ask(url: str, token: str, body: Any = None) -> tuple[int, Any]:
    """Status and what was said, whatever it was."""
    content = json.dumps(body).encode() if body is not None else None
    said = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, content, said), timeout=ANSWER_SECONDS_MAX
        ) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as error:
        return error.code, error.headers


@fault("F18 a web process of four connections")
def exhausted(storm: Storm) -> None:
    """A forgotten transaction holds a case, and eight people wait for it with all that there is."""
    web = storm.processes.web(**storm.environment, AMENDS_POOL_SIZE="4", AMENDS_HOT_POOL_SIZE="4")
    here = storm.connection.workspace
    _, persons = keys.create_token(here, by=storm.people.ada, name="script")
    _, agents = keys.create_key(storm.people.handy, by=storm.people.ada, name="k")
    held, api = storm.make("held"), f"{web.url}/api/v1"
    close = {"outcome": "expected", "reason": "as it should be", "revision": held.revision}
    told: list[tuple[int, Any]] = []
    waiting = [
        threading.Thread(
            target=lambda: told.append(ask(f"{api}/cases/{held.pk}/close", persons, close))
        )
        for _ in range(8)
    ]
    storm.begin()
    with psycopg.connect(started["postgres"].url(started["database"])) as forgotten:
        forgotten.execute("SELECT FROM recovery_case WHERE id = %s FOR UPDATE", [held.pk])
        for one in waiting:
            one.start()
        storm.some_time(1, 2)
        assert ask(f"{api}/policy", agents)[0] == 200  # agents have connections of their own
        rest(storm.plans, 60)
        for one in waiting:
            one.join()
    assert [status for status, _ in told] == [503] * 8, told
    assert all(int(headers["Retry-After"]) > 0 for _, headers in told)
    assert ask(f"{api}/cases", persons)[0] == 200
    assert ask(f"{api}/cases/{held.pk}/close", persons, close)[0] < 500


@fault("F20 web processes with wrong clocks")
def webs_astray(storm: Storm) -> None:
    """Five minutes ahead and five behind: keys, claims and approvals end by the database's clock,
    and what a run did through both of them is undone in its own order.
    """
    wrong = {"PYTHONPATH": astray(storm.environment["PYTHONPATH"])}
    with storm.processes.side_by_side():
        webs = [
            storm.processes.web(**storm.environment | wrong, ASTRAY_SECONDS=seconds)
            for seconds in (AHEAD, BEHIND)
        ]
    approval = storm.ask_for(lambda: storm.plan("asked"), expires_seconds=240)
    bens = [Person(storm.people.ben, web.url, storm.connection.workspace) for web in webs]
    over_at_the_doors(storm, [f"{web.url}/api/v1" for web in webs])
    too_late_for(storm, bens)
    storm.make_live_run("alive")
    storm.plans.append(told_to_both(storm, [f"{web.url}/api/v1/events" for web in webs]))
    storm.begin(count=3)
    storm.processes.scheduler(**storm.environment)
    rest([plan for plan in storm.plans if plan.approval_id is None], 90)

    approval.refresh_from_db()
    assert approval.state == "waiting"
    bens[0].approves(approval)  # by the clock of this one it was over long ago
    storm.hint()
    rest(storm.plans, 60)
    assert storm.stolen() == []
    assert not Case.objects.filter(run__run="run_alive").exists()


def too_late_for(storm: Storm, bens: list[Person]) -> None:
    """A question that ended two minutes ago: also where the clock says that it has not yet."""
    plan = plan_for(storm.make("late"), storm.connection)
    approval = asked(plan, storm.people.ada)
    over = timezone.now() - timedelta(minutes=2)
    Approval.objects.filter(pk=approval.pk).update(expires_at=over)
    for ben in bens:
        form = {"decision": "grant", "digest": approval.digest, "reason": "checked"}
        assert ben.decides(approval, **form) == HTTPStatus.CONFLICT
    assert not approval.decisions.exists()


def over_at_the_doors(storm: Storm, apis: list[str]) -> None:
    """Of a key, a token and a claim: one has two minutes left, one is over for two minutes."""
    now, two = timezone.now(), timedelta(minutes=2)
    here, ada = storm.connection.workspace, storm.people.ada
    for moment, wanted in ((now + two, 200), (now - two, 401)):
        persons = keys.create_token(here, by=ada, name="t", expires_at=moment)[1]
        agents = keys.create_key(storm.people.handy, by=ada, name="k", expires_at=moment)[1]
        for api in apis:
            assert ask(f"{api}/cases", persons)[0] == wanted, (api, moment)
            assert ask(f"{api}/policy", agents)[0] == wanted, (api, moment)
    reads = keys.create_token(here, by=ada, name="t")[1]
    case = storm.make("claimed")
    cases.claim(case, by=ada, seen=case.revision)
    for moment, holder in ((now + two, ada.email), (now - two, None)):
        Case.objects.filter(pk=case.pk).update(claimed_until=moment)
        for api in apis:
            assert ask(f"{api}/cases/{case.pk}", reads)[1]["claimed_by"] == holder, (api, moment)


def told_to_both(storm: Storm, doors: list[str]) -> Any:
    """A run whose events went now to one web process and now to the other; the plan to undo it."""
    token = keys.create_key(storm.people.handy, by=storm.people.ada, name="k")[1]
    things = [f"both{number}" for number in range(4)]
    storm.outside.seed({thing: {"v": 2} for thing in things})
    send_event(doors[0], token, 0, "run.started", goal="help")
    for n, thing in enumerate(things, 1):
        target = {"type": "thing", "id": thing}
        send_event(doors[n % 2], token, n, "action.planned", tool="things.set", targets=[target])
        effect = {"target": target, "before": {"v": 1}, "after": {"v": 2}}
        send_event(doors[n % 2], token, n, "action.started", attempt="a1")
        send_event(doors[1 - n % 2], token, n, "action.succeeded", attempt="a1", effects=[effect])
    send_event(doors[0], token, 0, "run.failed", error={"type": "Broken", "message": "it broke"})
    run = Run.objects.get(run="run_both")
    until(lambda: Run.objects.get(pk=run.pk).state == "failed", 60, "the run has failed")
    plan = plan_for(case_of(run), storm.connection)
    undone = list(plan.steps.order_by("position").values_list("target_id", flat=True))
    assert undone == things[::-1]
    return plan


def send_event(door: str, token: str, n: int, kind: str, **data: Any) -> None:
    event = {"id": new_id(), "type": kind, "run": "run_both", "data": data}
    status, answer = ask(door, token, [event | ({"action": f"act_{n}", "n": n} if n else {})])
    assert status == 200, answer
    assert answer["results"][0]["status"] == "accepted", answer
