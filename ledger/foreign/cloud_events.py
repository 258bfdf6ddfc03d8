"""CloudEvents 1.0 over HTTP, in binary, structured and batch mode: our events in another envelope.

| CloudEvent | event |
|---|---|
| `type` | the type, with `amends.` before it |
| `source` and `id` | `id`: together they name an event, so it is a digest of both |
| `time`, `data` | the same |
| extensions `run`, `action`, `n` | the same |
| extension `traceparent` | `trace` |

The header `traceparent` of a request is none of it: each try has another, and would say otherwise.
Everything else that a CloudEvent may carry is for those who pass it on, and is left out. The event
is then read as any other is, with its limits and its problems.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec import Raw

from edge import pools
from edge.asgi import (
    Operation,
    Problem,
    Receive,
    Scope,
    Send,
    answer,
    answer_problem,
    body_of,
    header,
    media_type,
    problem,
    refuse,
)
from ledger import wire
from ledger.agent_keys import actor_of
from ledger.foreign.calls import name_of
from ledger.intake import INLINE_BYTES_MAX, Read, record_read, record_read_waiting
from ledger.parsed_events import Actor, EventResult

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
VERSION = "1.0"
PREFIX = "amends."
ID_CHARACTERS_MAX = 64
TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")

_any = msgspec.json.Decoder()
_members = msgspec.json.Decoder(dict[str, Raw])
_batch = msgspec.json.Decoder(list[Raw])
_text = msgspec.json.Decoder(str)
_number = msgspec.json.Decoder(int)
_json = msgspec.json.Encoder()

OPERATION = Operation(
    "ledger_intake_cloudevents",
    "Record CloudEvents 1.0, in binary, structured or batch mode",
    media=(STRUCTURED, BATCH, "application/json"),
    answers={200: "`accepted` or `duplicate`; of a batch, what became of each"},
    refusals=dict.fromkeys((400, 413, 415, 422), ""),
    tag="ledger",
)


class CloudEvent(NamedTuple):
    """One of them: its id as it was sent, and the event that it holds in JSON, or what is wrong."""

    id: str
    event: bytes | Problem


async def cloud_events(scope: Scope, receive: Receive, send: Send) -> None:
    """`POST /api/v1/cloudevents`."""
    actor = await actor_of(scope, "ingest")
    media = media_type(scope)
    body = await body_of(scope, receive, wire.BATCH_BYTES_MAX, workspace=actor.workspace_id)
    if len(body) > INLINE_BYTES_MAX:
        answers = await pools.in_thread(take_in, scope, media, body, actor)
    else:
        events = _events(scope, media, body)
        answers = _named(events, await record_read(actor, _read_all(events, actor)))
    if media == BATCH:
        await answer(send, 200, {"results": answers})
    elif answers[0].problem:
        await answer_problem(send, answers[0].problem)
    else:
        await answer(send, 200, answers[0])


def take_in(scope: Scope, media: str, body: bytes, actor: Actor) -> list[EventResult]:
    """Read and record a large body, in a thread."""
    events = _events(scope, media, body)
    return _named(events, record_read_waiting(actor, _read_all(events, actor)))


def _events(scope: Scope, media: str, body: bytes) -> list[CloudEvent]:
    if media == BATCH:
        return _of_batch(body)
    if media == STRUCTURED:
        return [_structured(body)]
    if header(scope, b"ce-specversion"):
        return [_binary(scope, media, body)]
    kinds = f"{STRUCTURED}, {BATCH}, or JSON with the headers ce-…"
    raise refuse("media-type", "Send a CloudEvent", 415, kinds)


def _read_all(events: Sequence[CloudEvent], actor: Actor) -> Read:
    return [
        wire.read(one.event, actor) if isinstance(one.event, bytes) else (one.id, one.event)
        for one in events
    ]


def _named(events: Sequence[CloudEvent], answers: Sequence[EventResult]) -> list[EventResult]:
    """The answers by the ids under which the events came."""
    return [
        msgspec.structs.replace(one, id=asked.id)
        for asked, one in zip(events, answers, strict=True)
    ]


def _of_batch(body: bytes) -> list[CloudEvent]:
    try:
        raws = [bytes(one) for one in _batch.decode(body)]
    except RecursionError as deep:
        raise refuse("malformed", "Nested too deep", 400) from deep
    except (msgspec.MsgspecError, UnicodeDecodeError) as wrong:
        raise refuse("malformed", "The body is not a JSON array", 400, str(wrong)) from wrong
    if len(raws) > wire.BATCH_EVENTS_MAX:
        most = f"At most {wire.BATCH_EVENTS_MAX} in a batch."
        raise refuse("too-many", "Too many events", 413, most)
    return [_structured(raw) for raw in raws]


def _structured(raw: bytes) -> CloudEvent:
    try:
        _any.decode(raw)  # for the other does not look into its members
        members = _members.decode(raw)
    except RecursionError:
        return CloudEvent("", problem("unfit", "The event is nested too deep", 422))
    except (msgspec.MsgspecError, UnicodeDecodeError) as wrong:
        return CloudEvent("", problem("malformed", "It is no CloudEvent in JSON", 400, str(wrong)))
    if name := wire.repeated(raw):
        return CloudEvent("", problem("duplicate-name", "A name stands twice", 422, name))
    data = members.pop("data", None)
    if "data_base64" in members:
        return CloudEvent("", _not_json())
    attributes: dict[str, str] = {}
    for name, value in members.items():
        try:
            attributes[name] = _text.decode(value)
        except msgspec.MsgspecError:
            attributes[name] = bytes(value).decode()  # a number or a truth, as it is written
    return _read(attributes, data)


def _binary(scope: Scope, media: str, body: bytes) -> CloudEvent:
    attributes = {
        name.decode("latin-1").removeprefix("ce-"): unquote(value.decode("latin-1"))
        for name, value in scope["headers"]
        if name.startswith(b"ce-")
    }
    if body and media:
        attributes["datacontenttype"] = media
    if not body:
        return _read(attributes, None)
    try:
        _any.decode(body)
    except RecursionError:
        return CloudEvent("", problem("unfit", "The data is nested too deep", 422))
    except (msgspec.MsgspecError, UnicodeDecodeError) as wrong:
        return CloudEvent("", problem("malformed", "The data is not JSON", 400, str(wrong)))
    return _read(attributes, Raw(body))


def _not_json() -> Problem:
    return problem("schema", "The data is not JSON", 415, "datacontenttype is application/json.")


def _read(attributes: Mapping[str, str], data: Raw | None) -> CloudEvent:
    """The event that a CloudEvent with these attributes stands for."""
    id_ = attributes.get("id", "")
    shown = id_[:ID_CHARACTERS_MAX]
    if missing := [
        name for name in ("specversion", "id", "source", "type") if not attributes.get(name)
    ]:
        lacks = f"It lacks {', '.join(missing)}."
        return CloudEvent(shown, problem("schema", "It is no CloudEvent", 422, lacks))
    if attributes["specversion"] != VERSION:
        lacks = f"specversion is {VERSION} here."
        return CloudEvent(shown, problem("schema", "Another version of CloudEvents", 422, lacks))
    kind = attributes.get("datacontenttype", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        return CloudEvent(shown, _not_json())
    if not attributes["type"].startswith(PREFIX):
        lacks = f"Ours begin with “{PREFIX}”: amends.run.started."
        return CloudEvent(shown, problem("unknown-type", "Unknown type of event", 422, lacks))
    event: dict[str, Any] = {
        "id": name_of("cloudevent", attributes["source"], id_),
        "type": attributes["type"].removeprefix(PREFIX),
        "run": attributes.get("run", ""),
    }
    event |= {name: attributes[name] for name in ("action", "time") if attributes.get(name)}
    if attributes.get("n"):
        try:
            event["n"] = _number.decode(attributes["n"])
        except msgspec.MsgspecError:
            return CloudEvent(shown, problem("schema", "n is no whole number", 422))
    if parent := TRACEPARENT.fullmatch(attributes.get("traceparent", "")):
        event["trace"] = {"trace_id": parent[1], "span_id": parent[2]}
    if data is not None:
        event["data"] = data
    return CloudEvent(shown, _json.encode(event))
