"""The protocol: what a compensation step goes through from its claim to its end.

claim · check · intend · act · settle · verify, with a commit after each that writes, so that a kill
between any two leaves a row which says what may have happened:

* A **claim** is a lease by the database's clock and a fencing token that rises with every claim.
  What a worker paused for longer than its lease writes finds another fence, and is refused.
* The **check** reads the target under the claim, and never before (`preconditions`).
* An **intent** commits before the first byte leaves. In its transaction everything approved is
  held once more against what would be sent (`approved_calls`), and the lease outlasts the call.
* The **act** is the call, outside any transaction (`outbound_calls`).
* **Settling** writes down what became of the call. The answer is kept on the attempt whatever has
  happened to the step meanwhile, for it is evidence; the step moves only under the fence under
  which the call was sent.
* **Verifying** is a separate read, held against the post-condition that people approved: only
  `verified` counts as restored. Where nothing can be read, the step ends `reported`, by a receipt.

Every function takes steps of one workspace, mostly one, in one statement. Who takes them through,
and how many side by side, is `step_batch`; where this cannot go on, `failure_paths` does.
"""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from amends.protocol.vocabulary import EventType
from connectors import calls
from connectors.contract import LIMIT_SECONDS_MAX, Answer, Observation, Operation, Refused
from ledger import desk_events
from ledger.append.statements import Statement
from ledger.desk_events import EventDraft
from ledger.models import Compensated, Reversibility
from ledger.parsed_events import ParsedEvent
from recovery.engine import approved_calls, faults, preconditions, queries, steps
from recovery.engine.approved_calls import Mismatch
from recovery.engine.queries import (
    AT_REST,
    ATTEMPTS_SQL,
    CLAIM_SQL,
    KEEP_SQL,
    LEASE_OUTLASTS,
    PLAN_RUNS,
    Fragment,
    IntentContext,
    ask,
    ask_all,
    copied,
    in_seconds,
)
from recovery.models import Step, StepAttempt, StepState
from recovery.models.plans import WAITS_FOR_TURN
from workspaces.clock import boot_seconds
from workspaces.moves import CannotMove
from workspaces.replica import DATABASE_AWAY

# Claim.

CLAIMS_MAX = 5
"""A step that takes its worker down with it must not take all of them."""

MARGIN_SECONDS = 5.0
"""What a claim lasts beyond one read and one call at their limits."""


@dataclass(frozen=True)
class ClaimedStep:
    """A step in our hands, until `ends_at` by `boot_seconds`, which is not after the lease."""

    step: Step
    ends_at: float


def lease_seconds(step: Step) -> float:
    """Long enough for a read and the call; a connector that is gone gets the longest."""
    try:
        limit = calls.operation_of(step.connection, step.operation).limit_seconds
    except Refused:
        limit = LIMIT_SECONDS_MAX
    return 2 * (limit + calls.GRACE_SECONDS) + MARGIN_SECONDS


def claim_all(wanted: Sequence[Step]) -> list[ClaimedStep]:
    """Claim those of these steps of different plans that may be claimed now, in the caller's
    transaction; after its commit the caller calls `claims_committed`.

    Raises IntegrityError where a partial unique index refuses one: another plan has claimed a step
    on this target since we looked.
    """
    # Of two steps on one target only the first is claimed now.
    by_target = {(step.target_type, step.target_id): step for step in reversed(wanted)}
    first = list(by_target.values())[::-1]
    free = preconditions.claimable([step for step in first if step.state in WAITS_FOR_TURN])
    held, events = _claim(free) if free else ([], [])
    mine = {claimed.step.pk for claimed in held}
    second = [step for step in wanted if step not in first]
    for step in (*second, *(step for step in free if step.pk not in mine)):
        preconditions.wait_for_the_other(step)
    if events:
        desk_events.append_deferred(held[0].step.workspace, events)
    going = [claimed for claimed in held if not _claimed_too_often(claimed.step)]
    preconditions.release_trials(free, going=[claimed.step for claimed in going])
    return going


def _claim(free: Sequence[Step]) -> tuple[list[ClaimedStep], list[ParsedEvent]]:
    """The steps that were claimed, and the events of their claims."""
    mine = [copied(step) for step in free]
    leases = {step.pk: lease_seconds(step) for step in free}
    events: dict[int, list[ParsedEvent]] = {}
    ids, fences = [step.pk for step in free], [step.fence for step in free]
    values = [ids, fences, [step.state for step in free], [*leases.values()], ids]

    def draft() -> None:
        events.update(steps.parse_events(mine, lambda step: _claim_events(step, leases[step.pk])))

    begun = boot_seconds()  # read before the database does, so never too late
    (rows,) = ask_all([(CLAIM_SQL, values)], draft)
    taken = {pk for (pk,) in rows}
    held = [ClaimedStep(step, begun + leases[step.pk]) for step in mine if step.pk in taken]
    return held, [event for claimed in held for event in events[claimed.step.pk]]


