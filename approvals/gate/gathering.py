"""What the conditions of a policy ask about more than the call: looked up before it is judged.

The policy says which questions are open for this call (`approvals.policy.questions`); for most
calls none is, and nothing is asked here. All that are open travel in one statement, a scalar for
each, and each is a look by an index with a bound. It is read under the locks of the key and the
run, so that what was found still holds when the call proceeds.

What cannot be told is answered as that, and never as no: the rule then counts as met where it asks
or denies (approvals/policy/conditions.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from time import perf_counter
from typing import Any

import msgspec

from amends.protocol.masking import holds_bare, without_last4
from approvals import memory
from approvals.card_context import targets_of
from approvals.gate.begin_context import BeginContext, as_approved
from approvals.gate.begin_request import BeginRequest
from approvals.gate.decision_table import NOTHING_BEGUN
from approvals.memory import Caller, Meter, Standing, Value
from approvals.policy import UNKNOWN, CannotEvaluate, Finding, Policy, Question, questions
from approvals.policy.conditions import window_seconds
from approvals.policy.document import mistake, posix
from approvals.policy.spelling import TEXT_CHARACTERS_MAX, leaves, stands_in
from ledger.append.statements import Statement
from ledger.drivers import Steps
from workspaces import formatting

NOES_MAX = 200
"""Of a run's approvals so many, the newest, are looked through for a no."""
WORDS_MAX = 50


@dataclass(frozen=True, slots=True)
class Look:
    """One scalar of the statement, and how its answer is read."""

    sql: str
    values: Sequence[Any]
    read: Callable[[Any], Finding]


@dataclass(slots=True)
class Gathered:
    """What was found for one call, and what is to be remembered of it if it goes on."""

    request: BeginRequest
    context: BeginContext
    policy: Policy
    findings: dict[str, Finding] = field(default_factory=dict)
    meters: list[Meter] = field(default_factory=list)
    standings: list[tuple[Meter, Standing]] = field(default_factory=list)
    sighted: dict[tuple[str, str], Value] = field(default_factory=dict)
    milliseconds: dict[str, float] = field(default_factory=dict)
    """What each look took by itself, where it is only asked what would be."""

    @property
    def caller(self) -> Caller:
        actor = self.request.actor
        return Caller(actor.workspace_id, actor.agent_id or 0, self.request.key)

    @property
    def person(self) -> str:
        """On whose behalf the run acts; empty where nobody is named."""
        person = self.context.on_behalf_of
        return str(person.get("id") or "") if isinstance(person, dict) else ""

    def proceeding(self, run: str, action: str) -> list[Statement]:
        """What is written with the call that proceeds: what it holds, and the values it has."""
        sights = [
            memory.sight(self.caller, self.sighted, person=self.person, run=run, action=action)
        ]
        return [*self._reserved(run, action, held=True), *(sights if self.sighted else [])]

    def asking(self, run: str, action: str) -> list[Statement]:
        """What is written where people are asked: it holds as much from their yes on."""
        return self._reserved(run, action, held=False)

    def _reserved(self, run: str, action: str, *, held: bool) -> list[Statement]:
        return [
            memory.reserve(
                self.caller, meter, standing, self.context.now, run=run, action=action, held=held
            )
            for meter, standing in self.standings
        ]


def gather(request: BeginRequest, context: BeginContext, policy: Policy) -> Steps[Gathered]:
    """The findings for what the policy asks of the call that would run, by the keys of the
    questions.
    """
    request = as_approved(request, context)
    call = request.tool_call(context.labels)
    found = Gathered(request, context, policy)
    looks: dict[str, Look] = {}
    facts = call.facts()
    for question in questions(policy, call):
        answer = LOOKS[question.function](question, found, facts)
        if isinstance(answer, Look):
            looks[question.key] = answer
        else:
            found.findings[question.key] = answer
    if looks and request.explain:
        for key, look in looks.items():
            began = perf_counter()
            found.findings |= yield from _looked_up({key: look}, found)
            found.milliseconds[key] = (perf_counter() - began) * 1000
    elif looks:
        found.findings |= yield from _looked_up(looks, found)
    return found


def _looked_up(looks: Mapping[str, Look], found: Gathered) -> Steps[dict[str, Finding]]:
    sql = f"SELECT {', '.join(f'({look.sql})' for look in looks.values())}"
    values = [value for look in looks.values() for value in look.values]
    locks = [memory.lock(found.caller, found.meters)] if found.meters else []
    if found.request.explain:
        locks = []
    *_, [row] = yield [*locks, (sql, values)]
    return {key: look.read(cell) for (key, look), cell in zip(looks.items(), row, strict=True)}


