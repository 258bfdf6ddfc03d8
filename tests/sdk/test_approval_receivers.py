"""A receiver of the Agent Approval Protocol registers itself and is woken: its own library's, over
HTTP on loopback, before our web process.
"""

import asyncio
import json
import textwrap
import threading
import uuid
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from agentapprovalprotocol import (
    AsyncClient,
    AsyncGate,
    Call,
    Pending,
    ProvisionError,
    Receiver,
    WebhookVerificationFailed,
)
from agentapprovalprotocol.receiver import new_secret
from django.utils import timezone

from approvals import grants, inbox
from approvals.gate import covered_questions
from approvals.interchange import aap, instances
from approvals.models import Approval
from connectors import channels
from connectors.models import Channel, Delivery
from ledger.models import Event
from tests.approvals.cast import now
from tests.sdk import test_approval_protocol, test_real_gate
from tests.sdk.test_docs import blocks
from workspaces import clock, keys
from workspaces.encryption import CannotOpen
from workspaces.models import Agent, Secret

ben, when_asked = test_real_gate.ben, test_real_gate.when_asked
desk_of_all, policy, web = (
    test_approval_protocol.desk_of_all, test_approval_protocol.policy, test_approval_protocol.web
)  # fmt: skip
grant = test_approval_protocol.grant

pytestmark = pytest.mark.django_db(transaction=True)
CHARGE = Call(
    key="run:1", tool="charge", arguments={"amount": 12.5, "to": "eve", "password": "hunter2"},
    resume={"framework": "test", "thread": "t-1"},
)  # fmt: skip


class Service:
    """Where a receiver is served, in an event loop of its own; `told` is what came, as it came."""

    def __init__(self, **options):
        self.woken, self.told, self.clients = [], [], []
        self.loop = asyncio.new_event_loop()
        self.receiver = Receiver(resumers={"test": self._resumed}, **options)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        self.url = f"http://127.0.0.1:{self.server.server_port}/aap/events"
        self.threads = [
            threading.Thread(target=self.loop.run_forever),
            threading.Thread(target=self.server.serve_forever, args=[0.02]),
        ]
        for thread in self.threads:
            thread.start()

    def _resumed(self, handle, request):
        self.woken.append((handle["thread"], request.id, request.status))

    def wait(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def provision(self, web, token, **more):
        found = self.wait(self.receiver.provision(
            provider_url=f"{web.url}/aap", provisioner_token=token, url=self.url, **more,
        ))  # fmt: skip
        self.clients.append(self.receiver.client)
        return found

    async def _all_woken(self):
        await asyncio.gather(*self.receiver._tasks)

    def hears(self):
        """Let the desk send what is due, and the receiver wake what it has to."""
        channels.send_due()
        self.wait(self._all_woken())

    def client(self, web, token):
        """One that belongs to our loop, and is closed with it."""
        self.clients.append(AsyncClient(f"{web.url}/aap", token))
        return self.clients[-1]

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        for client in self.clients:
            self.wait(client.aclose())
        self.loop.call_soon_threadsafe(self.loop.stop)
        for thread in self.threads:
            thread.join()
        self.loop.close()


def handler_of(service):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            service.told.append(body)
            status, answer = service.wait(service.receiver.handle(dict(self.headers), body))
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *said):
            pass

    return Handler


@contextmanager
def served(**options):
    service = Service(**options)
    try:
        yield service
    finally:
        service.close()