def _claim_events(step: Step, seconds: float) -> list[EventDraft]:
    """Change the copy of the step as its claim changes the row; returns the events."""
    drafts = []
    if step.state != StepState.READY:
        drafts.append(steps.event_draft(step, StepState.READY, {"was": step.state, "note": ""}))
    step.was, step.state = StepState.READY, StepState.CLAIMED
    # A whole number as one: of others the canonical form takes long to write.
    lease = int(seconds) if seconds.is_integer() else seconds
    data = {"was": step.was, "note": "", "lease_seconds": lease}
    drafts.append(steps.event_draft(step, step.state, data))
    step.recorded = () if step.fence == 0 else None
    step.fence += 1
    step.claims += 1
    return drafts


def _claimed_too_often(step: Step) -> bool:
    if too_often := bool(step.claims > CLAIMS_MAX):
        steps.needs_human(step, f"Claimed {CLAIMS_MAX} times, and never came to an end.")
    return too_often


def claims_committed(held: Sequence[ClaimedStep]) -> None:
    for _ in held:
        faults.point("claimed")


# Intend.


@dataclass(frozen=True)
class Intent:
    """A committed intent: the try, and the step as it goes out."""

    step: Step
    attempt: StepAttempt


@dataclass(frozen=True)
class CheckedStep:
    """A step in hand that was looked at: what it needs to be sent."""

    held: ClaimedStep
    operation: Operation
    observation: Observation | None


@dataclass(frozen=True)
class IntentResult:
    """`intents` by step, and steps no longer ours or not for long enough; others were given up."""

    intents: dict[int, Intent]
    refused: set[int]


def intend_all(checked: Sequence[CheckedStep]) -> IntentResult:
    """Write the intents of steps of one workspace; nothing may be sent before the commit."""
    mine = {check.held.step.pk: copied(check.held.step) for check in checked}
    fresh = queries.read_anew(list(mine.values()))
    sound, lost = [], set()
    for check in checked:
        try:
            if _is_sound(mine[check.held.step.pk], check.operation, fresh):
                sound.append(check)
        except CannotMove:  # it was to be given up, and is in other hands already
            lost.add(check.held.step.pk)
    intents = _write_intents(sound, [mine[check.held.step.pk] for check in sound])
    for _ in intents:
        faults.point("intending")
    return IntentResult(intents, lost | ({check.held.step.pk for check in sound} - intents.keys()))


def _is_sound(step: Step, operation: Operation, fresh: Mapping[int, IntentContext]) -> bool:
    """Whether the step may be sent: it is as approved, nothing is paused, and the provider still
    remembers its key. If not, it is given up; raises CannotMove where it is no longer ours.
    """
    beside = fresh[step.pk]
    if beside.paused and (pause := preconditions.pause_of(step)):
        steps.release(step, preconditions.LOOK_AGAIN_SECONDS, note=preconditions.held_by(pause))
        return False
    mismatch = approved_calls.why_void(step, operation, beside)
    if mismatch is None:
        why = preconditions.earlier_try(step, operation)
        why = why or preconditions.further_try(step, operation)
        mismatch = Mismatch(why) if why else None
    if mismatch is not None:
        steps.needs_human(step, mismatch.why, evidence={"diff": mismatch.diff})
    return mismatch is None


def _write_intents(sound: Sequence[CheckedStep], copies: Sequence[Step]) -> dict[int, Intent]:
    """Move the steps to INTENDED and insert their attempts; the intents of those that were still
    ours, by step. The copies of the others must not be used.
    """
    needed = [check.operation.limit_seconds + calls.GRACE_SECONDS for check in sound]
    observed = {check.held.step.pk: check.observation for check in sound}
    for step in copies:
        step.tries += 1
        step.probes = 0  # reads that failed before are no probes of this try
    moved = steps.move_all(
        copies,
        StepState.INTENDED,
        where=[PLAN_RUNS, LEASE_OUTLASTS],
        per_step={"seconds": needed},
        for_all={"tries": Fragment("tries + 1"), "probes": Fragment("0"), "note": Fragment("''")},
        drafts=lambda step: [
            steps.event_draft(step, step.state, _intent_facts(step, observed[step.pk]))
        ],
    )
    if not moved:
        return {}
    tries = ask(
        ATTEMPTS_SQL,
        [list(one) for one in zip(*((s.pk, s.fence, s.key) for s, _ in moved), strict=True)],
    )
    steps.record(moved)
    mine = {step.pk: step for step, _ in moved}
    return {
        step_id: _intent(mine[step_id], attempt_id, number, moment)
        for step_id, attempt_id, number, moment in tries
    }


