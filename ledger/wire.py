"""The wire format of events (docs/wire.md): what fits, and what is wrong with what does not.

A batch is never all-or-nothing: each event is read alone, and gets a problem of its own.
"""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, get_args

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from amends.protocol.masking import MaskingScan, Unfit, mask_in_place
from amends.protocol.vocabulary import CLASSES, DESK_EVENTS, RISKS, EventType
from edge.asgi import Problem, problem
from ledger import schemas, timestamps
from ledger.canonical import canonical, rounded
from ledger.parsed_events import Actor, ParsedEvent
from workspaces.formatting import is_all_seen

# Names in JSON: one that stands twice in an object is dropped by every decoder, in silence.

NAME_CHARACTERS_MAX = 80


class _Repeated(Exception):
    """We stopped because of this name."""


def repeated(raw: bytes) -> str:
    """The first name found twice in one object, cut to what is shown; empty if there is none.

    `raw` is JSON that was decoded before, so that it is neither broken nor too deep.
    """
    try:
        json.loads(raw, object_pairs_hook=_pairs)
    except _Repeated as name:
        return str(name)[:NAME_CHARACTERS_MAX] or "an empty name"
    return ""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _Repeated(name)
            seen.add(name)
    return found


EVENT_BYTES_MAX = 64 * 1024
BATCH_EVENTS_MAX = 1_000
BATCH_BYTES_MAX = 8 * 1024 * 1024
N_MAX = 2**31 - 1
CHOICES = {
    "class": CLASSES, "risk": RISKS, "saga": ("pivot", "retriable"),
    "outcome": ("no_effect", "unknown"), "reversibility": get_args(schemas.Reversibility),
}  # fmt: skip
"""What a member may say, by its name, for who said something else."""
_NO_DOTS = r"(?!(?:.*/)?\.\.?(?:/|$))"
"""No part is `.` or `..`: no address holds them, since browsers and clients leave them out."""
ID = re.compile(_NO_DOTS + r"[\x21-\x7e]{1,64}")
RUN_ID = re.compile(_NO_DOTS + r"[\x21-\x7e]{1,120}")
_USUAL_ID = re.compile(r"[\w:-]{1,64}", re.ASCII)
"""What either takes, and needs no look at its parts."""
PLAN_RUN = "desk-plan-"
_PLAN_RUN = re.compile(PLAN_RUN + "[0-9]+")
"""How the desk names the runs in which it records its plans, whose numbers are known before."""
NAMED_BY = "printable ASCII characters, no part “.” or “..”"
LINE = re.compile(rb"[^\n]+")
BETWEEN_TEXTS = "\ufdd0"
"""What parts texts on their way to the database: for good no character (Unicode, 23.7)."""

_raws = msgspec.json.Decoder(list[Raw])
_any = msgspec.json.Decoder()
_sorted = msgspec.json.Encoder(order="sorted")
_BETWEEN = BETWEEN_TEXTS.encode()


class Malformed(Exception):
    """We stopped because the batch as a whole cannot be read; `problem` is the answer."""

    def __init__(self, what: Problem) -> None:
        super().__init__(what.detail)
        self.problem = what


def _shown(**schema: Any) -> Meta:
    """What the page of the API says of a member; it is checked below, in words of its own."""
    return Meta(extra_json_schema=schema)


class Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """The members of an event. Nothing else may stand beside them, for it would be lost."""

    id: Annotated[str, _shown(minLength=1, maxLength=64)]
    type: Annotated[str, _shown(enum=sorted(schemas.AGENT_TYPES))]
    run: Annotated[str, _shown(minLength=1, maxLength=120)]
    action: Annotated[str, _shown(minLength=1, maxLength=120)] | UnsetType | None = UNSET
    n: Annotated[int, _shown(minimum=0, maximum=N_MAX)] | UnsetType | None = UNSET
    time: Annotated[str, _shown(format="date-time")] | UnsetType | None = UNSET
    trace: dict[str, Any] | UnsetType | None = UNSET
    data: dict[str, Any] | UnsetType = UNSET

    def names(self) -> int:
        """How many members were sent."""
        sent = (self.action, self.n, self.time, self.trace, self.data)
        return 8 - sent.count(UNSET)


