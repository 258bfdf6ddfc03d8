"""The SQL of recording, written for sets: one statement for a thousand rows.

A long list travels as one text, its values parted by the character US (31) and NULL written as RS
(30): joining and splitting happen in C on both sides, where an array is dumped value by value. JSON
and ids cannot hold either character. Other texts can, and by some of them calls are told apart: so
these are parted by one that Unicode keeps for such uses. No key and no attempt holds it
(`wire.read`); in others it becomes a space. What was one empty text comes back as none, so texts
are read through `coalesce`.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from ledger.fold.effects import COMPENSATION_ORDER
from ledger.fold.runs import BY_A_RESTORE
from ledger.parsed_events import ParsedEvent
from ledger.wire import BETWEEN_TEXTS
from workspaces.locks import ROW_LOCK

Statement = tuple[str, Sequence[Any]]
Rows = list[tuple[Any, ...]]
T = TypeVar("T")
StatementGenerator = Generator[list[Statement], list[Rows], T]
"""A protocol without I/O: yields statements that travel together, is sent their rows, and returns a
T. `ledger.drivers` runs it.
"""

SEPARATOR, NULL_MARK = "\x1f", "\x1e"
# The parameters of a joined list in SQL, and of one of texts.
LIST = "string_to_array(%b, E'\\x1f', E'\\x1e')"
TEXTS = f"string_to_array(%b, E'\\u{ord(BETWEEN_TEXTS):04x}')"


_json = msgspec.json.Encoder()


def json_text(value: Any) -> str | None:
    return None if value is None else _json.encode(value).decode()


def joined(values: Iterable[str | None]) -> str:
    """A list of texts as one; see above."""
    return SEPARATOR.join([NULL_MARK if value is None else value for value in values])


def joined_bytes(values: Iterable[bytes]) -> str:
    """A list of JSON texts that are still bytes."""
    return SEPARATOR.encode().join(values).decode()


def joined_texts(values: Iterable[str]) -> str:
    """A list of texts that anybody may have written, for `TEXTS`."""
    texts = list(values)
    text = BETWEEN_TEXTS.join(texts)
    if text.count(BETWEEN_TEXTS) != len(texts) - 1:
        return BETWEEN_TEXTS.join(one.replace(BETWEEN_TEXTS, " ") for one in texts)
    return text


def array(values: Iterable[str | float | None]) -> str:
    """A list in PostgreSQL's own spelling of an array, for a parameter that is cast to one. A
    tenth of what psycopg takes, which asks for each value how to write it.
    """
    elements = list(values)
    if not elements:
        return "{}"
    try:
        text = '","'.join(elements)  # type: ignore[arg-type]
    except TypeError:  # there are numbers among them, or None
        return "{" + ",".join(map(_element, elements)) + "}"
    has_signs = "\\" in text or text.count('"') != 2 * (len(elements) - 1)
    if has_signs:
        return "{" + ",".join(map(_element, elements)) + "}"
    return '{"' + text + '"}'


def _element(value: str | float | None) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "NULL" if value is None else str(value)


def joined_numbers(values: Iterable[int]) -> str:
    return SEPARATOR.join(map(str, values))


class LastWrites(list[Statement]):
    """The statements after which nothing follows: a driver may commit with them."""


class StatementsWithWork(list[Statement]):
    """Statements, and work that may be done while PostgreSQL is at them."""

    def __init__(self, found: Iterable[Statement], work: Callable[[], None]) -> None:
        super().__init__(found)
        self.work = work


# One probe per run, in the given (sorted) order, whatever the statistics say.
LOCK_RUNS = f"""
SELECT r.id, r.run, r.agent_id, r.started_at, r.forgotten_at IS NOT NULL, r.has_erased_actions
FROM unnest(%b::text[]) AS n (run)
CROSS JOIN LATERAL (
    SELECT id, run, agent_id, started_at, forgotten_at, has_erased_actions FROM ledger_run
    WHERE workspace_id = %b AND run = n.run LIMIT 1 {ROW_LOCK}
) r"""  # noqa: S608 - our own words

NEW_RUNS = """
INSERT INTO ledger_run (workspace_id, run, agent_id, model, request, goal, customer, customer_name,
    labels, state, summary, failed_action, cancelled_by, reason, resumed_from, flags, revision,
    seen_revision, search_revision, held_by, action_count, effect_count)