Looker = Callable[[Question, Gathered, Mapping[str, Any]], Look | Finding]


# The request of the run, and what people wrote since.

REQUEST = f"SELECT left(r.request, {TEXT_CHARACTERS_MAX + 1}) FROM ledger_run r WHERE r.id = %b"  # noqa: S608
GOAL = f"SELECT left(r.goal, {TEXT_CHARACTERS_MAX + 1}) FROM ledger_run r WHERE r.id = %b"  # noqa: S608

# The request, and with it what people said with a yes, and what the affected person said.
WRITTEN = f"""
SELECT left(concat_ws(E'\\n', r.request,
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


def _text(question: Question, gathered: Gathered, facts: Mapping[str, Any]) -> Look | Finding:
    if gathered.context.run is None:
        return Finding(UNKNOWN, NOT_ON_RECORD)
    sql = GOAL if question.function == "goal" else REQUEST

    def read(text: str | None) -> Finding:
        told = bool(text) and len(text or "") <= TEXT_CHARACTERS_MAX
        return Finding(text if told else UNKNOWN, "" if told else NOT_ON_RECORD)

    return Look(sql, [gathered.context.run.id], read)


def _person(question: Question, gathered: Gathered, facts: Mapping[str, Any]) -> Finding:
    run = gathered.context.run
    person = run.on_behalf_of if run else None
    if person is None:
        return Finding(UNKNOWN, "On whose behalf the run acts is not on record")
    return Finding(person, "")


def _mentioned(question: Question, gathered: Gathered, facts: Mapping[str, Any]) -> Look | Finding:
    value = value_of(question, facts)
    if value is UNKNOWN or gathered.context.run is None:
        return Finding(UNKNOWN, f"Whether {question.subject} was asked for cannot be told")

    def read(text: str | None) -> Finding:
        found = stands_in(value, text or "", gathered.request.actor.masking_key)
        if found is None:
            return Finding(UNKNOWN, f"Whether {question.subject} was asked for cannot be told")
        stands = "stands" if found else "does not stand"
        return Finding(found, f"{question.subject} {stands} in what the agent was asked for")

    return Look(WRITTEN, [gathered.context.run.id], read)


def value_of(question: Question, facts: Mapping[str, Any]) -> Any:
    """The value that is asked about; UNKNOWN where the call has none."""
    if question.argument is None:
        return UNKNOWN
    try:
        return question.argument.evaluate(facts)
    except CannotEvaluate:
        return UNKNOWN


# After a no: whether people rejected or took back, in this run, a call on one of the same targets
# or with the same arguments, whichever tool it was.

REJECTED = f"""
SELECT max(coalesce(no.decided_at, no.asked_at))::text FROM (
    SELECT decided_at, asked_at, targets, calls FROM approvals_approval p
    WHERE p.workspace_id = %b AND p.run_ref = %b AND p.run_ref <> ''
        AND p.subject_kind = 'action' AND (p.state = 'rejected'
            OR (p.state = 'withdrawn' AND p.closed_by_id IS NOT NULL))
    ORDER BY p.id DESC LIMIT {NOES_MAX}) no
WHERE no.targets && %b::varchar[] OR no.calls -> 0 -> 'args' = %b::jsonb
    OR no.calls -> 0 -> 'more' -> 'asked' -> 'args' = %b::jsonb"""  # noqa: S608 - our own
_json = msgspec.json.Encoder()


def _rejected_before(question: Question, gathered: Gathered, facts: Mapping[str, Any]) -> Look:
    args = gathered.request.data.get("args")
    said = _json.encode(args).decode() if args else None
    targets = targets_of([{"targets": list(gathered.request.targets)}])

    def read(when: str | None) -> Finding:
        words = (
            f"People said no in this run at {when[:16]} UTC, to a call on the same target or with"
            " the same arguments" if when else ""
        )  # fmt: skip
        return Finding(when is not None, words)

    run = gathered.request.planned.run
    return Look(REJECTED, [gathered.request.actor.workspace_id, run, targets, said, said], read)


# What was called before in this run, and what of it was read that strangers wrote.

CALLS_MAX = 1_000
"""Of a run's calls so many, the newest, are looked through."""
RESULTS_MAX = 20
RESULT_CHARACTERS_MAX = 60_000
_EARLIER = f"""
FROM (SELECT b.tool, b.state, b.key, b.result FROM ledger_action b WHERE b.run_id = %b
    ORDER BY b.n DESC, b.first_place DESC LIMIT {CALLS_MAX}) a
WHERE a.key <> %b AND a.state NOT IN ('planned', 'approved') AND a.tool ~ %b"""  # noqa: S608 - ours
CALLED = f"SELECT count(*) {_EARLIER}"
READ = f"SELECT json_agg(DISTINCT a.tool) {_EARLIER}"
RESULTS = f"""
SELECT json_build_array(({WRITTEN}), (SELECT json_agg(json_build_array(u.tool, u.result)) FROM (
    SELECT a.tool, CASE WHEN length(a.result::text) <= {RESULT_CHARACTERS_MAX} THEN a.result END
        AS result
    {_EARLIER} LIMIT {RESULTS_MAX + 1}) u))"""  # noqa: S608 - our own words