def _intent_facts(step: Step, observation: Observation | None) -> dict[str, Any]:
    return {
        "was": step.was,
        "note": "",
        "args": step.args,
        "sent_under": step.key,
        "before": [observation.state] if observation else None,
        "fingerprint": observation.fingerprint if observation else "",
    }


def _intent(step: Step, pk: int, number: int, moment: datetime) -> Intent:
    fence, key = step.fence, step.key
    attempt = StepAttempt(pk=pk, step=step, number=number, fence=fence, key=key, intended_at=moment)
    return Intent(step, attempt)


# Settle.

TRIES_MAX = 3
"""Of calls that certainly had no effect. A person may authorise one more."""

AGAIN_SECONDS = 0.5
"""Between two tries to write answers down while the database is away."""

RETRY_SECONDS = 2.0
"""Before the second try; each further one waits twice as long."""


@dataclass(frozen=True)
class AnsweredTry:
    """A try that was answered."""

    intent: Intent
    operation: Operation
    answer: Answer


def settle_until(answered: Sequence[AnsweredTry], *, until: float) -> list[Step]:
    """Settle, and while the database is away try again until `until` (by `boot_seconds`), the end
    of the leases: an answer is worth more than a probe. If a commit whose answer was lost had come
    through, the next try moves nothing.
    """
    while True:
        try:
            with transaction.atomic():
                return settle_all(answered)
        except DATABASE_AWAY:
            connection.close()
            if boot_seconds() > until:
                raise
            time.sleep(AGAIN_SECONDS)


def settle_all(answered: Sequence[AnsweredTry]) -> list[Step]:
    """Write the answers on their attempts and move the steps. Returns copies of those that moved,
    since the caller's transaction may fail and be tried again.
    """
    mine = [
        replace(tried, intent=replace(tried.intent, step=copied(tried.intent.step)))
        for tried in answered
    ]
    applied = [tried for tried in mine if tried.answer.outcome == "applied"]
    moved = _settle_applied(applied, before=[_kept_answers(answered)])
    for tried in mine:
        if tried.answer.outcome != "applied":
            with suppress(CannotMove):
                _settle_one(tried)
                moved.append(tried.intent.step)
    for _ in moved:
        faults.point("settling")
    return moved


def _kept_answers(answered: Sequence[AnsweredTry]) -> Statement:
    answers = [tried.answer for tried in answered]
    return KEEP_SQL, [
        [tried.intent.attempt.pk for tried in answered],
        [answer.outcome for answer in answers],
        [answer.detail for answer in answers],
        [json.dumps(answer.evidence) if answer.evidence else None for answer in answers],
    ]


def _settle_applied(answered: Sequence[AnsweredTry], before: Sequence[Statement]) -> list[Step]:
    """Move steps whose calls were applied; they are read back next."""
    answers = {tried.intent.step.pk: tried.answer for tried in answered}

    def drafts(step: Step) -> list[EventDraft]:
        data = {"was": step.was, "note": "", "effects": [_effect(step)]}
        return [steps.event_draft(step, step.state, data | _answer_facts(answers[step.pk]))]

    moved = steps.move_all(
        [tried.intent.step for tried in answered],
        StepState.APPLIED,
        per_step={"evidence": [tried.answer.evidence or None for tried in answered]},
        for_all=AT_REST | {"probes": Fragment("0"), "note": Fragment("''")},
        before=before,
        drafts=drafts,
    )
    late = steps.locked_late([tried.intent.attempt for tried in answered], ours=moved)
    steps.record(moved)
    steps.applied_late(late)
    for step, _ in moved:
        step.probes = 0
    return [step for step, _ in moved]


def _settle_one(tried: AnsweredTry) -> None:
    step, answer = tried.intent.step, tried.answer
    is_last = answer.outcome == "no_effect" and step.tries >= TRIES_MAX
    if is_last and preconditions.tries_under(step).not_ruled_out().exists():
        answer = replace(answer, outcome="unknown")  # of the step: an earlier try may have done it
    data = _answer_facts(answer)
    if answer.outcome == "unknown":
        # Not before the call's own limit, for what we sent may still be on its way.
        due = in_seconds(tried.operation.limit_seconds + tried.operation.horizon_seconds)
        steps.move(
            step, StepState.UNKNOWN, note=answer.detail, data=data, lease_until=None, wake_at=due
        )
    elif is_last:
        steps.needs_human(step, f"Refused {step.tries} times: {answer.detail}", data=data)
    else:
        moved = steps.move_unrecorded(
            step,
            StepState.READY,
            note=answer.detail,
            lease_until=None,
            wake_at=in_seconds(RETRY_SECONDS * 2 ** (step.tries - 1)),
        )
        desk_events.record_all(step.workspace, [steps.no_effect_draft(step, answer.detail), moved])


