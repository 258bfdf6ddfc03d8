"""Corners of the table of `begin`: each reason to deny, each way into doubt, each end."""

import itertools
import json
import re
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import msgspec
import psycopg
import pytest
from django.db import connection
from django.utils import timezone

from amends.protocol.vocabulary import KEYS_KEPT_DAYS
from approvals import inbox, memory, pauses, tallies, versions
from approvals.gate import begin_context, covered_questions
from approvals.gate.begin import BeginAnswer
from approvals.gate.waiting import ApprovalStatus
from approvals.models import Approval, ApprovalState, GateKey
from approvals.policy.conditions import Cap
from edge import pools
from ledger.append import events, statements
from ledger.models import Action, ActionState, Compensated, Event
from ledger.parsed_events import new_id
from recovery.edge import PAUSED
from recovery.models import Case
from recovery.triage import triage
from tests import servers
from tests.approvals import test_gate
from tests.approvals.cast import put_in_force, told
from tests.approvals.door import planned, visit
from tests.conftest import started
from tests.ledger.test_large_batches import (
    DEADLOCK,
    LOCKED_OUT,
    NOT_LOCKED_OUT,
    SERIALIZATION,
)
from workspaces import keys
from workspaces.models import Agent

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).parents[2]

trip = test_gate.trip
approve = test_gate.approve


def test_each_pause_denies_until_it_is_lifted(trip, acme, ada):
    pausing = (("workspace", ""), ("agent", "desk-agent"), ("tool", "crm.*"), ("run", "run_1"))
    for number, (kind, name) in enumerate(pausing):
        call = {"key": f"key-{number}", "action": f"act_{number}"}
        placed = pauses.pause(acme, kind, name, by=ada, reason="wrong bookings")
        said = trip.begin(**call).json()
        assert (said["answer"], said["code"]) == ("denied", "paused"), kind
        assert "Ada has paused" in said["reason"]
        assert "wrong bookings" in said["reason"]
        assert Action.objects.count() == number

        pauses.lift(placed, by=ada)
        assert trip.begin(**call).json()["answer"] == "proceed", kind


def test_a_call_that_is_refused_leaves_what_was_prepared_for_others(trip, acme):
    """psycopg forgets all of it at a rollback: others paid for each mistake of one agent."""
    other = keys.create_key(Agent.objects.create(workspace=acme, name="other"), by=None, name="x")

    async def story(client):
        async def begin(token, n):
            asked = planned(action=f"act_{n}", key=f"key-{n}")
            bearer = {"authorization": f"Bearer {token}"}
            return await client.post("/api/v1/actions/begin", json=asked, headers=bearer)

        async def prepared():
            async with pools.pool().connection() as session:
                found = await session.execute("SELECT name FROM pg_prepared_statements")
                return {name for (name,) in await found.fetchall()}

        for n in range(4):
            await begin(trip.token, n)
        before = await prepared()
        refused = await begin(other[1], 9)
        return before, refused.status_code, await prepared()

    before, status, after = visit(story, connections_max=1)
    assert before
    assert status == 403
    assert before <= after


@pytest.mark.parametrize("code", [DEADLOCK, SERIALIZATION])
def test_a_call_that_was_locked_out_is_looked_at_once_more_and_let_pass(trip, code):
    trip.begin(key="key-0", action="act_0")  # the next one takes the fast path
    with connection.cursor() as cursor:
        cursor.execute(LOCKED_OUT.format(start=-1, code=code))
        try:
            said = trip.begin()
        finally:
            cursor.execute(NOT_LOCKED_OUT)

    assert (said.status_code, said.json()["answer"]) == (200, "proceed")
    assert Action.objects.count() == 2


PAUSES = (
    ("workspace", "", True, True), ("agent", "desk-agent", True, False),
    ("agent", "Desk-agent", False, False), ("run", "run_1", True, False),
    ("run", "run_10", False, False), ("tool", "crm.*", False, True),
    ("tool", "crm", False, False), ("connection", "crm", False, True),
    ("connection", "crm.update", False, False),
)  # fmt: skip
"""Each with whether it stops the run, and whether it stops a step."""


