"""The usual `begin` in one statement: the same rows as the slow path, or none at all."""

import asyncio
import datetime as dt
import json
import os
import threading
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.db.models import F

from approvals import inbox, pauses, versions
from approvals.gate import slow_path
from approvals.gate.begin import begin_fast
from approvals.gate.begin_request import parse
from approvals.gate.slow_path import THREADS_MAX as SLOW_THREADS
from approvals.models import (
    Approval,
    Denial,
    GateKey,
    Reservation,
    Sighting,
    Tally,
)
from approvals.policy import active_policies
from ledger.models import Action, Attempt, Event, EventKey, Run, Unsealed
from ledger.parsed_events import Actor, new_id
from tests.approvals.cast import asker, refund
from tests.approvals.door import Agent as Trip
from tests.approvals.door import planned, visit
from tests.locks import waits
from tests.worlds import kept
from workspaces import keys
from workspaces.models import Agent

pytestmark = pytest.mark.django_db(transaction=True)

POLICY = {"policies": {"pay.*": {"approval": "MANUAL"}, "crm.*": {"approval": "AUTO"}}}
BY_LABEL = {"policies": {"crm.*": {"when": "labels.tier == 'gold'", "approval": "MANUAL"}}}
MEMORY = {
    "policies": {
        "crm.*": [
            {"when": "sum(args.amount, per: tool, over: '24h') > 100", "approval": "MANUAL"},
            {"when": "count(per: target, over: '1h') > 9", "approval": "MANUAL"},
            {"when": "known(args.to) && args.amount > 60", "approval": "MANUAL"},
            {"approval": "AUTO"},
        ],
        "pay.*": {"when": "called('crm.*') > 0", "approval": "MANUAL"},
        "mail.*": {"when": "sum(args.amount, per: person, over: '24h') > 9", "approval": "MANUAL"},
    }
}
REMEMBERED = (Tally, Reservation, Sighting)
TABLES: tuple[Any, ...] = (Run, Action, Attempt, Event, EventKey, Unsealed, GateKey, *REMEMBERED)
OF_THE_ROW = {
    "id", "pk", "place", "first_place", "last_place", "salt", "digest", "content", "event_id",
    "run_id", "action_id", "agent_id", "workspace_id", "tally_id",
}  # fmt: skip


@pytest.fixture
@kept(in_turn=True)
def trip(key, acme, ada, ben, leads):
    obey(acme, POLICY, ada)
    return Trip(key)


def obey(workspace, document, by):
    versions.activate(versions.save(workspace, json.dumps(document), by=by), by=by)


def actor_of(agent, **more):
    workspace = agent.workspace
    return Actor(workspace.pk, workspace.slug, "agent", agent.name, agent.pk, "0123456789", **more)


def hear(request, *, fast):
    """The answer of one of the two ways, as the door would get it."""

    async def story(_client):
        if fast:
            return await begin_fast(request)
        return await slow_path.begin_awaited(request)

    return visit(story)


def look_around(agent, **asked):
    """What a process sees that has served this agent a moment ago; nothing is written."""
    active_policies.active(agent.workspace_id)
    hear(asking(agent, **asked), fast=False)


def asking(agent, *, explain=True, trusted=False, **asked):
    body = json.dumps(planned(**asked)).encode()
    return parse(body, actor_of(agent, trusted=trusted), explain=explain)


def rows(workspace_id):
    """Every row that a begin can leave, without what differs between any two."""
    found = {}
    for table in TABLES:
        names = [field.attname for field in table._meta.concrete_fields]
        names = [name for name in names if name not in OF_THE_ROW]
        owner = {
            Attempt: "action__workspace_id",
            GateKey: "agent__workspace_id",
            Reservation: "tally__workspace_id",
        }
        said = table.objects.filter(**{owner.get(table, "workspace_id"): workspace_id})
        if table is Event:
            said = said.filter(type__startswith="action.").order_by("place")
        if table is EventKey:
            said = said.filter(event_id__in=event_ids(workspace_id))
        if table is Unsealed:
            said = said.filter(place__in=Event.objects.filter(
                workspace_id=workspace_id, actor_kind="agent").values("place"))  # fmt: skip
        told = [{name: is_set(value) for name, value in row.items()} for row in said.values(*names)]
        found[table.__name__] = told if table is Event else sorted(told, key=repr)
    return found


