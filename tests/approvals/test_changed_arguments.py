"""An approver corrects arguments: what they made of them runs, once somebody else agrees, or
nothing does; and nobody hears of it who would make the call with its own.
"""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import OperationalError, connection, connections, transaction
from django.utils import timezone

from approvals import deciders, digests, inbox
from approvals.gate import begin_request, decision_table, slow_path_statements
from approvals.models import Approval, Reservation, Tally
from edge.asgi import Refused
from ledger.models import Action, Event
from ledger.parsed_events import Actor
from ledger.replaying import rebuild
from recovery.models import Case
from recovery.triage import triage
from tests.approvals import cast
from tests.approvals.cast import ASKED, agree, ask, change, put_in_force, told, waiting
from tests.approvals.door import Agent as Trip
from tests.approvals.door import planned, visit
from tests.people import person
from workspaces.free_text import InvalidInput
from workspaces.moves import CannotMove

pytestmark = pytest.mark.django_db(transaction=True)
ben, trip = cast.ben, cast.trip

ASKS = {"policies": {"pay.*": {"approval": "MANUAL"}}}


@pytest.fixture
def obey(acme, ada):
    def say(*rules):
        put_in_force(acme, ada, {"policies": {"pay.*": list(rules) or {"approval": "MANUAL"}}})

    return say


def test_what_an_approver_made_of_it_is_what_the_agent_is_told_to_make(trip, obey, acme, ben, cleo):
    obey()
    first = ask(trip).json()["approval"]
    change(ben, amount="80")

    old, new = Approval.objects.order_by("pk")
    assert (old.state, new.state, new.replaces) == ("withdrawn", "waiting", old)
    assert new.digest != old.digest
    assert [(one.field, one.approved, one.now) for one in digests.changes_of(new)] == [
        ("amount", 100, 80)
    ]
    (event,) = told(acme, "approval.changed")
    assert (event["digest"], event["replaces_digest"]) == (new.digest, old.digest)
    assert event["changes"] == [{"field": "amount", "asked": 100, "approved": 80}]
    assert event["reason"] == "it was 80"
    assert Event.objects.get(type="approval.changed").actor == str(ben.pk)
    again = ask(trip).json()
    assert (again["answer"], again["approval"]) == ("wait", str(new.pk)) != ("wait", first)

    agree(cleo)
    said = ask(trip).json()
    assert said["answer"] == "proceed"
    assert said["arguments"]["amount"] == 80
    assert said["arguments"] == new.calls[0]["args"]
    lost = ask(trip).json()
    assert (lost["arguments"], lost["fence"]) == (said["arguments"], said["fence"])
    assert ask(trip, attempt="a2").status_code == 409

    trip.succeeded(_as_said(said), attempt="a1", args=said["arguments"], result={"paid": 80})
    assert ask(trip, attempt="a3").json()["answer"] == "replay"
    action = Action.objects.get()
    assert (action.args["amount"], action.flags) == (80, [])
    list(rebuild(acme.pk))
    assert Action.objects.get().args == action.args


def _as_said(body):
    class Answer:
        def json(self):
            return body

    return Answer()


def test_who_changed_it_has_asked_for_it_and_no_answer_is_carried_over(
    trip, obey, acme, ben, cleo, leads
):
    dora = person("dora", leads)
    obey({"approval": "MANUAL", "requires": [{"group": "leads", "count": 2}]})
    ask(trip)
    agree(cleo)
    with pytest.raises(inbox.NotEntitled, match="already answered"):
        change(cleo, amount="80")
    leads.group.user_set.remove(dora)
    with pytest.raises(InvalidInput, match="too few others"):
        change(ben, amount="80")
    leads.group.user_set.add(dora)

    new = change(ben, amount="80")

    assert not new.decisions.exists()
    with pytest.raises(inbox.NotEntitled, match="second person"):
        agree(ben)
    agree(cleo)
    assert ask(trip).json()["answer"] == "wait"
    agree(dora)
    assert ask(trip).json()["arguments"]["amount"] == 80


def test_where_the_rule_lets_people_approve_their_own_one_person_changes_and_approves(
    trip, obey, ben
):
    obey({"approval": "MANUAL", "selfApproval": True})
    ask(trip)
    change(ben, amount="80")
    approval = waiting()
    inbox.grant(approval, by=ben, seen=approval.digest, login_at=timezone.now())
    assert ask(trip).json()["arguments"]["amount"] == 80


