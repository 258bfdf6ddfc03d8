"""`caldav`: put an event of a calendar back, or take away one that an agent made.

Every write rests on the ETag that was read (RFC 4791, 5.3.4): somebody who changed the event
meanwhile makes it fail with 412 instead of losing their change. An event's state is its plain
fields and, as `ics`, its whole text; a recorded `ics` is put back as it was, recorded fields that
differ are written into the event as it stands: a time in its zone, whoever is invited anew beside
those who are, with their names and answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from django.utils import timezone
from icalendar import Calendar, Event, vCalAddress, vText

from connectors.contract import (
    Answer,
    Call,
    CannotRead,
    Connector,
    DiffRow,
    FieldDiff,
    Finding,
    Observation,
    Operation,
    Preview,
    Refused,
    State,
    found_by_state,
    meaning,
    segment,
)
from connectors.outbound import OK, Response, account_of, address_under, basic_auth
from ledger.canonical import same

TEXTS = ("summary", "location", "description", "status")
TIMES = ("start", "end")
COMPARED = frozenset({"uid", "attendees", *TEXTS, *TIMES})
REFUSALS = frozenset({400, 401, 403, 404, 405, 409, 412, 415, 423, 507})


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """`url`: the collection, ending in "/"; a target's id is the name of a resource in it."""

    url: Annotated[str, meaning("The address of the collection, which ends in “/”", "Address")]


class Login(msgspec.Struct, forbid_unknown_fields=True):
    user: Annotated[str, meaning("The calendar’s account")]
    password: Annotated[str, meaning("Its password, or one for applications")]


class RestoreEvent(msgspec.Struct, forbid_unknown_fields=True):
    """`to`: the recorded fields (or `ics`), or null to delete the event."""

    to: Annotated[
        dict[str, Any] | None,
        meaning("The recorded fields, a line each, or ics: …. Empty: the event is deleted"),
    ]


class DeleteEvent(msgspec.Struct, forbid_unknown_fields=True):
    pass


def _operation(name: str, title: str, schema: type[msgspec.Struct]) -> Operation:
    return Operation(
        name=name,
        title=title,
        args_schema=schema,
        reversibility="exact",
        idempotency="conditional",
        probe="eventual",
        horizon_seconds=30,
        kind="calendar",
    )


class Caldav(Connector):
    name = "caldav"
    version = "1.0"
    title = "Calendar (CalDAV)"
    summary = "Puts events of a calendar back as they were, or deletes them."
    settings_schema = Settings
    credential_schema = Login
    where = frozenset({"url"})
    operations = {
        "restore_event": _operation("restore_event", "Restore an event", RestoreEvent),
        "delete_event": _operation("delete_event", "Delete an event", DeleteEvent),
    }

    def place(self, settings: Any) -> str:
        return ""  # its cards name the calendar

    def account(self, settings: Any, credentials: Any) -> str | None:
        return account_of(credentials.user, credentials.password)

    def check_settings(self, settings: Any) -> None:
        parts = urlsplit(settings.url)
        if parts.scheme not in {"https", "http"} or not parts.hostname or parts.query:
            raise ValueError("The url has to begin with https:// and name a collection.")
        if not parts.path.endswith("/"):
            raise ValueError("The url names a collection, so it has to end with “/”.")

    def preview(self, call: Call) -> Preview:
        to = _wanted(call)
        known = call.expected if isinstance(call.expected, dict) else to or {}
        name = str(known.get("summary") or call.target.id)
        fields = _compared(to) if to is not None else {}
        return Preview(
            kind="calendar",
            title=f"Delete the event “{name}”" if to is None else f"Restore the event “{name}”",
            rows=[("Calendar", call.connection.settings.url), ("Event", call.target.id)]
            + [(field, str(value)) for field, value in fields.items()],
            will_send={"resource": _resource(call), "to": to},
            must_be_true={"exists": False} if to is None else {"exists": True, "fields": fields},
            diff=[
                DiffRow(field, value, call.wrote.get(field), call.now.get(field))
                for field, value in fields.items()
                if not same(value, call.wrote.get(field))
            ],
        )

    def observe(self, call: Call) -> Observation:
        answer = _send(call, "GET")
        if answer.status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
            return Observation(found=False, state=None)
        if answer.status != HTTPStatus.OK:
            raise CannotRead(f"The calendar answered {answer.status}.")
        state = state_of(answer.text)
        return Observation(
            found=True, state=state, version=answer.headers.get("etag"), readings=_nothing_in(state)
        )

    def drifted(self, call: Call, observation: Observation) -> list[FieldDiff]:
        """By the fields: servers write an event's text anew, so that two texts may say the same."""
        if isinstance(call.expected, dict):
            call = replace(call, expected=_compared(call.expected))
        return super().drifted(call, observation)

    def apply(self, call: Call) -> Answer:
        observed = call.observed or self.observe(call)
        if self.satisfied(call, observed):
            return Answer(outcome="applied", evidence={"already": True})
        if self.drifted(call, observed):
            raise Refused("The event is not as the agent left it.")
        to = _wanted(call)
        if to is None:
            answer = _send(call, "DELETE", {"if-match": _etag(observed)})
        else:
            condition = {"if-match": _etag(observed)} if observed.found else {"if-none-match": "*"}
            answer = _send(call, "PUT", condition, _text(call, to, observed))
        if to is None and answer.status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
            return Answer(outcome="applied", evidence={"gone": True})
        if answer.status in REFUSALS:
            raise Refused(f"The calendar refused: {answer.status}.")
        if answer.status not in OK:
            return Answer(outcome="unknown", detail=f"The calendar answered {answer.status}.")
        return Answer(outcome="applied", evidence={"status": answer.status})

    def probe(self, call: Call) -> Finding:
        return found_by_state(self, call)


