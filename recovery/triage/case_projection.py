"""The case's row: what the queue shows, as a pure function of facts and a sketched plan."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from amends.protocol.vocabulary import RISKS
from connectors.contract import Money
from connectors.models import Connection
from ledger import finding
from ledger.models import (
    Action,
    ActionState,
    Compensated,
    Reversibility,
    Run,
    RunState,
    weakest,
)
from recovery.models import Case, CaseState, ReportSource, Suggestion
from recovery.planning import previews
from recovery.planning.drafting import Drafted, draft_steps
from recovery.run_facts.runs import RunFacts
from recovery.run_facts.sentences import listed, many, shortened, target_words
from recovery.triage.case_reasons import Reason, is_for_review, is_without_effects
from recovery.triage.causes import Fingerprint, fingerprint_of
from recovery.triage.detectors import KINDS, changing
from recovery.triage.headlines import at_stake, blamed_action, brief, headline, in_full
from workspaces.erasure_registry import ERASED
from workspaces.locks import ROW_LOCK

# Suggestion: what to do next with a case, and why in one sentence.


def suggest(facts: RunFacts) -> tuple[Suggestion, str]:
    """The next step and its reason. Pure: the same facts, the same advice."""
    lost = [step for step in facts.troubled if step.is_lost]
    unknown = facts.unknown()
    if unknown:
        tools = listed(list(dict.fromkeys(action.tool_words for action in unknown)))
        return Suggestion.SETTLE, f"First find out whether {tools} happened: nobody knows yet."
    if lost:
        return Suggestion.SETTLE, f"Step {lost[0].position} was sent and its outcome is unknown."
    forward = _forward(facts)
    if forward:
        return Suggestion.RESUME, forward
    standing = facts.standing()
    if standing:
        effects = many(facts.standing_count, "effect")
        verb = "stands" if facts.standing_count == 1 else "stand"
        return Suggestion.COMPENSATE, f"{effects} of this run {verb}, and {_why(facts)}."
    return _without_effects(facts)


def _without_effects(facts: RunFacts) -> tuple[Suggestion, str]:
    lasting = facts.irreversible()
    if lasting:
        tools = listed(list(dict.fromkeys(one.action.tool_words for one in lasting)))
        return Suggestion.CLOSE, f"{tools} cannot be undone: say who looks after what is left."
    if any(action.compensated == Compensated.CORRECTED for action in facts.actions):
        return Suggestion.CLOSE, "What could not be undone was corrected, and nothing else stands."
    if facts.run.state in {RunState.FAILED, RunState.CANCELLED} or facts.is_silent:
        undone = any(action.compensated != Compensated.NONE for action in facts.actions)
        undone = undone or bool(facts.whole and facts.whole.undone)
        untold = [
            one.tool_words
            for one in facts.actions
            if facts.is_untold(one)
            or (not undone and one.state == ActionState.SUCCEEDED and changing(facts, one))
        ]
        if untold:
            tools = listed(list(dict.fromkeys(untold)))
            return (
                Suggestion.CLOSE,
                f"{tools} happened, and nobody told what it changed: look there.",
            )
        if undone or facts.run.forgotten_at:
            put_right, gone = "Everything that stood was put right", "What was said in it is erased"
            return Suggestion.CLOSE, _nothing_stands(facts, put_right if undone else gone)
        if not (facts.whole and facts.whole.changing):
            return Suggestion.RESUME, "Nothing has taken effect, so the run can be taken up again."
    return Suggestion.CLOSE, _nothing_stands(facts, "No effect stands and no outcome is unknown")


def _nothing_stands(facts: RunFacts, words: str) -> str:
    """What somebody reported may be true all the same, and only a person can tell; of what an
    affected person contests, one has told.
    """
    reports = [one for one in facts.reports if one.text != ERASED]  # of which nobody waits
    if not reports:
        return f"{words}."
    unsettled = [one for one in reports if one.upheld is None]
    if any(one.source == ReportSource.END_USER for one in unsettled):
        return f"{words}, but somebody contests it: answer that first."
    if unsettled:
        return f"{words}, but somebody reports it: look at that first."
    if any(one.upheld for one in reports):
        return f"{words}, but who contests it was right: put that right first."
    return f"{words}, and what was contested is answered."


def _forward(facts: RunFacts) -> str:
    """Why going forward is better than going back; empty if it is not."""
    if facts.run.state == RunState.COMPLETED or facts.run.forgotten_at:
        return ""
    pivot = next(
        (
            action
            for action in facts.actions
            if action.saga == "pivot"
            and action.state == ActionState.SUCCEEDED
            and action.compensated == Compensated.NONE
        ),
        None,
    )
    if pivot is None or facts.reports or facts.troubled:
        return ""
    rest = _after(facts, pivot)
    if not all(action.saga == "retriable" for action in rest):
        return ""
    if not rest and not (facts.checkpoints and facts.checkpoints[-1].pending):
        return ""
    return f"{pivot.tool_words} was the point of no return, and what remains can be tried again."


def _after(facts: RunFacts, pivot: Action) -> list[Action]:
    """What came after the pivot and has not succeeded."""
    place = list(facts.actions).index(pivot)
    return [one for one in facts.actions[place + 1 :] if one.state != ActionState.SUCCEEDED]


def _why(facts: RunFacts) -> str:
    if facts.troubled:
        return f"step {facts.troubled[0].position} of undoing it waits for a person"
    if any(action.verified == "failed" for action in facts.actions):
        return "what it did was found to be wrong"
    sentences = {
        RunState.FAILED: "the run failed before its end",
        RunState.CANCELLED: "the run was cancelled",
    }
    found = sentences.get(RunState(facts.run.state))
    if found:
        return found
    return "the run fell silent" if facts.is_silent else "they are in doubt"


REQUEST_CHARACTERS_MAX = 4_000
# A run that calls more tools than this is found by the first ones.
TOOLS_MAX = 200
SEARCHED_CHARACTERS_MAX = 16_000
AT_A_TIME = 1_000
ROUNDS_MAX = 20


@dataclass(frozen=True, slots=True)
class CaseProjection:
    """The columns of the row, what makes it like others, and the words it is found by.

    A failure that did nothing is like no others: causes are of what is in the queue.
    """

    columns: Mapping[str, Any]
    alike: Fingerprint | None
    searched: str
    drafted: Drafted
    learnt_at: datetime


LONG_LOOK_SECONDS = 0.25
"""Of this thread alone. Drafting a thousand steps takes longer."""

REST_FACTOR = 4
"""So many times as long as it took a run is left alone while its plan runs. Its row is locked while
it is looked at, and each step waits for that row and changes it: look would follow upon look.
"""

REST_SECONDS_MAX = 60.0
"""However long a look took: what its agent or a step tells meanwhile is on the case by then."""

_rests: dict[int, float] = {}


def resting() -> list[int]:
    """Runs under a plan at which this process does not look again yet."""
    now = time.monotonic()
    for run in [one for one, until in _rests.copy().items() if until <= now]:
        _rests.pop(run, None)
    under_way = Case.objects.filter(run__in=list(_rests), state=CaseState.RECOVERING)
    return list(under_way.values_list("run_id", flat=True)) if _rests else []


def case_file(
    facts: RunFacts,
    reasons: Sequence[Reason],
    connections: Mapping[tuple[int, str], Connection],
    case: Case | None,
) -> CaseProjection:
    began, worked = time.monotonic(), time.thread_time()
    drafted = draft_steps(facts, connections)
    if time.thread_time() - worked > LONG_LOOK_SECONDS:
        now = time.monotonic()
        _rests[facts.run.pk] = now + min(REST_FACTOR * (now - began), REST_SECONDS_MAX)
    blamed = blamed_action(facts, reasons)
    learnt_at = _learnt_at(facts, reasons, case)
    columns = (
        _failure(facts, reasons, blamed, _money(drafted))
        | {
            "customer": facts.run.customer,
            "customer_name": facts.run.customer_name,
            "request": shortened(facts.run.request, REQUEST_CHARACTERS_MAX),
        }
        | _advised(facts, drafted)
        | _urgency(facts, reasons, blamed, learnt_at)
    )
    alike = None if columns["without_effects"] else fingerprint_of(facts, reasons)
    return CaseProjection(columns, alike, _searched(facts, columns, blamed), drafted, learnt_at)


def _failure(
    facts: RunFacts, reasons: Sequence[Reason], blamed: Action | None, paid_back: Money | None
) -> dict[str, Any]:
    money = at_stake(facts, blamed) or paid_back
    return {
        "agent": facts.run.agent,
        "reasons": list(dict.fromkeys(reason.code for reason in reasons)),
        "evidence": [reason.as_json() for reason in reasons],
        "without_effects": is_without_effects(reasons),
        **_sentences(facts, reasons, money),
        "failed_action": blamed,
        "failed_tool": blamed.tool if blamed else "",
        "failed_target": _target(facts, blamed),
        "tools": sorted({tool.lower() for tool in _tools(facts)} - {""})[:TOOLS_MAX],
    }


def _tools(facts: RunFacts) -> Iterable[str]:
    return facts.whole.tools if facts.whole else (action.tool for action in facts.actions)


def told_to_the_end(facts: RunFacts, kept: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """The sentences of a case of which nothing needs a person any more, from the reasons that it
    kept: a doubt that is over is told with its end, and that undoing it needed somebody was never
    what went wrong.
    """
    known = [
        Reason(one["code"], one["words"], one["action"]) for one in kept if one["code"] in KINDS
    ]
    reasons = [reason for reason in known if not KINDS[reason.code].is_about_repair] or known
    return _sentences(facts, reasons, at_stake(facts, blamed_action(facts, reasons)))


def _sentences(facts: RunFacts, reasons: Sequence[Reason], money: Money | None) -> dict[str, str]:
    return {
        "headline": headline(facts, reasons, money),
        "headline_in_full": in_full(facts, reasons, money),
        "brief": brief(facts, reasons, money),
    }


def _target(facts: RunFacts, blamed: Action | None) -> str:
    if blamed is None:
        return ""
    effects = facts.effects.get(blamed.pk)
    if effects:
        return target_words(effects[0].target_type, effects[0].target_id)[:400]
    first = next((one for one in blamed.targets or [] if isinstance(one, dict)), {})
    return target_words(str(first.get("type", "")), str(first.get("id", "")))[:400]


def advice(facts: RunFacts, connections: Mapping[tuple[int, str], Connection]) -> dict[str, Any]:
    """The columns that say what to do next: all that a policy may change of a case by itself. What
    went wrong was judged by the policy of its time.
    """
    return _advised(facts, draft_steps(facts, connections))


def _advised(facts: RunFacts, drafted: Drafted) -> dict[str, Any]:
    suggestion, why = suggest(facts)
    if suggestion == Suggestion.COMPENSATE and not drafted.steps:
        if previews.untaught(drafted):
            why = "Nothing says yet how this is undone. If nothing can undo it, close the case and"
            why += " say who looks after what is left."
        else:
            no_way = f"{previews.nothing(drafted)}: say who looks after what is left."
            suggestion, why = Suggestion.CLOSE, no_way
    money = _money(drafted)
    text = {
        Suggestion.SETTLE: "Find out what happened first",
        Suggestion.RESUME: "Resume the run",
        Suggestion.COMPENSATE: previews.brief(drafted),
        Suggestion.CLOSE: previews.headline(Drafted(cannot=drafted.cannot, more=drafted.more))
        if facts.remaining_count
        else previews.UNDONE,
    }[suggestion]
    return {
        "suggestion": suggestion,
        "suggestion_reason": shortened(why, 400),
        "suggestion_text": text,
        "reversibility": _reversibility(facts, drafted),
        "needs_approval": previews.approval(drafted.judgement)[:200],
        "amount_minor": money.in_column if money else None,
        "currency": money.currency[:3].upper() if money else "",
        "unknown_count": facts.unknown_count,
        "standing_count": facts.remaining_count,
    }


def _money(drafted: Drafted) -> Money | None:
    """What undoing all of it would move; of a part of it nothing is said."""
    return None if drafted.more else previews.money(drafted.steps)


def _reversibility(facts: RunFacts, drafted: Drafted) -> Reversibility:
    """The weakest of all that stands, and of what was repaired here alone."""
    if facts.irreversible():
        return Reversibility.IRREVERSIBLE
    rest = facts.whole.claims if facts.whole and drafted.more else ()
    return weakest([drafted.reversibility, *rest])


UNSETTLED = frozenset({"outcome_unknown", "past_its_time", "step_needs_person"})
"""Reasons of which a headline says that somebody has to look: once somebody has, it says so."""


def is_being_undone(case: Case, columns: Mapping[str, Any]) -> bool:
    """Whether there is less of what its plan puts right, and nothing else: of a doubt that is over
    the case tells.
    """
    known = {one.get("key") for one in case.evidence if isinstance(one, dict)}
    is_fresh = any(one["key"] not in known for one in columns["evidence"])
    is_settled = UNSETTLED & {*case.reasons} - {*columns["reasons"]}
    is_worse = columns["risk_rank"] > case.risk_rank
    return case.state == CaseState.RECOVERING and not (is_fresh or is_settled or is_worse)


def _learnt_at(facts: RunFacts, reasons: Sequence[Reason], case: Case | None) -> datetime:
    """Since when the desk has known that the run needs somebody: since its case came to the queue,
    or came back to it.
    """
    if case is None:
        return facts.now
    if case.state == CaseState.CLOSED:
        return max(facts.now, case.closed_at or facts.now)
    if case.without_effects and not is_without_effects(reasons):
        return facts.now
    return max(case.opened_at, case.reopened_at or case.opened_at)


def _urgency(
    facts: RunFacts, reasons: Sequence[Reason], blamed: Action | None, learnt_at: datetime
) -> dict[str, Any]:
    """Due is counted from the failure, and from when it was known if that was later: nothing is
    overdue before anybody could have looked at it. A window that had closed by then hurries nobody.
    """
    is_urgent = not is_without_effects(reasons)
    risk = _risk(facts, blamed) if is_urgent and not is_for_review(reasons) else RISKS[0]
    failed_at = _failed_at(facts, reasons, blamed)
    due = max(failed_at, learnt_at) + timedelta(seconds=facts.policy.due_seconds(risk))
    windows = [effect.undo_until for _, effect in facts.standing() if effect.undo_until]
    return {
        "risk": risk,
        "risk_rank": RISKS.index(risk),
        "failed_at": failed_at,
        "due_at": min([due, *(one for one in windows if one > learnt_at)]) if is_urgent else None,
        "undo_until": min(windows, default=None) if is_urgent else None,
    }


def _risk(facts: RunFacts, blamed: Action | None) -> str:
    """The highest of what stands or is unknown; else of the action that failed."""
    concerned = {action.pk: action for action, _ in facts.standing()}
    concerned |= {action.pk: action for action in facts.unknown()}
    found = [facts.judgement(action).risk for action in concerned.values()]
    if not found and blamed is not None:
        found = [facts.judgement(blamed).risk]
    return max(found, key=RISKS.index, default="low")


def _failed_at(facts: RunFacts, reasons: Sequence[Reason], blamed: Action | None) -> datetime:
    run = facts.run
    if facts.is_silent and run.lease_until:
        return run.lease_until
    moments = (run.ended_at, blamed and blamed.finished_at, blamed and blamed.started_at)
    return next((one for one in (*moments, run.last_event_at, run.started_at) if one), facts.now)


def _searched(facts: RunFacts, columns: Mapping[str, Any], blamed: Action | None) -> str:
    """Everything that free text looks through, in one string."""
    error = (blamed.error if blamed else None) or facts.run.error or {}
    # No more of an error than every viewer is shown, or the search would tell the rest.
    shown = error if isinstance(error, dict) else {}
    errors = [str(shown[name]) for name in ("type", "message") if shown.get(name)]
    targets = [effect.target_id for _, effect in facts.standing()[:50]]
    words = [
        *(str(columns[name]) for name in ("headline", "failed_tool", "failed_target", "customer")),
        facts.run.run,
        facts.run.customer_name,
        *errors,
        *targets,
        facts.run.request,
    ]
    # Each in a line of its own: numbers that stand side by side are no card.
    return "\n".join(words).replace("\0", " ")[:SEARCHED_CHARACTERS_MAX]


# What a case carries of its run. A version that did not know of it opens cases beside us during an
# upgrade, so whoever looks for cases by it asks the run as long as one is left (search/keys.py).
FILL = f"""
WITH bare AS MATERIALIZED (
    SELECT id FROM recovery_case WHERE run_ref = '' ORDER BY id LIMIT %s
    {ROW_LOCK} SKIP LOCKED
)
UPDATE recovery_case c SET run_ref = r.run, model = r.model
FROM bare, ledger_run r WHERE c.id = bare.id AND r.id = c.run_id"""  # noqa: S608


def of_run(run: Run) -> dict[str, str]:
    """What a case carries of its run, so that it is found by it (OF_RUN)."""
    return {"run_ref": run.run, "model": run.model}


def carry_runs() -> int:
    """Put there what is lacking of runs, some cases at a time; of how many."""
    done = 0
    for _ in range(ROUNDS_MAX):
        with connection.cursor() as cursor:
            cursor.execute(FILL, [AT_A_TIME])
            done += cursor.rowcount
            if cursor.rowcount < AT_A_TIME:
                break
    return done


# Words by which cases are found, as versions up to 28 November 2026 put them together, that kept no
# secrets apart: put together anew, some at a time. Who is not shown secrets finds none by them
# until then.
TARGETS_MAX = 50
WALKED = "SELECT id FROM recovery_case WHERE id > %s ORDER BY id LIMIT %s"
OLD = f"""
SELECT c.id, c.xmin::text || c.ctid::text,
    concat_ws(E'\\n', c.headline, c.failed_tool, c.failed_target, c.customer,
    r.run, r.customer_name, coalesce(a.error, r.error) ->> 'type',
    coalesce(a.error, r.error) ->> 'message',
    (SELECT string_agg(target_id, E'\\n') FROM (
        SELECT e.target_id FROM ledger_action x JOIN ledger_effect e ON e.action_id = x.id
        WHERE x.run_id = r.id LIMIT {TARGETS_MAX}) touched),
    r.request)