def event_ids(workspace_id):
    return Event.objects.filter(workspace_id=workspace_id, actor_kind="agent").values("event_id")


def is_set(value):
    return "a time" if isinstance(value, dt.datetime) else value


def test_a_second_call_under_a_pause_that_was_seen_is_denied_too(trip, acme, ada):
    """The first call has shown the pause to this process: the fast way is then asked first."""
    twins = {"crm.*": [{"connection": "crm", "operation": "restore", "args": {}}]}
    obey(acme, POLICY | {"twins": twins}, ada)
    assert trip.begin(key="key-0", action="act_0").json()["answer"] == "proceed"
    names = {"workspace": "", "agent": "desk-agent", "run": "run_1", "tool": "crm.*",
             "connection": "crm"}  # fmt: skip
    for begun, (kind, name) in enumerate(names.items(), 1):
        placed = pauses.pause(acme, kind, name, by=ada, reason="wrong bookings")

        for number in (1, 2, 3):
            said = trip.begin(key=f"{kind}-{number}", action=f"{kind}_{number}").json()
            assert (said["answer"], said.get("code")) == ("denied", "paused"), kind

        assert Action.objects.count() == begun
        pauses.lift(placed, by=ada)
        assert trip.begin(key=f"{kind}-1", action=f"{kind}_1").json()["answer"] == "proceed"


RICH = {
    "n": 7,
    "retry": "tool",
    "risk": "low",
    "saga": "pivot",
    "op": "rename",
    "intent": {"goal": "tidy up", "confidence": 0.5},
    "before": [{"name": "Eva", "big": 1e300, "empty": None}],
    "compensation": {"connection": "crm", "operation": "restore", "args": {}},
    "args": {"password": "hunter2", "card": "4111 1111 1111 1111", "names": ["Åsa", "\u2028"]},
    "key": "k" * 200,
}  # fmt: skip


@pytest.mark.parametrize(
    "asked",
    [{}, RICH, {"targets": [], "args": None}, {"class_": "read_only", "trusted": True},
     {"class_": "external_irreversible"}],
    ids=["plain", "rich", "bare", "trusted", "no way back"],
)  # fmt: skip
@pytest.mark.parametrize("is_open", [False, True], ids=["new run", "open run"])
def test_both_ways_leave_the_same_rows(acme, globex, ada, dev, agent, asked, is_open):
    twin = Agent.objects.create(workspace=globex, name=agent.name)
    asked = {"id": new_id(), "attempt": "a1", **asked}
    for one, by in ((agent, ada), (twin, dev)):
        obey(one.workspace, POLICY | {"order": "ASK"}, by)
        look_around(one)
        if is_open:
            them = Trip(keys.create_key(one, by=None, name="test")[1])
            them.send("run.started", labels={"tier": "gold"}, request="tidy up")

    quick = hear(asking(agent, explain=False, **asked), fast=True)
    general = hear(asking(twin, explain=False, **asked), fast=False)

    assert (quick.body["answer"], quick.body["fence"]) == ("proceed", 1)
    assert quick.body.keys() == general.body.keys()
    assert rows(acme.pk) == rows(globex.pk)


def test_both_ways_remember_the_same(acme, globex, ada, dev, agent):
    twin = Agent.objects.create(workspace=globex, name=agent.name)
    for one, by in ((agent, ada), (twin, dev)):
        obey(one.workspace, MEMORY, by)
        look_around(one, args={"amount": 1, "to": "Eve"})

    for number, (amount, to) in enumerate([(61, "Eve"), (10, "Mia"), (20.5, "Eve")]):
        asked = {"id": new_id(), "attempt": "a1", "args": {"amount": amount, "to": to}}
        asked |= {"key": f"key-{number}", "action": f"act_{number}"}
        quick = hear(asking(agent, explain=False, **asked), fast=True)
        general = hear(asking(twin, explain=False, **asked), fast=False)
        assert quick.body["answer"] == general.body["answer"] == "proceed"

    assert Reservation.objects.count() == 12
    assert rows(acme.pk) == rows(globex.pk)
    over = asking(agent, explain=False, key="key-9", action="act_9", args={"amount": 10, "to": "B"})
    assert hear(over, fast=True) is None
    assert Reservation.objects.count() == 12


