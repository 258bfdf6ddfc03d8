"""An unmodified client of the Agent Approval Protocol before our policy and our people, and the
documents of agent-approval-interchange, judged by its own library.
"""

import asyncio
import contextlib
import json
import os
import threading
import types
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import aais
import httpx
import psycopg
import pytest
from agentapprovalprotocol import (
    AAPError,
    AsyncClient,
    AsyncGate,
    Call,
    Client,
    Deny,
    Gate,
    Pending,
)
from agentapprovalprotocol._client import ConflictError, CredentialRefused, NotFound
from django.db import connection
from django.db.models import F
from django.utils import timezone

from approvals import grants, inbox
from approvals.interchange import aap
from approvals.models import Approval
from ledger.erasure import erase
from ledger.models import Action, Blob, Event, Run
from tests.locks import waits
from tests.processes import Processes
from tests.sdk import test_real_gate
from tests.sdk.test_docs import blocks
from workspaces.models import Secret, Workspace

ben, when_asked = test_real_gate.ben, test_real_gate.when_asked

pytestmark = pytest.mark.django_db(transaction=True)

ARGS = {"amount": 12.5, "to": "eve", "password": "hunter2"}
POLICY = """
agentSafety:
  tools:
    "files.*": {class: internal_update}
    "charge":  {class: external_irreversible}
  policies:
    "files.read":   {risk: LOW, approval: AUTO}
    "files.delete": {risk: HIGH, approval: DENY}
    "charge":       {risk: HIGH, approval: MANUAL}
"""


@pytest.fixture(scope="module")
def desk_of_all(tmp_path_factory):
    """One web process for all stories: each finds its own workspace in a database made empty."""
    running = Processes(tmp_path_factory.mktemp("desk"))
    yield running.web(AMENDS_OUTBOUND_ALLOW="127.0.0.1")
    running.stop()


@pytest.fixture
def web(desk_of_all, token):
    desk_of_all.wait_until_ready()
    return desk_of_all


@pytest.fixture
def policy(northwind, ben):
    from approvals import versions

    return versions.activate(versions.save(northwind, POLICY, by=None), by=None)


@pytest.fixture
def client(web, token, policy):
    found = Client(f"{web.url}/aap", token)
    yield found
    found.close()


def charge(key="run:1", **more):
    return Call(key=key, tool="charge", arguments=ARGS, reasoning="Eve asked for it.", **more)


def grant(by):
    return lambda asked: inbox.grant(asked, by=by, seen=asked.digest, reason="she called")


def reject(by):
    return lambda asked: inbox.reject(asked, by=by, seen=asked.digest, reason="not today")


def test_a_call_waits_for_a_person_and_runs_once(client, ben, northwind):
    thread = when_asked(grant(ben))
    gate = Gate(client, context={"thread": "t-1"})

    with gate.guard(charge()) as verdict:
        assert verdict, verdict
    thread.join()

    again = gate.check(charge())
    assert isinstance(again, Deny)
    assert again.status == "consumed"
    approval = Approval.objects.get()
    assert (approval.state, approval.calls[0]["operation"]) == ("used", "charge")
    paid = Action.objects.get()
    assert (paid.state, paid.run.state) == ("succeeded", "completed")
    assert [one.state for one in paid.attempts.all()] == ["succeeded"]


def test_what_it_wants_back_unmasked_is_echoed_and_never_kept_so(client, ben):
    args = ARGS | {"letter": "Dear Eve, " * 4_000}
    request = client.create(
        {"tool": "charge", "arguments": args, "timeout": "10m", "context": {"pin": "c4nary"}}, "k-1"
    )

    assert client.get(request.id).arguments == args
    kept = [
        *Event.objects.values_list("data", flat=True),
        *Action.objects.values_list("args", flat=True),
        *Approval.objects.values_list("calls", flat=True),
        *Approval.objects.values_list("previews", flat=True),
    ]
    assert "hunter2" not in json.dumps(kept)
    assert "c4nary" not in json.dumps(kept)
    sealed = Secret.objects.get(name=f"aap {request.id}")
    assert b"hunter2" not in bytes(sealed.sealed)
    assert not Blob.objects.exists()

    neighbour = Workspace.objects.create(name="Umbra", slug="umbra")
    over = {"state": "completed", "ended_at": timezone.now() - timedelta(days=2)}
    Run.objects.create(workspace=neighbour, run=f"aap_{request.id}", **over)
    assert aap.forget_old() == 0  # a run's name is its agent's choice

    client.cancel(request.id)
    Run.objects.update(ended_at=F("ended_at") - timedelta(days=2))
    assert aap.forget_old() == 1
    with pytest.raises(NotFound):
        client.get(request.id)