SELECT %b, run, %b, '', '', '', '', '', '{}', 'running', '', '', '', '', '', '{}', 0, 0, 0, '', 0,
    0
FROM unnest(%b::text[]) AS run
ON CONFLICT (workspace_id, run) DO NOTHING RETURNING id, run"""

# Sequence numbers for events, the time, and ids for actions that may turn out to be new.
SEQUENCES = """
SELECT array_agg(nextval('ledger_place')), clock_timestamp(),
    (SELECT array_agg(nextval('ledger_action_id_seq')) FROM generate_series(1, %b))
FROM generate_series(1, %b)"""

ACTION_IDS = """
SELECT array_agg(nextval('ledger_action_id_seq')) FROM generate_series(1, %b)"""

# Digests and salts travel end to end, 32 bytes each.
_NTH = "substring(%b::bytea FROM 32 * i::int - 31 FOR 32)"

NEW_KEYS = f"""
INSERT INTO ledger_eventkey (workspace_id, received_at, content, event_id, place)
SELECT %b, %b::timestamptz, {_NTH}, event_id, place::bigint
FROM unnest({LIST}, {LIST}) WITH ORDINALITY AS u (event_id, place, i)
ON CONFLICT (workspace_id, event_id) DO NOTHING RETURNING event_id"""  # noqa: S608

KNOWN_KEYS = """
SELECT event_id, content FROM ledger_eventkey
WHERE workspace_id = %b AND event_id = ANY(%b::text[])"""

# One probe of the index per action, whatever the statistics say: of a workspace that they do not
# know yet another index of it would look as good, so its number is hidden from the planner. The
# bounds on received_at keep it from opening every partition.
PRIOR_EVENTS = """
SELECT e.run, e.action, e.event_id, e.type, e.n, e.data::text, e.place, e.received_at,
    e.actor, e.trusted, e.trace::text
FROM unnest(%b::text[], %b::text[]) AS u (run, action)
CROSS JOIN LATERAL (
    SELECT * FROM ledger_event
    WHERE workspace_id = (SELECT %b::bigint) AND run = u.run AND action = u.action
        AND received_at BETWEEN %b::timestamptz AND %b::timestamptz
    OFFSET 0
) e"""

# Asked only where something of the run was erased.
ERASED_ACTIONS = """
SELECT u.run, u.action FROM unnest(%b::text[], %b::text[]) AS u (run, action)
WHERE u.action <> '' AND EXISTS (
    SELECT FROM ledger_event
    WHERE workspace_id = (SELECT %b::bigint) AND run = u.run AND action = u.action
        AND data IS NULL OFFSET 0)"""

KNOWN_ACTIONS = """
SELECT u.run_id, u.action, a.id,
    (SELECT count(*) FROM ledger_effect f WHERE f.action_id = a.id AND NOT f.withdrawn)
FROM unnest(%b::bigint[], %b::text[]) AS u (run_id, action)
CROSS JOIN LATERAL (
    SELECT id FROM ledger_action WHERE run_id = u.run_id AND action = u.action LIMIT 1
) a"""

# What an event's row holds: of a batch, of each of its events, and what is hashed.
#
# One list for all who write events. The usual begin writes by a function of the database, which has
# the columns by itself; tests/approvals/test_begin_rows.py holds both equal.


class EventColumn(NamedTuple):
    """How a column travels: packed as one text, and read by this SQL out of the list."""

    read: str
    pack: Callable[[Sequence[ParsedEvent]], str]


EVENT_COLUMNS = {
    "event_id": EventColumn("event_id", lambda events: joined([e.id for e in events])),
    "type": EventColumn("type", lambda events: joined([e.type for e in events])),
    "run": EventColumn("coalesce(run, '')", lambda events: joined([e.run for e in events])),
    "action": EventColumn(
        "coalesce(action, '')", lambda events: joined([e.action for e in events])
    ),
    "data": EventColumn("data::jsonb", lambda events: joined_bytes([e.data_json for e in events])),
    '"time"': EventColumn(
        '"time"::timestamptz', lambda events: joined([e.time_text for e in events])
    ),
    "n": EventColumn(
        "n::int", lambda events: joined([None if e.n is None else str(e.n) for e in events])
    ),
    "trace": EventColumn(
        "trace::jsonb", lambda events: joined([json_text(e.trace) for e in events])
    ),
}
DESK_COLUMNS = ("event_id", "type", "run", "action", "data")
"""The desk's own events have no more; to the rest the table gives what stands for none."""
HASH_COLUMNS = ("salt", "digest")
BATCH_COLUMNS = ("received_at", "workspace_id", "actor_kind", "actor", "key_prefix", "trusted")


