"""What each function of a condition asks: one scalar of SQL and how its answer is read, or at once
the result.

Each goes by an index and reads a bounded number of rows. What cannot be known is UNKNOWN and never
False: the rule then counts as met where it asks or denies (approvals/policy/conditions.py).
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec

from amends.protocol.vocabulary import WITHOUT_EFFECT
from approvals import memory, named_lists, tallies
from approvals.gate import run_lookups
from approvals.gate.begin_context import Gathered, ScalarQuery
from approvals.gate.decision_table import NOTHING_BEGUN
from approvals.memory import ValueDigest
from approvals.policy import UNKNOWN, Lookup, LookupResult
from approvals.policy.conditions import IN_LIST, LOOKED_UP, window_seconds
from approvals.policy.document import posix
from approvals.policy.evaluation import class_of
from approvals.policy.named_lists import sought, stands
from approvals.tallies import AMOUNT_MAX, meter_of, number, texts_of, value_of

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
