"""The hot door: who may come in, what is refused, and that nothing bad is a 500."""

import asyncio
import contextlib
import gzip
import hashlib
import json
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from approvals.gate.begin_request import BODY_BYTES_MAX
from config.edge import Edge
from edge import asgi, pools
from ledger import desk_events, drivers
from ledger.intake import INLINE_BYTES_MAX
from ledger.models import Blob, Event, EventKey, Run, Unsealed
from ledger.wire import BATCH_BYTES_MAX
from tests.approvals.door import CONNECTIONS, planned
from tests.ledger.conftest import bearer, event, post
from workspaces import keys
from workspaces.models import Agent, APIKey, Workspace

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_batch_is_kept_and_answered_event_by_event(call):
    good, again = event("run.started"), event("run.completed")
    bad = event("run.flew")
    (answer,) = call(post([good, bad, again, again]))

    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [r["status"] for r in results] == ["accepted", "rejected", "accepted", "duplicate"]
    assert results[1]["problem"]["status"] == 422
    assert Run.objects.get().state == "completed"
    said = Event.objects.filter(actor_kind="agent")
    assert said.count() == 2
    assert EventKey.objects.count() == Unsealed.objects.count() == Event.objects.count()


def test_ndjson_and_gzip_are_read(call, token):
    lines = "\n".join(json.dumps(event("run.started", run=f"run_{n}")) for n in range(700))
    headers = bearer(token, "application/x-ndjson") | {"content-encoding": "gzip"}
    (answer,) = call(post(gzip.compress(lines.encode()), headers=headers))

    assert answer.status_code == 200
    assert Run.objects.count() == 700


def test_of_a_body_that_does_not_say_its_length_no_more_is_read_than_may_be(at_the_door, token):
    sent = 0

    async def endless():
        nonlocal sent
        for _ in range(64):
            sent += 1
            yield b" " * 2**20

    async def talk(client):
        return await client.post("/api/v1/events", content=endless(), headers=bearer(token))

    assert at_the_door(talk).status_code == 413
    assert sent <= BATCH_BYTES_MAX // 2**20 + 1


@pytest.fixture
def neighbour(ada):
    """The key of an agent of another workspace."""
    globex = Workspace.objects.create(slug="globex", name="Globex")
    agent = Agent.objects.create(workspace=globex, name="ours", owner=ada)
    return keys.create_key(agent, by=ada, name="laptop")[1]


def test_of_bodies_that_do_not_end_a_workspace_keeps_so_much_here_and_every_question_is_answered(
    at_the_door, send, token, neighbour, trip_desk, ada, monkeypatch
):
    monkeypatch.setattr(asgi, "ARRIVING_OF_ONE_MAX", 3 * 2**20)
    other = keys.create_key(trip_desk, by=ada, name="other")[1]

    async def while_one_does_not_end(client):
        arrived, ending, at_once = asyncio.Semaphore(0), asyncio.Event(), asyncio.Event()
        at_once.set()

        async def batch(until):
            yield b" " * 2 * 2**20
            arrived.release()
            await until.wait()
            yield b"[]"

        def post(key, until=at_once):
            return client.post("/api/v1/events", content=batch(until), headers=bearer(key))

        async def question():
            yield b" " * (BODY_BYTES_MAX - 2**10)
            yield json.dumps(planned()).encode()

        def ask():
            where = "/api/v1/actions/begin"
            return client.post(where, content=question(), headers=bearer(token))

        first = asyncio.create_task(post(token, until=ending))
        await arrived.acquire()
        found = [await post(other), await post(neighbour), await send(client, event("run.started"))]
        with monkeypatch.context() as full:
            full.setattr(asgi, "ARRIVING_BYTES_MAX", 2**20)
            found += [await post(neighbour), await ask()]
        ending.set()
        return *found, await first, await post(token)

    of_the_same, *taken, while_all_is_taken, asked, first, later = at_the_door(
        while_one_does_not_end
    )

    assert_come_back(of_the_same)
    assert_come_back(while_all_is_taken)
    assert [one.status_code for one in (*taken, asked, first, later)] == [200] * 5
    assert asked.json()["answer"] == "proceed"


@pytest.mark.parametrize(("trusted", "status"), [(False, 308), (True, 401)])
def test_who_says_that_it_came_over_tls_is_believed_only_behind_a_proxy(
    at_the_door, settings, trusted, status
):
    settings.SECURE_SSL_REDIRECT, settings.AMENDS_TRUST_PROXY = True, trusted

    async def talk(client):
        return await client.post("/api/v1/events", headers={"x-forwarded-proto": "https"})

    assert at_the_door(talk).status_code == status


def test_without_a_key_or_a_fitting_verb_nothing_is_read(call, token):
    answers = call(
        post([], headers={"content-type": "application/json"}),
        post([], headers=bearer("amends_0123456789_wrong")),
        ("PUT", "/api/v1/events", {}),
    )

    assert [a.status_code for a in answers] == [401, 401, 405]
    assert {a.headers["content-type"] for a in answers} == {"application/problem+json"}
    assert answers[2].headers["allow"] == "POST"