def _regex(globs: Sequence[str]) -> str:
    return f"^({'|'.join(map(posix, globs))})$"


def _called(question: Question, gathered: Gathered, facts: Mapping[str, Any]) -> Look | Finding:
    glob = value_of(question, facts)
    if not isinstance(glob, str) or mistake(glob):
        return Finding(UNKNOWN, f"{question.source} names no tool")
    if gathered.context.run is None:
        return Finding(0, f"No call of {glob} came before in this run")

    def read(times: int) -> Finding:
        came = f"{times} call{'s' * (times != 1)} of {glob}" if times else f"No call of {glob}"
        return Finding(times, f"{came} came before in this run")

    return Look(CALLED, [gathered.context.run.id, gathered.request.key, _regex([glob])], read)


def _read_untrusted(
    question: Question, gathered: Gathered, facts: Mapping[str, Any]
) -> Look | Finding:
    policy, run = gathered.policy, gathered.context.run
    if not policy.untrusted_globs or run is None:
        return Finding(value=False, words="")

    def read(tools: Sequence[str] | None) -> Finding:
        found = sorted(filter(policy.is_untrusted, tools or ()))
        names = ", ".join(map(formatting.named, found[:3]))
        return Finding(
            bool(found), f"This run has read what strangers wrote, by {names}" * bool(found)
        )

    return Look(READ, [run.id, gathered.request.key, _regex(policy.untrusted_globs)], read)


def _tainted(question: Question, gathered: Gathered, facts: Mapping[str, Any]) -> Look | Finding:
    """By value: whether a part of it stands in what strangers wrote, and not in the request."""
    value, run, policy = value_of(question, facts), gathered.context.run, gathered.policy
    cannot = Finding(UNKNOWN, f"Where {question.subject} comes from cannot be told")
    if value is UNKNOWN:
        return cannot
    if not policy.untrusted_globs or run is None:
        return Finding(value=False, words="")

    def read(row: Sequence[Any]) -> Finding:
        written, results = row
        seen = [result for tool, result in results or () if policy.is_untrusted(tool)]
        if not seen:
            return Finding(value=False, words="")
        key = gathered.request.actor.masking_key
        text = "\n".join(str(one) for result in seen for one in leaves(result))
        answers = []
        for one in leaves(value):
            asked_for = stands_in(one, written or "", key)
            answers.append(False if asked_for else stands_in(one, text, key))
        if any(answers):
            words = f"{question.subject} stands in what strangers wrote, and was not asked for"
            return Finding(value=True, words=words)
        if None in answers or None in seen or len(results) > RESULTS_MAX:
            return cannot
        return Finding(value=False, words=f"{question.subject} comes from nothing that was read")

    values = [run.id, run.id, gathered.request.key, _regex(policy.untrusted_globs)]
    return Look(RESULTS, values, read)


# Sums and counts, with this call, over those that ran or are granted.

AMOUNT_MAX = Decimal(10) ** 18
SUBJECTS_MAX = 20


def _counted(question: Question, gathered: Gathered, facts: Mapping[str, Any]) -> Look | Finding:
    meter = _meter(question, gathered, facts)
    if meter is None:
        return Finding(UNKNOWN, f"What {question.source} comes to cannot be told")
    gathered.meters.append(meter)
    now, known = gathered.context.now, gathered.context.action
    # One that has begun is answered and not made again: it stands among the others, or is too old.
    is_begun = known is not None and known.state not in NOTHING_BEGUN
    adds = Decimal(0) if is_begun else meter.amount

    def read(rows: Sequence[Any] | None) -> Finding:
        found = memory.standings(meter, rows, now, is_begun=is_begun)
        gathered.standings += [(meter, one) for one in found]
        total = max((one.others for one in found), default=Decimal(0)) + adds
        if not all(one.is_complete for one in found):
            return Finding(UNKNOWN, f"More calls are open than {question.source} looks at")
        since = min((one.since for one in found if one.since), default=now)
        young = since > now - timedelta(seconds=meter.window_seconds)
        counted = f", counted since {since:%Y-%m-%d %H:%M} UTC" if young else ""
        value = int(total) if total == int(total) else float(total)
        return Finding(value, f"{question.source} comes to {value} with this call{counted}")

    sql, values = memory.tallies(gathered.caller, meter)
    return Look(sql, values, read)


