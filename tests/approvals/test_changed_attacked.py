"""A call whose arguments an approver changed, once that is over: what comes next under its key is
judged, and put to people, as it is asked for.
"""

import pytest

from approvals import deciders, digests
from approvals.gate import bounded_grants, policy_since
from approvals.models import Approval
from ledger.models import Action
from ledger.replaying import rebuild
from tests.approvals import cast
from tests.approvals.cast import ASKED, agree, ask, change, put_in_force, told, waiting
from tests.people import person, team

pytestmark = pytest.mark.django_db(transaction=True)
ben, trip = cast.ben, cast.trip

TWO_ABOVE_90 = (
    {"when": "args.amount <= 90", "approval": "MANUAL"},
    {"when": "args.amount > 90", "approval": "MANUAL", "requires": [{"count": 2}]},
)


@pytest.fixture
def obey(acme, ada):
    def say(*rules):
        put_in_force(acme, ada, {"policies": {"pay.*": list(rules)}})

    return say


@pytest.fixture
def failed(trip, obey, ben, cleo):
    """Ben made 80 of 100, and Cleo agreed; the try with that is known to have had no effect."""

    def after(*rules):
        obey(*rules)
        ask(trip)
        change(ben, amount="80")
        agree(cleo)
        trip.failed(ask(trip), attempt="a1", outcome="no_effect")

    return after


def test_no_grant_lets_another_call_pass_for_what_an_approver_had_made_of_the_last(
    trip, failed, ben
):
    few = {"approval": "MANUAL", "bounded": {"uses": 5, "for": "1d"}}
    failed({"when": "args.amount > 500", "approval": "DENY"}, few)
    ask(trip, key="k2", action="act_2")
    asked, terms = waiting(), {"uses": "3", "hours": "2", "target": "any"}
    bounded_grants.approve_with_more(
        asked, by=ben, seen=asked.digest, typed=terms, reason="a batch"
    )

    assert ask(trip, attempt="a2", args=ASKED | {"amount": 501}).json()["code"] == "rule"

    assert ask(trip, attempt="a3").json()["answer"] == "proceed", "so it is covered"
    assert Action.objects.get(action="act_1").args["amount"] == 100


def test_after_a_try_without_effect_those_are_asked_whom_the_rule_of_the_next_one_names(
    trip, failed, acme
):
    failed(*TWO_ABOVE_90)

    ask(trip, attempt="a2")

    asked = waiting()
    assert [one.count for one in deciders.required(asked)] == [2]
    assert [one["when"] for one in asked.rules] == ["args.amount > 90"]


def test_who_asks_next_for_what_the_approver_had_made_of_it_has_that_on_record(
    trip, failed, acme, cleo
):
    failed({"approval": "MANUAL"})
    now = {"attempt": "a2", "args": ASKED | {"amount": 80}}
    assert ask(trip, **now).json()["answer"] == "wait"
    agree(cleo)

    assert ask(trip, **now).json()["answer"] == "proceed"

    assert Action.objects.get().args["amount"] == 80
    list(rebuild(acme.pk))
    assert Action.objects.get().args["amount"] == 80


UNDO = {"tool": "pay.charge", "args": {"amount": 100}}


@pytest.mark.parametrize(
    ("left", "now"),
    [
        ({}, {}),
        ({}, {"args": ASKED | {"amount": 90}}),
        ({}, {"compensation": UNDO}),
        ({"args": ASKED | {"amount": 80}}, {}),
    ],
    ids=["again", "another", "with an undo", "a version before left what the last was made with"],
)
def test_of_a_try_after_one_without_effect_all_that_is_shown_and_changed_is_as_it_is_asked_for(
    trip, client, failed, obey, acme, ben, left, now
):
    failed({"approval": "MANUAL"})
    Action.objects.update(**left)
    ask(trip, attempt="a2", **now)
    asked = waiting().calls[0]
    obey({"when": "args.amount > 85", "approval": "DENY"}, {"approval": "AUTO"})

    assert "never allows this call" in policy_since.notice(waiting())["title"]
    client.force_login(person("finn", team(acme, "auditors", "view", "view_sensitive")))
    shown = client.post("/w/acme/reveal/run_1/").text
    assert "Arguments as they were asked for" not in shown
    assert Action.objects.get().compensation == asked["more"]["compensation"]

    obey({"approval": "MANUAL"})
    assert change(ben, amount="70").calls[0]["more"]["asked"]["args"] == asked["args"]
    before = list(Action.objects.values())
    list(rebuild(acme.pk))
    assert list(Action.objects.values()) == before