UNKNOWN_FIELD = re.compile("unknown field `(.+?)`")
_MEMBERS = frozenset(Envelope.__struct_fields__)
_envelopes = msgspec.json.Decoder(Envelope)


class CanonicalEvent(msgspec.Struct, omit_defaults=True, kw_only=True):
    """An event as the ledger keeps it and as its digest covers it: the names in their order."""

    action: str = ""
    data: Any
    id: str
    n: int | None = None
    run: str = ""
    time: str | None = None
    trace: Any = None
    type: str


def split(body: bytes, *, ndjson: bool) -> list[bytes]:
    """The bytes of each event of a batch; raises `Malformed`."""
    if len(body) > BATCH_BYTES_MAX:
        raise Malformed(problem("too-large", "The batch is too large", 413, "At most 8 MiB."))
    events = _lines(body) if ndjson else _array(body)
    if len(events) > BATCH_EVENTS_MAX:
        raise Malformed(
            problem("too-many", "Too many events", 413, f"At most {BATCH_EVENTS_MAX} in a batch.")
        )
    return events


def _lines(body: bytes) -> list[bytes]:
    """The lines that hold something, and one more than may be: eight million took seconds."""
    lines = (found[0] for found in LINE.finditer(body))
    return list(islice((line for line in lines if line.strip()), BATCH_EVENTS_MAX + 1))


def _array(body: bytes) -> list[bytes]:
    try:
        return [bytes(raw) for raw in _raws.decode(body)]
    except RecursionError as deep:
        raise Malformed(problem("malformed", "Nested too deep", 400)) from deep
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise Malformed(
            problem(
                "malformed",
                "The body is neither a JSON array nor said to be NDJSON",
                400,
                str(wrong),
            )
        ) from wrong


def read(raw: bytes, actor: Actor, *, reserved: bool = False) -> ParsedEvent | tuple[str, Problem]:
    """One event, checked and masked; or its id, as far as it has one, with what is wrong.

    `reserved` admits what only `begin` may say of an action (its fence, replaced arguments).
    """
    event_id = ""
    try:
        envelope = _envelope(raw)
        event_id = envelope.id[:64]
        _fits(envelope)
        look = MaskingScan.at(raw, actor.masking_key)
        parsed = _parsed(envelope, actor, look)
        _no_name_twice(raw, envelope, look)
        _no_number_rounded(raw, look)
        _no_parting_of_texts(parsed)
        _checked(parsed, actor, reserved=reserved)
    except _Wrong as wrong:
        return event_id or wrong.event_id, wrong.problem
    return parsed


def of_desk(actor: Actor, event: dict[str, Any]) -> ParsedEvent:
    """One of the desk's own events, which needs no checks but is masked all the same.

    Writing and reading it copies the data faster than a walk, and what is written tells cheaply
    what can occur in it.
    """
    raw = _sorted.encode(event.get("data", {}))
    own = event | {"data": _any.decode(raw)}
    return _parsed(Envelope(**own), actor, MaskingScan.at(raw, actor.masking_key))


def of_gate(actor: Actor, event: dict[str, Any]) -> ParsedEvent | tuple[str, Problem]:
    """An event that the gate made out of what it has checked: it is masked like any other."""
    try:
        parsed = _parsed(Envelope(**event), actor, MaskingScan(key=actor.masking_key))
        _no_parting_of_texts(parsed)
    except _Wrong as wrong:
        return event["id"], wrong.problem
    return parsed


class _Wrong(Exception):
    """The event is refused; `event_id` where it is known only to what raises."""

    event_id = ""

    def __init__(self, kind: str, title: str, status: int = 422, detail: str = "") -> None:
        super().__init__(title)
        self.problem = problem(kind, title, status, detail)


