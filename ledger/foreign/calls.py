"""Runs that others tell of, call by call: what transcripts and traces both come to.

Such a run passed no gate here, and its events say so. Every id is made of what was told, so that
telling it twice changes nothing. What the ledger does not keep of a call is left out of it and
told; the call itself is never lost.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from amends.protocol.canonical import canonical
from amends.protocol.masking import MaskingKey, Unfit, made_by, masked, secret_name
from amends.protocol.vocabulary import EventType
from ledger import wire
from ledger.append.events import RecordedBatch
from ledger.canonical import exactly
from ledger.desk_events import masking_key
from ledger.intake import BLOB_BYTES_MAX
from ledger.parsed_events import Actor, EventResult, ParsedEvent
from ledger.schemas import IMPORTED
from workspaces import keys
from workspaces.models import Agent

EVENT_ID_CHARACTERS = 40
TOOL_CHARACTERS_MAX = 200
REQUEST_CHARACTERS_MAX = 8_000
"""Of what the user asked; the ledger is no archive of conversations."""
MESSAGE_CHARACTERS_MAX = 2_000
INLINE_BYTES_MAX = 24 * 1024
"""Larger arguments and results are kept as blobs: with two of this size an event still fits."""

# A name in a text, as JSON and the languages of agents write objects, escaped or not.
NAME_IN_TEXT = re.compile(r"""["']([A-Za-z][\w-]{0,63})\\{0,16}["']\s{0,8}:""")

NOT_GIVEN: Any = object()

_json = msgspec.json.Encoder()


class NotKept(ValueError):
    """We stopped because the ledger does not keep such a value; the text says what is wrong."""


@dataclass(slots=True)
class ForeignCall:
    """One call of a tool. `where` names its place in what was sent; `identity` is the same each
    time it is told."""

    identity: str
    tool: str
    where: str
    n: int | None = None
    args: Any = NOT_GIVEN
    result: Any = NOT_GIVEN
    error: dict[str, Any] | None = None
    has_ended: bool = True
    started: str | None = None
    ended: str | None = None
    trace: dict[str, Any] | None = None


@dataclass(slots=True)
class ForeignRun:
    """One run. `beginning` is the data of its start, `end` the type and data of its end, if told;
    `remarks` are what could not be read, each with its place."""

    run: str
    where: str
    beginning: dict[str, Any] = field(default_factory=dict)
    began: str | None = None
    end: tuple[EventType, dict[str, Any]] | None = None
    ended: str | None = None
    calls: list[ForeignCall] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    trace: dict[str, Any] | None = None
    identity: str = ""


class PlacedEvent(NamedTuple):
    """An event as it would come over the wire, and the place that it came from."""

    where: str
    event: dict[str, Any]


def importer(agent: Agent, *, name: str) -> Actor:
    """The agent, told of at the server: by a key of this name, as everybody who imports has one.

    The key is made where there is none, and nobody ever sees its token.
    """
    here = agent.workspace
    scopes = ["ingest", "import"]
    key = keys.living(agent.keys.filter(name=name, scopes=scopes))
    if key is None:
        key, _ = keys.create_key(agent, by=None, name=name, scopes=scopes)
    return Actor(
        here.pk, here.slug, "agent", agent.name, agent.pk, key.prefix, mask=tuple(here.mask),
        capture_intent=here.capture_intent, capture_snapshot=here.capture_snapshot,
        stuck_after_seconds=here.stuck_after_seconds, scopes=frozenset(scopes),
        masking_key=masking_key(here),
    )  # fmt: skip


def name_of(*parts: str) -> str:
    """An id made of what names the thing, and nothing else."""
    joined = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(joined).hexdigest()[:EVENT_ID_CHARACTERS]


def value_of(text: str) -> Any:
    """What a JSON text holds, for masking goes by names; raises `NotKept`.

    ValueError where it is no JSON.
    """
    raw = text.encode("utf-8", "surrogatepass")
    try:
        value = exactly(raw)
    except RecursionError as deep:
        raise NotKept("it is nested too deep") from deep
    except (msgspec.MsgspecError, UnicodeDecodeError) as wrong:
        raise ValueError("it is no JSON") from wrong
    if name := wire.repeated(raw):
        raise NotKept(f"the name “{name}” stands twice in one object")
    return value


def events_of(run: ForeignRun) -> Iterator[PlacedEvent]:
    """The events that a run comes to."""
    start = {name: value for name, value in run.beginning.items() if value not in (None, "", {})}
    yield _event(run, run.where, EventType.RUN_STARTED, None, run.identity, run.began,
                 {"source": IMPORTED, **start})  # fmt: skip
    for call in run.calls:
        yield from _events_of_call(run, call)
    if run.end:
        type_, data = run.end
        yield _event(run, run.where, type_, None, run.identity, run.ended, data)


def _events_of_call(run: ForeignRun, call: ForeignCall) -> Iterator[PlacedEvent]:
    planned: dict[str, Any] = {"tool": call.tool[:TOOL_CHARACTERS_MAX]}
    planned |= {"args_missing": True} if call.args is NOT_GIVEN else {"args": call.args}
    yield _event(run, call.where, EventType.ACTION_PLANNED, call, "", call.started, planned)
    if call.error is not None:
        # That it failed does not say that it did nothing.
        failed = {"error": call.error, "outcome": "unknown"}
        yield _event(run, call.where, EventType.ACTION_FAILED, call, "", call.ended, failed)
    elif call.has_ended:
        result = {} if call.result is NOT_GIVEN else {"result": call.result}
        yield _event(run, call.where, EventType.ACTION_SUCCEEDED, call, "", call.ended, result)
    else:
        started = {"attempt": call.identity}
        yield _event(run, call.where, EventType.ACTION_STARTED, call, "", call.started, started)


def _event(
    run: ForeignRun, where: str, type_: EventType, call: ForeignCall | None, more: str,
    time: str | None, data: dict[str, Any],
) -> PlacedEvent:  # fmt: skip
    action = call.identity if call else ""
    event: dict[str, Any] = {"id": name_of(run.run, action, type_, more), "type": type_.value,
                             "run": run.run, "data": data}  # fmt: skip
    if call:
        event["action"] = action
        if call.n is not None:
            event["n"] = call.n
    if time:
        event["time"] = time
    if trace := (call.trace if call else run.trace):
        event["trace"] = trace
    return PlacedEvent(where, event)


class ImportBatch(NamedTuple):
    """What goes into the ledger together: blobs first, by their digest."""

    actor: Actor
    parsed: Sequence[ParsedEvent]
    blobs: dict[str, bytes]


Keep = Callable[[ImportBatch], RecordedBatch]
"""Records a batch in a transaction of its own."""


@dataclass(slots=True)
class Import:
    """Takes told events into the ledger by `keep`, and remembers what became of them."""

    actor: Actor
    keep: Keep
    accepted: int = 0
    known: int = 0
    refused: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def take(self, events: Iterable[PlacedEvent]) -> None:
        """Record the events, as many at a time as an agent may send."""
        places: list[str] = []
        parsed: list[ParsedEvent] = []
        blobs: dict[str, bytes] = {}
        bytes_ = 0
        for where, event in events:
            read = self._read(where, event, blobs)
            if read is None:
                continue
            places.append(where)
            parsed.append(read)
            bytes_ += len(read.data_json)
            if len(parsed) == wire.BATCH_EVENTS_MAX or bytes_ > wire.BATCH_BYTES_MAX:
                self._keep(places, ImportBatch(self.actor, parsed, blobs))
                places, parsed, blobs, bytes_ = [], [], {}, 0
        if parsed:
            self._keep(places, ImportBatch(self.actor, parsed, blobs))

    def _keep(self, places: Sequence[str], batch: ImportBatch) -> None:
        answers: Sequence[EventResult] = self.keep(batch).results
        for where, answer in zip(places, answers, strict=True):
            if answer.status == "accepted":
                self.accepted += 1
            elif answer.status == "duplicate":
                self.known += 1
            elif answer.problem:
                self.refused.append(f"{where}: {_words(answer.problem)}")

    def _read(
        self, where: str, event: dict[str, Any], blobs: dict[str, bytes]
    ) -> ParsedEvent | None:
        data = event["data"]
        if isinstance(request := data.get("request"), str):
            data["request"] = _text_masked(request, self.actor.masking_key)
        for member in ("args", "result", "error"):
            try:
                _fit(data, member, self.actor, blobs)
            except NotKept as why:
                self.remarks.append(f"{where}: the call is recorded without its {member}: {why}.")
                del data[member]
                data |= {"args_missing": True} if member == "args" else {}
        found = wire.read(_json.encode(event), self.actor)
        if isinstance(found, ParsedEvent):
            return found
        self.refused.append(f"{where}: {_words(found[1])}")
        return None


def _words(problem: Any) -> str:
    return f"{problem.title}: {problem.detail}" if problem.detail else str(problem.title)


def _fit(data: dict[str, Any], member: str, actor: Actor, blobs: dict[str, bytes]) -> None:
    """Mask a value, and put a large one into `blobs`; raises `NotKept`."""
    if member not in data:
        return
    try:
        value = masked_member(data[member], member, actor)
        body = _json.encode(value)
        if len(body) > INLINE_BYTES_MAX:
            body = canonical(value)
    except (Unfit, ValueError, TypeError, RecursionError) as wrong:
        raise NotKept(str(wrong) or type(wrong).__name__) from wrong
    if len(body) > BLOB_BYTES_MAX:
        raise NotKept(f"it has {len(body)} bytes, and at most {BLOB_BYTES_MAX} are kept")
    if len(body) > INLINE_BYTES_MAX:
        sha256 = hashlib.sha256(body).hexdigest()
        blobs[sha256] = body
        value = {"ref": f"sha256:{sha256}"}
        if member == "args":
            data["args_missing"] = True
    data[member] = value


def masked_member(value: Any, member: str, actor: Actor) -> Any:
    """A member of an event's data, masked; done once more it stays the same."""
    inside = [rest for path in actor.mask if (rest := path.removeprefix(f"{member}.")) != path]
    return _texts_masked(masked(value, inside, actor.masking_key), actor.masking_key)


def _texts_masked(value: Any, key: MaskingKey | None) -> Any:
    if isinstance(value, dict):
        return {name: _texts_masked(inner, key) for name, inner in value.items()}
    if isinstance(value, list):
        return [_texts_masked(inner, key) for inner in value]
    return _text_masked(value, key) if isinstance(value, str) else value


def _text_masked(text: str, key: MaskingKey | None) -> str:
    """A text in which an object names a secret: masked inside where it is JSON, else as a whole.

    Frameworks tell values as texts, which exporters cut; masking goes by names and would not look.
    """
    if not any(secret_name(found[1]) for found in NAME_IN_TEXT.finditer(text)):
        return text
    try:
        inside = _texts_masked(masked(value_of(text), (), key), key)
    except (ValueError, RecursionError):
        return made_by(key, "text", text)
    return _json.encode(inside).decode()


def error_of(text: str, type_: str = "") -> dict[str, Any]:
    """An error as events tell it."""
    error: dict[str, Any] = {"message": text[:MESSAGE_CHARACTERS_MAX]}
    return error | ({"type": type_[:TOOL_CHARACTERS_MAX]} if type_ else {})