def test_what_lies_sealed_of_a_request_is_erased_with_its_run(client, ben, northwind):
    mine, other = (
        client.create({"tool": "charge", "arguments": ARGS, "timeout": "10m"}, key)
        for key in ("k-1", "k-2")
    )
    client.cancel(mine.id)

    erase(northwind, runs=[f"aap_{mine.id}"], by=None)

    assert not Secret.objects.filter(name=f"aap {mine.id}").exists()
    with pytest.raises(NotFound):
        client.get(mine.id)
    assert client.get(other.id).arguments == ARGS


def test_a_yes_for_later_is_none_before_its_moment_and_can_be_taken_back(client, ben):
    body = {"tool": "charge", "arguments": ARGS, "timeout": "10m"}
    request, other = client.create(body, "k-1"), client.create(body, "k-2")
    for approval in Approval.objects.order_by("pk"):
        soon = timezone.now() + timedelta(minutes=5)
        grants.put_off(approval, soon, by=ben, now=timezone.now())
        inbox.grant(approval, by=ben, seen=approval.digest)

    assert client.get(request.id).status == "pending"
    with pytest.raises(ConflictError):
        client.consume(request.id, "c-1")
    client.cancel(other.id)
    assert client.get(other.id).status == "cancelled"
    assert not Action.objects.exclude(started_at=None).exists()

    Approval.objects.update(not_before=timezone.now())
    assert client.get(request.id).status == "approved"
    assert client.consume(request.id, "c-1").consumption


def test_a_person_says_no_and_the_model_reads_why(client, ben):
    thread = when_asked(reject(ben))

    verdict = Gate(client).check(charge())
    thread.join()

    assert isinstance(verdict, Deny)
    assert verdict.reason.endswith("Their note: not today")
    assert Run.objects.get().state == "cancelled"


def test_the_async_gate_does_the_same_and_may_pause(web, token, policy, ben):
    async def story():
        client = AsyncClient(f"{web.url}/aap", token)
        gate, pausing = AsyncGate(client), AsyncGate(client, mode="async")
        assert isinstance(await pausing.check(charge("run:2")), Pending)
        granted = await asyncio.to_thread(when_asked, grant(ben))
        await asyncio.to_thread(granted.join)
        async with pausing.guard(charge("run:2")) as verdict:
            assert verdict
        with pytest.raises(RuntimeError, match="the card is blocked"):
            async with gate.guard(Call(key="r:3", tool="read", server="files", arguments={})):
                raise RuntimeError("the card is blocked")
        await client.aclose()

    asyncio.run(story())
    assert Action.objects.get(tool="charge").state == "succeeded"
    read = Action.objects.get(tool="files.read")
    assert (read.state, read.run.state) == ("unknown", "failed"), "it may have happened"


def test_a_rule_answers_at_once(client):
    allowed = Gate(client).check(Call(key="1", tool="files.read", arguments={"path": "a"}))
    denied = Gate(client).check(Call(key="2", tool="files.delete", arguments={"path": "a"}))

    assert allowed
    assert isinstance(denied, Deny)
    assert denied.status == "denied"
    assert not Approval.objects.exists()