def test_a_pause_fits_the_same_at_the_gate_before_a_step_and_for_who_waits(trip, acme, ada):
    twins = {"crm.*": {"connection": "crm", "operation": "put_back", "args": {"to": "before"}}}
    put_in_force(acme, ada, {"policies": {"*": {"approval": "AUTO"}}, "twins": twins})
    trip.send("run.started")
    for number, (kind, name, stops_the_run, stops_a_step) in enumerate(PAUSES):
        placed = pauses.pause(acme, kind, name, by=ada, reason="x")

        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT ({PAUSED}) FROM ledger_run r JOIN workspaces_agent g ON g.id = r.agent_id"
            )
            [(of_run,)] = cursor.fetchall()
        said = trip.begin(key=f"key-{number}", action=f"act_{number}").json()["answer"]
        of_step = pauses.standing(acme.pk, tool="crm.update", connections=["crm"])

        is_denied = stops_the_run or stops_a_step
        assert said == ("denied" if is_denied else "proceed"), (kind, name)
        assert (of_step is not None) is stops_a_step, (kind, name)
        assert (of_run is not None) is stops_the_run, (kind, name)
        pauses.lift(placed, by=ada)


def told_past_the_gate(trip, number=1, tool="mail.send"):
    """As clients of a version before tell it that made a call while the desk was away."""
    call = {"run": "run_1", "action": f"act_{number}", "n": number}
    data = planned(tool, key=f"key-{number}")["data"]
    said = {"planned": data, "started": {"attempt": "own"}, "succeeded": {"attempt": "own"}}
    told = [call | {"id": new_id(), "type": f"action.{t}", "data": d} for t, d in said.items()]
    assert trip.request("POST", "/api/v1/events", told).status_code == 200


@pytest.mark.parametrize("told", [False, True], ids=["at the gate", "past it, without its place"])
def test_a_pivot_has_passed_for_the_same_calls_at_the_gate_and_of_a_question_that_waits(
    trip, acme, ada, told
):
    rules = {"pay.*": {"approval": "MANUAL"}, "crm.*": {"approval": "AUTO"}}
    tools = {"mail.*": {"class": "external_irreversible"}}
    put_in_force(acme, ada, {"policies": rules, "tools": tools, "order": "ASK"})
    trip.begin(tool="pay.card", action="act_0", key="key-0")
    if told:
        told_past_the_gate(trip)
    else:
        trip.begin(saga="pivot")
    question, passed = Approval.objects.get(), set()

    for known in itertools.product(ActionState.values, Compensated.values):
        Action.objects.filter(action="act_1").update(state=known[0], compensated=known[1])
        asked = trip.begin(action="act_2", key="key-2", attempt="a2", explain=True).json()["answer"]
        says_so = covered_questions._why_people(question) == "the pivot of its run has passed"
        assert says_so is (asked == "wait"), known
        passed |= {known} if says_so else set()

    assert passed == set(
        itertools.product(("running", "unknown", "succeeded"), ("none", "repaired"))
    )


@pytest.mark.parametrize("granted", [False, True])
def test_what_was_withdrawn_is_denied_and_its_key_stays_dead(trip, ben, granted):
    trip.begin(tool="pay.card", attempt="a1")
    approval = approve(ben) if granted else Approval.objects.get()
    inbox.withdraw(approval, by=ben, reason="seen the second mail")

    for attempt in ("a1", "a2"):
        said = trip.begin(tool="pay.card", attempt=attempt).json()
        assert (said["answer"], said["code"]) == ("denied", "withdrawn")
        assert said["reason"] == "seen the second mail"
    anew = trip.begin(tool="pay.card", attempt="a3", action="act_2", key="key-2").json()
    assert anew["answer"] == "wait"


def test_what_nobody_answered_is_denied_and_its_key_stays_dead(trip):
    trip.begin(tool="pay.card", attempt="a1")
    Approval.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    assert trip.begin(tool="pay.card", attempt="a1").json()["code"] == "expired"
    Approval.objects.update(was=ApprovalState.WAITING, state=ApprovalState.EXPIRED)
    assert trip.begin(tool="pay.card", attempt="a2").json()["code"] == "expired"
    assert not Event.objects.filter(type="action.started").exists()


def test_a_contradiction_is_in_doubt(trip):
    said = trip.begin(attempt="a1")
    trip.succeeded(said, attempt="a1")
    trip.failed(said, attempt="a1", outcome="no_effect")

    assert Action.objects.get().state == "unknown"
    assert trip.begin(attempt="a2").json()["answer"] == "in_doubt"


