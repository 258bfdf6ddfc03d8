"""Sums and counts of rules: what a call, or a step of a plan, adds, and what others hold.

A meter is what a rule counts, and for whom; a tally is its row for one of these. The gate reads
them for a call, and whoever lets a plan run for its steps: both count alike. What is written with
a call that proceeds is `approvals.memory`.

Windows move in steps of a forty-eighth, and the oldest step counts whole: a sum may be held for
half an hour longer than a day, and never shorter.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from hashlib import sha256
from typing import Any

from amends.protocol.masking import holds_bare, without_last4
from approvals.models import ApprovalState
from approvals.models.policy import DIGEST_CHARACTERS
from approvals.policy import UNKNOWN, CannotEvaluate, Lookup
from approvals.policy.conditions import Cap, each_target, window_seconds
from approvals.policy.spelling import as_one
from ledger.append.statements import Statement, array
from ledger.models import ActionState

BUCKETS = 48
OPEN_MAX = 200
"""Of a tally so many calls are looked up whose outcome is not known yet; asked ones first."""
AMOUNT_MAX = Decimal(10) ** 18
SUBJECTS_MAX = 20


@lru_cache(maxsize=1_000)
def name_of(asked: str) -> str:
    """Under which name it is kept what a question asks: a policy has few of them."""
    return digest_of(asked)


def digest_of(*parts: str) -> str:
    return sha256("\x1f".join(parts).encode()).hexdigest()[:DIGEST_CHARACTERS]


# What a call adds.


@dataclass(frozen=True, slots=True)
class Meter:
    """What is summed, for which subjects, and how much this call adds to each."""

    meter: str
    subjects: Sequence[str]
    amount: Decimal
    window_seconds: int

    @property
    def step(self) -> int:
        """Seconds of a bucket."""
        return max(1, self.window_seconds // BUCKETS)

    def bucket(self, now: datetime) -> int:
        return int(now.timestamp() // self.step)


DECIMALS_KEPT = 10
"""Of an amount that a call holds, after the point (`Reservation.amount`)."""


def is_exact(meter: Meter) -> bool:
    """Whether PostgreSQL and we write its sum alike."""
    exponent = meter.amount.as_tuple().exponent
    return isinstance(exponent, int) and exponent >= -DECIMALS_KEPT


@dataclass(frozen=True, slots=True)
class TallyOwner:
    """Whose call it is that reads and reserves."""

    workspace_id: int
    agent_id: int
    key: str


@dataclass(frozen=True, slots=True)
class Account:
    """Whose call it is, of what, and for whom: by what a question says in `per`."""

    agent_id: int
    tool: str
    run: str
    person: str
    """On whose behalf; empty where nobody is named, or more than one was."""
    targets: Sequence[Mapping[str, Any]]


def meter_of(lookup: Lookup, account: Account, facts: Mapping[str, Any]) -> Meter | None:
    """What is added, and for whom; None where it cannot be told, or is less than nothing."""
    amount = Decimal(1) if lookup.function == "count" else number(value_of(lookup, facts))
    subjects = _subjects(lookup.option("per", "workspace"), account, facts)
    if amount is None or not subjects or len(subjects) > SUBJECTS_MAX:
        return None
    return Meter(
        meter=name_of(lookup.key),
        subjects=[digest_of(one) for one in subjects],
        amount=amount,
        window_seconds=window_seconds(lookup.option("over")),
    )


def value_of(lookup: Lookup, facts: Mapping[str, Any]) -> Any:
    """The value that is asked about, of several targets that of each; UNKNOWN where there is
    none.
    """
    if lookup.argument is None:
        return UNKNOWN
    try:
        found = [lookup.argument.evaluate(one) for one in each_target(facts, lookup.argument.names)]
        return found if len(found) > 1 else found[0]
    except CannotEvaluate:
        return UNKNOWN


def number(value: Any) -> Decimal | None:
    """An amount that can be counted; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = Decimal(str(value))
    return number if number.is_finite() and 0 <= number < AMOUNT_MAX else None


def texts_of(value: Any) -> set[str] | None:
    """The values as they are compared; None where one of them cannot be."""
    if isinstance(value, list):
        parts = [texts_of(one) for one in value]
        known = [one for one in parts if one is not None]
        return set().union(*known) if len(known) == len(parts) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {str(int(value) if value == int(value) else value)}
    if not isinstance(value, str) or not value.strip() or holds_bare(value):
        return None
    return {without_last4(value.encode()).decode()}


def _subjects(per: str, account: Account, facts: Mapping[str, Any]) -> list[str]:
    """Whom or what is counted for; none where it is not known."""
    match per:
        case "workspace":
            found = ["all"]
        case "agent":
            found = [str(account.agent_id)]
        case "tool":
            found = [account.tool]
        case "run":
            found = [account.run]
        case "person":
            found = [as_one(account.person)] if account.person else []
        case "target":
            found = [f"{as_one(one['type'])} {as_one(one['id'])}" for one in account.targets]
        case _:
            value: Any = facts
            for name in per.split("."):
                value = value.get(name) if isinstance(value, Mapping) else None
            found = list(map(as_one, texts_of(value) or ()))
    return sorted(set(found))