def test_a_change_is_no_way_around_a_rule(trip, obey, ben, cleo):
    obey(
        {"when": "args.amount > 500", "approval": "DENY"},
        {"when": "args.amount < 50", "approval": "AUTO"},
        {
            "when": "args.amount >= 50",
            "approval": "MANUAL",
            "requires": [{"group": "leads", "count": 1}],
        },
    )
    ask(trip)
    with pytest.raises(InvalidInput, match="never allowed"):
        change(ben, amount="501")
    assert waiting().replaces is None

    new = change(ben, amount="20")
    assert deciders.required(new)[0].team.name == "leads", "people were asked, and still are"
    assert ask(trip).json()["answer"] == "wait"
    agree(cleo)
    obey({"when": "args.amount < 50", "approval": "DENY"}, {"approval": "MANUAL"})
    assert ask(trip).json()["code"] == "rule", "what would run is judged, not what was asked for"


def test_what_a_sum_holds_goes_with_the_change(trip, obey, ben, cleo):
    obey(
        {"when": "sum(args.amount, per: args.to, over: '24h') > 120", "approval": "DENY"},
        {"approval": "MANUAL"},
    )
    ask(trip)
    ask(trip, key="k2", action="act_2", args={"amount": 60, "to": "Mia"})
    agree(cleo, Approval.objects.latest("pk"))
    first = Approval.objects.earliest("pk")
    with pytest.raises(InvalidInput, match="is never allowed"):
        change(ben, first, to="Mia")
    assert {str(one.amount.normalize()) for one in Reservation.objects.all()} == {"1E+2", "6E+1"}

    change(ben, first, to="Mia", amount="50")

    assert {int(one.amount) for one in Reservation.objects.all()} == {50, 60}
    agree(cleo)
    assert ask(trip).json()["arguments"]["to"] == "Mia"
    assert sorted(sum(map(float, one.buckets.values())) for one in Tally.objects.all()) == [0, 50]
    with pytest.raises(CannotMove):
        change(ben, first, amount="1")


REFUSED = [
    ({"amount": "80.5"}, "is a whole number"),
    ({"amount": "eighty"}, "is a whole number"),
    ({"note": "for contact8"}, "Another target is another call"),
    ({"card": "4222"}, "known to the agent alone"),
    ({"to": "4111 1111 1111 1111"}, "would be masked"),
    ({"to": "Eve"}, "Nothing was changed"),
]


def test_what_cannot_be_changed_is_refused_in_words_and_changes_nothing(
    trip, obey, ben, cleo, subtests
):
    obey()
    ask(trip)
    before = waiting()
    for typed, why in REFUSED:
        with subtests.test(typed=typed):
            with pytest.raises(InvalidInput, match=why):
                change(ben, **typed)
            assert waiting() == before
            assert waiting().digest == before.digest


def test_a_field_is_read_as_the_tool_has_announced_it(trip, obey, ben, cleo):
    obey()
    schema = {
        "properties": {
            "amount": {
                "anyOf": [{"type": "number", "maximum": 90}, {"type": "null"}],
            },
            "to": {"enum": ["Eve", "Mia"]},
        }
    }
    ask(trip, tool_schema=schema)
    with pytest.raises(InvalidInput, match="at most 90"):
        change(ben, amount="95")
    with pytest.raises(InvalidInput, match="one of Eve, Mia"):
        change(ben, to="Dev")
    args = change(ben, amount="80.25", to="Mia").calls[0]["args"]
    assert (args["amount"], args["to"]) == (80.25, "Mia")


QUESTION = "UPDATE approvals_approval SET calls = jsonb_set(calls, '{0,args,to}', '\"Mia\"')"
CALL = "UPDATE ledger_action SET args = jsonb_set(args, '{to}', '\"Mia\"')"


@pytest.mark.parametrize(
    ("is_changed", "touch"),
    [(False, f"{QUESTION} WHERE state = 'waiting'"), (True, f"{QUESTION} WHERE state = 'waiting'"),
     (False, CALL)],
    ids=["as asked", "as changed", "in the ledger"],
)  # fmt: skip
def test_nobody_builds_on_a_question_of_which_a_byte_differs(
    trip, obey, ben, cleo, is_changed, touch
):
    obey()
    ask(trip)
    if is_changed:
        change(cleo, amount="90")
    asked = Approval.objects.count()
    with connection.cursor() as cursor:
        cursor.execute(touch)

    with pytest.raises(inbox.OutOfDate, match="no longer what is on record"):
        change(ben, amount="80")

    assert (waiting().state, Approval.objects.count()) == ("waiting", asked)


