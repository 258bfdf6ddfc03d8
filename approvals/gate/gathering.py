"""What the conditions of a policy ask about more than the call: looked up before it is judged.

The policy says which questions are open for this call (`approvals.policy.lookups`); for most
calls none is, and nothing is asked here. All that are open travel in one statement, a scalar for
each, and each is a look by an index with a bound. It is read under the locks of the key and the
run, so that what was found still holds when the call proceeds.

What cannot be told is answered as that, and never as no: the rule then counts as met where it asks
or denies (approvals/policy/conditions.py).
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
    Looker,
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

NOES_MAX = 200
"""Of a run's approvals so many, the newest, are looked through for a no."""
WORDS_MAX = 50
SPELLED_CHARACTERS_MAX = 4_000
_json = msgspec.json.Encoder()


def gather(request: BeginRequest, context: BeginContext, policy: Policy) -> Steps[Gathered]:
    """The findings for what the policy asks of the call that would run, by the keys of the
    questions.
    """
    request = as_approved(request, context)
    call = request.tool_call(context.labels)
    found = Gathered(request, context, policy, call)
    looks = looks_of(found, lookups(policy, call))
    if looks and request.explain:
        for key, look in looks.items():
            began = perf_counter()
            found.findings |= yield from _looked_up({key: look}, found)
            found.milliseconds[key] = (perf_counter() - began) * 1000
    elif looks:
        found.findings |= yield from _looked_up(looks, found)
    return found


def looks_of(found: Gathered, asked: Sequence[Lookup]) -> dict[str, ScalarQuery]:
    """What must be looked up for these questions; what needs no look is found at once."""
    looks: dict[str, ScalarQuery] = {}
    facts = found.call.facts()
    for question in asked:
        answer = LOOKS[question.function](question, found, facts)
        if isinstance(answer, ScalarQuery):
            looks[question.key] = answer
        else:
            found.findings[question.key] = answer
    return looks


def reads_texts(policy: Policy, call: ToolCall) -> bool:
    """Whether what the policy asks of a call takes reading what people or strangers wrote, which
    may be long: nobody else is served meanwhile where it is not done in a thread.
    """
    return any(one.function in OF_TEXTS for one in lookups(policy, call))


def is_of_memory(question: Lookup) -> bool:
    """Whether it is asked of what is remembered of calls and lists, whatever the run is and on
    whose behalf.
    """
    options = question.option("per", ""), question.option("by", "")
    return question.function in OF_MEMORY and "person" not in options


# Each look goes by keys to an index, whatever it is asked; planning them anew for every call took
# as long as all the rest of it.
GENERIC_PLAN: Statement = ("SET LOCAL plan_cache_mode = force_generic_plan", ())


def _looked_up(looks: Mapping[str, ScalarQuery], found: Gathered) -> Steps[dict[str, LookupResult]]:
    locks = [memory.lock(found.caller, found.meters)] if found.meters else []
    if found.request.explain:
        locks = []
    *_, [(said,)] = yield [GENERIC_PLAN, *locks, looking_up(looks, found.caller)]
    return findings(looks, answers(said)[1])


def looking_up(looks: Mapping[str, ScalarQuery], caller: TallyOwner) -> Statement:
    """All looks as one statement of one text, since a column for each took longer to read than to
    look up. Tallies are one scalar, however many meters ask.
    """
    statements = [(one.sql, one.values) for one in looks.values() if one.meter is None]
    if meters := [one.meter for one in looks.values() if one.meter]:
        statements.append(memory.tallies(caller, meters))
    scalars = ", ".join([f"({sql})" for sql, _ in statements])
    values = [value for _, values in statements for value in values]
    return f"SELECT json_build_array(clock_timestamp(), json_build_array({scalars}))::text", values


answers = msgspec.json.Decoder(tuple[datetime, list[Any]]).decode
"""The time and the scalars of the text that `looking_up` asks for."""