@pytest.fixture
def send(token):
    """Send one batch through a client of the door."""

    def one(client, *events):
        return client.post("/api/v1/events", content=json.dumps(events), headers=bearer(token))

    return one


def test_whoever_finds_no_connection_is_told_when_to_come_back(at_the_door, send, monkeypatch):
    async def while_all_are_taken(client):
        monkeypatch.setattr(pools.pool(), "timeout", 0.2)
        async with contextlib.AsyncExitStack() as taken:
            for _ in range(CONNECTIONS):
                await taken.enter_async_context(pools.pool().connection(timeout=60))
            turned_away = await send(client, event("run.started"))
        return turned_away, await send(client, event("run.started"))

    turned_away, later = at_the_door(while_all_are_taken)

    assert_come_back(turned_away)
    assert later.json()["results"][0]["status"] == "accepted"


def test_who_waits_too_long_for_a_run_is_told_when_to_come_back(at_the_door, send, monkeypatch):
    monkeypatch.setattr(drivers, "BEGIN", [("BEGIN", ()), ("SET LOCAL lock_timeout = '0.2s'", ())])

    async def while_somebody_holds_it(client):
        await send(client, event("run.started"))
        async with pools.pool().connection() as holder, holder.transaction():
            await holder.execute("SELECT 1 FROM ledger_run FOR UPDATE")
            turned_away = await send(client, event("run.completed"))
        return turned_away, await send(client, event("run.completed"))

    turned_away, later = at_the_door(while_somebody_holds_it)

    assert_come_back(turned_away)
    assert later.json()["results"][0]["status"] == "accepted"
    assert Run.objects.get().state == "completed"


def test_where_sessions_write_no_longer_one_request_is_told_so_and_the_next_is_served(
    at_the_door, token
):
    """The server was the primary until a moment ago, and answers all that is only asked."""
    method, path, more = post([event("run.started")], headers=bearer(token))

    async def story(client):
        async with contextlib.AsyncExitStack() as all_of_them:
            for _ in range(CONNECTIONS):
                one = await all_of_them.enter_async_context(pools.pool().connection())
                await one.execute("SET default_transaction_read_only = on")
        return [await client.request(method, path, **more) for _ in range(3)]

    first, *others = at_the_door(story)

    assert (first.status_code, first.headers["retry-after"]) == (503, "1")
    assert [one.status_code for one in others] == [200, 200]