@pytest.fixture
def service(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    with served() as one:
        yield one


def test_a_paused_run_is_woken_by_a_signed_word_that_says_nothing_of_the_call(
    web, token, policy, ben, service
):
    found = service.provision(web, token, instance_name="trip-desk-1")
    assert (found.instance_name, found.token) == ("trip-desk-1", token), "no key makes another"
    gate = AsyncGate(service.client(web, found.token), mode="async")
    assert isinstance(service.wait(gate.check(CHARGE)), Pending)
    service.hears()
    assert service.woken == []

    when_asked(grant(ben)).join()
    service.hears()
    service.hears()

    assert [one[0::2] for one in service.woken] == [("t-1", "approved")]
    assert service.wait(gate.check(CHARGE)), "and the gate is asked anew"
    [_, resolved] = map(json.loads, service.told)
    assert resolved.keys() == {"id", "type", "instance_id", "request_id", "created_at"}
    assert resolved["request_id"] == service.woken[0][1]
    assert resolved["created_at"].startswith(f"{Approval.objects.get().decided_at:%Y-%m-%dT%H:%M}")
    assert Channel.objects.get().subjects == ["request.resolved"]


def test_who_waits_for_a_call_that_was_approved_for_later_is_woken_at_its_moment(
    web, token, policy, ben, service
):
    service.provision(web, token)
    gate = AsyncGate(service.client(web, token), mode="async")
    assert isinstance(service.wait(gate.check(CHARGE)), Pending)
    approval = Approval.objects.get()
    moment = now()
    grants.put_off(approval, moment + timedelta(minutes=5), by=ben, now=moment)
    inbox.grant(approval, by=ben, seen=approval.digest, shown_seconds=1)
    service.hears()
    assert service.woken == [], "until then it is pending, and there is nothing to come for"
    assert aap.tell_put_off() == 0
    assert isinstance(service.wait(gate.check(CHARGE)), Pending)

    Approval.objects.update(not_before=moment)
    assert (aap.tell_put_off(), aap.tell_put_off()) == (1, 0)
    service.hears()

    assert [one[0::2] for one in service.woken] == [("t-1", "approved")]
    assert service.wait(gate.check(CHARGE))


def test_a_challenge_is_signed_by_the_databases_clock_whoever_was_asked_last(
    northwind, service, monkeypatch
):
    """A receiver that keeps to the standard refused that of a desk whose clock was off."""
    right = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: right() + timedelta(hours=1))
    monkeypatch.setattr(clock, "_asked", {})
    secret = service.receiver.secret = new_secret()
    known = service.receiver.registration_id = "r-1"
    actor: Any = SimpleNamespace(workspace_id=northwind.pk, agent_id=None)
    submission: Any = SimpleNamespace(digest="")

    instances.is_known(actor, "k", submission)
    instances.verify("i-1", instances.Receiver(service.url, known, secret))

    assert json.loads(service.told[0])["type"] == "webhook.verification"


def test_the_lines_of_the_guide_register_a_receiver(web, token, policy, service):
    [lines] = [one for one in blocks("interchange.md") if "Receiver(" in one]
    story = textwrap.indent(lines.replace("https://amends.example.org", web.url), "    ")
    names = {"Receiver": lambda **_: service.receiver, "resumer": lambda _: service._resumed,
             "agent": None, "key": token, "url": service.url}  # fmt: skip
    exec(f"async def story():\n{story}    return saved", names)  # noqa: S102

    saved = service.wait(names["story"]())
    service.clients.append(service.receiver.client)

    assert saved.token == token
    assert Channel.objects.get().settings["instance"] == saved.instance_id


def test_a_rule_and_the_agents_own_time_are_ends_that_are_told(
    web, token, policy, service, monkeypatch
):
    """Also where nobody comes to ask any more, and an older one has time."""
    monkeypatch.setattr(covered_questions, "BATCH", 1)
    service.provision(web, token)
    client = service.client(web, token)
    wake = {"context": {"resume": CHARGE.resume}, "timeout": "1s"}
    denied = {"tool": "delete", "server": "files", "arguments": {}} | wake
    older = {"tool": "charge", "arguments": {"n": 1}} | wake | {"timeout": "1h"}
    first = service.wait(client.create(older, "k-0"))
    service.wait(client.create(denied, "k-1"))
    service.wait(client.create(denied, "k-1"))
    service.wait(client.create({"tool": "charge", "arguments": {}} | wake, "k-2"))
    service.wait(asyncio.sleep(1.1))

    assert aap.take_back_overdue() == 1
    assert aap.take_back_overdue() == 0
    service.hears()

    assert sorted(status for _, _, status in service.woken) == ["denied", "expired"]
    states = Approval.objects.order_by("pk").values_list("state", flat=True)
    assert list(states) == ["waiting", "withdrawn"]

    service.wait(client.create({"tool": "charge", "arguments": {"n": 2}} | wake, "k-3"))
    Secret.objects.filter(name=f"aap {first.id}").update(sealed=b"under a key that is lost")
    service.wait(asyncio.sleep(1.1))
    with pytest.raises(CannotOpen):  # told by the job's sign of life, once all had their turn
        aap.take_back_overdue()
    assert list(states.all()) == ["waiting", "withdrawn", "withdrawn"]