# What stands in the tallies.

# In the order of the rows, so that two calls with several tallies in common wait in line.
LOCK = """
INSERT INTO approvals_tally (workspace_id, meter, subject, buckets, since, touched_at)
SELECT %b, meter, subject, '{}', clock_timestamp(), clock_timestamp()
FROM unnest(%b::text[], %b::text[]) AS u (meter, subject) ORDER BY meter, subject
ON CONFLICT (workspace_id, meter, subject) DO UPDATE SET touched_at = clock_timestamp()"""

# Of a tally `t` the calls `o` whose outcome was not known, those of which people were asked first.
_OPEN = f"""
    FROM (SELECT r.*, r.agent_id = %b AND r.key = %b AS is_own FROM approvals_reservation r
        WHERE r.tally_id = t.id ORDER BY r.held, r.id LIMIT {OPEN_MAX + 1}) o"""  # noqa: S608
_STATE = """(
        SELECT a.state FROM ledger_action a WHERE a.action = o.action AND a.run_id = (
            SELECT id FROM ledger_run WHERE workspace_id = t.workspace_id AND run = o.run_ref))"""
TALLIES = f"""
SELECT json_agg(json_build_array(t.meter, t.subject, t.buckets, extract(epoch FROM t.since),
    t.touched_at, (
    SELECT json_agg(json_build_array(o.id, o.bucket, o.amount::text, o.held, o.is_own, {_STATE}, (
        SELECT CASE WHEN p.expires_at > clock_timestamp() THEN p.state END
        FROM approvals_approval p WHERE NOT o.held AND p.workspace_id = t.workspace_id
            AND p.subject_key = concat(o.agent_id, ' ', o.key) AND p.run_ref = o.run_ref
            AND p.subject_kind = 'action'
        ORDER BY p.id DESC LIMIT 1)) ORDER BY o.held, o.id) {_OPEN})))
FROM approvals_tally t
WHERE t.workspace_id = %b AND t.meter = ANY(%b::text[]) AND t.subject = ANY(%b::text[])"""  # noqa: S608


# The tallies as they are with a call, one row of arrays; none where one of them is beyond its cap,
# or has to be looked at (`tally_states`): some of it waits for people's yes, or had no effect. A
# call that was done is settled, all others count as they stand. Sums are compared as conditions
# compare them, as doubles.
WITHIN_CAPS = f"""
SELECT s.* FROM (
    SELECT array_agg(m.meter) AS meters, array_agg(m.subject) AS subjects,
        array_agg(t.touched_at) AS seen_at,
        array_agg((k.others || jsonb_strip_nulls(
            jsonb_build_object(m.bucket, nullif(k.here + m.amount, 0)::text)))::text) AS sums,
        array_agg(m.bucket) AS buckets, array_agg(m.amount) AS amounts,
        string_to_array(string_agg(open.done, ','), ',')::bigint[] AS settled,
        coalesce(bool_and(open.is_plain AND CASE WHEN m.is_inclusive
            THEN (k.total + m.amount)::float8 <= m.upto
            ELSE (k.total + m.amount)::float8 < m.upto END), true) AS is_within
    FROM (SELECT u.*, floor(extract(epoch FROM clock_timestamp()))::bigint / u.step AS bucket
        FROM unnest(%b::text[], %b::text[], %b::bigint[], %b::numeric[], %b::float8[],
            %b::boolean[]) AS u (meter, subject, step, amount, upto, is_inclusive)) m
    LEFT JOIN LATERAL (SELECT * FROM approvals_tally
        WHERE workspace_id = %b AND meter = m.meter AND subject = m.subject LIMIT 1) t ON true
    CROSS JOIN LATERAL (SELECT coalesce(jsonb_object_agg(b.key, b.value), '{{}}') AS others,
            coalesce(sum(b.value::numeric), 0) AS total,
            coalesce(sum(b.value::numeric) FILTER (WHERE b.key::bigint = m.bucket), 0) AS here
        FROM jsonb_each_text(t.buckets) b
        WHERE b.key::bigint >= m.bucket - {BUCKETS} AND b.value::numeric <> 0) k
    CROSS JOIN LATERAL (SELECT
            string_agg(o.id::text, ',') FILTER (WHERE o.state = '{ActionState.SUCCEEDED}') AS done,
            coalesce(bool_and(o.held AND NOT o.is_own
                AND o.state IS DISTINCT FROM '{ActionState.FAILED}'), true) AS is_plain
        FROM (SELECT o.*, {_STATE} AS state {_OPEN} OFFSET 0) o) open
    OFFSET 0) s WHERE s.is_within"""  # noqa: S608 - our own words