def test_where_a_change_is_void_people_are_asked_by_the_rule_of_what_was_asked_for(
    trip, obey, ben, cleo
):
    obey(*TWO_ABOVE_90)
    ask(trip)
    changed = change(ben, amount="80")
    assert [one.count for one in deciders.required(changed)] == [1]
    agree(cleo)
    cleo.groups.clear()

    assert ask(trip).json()["answer"] == "wait"

    asked = waiting()
    assert asked.calls[0]["args"]["amount"] == 100
    assert [one.count for one in deciders.required(asked)] == [2]
    assert [one["when"] for one in asked.rules] == ["args.amount > 90"]


@pytest.mark.parametrize(
    ("rule", "answer"), [({"approval": "DENY"}, "denied"), ({"approval": "AUTO"}, "wait")]
)
def test_where_a_change_is_void_what_was_asked_for_is_neither_made_unasked_nor_put_in_vain(
    trip, obey, ben, cleo, rule, answer
):
    obey({"approval": "MANUAL"})
    ask(trip)
    change(ben, amount="80")
    agree(cleo)
    cleo.groups.clear()
    obey({"when": "args.amount > 90", **rule}, {"when": "args.amount <= 90", "approval": "MANUAL"})

    would = ask(trip, explain=True).json()
    said = ask(trip).json()

    assert (said["answer"], would["answer"]) == (answer, answer)
    assert would.get("reason") == said.get("reason")
    assert would["explain"]["approval"] == ("DENY" if answer == "denied" else "MANUAL")
    assert [one["met"] for one in would["explain"]["conditions"]] == [True, False]

    assert Approval.objects.filter(state="waiting").count() == (answer == "wait")


def test_what_another_run_has_made_under_the_key_is_no_answer_to_a_call_that_was_changed(
    trip, obey, ben, cleo
):
    obey({"approval": "MANUAL"})
    ask(trip)
    change(ben, amount="80")
    other = {"run": "run_2", "args": ASKED | {"amount": 999}, "attempt": "b1"}
    ask(trip, **other)
    agree(cleo, Approval.objects.get(run_ref="run_2"))
    trip.succeeded(ask(trip, **other), attempt="b1", result={"paid": 999})

    assert ask(trip).json()["type"].endswith("key-reused")


def test_a_change_for_which_no_rule_asks_anybody_is_made_once_those_agree_who_were_asked_first(
    trip, obey, ben, cleo
):
    of_leads = {"approval": "MANUAL", "requires": [{"group": "leads", "count": 1}]}
    obey(
        {"when": "args.amount < 50", "approval": "AUTO"}, {"when": "args.amount >= 50", **of_leads}
    )
    ask(trip)
    change(ben, amount="20")
    agree(cleo)

    said = ask(trip).json()

    assert said["answer"] == "proceed"
    assert said["arguments"]["amount"] == 20


def test_a_change_is_told_whatever_the_argument_is_called(trip, obey, acme, ben, client):
    obey({"approval": "MANUAL"})
    asked = {"image": "shop", "digest": "sha256:aa11", "more": {"digest": "x"}}
    ask(trip, args=asked)

    new = change(ben, digest="sha256:bb22")

    [made] = digests.changes_of(new)
    assert (made.field, made.approved, made.now) == ("digest", "sha256:aa11", "sha256:bb22")
    [event] = told(acme, "approval.changed")
    assert [one["field"] for one in event["changes"]] == ["digest"]
    client.force_login(ben)
    listed = client.get("/w/acme/approvals/?view=all").text
    assert "digest “sha256:aa11” → “sha256:bb22”" in listed
