"""What the conditions of a policy ask beyond the call: looked up before the call is judged.

The policy gives the lookups that this call needs (`approvals.policy.lookups`): mostly none, and
then no statement is sent. All of a call travel in one statement, a scalar subquery for each, under
the locks of the key and the run, so that what was found still holds when the call proceeds.

Below is what each function of a condition asks: one scalar of SQL and how its answer is read, or at
once the result. Each goes by an index and reads a bounded number of rows. What cannot be known is
UNKNOWN and never False: the rule then counts as met where it asks or denies
(approvals/policy/conditions.py).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from time import monotonic, perf_counter
from typing import Any

import msgspec

from amends.protocol.vocabulary import WITHOUT_EFFECT
from approvals import memory, named_lists, tallies
from approvals.gate import run_lookups
from approvals.gate.begin_context import BeginContext, Gathered, ScalarQuery, as_approved
from approvals.gate.begin_request import BeginRequest
from approvals.gate.decision_table import NOTHING_BEGUN
from approvals.memory import ValueDigest
from approvals.policy import UNKNOWN, Lookup, LookupResult, Policy, ToolCall, lookups
from approvals.policy.conditions import IN_LIST, LOOKED_UP, Cap, window_seconds
from approvals.policy.document import posix
from approvals.policy.evaluation import class_of
from approvals.policy.named_lists import sought, stands
from approvals.tallies import AMOUNT_MAX, Meter, TallyOwner, meter_of, number, texts_of, value_of
from ledger.append.statements import Statement
from ledger.drivers import StatementGenerator


def gather(
    request: BeginRequest, context: BeginContext, policy: Policy
) -> StatementGenerator[Gathered]:
    """Look up what the policy needs to judge the call that would run; `findings` has the results by
    `Lookup.key`.
    """
    request = as_approved(request, context)
    call = request.tool_call(context.labels)
    found = Gathered(request, context, policy, call)
    queries = queries_of(found, lookups(policy, call))
    if queries and request.explain:
        for key, query in queries.items():
            began = perf_counter()
            found.findings |= yield from _run({key: query}, found)
            found.milliseconds[key] = (perf_counter() - began) * 1000
    elif queries:
        found.findings |= yield from _run(queries, found)
    return found


def queries_of(found: Gathered, needed: Sequence[Lookup]) -> dict[str, ScalarQuery]:
    """The queries that these lookups need, by their keys. The result of a lookup that needs none is
    put into `found.findings`.
    """
    queries: dict[str, ScalarQuery] = {}
    facts = found.call.facts()
    for lookup in needed:
        result = QUERY_BUILDERS[lookup.function](lookup, found, facts)
        if isinstance(result, ScalarQuery):
            queries[lookup.key] = result
        else:
            found.findings[lookup.key] = result
    return queries


UNDER_EVERY_CAP = LookupResult(-math.inf)
LEFT_ALONE_SECONDS = 10.0
LEFT_ALONE_MAX = 10_000
left_alone: dict[tuple[int, str, str], float] = {}
"""Tallies that were lately not within their caps, or had to be looked at, and until when to begin
with a look. It spares a statement, and decides nothing.
"""


def capped(
    queries: Mapping[str, ScalarQuery], found: Gathered
) -> tuple[list[tuple[Meter, Cap]], dict[str, LookupResult]] | None:
    """The caps of the call's sums and counts, and what the rules see of those that stay within;
    None where a rule does more with one than hold it against a number, or a look is the better
    beginning.
    """
    caps = found.policy.of_tool(found.call.tool).caps
    metered = {key: query.meter for key, query in queries.items() if query.meter}
    if not metered.keys() <= caps.keys() or not all(map(tallies.is_exact, metered.values())):
        return None
    now = monotonic()
    if any(left_alone.get(one, now) > now for one in _tallies(metered.values(), found.caller)):
        return None
    return (
        [(meter, caps[key]) for key, meter in metered.items()],
        dict.fromkeys(metered, UNDER_EVERY_CAP),
    )


def leave_alone(meters: Iterable[Meter], caller: TallyOwner) -> None:
    """One of these tallies was not within its cap."""
    if len(left_alone) > LEFT_ALONE_MAX:
        left_alone.clear()
    until = monotonic() + LEFT_ALONE_SECONDS
    left_alone.update(dict.fromkeys(_tallies(meters, caller), until))


def _tallies(meters: Iterable[Meter], caller: TallyOwner) -> list[tuple[int, str, str]]:
    return [(caller.workspace_id, one.meter, subject) for one in meters for subject in one.subjects]


def reads_texts(policy: Policy, call: ToolCall) -> bool:
    """Whether a lookup reads texts of people or strangers. They may be long, so it is done in a
    thread: on the event loop it would hold up every other request.
    """
    return any(one.function in OF_TEXTS for one in lookups(policy, call))


def is_of_memory(lookup: Lookup) -> bool:
    """Whether the lookup reads only what is remembered of calls and lists, and needs neither the
    run nor the person on whose behalf it acts.
    """
    options = lookup.option("per", ""), lookup.option("by", "")
    return lookup.function in OF_MEMORY and "person" not in options


# Each query goes by an index whatever its parameters are; planning them anew for every call took as
# long as all the rest of it.
GENERIC_PLAN: Statement = ("SET LOCAL plan_cache_mode = force_generic_plan", ())


def _run(
    queries: Mapping[str, ScalarQuery], found: Gathered
) -> StatementGenerator[dict[str, LookupResult]]:
    is_locking = found.meters and not found.request.explain
    locks = [tallies.lock(found.caller, found.meters)] if is_locking else []
    *_, [(row,)] = yield [GENERIC_PLAN, *locks, combined(queries, found.caller)]
    return results(queries, decode_row(row)[1])


def combined(queries: Mapping[str, ScalarQuery], caller: TallyOwner) -> Statement:
    """All queries as one statement that returns one JSON text (`decode_row`): a column for each
    took longer to read than to look up. The tallies of all meters are one scalar, the last.
    """
    statements = [(one.sql, one.values) for one in queries.values() if one.meter is None]
    if meters := [one.meter for one in queries.values() if one.meter]:
        statements.append(tallies.tallies(caller, meters))
    scalars = ", ".join([f"({sql})" for sql, _ in statements])
    values = [value for _, values in statements for value in values]
    return f"SELECT json_build_array(clock_timestamp(), json_build_array({scalars}))::text", values


decode_row = msgspec.json.Decoder(tuple[datetime, list[Any]]).decode
"""The database's time, and the scalars in the order of `combined`."""