def _envelope(raw: bytes) -> Envelope:
    if len(raw) > EVENT_BYTES_MAX:
        raise _Wrong("too-large", "The event is too large", 413, "At most 64 KiB.")
    try:
        return _envelopes.decode(raw)
    except msgspec.ValidationError as misfit:
        words = f"{misfit}{_hint(str(misfit))}"
        wrong = _Wrong("schema", "The event does not fit the wire format", 422, words)
        wrong.event_id = _id_of(raw)
        raise wrong from misfit
    except RecursionError as deep:
        raise _Wrong("unfit", "The event is nested too deep") from deep
    except (msgspec.MsgspecError, UnicodeDecodeError) as broken:
        raise _Wrong("malformed", "The event is not JSON", 400, str(broken)) from broken


def _hint(misfit: str) -> str:
    """What was probably meant by a member that stands beside the others."""
    found = UNKNOWN_FIELD.search(misfit)
    if found is None:
        return ""
    near = schemas.nearest(found[1][:NAME_CHARACTERS_MAX], _MEMBERS)
    return f": did you mean `{near}`?" if near else ": what an event tells stands in `data`"


def _id_of(raw: bytes) -> str:
    """The id of what is no event, so that its sender knows it again."""
    try:
        loose = _any.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    found = loose.get("id") if isinstance(loose, dict) else None
    return found[:64] if isinstance(found, str) else ""


def _fits(envelope: Envelope) -> None:
    usual = _USUAL_ID.fullmatch
    if not (usual(envelope.id) or ID.fullmatch(envelope.id)):
        raise _Wrong("schema", f"The id is not 1 to 64 {NAMED_BY}")
    if not (usual(envelope.run) or RUN_ID.fullmatch(envelope.run)):
        raise _Wrong("schema", f"The run is not 1 to 120 {NAMED_BY}")
    action = envelope.action
    if isinstance(action, str) and not (usual(action) or RUN_ID.fullmatch(action)):
        raise _Wrong("schema", f"The action is not 1 to 120 {NAMED_BY}")
    if isinstance(envelope.n, int) and not 0 <= envelope.n <= N_MAX:
        raise _Wrong("schema", "n is not between 0 and 2^31 - 1")


def _parsed(envelope: Envelope, actor: Actor, look: MaskingScan) -> ParsedEvent:
    time, time_text = _moment(envelope.time) if isinstance(envelope.time, str) else (None, None)
    try:
        data = mask_in_place(envelope.data or {}, actor.mask, look)
        trace = mask_in_place(envelope.trace, (), look) if envelope.trace else None
    except Unfit as unfit:
        raise _Wrong(
            "unfit", "The event holds what the ledger does not keep", 422, str(unfit)
        ) from None
    # What the workspace's settings say is not captured.
    if not actor.capture_intent:
        data.pop("intent", None)
    if not actor.capture_snapshot:
        for holder in _snapshot_holders(data):
            holder.pop("before", None)
            holder.pop("after", None)
    parsed = ParsedEvent(
        envelope.id, envelope.type, envelope.run, envelope.action or "",
        None if envelope.n is UNSET else envelope.n, time, trace or None, data, b"",
        time_text, _sorted.encode(data),
    )  # fmt: skip
    parsed.content = _content(parsed) if look.plain else canonical(as_kept(parsed), plain=False)
    return parsed


def _content(parsed: ParsedEvent) -> bytes:
    """The canonical JSON of an event that is plain (see `ledger.canonical`)."""
    return _sorted.encode(
        CanonicalEvent(action=parsed.action, data=Raw(parsed.data_json), id=parsed.id, n=parsed.n,
                       run=parsed.run, time=parsed.time_text, trace=parsed.trace, type=parsed.type)
    )  # fmt: skip