def test_where_somebody_else_was_counted_meanwhile_nothing_is_written(trip, acme, ada, agent):
    """Both have read the sum; the second goes on first, for the first waits for its run."""
    obey(acme, MEMORY, ada)
    assert trip.begin(key="k0", action="act_0", args={"amount": 1, "to": "B"}).status_code == 200
    asked = {"args": {"amount": 60, "to": "Eve"}, "key": "k1", "action": "act_1"}
    look_around(agent, **asked)
    second = {**asked, "run": "run_2", "key": "k2", "action": "act_2"}
    first, second = (asking(agent, explain=False, **one) for one in (asked, second))

    async def story(_client):
        with psycopg.connect(os.environ["DATABASE_URL"]) as recovery:
            recovery.execute("SELECT FROM ledger_run WHERE run = 'run_1' FOR UPDATE")
            waiting = asyncio.create_task(begin_fast(first))
            await asyncio.to_thread(waits_in_thread)
            reply = await begin_fast(second)
        return reply, await waiting

    replies = visit(story)

    assert (replies[0].body["answer"], replies[1]) == ("proceed", None)
    assert Reservation.objects.count() == 4
    assert set(Action.objects.values_list("action", flat=True)) == {"act_0", "act_2"}
    assert not GateKey.objects.filter(key="k1").exists()
    assert trip.begin(**asked).json()["answer"] == "wait"


def test_a_plan_that_is_approved_since_the_sum_was_read_is_counted(trip, acme, ada, ben, agent):
    """Its yes comes while the call waits for its run: the call is judged anew, by what stands."""
    obey(acme, MEMORY, ada)
    assert trip.begin(key="k0", action="act_0", args={"amount": 1, "to": "B"}).status_code == 200
    asked = {"args": {"amount": 60, "to": "Eve"}, "key": "k1", "action": "act_1"}
    look_around(agent, **asked)
    call = asking(agent, explain=False, **asked)
    step = replace(refund(60), connection="crm", operation="update")
    approval = asker(acme, ada)(calls=[step])

    def approve():
        inbox.grant(approval, by=ben, seen=approval.digest, reason="fine")
        connection.close()

    async def story(_client):
        with psycopg.connect(os.environ["DATABASE_URL"]) as recovery:
            recovery.execute("SELECT FROM ledger_run WHERE run = 'run_1' FOR UPDATE")
            waiting = asyncio.create_task(begin_fast(call))
            await asyncio.to_thread(waits_in_thread)
            await asyncio.to_thread(approve)
        return await waiting

    assert visit(story) is None
    assert not GateKey.objects.filter(key="k1").exists()
    assert trip.begin(**asked).json()["answer"] == "wait"


def waits_in_thread():
    waits(1)
    connection.close()


@pytest.mark.parametrize("tool", ["pay.refund", "mail.send"])
def test_what_the_run_or_its_person_decides_is_not_guessed(trip, acme, ada, agent, tool):
    obey(acme, MEMORY, ada)
    trip.send("run.started", on_behalf_of={"id": "eve"})
    look_around(agent, tool=tool, args={"amount": 1})

    asked = asking(agent, tool=tool, args={"amount": 1}, explain=False)
    assert hear(asked, fast=True) is None
    assert trip.begin(tool=tool, args={"amount": 1}).json()["answer"] == "proceed"


def held(trip, acme, ada, agent):
    trip.begin(action="act_0", key="key-0")
    Run.objects.update(held_by="case 12")


def forgotten(trip, acme, ada, agent):
    trip.begin(action="act_0", key="key-0")
    Run.objects.update(forgotten_at=dt.datetime.now(dt.UTC))


def ended(trip, acme, ada, agent):
    trip.begin(action="act_0", key="key-0")
    trip.send("run.completed", summary="done")


def unproven(trip, acme, ada, agent):
    trip.begin(action="act_0", key="key-0")
    trip.send("action.verified", action="act_0", ok=False, checks=[])


def key_met(trip, acme, ada, agent):
    trip.begin(action="act_0")


