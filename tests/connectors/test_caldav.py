"""The agent moved a flight in Eve's calendar, and made an event that should not be there."""

import uuid

import pytest

from connectors import calls
from connectors.contract import Refused, Target

MORNING = {
    "summary": "Flight to Oslo",
    "location": "Gate 12",
    "start": "2026-12-01T08:00:00+00:00",
    "end": "2026-12-01T10:00:00+00:00",
}
EVENING = {**MORNING, "start": "2026-12-01T18:00:00+00:00", "end": "2026-12-01T20:00:00+00:00"}


def ics(uid, state):
    def stamp(text):
        return text.replace("-", "").replace(":", "").replace("+0000", "Z")

    return (
        "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//agent//EN\r\nBEGIN:VEVENT\r\n"
        f"UID:{uid}\r\nDTSTAMP:20261101T000000Z\r\nSUMMARY:{state['summary']}\r\n"
        f"LOCATION:{state['location']}\r\nDTSTART:{stamp(state['start'])}\r\n"
        f"DTEND:{stamp(state['end'])}\r\nX-SEAT:14C\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    )


@pytest.fixture
def flight(calendar):
    """As the agent left it: in the evening."""
    uid = f"flight-{uuid.uuid4()}"
    calendar.put(f"{uid}.ics", content=ics(uid, EVENING)).raise_for_status()
    return Target("event", uid)


def restore(connection, target, to=MORNING, expected=EVENING, **facts):
    args = {"to": to}
    return calls.apply(
        connection, "restore_event", args, target, key="k", expected=expected, **facts
    )


def test_a_moved_flight_is_put_back_and_keeps_what_nobody_recorded(
    calendar, calendar_connection, flight
):
    answer = restore(calendar_connection, flight)

    text = calendar.get(f"{flight.id}.ics").text
    read_back = calls.verify(calendar_connection, "restore_event", {"to": MORNING}, flight)
    assert answer.outcome == "applied"
    assert "DTSTART:20261201T080000Z" in text
    assert "X-SEAT:14C" in text
    assert read_back.ok


WEEKLY = {
    "summary": "Round of the team",
    "location": "Room 2",
    "start": "2026-10-20T06:00:00+00:00",
    "end": "2026-10-20T07:00:00+00:00",
    "attendees": ["ben@acme.example", "eve@x.example"],
}
NOBODY = {"attendees": None}
EVE = "ATTENDEE;CN=Eve;PARTSTAT=ACCEPTED;ROLE=OPT-PARTICIPANT;RSVP=TRUE:mailto:eve@x.example"
BEN = "ATTENDEE;CN=Ben;PARTSTAT=DECLINED:mailto:ben@acme.example"
START = "DTSTART;TZID=Europe/Berlin:20261020T080000"
END = "DTEND;TZID=Europe/Berlin:20261020T090000"


@pytest.fixture
def weekly(calendar):
    """Puts a series of the team's on the calendar, as these lines tell it."""
    uid = f"weekly-{uuid.uuid4()}"

    def put(*lines):
        text = ics(uid, MORNING | {name: WEEKLY[name] for name in ("summary", "location")})
        kept = [one for one in text.split("\r\n") if not one.startswith(("DTSTART", "DTEND"))]
        at = kept.index("X-SEAT:14C")
        kept[at:at] = ["RRULE:FREQ=WEEKLY", *lines]
        calendar.put(f"{uid}.ics", content="\r\n".join(kept)).raise_for_status()
        return Target("event", uid)

    return put


@pytest.fixture
def written(calendar, calendar_connection):
    """Puts an event back, and gives its lines as they then stand; each is verified."""

    def write(target, to, expected):
        answer = restore(calendar_connection, target, to, expected)
        assert answer.outcome == "applied", answer.detail
        assert calls.verify(calendar_connection, "restore_event", {"to": to}, target).ok
        text = calendar.get(f"{target.id}.ics").text.replace("\r\n ", "")
        return {told(line) for line in text.split("\r\n")}

    return write


def told(line):
    """A line, whatever order a server gives its parameters in."""
    named, _, value = line.partition(":")
    name, *parameters = named.split(";")
    return ";".join([name, *sorted(parameters)]) + f":{value}"


def test_one_field_is_put_back_and_what_others_hold_stays(weekly, written):
    """The record names them all, as the agent read them; it changed the room alone."""
    target = weekly(START, END, EVE, BEN)

    lines = written(target, WEEKLY | {"location": "Room 1"}, WEEKLY)

    assert {"LOCATION:Room 1", START, END, told(EVE), told(BEN)} <= lines


def test_a_time_is_put_back_in_the_zone_of_the_event(weekly, written):
    """In December 8 o'clock of Berlin is another moment of UTC's than in October."""
    target = weekly(START, END)
    agents = {name: WEEKLY[name] for name in ("start", "end")}

    lines = written(
        target,
        {"start": "2026-12-01T07:00:00+00:00", "end": "2026-12-01T09:00:00+01:00"},
        agents,
    )

    assert "DTSTART;TZID=Europe/Berlin:20261201T080000" in lines
    assert "DTEND;TZID=Europe/Berlin:20261201T090000" in lines


def test_an_end_that_was_taken_away_comes_back_in_the_zone_of_the_start(weekly, written):
    lines = written(weekly(START), {"end": WEEKLY["end"]}, {"start": WEEKLY["start"]})

    assert {START, END} <= lines


def test_an_hour_that_a_clock_shows_twice_is_told_so_that_it_is_the_right_one(weekly, written):
    agents = {"start": WEEKLY["start"]}

    first = written(weekly(START), {"start": "2026-10-25T00:30:00+00:00"}, agents)
    second = written(weekly(START), {"start": "2026-10-25T01:30:00+00:00"}, agents)

    assert "DTSTART;TZID=Europe/Berlin:20261025T023000" in first
    assert "DTSTART:20261025T013000Z" in second


def test_days_stay_days(weekly, written):
    days = ("DTSTART;VALUE=DATE:20261020", "DTEND;VALUE=DATE:20261021")
    agents = {"start": "2026-10-20", "end": "2026-10-21"}

    lines = written(weekly(*days), {"start": "2026-10-19", "end": "2026-10-21"}, agents)

    assert {"DTSTART;VALUE=DATE:20261019", days[1]} <= lines


def test_whoever_was_invited_is_put_back_and_the_others_keep_their_answers(weekly, written):
    stranger = "ATTENDEE;CN=Dev:mailto:dev@other.example"
    agents = {"attendees": ["dev@other.example", "eve@x.example"]}

    back = {"summary": WEEKLY["summary"], "attendees": WEEKLY["attendees"]}

    lines = written(weekly(START, END, EVE, stranger), back, agents)

    assert {told(EVE), "ATTENDEE:mailto:ben@acme.example"} <= lines
    assert not any("dev@other.example" in line for line in lines)
    assert not any("ATTENDEE" in line for line in written(weekly(START, EVE), back | NOBODY, {}))


def test_doing_it_twice_is_a_success(calendar_connection, flight):
    assert restore(calendar_connection, flight).outcome == "applied"
    assert restore(calendar_connection, flight).evidence == {"already": True}


def test_an_event_that_the_agent_made_is_deleted_and_gone_is_success(
    calendar, calendar_connection, flight
):
    def delete():
        return calls.apply(
            calendar_connection, "delete_event", {}, flight, key="k", expected=EVENING
        )

    assert delete().outcome == "applied"
    assert calendar.get(f"{flight.id}.ics").status_code == 404
    assert delete().outcome == "applied"


def test_an_event_that_the_agent_deleted_comes_back_as_it_was(
    calendar, calendar_connection, flight
):
    text = ics(flight.id, MORNING)
    calendar.delete(f"{flight.id}.ics").raise_for_status()

    answer = restore(calendar_connection, flight, to={"ics": text}, expected=None)

    seen = calls.observe(calendar_connection, "restore_event", {"to": None}, flight)
    assert answer.outcome == "applied"
    assert MORNING.items() <= (seen.state or {}).items()


def test_somebody_elses_change_is_not_overwritten(calendar, calendar_connection, flight):
    moved = {**EVENING, "location": "Gate 40"}
    calendar.put(f"{flight.id}.ics", content=ics(flight.id, moved)).raise_for_status()

    answer = restore(calendar_connection, flight)

    assert answer.outcome == "no_effect"
    assert "Gate 40" in calendar.get(f"{flight.id}.ics").text


def test_what_an_event_does_not_have_is_as_a_record_tells_it(calendar, calendar_connection, flight):
    """An API tells of every field, and a calendar only of those that an event has."""
    bare = {"description": None, "attendees": [], "status": ""}
    assert restore(calendar_connection, flight, expected=EVENING | bare).outcome == "applied"

    back = MORNING | bare | {"location": None}
    there = MORNING | {"attendees": None}
    assert restore(calendar_connection, flight, back, there).outcome == "applied"
    assert calls.verify(calendar_connection, "restore_event", {"to": back}, flight).ok
    assert "LOCATION" not in calendar.get(f"{flight.id}.ics").text
    again = restore(calendar_connection, flight, back, expected=there)
    assert again.evidence == {"already": True}
    strange = restore(calendar_connection, flight, expected=back | {"summary": None})
    assert strange.outcome == "no_effect", "what it has is not nothing"


@pytest.mark.parametrize("nothing", [None, ""])
def test_an_event_keeps_the_start_that_nobody_recorded(
    calendar, calendar_connection, flight, nothing
):
    """It has no other; an end it can be without."""
    back = {"location": "Gate 9", "start": nothing, "end": nothing}
    assert restore(calendar_connection, flight, back).outcome == "applied"

    text = calendar.get(f"{flight.id}.ics").text
    assert "DTSTART:20261201T180000Z" in text
    assert "Gate 9" in text
    assert "DTEND" not in text


def test_a_change_between_the_look_and_the_write_fails_its_condition(
    calendar, calendar_connection, flight
):
    seen = calls.observe(calendar_connection, "restore_event", {"to": MORNING}, flight)
    noted = ics(flight.id, EVENING).replace("X-SEAT:14C", "X-SEAT:2A")
    calendar.put(f"{flight.id}.ics", content=noted).raise_for_status()

    answer = restore(calendar_connection, flight, observed=seen)

    assert answer.outcome == "no_effect"
    assert "412" in answer.detail
    assert "X-SEAT:2A" in calendar.get(f"{flight.id}.ics").text


def test_what_was_changed_or_made_since_the_look_is_neither_deleted_nor_replaced(
    calendar, calendar_connection, flight
):
    def ends(operation, args, seen, expected):
        return calls.apply(
            calendar_connection, operation, args, flight, key="k", expected=expected, observed=seen
        )

    def look():
        return calls.observe(calendar_connection, "restore_event", {"to": MORNING}, flight)

    seen = look()
    noted = ics(flight.id, EVENING).replace("X-SEAT:14C", "X-SEAT:2A")
    calendar.put(f"{flight.id}.ics", content=noted).raise_for_status()
    kept = ends("delete_event", {}, seen, EVENING)
    calendar.delete(f"{flight.id}.ics").raise_for_status()
    gone = look()
    calendar.put(f"{flight.id}.ics", content=noted).raise_for_status()
    stands = ends("restore_event", {"to": {"ics": ics(flight.id, MORNING)}}, gone, None)

    for answer in (kept, stands):
        assert (answer.outcome, "412" in answer.detail) == ("no_effect", True)
    assert "X-SEAT:2A" in calendar.get(f"{flight.id}.ics").text


def test_a_probe_reads_what_became_of_it(calendar_connection, flight):
    def probe():
        return calls.probe(
            calendar_connection,
            "restore_event",
            {"to": MORNING},
            flight,
            key="k",
            expected=EVENING,
        ).found

    assert probe() == "absent"
    restore(calendar_connection, flight)
    assert probe() == "present"


@pytest.mark.parametrize(
    ("beside", "text", "why"),
    [
        ({"summary": "Lunch"}, EVENING, "another summary"),
        ({"start": "2026-03-09T09:00:00+00:00", "attendees": ["eve@x.example"]}, EVENING,
         "another attendees and start"),
        ({}, None, "is no event"),
    ],
)  # fmt: skip
def test_what_a_card_shows_of_an_event_is_in_the_text_that_is_written(
    calendar, calendar_connection, flight, beside, text, why
):
    """The card had the fields, and the text went out: an agent could record two different ones."""
    to = {"ics": ics(flight.id, text) if text else "BEGIN:NOTHING", **beside}
    before = calendar.get(f"{flight.id}.ics").text

    with pytest.raises(Refused, match=why):
        calls.preview(calendar_connection, "restore_event", {"to": to}, flight)
    answer = calls.apply(calendar_connection, "restore_event", {"to": to}, flight, key="k")

    assert answer.outcome == "no_effect"
    assert calendar.get(f"{flight.id}.ics").text == before


def test_a_text_may_be_recorded_with_the_fields_that_it_holds(calendar_connection, flight):
    seen = calls.observe(calendar_connection, "restore_event", {"to": None}, flight)
    to = seen.state | {"description": None}

    card = calls.preview(calendar_connection, "restore_event", {"to": to}, flight)

    assert card.must_be_true["fields"]["summary"] == seen.state["summary"]


@pytest.mark.parametrize("name", ["", "..", ".ics"])
def test_a_target_is_the_name_of_an_event(calendar_connection, name):
    with pytest.raises(Refused):
        calls.preview(calendar_connection, "delete_event", {}, Target("event", name))


def test_a_name_cannot_leave_the_calendar(calendar_connection):
    card = calls.preview(calendar_connection, "delete_event", {}, Target("event", "../other/x"))

    assert card.will_send["resource"] == "..%2Fother%2Fx.ics"


@pytest.mark.parametrize("behind", ["#", "?", "#/"])
def test_what_an_address_ends_in_does_not_make_the_calendar_the_event(
    calendar, connect, outbound, flight, behind
):
    """The name went into the fragment: read, and deleted, was the whole calendar."""
    outbound.append("127.0.0.1")
    login = {"user": "desk", "password": "canary-cal"}
    connection = connect("odd", "caldav", {"url": f"{calendar.base_url}{behind}"}, login)

    answer = calls.apply(connection, "delete_event", {}, flight, key="k", expected=EVENING)

    assert answer.outcome == "applied"
    assert calendar.get(f"{flight.id}.ics").status_code == 404
    assert calendar.request("PROPFIND", "").status_code == 207


def test_the_preview_says_which_event_and_what_changes(calendar_connection, flight):
    card = calls.preview(
        calendar_connection, "restore_event", {"to": MORNING}, flight, expected=EVENING
    )

    assert card.title == "Restore the event “Flight to Oslo”"
    changed = {row.field: (row.was, row.agent_wrote) for row in card.diff}
    assert changed["start"] == (MORNING["start"], EVENING["start"])
