"""The desk's own traces, as a collector on this machine hears them."""

from collections import Counter
from http.server import BaseHTTPRequestHandler

import httpx
import pytest
from django.db import transaction
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from approvals import inbox
from edge import tracing
from recovery import tasks
from tests.approvals.door import planned
from tests.crash.oracle import until
from tests.ports import answering
from tests.recovery.engine.desk import asked as asked_for
from tests.recovery.engine.desk import plan_for, states
from workspaces import keys
from workspaces.wakeups import wake

pytestmark = pytest.mark.django_db(transaction=True)
AGENTS_TRACE = {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}


class Collector:
    """Takes spans by OTLP/HTTP and keeps them."""

    url: str

    def __init__(self):
        self.spans: list[Span] = []
        self.raw = b""

    def handler(collector):  # noqa: N805 - the handler has a self of its own
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.raw += body
                told = ExportTraceServiceRequest.FromString(body)
                for of_resource in told.resource_spans:
                    for of_scope in of_resource.scope_spans:
                        collector.spans += of_scope.spans
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

        return Handler

    def named(self, name):
        return [one for one in self.spans if one.name == name]


@pytest.fixture
def collector():
    found = Collector()
    with answering(found.handler()) as found.url:
        yield found


@pytest.fixture
def traced(collector, monkeypatch):
    """The environment of a desk that tells of itself."""
    said = {
        "AMENDS_TRACES": "1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tracing, "tracing", tracing.Tracing())
    return said


def told(span):
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def test_begin_goes_on_in_the_agents_trace_and_a_plans_steps_are_one(
    processes, environment, things, world, outside, handy, ada, ben, collector, traced
):
    token = keys.create_key(handy, by=ada, name="laptop")[1]
    web = processes.web(**traced)
    body = planned(run="run_9", args={"iban": "canary-payload"}) | {"trace": AGENTS_TRACE}
    asked = httpx.post(
        f"{web.url}/api/v1/actions/begin", json=body, headers={"authorization": f"Bearer {token}"},
        timeout=60,
    )  # fmt: skip
    with transaction.atomic():
        plan = plan_for(things("p"), world)
        approval = asked_for(plan, ada)
    inbox.grant(approval, by=ben, seen=approval.digest, reason="checked")
    worker = processes.worker(concurrency=1, **environment, **traced)
    wake(tasks.run_plan, plan.pk)
    until(lambda: states(plan) == ["verified"] * 3, 60, "the plan ran")
    worker.stop()
    until(lambda: len(collector.named("settle")) == 3, 60, "the collector heard of it")
    until(lambda: collector.named("begin"), 60, "and of the question")
    until(lambda: collector.named("decision"), 60, "and of the answer")

    (begun,) = collector.named("begin")
    assert begun.trace_id.hex() == AGENTS_TRACE["trace_id"]
    assert begun.parent_span_id.hex() == AGENTS_TRACE["span_id"]
    assert told(begun) == {
        "amends.workspace": "acme", "amends.agent": "handy", "amends.run": "run_9",
        "amends.action": "act_1", "amends.answer": asked.json()["answer"],
    }  # fmt: skip
    (decided,) = collector.named("decision")
    assert told(decided)["amends.approval"] == approval.pk
    assert (told(decided)["amends.answer"], told(decided)["amends.state"]) == ("yes", "granted")
    of_steps = [one for one in collector.spans if one.name in {"claim", "intend", "act", "settle"}]
    assert Counter(one.name for one in of_steps) == dict.fromkeys(
        ("claim", "intend", "act", "settle"), 3
    )
    assert len({one.trace_id for one in of_steps}) == 1
    assert {told(one)["amends.plan"] for one in of_steps} == {plan.pk}
    assert {told(one)["amends.run"] for one in of_steps} == {"run_p"}
    assert all(one.start_time_unix_nano <= one.end_time_unix_nano for one in of_steps)
    assert b"canary-payload" not in collector.raw


def test_nothing_is_told_where_nobody_asked_for_it(monkeypatch):
    monkeypatch.delenv("AMENDS_TRACES", raising=False)
    with tracing.span("begin", run="run_1") as span:
        span.set(answer="proceed")

    assert span is tracing.NOWHERE