def test_what_was_approved_runs_once_whoever_comes(client, ben, token, web):
    """Ten workers with one approval, each with a key of its own."""
    request = client.create({"tool": "charge", "arguments": ARGS, "timeout": "10m"}, "k-1")
    when_asked(grant(ben)).join()
    ran = []

    def work():
        mine = Client(f"{web.url}/aap", token)
        try:
            mine.consume(request.id, str(uuid.uuid4()))
            ran.append("ran")
        except ConflictError as conflict:
            ran.append(conflict.code)
        finally:
            mine.close()

    workers = [threading.Thread(target=work) for _ in range(10)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert sorted(ran) == ["already_consumed"] * 9 + ["ran"]

    together = threading.Barrier(6)

    def tell(status):
        together.wait(30)
        with contextlib.closing(Client(f"{web.url}/aap", token)) as mine:
            try:
                mine.report_outcome(request.id, status)
            except ConflictError as conflict:
                return conflict.code
        return status

    with ThreadPoolExecutor(6) as pool:
        said = list(pool.map(tell, ["succeeded", "failed"] * 3))

    first = (set(said) - {"outcome_conflict"}).pop()
    assert sorted(said) == sorted([first] * 3 + ["outcome_conflict"] * 3)
    assert Event.objects.filter(type__in=["action.succeeded", "action.failed"]).count() == 1


def test_the_lines_of_the_guide_put_a_call_and_a_document_to_the_gate(web, token, policy, ben):
    gated, _, documented = blocks("interchange.md")
    read = types.SimpleNamespace(id="c-1", name="files.read", args={"path": "a"})
    names = {"key": token, "run_id": "run-1", "call": read, "run_tool": lambda call: call.args}
    exec(gated.replace("https://amends.example.org", web.url), names)  # noqa: S102
    names["gate"].client.close()
    assert names["result"] == {"path": "a"}
    assert Action.objects.get(tool="files.read").state == "succeeded"

    asked = document()["request"]
    names |= {name: asked[name] for name in ("action", "origin", "risk", "choices")}
    exec(documented, names | {"aais": aais, "requests": httpx, "desk": web.url})  # noqa: S102
    assert Approval.objects.get().calls[0]["operation"] == "charge"


def test_a_retry_under_its_key_is_the_same_and_another_body_is_a_conflict(client, ben):
    body = {"tool": "charge", "arguments": ARGS, "timeout": "10m"}
    first, again = client.create(body, "k-1"), client.create(body, "k-1")

    assert first == again
    with pytest.raises(ConflictError) as conflict:
        client.create(body | {"arguments": {"amount": 13}}, "k-1")
    assert conflict.value.code == "idempotency_conflict"
    one = client.create(body | {"arguments": {"amount": 1}}, "k-2")
    with pytest.raises(ConflictError):  # which are equal in Python
        client.create(body | {"arguments": {"amount": True}}, "k-2")
    client.cancel(one.id)
    with pytest.raises(ConflictError) as conflict:
        client.consume(first.id, "c-1")
    assert conflict.value.code == "not_approved"
    when_asked(grant(ben)).join()
    taken = client.consume(first.id, "c-1")
    assert client.consume(first.id, "c-1").consumption == taken.consumption
    paid = "paid with 4111 1111 1111 1111"
    told = client.report_outcome(first.id, "succeeded", paid)
    assert client.report_outcome(first.id, "succeeded", paid).consumption == told.consumption
    with pytest.raises(ConflictError) as conflict:
        client.report_outcome(first.id, "failed")
    assert conflict.value.code == "outcome_conflict"
    with pytest.raises(ConflictError) as conflict:
        client.cancel(first.id)
    assert conflict.value.code == "already_terminal"


def test_a_pause_after_the_yes_holds_what_was_approved(client, ben, northwind):
    """The protocol's document says approved; our gate asks what else holds now."""
    from approvals import pauses

    request = client.create({"tool": "charge", "arguments": ARGS, "timeout": "10m"}, "k-1")
    when_asked(grant(ben)).join()
    pauses.pause(northwind, "tool", "charge", by=ben, reason="something is odd")

    with pytest.raises(ConflictError):
        client.consume(request.id, "c-1")
    assert not Action.objects.get().attempts.exists()


def test_what_is_no_request_is_refused_in_the_words_of_the_protocol(web, token, policy, northwind):
    body = {"tool": "charge", "arguments": {}, "timeout": "10m"}
    key = {"authorization": f"Bearer {token}", "idempotency-key": "k"}

    def post(content, headers=key, path="/aap/v1/requests"):
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        return httpx.post(web.url + path, content=content, headers=headers, timeout=30)

    wrong = [
        post(body | {"sauce": 1}), post(body | {"server": None}), post(body | {"timeout": "soon"}),
        post({"tool": "charge"}), post([]), post(b'{"tool": "b", ' + json.dumps(body)[1:].encode()),
        # What reads as another value somewhere: people would decide on what does not run.
        *[post(json.dumps(body).replace("{}", f'{{"n": {one}}}').encode())
          for one in ("NaN", "-Infinity", "1e999", '"\\ud83d"', "1" * 5_000, f"0.1{10**30 + 1}")],
        *[post({"status": one}, path=f"/aap/v1/requests/{uuid.uuid4()}/outcome")
          for one in ("done", ["succeeded"], {"succeeded": 1})],
        post(b"{"), post(body, {"authorization": key["authorization"]}),
    ]  # fmt: skip
    assert {one.status_code for one in wrong} == {400}
    assert all(one.json()["error"]["type"] == "invalid_request" for one in wrong)
    assert wrong[-1].json()["error"]["code"] == "missing_idempotency_key"
    assert post(body, {}).status_code == 401
    for shown, refusal in (("amends_0123456789_wrong", CredentialRefused), (token, NotFound)):
        client = Client(f"{web.url}/aap", shown)
        with pytest.raises(refusal):
            client.get(str(uuid.uuid4()))
        client.close()
    assert not Approval.objects.exists()


def document(id_="apr_1", **changed):
    """A document that asks, as its own library writes it; `changed` is of the request."""
    now = datetime.now(UTC)
    made = aais.create_request(
        action={"kind": "tool.call", "name": "charge", "summary": "Charge Eve for the second night",
                "arguments": ARGS, "resource": "card 4421"},
        origin={"harness": "example", "session_id": "s-1"},
        risk={"level": "high", "reasons": ["it moves money"]},
        choices=[{"decision": "approve", "scope": "once", "label": "Allow once"},
                 {"decision": "approve", "scope": "session", "label": "For this session",
                  "scope_constraints": {"action_name": "charge"}},
                 {"decision": "deny", "scope": "once", "label": "Deny"}],
        sequence=1, request_id=id_, created_at=now.isoformat(),
        expires_at=(now + timedelta(minutes=10)).isoformat(),
    )  # fmt: skip
    return made | {"request": made["request"] | changed}


@pytest.fixture
def aais_door(web, token, policy):
    with httpx.Client(base_url=f"{web.url}/aais/v1", timeout=60,
                      headers={"authorization": f"Bearer {token}"}) as door:  # fmt: skip
        yield door


def test_a_document_that_asks_becomes_a_question_and_is_taken_once(aais_door, ben, northwind):
    first = aais_door.post("/documents", json=document())
    again = aais_door.post("/documents", json=json.loads(first.request.content))
    assert (first.status_code, again.status_code) == (201, 200), first.text
    assert aais.validate(first.json()) == aais.validate(again.json())
    assert first.json()["activity"]["stage"] == "waiting"
    approval = Approval.objects.get()
    assert "Charge Eve" in json.dumps(approval.agent_text)
    assert approval.targets == ["resource card 4421"]

    early = aais_door.post("/requests/apr_1/consume", headers={"idempotency-key": "c-0"})
    assert (early.status_code, early.json()["type"]) == (409, "urn:amends:problem:not-approved")
    thread = when_asked(grant(ben))
    agreed = aais_door.get("/requests/apr_1", params={"wait": "30s"}).json()
    thread.join()
    assert aais.validate(agreed)["activity"]["stage"] == "agreed", (
        "a yes is not handed out by asking"
    )
    taken, same, second = (
        aais_door.post("/requests/apr_1/consume", headers={"idempotency-key": key})
        for key in ("c-1", "c-1", "c-2")
    )
    told = aais.validate(taken.json())["resolution"]
    assert (told["outcome"], told["effective_scope"]) == ("approved", "once")
    assert told["action_digest"] == aais.action_digest(document()["request"]["action"])
    assert same.json() == taken.json()
    assert (second.status_code, Action.objects.get().attempts.count()) == (409, 1)
    aais_door.post("/requests/apr_1/outcome", json={"status": "succeeded"})
    assert Action.objects.get().state == "succeeded"
    other = aais_door.post("/documents", json=document(created_at="2026-01-01T00:00:00Z"))
    assert other.status_code == 409


def test_a_no_and_a_rule_are_told_as_documents(aais_door, ben):
    thread = when_asked(reject(ben))
    aais_door.post("/documents", json=document())
    told = aais_door.get("/requests/apr_1", params={"wait": "30s"}).json()
    thread.join()
    assert aais.validate(told)["resolution"]["outcome"] == "denied"
    assert told["resolution"]["message"] == "not today"

    action = document()["request"]["action"] | {"name": "files.delete"}
    body = document("apr_2", action=action, action_digest=aais.action_digest(action))
    ruled = aais_door.post("/documents", json=body).json()
    assert aais.validate(ruled)["resolution"]["outcome"] == "denied"
    assert Approval.objects.count() == 1
    assert aais_door.get("/requests/apr_3").status_code == 404


def test_a_document_that_claims_a_decision_decides_nothing(aais_door, ben):
    asked = document()
    aais_door.post("/documents", json=asked)
    mine = aais.create_decision(asked, decision="approve", scope="once", sequence=2,
                                actor={"id": "ben", "type": "human"})  # fmt: skip
    store = aais.ApprovalStore()
    store.add(asked)
    resolved = store.decide(mine)
    assert resolved["resolution"]["outcome"] == "approved", "in the eyes of its own library"

    action = asked["request"]["action"]
    hint = {"redacted": True, "binding_hint": "of the real one"}
    hidden = action | {"presentation": hint}
    choices = asked["request"]["choices"]
    wrong = [
        mine, resolved, store.snapshot(), [], {}, asked | {"more": 1}, document("apr_2", more=1),
        document("apr_2", action=action | {"arguments": {"amount": 1}}),
        document("apr_2", action=hidden, action_digest=aais.action_digest(hidden)),
        document("apr_2", choices=choices[1:]), document("apr_2", choices=choices[:1]),
        document("apr_2", choices=[*choices, choices[0]]), document("apr_2", id="a b"),
        document("apr_2", choices=[choices[0], choices[2] | {"scope": "session"}]),
        document("apr_2", created_at=(datetime.now(UTC) + timedelta(hours=1)).isoformat()),
        document("apr_2", expires_at="2020-01-01T00:00:00Z", created_at="2019-01-01T00:00:00Z"),
    ]  # fmt: skip
    refused = [aais_door.post("/documents", json=one) for one in wrong]

    assert {one.status_code for one in refused} == {422}
    assert {one.json()["type"] for one in refused} == {"urn:amends:problem:document"}
    assert "decides nothing here" in refused[0].json()["detail"]
    assert Approval.objects.get().state == "waiting"
    assert not Action.objects.get().attempts.exists()
    taken_back = aais_door.delete("/requests/apr_1").json()
    assert aais.validate(taken_back)["resolution"]["outcome"] == "cancelled"


def test_a_request_of_the_one_protocol_is_no_document_of_the_other(aais_door, client, ben):
    """Whoever asks for a trifle cannot take the yes as that to another document: the resolution
    says of which bytes it is, and a runner that trusts it would make that call."""
    wanted = document()["request"]
    trifle = {"tool": "charge", "arguments": {"amount": 1}, "timeout": "10m",
              "context": {"id": "apr_1", "action_digest": wanted["action_digest"]}}  # fmt: skip
    with pytest.raises(AAPError, match="HTTP 400"):
        client.create(trifle, "aais:apr_1")
    assert aais_door.get("/requests/apr_1").status_code == 404
    assert not Approval.objects.exists()


def test_after_postgresql_has_dropped_its_sessions_the_next_request_is_answered(web, token):
    """As after its restart: many connections lie dead in the pool, and one request comes."""
    nothing = f"{web.url}/aap/v1/requests/{uuid.uuid4()}"
    headers = {"authorization": f"Bearer {token}"}
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"

    def ask():
        return httpx.get(nothing, headers=headers, timeout=60).status_code

    def connected():
        return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)

    with connected() as holder, ThreadPoolExecutor(8) as many:
        with holder.transaction():
            holder.execute("LOCK TABLE workspaces_secret IN ACCESS EXCLUSIVE MODE")
            asked = [many.submit(ask) for _ in range(8)]
            waits(8)
        assert {one.result() for one in asked} == {404}
        connection.close()
        holder.execute(f"{cut} AND datname = current_database()")

    web.wait_until_ready()
    assert ask() == 404
