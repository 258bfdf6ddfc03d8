"""What the conditions of a policy ask beyond the call: looked up before the call is judged.

The policy gives the lookups that this call needs (`approvals.policy.lookups`): mostly none, and
then no statement is sent. All of a call travel in one statement, a scalar subquery for each, which
goes by an index and reads a bounded number of rows. They are read under the locks of the key and
the run, so that what was found still holds when the call proceeds.

What cannot be known is UNKNOWN and never False: the rule then counts as met where it asks or denies
(approvals/policy/conditions.py).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from time import perf_counter
from typing import Any

import msgspec

from approvals import memory
from approvals.card_context import targets_of
from approvals.gate.begin_context import BeginContext, as_approved
from approvals.gate.begin_request import BeginRequest
from approvals.gate.remembered import (
    Gathered,
    QueryBuilder,
    ScalarQuery,
    counted,
    known,
    listed,
    unusual,
    working_hours,
)
from approvals.memory import TallyOwner
from approvals.meters import value_of
from approvals.policy import UNKNOWN, Lookup, LookupResult, Policy, ToolCall, lookups
from approvals.policy.conditions import IN_LIST
from approvals.policy.document import mistake, posix
from approvals.policy.spelling import TEXT_CHARACTERS_MAX, as_one, leaves, stands_in
from ledger.append.statements import Statement
from ledger.drivers import Steps
from workspaces import formatting

REJECTIONS_MAX = 200
"""Of a run's rejected approvals so many, the newest, are compared with the call."""
WORDS_MAX = 50
SPELLED_CHARACTERS_MAX = 4_000
_json = msgspec.json.Encoder()


def gather(request: BeginRequest, context: BeginContext, policy: Policy) -> Steps[Gathered]:
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


def _run(queries: Mapping[str, ScalarQuery], found: Gathered) -> Steps[dict[str, LookupResult]]:
    is_locking = found.meters and not found.request.explain
    locks = [memory.lock(found.caller, found.meters)] if is_locking else []
    *_, [(row,)] = yield [GENERIC_PLAN, *locks, combined(queries, found.caller)]
    return results(queries, decode_row(row)[1])


def combined(queries: Mapping[str, ScalarQuery], caller: TallyOwner) -> Statement:
    """All queries as one statement that returns one JSON text (`decode_row`): a column for each
    took longer to read than to look up. The tallies of all meters are one scalar, the last.
    """
    statements = [(one.sql, one.values) for one in queries.values() if one.meter is None]
    if meters := [one.meter for one in queries.values() if one.meter]:
        statements.append(memory.tallies(caller, meters))
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
    no.args = %b::jsonb OR no.asked = %b::jsonb,
    CASE WHEN length(no.args::text) <= {SPELLED_CHARACTERS_MAX} THEN no.args END,
    CASE WHEN length(no.asked::text) <= {SPELLED_CHARACTERS_MAX} THEN no.asked END) ORDER BY no.id)
FROM (
    SELECT p.id, p.decided_at, p.asked_at, p.targets, p.calls -> 0 -> 'args' AS args,
        p.calls -> 0 -> 'more' -> 'asked' -> 'args' AS asked
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
    return ScalarQuery(REJECTED, [said, said, gathered.request.actor.workspace_id, run], read)


# What was called before in this run, and what of it was read that strangers wrote.

CALLS_MAX = 1_000
"""Of a run's calls so many, the newest, are looked through."""
MORE_CALLS = f"This run has made more than {CALLS_MAX:,} calls; what came first is not looked at"
RESULTS_MAX = 20
RESULT_CHARACTERS_MAX = 60_000
_CALLS = """
FROM (SELECT b.tool, b.state, b.key, b.result FROM ledger_action b WHERE b.run_id = %b
    ORDER BY b.n DESC, b.first_place DESC LIMIT %b) a"""
_EARLIER = "a.key <> %b AND a.state NOT IN ('planned', 'approved') AND a.tool ~ %b"
CALLED = f"""
SELECT json_build_array(count(*) FILTER (WHERE {_EARLIER}), count(*)) {_CALLS}"""
READ = f"""
SELECT json_build_array(json_agg(DISTINCT a.tool) FILTER (WHERE {_EARLIER}), count(*))
{_CALLS}"""
RESULTS = f"""
SELECT json_build_array(({WRITTEN}), (SELECT json_agg(json_build_array(u.tool, u.result)) FROM (
    SELECT a.tool, CASE WHEN length(a.result::text) <= {RESULT_CHARACTERS_MAX} THEN a.result END
        AS result
    {_CALLS} WHERE {_EARLIER} LIMIT {RESULTS_MAX + 1}) u),
    (SELECT count(*) {_CALLS}))"""  # noqa: S608 - our own words


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
    """By value: whether a part of it stands in what strangers wrote, and not in the request."""
    value, run, policy = value_of(lookup, facts), gathered.context.run, gathered.policy
    cannot = LookupResult(UNKNOWN, f"Where {lookup.subject} comes from cannot be told")
    if value is UNKNOWN:
        return cannot
    if not policy.untrusted_globs or run is None:
        return LookupResult(value=False)

    def read(row: Sequence[Any]) -> LookupResult:
        written, results, calls = row
        seen = [result for tool, result in results or () if policy.is_untrusted(tool)]
        if not seen:
            is_told = calls <= CALLS_MAX and len(results or ()) <= RESULTS_MAX
            return LookupResult(value=False) if is_told else cannot
        key, today = gathered.request.actor.masking_key, gathered.context.now.date()
        text = "\n".join(str(one) for result in seen for one in leaves(result))
        answers = []
        for one in leaves(value):
            asked_for = stands_in(one, written or "", key, today)
            answers.append(False if asked_for else stands_in(one, text, key, today))
        if any(answers):
            words = f"{lookup.subject} stands in what strangers wrote, and was not asked for"
            return LookupResult(value=True, say=words)
        if None in answers or None in seen or len(results) > RESULTS_MAX or calls > CALLS_MAX:
            return cannot
        return LookupResult(value=False, say=f"{lookup.subject} comes from nothing that was read")

    earlier = [run.id, CALLS_MAX + 1, gathered.request.key, posix(policy.untrusted_globs)]
    return ScalarQuery(RESULTS, [run.id, *earlier, run.id, CALLS_MAX + 1], read)


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
