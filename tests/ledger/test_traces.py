"""Traces that others export become runs: calls without a gate, whatever order they come in."""

import gzip
import json
import re
from contextlib import contextmanager

import pytest
from google.protobuf import json_format
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.trace import StatusCode

from config.local.places import ROOT as REPOSITORY
from ledger import retention
from ledger.foreign import traces
from ledger.foreign.traces import SPANS_MAX
from ledger.models import Action, Blob, Event, Run, TraceRoot
from tests.ledger.conftest import bearer
from workspaces import keys

pytestmark = pytest.mark.django_db(transaction=True)

PROTOBUF = "application/x-protobuf"
TRACE, ROOT, TOOL = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174", "aae19b7ec3c1b174"
BEGAN = 1_764_000_000_000_000_000


@pytest.fixture
def importing(trip_desk, ada):
    return keys.create_key(trip_desk, by=ada, name="traces", scopes=["ingest", "import"])[1]


@contextmanager
def tracer(url, key, processor=BatchSpanProcessor):
    """The SDK as an application sets it up, with its own exporter."""
    exporter = OTLPSpanExporter(f"{url}/v1/traces", headers={"authorization": f"Bearer {key}"})
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor(exporter))
    yield provider.get_tracer("an agent")
    provider.shutdown()


def attribute(name, value):
    return {"key": name, "value": {"stringValue": value}}


def span(span_id, attributes, parent=None, **more):
    found = {"traceId": TRACE, "spanId": span_id, "name": "execute_tool pay",
             "startTimeUnixNano": str(BEGAN), "endTimeUnixNano": str(BEGAN + 1_000_000),
             "attributes": [attribute(*one) for one in attributes.items()]}  # fmt: skip
    return found | ({"parentSpanId": parent} if parent else {}) | more


def tool(span_id=TOOL, parent=ROOT, more=None, **attributes):
    said = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay"}
    named = {f"gen_ai.tool.call.{name}": value for name, value in attributes.items()}
    return span(span_id, said | named, parent, **(more or {}))


def export(*spans):
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def post(body, token, media="application/json", **headers):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return "POST", "/v1/traces", {"content": content, "headers": bearer(token, media) | headers}


def test_what_the_sdk_exports_is_a_run_with_its_calls(processes, importing, northwind):
    desk = processes.kept_web()
    with tracer(desk.url, importing) as tracing:
        spans = tracing.start_as_current_span
        with spans("POST /chat"), spans("invoke_agent desk") as agent:
            agent.set_attribute("gen_ai.operation.name", "invoke_agent")
            with spans("execute_tool pay") as paid:
                paid.set_attribute("gen_ai.operation.name", "execute_tool")
                paid.set_attribute("gen_ai.tool.name", "pay")
                paid.set_attribute("gen_ai.tool.call.arguments", '{"to": "eve", "pin": 1}')
                paid.set_attribute("gen_ai.tool.call.result", '{"paid": true, "token": "t0p"}')
            with spans("mail") as mailed:
                mailed.set_attribute("openinference.span.kind", "TOOL")
                mailed.set_attribute("tool.name", "mail.send")
                mailed.record_exception(TimeoutError("no answer"))
                mailed.set_status(StatusCode.ERROR)
        with spans("GET /health"):
            pass

    run = Run.objects.get()
    assert (run.state, run.flags) == ("completed", ["reported"])
    paid, mailed = Action.objects.order_by("first_place")
    assert (paid.tool, paid.args, paid.state) == ("pay", {"to": "eve", "pin": 1}, "succeeded")
    assert paid.result["paid"] is True
    assert "t0p" not in json.dumps(paid.result)
    assert (mailed.tool, mailed.state, mailed.flags) == ("mail.send", "unknown", ["args_missing"])
    assert mailed.error == {"type": "TimeoutError", "message": "no answer"}


def test_the_two_lines_of_the_guide_are_all_that_an_exporter_needs(
    processes, importing, monkeypatch
):
    guide = (REPOSITORY / "docs" / "imports.md").read_text()
    lines = re.findall(r"^    (OTEL_\w+)=(.*)$", guide, re.MULTILINE)
    assert len(lines) == 2
    url = processes.kept_web().url
    for name, value in lines:
        said = value.replace("https://amends.example.org", url).replace("amends_…", importing)
        monkeypatch.setenv(name, said.strip('"'))
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))

    with provider.get_tracer("an agent").start_as_current_span("execute_tool pay") as paid:
        paid.set_attribute("gen_ai.operation.name", "execute_tool")
        paid.set_attribute("gen_ai.tool.name", "pay")
    provider.shutdown()

    assert Action.objects.get().tool == "pay"


def test_spans_that_come_one_by_one_and_again_are_the_same_run(processes, importing):
    """Each tells its own export; the root, which ends the run, comes last and alone."""
    desk = processes.kept_web()
    with tracer(desk.url, importing, SimpleSpanProcessor) as tracing:
        spans = tracing.start_as_current_span
        with spans("POST /chat"):
            for _ in range(2):
                with spans("execute_tool pay") as paid:
                    paid.set_attribute("gen_ai.operation.name", "execute_tool")
                    paid.set_attribute("gen_ai.tool.call.arguments", "{}")

    run = Run.objects.get()
    assert (run.state, run.action_count) == ("completed", 2)


