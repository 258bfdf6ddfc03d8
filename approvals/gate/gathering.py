"""What the conditions of a policy ask beyond the call: looked up before the call is judged.

The policy gives the lookups that this call needs (`approvals.policy.lookups`): mostly none, and
then no statement is sent. All of a call travel in one statement, a scalar subquery for each
(`lookup_queries`). They are read under the locks of the key and the run, so that what was found
still holds when the call proceeds.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from time import monotonic, perf_counter
from typing import Any

import msgspec

from approvals import tallies
from approvals.gate.begin_context import BeginContext, Gathered, ScalarQuery, as_approved
from approvals.gate.begin_request import BeginRequest
from approvals.gate.lookup_queries import OF_MEMORY, OF_TEXTS, QUERY_BUILDERS
from approvals.policy import Lookup, LookupResult, Policy, ToolCall, lookups
from approvals.policy.conditions import Cap
from approvals.tallies import Meter, TallyOwner
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
