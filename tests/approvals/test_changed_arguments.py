"""Who takes arguments that an approver changed says so with `begin`, and nobody else hears them."""

import json

import pytest

from approvals import versions
from approvals.gate import begin_request, begin_steps, decision_table
from approvals.models import Approval
from edge.asgi import Refused
from ledger.parsed_events import Actor
from tests.approvals.door import Agent as Trip
from tests.approvals.door import planned

pytestmark = pytest.mark.django_db(transaction=True)

ASKS = {"policies": {"pay.*": {"approval": "MANUAL"}}}


def test_the_question_knows_whether_the_client_that_waits_takes_changed_arguments(
    key, acme, ada, ben, leads
):
    versions.activate(versions.save(acme, json.dumps(ASKS), by=ada), by=ada)
    trip = Trip(key)

    trip.begin(tool="pay.card", attempt="a1", accepts_changed_arguments=True)
    assert Approval.objects.get().accepts_changed_arguments

    trip.begin(tool="pay.card", attempt="a2")  # after a restart, by one of before
    assert not Approval.objects.get().accepts_changed_arguments

    trip.begin(tool="pay.card", attempt="a3", accepts_changed_arguments=True)
    assert Approval.objects.get().accepts_changed_arguments


def test_changed_arguments_reach_nobody_who_would_make_the_call_with_their_own(acme, agent):
    actor = Actor(acme.pk, acme.slug, "agent", agent.name, agent.pk, "0123456789")
    changed = decision_table.Reply({"answer": "proceed", "fence": 1, "arguments": {"amount": 80}})
    old = begin_request.parse(json.dumps(planned()).encode(), actor, explain=False)
    new = json.dumps(planned(accepts_changed_arguments=True)).encode()

    begin_steps.check_accepted(begin_request.parse(new, actor, explain=False), changed)
    with pytest.raises(Refused, match="takes none but its own"):
        begin_steps.check_accepted(old, changed)