def test_an_export_in_json_or_protobuf_is_taken_once_and_answered_in_its_form(call, importing):
    sent = export(
        span(ROOT, {"openinference.span.kind": "AGENT", "input.value": "Pay Eve", "user.id": "mia",
                    "llm.model_name": "gpt-5", "session.id": "s-1"}),
        tool(arguments='{"amount": 12345678901234567.890}', result="x" * 100_000),
    )  # fmt: skip
    message = ExportTraceServiceRequest()
    for one in sent["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        plain = message.resource_spans.add().scope_spans.add().spans.add()
        json_format.ParseDict({k: v for k, v in one.items() if not k.endswith("Id")}, plain)
        plain.trace_id, plain.span_id = bytes.fromhex(TRACE), bytes.fromhex(one["spanId"])
        plain.parent_span_id = bytes.fromhex(one.get("parentSpanId", ""))
    packed = gzip.compress(message.SerializeToString())

    first, again = call(
        post(sent, importing),
        post(packed, importing, PROTOBUF, **{"content-encoding": "gzip"}),
    )

    assert (first.status_code, first.json()) == (200, {})
    assert (again.status_code, again.headers["content-type"]) == (200, PROTOBUF)
    assert ExportTraceServiceResponse.FromString(again.content) == ExportTraceServiceResponse()
    run = Run.objects.get()
    assert (run.request, run.model, run.customer) == ("Pay Eve", "gpt-5", "mia")
    assert run.labels == {"conversation": "s-1"}
    assert Event.objects.filter(actor_kind="agent").count() == 5
    paid = Action.objects.get()
    assert paid.args == {"amount": "12345678901234567.890"}, "no digit is lost"
    assert paid.result == {"ref": f"sha256:{Blob.objects.get().sha256}"}


def test_what_is_refused_is_counted_and_told_and_the_rest_is_kept(call, importing):
    bad = tool("bb" * 8, arguments='{"pin": 1, "pin": 2}')
    broken = tool("cc" * 8, arguments="{not json")
    nameless = tool("dd" * 8, more={"traceId": "00"})
    unfit = span(
        "ff" * 8,
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "p\u200bay"},
    )
    (answer,) = call(post(export(tool(), bad, broken, nameless, unfit), importing))

    partial = answer.json()["partialSuccess"]
    assert answer.status_code == 200
    assert partial["rejectedSpans"] == "2"
    assert "span dddddddddddddddd: its ids are none" in partial["errorMessage"]
    assert "the name “pin” stands twice" in partial["errorMessage"]
    assert Action.objects.exclude(tool="").count() == 3
    assert Action.objects.filter(flags__contains=["args_missing"]).count() == 3


def test_a_secret_in_a_text_that_holds_names_is_masked_wherever_it_lies(call, importing):
    """Exporters cut long texts, and agents print objects: what is no JSON has names, too."""
    secret = json.dumps({"password": "hunter2", "of": "eve"})
    texts = [
        secret[:-1],
        "{'password': 'hunter2'}",
        json.dumps(secret),
        secret[:-1] + ', "x": NaN}',
    ]
    calls = [tool(f"{n:016x}", result=text) for n, text in enumerate(texts, start=1)]
    inside = tool("aa" * 8, arguments=json.dumps({"body": secret, "note": "no password"}))
    failed = tool("bb" * 8, more={"status": {"code": 2, "message": f"bad request: {secret}"}})
    root = span(ROOT, {"openinference.span.kind": "CHAIN", "input.value": secret})

    first, again = (call(post(export(root, inside, failed, *calls), importing))[0] for _ in "12")

    assert (first.json(), again.json()) == ({}, {}), "told twice, it is the same"
    told = Event.objects.filter(actor_kind="agent")
    assert not [one for one in told if "hunter2" in json.dumps(one.data)]
    args = Action.objects.get(action="span_" + "aa" * 8).args
    assert json.loads(args["body"])["of"] == "eve", "what names no secret can still be read"
    assert args["note"] == "no password"


def test_messages_in_another_form_lose_no_call(call, importing):
    odd = ["7", '{"a": 1}', '[{"role": "user", "parts": 5}]', "[" * 5_000, "1" * 5_000]
    roots = [
        span(ROOT, {"gen_ai.operation.name": "invoke_agent", "gen_ai.input.messages": one},
             traceId=f"{n:032x}") for n, one in enumerate(odd, start=1)
    ]  # fmt: skip
    (answer,) = call(post(export(tool(), *roots), importing))

    assert answer.status_code == 200
    assert (Action.objects.count(), Run.objects.count()) == (1, 1 + len(odd))


