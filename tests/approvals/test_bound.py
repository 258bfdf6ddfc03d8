"""What a grant is bound to beside the call: its run, its person, and how it would be undone; and
what a call is known by that names no key.

And how questions end: with their run, with their call, and at twenty of one agent.
"""

import asyncio
import threading

import msgspec
import psycopg
import pytest
from django.conf import settings

from approvals import approval_requests, inbox, memory, notifications
from approvals.models import Approval, ApprovalState, Denial, NotificationKind
from ledger.append import statements
from ledger.models import Action, Event
from ledger.wire import EVENT_BYTES_MAX
from recovery.models import Case
from recovery.triage import triage
from tests.approvals import test_gate
from tests.approvals.cast import told
from tests.approvals.door import planned, visit
from tests.locks import waits
from workspaces import locks
from workspaces.models import Agent

pytestmark = pytest.mark.django_db(transaction=True)

trip = test_gate.trip
MIA, NOA = {"id": "mia", "name": "Mia Li"}, {"id": "noa", "name": "Noa Kay"}
UNDO = {"connection": "bank", "operation": "refund", "args": {"to": "mia"}}


def grant(by):
    approval = Approval.objects.latest("pk")
    inbox.grant(approval, by=by, seen=approval.digest, reason="fine")
    return approval


def states():
    return [one.state for one in Approval.objects.order_by("pk")]


def reason(approval):
    approval.refresh_from_db()
    return approval.closing_reason


def test_a_grant_asked_for_mia_is_not_used_by_another_run_for_noa(trip, acme, ben):
    trip.send("run.started", run="run_mia", on_behalf_of=MIA)
    trip.send("run.started", run="run_noa", on_behalf_of=NOA)
    trip.begin(tool="pay.card", run="run_mia", attempt="a1")
    grant(ben)

    asked = trip.begin(tool="pay.card", run="run_noa", attempt="b1").json()

    assert asked["answer"] == "wait"
    assert states() == [ApprovalState.GRANTED, ApprovalState.WAITING]
    assert not Event.objects.filter(type="action.started").exists()
    mias, noas = Approval.objects.order_by("pk")
    assert mias.digest != noas.digest
    assert noas.calls[0]["more"]["on_behalf_of"] == NOA
    assert trip.begin(tool="pay.card", run="run_mia", attempt="a1").json()["answer"] == "proceed"
    assert states() == [ApprovalState.USED, ApprovalState.WAITING]


def test_a_no_to_one_run_is_a_question_in_another_and_each_uses_its_own_yes(trip, ben):
    trip.begin(tool="pay.card", run="run_mia", attempt="a1")
    refused = Approval.objects.get()
    inbox.reject(refused, by=ben, seen=refused.digest, reason="not for Mia")

    for _ in range(2):
        asked = trip.begin(tool="pay.card", run="run_noa", action="act_7", attempt="b1").json()
        assert asked["answer"] == "wait"

    assert Action.objects.filter(run__run="run_noa").count() == 1
    grant(ben)
    said = trip.begin(tool="pay.card", run="run_noa", action="act_8", attempt="b1").json()
    assert (said["answer"], said["run"], said["action"]) == ("proceed", "run_noa", "act_7")
    assert states() == [ApprovalState.REJECTED, ApprovalState.USED]


@pytest.mark.parametrize("what", ["person", "compensation"])
def test_what_else_is_bound_is_asked_anew_with_the_difference(trip, ben, what):
    if what != "person":
        trip.send("run.started", on_behalf_of=MIA)
    trip.begin(tool="pay.card", attempt="a1", compensation=UNDO)
    first = grant(ben)
    undo = UNDO
    if what == "person":
        trip.send("run.started", on_behalf_of=NOA)
    else:
        undo = UNDO | {"args": {"to": "mallory"}}

    said = trip.begin(tool="pay.card", attempt="a1", compensation=undo).json()

    assert said["answer"] == "wait"
    assert states() == [ApprovalState.WITHDRAWN, ApprovalState.WAITING]
    words = {"person": "on_behalf_of", "compensation": "compensation.args.to"}
    assert words[what] in reason(first)
    anew = Approval.objects.latest("pk")
    told_of = [reason(first), anew.reason, notifications.in_full(anew, NotificationKind.ASKED).text]
    assert not any(value in one for value in ("mallory", "Mia", "Noa") for one in told_of), (
        "messages and pages for everybody name what differs, and no value of it"
    )
    assert Action.objects.get().compensation == undo, "what is approved is what is on record"
    grant(ben)
    said = trip.begin(tool="pay.card", attempt="a1", compensation=undo).json()
    assert said["answer"] == "proceed"


