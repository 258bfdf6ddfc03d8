"""The hot door: who may come in, what is refused, and that nothing bad is a 500."""

import asyncio
import gzip
import hashlib
import json

import httpx
import pytest

from config.door import Door
from ledger.door import known_keys
from ledger.models import Blob, Event, EventKey, Run, Unsealed
from tests.ledger.conftest import event
from workspaces import hot, keys

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def token(trip_desk, ada):
    return keys.create_key(trip_desk, by=ada, name="laptop")[1]


async def no_django(scope, receive, send):
    raise AssertionError("the hot door serves this itself")


@pytest.fixture
def call(token, settings):
    """Send requests to the real door, one after the other: (method, path, keywords of httpx)."""

    def send(*requests):
        async def talk():
            known_keys.forget()
            await hot.open_pool(settings.DATABASE_URL, connections_max=4)
            transport = httpx.ASGITransport(app=Door(no_django))
            try:
                async with httpx.AsyncClient(transport=transport, base_url="http://desk") as client:
                    return [
                        await client.request(method, path, **({"headers": bearer(token)} | more))
                        for method, path, more in requests
                    ]
            finally:
                await hot.close_pool()

        return asyncio.run(talk())

    return send


def bearer(token, media="application/json"):
    return {"authorization": f"Bearer {token}", "content-type": media}


def post(body, **more):
    content = body if isinstance(body, bytes | str) else json.dumps(body)
    return "POST", "/api/v1/events", {"content": content} | more


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


def test_a_gzip_bomb_stops_at_the_limit(call, token):
    bomb = gzip.compress(b" " * (20 * 1024 * 1024))
    headers = bearer(token) | {"content-encoding": "gzip"}
    broken = gzip.compress(b"[]")[:-4]
    answers = call(post(bomb, headers=headers), post(broken, headers=headers))

    assert [a.status_code for a in answers] == [413, 400]


def test_what_is_wrong_with_a_request_is_said(call, token):
    answers = call(
        post([], headers={"content-type": "application/json"}),
        post([], headers=bearer("amends_0123456789_wrong")),
        post([], headers=bearer(token, "text/plain")),
        post([], headers=bearer(token) | {"content-encoding": "br"}),
        post("{not json"),
        post({"id": "1"}),
        post([0] * 1001),
        post("[" * 100_000),
        post(b'["\xff"]'),
        ("PUT", "/api/v1/events", {}),
    )

    assert [a.status_code for a in answers] == [401, 401, 415, 415, 400, 400, 413, 400, 200, 405]
    assert all(
        a.headers["content-type"] == "application/problem+json"
        for a in answers
        if a.status_code != 200
    )


RUN = '{"id": "a", "type": "run.started", "run": "r", '
ACTION = '{"id": "a", "type": "action.%s", "run": "r", "action": "x", "data": '
BAD = {
    "not an object": "7",
    "no type": '{"id": "a", "run": "r"}',
    "a name twice": RUN + '"data": {"x": 1, "x": 2}}',
    "a name twice, spaced": RUN + '"data": {"x" : 1, "x":2}}',
    "a name twice beside its like in a text": RUN + '"data": {"x" : "\\":", "x":2}}',
    "a name twice under a secret": RUN + '"data": {"token": {"x": 1, "x": 2}}}',
    "NaN": RUN + '"data": {"x": NaN}}',
    "a lone surrogate": RUN + '"data": {"x": "\\ud800"}}',
    "NUL": RUN + '"data": {"x": "\\u0000"}}',
    "NUL in a name": RUN + '"data": {"\\u0000": 1}}',
    "a huge integer": RUN + '"data": {"x": 9007199254740993}}',
    "infinite": RUN + '"data": {"x": 1e400}}',
    "too deep": RUN + '"data": ' + '{"a":' * 40 + "1" + "}" * 41,
    "a depth bomb": RUN + '"data": ' + "[" * 30000 + "]" * 30000 + "}",
    "too large": RUN + '"data": {"x": "' + "y" * 70_000 + '"}}',
    "a foreign member": RUN + '"data": {}, "workspace": "other"}',
    "the desk's word": ACTION % "approved" + "{}}",
    "a fence of its own": ACTION % "started" + '{"fence": 3}}',
    "no time": RUN + '"time": "yesterday"}',
    "a time without offset": RUN + '"time": "2026-01-01T00:00:00"}',
    "a time before time": RUN + '"time": "0001-01-01T00:00:00+14:00"}',
    "n too large": RUN + '"n": 99999999999}',
    "an id with spaces": '{"id": "a b", "type": "run.started", "run": "r"}',
    "an action without one": '{"id": "a", "type": "action.started", "run": "r"}',
    "a wrong type": ACTION % "planned" + '{"tool": 7}}',
}


def test_a_bad_event_has_a_problem_and_its_neighbours_are_kept(call, token):
    good = [json.dumps(event("run.started")) for _ in BAD]
    lines = "\n".join(line for pair in zip(BAD.values(), good, strict=True) for line in pair)
    (answer,) = call(post(lines, headers=bearer(token, "application/x-ndjson")))

    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    for name, bad, neighbour in zip(BAD, results[::2], results[1::2], strict=True):
        assert bad["status"] == "rejected", name
        assert 400 <= bad["problem"]["status"] < 500, name
        assert neighbour["status"] == "accepted", name
    assert Event.objects.filter(actor_kind="agent").count() == len(BAD)


def test_a_clock_years_off_is_only_shown(call):
    (answer,) = call(post([event("run.started", time="2126-11-21T10:02:15.120Z")]))

    assert answer.json()["results"][0]["status"] == "accepted"
    assert Event.objects.filter(time__year=2126).exists()


def test_a_revoked_key_opens_nothing_within_two_seconds(call, trip_desk, ada, token):
    from workspaces.models import APIKey

    keys.revoke(APIKey.objects.get(), by=ada)
    (answer,) = call(post([event("run.started")]))

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


def test_a_key_without_the_scope_is_refused(call, trip_desk, ada):
    _, reader = keys.create_key(trip_desk, by=ada, name="reader", scopes=["read"])
    (answer,) = call(post([], headers=bearer(reader)))
    assert answer.status_code == 403


def test_secrets_do_not_enter(call):
    plan = event(
        "action.planned",
        action="a",
        data={
            "tool": "charge",
            "args": {"card_number": "4242424242424242", "note": "4242 4242 4242 4242"},
        },
    )
    call(post([plan]))

    assert Event.objects.filter(action="a").values_list("data__args", flat=True).get() == {
        "card_number": "⟦masked:cardnumber⟧",
        "note": "⟦masked:card⟧",
    }


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