def test_a_policy_that_no_longer_asks_lets_a_waiting_call_go_on(trip, acme, ada):
    trip.begin(tool="pay.card", attempt="a1")
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "AUTO"}}})

    assert trip.begin(tool="pay.card", attempt="a1").json()["answer"] == "proceed"
    approval = Approval.objects.get()
    assert (approval.state, approval.closing_reason) == (
        "withdrawn", "the policy no longer asks for this",
    )  # fmt: skip


def test_a_policy_that_now_denies_stops_what_was_approved(trip, acme, ada, ben):
    trip.begin(tool="pay.card", attempt="a1")
    approve(ben)
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "DENY", "words": "not today"}}})

    said = trip.begin(tool="pay.card", attempt="a1").json()

    assert (said["answer"], said["code"], said["reason"]) == ("denied", "rule", "not today")
    assert Approval.objects.get().state == ApprovalState.GRANTED


def test_other_arguments_after_no_effect_are_judged_anew(trip, acme, ben):
    trip.begin(tool="pay.card", args={"amount": 5}, attempt="a1")
    approve(ben)
    trip.failed(
        trip.begin(tool="pay.card", args={"amount": 5}, attempt="a1"),
        attempt="a1",
        outcome="no_effect",
    )

    said = trip.begin(tool="pay.card", args={"amount": 6}, attempt="a2").json()

    assert said["answer"] == "wait"
    assert Approval.objects.latest("pk").calls[0]["args"] == {"amount": 6}
    assert len(told(acme, "approval.requested")) == 2


def test_a_grant_is_not_used_by_a_call_that_is_denied(trip, acme, ada, ben):
    trip.begin(tool="pay.card", attempt="a1")
    approve(ben)
    placed = pauses.pause(acme, "tool", "pay.*", by=ada, reason="x")
    assert trip.begin(tool="pay.card", attempt="a1").json()["code"] == "paused"
    assert Approval.objects.get().state == ApprovalState.GRANTED

    pauses.lift(placed, by=ada)
    assert trip.begin(tool="pay.card", attempt="a1").json()["answer"] == "proceed"


def test_a_call_under_another_action_id_is_the_first_ones(trip):
    first = trip.begin(attempt="a1", action="act_1").json()
    again = trip.begin(attempt="a1", action="act_2").json()

    assert (again["answer"], again["action"], again["fence"]) == ("proceed", "act_1", 1)
    assert first["action"] == "act_1"
    assert Action.objects.count() == 1


def test_a_second_call_needs_an_action_id_of_its_own(trip):
    trip.begin(key="k1", action="act_1", args={"amount": 1})

    refused = trip.begin(key="k2", action="act_1", args={"amount": 2})

    assert refused.status_code == 422
    assert refused.json()["type"] == "urn:amends:problem:action-reused"
    assert list(Action.objects.values_list("key", flat=True)) == ["k1"]


def test_a_begin_that_is_refused_has_begun_nothing(trip):
    """Its plan came under the id of another event, which the ledger does not keep."""
    trip.begin(key="k1", action="act_1", id="ev-1")

    refused = trip.begin(key="k2", action="act_2", id="ev-1")

    assert (refused.status_code, refused.json()["type"]) == (409, "urn:amends:problem:conflict")
    assert list(Action.objects.values_list("action", flat=True)) == ["act_1"]
    assert Event.objects.filter(type="action.started").count() == 1
    assert GateKey.objects.filter(key="k2", lease_until__isnull=False).count() == 0
    assert trip.begin(key="k2", action="act_2").json()["answer"] == "proceed"


def undocumented(answer, type_):
    """What of an answer the API's own page does not say, or says otherwise."""
    known = {one.encode_name: one.type for one in msgspec.structs.fields(type_)}
    msgspec.convert(answer.json(), type_)
    return answer.json().keys() - known.keys()


def test_every_answer_is_as_the_page_of_the_api_says(trip, acme, ben):
    begun = trip.begin(key="k1", action="act_1", attempt="a1")
    trip.failed(begun, attempt="a1", outcome="unknown")
    answers = [begun, trip.begin(key="k1", action="act_1", attempt="a2")]
    asked = trip.begin(tool="pay.card", key="k2", action="act_2", attempt="b1")
    approve(ben)
    answers += [asked, trip.begin(tool="pay.card", key="k2", action="act_2", attempt="b1")]
    trip.succeeded(answers[-1], attempt="b1", result={"ok": True})
    answers += [trip.begin(tool="pay.card", key="k2", action="act_2", attempt="b2")]

    said = [one.json()["answer"] for one in answers]
    assert said == ["proceed", "in_doubt", "wait", "proceed", "replay"]
    assert [undocumented(one, BeginAnswer) for one in answers] == [set()] * 5
    approval = trip.request("GET", f"/api/v1/approvals/{asked.json()['approval']}")
    assert undocumented(approval, ApprovalStatus) == set()


