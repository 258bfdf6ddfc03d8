"""Traces: calls of tools in the spans that others export (OTLP/HTTP, `POST /v1/traces`).

Read are `execute_tool` spans of OpenTelemetry's GenAI conventions and TOOL spans of OpenInference;
a trace is a run, and ends with its root span. Other spans are taken and left out. A trace comes in
parts and in any order, so an event is made of one span alone and has always the same id; a root
that comes first is kept until its run begins.

Protocol: opentelemetry.io/docs/specs/otlp (OTLP/HTTP; failures answer with google.rpc.Status).
"""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import msgspec
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, SpanFlags, Status
from psycopg.errors import DeadlockDetected, LockNotAvailable, QueryCanceled, SerializationFailure

from amends.protocol.masking import Unfit
from amends.protocol.vocabulary import EventType
from edge import pools
from edge.asgi import (
    RETRY_AFTER_SECONDS,
    Operation,
    Receive,
    Refused,
    Scope,
    Send,
    body_of,
    media_type,
    refuse,
)
from ledger import timestamps, wire
from ledger.agent_keys import actor_of
from ledger.append.events import RecordedBatch
from ledger.foreign.calls import (
    NOT_GIVEN,
    REQUEST_CHARACTERS_MAX,
    ForeignCall,
    ForeignRun,
    Import,
    ImportBatch,
    NotKept,
    error_of,
    events_of,
    masked_member,
    value_of,
)
from ledger.intake import KEEP_BLOB, record_waiting
from ledger.parsed_events import Actor

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
SPANS_MAX = 10_000
TEXT_CHARACTERS_MAX = 120
TOLD_CHARACTERS_MAX = 1_000
DEPTH_MAX = 16
# What the library for protobuf raises of a body; of half a surrogate where a message was meant it
# is a SystemError.
NO_OTLP = (
    DecodeError, json_format.ParseError, ValueError, AttributeError, TypeError, SystemError,
)  # fmt: skip
TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8

OF_AGENTS = frozenset({"invoke_agent", "invoke_workflow"})
KINDS_OF_AGENTS = frozenset({"AGENT", "CHAIN"})
NAMES = ("gen_ai.tool.name", "tool.name")
ARGUMENTS = ("gen_ai.tool.call.arguments", "input.value")
RESULTS = ("gen_ai.tool.call.result", "output.value")
MODELS = ("gen_ai.request.model", "gen_ai.response.model", "llm.model_name")
CONVERSATIONS = ("gen_ai.conversation.id", "session.id")
PEOPLE = ("user.id", "enduser.id")
FROM_ELSEWHERE = (
    SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK | SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
)
IDS_IN_JSON = frozenset({"traceId", "spanId", "parentSpanId"})

NO_WORDS = "The span has the status ERROR."

RUNS_HERE = "SELECT run FROM ledger_run WHERE workspace_id = %s AND run = ANY(%s)"

OPERATION = Operation(
    "ledger_intake_traces",
    "Calls of tools in traces: an ExportTraceServiceRequest of OTLP/HTTP, gzip or not, at most 8"
    " MiB, with a key of the scopes ingest and import",
    media=(PROTOBUF, JSON),
    answers={200: "An ExportTraceServiceResponse; what was refused is told"},
    failure="google.rpc.Status in the form of the request",
    tag="ledger",
)


async def traces(scope: Scope, receive: Receive, send: Send) -> None:
    """`POST /v1/traces`."""
    media = media_type(scope)
    try:
        body = await _taken_in(scope, receive, media)
    except Refused as refused:
        problem = refused.problem
        words = f"{problem.title}: {problem.detail}" if problem.detail else problem.title
        await _answer(send, problem.status, _status(words, media), media, refused.headers)
    except (DeadlockDetected, LockNotAvailable, QueryCanceled, SerializationFailure):
        again = (("retry-after", str(RETRY_AFTER_SECONDS)),)
        await _answer(send, 503, _status("Overloaded", media), media, again)
    else:
        await _answer(send, 200, body, media)


async def _taken_in(scope: Scope, receive: Receive, media: str) -> bytes:
    if media not in {PROTOBUF, JSON}:
        raise refuse("media-type", "Send OTLP as protobuf or JSON", 415, media[:80])
    actor = await actor_of(scope, "import")
    if "ingest" not in actor.scopes:
        raise refuse("scope", "The key may not do this", 403, "It lacks the scope “ingest”.")
    body = await body_of(scope, receive, wire.BATCH_BYTES_MAX, workspace=actor.workspace_id)
    answered: bytes = await pools.in_thread(take_in, body, actor, media)
    return answered