def _checked(parsed: ParsedEvent, actor: Actor, *, reserved: bool) -> None:
    if parsed.type not in schemas.AGENT_TYPES:
        if parsed.type in DESK_EVENTS:
            raise _Wrong(
                "desk-only", "Only the desk says this", 403, f"{parsed.type} is refused from a key."
            )
        words = f"{parsed.type[:80]} is none of {', '.join(schemas.AGENT_TYPES)}."
        raise _Wrong("unknown-type", "Unknown type of event", 422, words)
    if parsed.type.startswith("action.") != bool(parsed.action):
        words = "Every event of a call has “action”, an id of yours for it, and no other has."
        raise _Wrong("schema", "Exactly the events of an action name an action", 422, words)
    try:
        msgspec.convert(parsed.data, schemas.AGENT_TYPES[parsed.type])
    except msgspec.ValidationError as wrong:
        words = next((f"; it is one of {', '.join(known)}" for name, known in CHOICES.items()
                      if str(wrong).startswith("Invalid enum") and
                      str(wrong).endswith(f".{name}`")), "")  # fmt: skip
        raise _Wrong("schema", "The data does not fit its type", 422, f"{wrong}{words}") from wrong
    parsed.unread = schemas.unread(parsed.type, parsed.data)
    if parsed.type == EventType.ACTION_PLANNED and not is_all_seen(parsed.data["tool"]):
        # A rule for `pay` would not fit a `pay` with something unseen in it.
        raise _Wrong("schema", "“tool” holds characters that nobody can see")
    if schemas.is_import(parsed.type, parsed.data) and "import" not in actor.scopes:
        raise _Wrong(
            "reserved", "“source” says that the run is imported", 403,
            "That takes a key with the scope import.",
        )  # fmt: skip
    if _PLAN_RUN.fullmatch(parsed.run):
        words = "The desk records its own plans under such names: call your run something else."
        raise _Wrong("reserved", "The run is named like one of the desk’s", 403, words)
    if reserved and parsed.data.get("args_missing"):
        raise _Wrong("schema", "begin is asked about arguments: send them")
    if not reserved:
        for name in schemas.RESERVED.get(parsed.type, ()):
            if name in parsed.data:
                raise _Wrong("reserved", f"“{name}” is given by begin", 403)


def _snapshot_holders(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield data
    effects = data.get("effects")
    for effect in effects if isinstance(effects, list) else []:
        if isinstance(effect, dict):
            yield effect


def _no_name_twice(raw: bytes, envelope: Envelope, look: MaskingScan) -> None:
    """Refuse duplicate names, which every JSON decoder drops in silence.

    A name is followed by `":`, white space aside, so the text has at most as many names as it has
    of these. If as many survived decoding, none was dropped; else a slow decoder counts for sure.
    """
    if envelope.names() + look.names == look.names_max:
        return
    if name := repeated(raw):
        raise _Wrong("duplicate-name", "A name stands twice in one object", 422, name)


def _no_number_rounded(raw: bytes, look: MaskingScan) -> None:
    """Only floats are rounded, and all of an event's stand in what was masked."""
    if look.floats and (number := rounded(raw)):
        detail = f"{number} has more digits than a double: send it as text."
        raise _Wrong("unfit", "The event holds what the ledger does not keep", 422, detail)


def _no_parting_of_texts(parsed: ParsedEvent) -> None:
    """Refuse it where calls and tries are told apart; in other texts it becomes a space."""
    if parsed.data_json.isascii() or _BETWEEN not in parsed.data_json:
        return
    for name in ("key", "attempt"):
        if BETWEEN_TEXTS in str(parsed.data.get(name)):
            detail = f"“{name}” holds the noncharacter U+{ord(BETWEEN_TEXTS):X}"
            raise _Wrong("unfit", "The event holds what the ledger does not keep", 422, detail)


def _moment(text: str) -> tuple[datetime, str]:
    """The moment, and how the ledger writes it."""
    try:
        moment = timestamps.parse(text)
    except ValueError as wrong:
        raise _Wrong("schema", f"time {wrong}", 422, text[:40]) from wrong
    if len(text) == 24 and text[4:22:3] == "--T::." and text[23] == "Z":  # noqa: PLR2004
        return moment, text  # it came as 2026-11-21T10:02:15.120Z, which is how we write it
    return moment, timestamps.formatted(moment)


def as_kept(parsed: ParsedEvent) -> dict[str, Any]:
    """The event as the ledger keeps it and as its digest covers it."""
    event: dict[str, Any] = {"id": parsed.id, "type": parsed.type, "data": parsed.data}
    if parsed.run:
        event["run"] = parsed.run
    if parsed.action:
        event["action"] = parsed.action
    if parsed.n is not None:
        event["n"] = parsed.n
    if parsed.time is not None:
        event["time"] = timestamps.formatted(parsed.time)
    if parsed.trace:
        event["trace"] = parsed.trace
    return event