def test_the_functions_of_begin_have_the_parameters_and_write_the_columns_that_all_others_have():
    told_in_python = [
        f"{name} {kind}".replace("timestamptz", "timestamp with time zone")
        for name, kind in events.BEGIN_SIGNATURE.items()
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT proname, pg_get_function_identity_arguments(oid), prosrc FROM pg_proc"
            " WHERE proname IN ('ledger_begin', 'gate_begin')"
        )
        found = {name: (takes.replace('"', "").split(", "), body) for name, takes, body in cursor}

    assert found["ledger_begin"][0] == told_in_python
    assert found["gate_begin"][0][-len(told_in_python) :] == told_in_python
    (written,) = re.findall(
        r"INSERT INTO ledger_event \((.*?)\)", found["ledger_begin"][1], re.DOTALL
    )
    assert set(re.split(r",\s+", written)) == {
        *statements.BATCH_COLUMNS, *statements.HASH_COLUMNS, "place", *statements.EVENT_COLUMNS,
    }  # fmt: skip
    assert set(statements.DESK_COLUMNS) < set(statements.EVENT_COLUMNS)


@pytest.fixture
def young():
    """A cursor on a desk of its own on which nothing has happened: what other tests have taught the
    planner outlives their rows, and even a TRUNCATE.
    """
    administration = started["administration"]
    name = f"{started['database']}_young"
    servers.clone(administration, name)
    with (
        psycopg.connect(administration.replace("/postgres?", f"/{name}?")) as desk,
        desk.cursor() as cursor,
    ):
        yield cursor


def test_the_look_is_by_indexes_also_where_a_young_desk_has_planned_it_for_good(young):
    """A connection keeps the plan that was made when the tables were as good as empty."""
    types = "bigint, text, bigint, text, text, text, text, text, text, int"
    places = iter(range(1, 11))
    look = re.sub("%b", lambda _: f"${next(places)}", begin_context.LOOK)
    young.execute("SET plan_cache_mode = force_generic_plan")
    young.execute(f"PREPARE the_look ({types}) AS {look}")
    young.execute("EXPLAIN EXECUTE the_look (1, 'r', 1, 'k', 'a', 't', 's', 'd', 'm', 10)")
    plan = "\n".join(line for (line,) in young.fetchall())
    assert re.search(r"Index Scan using action_id_in_run .*\n +Index Cond: \(\(run_id = ", plan)
    assert not re.findall(r"Seq Scan on (?:ledger|approvals_approval)\w*", plan)


def test_what_a_rule_remembers_is_looked_up_call_by_call_and_not_run_by_run(young):
    """Of a run of two thousand calls all were read for each of two hundred; on a young desk all
    calls that there are.
    """
    whose = memory.HistoryScope(1, "args.to", None, None)
    meter, cap = tallies.Meter("m", ["s"], Decimal(1), 3_600), Cap(Decimal(9), is_inclusive=True)
    probe = r"action_id_in_run on ledger_action\b.*\n +Index Cond: \(\(run_id = .* AND \(\(?action"
    young.execute("SET enable_seqscan = off")
    for sql, values in (
        memory.seen_values(whose, [memory.ValueDigest.of("acc 1")], alike=True),
        tallies.tallies(tallies.TallyOwner(1, 1, "k"), [meter]),
        tallies.within_caps(tallies.TallyOwner(1, 1, "k"), [(meter, cap)]),
    ):
        young.execute("EXPLAIN " + sql.replace("%b", "%s"), values)
        plan = "\n".join(line for (line,) in young.fetchall())
        assert len(re.findall(probe, plan)) == plan.count(" on ledger_action") > 0, plan
        if "RECURSIVE" in sql:
            following = r"sighting_of_value_by_shape on .*\n +Index Cond: .*value.* > \(?o\.value"
            assert re.search(following, plan), plan
    assert re.search(r"one_tally on approvals_tally\b.*\n +Index Cond: .* AND .*subject", plan), (
        plan
    )