async def _answer(
    send: Send, status: int, body: bytes, media: str, headers: tuple[tuple[str, str], ...] = ()
) -> None:
    kind = media if media in {PROTOBUF, JSON} else JSON
    raw = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    raw += [(name.encode(), text.encode()) for name, text in headers]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _status(words: str, media: str) -> bytes:
    """google.rpc.Status with a message alone, which is its second field; OTLP uses no codes."""
    if media != PROTOBUF:
        return json.dumps({"message": words}).encode()
    text = words.encode()[:127]
    while text and text[-1] & 0xC0 == 0x80:  # noqa: PLR2004 - cut between characters
        text = text[:-1]
    return b"\x12" + bytes([len(text)]) + text


def take_in(body: bytes, actor: Actor, media: str) -> bytes:
    """Record the calls in an export; the answer in the form of the request."""
    export = ParsedExport()
    export.read(_request(body, media))
    names = sorted({run.run for run in export.ends.values()} - export.runs.keys())
    if names:
        with pools.threads_pool().connection() as connection:
            rows = connection.execute(RUNS_HERE, [actor.workspace_id, names]).fetchall()
        names = [name for (name,) in rows]
    taking = Import(actor, _keep)
    known = export.runs.keys() | set(names)
    ends = [run for run in export.ends.values() if run.run in known]
    early = [run for run in export.ends.values() if run.run not in known]
    _keep_roots(actor, early)
    # Together: each in a transaction of its own, ten thousand traces took minutes.
    taking.take(chain.from_iterable(map(events_of, [*export.runs.values(), *ends])))
    if waited := _waiting_roots(actor, export.runs.keys() | {run.run for run in early}):
        taking.take(chain.from_iterable(map(events_of, waited.values())))
        _roots_told(waited)
    refused = [*export.refused, *taking.refused]
    answered = ExportTraceServiceResponse()
    if words := [*refused, *export.remarks, *taking.remarks]:
        spans = {line.split(":")[0] for line in refused if line.startswith("span ")}
        answered.partial_success.rejected_spans = len(spans)
        answered.partial_success.error_message = "; ".join(words)[:TOLD_CHARACTERS_MAX]
    if media == JSON:
        return str(json_format.MessageToJson(answered, indent=None)).encode()
    return bytes(answered.SerializeToString())


def _keep(batch: ImportBatch) -> RecordedBatch:
    if batch.blobs:
        with pools.threads_pool().connection() as connection:
            for sha256, body in batch.blobs.items():
                values = [batch.actor.workspace_id, sha256, body, len(body)]
                connection.execute(KEEP_BLOB, values)
    return record_waiting(batch.actor, batch.parsed)


def _request(body: bytes, media: str) -> ExportTraceServiceRequest:
    found = ExportTraceServiceRequest()
    try:
        if media == PROTOBUF:
            found.ParseFromString(body)
        else:
            json_format.ParseDict(_with_bytes(json.loads(body)), found, ignore_unknown_fields=True)
    except RecursionError as deep:
        raise refuse("malformed", "Nested too deep", 400) from deep
    except NO_OTLP as wrong:
        kind = "protobuf" if media == PROTOBUF else "JSON"
        raise refuse(
            "malformed", f"The body is no OTLP in {kind}", 400, str(wrong)[:200]
        ) from wrong
    count = sum(len(s.spans) for r in found.resource_spans for s in r.scope_spans)
    if count > SPANS_MAX:
        raise refuse("too-many", "Too many spans", 413, f"At most {SPANS_MAX} in an export.")
    return found