def event_lists(events: Sequence[ParsedEvent], names: Iterable[str] = EVENT_COLUMNS) -> list[str]:
    """The values of these columns, each as one text."""
    return [EVENT_COLUMNS[name].pack(events) for name in names]


def _read(names: Iterable[str]) -> str:
    return ", ".join(EVENT_COLUMNS[name].read for name in names)


NEW_EVENTS = f"""
INSERT INTO ledger_event ({", ".join((*BATCH_COLUMNS, *HASH_COLUMNS, "place", *EVENT_COLUMNS))})
SELECT %b::timestamptz, %b, %b, %b, %b, %b, {_NTH}, {_NTH}, place::bigint, {_read(EVENT_COLUMNS)}
FROM unnest({", ".join([LIST] * (1 + len(EVENT_COLUMNS)))}) WITH ORDINALITY
AS u (place, {", ".join(EVENT_COLUMNS)}, i)"""  # noqa: S608

NEW_UNSEALED = f"""
INSERT INTO ledger_unsealed (place, workspace_id, received_at)
SELECT place::bigint, %b, %b::timestamptz FROM unnest({LIST}) AS place"""  # noqa: S608

NEW_CONFLICTS = """
INSERT INTO ledger_eventconflict (workspace_id, event_id, content, key_prefix, received_at)
SELECT %b, event_id, content, %b, %b::timestamptz
FROM unnest(%b::text[], %b::bytea[]) AS u (event_id, content)"""

# What every event does to its run. Whoever waited for the lock may have read the clock first, and
# looking back starts at started_at. An agent's event renews the lease, but not of a run that the
# desk has told to stop; one that lived at the backup of a restore goes on.
GOES_ON = f"(r.held_by = '' OR starts_with(r.held_by, '{BY_A_RESTORE}'))"
TOUCH = f"""revision = r.revision + 1,
    first_place = least(r.first_place, u.first_place::bigint),
    last_place = greatest(r.last_place, u.last_place::bigint),
    started_at = least(r.started_at, %b::timestamptz),
    last_event_at = greatest(r.last_event_at, %b::timestamptz),
    lease_until = CASE WHEN %b::boolean AND {GOES_ON}
        THEN greatest(r.lease_until, %b::timestamptz + make_interval(secs => %b))
        ELSE r.lease_until END,
    action_count = r.action_count + u.actions::int,
    effect_count = r.effect_count + u.effects::int"""

FORGET_RUNS = "DELETE FROM ledger_run WHERE id = ANY(%b::bigint[])"

# Only the attempt without a name can vanish: once one is named, the words are that one's.
NAMELESS_ATTEMPTS = (
    "DELETE FROM ledger_attempt WHERE action_id = ANY(%b::bigint[]) AND attempt = ''"
)

WITHDRAW_EFFECTS = """
UPDATE ledger_effect f SET withdrawn = true
FROM unnest(%b::bigint[], %b::int[]) AS u (action_id, kept)
WHERE f.action_id = u.action_id AND f.position >= u.kept AND NOT f.withdrawn"""