def test_a_question_ends_with_its_run_and_whoever_asked_is_told_why(trip, acme):
    trip.begin(tool="pay.card", attempt="a1")
    trip.begin(tool="pay.card", run="run_2", key="key-2")
    trip.send("run.failed", error={"type": "Crash"})

    assert (approval_requests.sweep(), approval_requests.sweep()) == (1, 0)

    ended, stands = Approval.objects.order_by("pk")
    assert (ended.state, stands.state) == (ApprovalState.WITHDRAWN, ApprovalState.WAITING)
    assert told(acme, "approval.withdrawn")[0]["reason"] == "its run has failed"
    heard = trip.request("GET", f"/api/v1/approvals/{ended.pk}").json()
    assert (heard["state"], heard["reason"]) == ("withdrawn", "its run has failed")


@pytest.mark.parametrize("action", ["act_1", "act_9"])
@pytest.mark.parametrize("state", ["waiting", "granted"])
def test_an_approval_ends_where_its_call_was_made_without_it(trip, ben, action, state):
    """Under its own action id or another one: the key says that it is the same call."""
    trip.begin(tool="pay.card", attempt="a1")
    if state == "granted":
        grant(ben)
    if action == "act_9":
        trip.send(
            "action.planned", action=action, tool="pay.card", key="key-1", args={"name": "Eve"}
        )
    trip.send("action.succeeded", action=action, attempt="a1")

    approval_requests.sweep()

    assert states() == [ApprovalState.WITHDRAWN]
    assert reason(Approval.objects.get()) == approval_requests.RAN_WITHOUT
    triage.look()
    assert Case.objects.get().reasons == ["unapproved"]


def test_questions_of_ended_runs_lock_no_agent_out(trip):
    for number in range(20):
        trip.begin(tool="pay.card", run=f"run_{number}", key=f"key-{number}")
    refused = trip.begin(tool="pay.card", run="run_x", key="key-x").json()
    assert (refused["answer"], refused["code"]) == ("denied", "too_many_open")
    assert "then ask again under the same key" in refused["reason"]

    trip.send("run.completed", run="run_0")

    assert trip.begin(tool="pay.card", run="run_x", key="key-x").json()["answer"] == "wait"


def test_twenty_are_twenty_though_all_ask_at_once(trip):
    """Eight askers under keys of their own stand behind one barrier, where two places are left."""
    for number in range(18):
        trip.begin(tool="pay.card", run=f"run_{number}", key=f"key-{number}")
    asks = [planned(tool="pay.card", run=f"run_b{n}", key=f"key-b{n}") for n in range(8)]

    async def all_at_once(client):
        headers = {"authorization": f"Bearer {trip.token}"}
        path = "/api/v1/actions/begin"
        sent = [client.post(path, json=ask, headers=headers) for ask in asks]
        return [answer.json() for answer in await asyncio.gather(*sent)]

    with psycopg.connect(settings.DATABASE_URL) as barrier:
        barrier.execute("LOCK TABLE approvals_approval IN EXCLUSIVE MODE")  # nobody writes theirs
        answers = run_behind(all_at_once, barrier)

    said = sorted((one["answer"], one.get("code")) for one in answers)
    assert said == [("denied", "too_many_open")] * 6 + [("wait", None)] * 2
    assert Approval.objects.filter(state="waiting").count() == 20


def test_a_question_of_a_new_run_locks_the_run_before_the_agent(trip):
    """Somebody opens the run just now. Whoever asks meanwhile waits for the run, with the agent
    free, or the two would wait for each other as soon as the other one asks, too.
    """
    asks = threading.Thread(target=trip.begin, kwargs={"tool": "pay.card", "run": "run_new"})
    with psycopg.connect(settings.DATABASE_URL) as other:
        agent = Agent.objects.get()
        other.execute(statements.NEW_RUNS, [agent.workspace_id, agent.pk, ["run_new"]])
        asks.start()
        waits(1)

        other.execute(f"SELECT id FROM workspaces_agent {locks.ROW_LOCK} NOWAIT")

        other.commit()
    asks.join(60)
    assert Approval.objects.get().state == ApprovalState.WAITING