def _wanted(call: Call) -> State | None:
    args = call.operation.check_args(call.args)
    if isinstance(args, DeleteEvent):
        return None
    to: State | None = args.to
    if to is not None and not (set(to) & {"ics", *TEXTS, *TIMES}):
        raise Refused("Nothing was recorded that an event could be restored from.")
    if to is not None and isinstance(to.get("ics"), str):
        _insist_on_one_event(to)
    return to


def _insist_on_one_event(to: State) -> None:
    """A recorded text is what is written, and a card shows the fields: raises Refused where they
    speak of two events, or the text of none.
    """
    try:
        state = state_of(to["ics"])
    except CannotRead:
        raise Refused("The recorded text is no event.") from None
    written = Observation(found=True, state=state, readings=_nothing_in(state))
    said = {name: value for name, value in to.items() if name in COMPARED}
    others = sorted(name for name, value in said.items() if not written.agrees(name, value))
    if others:
        raise Refused(f"The recorded text is of an event of another {' and '.join(others)}.")


def _compared(state: State) -> State:
    """What two states are compared by: their plain fields, read from the text if need be."""
    if isinstance(state.get("ics"), str):
        state = {**state_of(state["ics"]), **state}
    return {name: value for name, value in state.items() if name in COMPARED}


def state_of(ics: str) -> State:
    """An event's plain fields and its text; raises CannotRead where it is none."""
    event = _event(_parsed(ics))
    state: State = {"uid": str(event.get("uid", "")), "ics": ics}
    state |= {name: str(event[name]) for name in TEXTS if name in event}
    for name in TIMES:
        property_ = event.get(f"dt{name}")
        if property_ is not None:
            state[name] = _said(property_.dt)
    if attendees := _attendees(event):
        state["attendees"] = sorted(map(_address, attendees))
    return state


def _attendees(event: Event) -> list[vCalAddress]:
    found = event.get("attendee", [])
    return found if isinstance(found, list) else [found]


def _address(attendee: vCalAddress) -> str:
    return str(attendee).removeprefix("mailto:")


def _nothing_in(state: State) -> dict[str, list[tuple[Any, bool]]]:
    """Records tell of a field that an event does not have as null or empty; here it is left out.
    Each event has a start: a record without one does not know it.
    """
    empty: dict[str, list[Any]] = {name: [None, ""] for name in (*TEXTS, "end")}
    empty["attendees"] = [None, []]
    return {name: [(one, not state.get(name)) for one in many] for name, many in empty.items()}


def _parsed(ics: str) -> Calendar:
    try:
        calendar = Calendar.from_ical(ics)
    except (ValueError, IndexError, KeyError) as wrong:
        raise CannotRead("The calendar holds something that is no event.") from wrong
    if not isinstance(calendar, Calendar):
        raise CannotRead("The calendar holds something that is no event.")
    return calendar