def key_met_elsewhere(trip, acme, ada, agent):
    trip.send("action.planned", run="run_0", action="act_0", tool="crm.update", key="key-1")


def action_met(trip, acme, ada, agent):
    trip.begin(key="key-0")


def action_spoken_of(trip, acme, ada, agent):
    trip.send("action.started", action="act_1", attempt="a0")


def stranger(trip, acme, ada, agent):
    other = Agent.objects.create(workspace=acme, name="other")
    Trip(keys.create_key(other, by=None, name="x")[1]).begin(action="act_0", key="key-0")


def paused(trip, acme, ada, agent):
    pauses.pause(acme, "tool", "never.*", by=ada, reason="who knows")


def obeying_another(trip, acme, ada, agent):
    obey(acme, {"policies": {"*": {"approval": "DENY"}}}, ada)


def asked_before(trip, acme, ada, agent):
    trip.begin(tool="pay.card", action="act_0", run="run_0")
    with connection.cursor() as owner:  # only the tables' owner turns the clock back
        owner.execute("ALTER TABLE approvals_gatekey DISABLE TRIGGER gate_key_keeps_its_age")
        GateKey.objects.update(met_at=F("met_at") - dt.timedelta(days=400))
        owner.execute("ALTER TABLE approvals_gatekey ENABLE TRIGGER gate_key_keeps_its_age")
    GateKey.objects.all().delete()  # by its age, as retention does
    Action.objects.update(key="", action="act_0")


def event_met(trip, acme, ada, agent):
    event = {"id": "ev-1", "type": "run.started", "run": "run_0", "data": {}}
    trip.request("POST", "/api/v1/events", [event])


@pytest.mark.parametrize(
    "story",
    [
        held, forgotten, ended, unproven, key_met, key_met_elsewhere, action_met,
        action_spoken_of, stranger, paused, obeying_another, asked_before, event_met,
    ],
    ids=lambda story: story.__name__,
)  # fmt: skip
def test_what_is_not_as_it_was_seen_is_left_alone(trip, acme, ada, agent, story):
    look_around(agent)
    story(trip, acme, ada, agent)
    tables = (*TABLES, Approval)
    before = [table.objects.count() for table in tables]
    revisions = list(Run.objects.order_by("pk").values_list("revision", flat=True))

    assert hear(asking(agent, explain=False, id="ev-1"), fast=True) is None

    assert [table.objects.count() for table in tables] == before
    assert list(Run.objects.order_by("pk").values_list("revision", flat=True)) == revisions


def test_a_policy_that_reads_labels_is_held_against_those_of_the_run(trip, acme, ada, agent):
    obey(acme, BY_LABEL, ada)
    look_around(agent)
    trip.send("run.started", labels={"tier": "gold"})

    assert hear(asking(agent, explain=False), fast=True) is None
    assert trip.begin().json()["answer"] == "wait"

    trip.send("run.started", run="run_2", labels={"tier": "tin"})
    first = trip.begin(run="run_2", action="act_2", key="key-2").json()
    again = asking(agent, explain=False, run="run_2", action="act_3", key="key-3")
    assert first["answer"] == "proceed"
    assert hear(again, fast=True).body["answer"] == "proceed"


def test_after_a_pivot_the_order_law_is_the_general_ways(trip, acme, ada, agent):
    obey(acme, POLICY | {"order": "DENY"}, ada)
    look_around(agent)
    trip.begin(action="act_0", key="key-0", saga="pivot")

    assert hear(asking(agent, explain=False), fast=True) is None
    retriable = asking(agent, explain=False, saga="retriable")
    assert hear(retriable, fast=True).body["answer"] == "proceed"


@pytest.mark.parametrize("quickly", [True, False], ids=["fast", "slow"])
def test_a_call_waits_while_its_run_is_taken_into_recovery(trip, agent, quickly):
    """Whoever begins a plan holds the run; no call slips in between their look and their word."""
    assert trip.begin(key="k1", action="act_1").json()["answer"] == "proceed"
    look_around(agent, tool="crm.update", key="k2", action="act_2")
    told = []

    def call():
        asked = asking(agent, tool="crm.update", key="k2", action="act_2", explain=False)
        told.append(hear(asked, fast=quickly))

    with psycopg.connect(os.environ["DATABASE_URL"]) as recovery:
        recovery.execute("SELECT FROM ledger_run WHERE run = 'run_1' FOR UPDATE")
        calling = threading.Thread(target=call)
        calling.start()
        waits(1)
        recovery.execute("UPDATE ledger_run SET held_by = 'case 1' WHERE run = 'run_1'")
    calling.join()

    (said,) = told
    assert said is None or said.body["code"] == "recovery", said
    assert trip.begin(key="k2", action="act_2").json()["code"] == "recovery"
    assert Action.objects.count() == 1