def mark_applied(
    step: Step, *, evidence: dict[str, Any] | None, data: dict[str, Any], note: str = ""
) -> None:
    """Move a step whose effect was found, in the caller's transaction; it is read back next."""
    steps.move(
        step,
        StepState.APPLIED,
        note=note,
        data={"effects": [_effect(step)]} | data,
        evidence=evidence or None,
        lease_until=None,
        wake_at=None,
        probes=0,
    )


def _effect(step: Step) -> dict[str, Any]:
    """What the call did, as the fold of the plan's own run wants it."""
    wanted = step.post_condition or {}
    effect = {
        "target": {"type": step.target_type, "id": step.target_id},
        "summary": (step.preview or {}).get("title", ""),
        "reversibility": step.reversibility,
    }
    if wanted:
        effect["after"] = wanted.get("fields", {}) if wanted.get("exists", True) else None
    return effect


def _answer_facts(answer: Answer) -> dict[str, Any]:
    return {"outcome": answer.outcome, "detail": answer.detail, "evidence": answer.evidence}


# Verify, and end.


@dataclass(frozen=True)
class StepEnding:
    """A step that comes to a good end, and what a read found."""

    step: Step
    operation: Operation
    checks: list[dict[str, Any]]
    data: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def state(self) -> str:
        """`reported` is a receipt: nothing can be read back."""
        return StepState.VERIFIED if self.operation.reads_back else StepState.REPORTED

    @property
    def outcome(self) -> str:
        """What it means for the effect. A record that is put back does not call back what an
        irreversible act did outside; a counter-action does cancel it, and leaves its trace.
        """
        if self.operation.reversibility == "irreversible":
            return Compensated.CORRECTED
        if (
            self.operation.reversibility == "exact"
            and self.step.reversibility == Reversibility.IRREVERSIBLE
        ):
            return Compensated.REPAIRED
        return Compensated.COMPENSATED


@transaction.atomic
def met_already(step: Step, operation: Operation, found: Observation, *, tried: bool) -> None:
    """A claimed step whose post-condition a read found to hold: verified without a further call."""
    data = {"already": True, "fingerprint": found.fingerprint}
    note = f"It was already so; nothing {'more ' if tried else ''}was sent."
    if not end_all([StepEnding(step, operation, [], data, note)], StepState.VERIFIED):
        raise CannotMove(step, StepState.VERIFIED)


def end_all(ending: Sequence[StepEnding], state: str) -> list[Step]:
    """End steps of one workspace, and tell the ledger that their effects are compensated, or
    corrected; what was done twice is left to people. The caller holds the transaction.
    """
    left = [one.step for one in ending if steps.left_as_done_twice(copied(one.step))]
    ending = [end for end in ending if end.step not in left]
    evidence = [(end.step.evidence or {}) | {"checks": end.checks} for end in ending]
    by_step = {end.step.pk: end for end in ending}
    moved = steps.move_all(
        [copied(end.step) for end in ending],
        state,
        per_step={"note": [end.note for end in ending], "evidence": evidence},
        for_all=AT_REST,
        drafts=lambda step: _ending_events(by_step[step.pk], step),
    )
    if moved:
        events = [event for _, some in moved for event in some]
        recorded = {
            (steps.run_of(step.plan), steps.action_of(step)): step.recorded
            for step, _ in moved
            if step.recorded is not None
        }
        desk_events.append_completions(moved[0].step.workspace, events, recorded)
    return [*left, *(step for step, _ in moved)]


def _ending_events(end: StepEnding, step: Step) -> list[EventDraft]:
    action = step.effect.action
    data = {"was": step.was, "note": end.note, "ok": True, "checks": end.checks} | end.data
    compensated = {
        "positions": [step.effect.position],
        "target": {"type": step.target_type, "id": step.target_id},
        "outcome": end.outcome,
        "verified": step.state == StepState.VERIFIED,
        "plan": steps.run_of(step.plan),
        "step": steps.action_of(step),
    }
    return [
        steps.event_draft(step, step.state, data),
        EventDraft(EventType.ACTION_COMPENSATED, action.run.run, action.action, compensated),
    ]