def _event(calendar: Calendar) -> Event:
    for event in _events(calendar):
        return event
    raise CannotRead("The calendar holds something that is no event.")


def _events(calendar: Calendar) -> Iterator[Event]:
    """The event itself first, then the changed occurrences of one that repeats."""
    events = [one for one in calendar.walk("VEVENT") if isinstance(one, Event)]
    return iter(sorted(events, key=lambda one: "recurrence-id" in one))


def _said(moment: date | datetime) -> str:
    if isinstance(moment, datetime) and moment.tzinfo:
        return moment.astimezone(UTC).isoformat()
    return moment.isoformat()


def _moment(name: str, text: Any) -> date | datetime:
    try:
        if len(str(text)) == len("2026-01-01"):
            return date.fromisoformat(str(text))
        return datetime.fromisoformat(str(text))
    except ValueError:
        raise Refused(f"The recorded {name} is no time.") from None


def _text(call: Call, to: State, observed: Observation) -> bytes:
    """The event as it will be written."""
    if isinstance(to.get("ics"), str):
        text: str = to["ics"]
        return text.encode()
    if observed.found and observed.state:
        calendar = _parsed(observed.state["ics"])
        event = _event(calendar)
    else:
        calendar, event = Calendar(), Event()
        calendar.add("prodid", "-//Amends//Recovery desk//EN")
        calendar.add("version", "2.0")
        event.add("uid", to.get("uid") or call.target.id)
        calendar.add_component(event)
    there = observed.state or {}
    for name in (*TEXTS, *TIMES, "attendees"):
        if name in to and not same(to[name], there.get(name)) and (to[name] or there.get(name)):
            _write(event, name, to[name])
    event.pop("dtstamp", None)
    event.add("dtstamp", timezone.now())
    return bytes(calendar.to_ical())


def _write(event: Event, name: str, value: Any) -> None:
    """Put one field that differs back; the others stay as they are, with what they hold besides."""
    if name == "attendees":
        standing = {_address(one): one for one in _attendees(event)}
        event.pop("attendee", None)
        for address in value or []:
            event.add("attendee", standing.get(address) or vCalAddress(f"mailto:{address}"))
    elif name in TEXTS:
        event.pop(name, None)
        if value is not None:
            event.add(name, vText(value))
    elif value or name == "end":
        added = _as_told(event, name, _moment(name, value)) if value else None
        event.pop(f"dt{name}", None)
        if added:
            event.add(f"dt{name}", *added)


def _as_told(
    event: Event, name: str, moment: date | datetime
) -> tuple[date | datetime, dict[str, str]]:
    """A moment, and its parameters, in the zone that the event tells its own in: a series keeps its
    hour where the clocks change. Where its clock shows an hour twice, the second one is told in
    UTC (RFC 5545, 3.3.5).
    """
    if not isinstance(moment, datetime):
        return moment, {}
    for standing in (event[f"dt{one}"] for one in (name, *TIMES) if f"dt{one}" in event):
        if not isinstance(standing.dt, datetime):
            continue
        if bool(standing.dt.tzinfo) != bool(moment.tzinfo):
            continue
        local = moment.astimezone(standing.dt.tzinfo) if moment.tzinfo else moment
        if local.tzinfo and local.replace(fold=0).astimezone(UTC) != moment:
            break
        zone = standing.params.get("TZID")
        return local, {"TZID": zone} if zone and local.tzname() != "UTC" else {}
    return moment.astimezone(UTC) if moment.tzinfo else moment, {}


def _resource(call: Call) -> str:
    return f"{segment(call.target.id.removesuffix('.ics'))}.ics"


def _etag(observed: Observation) -> str:
    if not observed.version:
        raise Refused("The calendar gives no ETag, so nothing can be written safely.")
    return observed.version


def _send(
    call: Call, method: str, headers: dict[str, str] | None = None, content: bytes = b""
) -> Response:
    login: Login = call.connection.credentials
    return call.connection.outbound.request(
        method,
        address_under(call.connection.settings.url, _resource(call)),
        headers={
            **(headers or {}),
            **basic_auth(login.user, login.password),
            "content-type": "text/calendar; charset=utf-8",
        },
        content=content,
    )
