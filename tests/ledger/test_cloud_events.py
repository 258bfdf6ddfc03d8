"""CloudEvents are our events in another envelope, in each of the three modes of HTTP."""

import re
from datetime import UTC, datetime

import pytest
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

from config.local.places import ROOT
from edge import pools
from ledger.foreign.cloud_events import BATCH, STRUCTURED
from ledger.intake import INLINE_BYTES_MAX
from ledger.models import Action, Event, Run
from tests.ledger.conftest import bearer

pytestmark = pytest.mark.django_db(transaction=True)

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def told(type_, data=None, id_="1", source="/desk/é", **more):
    attributes = {"id": id_, "source": source, "type": f"amends.{type_}", "run": "run_1",
                  "specversion": "1.0", "datacontenttype": "application/json",
                  "time": datetime(2026, 11, 24, 10, 0, tzinfo=UTC)}  # fmt: skip
    return CloudEvent(attributes | more, data if data is not None else {})


def post(message, token):
    headers = {name.lower(): value for name, value in message.headers.items()}
    headers["authorization"] = f"Bearer {token}"
    return "POST", "/api/v1/cloudevents", {"content": message.body, "headers": headers}


def raw(body, token, media=STRUCTURED, **headers):
    return (
        "POST",
        "/api/v1/cloudevents",
        {"content": body, "headers": bearer(token, media) | headers},
    )


def test_the_request_of_the_guide_is_taken(call, token):
    guide = (ROOT / "docs" / "imports.md").read_text()
    [printed] = re.findall(r"```\n(POST .*?)```", guide, re.DOTALL)
    head, _, body = printed.partition("\n\n")
    method, path = head.split("\n")[0].split()
    headers = dict(line.split(": ") for line in head.split("\n")[1:]) | bearer(token)

    [answer] = call((method, path, {"content": body.encode(), "headers": headers}))

    assert answer.status_code == 200, answer.text
    assert (Run.objects.get().run, Run.objects.get().request) == ("run_91x", "Move my flight")


def test_each_mode_says_the_same_event_and_the_same_one_once(call, token):
    planned = told("action.planned", {"tool": "pay", "args": {"to": "Éve"}}, action="act_1", n=1,
                   traceparent=PARENT)  # fmt: skip
    other = told("run.completed", {"summary": "done"}, source="/elsewhere")

    answers = call(
        post(to_binary_event(planned), token),
        post(to_structured_event(planned), token),
        raw(b"[" + to_structured_event(planned).body + b"," + to_structured_event(other).body
            + b"]", token, BATCH),
    )  # fmt: skip

    assert [one.status_code for one in answers] == [200, 200, 200], answers[0].text
    assert answers[0].json() == {"id": "1", "status": "accepted"}
    assert answers[1].json() == {"id": "1", "status": "duplicate"}
    assert [one["status"] for one in answers[2].json()["results"]] == ["duplicate", "accepted"]
    paid = Action.objects.get()
    assert (paid.tool, paid.args, paid.n) == ("pay", {"to": "Éve"}, 1)
    assert Run.objects.get().state == "completed"
    said = Event.objects.get(type="action.planned")
    assert said.trace == {"trace_id": PARENT[3:35], "span_id": PARENT[36:52]}
    assert said.time == datetime(2026, 11, 24, 10, 0, tzinfo=UTC)


def test_what_is_sent_again_in_another_span_is_the_same_event(call, token):
    """A client that traces itself puts its own span into the headers of each try."""
    message = to_binary_event(told("run.started"))
    tries = [post(message, token) for _ in range(2)]
    for n, (_, _, given) in enumerate(tries):
        given["headers"]["traceparent"] = PARENT.replace("b7ad", f"b7a{n}")

    answers = call(*tries)

    assert [one.json()["status"] for one in answers] == ["accepted", "duplicate"]


def test_what_is_no_event_of_ours_is_refused_with_what_is_wrong(call, token):
    good = to_structured_event(told("run.started")).body
    answers = call(
        post(to_structured_event(told("run.flew")), token),
        raw(good.replace(b"amends.run.started", b"com.example.order"), token),
        raw(good.replace(b'"1.0"', b'"0.3"'), token),
        raw(good.replace(b'"source"', b'"sauce"'), token),
        raw(good.replace(b'"data": {}', b'"data_base64": "AA=="'), token),
        raw(good.replace(b'"data": {}', b'"data": {"a": 1, "a": 2}'), token),
        raw(good.replace(b'"data": {}', b'"data": {"source": "reported"}'), token),
        raw(b'{"a":' * 10_000, token),
        raw(good.replace(b'"data": {}', b'"data": {"a": "\xff"}'), token),
        raw(good.replace(b'"data": {}', b'"data": {"a": %s}' % (b"1" * 5_000)), token),
        raw(b"{", token),
        raw(b"{}", token, "application/json"),
        raw(b"{", token, "application/json", **{"ce-specversion": "1.0"}),
        raw(good, "amends_0123456789_wrong"),
    )

    statuses = [one.status_code for one in answers]
    assert statuses == [422, 422, 422, 422, 415, 422, 403, 422, 400, 400, 400, 415, 400, 401]
    assert {one.headers["content-type"] for one in answers} == {"application/problem+json"}
    assert "Ours begin with “amends.”" in answers[1].json()["detail"]
    assert not Run.objects.exists()


def test_a_large_one_is_dealt_with_in_a_thread_in_each_mode(call, token, monkeypatch):
    """So it holds up nobody who waits: where no thread has room, it is told to come back."""
    small = told("run.started")
    large = told("run.completed", {"summary": "x" * 40_000}, "2",
                 note="y" * INLINE_BYTES_MAX)  # fmt: skip
    bodies = [to_structured_event(one).body for one in (small, large)]
    requests = [raw(bodies[1], token), raw(b"[" + b",".join(bodies) + b"]", token, BATCH)]

    with monkeypatch.context() as full:
        full.setattr(pools.threads, "waiting_max", 0)
        turned_away = call(*requests, raw(bodies[0], token))
    taken = call(*requests)

    assert [one.status_code for one in turned_away] == [503, 503, 200]
    assert taken[0].json() == {"id": "2", "status": "accepted"}
    assert [one["status"] for one in taken[1].json()["results"]] == ["duplicate", "duplicate"]


def test_in_a_batch_each_is_answered_by_itself(call, token):
    good = to_structured_event(told("run.started", id_="good")).body
    many = b"[" + b",".join([good] * 1_001) + b"]"
    batch, large = call(
        raw(b'[{"id": "odd"},7,{"a":{"b":"\xff"}},' + good + b"]", token, BATCH),
        raw(many, token, BATCH),
    )

    assert [one["status"] for one in batch.json()["results"]] == [
        "rejected",
        "rejected",
        "rejected",
        "accepted",
    ]
    assert [one["id"] for one in batch.json()["results"]] == ["odd", "", "", "good"]
    assert large.status_code == 413