def test_when_too_many_large_batches_wait_the_next_is_told_when_to_come_back(
    at_the_door, send, monkeypatch
):
    monkeypatch.setattr(pools.threads, "waiting_max", 2)
    monkeypatch.setattr(drivers, "BEGIN", [("BEGIN", ()), ("SET LOCAL lock_timeout = '60s'", ())])
    words = {"args": "x" * (INLINE_BYTES_MAX // 2)}

    def large():
        return [event("action.planned", action=f"a{n}", data={"tool": "pay", **words})
                for n in range(3)]  # fmt: skip

    async def while_somebody_holds_their_run(client):
        await send(client, event("run.started"))
        async with pools.pool().connection() as holder, holder.transaction():
            await holder.execute("SELECT 1 FROM ledger_run FOR UPDATE")
            sent = [asyncio.create_task(send(client, *large())) for _ in range(3)]
            done, _ = await asyncio.wait(sent, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        waited = [await one for one in sent if one not in done]
        return [one.result() for one in done], waited, await send(client, *large())

    turned_away, waited, later = at_the_door(while_somebody_holds_their_run)

    (only,) = turned_away
    assert_come_back(only)
    assert [one.status_code for one in [*waited, later]] == [200, 200, 200]


def assert_come_back(answer):
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_key_that_was_in_use_opens_nothing_soon_after_it_is_revoked(
    at_the_door, trip_desk, ada, token
):
    """It is known at the door by then, and must not be known for ever."""

    def revoke():
        keys.revoke(APIKey.objects.get(), by=ada)
        connection.close()

    async def used_revoked_used_again(client):
        async def use():
            return await client.post("/api/v1/events", content="[]", headers=bearer(token))

        before = await use()
        await asyncio.to_thread(revoke)
        async with asyncio.timeout(60):
            while (after := await use()).status_code == 200:  # noqa: ASYNC110 - nobody rings
                await asyncio.sleep(0.1)
        return before, after

    before, after = at_the_door(used_revoked_used_again)

    assert before.status_code == 200
    assert after.status_code == 401
    assert after.headers["www-authenticate"] == "Bearer"


DOORS = [
    ("POST", "/api/v1/events"),
    ("PUT", f"/api/v1/blobs/{'a' * 64}"),
    ("POST", "/api/v1/actions/begin"),
    ("GET", "/api/v1/approvals/1"),
    ("POST", "/api/v1/approvals/1/answers"),
    ("GET", "/api/v1/policy"),
    ("POST", "/api/v1/cloudevents"),
    ("GET", "/api/v1/runs/run_1/directive"),
]


def test_every_door_for_agents_is_among_those_that_are_tried():
    hot_routes = [route for route in Edge(None)._routes if "/api/" in route.path.pattern]

    assert len(hot_routes) == len(DOORS)
    for route in hot_routes:
        assert any(verb == route.method and route.path.fullmatch(path) for verb, path in DOORS)


@pytest.mark.parametrize(("verb", "path"), DOORS)
def test_the_right_prefix_with_a_wrong_secret_opens_no_door(
    at_the_door, token, trip_desk, ada, verb, path
):
    """Neither before nor after the door has met the true key."""
    prefix = keys.split(token)
    _, other = keys.create_key(trip_desk, by=ada, name="another")
    stolen = [f"amends_{prefix}_{'x' * 43}", f"amends_{prefix}_{other.split('_', 2)[2]}",
              f"amends_{prefix}_", token[:-1]]  # fmt: skip

    async def story(client):
        async def tried(one):
            return (await client.request(verb, path, headers=bearer(one))).status_code

        before = [await tried(one) for one in stolen]
        true = await tried(token)
        return before, true, [await tried(one) for one in stolen]

    before, true, after = at_the_door(story)

    assert before == after == [401] * len(stolen)
    assert true != 401


@pytest.mark.parametrize(
    "state", ["living", "revoked", "expired", "another secret", "another prefix", "no secret"]
)
def test_the_hot_routes_and_the_rest_of_the_api_know_a_key_alike(
    at_the_door, trip_desk, ada, state
):
    key, token = keys.create_key(trip_desk, by=ada, name="another")
    shown = {
        "another secret": token[:-4] + "xxxx",
        "another prefix": token.replace(key.prefix, key.prefix[::-1]),
        "no secret": f"amends_{key.prefix}_",
    }.get(state, token)
    if state == "revoked":
        keys.revoke(key, by=ada)
    if state == "expired":
        past = timezone.now() - timedelta(seconds=1)
        APIKey.objects.filter(pk=key.pk).update(expires_at=past)

    async def story(client):
        return await client.post("/api/v1/events", content="[]", headers=bearer(shown))

    is_open = at_the_door(story).status_code != 401

    assert is_open == (keys.agent_of(shown) is not None) == (state == "living")
    key.refresh_from_db()
    assert (key.last_used_at is not None) == is_open, "what does not open is no use of the key"


def test_a_key_without_the_scope_is_refused(call, trip_desk, ada):
    _, reader = keys.create_key(trip_desk, by=ada, name="reader", scopes=["read"])
    (answer,) = call(post([], headers=bearer(reader)))
    assert answer.status_code == 403


def test_secrets_do_not_enter(call, trip_desk):
    plan = event(
        "action.planned",
        action="a",
        data={
            "tool": "charge",
            "args": {"card_number": "4242424242424242", "note": "4242 4242 4242 4242"},
        },
    )
    call(post([plan]))

    key = desk_events.masking_key(trip_desk.workspace)
    assert Event.objects.filter(action="a").values_list("data__args", flat=True).get() == {
        "card_number": key.placeholder("cardnumber", "4242424242424242"),
        "note": key.placeholder("card", "4242424242424242"),
    }


@pytest.mark.parametrize(
    "path", ["before.ssn", "*.ssn", "effects.after.ssn", "effects.*.ssn", "*.*.ssn"]
)
def test_a_blob_with_what_the_policy_masks_is_refused(call, trip_desk, path):
    trip_desk.workspace.mask = [path, "args.pin"]
    trip_desk.workspace.save()
    secret, other = b'{"ssn":"078-05-1120"}', b'{"pin":"1"}'
    answers = call(
        *(
            ("PUT", f"/api/v1/blobs/{hashlib.sha256(one).hexdigest()}", {"content": one})
            for one in (secret, other)
        )
    )

    assert [a.status_code for a in answers] == [422, 201]


def test_a_blob_is_kept_once_under_its_name(call):
    body = json.dumps({"rows": ["x" * 100_000]}).encode()
    name = hashlib.sha256(body).hexdigest()
    secret = b'{"password":"hunter2"}'
    answers = call(
        ("PUT", f"/api/v1/blobs/{name}", {"content": body}),
        ("PUT", f"/api/v1/blobs/{name}", {"content": body}),
        ("PUT", f"/api/v1/blobs/{'0' * 64}", {"content": body}),
        ("PUT", f"/api/v1/blobs/{hashlib.sha256(secret).hexdigest()}", {"content": secret}),
    )

    assert [a.status_code for a in answers] == [201, 200, 422, 422]
    assert bytes(Blob.objects.get().content or b"") == body