def test_who_cannot_give_the_challenge_back_is_not_registered(web, token, policy, service):
    with served(secret=new_secret(), registration_id=str(uuid.uuid4())) as other:
        service.receiver.secret = other.receiver.secret
        url, service.url = service.url, other.url
        with pytest.raises(WebhookVerificationFailed):
            service.provision(web, token)
    service.url = "http://10.0.0.1/events"
    with pytest.raises(ProvisionError) as refused:
        service.provision(web, token)
    assert refused.value.code == "invalid_webhook_url"
    assert not Channel.objects.exists()
    assert not Secret.objects.filter(name__startswith="aap instance").exists()

    service.url = url
    first = service.provision(web, token, idempotency_key="k")
    assert service.provision(web, token, idempotency_key="k") == first
    assert len(service.told) == 1, "a submission that is known is not verified again"
    with pytest.raises(ProvisionError) as refused:
        service.provision(web, token, idempotency_key="k", instance_name="another")
    assert refused.value.code == "idempotency_conflict"
    kept = json.dumps(list(Channel.objects.values()), default=str)
    assert service.receiver.secret not in kept
    assert "hunter2" not in json.dumps(list(Event.objects.values_list("data", flat=True)))


def test_registering_anew_takes_the_place_and_people_may_turn_it_off(
    web, token, policy, ben, service
):
    first = service.provision(web, token)
    former, service.receiver = service.receiver, Receiver(resumers={"test": service._resumed})
    second = service.provision(web, token)
    assert (second.instance_id, second.secret == first.secret) == (first.instance_id, False)
    client = service.client(web, token)
    service.wait(client.create({"tool": "charge", "arguments": {}, "timeout": "10m"}, "k-1"))
    when_asked(grant(ben)).join()
    service.hears()
    [delivery] = Delivery.objects.filter(subject="request.resolved")
    assert delivery.state == "sent", "it is signed with the secret of the last registration"
    assert former.secret == first.secret

    channels.disable(Channel.objects.get(), by=ben)
    service.wait(client.create({"tool": "charge", "arguments": {}, "timeout": "10m"}, "k-2"))
    when_asked(grant(ben)).join()
    assert Delivery.objects.filter(subject="request.resolved").count() == 1
    service.receiver = Receiver(resumers={})
    with pytest.raises(ProvisionError) as refused:
        service.provision(web, token)
    assert (refused.value.status, refused.value.code) == (403, "receiver_turned_off")


