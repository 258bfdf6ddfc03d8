"""Requests of the Agent Approval Protocol that people, many workers and strangers come to."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from agentapprovalprotocol import Client
from agentapprovalprotocol._client import ConflictError, NotFound
from django.db import transaction

from approvals import inbox
from approvals.models import Approval
from ledger.models import Event, Run
from tests.locks import waits
from tests.sdk import test_approval_protocol, test_real_gate
from workspaces import keys, locks
from workspaces.models import Agent

ben = test_real_gate.ben
client, policy, web = (
    test_approval_protocol.client, test_approval_protocol.policy, test_approval_protocol.web,
)  # fmt: skip
desk_of_all = test_approval_protocol.desk_of_all

pytestmark = pytest.mark.django_db(transaction=True)

BODY = {"tool": "charge", "arguments": {"amount": 12}, "timeout": "10m"}


def test_a_yes_that_is_faster_than_taking_back_is_no_cancellation(client, ben):
    """Whoever takes it back hears that it was decided, not 200."""
    request = client.create(BODY, "k-1")
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            asked = Approval.objects.get()
            inbox.grant(asked, by=ben, seen=asked.digest)
            late = pool.submit(client.cancel, request.id)
            waits(1, unless=late.done)
        with pytest.raises(ConflictError) as conflict:
            late.result(60)

    assert conflict.value.code == "already_terminal"
    assert client.get(request.id).status == "approved"


def test_what_could_not_be_asked_beside_twenty_others_is_no_denial(client, ben, web, token):
    """It is asked under the same key once there is room, as the answer says."""
    for number in range(20):
        client.create(BODY, f"k-{number}")
    headers = {"authorization": f"Bearer {token}", "idempotency-key": "k-20"}

    def ask():
        return httpx.post(f"{web.url}/aap/v1/requests", json=BODY, headers=headers, timeout=60)

    late = ask()
    assert (late.status_code, late.json()["error"]["code"]) == (429, "too_many_open")
    assert "ask again under the same key" in late.json()["error"]["message"]

    asked = Approval.objects.earliest("pk")
    inbox.reject(asked, by=ben, seen=asked.digest, reason="not today")

    assert ask().json()["status"] == "pending"
    assert Approval.objects.count() == 21


def test_of_many_who_come_to_see_a_no_one_ends_the_run(client, ben, web, token):
    request = client.create(BODY, "k-1")
    asked = Approval.objects.get()
    inbox.reject(asked, by=ben, seen=asked.digest, reason="not today")
    headers = {"authorization": f"Bearer {token}"}

    def look(_):
        return httpx.get(f"{web.url}/aap/v1/requests/{request.id}", headers=headers, timeout=60)

    with ThreadPoolExecutor(4) as many:
        with transaction.atomic():
            list(locks.locked(Run.objects.all()).values_list("pk"))
            looks = [many.submit(look, number) for number in range(4)]
            waits(4)
        assert {one.result().json()["status"] for one in looks} == {"denied"}

    assert Event.objects.filter(type="run.cancelled").count() == 1
    assert Run.objects.get().state == "cancelled"


def test_a_request_is_of_the_agent_that_made_it(client, ben, web, northwind):
    """Its id is no secret: it stands in the run's name, which every member reads."""
    request = client.create(BODY, "k-1")
    other = Agent.objects.create(workspace=northwind, name="another", owner=ben)
    stranger = Client(f"{web.url}/aap", keys.create_key(other, by=None, name="test")[1])

    with contextlib.closing(stranger):
        for verb in (
            lambda: stranger.get(request.id),
            lambda: stranger.cancel(request.id),
            lambda: stranger.consume(request.id, "c-1"),
            lambda: stranger.report_outcome(request.id, "succeeded"),
        ):
            with pytest.raises(NotFound):
                verb()
    assert Approval.objects.get().state == "waiting"
