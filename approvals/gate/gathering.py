"""What the conditions of a policy ask about more than the call: looked up before it is judged.

The policy says which questions are open for this call (`approvals.policy.questions`); for most
calls none is, and nothing is asked here. All that are open travel in one statement, a scalar for
each, and each is a look by an index with a bound. It is read under the locks of the key and the
run, so that what was found still holds when the call proceeds.

What cannot be told is answered as that, and never as no: the rule then counts as met where it asks
or denies (approvals/policy/conditions.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from approvals.card_context import targets_of
from approvals.gate.begin_context import BeginContext
from approvals.gate.begin_request import BeginRequest
from approvals.policy import UNKNOWN, CannotEvaluate, Finding, Policy, Question, questions
from approvals.policy.spelling import TEXT_CHARACTERS_MAX, stands_in
from ledger import desk_events, drivers

NOES_MAX = 200
"""Of a run's approvals so many, the newest, are looked through for a no."""
WORDS_MAX = 50


@dataclass(frozen=True, slots=True)
class Look:
    """One scalar of the statement, and how its answer is read."""

    sql: str
    values: Sequence[Any]
    read: Callable[[Any], Finding]


def gather(request: BeginRequest, context: BeginContext, policy: Policy) -> Mapping[str, Finding]:
    """The answers to what the policy asks of this call, by the keys of the questions."""
    labels = context.run.labels if context.run else {}
    open_ones = questions(policy, request.tool_call(labels))
    if not open_ones:
        return {}
    found: dict[str, Finding] = {}
    looks: dict[str, Look] = {}
    facts = request.tool_call(labels).facts()
    for question in open_ones:
        answer = LOOKS[question.function](question, request, context, facts)
        if isinstance(answer, Look):
            looks[question.key] = answer
        else:
            found[question.key] = answer
    return found | _looked_up(looks)


def _looked_up(looks: Mapping[str, Look]) -> dict[str, Finding]:
    if not looks:
        return {}
    sql = f"SELECT {', '.join(f'({look.sql})' for look in looks.values())}"
    values = [value for look in looks.values() for value in look.values]
    [[row]] = drivers.execute(desk_events.plain_connection(), [(sql, values)])
    return {key: look.read(cell) for (key, look), cell in zip(looks.items(), row, strict=True)}


Looker = Callable[[Question, BeginRequest, BeginContext, Mapping[str, Any]], Look | Finding]


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


def _text(
    question: Question, request: BeginRequest, context: BeginContext, facts: Mapping[str, Any]
) -> Look | Finding:
    if context.run is None:
        return Finding(UNKNOWN, NOT_ON_RECORD)
    sql = GOAL if question.function == "goal" else REQUEST

    def read(text: str | None) -> Finding:
        told = bool(text) and len(text or "") <= TEXT_CHARACTERS_MAX
        return Finding(text if told else UNKNOWN, "" if told else NOT_ON_RECORD)

    return Look(sql, [context.run.id], read)


def _person(
    question: Question, request: BeginRequest, context: BeginContext, facts: Mapping[str, Any]
) -> Finding:
    person = context.run.on_behalf_of if context.run else None
    if person is None:
        return Finding(UNKNOWN, "On whose behalf the run acts is not on record")
    return Finding(person, "")


def _mentioned(
    question: Question, request: BeginRequest, context: BeginContext, facts: Mapping[str, Any]
) -> Look | Finding:
    value = value_of(question, facts)
    if value is UNKNOWN or context.run is None:
        return Finding(UNKNOWN, f"Whether {question.subject} was asked for cannot be told")

    def read(text: str | None) -> Finding:
        found = stands_in(value, text or "", request.actor.masking_key)
        if found is None:
            return Finding(UNKNOWN, f"Whether {question.subject} was asked for cannot be told")
        stands = "stands" if found else "does not stand"
        return Finding(found, f"{question.subject} {stands} in what the agent was asked for")

    return Look(WRITTEN, [context.run.id], read)


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
WHERE no.targets && %b::varchar[] OR no.calls -> 0 -> 'args' = %b::jsonb"""  # noqa: S608 - our own
_json = msgspec.json.Encoder()


def _rejected_before(
    question: Question, request: BeginRequest, context: BeginContext, facts: Mapping[str, Any]
) -> Look:
    args = request.data.get("args")
    said = _json.encode(args).decode() if args else None
    targets = targets_of([{"targets": list(request.targets)}])

    def read(when: str | None) -> Finding:
        words = (
            f"People said no in this run at {when[:16]} UTC, to a call on the same target or with"
            " the same arguments" if when else ""
        )  # fmt: skip
        return Finding(when is not None, words)

    run = request.planned.run
    return Look(REJECTED, [request.actor.workspace_id, run, targets, said], read)


LOOKS: Mapping[str, Looker] = {
    "request": _text,
    "goal": _text,
    "on_behalf_of": _person,
    "mentioned": _mentioned,
    "rejected_before": _rejected_before,
}