def test_a_receiver_is_shown_moved_and_taken_away_by_its_agent_alone(
    web, token, policy, northwind, ben, service
):
    found = service.provision(web, token, instance_name="trip-desk-1")
    at = f"{web.url}/aap/v1/instances/{found.instance_id}"

    def ask(method, body=None, key="c-1", token=token, at=at):
        headers = {"authorization": f"Bearer {token}", "idempotency-key": key}
        return httpx.request(method, at, json=body, headers=headers, timeout=60)

    delivery = {"type": "webhook", "url": service.url, "registration_id": found.registration_id}
    shown = {"id": found.instance_id, "name": "trip-desk-1", "delivery": delivery}
    assert ask("GET").json() == shown
    other = Agent.objects.create(workspace=northwind, name="other", owner=ben)
    theirs = keys.create_key(other, by=ben, name="theirs")[1]
    assert {ask(one, {"instance_name": "x"}, token=theirs).status_code
            for one in ("GET", "PATCH", "DELETE")} == {404}  # fmt: skip
    assert ask("PATCH", {"sauce": 1}).status_code == ask("PATCH", {}).status_code == 400

    with served(secret=new_secret(), registration_id=str(uuid.uuid4())) as moved:
        new = {"type": "webhook", "url": moved.url, "signing_secret": moved.receiver.secret,
               "registration_id": moved.receiver.registration_id}  # fmt: skip
        wrong = new | {"registration_id": str(uuid.uuid4())}
        assert ask("PATCH", {"delivery": wrong}).status_code == 422
        assert ask("GET").json() == shown, "it stays as it was"
        body = {"instance_name": "trip-desk-2", "delivery": new}
        changed = ask("PATCH", body, key="c-2").json()
        assert (changed["name"], changed["delivery"]["url"]) == ("trip-desk-2", moved.url)
        assert ask("PATCH", {"instance_name": "trip-desk-3"}, key="c-3").json()["name"][-1] == "3"
        assert ask("PATCH", body, key="c-2").json() == changed, "a replay changes nothing"
        assert ask("GET").json()["name"] == "trip-desk-3"
        assert ask("PATCH", {"instance_name": "x"}, key="c-2").status_code == 409
        client = service.client(web, token)
        service.wait(client.create({"tool": "charge", "arguments": {}, "timeout": "10m"}, "k-1"))
        when_asked(grant(ben)).join()
        assert ask("PATCH", {"delivery": None}, key="c-4").json().keys() == {"id", "name"}
        channels.send_due()
        assert len(moved.told) == 2, "challenges, and of what was to be told nothing"

    assert Delivery.objects.get(subject="request.resolved").state == "failed"
    assert [ask("DELETE").status_code for _ in range(2)] == [204, 204]
    assert ask("GET").status_code == ask("PATCH", body).status_code == 404
    service.receiver = Receiver(resumers={})
    again = service.provision(web, token)
    assert again.instance_id == found.instance_id, "it may come back by itself"
    channels.disable(Channel.objects.get(), by=ben)
    assert ask("DELETE").status_code == 204
    service.receiver = Receiver(resumers={})
    with pytest.raises(ProvisionError) as refused:
        service.provision(web, token)
    assert refused.value.code == "receiver_turned_off", "but not past people"


def test_what_is_no_submission_is_refused_in_the_words_of_the_protocol(web, token, policy):
    delivery = {"type": "webhook", "url": "https://agent.example.com/events",
                "registration_id": str(uuid.uuid4()), "signing_secret": new_secret()}  # fmt: skip

    def post(body, **headers):
        known = {"authorization": f"Bearer {token}", "idempotency-key": uuid.uuid4().hex}
        return httpx.post(f"{web.url}/aap/v1/instances", json=body, headers=known | headers)

    wrong = [
        post([]), post({"sauce": 1}), post({"instance_name": ""}), post({"delivery": None}),
        post({"delivery": delivery | {"more": "1"}}), post({}, **{"idempotency-key": ""}),
        *[post({"delivery": delivery | {name: value}}) for name, value in (
            ("type", "socket"), ("url", "ftp://x/"), ("url", "https://eve:pw@x/"),
            ("url", "http://["), ("registration_id", "1"), ("signing_secret", "whsec_short"))],
    ]  # fmt: skip
    assert {one.status_code for one in wrong} == {400}
    codes = [one.json()["error"]["code"] for one in wrong]
    assert codes[6:9] == ["unsupported_delivery_type", *["invalid_webhook_url"] * 2]
    assert not Channel.objects.exists()

    asks = post({"instance_name": "one that asks"})
    assert (asks.status_code, asks.json()["instance"]["name"]) == (201, "one that asks")
    assert "delivery" not in asks.json()["instance"]