def test_a_key_goes_by_age_when_everybody_has_forgotten_it(acme):
    """The guard on the table lets it go a day before, for clocks that disagree; clients in another
    language have the number written down."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT prosrc FROM pg_proc WHERE proname = 'gate_key_stays'")
        [(source,)] = cursor.fetchall()
    assert re.findall(r"interval '(\d+) days'", source) == [str(KEYS_KEPT_DAYS - 1)]
    for name in ("spool", "twins"):
        script = (ROOT / f"sdk-js/src/{name}.ts").read_text()
        assert f"KEEP_SECONDS = {KEYS_KEPT_DAYS} * 24 * 3600;" in script


def test_explain_says_that_people_are_asked_anew_where_their_yes_no_longer_fits(trip, ben):
    def would(**more):
        return trip.begin(tool="pay.card", attempt="a1", explain=True, **more).json()["answer"]

    trip.begin(tool="pay.card", attempt="a1", before={"balance": 5})
    assert would(before={"balance": 5}, saga="pivot") == "wait", "nobody has answered"
    approve(ben)
    assert would(before={"balance": 5}) == "proceed"

    assert would(before={"balance": 6}) == "wait"

    assert Approval.objects.get().state == ApprovalState.GRANTED
    asked = trip.begin(tool="pay.card", attempt="a1", before={"balance": 6}).json()
    assert asked["answer"] == "wait"


@pytest.mark.parametrize(
    ("law", "answer"), [("WARN", "proceed"), ("ASK", "wait"), ("DENY", "denied")]
)
def test_where_the_order_is_kept_what_has_no_way_back_is_the_pivot(trip, acme, ada, law, answer):
    """Whoever leaves a word out is not let off the order; who says that it can be retried is."""
    mails = {"tools": {"mail.*": {"class": "external_irreversible"}},
             "policies": {"mail.*": {"approval": "AUTO"},
                          "mail.all": {"when": "saga == 'pivot'", "approval": "DENY"}}}  # fmt: skip
    versions.activate(versions.save(acme, json.dumps(mails | {"order": law}), by=ada), by=ada)
    news = {"tool": "mail.send", "action": "act_0", "key": "key-0", "attempt": "a0"}
    trip.succeeded(trip.begin(**news, saga="retriable"), attempt="a0")
    assert trip.begin(action="act_1", key="key-1").json()["answer"] == "proceed"

    asked = trip.begin(tool="mail.all", action="act_5", key="key-5", saga="retriable")
    assert asked.json()["answer"] == "proceed"
    ruled = trip.begin(tool="mail.all", action="act_6", key="key-6", explain=True).json()
    assert ruled["answer"] == ("proceed" if law == "WARN" else "denied"), "conditions see it, too"

    mail = news | {"action": "act_2", "key": "key-2", "attempt": "a2"}
    trip.succeeded(trip.begin(**mail), attempt="a2")

    assert trip.begin(action="act_3", key="key-3").json()["answer"] == answer
    assert trip.begin(action="act_4", key="key-4", saga="retriable").json()["answer"] == "proceed"


@pytest.mark.parametrize(
    ("law", "answer"), [("WARN", "proceed"), ("ASK", "wait"), ("DENY", "denied")]
)
def test_what_was_told_without_its_place_in_the_order_is_judged_as_the_gate_would_have(
    trip, acme, ada, ben, law, answer
):
    """By the catalogue, whatever class the agent said; on both ways, and when it is looked at: what
    people let follow it is no case.
    """
    policy = {"tools": {"mail.*": {"class": "external_irreversible"}}, "order": law,
              "policies": {"*": {"approval": "AUTO"}}}  # fmt: skip
    put_in_force(acme, ada, policy)
    told_past_the_gate(trip, 1, "crm.update")

    def begins(number, **more):
        asked = trip.begin(action=f"act_{number}", key=f"key-{number}", n=number, **more)
        return asked.json()["answer"]

    assert begins(2) == "proceed"
    told_past_the_gate(trip, 3)
    assert begins(4) == answer
    assert begins(5, saga="retriable") == "proceed"
    if law == "ASK":
        approve(ben)
        assert begins(4) == "proceed"
    told_past_the_gate(trip, 7)
    triage.look()
    found = [one for case in Case.objects.all() for one in case.evidence]
    odd = [one["action"] for one in found if one["code"] == "out_of_order"]
    assert odd == ([] if law == "WARN" else ["act_7"])