def test_one_byte_that_differs_after_the_yes_runs_nothing(trip, obey, ben, cleo):
    obey()
    ask(trip)
    change(ben, amount="80")
    agree(cleo)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE approvals_approval SET calls = jsonb_set(calls, '{0,args,amount}', '81')"
            " WHERE state = 'granted'"
        )

    said = ask(trip).json()

    assert said["answer"] == "wait"
    assert Approval.objects.latest("pk").calls[0]["args"]["amount"] == 100, "asked anew, as asked"


def test_one_byte_that_differs_when_the_answer_was_lost_is_not_told(trip, obey, ben, cleo):
    obey()
    ask(trip)
    change(ben, amount="80")
    agree(cleo)
    assert ask(trip).json()["arguments"]["amount"] == 80
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE approvals_approval SET calls = jsonb_set(calls, '{0,args,amount}', '81')"
            " WHERE state = 'used'"
        )
    assert ask(trip).json()["type"].endswith("not-as-approved")


def test_a_retry_is_held_against_what_it_asked_for(trip, obey, ben, cleo):
    obey()
    ask(trip)
    change(ben, amount="80")
    agree(cleo)
    ask(trip)
    other = ask(trip, args=ASKED | {"amount": 80})
    assert other.json()["type"].endswith("key-reused"), "the changed one is nobody's to ask for"


def test_another_plan_is_asked_about_as_it_is(trip, obey, ben, cleo):
    """What was changed was a change of another call."""
    obey()
    ask(trip, compensation={"tool": "pay.charge", "args": {"amount": 100}})
    change(ben, amount="80")
    agree(cleo)
    said = ask(trip, compensation={"tool": "pay.charge", "args": {"amount": 99}}).json()
    assert said["answer"] == "wait"
    assert Approval.objects.latest("pk").calls[0]["args"]["amount"] == 100


def test_how_the_call_was_to_be_undone_as_asked_for_is_forgotten(trip, obey, ben, cleo):
    obey()
    undo = {"tool": "pay.charge", "args": {"amount": 100}}
    ask(trip, compensation=undo)
    change(ben, amount="80")
    agree(cleo)
    said = ask(trip, compensation=undo)
    assert Action.objects.get().compensation is None
    smaller = {"tool": "pay.charge", "args": {"amount": 80}}
    made = said.json()["arguments"]
    trip.succeeded(said, attempt="a1", args=made, compensation=smaller, result={})
    action = Action.objects.get()
    assert (action.compensation, action.flags) == (smaller, [])


@pytest.mark.parametrize("args", [{}, {"args": ASKED}])
def test_an_agent_that_used_its_own_arguments_is_a_case(trip, obey, ben, cleo, args):
    obey()
    ask(trip)
    change(ben, amount="80")
    agree(cleo)
    trip.succeeded(ask(trip), attempt="a1", result={}, **args)
    assert Action.objects.get().flags == ["not_as_approved"]
    triage.look()
    assert Case.objects.get().reasons == ["not_as_allowed"]


@pytest.mark.parametrize(
    ("args", "flags"), [(ASKED | {"amount": 999}, ["not_as_approved"]), (ASKED, [])]
)
def test_an_agent_that_says_it_used_others_than_it_asked_for_is_a_case(
    trip, obey, ben, args, flags
):
    obey()
    ask(trip)
    inbox.grant(waiting(), by=ben, seen=waiting().digest)

    trip.succeeded(ask(trip), attempt="a1", result={}, args=args)

    assert Action.objects.get().flags == flags
    triage.look()
    assert [one.reasons for one in Case.objects.all()] == [["not_as_allowed"]] * len(flags)


def test_a_try_that_came_to_nothing_is_asked_about_anew_as_it_was_asked_for(trip, obey, ben, cleo):
    obey()
    ask(trip)
    change(ben, amount="80")
    agree(cleo)
    trip.failed(ask(trip), attempt="a1", outcome="no_effect")
    assert ask(trip, attempt="a2").json()["answer"] == "wait"
    agree(cleo)
    said = ask(trip, attempt="a2").json()
    assert said["answer"] == "proceed"
    assert "arguments" not in said
    assert Action.objects.get().args["amount"] == 100


