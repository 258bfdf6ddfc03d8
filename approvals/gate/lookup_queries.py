"""What each function of a condition asks: one scalar of SQL and how its answer is read, or at once
the result.

Each goes by an index and reads a bounded number of rows. What cannot be known is UNKNOWN and never
False: the rule then counts as met where it asks or denies (approvals/policy/conditions.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec

from amends.protocol.vocabulary import WITHOUT_EFFECT
from approvals import memory, named_lists, tallies
from approvals.card_context import targets_of
from approvals.gate.begin_context import Gathered
from approvals.gate.decision_table import NOTHING_BEGUN
from approvals.memory import ValueDigest
from approvals.policy import UNKNOWN, Lookup, LookupResult
from approvals.policy.conditions import IN_LIST, window_seconds
from approvals.policy.document import mistake, posix
from approvals.policy.evaluation import class_of
from approvals.policy.named_lists import sought, stands
from approvals.policy.spelling import (
    TEXT_CHARACTERS_MAX,
    as_one,
    as_seen,
    leaves,
    names_in,
    pointers_in,
    stands_in,
)
from approvals.tallies import AMOUNT_MAX, Meter, meter_of, number, texts_of, value_of
from workspaces import formatting

REJECTIONS_MAX = 200
"""Of a run's rejected approvals so many, the newest, are compared with the call."""
WORDS_MAX = 50
SPELLED_CHARACTERS_MAX = 4_000
_json = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class ScalarQuery:
    """One scalar of the statement, and how its answer is read."""

    sql: str
    values: Sequence[Any]
    read: Callable[[Any], LookupResult]
    meter: Meter | None = None
    """Of a sum or a count, which has no SQL by itself: the tallies of all meters are read at once.
    """


QueryBuilder = Callable[[Lookup, Gathered, Mapping[str, Any]], ScalarQuery | LookupResult]


# The request of the run, and what people wrote since.

REQUEST = f"SELECT left(r.request, {TEXT_CHARACTERS_MAX + 1}) FROM ledger_run r WHERE r.id = %b"  # noqa: S608
GOAL = f"SELECT left(r.goal, {TEXT_CHARACTERS_MAX + 1}) FROM ledger_run r WHERE r.id = %b"  # noqa: S608

# The request, and with it what people said with a yes, and what the affected person said.
WRITTEN = f"""
SELECT left(concat_ws(E'\\n',
    CASE WHEN 'disagree:request' = ANY(r.flags) THEN '' ELSE r.request END,
    (SELECT string_agg(said.words, E'\\n') FROM (
        SELECT d.reason AS words FROM approvals_approval p
        JOIN approvals_decision d ON d.approval_id = p.id AND d.granted
        WHERE p.workspace_id = r.workspace_id AND p.run_ref = r.run AND p.run_ref <> ''
        UNION ALL
        SELECT w.note FROM approvals_approval p
        JOIN approvals_wish w ON w.approval_id = p.id AND w.answer = 'yes'
        WHERE p.workspace_id = r.workspace_id AND p.run_ref = r.run AND p.run_ref <> ''
        LIMIT {WORDS_MAX}) said)), {TEXT_CHARACTERS_MAX + 1})
FROM ledger_run r WHERE r.id = %b"""  # noqa: S608 - our own words
NOT_ON_RECORD = "What the agent was asked for is not on record"


def _request_or_goal(
    lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    if gathered.context.run is None or gathered.disagrees(lookup.function):
        return LookupResult(UNKNOWN, NOT_ON_RECORD)
    sql = GOAL if lookup.function == "goal" else REQUEST

    def read(text: str | None) -> LookupResult:
        told = bool(text) and len(text or "") <= TEXT_CHARACTERS_MAX
        return LookupResult(text if told else UNKNOWN, "" if told else NOT_ON_RECORD)

    return ScalarQuery(sql, [gathered.context.run.id], read)


def _person(lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]) -> LookupResult:
    run = gathered.context.run
    person = run.on_behalf_of if run else None
    if person is None or gathered.disagrees("on_behalf_of"):
        return LookupResult(UNKNOWN, "On whose behalf the run acts is not on record")
    return LookupResult(person, "")