FROM recovery_case c JOIN ledger_run r ON r.id = c.run_id
LEFT JOIN ledger_action a ON a.id = c.failed_action_id
WHERE c.id = ANY(%s) AND c.search IS NOT NULL AND NOT c.search @@ $q$'{finding.MARK}'$q$::tsquery"""  # noqa: S608 - our own words
# Only what is still as it was read: an erasure may have come between.
PUT = f"""
UPDATE recovery_case SET search = {finding.WORDS}
WHERE id = %s AND xmin::text || ctid::text = %s"""  # noqa: S608


class WordsWalk:
    """Through all cases, and again. How far it came is this process's own."""

    def __init__(self) -> None:
        self._after = 0

    def goes_on(self) -> int:
        """Look at some; at more as long as there is something to do. Returns how many it put
        together anew.
        """
        done = 0
        for _ in range(ROUNDS_MAX):
            found = self._next()
            done += found
            if not found:
                break
        return done

    def _next(self) -> int:
        with connection.cursor() as cursor:
            cursor.execute(WALKED, [self._after, AT_A_TIME])
            walked = [pk for (pk,) in cursor.fetchall()]
            self._after = walked[-1] if len(walked) == AT_A_TIME else 0
            cursor.execute(OLD, [walked])
            done = 0
            for pk, row, text in cursor.fetchall():
                cursor.execute(PUT, [*finding.told_and_secret(text), pk, row])
                done += cursor.rowcount
        return done


words_walk = WordsWalk()