def results(queries: Mapping[str, ScalarQuery], scalars: Sequence[Any]) -> dict[str, LookupResult]:
    """What the scalars of `decode_row` mean, by the keys of the lookups."""
    others = iter(scalars)
    return {
        key: query.read(scalars[-1] if query.meter else next(others))
        for key, query in queries.items()
    }


QueryBuilder = Callable[[Lookup, Gathered, Mapping[str, Any]], ScalarQuery | LookupResult]


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
        none = (0, "", declared.kind, None, None, False)
        version, digest, kind, keys, marks, has_lost = row or none
        if kind != declared.kind:
            return LookupResult(
                UNKNOWN, f"The list {name} is one of {kind}, not of {declared.kind}"
            )
        known = {*(keys or ()), *(marks or ()), *declared.entries}
        answer = stands(wanted, known)
        if answer is not True and any(stands([one], known) for one in wanted):
            words = f"Of {lookup.subject} some stand on the list {name}, and others do not"
            return LookupResult(UNKNOWN, words)
        if answer is None or (has_lost and not answer):
            return cannot
        which = f"version {version} ({digest[:12]})" if version else "which has no version yet"
        is_on = "is" if answer else "is not"
        return LookupResult(answer, f"{lookup.subject} {is_on} on the list {name}, {which}")

    sql, values = named_lists.look(actor.workspace_id, name, wanted)
    return ScalarQuery(sql, values, read)


OF_TEXTS = frozenset({"request", "goal", "mentioned", "tainted", LOOKED_UP})
OF_MEMORY = frozenset({"count", "sum", "known", "lookalike", "unusual", IN_LIST})
QUERY_BUILDERS: Mapping[str, QueryBuilder] = {
    "request": run_lookups.request_or_goal,
    "goal": run_lookups.request_or_goal,
    "on_behalf_of": run_lookups.on_behalf_of,
    "mentioned": run_lookups.mentioned,
    "rejected_before": run_lookups.rejected_before,
    "read_untrusted": run_lookups.read_untrusted,
    "working_hours": working_hours,
    "tainted": run_lookups.tainted,
    "called": run_lookups.called,
    LOOKED_UP: run_lookups.looked_up,
    "count": counted,
    "sum": counted,
    "known": known,
    "lookalike": known,
    "unusual": unusual,
    IN_LIST: listed,
}