def _mentioned(
    lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    value = value_of(lookup, facts)
    if value is UNKNOWN or gathered.context.run is None:
        return LookupResult(UNKNOWN, f"Whether {lookup.subject} was asked for cannot be told")

    def read(text: str | None) -> LookupResult:
        key, today = gathered.request.actor.masking_key, gathered.context.now.date()
        found = stands_in(value, text or "", key, today)
        if found is None:
            return LookupResult(UNKNOWN, f"Whether {lookup.subject} was asked for cannot be told")
        stands = "stands" if found else "does not stand"
        return LookupResult(found, f"{lookup.subject} {stands} in what the agent was asked for")

    return ScalarQuery(WRITTEN, [gathered.context.run.id], read)


# After a no: whether people rejected or took back, in this run, a call on one of the same targets
# or with the same arguments, whichever tool it was and however they are spelled; long arguments
# have to be the same to the letter.

REJECTED = f"""
SELECT json_agg(json_build_array(coalesce(no.decided_at, no.asked_at)::text, no.targets,
    no.args = %b::jsonb OR no.asked = %b::jsonb OR (no.tool = %b AND no.is_bare),
    CASE WHEN length(no.args::text) <= {SPELLED_CHARACTERS_MAX} THEN no.args END,
    CASE WHEN length(no.asked::text) <= {SPELLED_CHARACTERS_MAX} THEN no.asked END) ORDER BY no.id)
FROM (
    SELECT p.id, p.decided_at, p.asked_at, p.targets, p.calls -> 0 -> 'args' AS args,
        p.calls -> 0 -> 'more' -> 'asked' -> 'args' AS asked, p.calls -> 0 ->> 'operation' AS tool,
        cardinality(p.targets) = 0
            AND coalesce(p.calls -> 0 -> 'args', 'null') IN ('null', '{{}}', '[]') AS is_bare
    FROM approvals_approval p WHERE p.workspace_id = %b AND p.run_ref = %b AND p.run_ref <> ''
        AND p.subject_kind = 'action' AND (p.state = 'rejected'
            OR (p.state = 'withdrawn' AND p.closed_by_id IS NOT NULL))
    ORDER BY p.id DESC LIMIT {REJECTIONS_MAX}) no"""  # noqa: S608 - our own words


def _as_one(value: Any) -> Any:
    """A value with its texts in the one form of all their spellings."""
    if isinstance(value, dict):
        return {name: _as_one(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_as_one(inner) for inner in value]
    return as_one(value) if isinstance(value, str) else value


def _rejected_before(lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]) -> ScalarQuery:
    args = gathered.request.data.get("args")
    said = _json.encode(args).decode() if args else None
    targets = set(_as_one(targets_of([{"targets": list(gathered.request.targets)}])))
    own = _as_one(args) or None
    bare = None if args or targets else gathered.request.tool  # then the tool is all that it says

    def read(rejections: Sequence[Sequence[Any]] | None) -> LookupResult:
        found = [
            when
            for when, on, is_same, *calls in rejections or ()
            if is_same or targets & set(_as_one(on)) or (own and own in map(_as_one, calls))
        ]
        when = found[-1] if found else None
        words = (
            f"People said no in this run at {when[:16]} UTC, to a call on the same target or with"
            " the same arguments" if when else ""
        )  # fmt: skip
        return LookupResult(when is not None, words)

    run = gathered.request.planned.run
    here = gathered.request.actor.workspace_id
    return ScalarQuery(REJECTED, [said, said, bare, here, run], read)


# What was called before in this run, and what of it was read that strangers wrote.

CALLS_MAX = 1_000
"""Of a run's calls so many, the newest, are looked through."""
MORE_CALLS = f"This run has made more than {CALLS_MAX:,} calls, or told of one as of two tools"
TAINTED_MAX = 50
"""So many values of a call are looked for in what strangers wrote: each takes a while."""
RESULTS_MAX = 20
RESULT_CHARACTERS_MAX = 60_000
_CALLS = """
FROM (SELECT b.tool, b.state, b.key, b.result, b.flags FROM ledger_action b WHERE b.run_id = %b
    ORDER BY b.n DESC, b.first_place DESC LIMIT %b) a"""
_COUNT = f"""CASE WHEN bool_or('disagree:tool' = ANY(a.flags)) THEN {CALLS_MAX + 1}
    ELSE count(*) END"""
_EARLIER = "a.key <> %b AND a.state NOT IN ('planned', 'approved') AND a.tool ~ %b"
CALLED = f"""
SELECT json_build_array(count(*) FILTER (WHERE {_EARLIER}), {_COUNT}) {_CALLS}"""
READ = f"""
SELECT json_build_array(json_agg(DISTINCT a.tool) FILTER (WHERE {_EARLIER}), {_COUNT})
{_CALLS}"""
RESULTS = f"""
SELECT json_build_array(({WRITTEN}), (SELECT json_agg(json_build_array(u.tool, u.result)) FROM (
    SELECT a.tool, CASE WHEN length(a.result::text) <= {RESULT_CHARACTERS_MAX} THEN a.result END
        AS result
    {_CALLS} WHERE {_EARLIER} LIMIT {RESULTS_MAX + 1}) u),
    (SELECT {_COUNT} {_CALLS}))"""  # noqa: S608 - our own words


def _called(
    lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    glob = value_of(lookup, facts)
    if not isinstance(glob, str) or mistake(glob):
        return LookupResult(UNKNOWN, f"{lookup.source} names no tool")
    if gathered.context.run is None:
        return LookupResult(0, f"No call of {glob} came before in this run")

    def read(row: Sequence[int]) -> LookupResult:
        times, seen = row
        if seen > CALLS_MAX:
            return LookupResult(UNKNOWN, MORE_CALLS)
        came = f"{times} call{'s' * (times != 1)} of {glob}" if times else f"No call of {glob}"
        return LookupResult(times, f"{came} came before in this run")

    key, run = gathered.request.key, gathered.context.run.id
    return ScalarQuery(CALLED, [key, posix((glob,)), run, CALLS_MAX + 1], read)


def _read_untrusted(
    lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    policy, run = gathered.policy, gathered.context.run
    if not policy.untrusted_globs or run is None:
        return LookupResult(value=False)

    def read(row: Sequence[Any]) -> LookupResult:
        tools, seen = row
        found = sorted(filter(policy.is_untrusted, tools or ()))
        if not found and seen > CALLS_MAX:
            return LookupResult(UNKNOWN, MORE_CALLS)
        names = ", ".join(map(formatting.named, found[:3]))
        return LookupResult(
            bool(found), f"This run has read what strangers wrote, by {names}" * bool(found)
        )

    globs = posix(policy.untrusted_globs)
    return ScalarQuery(READ, [gathered.request.key, globs, run.id, CALLS_MAX + 1], read)


def _tainted(
    lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    """By value: whether a part of it, or where it leads to, stands in what strangers wrote and not
    in the request.
    """
    value, run, policy = value_of(lookup, facts), gathered.context.run, gathered.policy
    cannot = LookupResult(UNKNOWN, f"Where {lookup.subject} comes from cannot be told")
    if value is UNKNOWN:
        return cannot
    parts = [*leaves(value)]
    parts += dict.fromkeys(to for one in parts[:TAINTED_MAX] for to in pointers_in(one))
    if not policy.untrusted_globs or run is None:
        return LookupResult(value=False)

    def read(row: Sequence[Any]) -> LookupResult:
        written, results, calls = row
        seen = [result for tool, result in results or () if policy.is_untrusted(tool)]
        if not seen:
            is_told = calls <= CALLS_MAX and len(results or ()) <= RESULTS_MAX
            return LookupResult(value=False) if is_told else cannot
        if len(parts) > TAINTED_MAX or any(len(str(one)) > TEXT_CHARACTERS_MAX for one in parts):
            return cannot
        key, today = gathered.request.actor.masking_key, gathered.context.now.date()
        names = dict.fromkeys(name for result in seen for name in names_in(result))
        values = (str(one) for result in seen for one in leaves(result))
        text = as_seen("\n".join([*values, *names]))
        answers = []
        for one in parts:
            asked_for = stands_in(one, written or "", key, today)
            plain = as_seen(one) if isinstance(one, str) else one
            answers.append(False if asked_for else stands_in(plain, text, key, today))
        if any(answers):
            words = f"{lookup.subject} stands in what strangers wrote, and was not asked for"
            return LookupResult(value=True, say=words)
        if None in answers or None in seen or len(results) > RESULTS_MAX or calls > CALLS_MAX:
            return cannot
        return LookupResult(value=False, say=f"{lookup.subject} comes from nothing that was read")

    earlier = [run.id, CALLS_MAX + 1, gathered.request.key, posix(policy.untrusted_globs)]
    return ScalarQuery(RESULTS, [run.id, *earlier, run.id, CALLS_MAX + 1], read)


# Sums and counts, with this call, over those that ran or are granted.


def counted(
    lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    meter = meter_of(lookup, gathered.account, facts)
    if meter is None:
        return LookupResult(UNKNOWN, f"What {lookup.source} comes to cannot be told")
    gathered.meters.append(meter)
    before = gathered.context.action
    # One that has begun is answered and not made again: it stands among the others, or is too old.
    is_begun = before is not None and before.state not in NOTHING_BEGUN
    adds = Decimal(0) if is_begun else meter.amount

    def read(rows: Sequence[Any] | None) -> LookupResult:
        now = gathered.context.now
        found = tallies.tally_states(meter, rows, now, is_begun=is_begun)
        gathered.tally_states += found
        total = max((one.others for one in found), default=Decimal(0)) + adds
        if not all(one.is_complete for one in found):
            return LookupResult(UNKNOWN, f"More calls are open than {lookup.source} looks at")
        since = min((one.since for one in found if one.since), default=now)
        young = since > now - timedelta(seconds=meter.window_seconds)
        value = int(total) if total == int(total) else float(total)

        def words() -> str:
            counted = f", counted since {since:%Y-%m-%d %H:%M} UTC" if young else ""
            return f"{lookup.source} comes to {value} with this call{counted}"

        return LookupResult(value, words)

    return ScalarQuery("", (), read, meter)


# Novelty: whether a value was used before, and whether it looks like one that was.

LEAVES_MAX = 20


def known(
    lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    request = gathered.request
    is_target = lookup.subject in {"target", "targets"}
    targets = sorted({(one["type"], one["id"]) for one in request.targets}) if is_target else []
    texts = (
        [" ".join(one) for one in targets]
        if is_target
        else sorted(texts_of(value_of(lookup, facts)) or ())
    )
    by = lookup.option("by", "workspace")
    if not texts or len(texts) > LEAVES_MAX or (by == "person" and not gathered.person):
        return LookupResult(UNKNOWN, f"Whether {lookup.subject} is known cannot be told")
    field_ = tallies.name_of("target" if is_target else lookup.subject)
    values = [ValueDigest.of(one) for one in texts]
    gathered.sighted |= {(field_, one.value): one for one in values}
    agent = request.actor.agent_id if by == "agent" else None
    person = gathered.person if by == "person" else None
    whose = memory.HistoryScope(
        request.actor.workspace_id, field_, agent, person, *_of_tools(lookup, gathered)
    )
    asks_alike = lookup.function == "lookalike"
    sql, parameters = (
        memory.seen_targets(whose, targets, values, alike=asks_alike)
        if is_target
        else memory.seen_values(whose, values, alike=asks_alike)
    )
    return ScalarQuery(sql, parameters, partial(_seen, lookup, gathered))


def _of_tools(lookup: Lookup, gathered: Gathered) -> tuple[str, str | None]:
    """Of which tools a call makes known, and of which none does, as patterns: of those that the
    rule fits, and nothing that only reads, unless this call does so itself.
    """
    own = posix((lookup.glob,)) if lookup.glob else ""
    if class_of(gathered.policy, gathered.call) in WITHOUT_EFFECT:
        return own, None
    reading = gathered.policy.reading_globs
    return own, posix(reading) if reading else "^$"


def _seen(lookup: Lookup, gathered: Gathered, rows: Sequence[Any] | None) -> LookupResult:
    now = gathered.context.now
    seen = [msgspec.convert(one, memory.ValueHistory) for one in rows or ()]
    if lookup.function == "lookalike":
        alike = any(one.is_alike and not one.is_known for one in seen)
        looks = "looks like one that is known, and is another" if alike else "looks like no other"
        return LookupResult(alike, f"{lookup.subject} {looks}")
    least = window_seconds(lookup.option("for")) if lookup.option("for") else 0
    known = all(one.is_known and now.timestamp() - (one.since or 0) >= least for one in seen)
    if any(one.overturned for one in seen):
        return LookupResult(known, f"A call with {lookup.subject} was undone, or failed its check")
    new = [one for one in seen if not one.is_known]
    if new:
        return LookupResult(known, f"{lookup.subject} is new: no call with it was done before")

    def words() -> str:
        youngest = max(seen, key=lambda one: one.since or 0)
        since = datetime.fromtimestamp(youngest.since or 0, UTC)
        times = f"{youngest.times} call{'s' * (youngest.times != 1)}"
        return f"{lookup.subject} is known since {since:%Y-%m-%d %H:%M} UTC, {times}"

    return LookupResult(known, words)


def working_hours(lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]) -> LookupResult:
    hours = gathered.policy.working_hours
    if hours is None:
        return LookupResult(UNKNOWN, "Nobody says when working hours are")
    is_open = hours.covers(gathered.context.now)
    return LookupResult(is_open, f"It is {'within' if is_open else 'outside'} working hours")


# Amounts out of an agent's range.

CALLS_TO_COMPARE_MAX = 200
TOLD_MAX = 2_000
"""Among so many calls, the newest, for an agent can tell of any number that nobody let through."""
ENOUGH_TO_COMPARE = 5
TIMES_THE_MOST = 2
MOST = f"""
SELECT json_build_array(count(n.amount), max(n.amount)::float8) FROM (
    SELECT a.agent_id, CASE WHEN jsonb_typeof(a.args #> %b::text[]) = 'number'
        THEN least((a.args #>> %b::text[])::numeric, {AMOUNT_MAX}) END AS amount
    FROM (SELECT * FROM ledger_action WHERE workspace_id = %b AND tool = %b
            AND state = 'succeeded' AND compensated = 'none'
        ORDER BY id DESC LIMIT {TOLD_MAX}) a JOIN ledger_run r ON r.id = a.run_id
    WHERE {memory.GATED} ORDER BY a.id DESC LIMIT {CALLS_TO_COMPARE_MAX}) n
WHERE n.agent_id = %b"""  # noqa: S608 - our own words


def unusual(
    lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    """Whether an amount is above twice the most of this agent's earlier calls of the tool."""
    amount, path = number(value_of(lookup, facts)), lookup.subject.split(".")
    cannot = LookupResult(UNKNOWN, f"Whether {lookup.subject} is unusual cannot be told")
    if amount is None or path[0] != "args" or len(path) == 1:
        return cannot

    def read(row: Sequence[Any]) -> LookupResult:
        calls, most = row
        if calls < ENOUGH_TO_COMPARE:
            return cannot
        is_above = float(amount) > TIMES_THE_MOST * most
        above = "is above" if is_above else "is not above"
        words = f"{lookup.subject} {above} twice the most of {calls} earlier calls"
        return LookupResult(is_above, words)

    actor, names = gathered.request.actor, path[1:]
    tool = gathered.request.tool
    return ScalarQuery(MOST, [names, names, actor.workspace_id, tool, actor.agent_id], read)


# Named lists.


def listed(
    lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    name, value = lookup.option("list"), value_of(lookup, facts)
    declared, actor = gathered.policy.named_lists.get(name), gathered.request.actor
    cannot = LookupResult(UNKNOWN, f"Whether {lookup.subject} is on the list {name} cannot be told")
    if declared is None or value is UNKNOWN:
        return cannot
    wanted = sought(declared.kind, value, actor.masking_key)
    if wanted is None:
        return cannot

    def read(row: Sequence[Any] | None) -> LookupResult:
        version, digest, kind, keys, marks = row or (0, "", declared.kind, None, None)
        if kind != declared.kind:
            return LookupResult(
                UNKNOWN, f"The list {name} is one of {kind}, not of {declared.kind}"
            )
        known = {*(keys or ()), *(marks or ()), *declared.entries}
        answer = stands(wanted, known)
        if answer is not True and any(stands([one], known) for one in wanted):
            words = f"Of {lookup.subject} some stand on the list {name}, and others do not"
            return LookupResult(UNKNOWN, words)
        if answer is None:
            return cannot
        which = f"version {version} ({digest[:12]})" if version else "which has no version yet"
        is_on = "is" if answer else "is not"
        return LookupResult(answer, f"{lookup.subject} {is_on} on the list {name}, {which}")

    sql, values = named_lists.look(actor.workspace_id, name, wanted)
    return ScalarQuery(sql, values, read)


OF_TEXTS = frozenset({"request", "goal", "mentioned", "tainted"})
OF_MEMORY = frozenset({"count", "sum", "known", "lookalike", "unusual", IN_LIST})
QUERY_BUILDERS: Mapping[str, QueryBuilder] = {
    "request": _request_or_goal,
    "goal": _request_or_goal,
    "on_behalf_of": _person,
    "mentioned": _mentioned,
    "rejected_before": _rejected_before,
    "read_untrusted": _read_untrusted,
    "working_hours": working_hours,
    "tainted": _tainted,
    "called": _called,
    "count": counted,
    "sum": counted,
    "known": known,
    "lookalike": known,
    "unusual": unusual,
    IN_LIST: listed,
}