def within_caps(caller: TallyOwner, caps: Sequence[tuple[Meter, Cap]]) -> Statement:
    """What stands in these tallies, if each stays within its cap with what its meter adds."""
    told = [(meter, subject, cap) for meter, cap in caps for subject in meter.subjects]
    return WITHIN_CAPS, [
        array(meter.meter for meter, _, _ in told),
        array(subject for _, subject, _ in told),
        array(meter.step for meter, _, _ in told),
        array(str(meter.amount) for meter, _, _ in told),
        array(str(cap.limit) for _, _, cap in told),
        array(str(cap.is_inclusive) for _, _, cap in told),
        caller.workspace_id, caller.agent_id, caller.key,
    ]  # fmt: skip


def lock(caller: TallyOwner, meters: Iterable[Meter]) -> Statement:
    """Hold the rows of these tallies, new ones among them."""
    pairs = [(one.meter, subject) for one in meters for subject in one.subjects]
    names, subjects = [one for one, _ in pairs], [one for _, one in pairs]
    return LOCK, [caller.workspace_id, names, subjects]


def tallies(caller: TallyOwner, meters: Sequence[Meter]) -> Statement:
    """What stands in them, and what became of the calls whose outcome was not known; among them
    also those of one meter for the subjects of another, which `tally_states` leaves out.
    """
    names = array(one.meter for one in meters)
    subjects = array({subject for one in meters for subject in one.subjects})
    return TALLIES, [caller.agent_id, caller.key, caller.workspace_id, names, subjects]


@dataclass(slots=True)
class TallyState:
    """One tally as it stands for this call: what others hold, and what is to be written."""

    meter: Meter
    subject: str
    buckets: dict[int, Decimal] = field(default_factory=dict)
    since: datetime | None = None
    touched_at: str | None = None
    """When it was written last, as PostgreSQL spells it; None for one that is not there yet."""
    granted: Decimal = Decimal(0)
    done: list[int] = field(default_factory=list)
    is_complete: bool = True

    @property
    def others(self) -> Decimal:
        return sum(self.buckets.values(), self.granted)

    def written(self, now: datetime, *, held: bool) -> dict[str, str]:
        """The sums as they are to be kept, with this call where it holds at once."""
        buckets = dict(self.buckets)
        if held:
            bucket = self.meter.bucket(now)
            buckets[bucket] = buckets.get(bucket, Decimal(0)) + self.meter.amount
        return {str(number): str(amount) for number, amount in buckets.items() if amount}


def tally_states(
    meter: Meter, rows: Sequence[Sequence[Any]] | None, now: datetime, *, is_begun: bool = False
) -> list[TallyState]:
    """The tallies of this meter out of what `TALLIES` gives; a call that has begun stands in them
    as those of others do.
    """
    oldest = meter.bucket(now) - BUCKETS
    found = {subject: TallyState(meter, subject) for subject in meter.subjects}
    for name, subject, buckets, since, touched_at, open_rows in rows or ():
        if name != meter.meter or subject not in found:
            continue
        kept = {int(n): Decimal(amount) for n, amount in buckets.items() if int(n) >= oldest}
        begun = datetime.fromtimestamp(float(since), now.tzinfo)
        one = found[subject] = TallyState(meter, subject, kept, begun, touched_at)
        one.is_complete = len(open_rows or ()) <= OPEN_MAX or bool(open_rows[OPEN_MAX][3])
        for row in open_rows or ():
            _settle(one, *row, is_begun=is_begun)
    return list(found.values())


def _settle(
    tally: TallyState, id_: int, bucket: int, amount: str, held: bool, is_own: bool,  # noqa: FBT001
    state: str | None, approval: str | None, *, is_begun: bool,
) -> None:  # fmt: skip
    """What one call holds by now. Its own row is written anew, and so left out here, unless it has
    begun.
    """
    is_own = is_own and not is_begun
    if held:
        if (state == ActionState.FAILED or is_own) and bucket in tally.buckets:
            tally.buckets[bucket] -= Decimal(amount)
        if state in {ActionState.FAILED, ActionState.SUCCEEDED} and not is_own:
            tally.done.append(id_)
        return
    if is_own:
        return
    if approval == ApprovalState.GRANTED:
        tally.granted += Decimal(amount)
    elif approval != ApprovalState.WAITING:
        tally.done.append(id_)


LET_GO = """
DELETE FROM approvals_reservation r USING approvals_tally t
WHERE t.id = r.tally_id AND t.workspace_id = %b AND r.agent_id = %b AND r.key = %b AND NOT r.held"""


def let_go(caller: TallyOwner) -> Statement:
    """Drop what a call that people were asked about would hold: it is written anew for another."""
    return LET_GO, [caller.workspace_id, caller.agent_id, caller.key]