def findings(looks: Mapping[str, ScalarQuery], cells: Sequence[Any]) -> dict[str, LookupResult]:
    """What `answers` has of these looks, by their keys."""
    others = iter(cells)
    return {
        key: look.read(cells[-1] if look.meter else next(others)) for key, look in looks.items()
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


def _text(
    question: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    if gathered.context.run is None or gathered.disagrees(question.function):
        return LookupResult(UNKNOWN, NOT_ON_RECORD)
    sql = GOAL if question.function == "goal" else REQUEST

    def read(text: str | None) -> LookupResult:
        told = bool(text) and len(text or "") <= TEXT_CHARACTERS_MAX
        return LookupResult(text if told else UNKNOWN, "" if told else NOT_ON_RECORD)

    return ScalarQuery(sql, [gathered.context.run.id], read)


def _person(question: Lookup, gathered: Gathered, facts: Mapping[str, Any]) -> LookupResult:
    run = gathered.context.run
    person = run.on_behalf_of if run else None
    if person is None or gathered.disagrees("on_behalf_of"):
        return LookupResult(UNKNOWN, "On whose behalf the run acts is not on record")
    return LookupResult(person, "")


def _mentioned(
    question: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    value = value_of(question, facts)
    if value is UNKNOWN or gathered.context.run is None:
        return LookupResult(UNKNOWN, f"Whether {question.subject} was asked for cannot be told")

    def read(text: str | None) -> LookupResult:
        key, today = gathered.request.actor.masking_key, gathered.context.now.date()
        found = stands_in(value, text or "", key, today)
        if found is None:
            return LookupResult(UNKNOWN, f"Whether {question.subject} was asked for cannot be told")
        stands = "stands" if found else "does not stand"
        return LookupResult(found, f"{question.subject} {stands} in what the agent was asked for")

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
    ORDER BY p.id DESC LIMIT {NOES_MAX}) no"""  # noqa: S608 - our own words


def _as_one(value: Any) -> Any:
    """A value with its texts in the one form of all their spellings."""
    if isinstance(value, dict):
        return {name: _as_one(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_as_one(inner) for inner in value]
    return as_one(value) if isinstance(value, str) else value


def _rejected_before(question: Lookup, gathered: Gathered, facts: Mapping[str, Any]) -> ScalarQuery:
    args = gathered.request.data.get("args")
    said = _json.encode(args).decode() if args else None
    targets = set(_as_one(targets_of([{"targets": list(gathered.request.targets)}])))
    own = _as_one(args) or None

    def read(noes: Sequence[Sequence[Any]] | None) -> LookupResult:
        found = [
            when
            for when, on, is_same, *calls in noes or ()
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
    question: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    glob = value_of(question, facts)
    if not isinstance(glob, str) or mistake(glob):
        return LookupResult(UNKNOWN, f"{question.source} names no tool")
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
    question: Lookup, gathered: Gathered, facts: Mapping[str, Any]
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
    question: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    """By value: whether a part of it stands in what strangers wrote, and not in the request."""
    value, run, policy = value_of(question, facts), gathered.context.run, gathered.policy
    cannot = LookupResult(UNKNOWN, f"Where {question.subject} comes from cannot be told")
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
            words = f"{question.subject} stands in what strangers wrote, and was not asked for"
            return LookupResult(value=True, say=words)
        if None in answers or None in seen or len(results) > RESULTS_MAX or calls > CALLS_MAX:
            return cannot
        return LookupResult(value=False, say=f"{question.subject} comes from nothing that was read")

    earlier = [run.id, CALLS_MAX + 1, gathered.request.key, posix(policy.untrusted_globs)]
    return ScalarQuery(RESULTS, [run.id, *earlier, run.id, CALLS_MAX + 1], read)


OF_TEXTS = frozenset({"request", "goal", "mentioned", "tainted"})
OF_MEMORY = frozenset({"count", "sum", "known", "lookalike", "unusual", IN_LIST})
LOOKS: Mapping[str, Looker] = {
    "request": _text,
    "goal": _text,
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
