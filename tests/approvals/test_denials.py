"""What a rule denied at the gate is no action, and yet a laxer policy can be tried on it."""

import json
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from approvals import dry_run, memory, pauses, versions
from approvals.gate.slow_path_statements import DENIED_BYTES_MAX
from approvals.models import Denial
from approvals.policy import active, load
from tests.approvals import test_gate
from tests.approvals.cast import put_in_force
from tests.approvals.door import Agent as Trip

pytestmark = pytest.mark.django_db(transaction=True)

trip = test_gate.trip


def test_what_a_rule_denied_is_tried_on_a_laxer_policy(trip, acme, ada):
    large = {"why": "x" * DENIED_BYTES_MAX}
    trip.begin(tool="never.delete", args={"id": 7, "password": "hunter2"}, key="key-1")
    trip.begin(tool="never.delete", args=large, key="key-2", action="act_2")
    trip.begin(tool="never.delete", args={"id": 7}, key="key-1", action="act_3")
    assert Denial.objects.count() == 2
    rules = [
        {"when": "args.id == 7", "approval": "AUTO"},
        {"when": "args.id != 7", "approval": "DENY"},
    ]
    laxer = {"policies": {"never.*": rules}}
    version = versions.save(acme, json.dumps(laxer), by=ada)

    found = dry_run.rehearse(acme, load(version.document), active(acme))

    assert (found.before["DENY"], found.sums["DENY"], found.sums["AUTO"]) == (2, 1, 1)
    assert [(one.run, one.was, one.becomes) for one in found.examples] == [
        ("run_1", "DENY", "AUTO")
    ]
    assert "hunter2" not in json.dumps(list(Denial.objects.values_list("deed", flat=True)))
    Denial.objects.update(denied_at=Now() - timedelta(days=31))
    assert (memory.forget_denials(), Denial.objects.count()) == (2, 0)


def test_a_pause_is_no_rule_so_no_policy_is_tried_on_it(trip, acme, ada):
    pauses.pause(acme, "agent", "desk-agent", by=ada, reason="wrong bookings")

    assert trip.begin(attempt="a1").json()["code"] == "paused"
    denied_by_rule_too = trip.begin(tool="never.delete", key="key-2", action="act_2").json()
    assert denied_by_rule_too["code"] == "paused"

    assert not Denial.objects.exists()


def test_a_paused_connection_stops_the_calls_that_are_undone_over_it(acme, ada, key):
    undo = {"connection": "crm", "operation": "restore", "args": {}}
    put_in_force(acme, ada, {"twins": {"crm.*": [undo | {"target": "contact"}]}})
    trip = Trip(key)
    trip.begin(tool="mail.send")  # what the gate saw last is what it judges by first
    pauses.pause(acme, "connection", "crm", by=ada, reason="their API answers nonsense")

    said = trip.begin(tool="crm.update", key="key-2", action="act_2").json()

    assert (said["answer"], said["code"]) == ("denied", "paused")
    assert said["reason"] == "Ada has paused connection crm: their API answers nonsense"
    again = trip.begin(tool="crm.update", key="key-3", action="act_3").json()
    assert again["code"] == "paused"
    for other in ({"tool": "mail.send"}, {"targets": [{"type": "note", "id": "n1"}]}):
        asked = {"key": str(other), "action": f"act_{len(str(other))}"}
        assert trip.begin(**asked, **other).json()["answer"] == "proceed"


def test_one_run_is_stopped_and_the_agents_others_go_on(trip, acme, ada):
    pauses.pause(acme, "run", "run_1", by=ada, reason="one mail after the other")

    said = trip.begin(attempt="a1").json()

    assert (said["answer"], said["code"]) == ("denied", "paused")
    assert "has paused run run_1: one mail after the other" in said["reason"]
    other = trip.begin(run="run_2", key="key-2", action="act_2", attempt="a2").json()
    assert other["answer"] == "proceed"