def _meter(question: Question, gathered: Gathered, facts: Mapping[str, Any]) -> Meter | None:
    """What this call adds, and for whom; None where it cannot be told, or is less than nothing."""
    amount = Decimal(1) if question.function == "count" else _number(value_of(question, facts))
    subjects = _subjects(question.option("per", "workspace"), gathered, facts)
    if amount is None or not subjects or len(subjects) > SUBJECTS_MAX:
        return None
    return Meter(
        meter=memory.digest_of(question.key),
        subjects=[memory.digest_of(one) for one in subjects],
        amount=amount,
        window_seconds=window_seconds(question.option("over")),
    )


def _number(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = Decimal(str(value))
    return number if number.is_finite() and 0 <= number < AMOUNT_MAX else None


def _subjects(per: str, gathered: Gathered, facts: Mapping[str, Any]) -> list[str]:
    """Whom or what is counted for; none where it is not known."""
    request = gathered.request
    own = {
        "workspace": ["all"],
        "agent": [str(request.actor.agent_id)],
        "tool": [request.tool],
        "run": [request.planned.run],
        "person": [gathered.person] if gathered.person else [],
        "target": sorted({f"{one['type']} {one['id']}" for one in request.targets}),
    }
    if per in own:
        return own[per]
    value: Any = facts
    for name in per.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    texts = _texts(value)
    return sorted(texts) if texts else []


# Novelty: whether a value was used before, and whether it looks like one that was.

LEAVES_MAX = 20


def _texts(value: Any) -> set[str] | None:
    """The values as they are compared; None where one of them cannot be."""
    if isinstance(value, list):
        parts = [_texts(one) for one in value]
        known = [one for one in parts if one is not None]
        return set().union(*known) if len(known) == len(parts) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {str(value)}
    if not isinstance(value, str) or not value.strip() or holds_bare(value):
        return None
    return {without_last4(value.encode()).decode()}


def _known(question: Question, gathered: Gathered, facts: Mapping[str, Any]) -> Look | Finding:
    request = gathered.request
    is_target = question.subject in {"target", "targets"}
    targets = sorted({(one["type"], one["id"]) for one in request.targets})
    named = [" ".join(one) for one in targets]
    texts = named if is_target else sorted(_texts(value_of(question, facts)) or ())
    by = question.option("by", "workspace")
    if not texts or len(texts) > LEAVES_MAX or (by == "person" and not gathered.person):
        return Finding(UNKNOWN, f"Whether {question.subject} is known cannot be told")
    field_ = memory.digest_of("target" if is_target else question.subject)
    values = [Value.of(one) for one in texts]
    gathered.sighted |= {(field_, one.value): one for one in values}
    agent = request.actor.agent_id if by == "agent" else None
    person = gathered.person if by == "person" else None
    whose = memory.Whose(request.actor.workspace_id, field_, agent, person)
    sql, parameters = (
        memory.seen_targets(whose, targets, values)
        if is_target
        else memory.seen_values(whose, values)
    )
    return Look(sql, parameters, partial(_seen, question, gathered.context.now))


def _seen(question: Question, now: datetime, rows: Sequence[Any] | None) -> Finding:
    seen = [msgspec.convert(one, memory.Seen) for one in rows or ()]
    if question.function == "lookalike":
        alike = any(one.is_alike and not one.is_known for one in seen)
        looks = "looks like one that is known, and is another" if alike else "looks like no other"
        return Finding(alike, f"{question.subject} {looks}")
    least = window_seconds(question.option("for")) if question.option("for") else 0
    known = all(one.is_known and now.timestamp() - (one.since or 0) >= least for one in seen)
    if any(one.overturned for one in seen):
        return Finding(known, f"A call with {question.subject} was undone, or failed its check")
    new = [one for one in seen if not one.is_known]
    if new:
        return Finding(known, f"{question.subject} is new: no call with it was done before")
    youngest = max(seen, key=lambda one: one.since or 0)
    since = datetime.fromtimestamp(youngest.since or 0, UTC)
    times = f"{youngest.times} call{'s' * (youngest.times != 1)}"
    return Finding(known, f"{question.subject} is known since {since:%Y-%m-%d %H:%M} UTC, {times}")


LOOKS: Mapping[str, Looker] = {
    "request": _text,
    "goal": _text,
    "on_behalf_of": _person,
    "mentioned": _mentioned,
    "rejected_before": _rejected_before,
    "read_untrusted": _read_untrusted,
    "tainted": _tainted,
    "called": _called,
    "count": _counted,
    "sum": _counted,
    "known": _known,
    "lookalike": _known,
}
