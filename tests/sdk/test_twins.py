"""A licence service offers its own undo; the desk calls it, sometimes twice: it is done once."""

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from standardwebhooks import Webhook

from amends import NoEffect, testing, twins, webhooks

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TARGET = {"type": "licence", "id": "L-7"}


class Licences:
    """The service's own state and journal."""

    def __init__(self):
        self.held = {"L-7": {"holder": "Mia Li"}}
        self.journal = []
        self.mood = "well"


@pytest.fixture
def licences():
    return Licences()


@pytest.fixture
def service(licences, tmp_path):
    undo = twins.Twins(SECRET, store=str(tmp_path / "twins.sqlite"))

    @undo.undo("release_licence")
    def release(args, target, key):
        if licences.mood == "locked":
            raise NoEffect("the licence is locked by billing")
        licences.journal.append((target["id"], key))
        licences.held.pop(target["id"], None)
        if licences.mood == "dying":
            raise TimeoutError

    @release.observe
    def licence(args, target):
        return licences.held.get(target["id"])

    @release.probe
    def was_released(args, target, key):
        return None if licences.mood == "forgetful" else (target["id"], key) in licences.journal

    return undo


def signed(body: bytes, *, secret=SECRET, at=None):
    at = int(at or time.time())
    signature = webhooks.sign(secret, message_id="m-1", timestamp=at, body=body)
    return {"webhook-id": "m-1", "webhook-timestamp": str(at), "webhook-signature": signature}


def ask(service, do, *, key="k-1", **more):
    body = {"v": 1, "do": do, "operation": "release_licence", "key": key, "target": TARGET,
            "args": {}, **more}  # fmt: skip
    raw = json.dumps(body).encode()
    return service.answer(signed(raw), raw)


def test_a_licence_is_released_once_however_often_the_desk_asks(service, licences):
    first = ask(service, "apply")
    again = ask(service, "apply")

    gone = {"outcome": "applied", "observed": {"found": False, "state": None}, "detail": ""}
    assert first == again == (200, gone)
    assert licences.journal == [("L-7", "k-1")]


def test_a_twin_that_must_not_be_called_twice_is_found(service, licences):
    held = testing.undo_twice(service, "release_licence", target=("licence", "L-7"))
    assert held["observed"] == {"found": False, "state": None}

    @service.undo("take_a_seat")
    def take(args, target, key):
        licences.held[target["id"]] = {
            "seats": licences.held.get(target["id"], {"seats": 9})["seats"] - 1
        }

    with pytest.raises(AssertionError, match="no undo take_a_set; there are: "):
        testing.undo_twice(service, "take_a_set", target=("licence", "L-8"))
    with pytest.raises(AssertionError, match="take_a_seat has no observe"):
        testing.undo_twice(service, "take_a_seat", target=("licence", "L-8"))
    take.observe(lambda _args, target: licences.held.get(target["id"]))
    with pytest.raises(AssertionError, match="after 3 calls"):
        testing.undo_twice(service, "take_a_seat", target=("licence", "L-8"))


def test_a_twin_can_be_made_to_fail(service, licences):
    with testing.failing(service, "release_licence"):
        lost = testing.ask(service, "apply", "release_licence", target=("licence", "L-7"))
    assert (lost["outcome"], licences.journal) == ("unknown", [])

    with testing.failing(service, "release_licence", NoEffect("locked")):
        refused = testing.ask(service, "apply", "release_licence", target=("licence", "L-7"))
    assert (refused["outcome"], refused["detail"]) == ("no_effect", "locked")
    again = testing.ask(service, "apply", "release_licence", target=("licence", "L-7"))
    assert again["outcome"] == "applied"


def test_looking_changes_nothing(service, licences):
    status, answer = ask(service, "observe")

    assert status == 200
    assert answer["observed"] == {"found": True, "state": {"holder": "Mia Li"}}
    assert licences.journal == []


def test_a_documented_refusal_may_be_tried_again(service, licences):
    licences.mood = "locked"
    assert ask(service, "apply")[1]["outcome"] == "no_effect"

    licences.mood = "well"
    assert ask(service, "apply")[1]["outcome"] == "applied"


def test_a_lost_answer_is_unknown_until_the_probe_finds_it(service, licences):
    licences.mood = "dying"
    assert ask(service, "apply")[1]["outcome"] == "unknown"

    licences.mood = "forgetful"
    assert ask(service, "probe")[1]["outcome"] == "unknown"
    assert ask(service, "apply")[1]["outcome"] == "unknown"  # never done blindly a second time

    licences.mood = "well"
    assert ask(service, "probe")[1]["outcome"] == "applied"
    assert ask(service, "apply")[1]["outcome"] == "applied"
    assert len(licences.journal) == 1