def test_a_trace_whose_root_failed_is_a_run_that_failed_and_one_from_elsewhere_ends_too(
    call, importing
):
    failed = span(ROOT, {}, status={"code": 2, "message": "out of luck"})
    (answer,) = call(post(export(tool(), failed), importing))
    assert answer.json() == {}
    run = Run.objects.get()
    assert (run.state, run.error["message"]) == ("failed", "out of luck")

    other = {"traceId": "11" * 16}
    entry = span("12" * 8, {}, "13" * 8, flags=0x300, **other)
    call(post(export(tool("14" * 8, "12" * 8, more=other), entry), importing))
    assert Run.objects.get(run=f"trace_{'11' * 16}").state == "completed"


def test_roots_of_two_traces_whose_spans_are_numbered_alike_end_both(call, importing):
    """A span's id names it within its trace alone. The first of the two stood as running for good,
    and of two calls that were refused one was counted."""
    other = {"traceId": "22" * 16}
    both = [tool(), tool(more=other), span(ROOT, {}), span(ROOT, {}, **other)]
    unfit = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "p\u200bay"}
    refused = [span("ff" * 8, unfit, ROOT), span("ff" * 8, unfit, ROOT, **other)]

    (answer,) = call(post(export(*both, *refused), importing))

    assert answer.json()["partialSuccess"]["rejectedSpans"] == "2"
    assert [one.state for one in Run.objects.all()] == ["completed", "completed"]


def test_a_root_that_is_a_call_itself_is_one_span_of_those_refused(call, importing):
    """As what ends its run it went by another name, and three of two spans were refused."""
    kinds = {"gen_ai.operation.name": "execute_tool", "openinference.span.kind": "AGENT"}
    unfit = {"gen_ai.tool.name": "p\u200bay", "gen_ai.request.model": "opus\0"}
    root = span(ROOT, kinds | unfit)

    (answer,) = call(post(export(root, root | {"traceId": "22" * 16}), importing))

    told = answer.json()["partialSuccess"]
    assert told["rejectedSpans"] == "2", told["errorMessage"]


def test_a_root_that_comes_before_its_run_ends_it_once_it_has_begun(call, importing, northwind):
    """Where a worker tells of its calls after the process that asked it has told of the trace."""
    secret = json.dumps({"password": "hunter2"})
    root = span(ROOT, {}, status={"code": 2, "message": secret})
    stranger = span("cc" * 8, {}, traceId="22" * 16)

    (first,) = call(post(export(root, stranger), importing))
    assert (first.status_code, first.json()) == (200, {})
    assert not Run.objects.exists(), "whether a trace is a run, its root does not say"
    assert not TraceRoot.objects.filter(error__message__contains="hunter2").exists()
    again, late = call(post(export(root), importing), post(export(tool()), importing))

    assert (again.json(), late.json()) == ({}, {})
    run = Run.objects.get()
    assert (run.state, run.action_count) == ("failed", 1)
    assert TraceRoot.objects.get().run == f"trace_{'22' * 16}", "the other has no run yet"
    told = Event.objects.filter(type="run.failed")
    assert "hunter2" not in json.dumps(told.get().data)
    (same,) = call(post(export(root), importing))
    assert same.json() == {}, "told once more it is the same event"
    assert told.count() == 1


def test_of_roots_that_wait_the_newest_are_kept_of_each_agent_and_for_a_day(
    call, importing, monkeypatch
):
    monkeypatch.setattr(traces, "ROOTS_KEPT_MAX", 2)
    for number in range(1, 4):
        call(post(export(span(f"{number:016x}", {}, traceId=f"{number:032x}")), importing))
    kept = [one.run for one in TraceRoot.objects.order_by("pk")]
    assert kept == [f"trace_{number:032x}" for number in (2, 3)]

    received = TraceRoot.objects.latest("pk").received_at
    retention.keep_to_time(received + retention.ROOTS_KEPT / 2)
    assert TraceRoot.objects.count() == 2
    retention.keep_to_time(received + retention.ROOTS_KEPT * 2)
    assert not TraceRoot.objects.exists()


def test_whoever_may_not_import_or_sends_what_is_none_is_told_in_the_words_of_otlp(
    call, importing, token
):
    many = export(*[span(f"{n:016x}", {}) for n in range(1, SPANS_MAX + 2)])
    answers = call(
        post(export(), token),
        post(export(), "amends_0123456789_wrong", PROTOBUF),
        post(b"\xff\xff", importing, PROTOBUF),
        post({"resourceSpans": 7}, importing),
        post(b"[", importing),
        post(b'{"resourceSpans": ["\\ud800"]}', importing),
        post(export(span("zz", {})), importing),
        post(b"", importing, "text/plain"),
        post(many, importing),
    )

    assert [one.status_code for one in answers] == [403, 401, *[400] * 5, 415, 413]
    assert "scope" in answers[0].json()["message"]
    assert answers[1].headers["content-type"] == PROTOBUF
    assert answers[1].content[:1] == b"\x12", "google.rpc.Status, its message"
    assert not Run.objects.exists()
