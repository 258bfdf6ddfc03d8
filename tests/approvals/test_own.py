"""Nobody approves their own, unless a rule says so: also where no rule asks, and not any longer."""

import json

import pytest
from django.db.models.functions import Now

from approvals import awaiting, inbox, periodic, versions
from approvals.models import Approval
from approvals.policy import ToolCall, judge, load, strictest
from tests.approvals.cast import as_the_desk, now, put_in_force
from tests.approvals.door import Agent as Trip
from tests.people import person, team
from tests.worlds import kept
from workspaces import teams

ALLOWS = {"policies": {"crm.*": {"risk": "CRITICAL", "approval": "AUTO"}}, "order": "ASK"}
OWN = {"policies": {"pay.*": {"approval": "MANUAL", "selfApproval": True}}}


@pytest.fixture
@kept(in_turn=True)
def trip(key, agent, ada, finance):
    """An agent of Ada's, who may approve what others ask."""
    teams.add(finance, ada, by=None)
    agent.owner = ada
    agent.save()
    return Trip(key)


@pytest.mark.django_db(transaction=True)
def test_the_owner_does_not_answer_what_the_order_law_asks(trip, acme, ada, ben):
    put_in_force(acme, ada, ALLOWS)
    trip.succeeded(trip.begin(attempt="a1", saga="pivot"), attempt="a1")

    assert trip.begin(action="act_2", key="key-2", saga="pivot").json()["answer"] == "wait"

    approval = Approval.objects.get()
    assert (approval.self_approval, approval.fresh_login) == (False, True)
    assert awaiting.among(Approval.objects.all(), ada).count() == 0
    with pytest.raises(inbox.NotEntitled, match="second person"):
        inbox.grant(approval, by=ada, seen=approval.digest, login_at=now())
    inbox.grant(approval, by=ben, seen=approval.digest, login_at=now())
    assert trip.begin(action="act_2", key="key-2", saga="pivot").json()["answer"] == "proceed"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("who", "answer"), [("ada", "wait"), ("ben", "proceed")])
def test_what_its_owner_approved_is_asked_anew_once_the_rule_no_longer_lets_them(
    trip, acme, ada, ben, who, answer
):
    put_in_force(acme, ada, OWN)
    trip.begin(tool="pay.card", attempt="a1")
    approval = Approval.objects.get()
    by = {"ada": ada, "ben": ben}[who]
    inbox.grant(approval, by=by, seen=approval.digest, login_at=now())

    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})

    assert trip.begin(tool="pay.card", attempt="a1").json()["answer"] == answer
    if answer == "wait":
        anew = Approval.objects.latest("pk")
        assert "one's own was 'may be approved' and is 'does not count'" in anew.reason
        assert anew.self_approval is False


@pytest.mark.parametrize("rule", [{"approval": "AUTO"}, {"approval": "AUTO", "risk": "CRITICAL"}])
def test_a_rule_that_asks_nobody_says_nothing_about_ones_own(rule):
    one = judge(load({"policies": {"a": rule}}), ToolCall(tool="a"))
    alone = judge(load({"selfApproval": True, "policies": {"a": rule}}), ToolCall(tool="a"))

    assert (one.self_approval, strictest([one]).self_approval) == (False, False)
    assert (alone.self_approval, strictest([alone, one]).self_approval) == (True, False)
    assert one.but_asked("why").fresh_login is ("risk" in rule)


def test_a_version_says_it_for_all_rules_in_a_workspace_of_one(acme, ada, finance):
    teams.add(finance, ada, by=None)
    source = json.dumps({"selfApproval": True, "policies": {"a": {"approval": "MANUAL"}}})
    versions.activate(versions.save(acme, source, by=ada), by=ada)
    assert judge(load(source), ToolCall(tool="a")).self_approval is True


@pytest.fixture
def escalated(trip, acme, ada, finance):
    """Nobody of finance had decided in time, so the night shift was asked, too."""
    nora = person("nora", team(acme, "night", "view", "approve"))
    put_in_force(acme, ada, escalating("night"))
    trip.begin(tool="pay.card", attempt="a1")
    Approval.objects.update(escalate_at=Now())
    with as_the_desk():
        assert periodic.escalate_due() == 1
    return Approval.objects.get(), nora


def escalating(to, after="10m"):
    rule = {"approval": "MANUAL", "requires": [{"group": "finance"}]}
    later = {"escalate": {"after": after, "group": to}} if to else {}
    return {"policies": {"pay.*": rule | later}}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("who", "rule", "answer"),
    [
        ("nora", escalating(""), "wait"),
        ("nora", escalating("leads"), "wait"),
        ("nora", escalating("night", "1h"), "proceed"),
        ("ben", escalating(""), "proceed"),
    ],
)
def test_what_the_second_team_approved_is_asked_anew_once_no_rule_asks_it(
    trip, acme, ada, ben, escalated, who, rule, answer
):
    person("lea", team(acme, "leads", "view", "approve"))
    approval, nora = escalated
    inbox.grant(approval, by={"nora": nora, "ben": ben}[who], seen=approval.digest)

    put_in_force(acme, ada, rule)

    assert trip.begin(tool="pay.card", attempt="a1").json()["answer"] == answer
    if answer == "wait":
        anew = Approval.objects.latest("pk")
        assert "rule.asked later was 'night' and is" in anew.reason
        assert anew.escalated_at is None