def test_asking_what_would_be_begins_nothing_although_the_quick_way_could(trip, agent):
    look_around(agent, tool="crm.update", key="k1")

    assert hear(asking(agent, tool="crm.update", key="k1", explain=False), fast=True)
    assert hear(asking(agent, tool="crm.update", key="k2", action="act_2"), fast=True) is None
    assert Action.objects.count() == 1


def test_eight_tries_of_one_usual_call_proceed_once(trip, agent):
    look_around(agent)

    async def story(client):
        headers = {"authorization": f"Bearer {trip.token}"}
        asked = [
            client.post("/api/v1/actions/begin", json=planned(), headers=headers) for _ in range(8)
        ]
        return [
            said.json().get("answer", said.status_code) for said in await asyncio.gather(*asked)
        ]

    assert sorted(map(str, visit(story, connections_max=8))) == ["409"] * 7 + ["proceed"]
    assert Event.objects.filter(type="action.started").count() == 1


def test_what_is_no_news_is_answered_while_every_thread_of_the_gate_is_busy(trip, acme, ada):
    obey(acme, POLICY | {"policies": POLICY["policies"] | {"no.*": {"approval": "DENY"}}}, ada)
    asked = {
        "replay": ("proceed", {"tool": "crm.update", "attempt": "a1"}, {"attempt": "a2"}),
        "busy": ("proceed", {"tool": "crm.update", "attempt": "a1"}, {"attempt": "a2"}),
        "same": ("proceed", {"tool": "crm.update", "attempt": "a1"}, {}),
        "retry": ("proceed", {"tool": "crm.update", "attempt": "a1"}, {"attempt": "a2"}),
        "asked": ("wait", {"tool": "pay.refund"}, {}),
        "denied": ("denied", {"tool": "no.way"}, {}),
    }
    for name, (first, call, _) in asked.items():
        assert trip.begin(**of_its_own(name, call)).json()["answer"] == first
    trip.send("action.succeeded", run="replay", action="act_replay", attempt="a1", fence=1)
    trip.send("action.failed", run="retry", action="act_retry", attempt="a1", fence=1,
             outcome="no_effect", error={"type": "E"})  # fmt: skip
    free = threading.Event()

    async def story(client):
        busy = [
            asyncio.create_task(slow_path.run_in_thread(free.wait)) for _ in range(SLOW_THREADS)
        ]
        try:
            headers = {"authorization": f"Bearer {trip.token}"}
            said = {}
            for name, (_, call, more) in asked.items():
                body = planned(**of_its_own(name, call | more))
                posted = client.post("/api/v1/actions/begin", json=body, headers=headers)
                answered = (await asyncio.wait_for(posted, 20)).json()
                said[name] = answered.get("answer") or answered["type"].rpartition(":")[2]
        finally:
            free.set()
            await asyncio.gather(*busy)
        return said

    assert visit(story) == {
        "replay": "replay", "busy": "in-progress", "same": "proceed", "retry": "proceed",
        "asked": "wait", "denied": "denied",
    }  # fmt: skip
    assert Denial.objects.get().times == 2


def of_its_own(name, call):
    """A call of a run and a key that are named so."""
    return call | {"run": name, "action": f"act_{name}", "key": name}


def test_what_the_quick_way_began_can_be_finished_and_replayed(trip, agent):
    look_around(agent)
    said = trip.begin(attempt="a1")
    assert GateKey.objects.get().attempt == "a1"

    trip.succeeded(said, attempt="a1", result={"id": "r9"})

    again = trip.begin(attempt="a2").json()
    assert (again["answer"], again["result"]) == ("replay", {"id": "r9"})
    assert (Run.objects.get().action_count, Action.objects.get().state) == (1, "succeeded")