def test_of_two_who_change_it_at_once_one_wins_and_no_yes_to_the_old_one_counts(
    trip, obey, ben, cleo, leads
):
    people = [ben, *(person(f"lead{n}", leads) for n in range(5))]
    obey()
    ask(trip)
    approval = waiting()

    def go(one):
        try:
            if one is people[-1]:
                return agree(one, approval).pk
            return change(one, approval, amount=str(80 + people.index(one))).pk
        except (CannotMove, inbox.OutOfDate):
            return None
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(people)) as pool:
        won = [one for one in pool.map(go, people) if one]

    assert len(won) == 1
    assert Approval.objects.filter(state__in=["waiting", "granted"]).count() == 1
    assert Approval.objects.count() == (1 if won == [approval.pk] else 2)


def test_of_fifty_who_ask_for_the_changed_call_one_is_let_through(trip, obey, key, ben, cleo):
    obey()
    ask(trip)
    change(ben, amount="80")
    agree(cleo)
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    about = {"tool": "pay.refund", "args": ASKED, "accepts_changed_arguments": True}
    about["targets"] = [{"type": "contact", "id": "contact7"}]

    async def story(client):
        asks = [
            client.post(
                "/api/v1/actions/begin",
                content=json.dumps(planned(attempt=f"try{n}", **about)),
                headers=headers,
            )
            for n in range(50)
        ]
        return await asyncio.gather(*asks)

    answers = [one.json() for one in visit(story)]
    made = [one for one in answers if one.get("answer") == "proceed"]
    assert len(made) == 1
    assert made[0]["arguments"]["amount"] == 80
    assert all(one.get("status") == 409 for one in answers if one not in made)


def test_the_question_knows_whether_the_client_that_waits_takes_changed_arguments(
    key, acme, ada, ben, cleo
):
    put_in_force(acme, ada, ASKS)
    trip = Trip(key)

    trip.begin(tool="pay.card", attempt="a1", accepts_changed_arguments=True)
    assert Approval.objects.get().accepts_changed_arguments

    trip.begin(tool="pay.card", attempt="a2")  # after a restart, by one of before
    assert not Approval.objects.get().accepts_changed_arguments
    with pytest.raises(InvalidInput, match="it would use its own"):
        change(ben, name="Mia")

    trip.begin(tool="pay.card", attempt="a3", accepts_changed_arguments=True)
    assert Approval.objects.get().accepts_changed_arguments


def test_a_client_of_before_that_comes_for_the_grant_uses_nothing_of_it(trip, obey, ben, cleo):
    obey()
    ask(trip)
    change(ben, amount="80")
    agree(cleo)
    answer = ask(trip, accepts_changed_arguments=False)
    assert (answer.status_code, waiting_or_granted()) == (422, "granted")
    assert ask(trip).json()["arguments"]["amount"] == 80


def waiting_or_granted():
    return Approval.objects.latest("pk").state


def test_changed_arguments_reach_nobody_who_would_make_the_call_with_their_own(acme, agent):
    actor = Actor(acme.pk, acme.slug, "agent", agent.name, agent.pk, "0123456789")
    changed = decision_table.BeginResponse(
        {"answer": "proceed", "fence": 1, "arguments": {"amount": 80}}
    )
    old = begin_request.parse(json.dumps(planned()).encode(), actor, explain=False)
    new = json.dumps(planned(accepts_changed_arguments=True)).encode()

    slow_path_statements.check_accepted(begin_request.parse(new, actor, explain=False), changed)
    with pytest.raises(Refused, match="takes none but its own"):
        slow_path_statements.check_accepted(old, changed)


def test_a_web_process_that_is_killed_half_way_leaves_the_question_and_its_answers(
    trip, obey, ben, cleo, leads
):
    """Its question is ended, the new one stands, and who must answer it is about to be written."""
    dora = person("dora", leads)
    obey({"approval": "MANUAL", "requires": [{"group": "leads", "count": 2}]})
    ask(trip)
    agree(cleo)
    before = waiting()
    pids = []

    def half_way():
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                pids.append(cursor.fetchone()[0])
            change(ben, before, amount="80")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("LOCK TABLE approvals_requirement IN SHARE MODE")
            done = pool.submit(half_way)
            blocked = (
                "SELECT pid FROM pg_stat_activity WHERE pid = ANY(%s) AND wait_event_type = 'Lock'"
            )
            while not done.done():
                cursor.execute(blocked, [pids])
                if cursor.fetchone():
                    cursor.execute("SELECT pg_terminate_backend(%s)", pids)
                    break
        with pytest.raises(OperationalError):
            done.result()

    assert waiting() == before
    assert [one.person for one in before.decisions.all()] == [cleo]
    assert Approval.objects.count() == 1
    agree(dora)
    assert "arguments" not in ask(trip).json()