def _with_bytes(value: Any) -> Any:
    """OTLP's JSON has ids in hex, where that of protobuf has base64."""
    if isinstance(value, list):
        return [_with_bytes(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for name, inside in value.items():
        if name in IDS_IN_JSON and isinstance(inside, str):
            try:
                found[name] = base64.b64encode(binascii.unhexlify(inside)).decode()
            except binascii.Error as wrong:
                raise ValueError(f"{name} is not in hex") from wrong
        else:
            found[name] = _with_bytes(inside)
    return found


@dataclass
class ParsedExport:
    """What an export tells: calls by their trace, and the ends of traces, of which nobody knows
    yet whether they are runs of an agent."""

    runs: dict[str, ForeignRun] = field(default_factory=dict)
    ends: dict[tuple[str, str], ForeignRun] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def read(self, request: ExportTraceServiceRequest) -> None:
        spans = [
            span
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        for span in sorted(spans, key=lambda one: one.start_time_unix_nano):
            if len(span.trace_id) != TRACE_ID_BYTES or len(span.span_id) != SPAN_ID_BYTES:
                self.refused.append(f"span {span.span_id.hex()}: its ids are none")
                continue
            where = _where(span.span_id.hex(), span.trace_id.hex())
            attributes = {one.key: one.value for one in span.attributes}
            operation, kind = (
                _text(attributes, "gen_ai.operation.name"),
                _text(attributes, OPENINFERENCE),
            )
            is_of_agent = operation in OF_AGENTS or kind in KINDS_OF_AGENTS
            if operation == "execute_tool" or kind == "TOOL":
                self._run(span).calls.append(self._call(span, attributes, where))
            if is_of_agent:
                self._run(span)
            if not span.parent_span_id or span.flags & FROM_ELSEWHERE == FROM_ELSEWHERE:
                end = _end(span, attributes if is_of_agent else {})
                self.ends[end.run, end.identity] = end

    def _run(self, span: Span) -> ForeignRun:
        name = _run_of(span)
        trace = {"trace_id": span.trace_id.hex()}
        return self.runs.setdefault(
            name, ForeignRun(name, f"trace {span.trace_id.hex()}", trace=trace)
        )

    def _call(self, span: Span, attributes: Mapping[str, AnyValue], where: str) -> ForeignCall:
        name = (
            _text(attributes, *NAMES)
            or span.name.removeprefix("execute_tool ").strip()
            or "unnamed"
        )
        call = ForeignCall(f"span_{span.span_id.hex()}", name, where)
        call.trace = {"trace_id": span.trace_id.hex(), "span_id": span.span_id.hex()}
        call.started, call.ended = _time(span.start_time_unix_nano), _time(span.end_time_unix_nano)
        call.has_ended = bool(span.end_time_unix_nano)
        call.args = self._value(attributes, ARGUMENTS, where, "args")
        if span.status.code == Status.STATUS_CODE_ERROR or "error.type" in attributes:
            call.error = _error(span, attributes)
        else:
            call.result = self._value(attributes, RESULTS, where, "result")
        return call

    def _value(
        self, attributes: Mapping[str, AnyValue], names: tuple[str, ...], where: str, member: str
    ) -> Any:
        raw = next((attributes[name] for name in names if name in attributes), None)
        if raw is None:
            return NOT_GIVEN
        try:
            value = _plain(raw)
            if isinstance(value, str) and (member == "args" or value.lstrip()[:1] in {"{", "["}):
                value = value_of(value) if value.strip() else {}
        except NotKept as why:
            self.remarks.append(f"{where}: the call is recorded without its {member}: {why}")
            return NOT_GIVEN
        except ValueError:
            # Arguments that are no JSON could hold what masking finds by its name.
            if member == "args":
                self.remarks.append(f"{where}: the call is recorded without its args: no JSON")
                return NOT_GIVEN
            return value
        return value


OPENINFERENCE = "openinference.span.kind"


def _where(span: str, trace: str) -> str:
    """Of what is told: a span's id names it within its trace alone."""
    return f"span {span} of trace {trace}"


def _run_of(span: Span) -> str:
    return f"trace_{span.trace_id.hex()}"


def _end(span: Span, attributes: Mapping[str, AnyValue]) -> ForeignRun:
    """The root of a trace, with what it says of the run where it is an agent's."""
    identity, trace = span.span_id.hex(), span.trace_id.hex()
    run = ForeignRun(_run_of(span), _where(identity, trace), identity=identity)
    run.trace = {"trace_id": trace, "span_id": identity}
    run.began, run.ended = _time(span.start_time_unix_nano), _time(span.end_time_unix_nano)
    conversation, person = _text(attributes, *CONVERSATIONS), _text(attributes, *PEOPLE)
    run.beginning = {
        "request": _asked(attributes)[:REQUEST_CHARACTERS_MAX],
        "model": _text(attributes, *MODELS)[:TEXT_CHARACTERS_MAX],
        "labels": {"conversation": conversation[:TEXT_CHARACTERS_MAX]} if conversation else {},
        "on_behalf_of": {"id": person[:TEXT_CHARACTERS_MAX]} if person else None,
    }
    if span.status.code == Status.STATUS_CODE_ERROR:
        run.end = (EventType.RUN_FAILED, {"error": _error(span, attributes)})
    elif span.end_time_unix_nano:
        run.end = (EventType.RUN_COMPLETED, {})
    return run


def _asked(attributes: Mapping[str, AnyValue]) -> str:
    """The first words of a user, in the messages of the conventions or as they came in."""
    raw = attributes.get("gen_ai.input.messages")
    if raw is None:
        return _text(attributes, "input.value")
    messages: Any = None
    with suppress(ValueError):
        messages = _plain(raw)
        messages = value_of(messages) if isinstance(messages, str) else messages
    found = map(list, map(_parts, messages if isinstance(messages, list) else ()))
    return "\n".join(next(filter(None, found), []))


def _parts(message: Any) -> Iterator[str]:
    parts = message.get("parts") if isinstance(message, dict) else None
    if isinstance(parts, list) and message.get("role") == "user":
        for part in parts:
            if isinstance(part, dict) and isinstance(part.get("content"), str):
                yield part["content"]


def _error(span: Span, attributes: Mapping[str, AnyValue]) -> dict[str, Any]:
    kind, words = _text(attributes, "error.type"), span.status.message
    for event in span.events:
        if event.name == "exception":
            more = {one.key: one.value for one in event.attributes}
            kind = kind or _text(more, "exception.type")
            words = words or _text(more, "exception.message")
    return error_of(words or NO_WORDS, kind)


def _text(attributes: Mapping[str, AnyValue], *names: str) -> str:
    return next((attributes[name].string_value for name in names if name in attributes), "")


def _plain(value: AnyValue, depth: int = 0) -> Any:
    """The value as JSON has it; raises `NotKept`."""
    if depth > DEPTH_MAX:
        raise NotKept("it is nested too deep")
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(one, depth + 1) for one in value.array_value.values]
    if kind == "kvlist_value":
        return {one.key: _plain(one.value, depth + 1) for one in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return getattr(value, kind) if kind else None


def _time(nanoseconds: int) -> str | None:
    if not nanoseconds:
        return None
    with suppress(ValueError, OverflowError, OSError):
        moment = datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC)
        moment = moment.replace(microsecond=nanoseconds % 1_000_000_000 // 1_000)
        timestamps.check(moment)
        return timestamps.formatted(moment)
    return None


# Roots of traces that came before any span of a call: what ends a run is kept until it has begun.
# Whether a trace is a run at all, its root does not say, and most never become one. So what is kept
# is little, and only for a day (ledger/retention.py). Whoever keeps a root looks afterwards whether
# the run is there, and whoever told of a run looks afterwards whether a root waits: however two
# exports cross, one of them finds both.

ROOTS_KEPT_MAX = 10_000
"""Of one agent; the oldest go first. As many as one export has spans."""

KEEP_ROOT = """
INSERT INTO ledger_traceroot (workspace_id, agent_id, run, span, began, ended, error)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (agent_id, run, span) DO NOTHING"""
LET_ROOTS_GO = """
DELETE FROM ledger_traceroot WHERE id IN (
    SELECT id FROM ledger_traceroot WHERE agent_id = %s ORDER BY id DESC OFFSET %s)"""
WAITING_ROOTS = """
SELECT t.id, t.run, t.span, t.began, t.ended, t.error::text FROM ledger_traceroot t
JOIN ledger_run r ON r.workspace_id = t.workspace_id AND r.run = t.run
WHERE t.agent_id = %s AND t.run = ANY(%s) ORDER BY t.id"""
ROOTS_TOLD = "DELETE FROM ledger_traceroot WHERE id = ANY(%s)"


def _keep_roots(actor: Actor, roots: Iterable[ForeignRun]) -> None:
    """Keep the roots that end a trace whose run is not here."""
    # In one order, so that two who bring the same do not wait for each other.
    rows = sorted((root.run, root.identity, root) for root in roots if root.end is not None)
    if not rows:
        return
    with pools.threads_pool().connection() as connection, connection.cursor() as cursor:
        cursor.executemany(KEEP_ROOT, [_root_row(actor, root) for _, _, root in rows])
        cursor.execute(LET_ROOTS_GO, [actor.agent_id, ROOTS_KEPT_MAX])


def _root_row(actor: Actor, root: ForeignRun) -> list[Any]:
    error = (root.end[1] if root.end else {}).get("error")
    if error is not None:
        try:
            error = masked_member(error, "error", actor)
        except (Unfit, ValueError):
            error = {"message": NO_WORDS}
    told = None if error is None else msgspec.json.encode(error).decode()
    return [actor.workspace_id, actor.agent_id, root.run, root.identity, root.began or "",
            root.ended or "", told]  # fmt: skip


def _waiting_roots(actor: Actor, runs: Iterable[str]) -> dict[int, ForeignRun]:
    """The roots that wait for one of these runs and find it here, by their row."""
    with pools.threads_pool().connection() as connection:
        rows = connection.execute(WAITING_ROOTS, [actor.agent_id, sorted(runs)]).fetchall()
    found = {}
    for pk, run, span, began, ended, error in rows:
        trace = run.removeprefix("trace_")
        root = ForeignRun(run, _where(span, trace), identity=span)
        root.trace = {"trace_id": trace, "span_id": span}
        root.began, root.ended = began or None, ended or None
        root.end = (EventType.RUN_COMPLETED, {})
        if error is not None:
            root.end = (EventType.RUN_FAILED, {"error": msgspec.json.decode(error)})
        found[pk] = root
    return found


def _roots_told(rows: Iterable[int]) -> None:
    """They wait no more."""
    with pools.threads_pool().connection() as connection:
        connection.execute(ROOTS_TOLD, [list(rows)])