# What an action adds up to when one of its effects is compensated (`ledger.fold.effects`); of one
# that is so already the fold may find another to be meant.
STANDING_EFFECTS = """
SELECT u.run, u.action, a.id, f.id
FROM unnest(%b::text[], %b::text[], %b::bigint[], %b::int[], %b::text[], %b::text[])
AS u (run, action, run_id, position, target_type, target_id)
CROSS JOIN LATERAL (
    SELECT id FROM ledger_action WHERE run_id = u.run_id AND action = u.action LIMIT 1
) a
CROSS JOIN LATERAL (
    SELECT id FROM ledger_effect
    WHERE action_id = a.id AND position = u.position AND NOT withdrawn
        AND target_type = u.target_type AND target_id = u.target_id AND compensated = 'none'
    LIMIT 1
) f
WHERE (
    SELECT e.place FROM ledger_event e
    WHERE e.workspace_id = (SELECT %b::bigint) AND e.run = u.run AND e.action = u.action
        AND e.data IS NULL
        AND e.received_at BETWEEN coalesce(%b::timestamptz, '-infinity') AND now() + interval '1 h'
    LIMIT 1) IS NULL
"""

# What `ledger.fold.effects` makes of it, in the rows. By keys alone: a join would read whole tables
# where the statistics are not up to date.
_ORDER = f"'{{{','.join(COMPENSATION_ORDER)}}}'::text[]"

COMPENSATE_EFFECTS = f"""
UPDATE ledger_effect SET compensated = said.outcome
FROM (SELECT %b::text AS outcome) said
WHERE id = ANY(%b::bigint[]) AND array_position({_ORDER}, compensated::text)
    < array_position({_ORDER}, said.outcome)"""  # noqa: S608

COMPENSATE_ACTIONS = f"""
UPDATE ledger_action a SET
    last_place = greatest(last_place, (%b::bigint[])[array_position(%b::bigint[], a.id)]),
    compensated = (
        SELECT CASE WHEN bool_or(f.compensated = 'none') AND bool_or(f.compensated <> 'none')
            THEN 'partly' ELSE
            ({_ORDER})[min(array_position({_ORDER}, f.compensated::text))] END
        FROM ledger_effect f WHERE f.action_id = a.id AND NOT f.withdrawn)
WHERE id = ANY(%b::bigint[])"""  # noqa: S608 - our own words

# A deferred append: where sequence numbers and the moment are drawn by the way, and where they were
# drawn before.
_HASHED = f"{_NTH} AS content, {_NTH} AS salt, {_NTH} AS digest"
_DRAWING = f"""
WITH moment AS (SELECT clock_timestamp() AS received),
deferred AS MATERIALIZED (
    SELECT {_HASHED}, nextval('ledger_place') AS place, {", ".join(DESK_COLUMNS)}
    FROM unnest({", ".join([LIST] * len(DESK_COLUMNS))}) WITH ORDINALITY
    AS u ({", ".join(DESK_COLUMNS)}, i)),"""  # noqa: S608
_DRAWN = f"""
WITH moment AS (SELECT %b::timestamptz AS received),
deferred AS MATERIALIZED (
    SELECT {_HASHED}, drawn::bigint AS place, {", ".join(DESK_COLUMNS)}
    FROM unnest({", ".join([LIST] * (1 + len(DESK_COLUMNS)))}) WITH ORDINALITY
    AS u (drawn, {", ".join(DESK_COLUMNS)}, i)),"""  # noqa: S608
_DEFERRED = f"""
keys AS (
    INSERT INTO ledger_eventkey (workspace_id, event_id, content, place, received_at)
    SELECT %b, event_id, content, place, received FROM deferred, moment),
waiting AS (
    INSERT INTO ledger_unsealed (place, workspace_id, received_at)
    SELECT place, %b, received FROM deferred, moment)
INSERT INTO ledger_event ({", ".join((*BATCH_COLUMNS[:4], *HASH_COLUMNS, "place", *DESK_COLUMNS))})
SELECT received, %b, %b, %b, salt, digest, place, {_read(DESK_COLUMNS)}
FROM deferred, moment
RETURNING event_id, place, received_at::text"""  # noqa: S608
DEFERRED_DRAWING, DEFERRED_DRAWN = _DRAWING + _DEFERRED, _DRAWN + _DEFERRED