def run_behind(story, barrier):
    """Run the story, and open the barrier when all eight stand behind it."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"

    async def with_barrier(client):
        going = asyncio.ensure_future(story(client))
        for _ in range(600):
            if going.done() or barrier.execute(waiting).fetchone()[0] >= 8:
                break
            await asyncio.sleep(0.1)
        barrier.commit()
        return await going

    return visit(with_barrier, connections_max=16)


@pytest.mark.parametrize("keys", ["the same call", "other calls"])
@pytest.mark.parametrize("known", [True, False])
def test_a_run_that_hits_a_rule_again_and_again_is_a_case(trip, acme, keys, known):
    if known:
        trip.send("run.started", on_behalf_of=MIA)

    def asks(number):
        key = "key-1" if keys == "the same call" else f"key-{number}"
        said = trip.begin(tool="never.delete", key=key).json()
        assert (said["answer"], said["code"]) == ("denied", "rule")
        triage.look()

    for number in range(memory.DENIED_OFTEN - 1):
        asks(number)
    assert not Case.objects.exists()

    for number in range(3):
        asks(100 + number)

    case = Case.objects.get()
    assert (case.reasons, case.run.run) == (["denied_often"], "run_1")
    assert "never.delete" in case.evidence[0]["words"]
    noted = 1 if keys == "the same call" else memory.DENIED_OFTEN + 2
    assert len(told(acme, "approval.denied")) == Denial.objects.count() == noted


def test_denials_of_one_run_are_not_counted_for_another(trip):
    for number in range(memory.DENIED_OFTEN + 5):
        trip.begin(tool="never.delete", run=f"run_{number % 3}")
    triage.look()
    assert not Case.objects.exists()


@pytest.mark.parametrize("between", ["a try without effect", "an approval"])
def test_what_is_restored_is_what_the_try_that_ran_has_seen(trip, ben, between):
    """Between two tries somebody sets another balance: an undo to the first would lose theirs."""
    tool = "pay.card" if between == "an approval" else "crm.update"
    first = trip.begin(tool=tool, before={"balance": 5}, attempt="a1")
    if between == "an approval":
        grant(ben)
    else:
        trip.failed(first, attempt="a1", outcome="no_effect")

    now = {"before": {"balance": 6}, "class_": "external_irreversible", "saga": "pivot"}
    asked = trip.begin(tool=tool, attempt="a2", **now)
    if asked.json()["answer"] == "wait":
        grant(ben)
        asked = trip.begin(tool=tool, attempt="a2", **now)
    trip.succeeded(asked, attempt="a2", after={"balance": 9})

    action = Action.objects.get()
    effect = action.effects.get()
    assert (effect.before, effect.after, action.flags) == ({"balance": 6}, {"balance": 9}, [])
    assert (action.action_class, action.saga) == ("external_irreversible", "pivot")


def test_a_question_still_waits_where_only_its_place_in_the_saga_is_said_anew(trip, ben):
    asked = trip.begin(tool="pay.card", attempt="a1").json()

    again = trip.begin(tool="pay.card", attempt="a1", saga="pivot").json()

    assert (again["answer"], again["approval"]) == ("wait", asked["approval"])
    grant(ben)
    assert trip.begin(tool="pay.card", attempt="a1", saga="pivot").json()["answer"] == "proceed"
    assert (Action.objects.get().saga, Approval.objects.count()) == ("pivot", 1)


@pytest.mark.parametrize("said", [{"key": None}, {"key": ""}, {}], ids=["null", "empty", "nothing"])
def test_a_call_that_names_no_key_is_found_again_and_never_made_twice(trip, said):
    def begin(attempt):
        asked = planned(attempt=attempt, action=f"act_{attempt}")
        del asked["data"]["key"]
        asked["data"] |= said
        return trip.begin(asked)

    first = begin("a1")
    assert first.json()["answer"] == "proceed"
    assert begin("a2").status_code == 409, "the first try has the call"
    trip.succeeded(first, attempt="a1", result={"id": 7})

    again = begin("a3").json()

    assert (again["answer"], again.get("result")) == ("replay", {"id": 7})
    assert Action.objects.get().key.startswith("sha256:")


def test_a_call_that_has_no_room_for_its_key_is_refused(trip):
    """Without the key on record the next try would not find the call, and would make it again."""
    asked = planned(attempt="a1", args={"text": ""})
    del asked["data"]["key"], asked["attempt"]
    room = EVENT_BYTES_MAX - len(msgspec.json.encode(asked))
    asked["data"]["args"]["text"] = "x" * (room - 40)

    refused = trip.begin(asked | {"attempt": "a1"})

    assert (refused.status_code, Action.objects.count()) == (413, 0)