def test_a_probe_does_not_free_a_key_whose_undo_is_under_way(tmp_path):
    """Freed, the desk would take it for undone and ask again, beside the first."""
    service = twins.Twins(SECRET, store=str(tmp_path / "twins.sqlite"))
    begun, go_on, journal = threading.Event(), threading.Event(), []

    @service.undo("release_licence")
    def release(args, target, key):
        begun.set()
        assert go_on.wait(10)
        journal.append(key)

    @release.probe
    def was_released(args, target, key):
        return key in journal

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, service, "apply")
        assert begun.wait(10)
        during = ask(service, "probe")[1]["outcome"]
        again = ask(service, "apply")[1]["outcome"]
        go_on.set()

    assert (during, again) == ("unknown", "unknown")
    assert first.result()[1]["outcome"] == "applied"
    assert journal == ["k-1"]


def test_a_key_never_seen_is_proven_absent(service):
    assert ask(service, "probe", key="k-2")[1]["outcome"] == "no_effect"


def test_a_key_is_bound_to_what_was_asked_with_it(service, licences):
    ask(service, "apply")

    status, answer = ask(service, "apply", args={"seat": 8})

    assert (status, answer["outcome"]) == (200, "unknown")
    assert len(licences.journal) == 1


@pytest.mark.parametrize("change", ["secret", "late", "early", "body", "missing"])
def test_only_the_desk_is_listened_to(service, licences, change):
    body = json.dumps({"v": 1, "do": "apply", "operation": "release_licence", "key": "k",
                       "target": TARGET, "args": {}}).encode()  # fmt: skip
    headers = signed(body)
    if change == "secret":
        headers = signed(body, secret="whsec_" + "QUJD" * 8)
    if change in ("late", "early"):
        headers = signed(body, at=time.time() + (900 if change == "early" else -900))
    if change == "body":
        body += b" "
    if change == "missing":
        del headers["webhook-id"]

    status, _ = service.answer(headers, body)

    assert status == 401
    assert licences.journal == []


def test_the_signature_is_that_of_the_standard_webhooks_library():
    body, now = b'{"v": 1}', int(time.time())
    headers = signed(body, at=now)

    assert Webhook(SECRET).verify(body, headers) == {"v": 1}


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"v": 2}', b'{"v": 1, "do": "drop"}', b"\xff", b'"text"',
     b'{"v": 1, "do": "apply", "operation": "release_licence", "key": 7, "target": {}}'],
)  # fmt: skip
def test_a_malformed_request_is_refused_before_anything_is_done(service, licences, body):
    status, answer = service.answer(signed(body), body)

    assert (status, answer["outcome"]) == (400, "no_effect")
    assert licences.journal == []


def test_it_can_be_mounted_in_a_wsgi_server(service, licences):
    from io import BytesIO

    body = json.dumps({"v": 1, "do": "apply", "operation": "release_licence",
                       "key": uuid4().hex, "target": TARGET, "args": {}}).encode()  # fmt: skip
    headers = {f"HTTP_{name.upper().replace('-', '_')}": v for name, v in signed(body).items()}
    environ = {"REQUEST_METHOD": "POST", "CONTENT_LENGTH": str(len(body)),
               "wsgi.input": BytesIO(body), **headers}  # fmt: skip
    said = []

    answer = b"".join(service.wsgi(environ, lambda status, _: said.append(status)))

    assert said == ["200 OK"]
    assert json.loads(answer)["outcome"] == "applied"
    assert len(licences.journal) == 1


def test_it_can_be_mounted_in_an_asgi_server(service, licences):
    body = json.dumps({"v": 1, "do": "apply", "operation": "release_licence",
                       "key": uuid4().hex, "target": TARGET, "args": {}}).encode()  # fmt: skip
    parts = [{"body": body[:9], "more_body": True}, {"body": body[9:], "more_body": False}]
    headers = [(name.encode(), value.encode()) for name, value in signed(body).items()]
    sent = []

    async def receive():
        return parts.pop(0)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "headers": headers}
    asyncio.run(service.asgi(scope, receive, send))

    assert sent[0]["status"] == 200
    assert json.loads(sent[1]["body"])["outcome"] == "applied"
    assert len(licences.journal) == 1
