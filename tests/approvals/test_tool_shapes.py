"""A tool takes other arguments than before: whoever is asked about it reads that."""

import json

import pytest

from approvals import call_history, inbox, inventory, versions
from approvals.gate import begin_context
from approvals.models import Approval, ToolShape
from approvals.policy.loading import load
from tests.approvals.door import Agent as Trip
from workspaces.models import Agent

pytestmark = pytest.mark.django_db(transaction=True)

POLICY = {"policies": {"pay.*": {"approval": "MANUAL"}, "crm.*": {"approval": "AUTO"}}}
FIRST = {"type": "object", "properties": {"amount": {"type": "number"}}}
OTHER = {"type": "object", "properties": {"amount": {"type": "string"}, "iban": {}}}
TITLE = "This tool takes other arguments than before."


@pytest.fixture
def trip(key, acme, ada, ben, leads):
    versions.activate(versions.save(acme, json.dumps(POLICY), by=ada), by=ada)
    begin_context._shapes = begin_context.RecentValues(10)
    return Trip(key)


def asks(trip, number, schema=None):
    more = {"tool_schema": schema} if schema else {}
    trip.begin(tool="pay.card", run=f"run_{number}", key=f"key-{number}", **more)
    return Approval.objects.latest("pk")


def notices(approval):
    return [
        one["text"]
        for one in call_history.anomalies(approval, call_history.earlier_like(approval))
        if one["title"] == TITLE
    ]


def test_whoever_is_asked_reads_what_is_new_until_somebody_has_agreed(trip, ben):
    assert notices(asks(trip, 1, FIRST)) == []
    assert notices(asks(trip, 2)) == [], "announced once"

    asked = asks(trip, 3, OTHER)

    [text] = notices(asked)
    assert '“amount.type” was “"number"” and is “"string"”' in text
    assert "“iban” is new" in text
    inbox.grant(asked, by=ben, seen=asked.digest, reason="they told us")
    assert notices(asks(trip, 4)) == []

    assert len(notices(asks(trip, 5, FIRST))) == 1, "back is a change, too"


def test_the_page_of_tools_says_what_a_tool_takes(trip, client, ben):
    asks(trip, 1, FIRST)
    client.force_login(ben)
    assert "takes amount" in client.get("/w/acme/tools/").content.decode()

    asks(trip, 2, OTHER)
    page = client.get("/w/acme/tools/").content.decode()
    assert "takes amount, iban" in page
    assert "others until" in page


def test_the_list_of_tools_takes_no_place_of_what_is_known_of_tools_that_are_called(trip, acme):
    """A look at a thousand names, and the policy was read anew at each call of another."""
    trip.begin(tool="pay.card", run="run_1", key="key-1")
    policy = load(json.dumps(POLICY))

    assert [one.tool for one in inventory.listed(acme, policy)] == ["pay.card"]
    assert not policy._of_tools


def test_a_shape_is_noted_once_and_then_the_call_is_as_quick_as_ever(trip):
    for number in (1, 2):
        said = trip.begin(key=f"key-{number}", action=f"act_{number}", tool_schema=FIRST)
        assert said.json()["answer"] == "proceed"

    assert ToolShape.objects.get().schema == FIRST


def test_what_is_too_large_is_told_apart_and_an_agent_announces_no_end_of_them(trip, monkeypatch):
    from approvals import inventory

    asks(trip, 1, FIRST | {"description": "x" * 9_000})
    assert ToolShape.objects.get().schema == {}
    assert "it is too large" in notices(asks(trip, 2, OTHER))[0]

    monkeypatch.setattr(inventory, "SHAPES_OF_AGENT_MAX", 2)
    asks(trip, 3, FIRST)
    assert ToolShape.objects.filter(agent=Agent.objects.get()).count() == 2


def test_what_nobody_reads_of_a_call_is_said_with_whatever_is_answered(trip):
    """Who writes to the desk by hand mistypes a member, and a rule about targets meets none."""
    mistyped = {"tragets": [{"type": "card", "id": "7"}], "intent": {"reason": "late", "x": 1}}
    answers = [
        trip.begin(tool=tool, key=key, action=key, attempt=key, **mistyped).json()
        for tool, key in (("crm.note", "k1"), ("crm.note", "k1"), ("pay.card", "k2"))
    ]

    assert [one.get("answer") for one in answers] == ["proceed", "proceed", "wait"], answers
    assert {one["warning"]["detail"] for one in answers} == {
        "“tragets” (did you mean “targets”?). Kept as said."
    }
    assert "warning" not in trip.begin(tool="crm.note", key="k3", action="k3").json()
