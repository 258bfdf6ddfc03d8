"""Resuming: what a run would do if it went on from a checkpoint, and the directive that says so.

The desk never runs forward actions itself. It tells the agent, which polls; `run.resumed` is the
acknowledgement, and where none comes in time the case comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from amends.protocol.vocabulary import WITHOUT_EFFECT, EventType
from approvals import pauses
from approvals.models import Approval, ApprovalState
from ledger.canonical import digest
from ledger.models import Action, ActionState, Checkpoint, Compensated, Effect, Event, Run
from recovery.cases.lifecycle import (
    REFUSALS,
    NotPossible,
    OutOfDate,
    direct,
    locked,
    move,
    record,
    refuse_if_claimed,
    reread,
)
from recovery.models import Case, CaseState, Directive, Plan
from recovery.models.plans import LIVING
from recovery.run_facts.long_runs import behind, is_behind
from recovery.run_facts.runs import RunFacts, facts_of
from recovery.run_facts.sentences import listed, target_words
from workspaces import formatting
from workspaces.clock import database_time
from workspaces.free_text import REASON_CHARACTERS_MAX, kept_text
from workspaces.models import User

LABELS = {
    "skip": "done – skipped",
    "repeat_same_key": "repeat – same key, safe",
    "repeat_may_duplicate": "repeat – may duplicate",
    "repeat_new_key": "repeat – new key",
    "new": "new",
}
_DEAD = ("repeat_new_key", "It was undone, so its old key is dead.")
_STANDS = ("skip", "What it did outside stands, so its first result is answered again.")
UNDONE = {
    Compensated.PARTLY: _DEAD,
    Compensated.COMPENSATED: _DEAD,
    Compensated.REPAIRED: _STANDS,
    Compensated.CORRECTED: _STANDS,
}
"""How a call is met again of which something was undone, as `begin` answers it."""

STEPS_MAX = 1_000
ACKNOWLEDGE_SECONDS_MIN = 60


class CannotResume(NotPossible):
    """We stopped because the run cannot go on from there; the sentence says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeStep:
    """One call that the resumed run would come to, and what would happen with it."""

    action: str
    tool: str
    targets: Sequence[dict[str, Any]]
    label: str
    key: str
    why: str = ""

    @property
    def words(self) -> str:
        return LABELS[self.label]

    def as_json(self) -> dict[str, Any]:
        return {
            "action": self.action,
            "tool": self.tool,
            "targets": list(self.targets),
            "label": self.label,
            "key": self.key,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """What a directive would say. `left_out` counts the later calls for which there is no room in
    it, `standing` are effects that would be doubled, `stale` why the checkpoint no longer holds.
    """

    case: Case
    facts: RunFacts
    checkpoint: Checkpoint | None
    steps: list[ResumeStep]
    left_out: int
    standing: list[tuple[Action, Effect]]
    digest: str
    checked_at: datetime
    stale: str = ""
    hindrances: list[str] = field(default_factory=list)

    @property
    def why_not(self) -> str:
        return next(iter(self.hindrances), "")


FROM_LAST, FROM_START, NAMED = "", "start", "named:"
"""From where many runs go on: the last checkpoint of each, the start, or the last of a name."""


def chosen(checkpoints: Sequence[Checkpoint], resume_from: str) -> Checkpoint | None:
    """Of a run's checkpoints, oldest first, the one that is meant; None is the start. Raises
    CannotResume where it has none of that name.
    """
    if resume_from == FROM_START:
        return None
    if resume_from == FROM_LAST:
        return checkpoints[-1] if checkpoints else None
    name = resume_from.removeprefix(NAMED)
    found = [one for one in checkpoints if one.name == name]
    if not found:
        raise CannotResume(f"It has no checkpoint {formatting.quoted(name)}.")
    return found[-1]


def preview(case: Case, *, checkpoint: Checkpoint | None = None) -> Resume:
    """How the run would go on from `checkpoint`, or from its start. Writes nothing."""
    case = reread(case)
    plan = Plan.objects.filter(case=case, state__in=LIVING).first()
    return preview_of(case, facts_of(case.run), checkpoint, plan)


def preview_of(
    case: Case, facts: RunFacts, checkpoint: Checkpoint | None, plan: Plan | None
) -> Resume:
    """The same of what was read already; `plan` is the one of the case that has not ended."""
    later = [one for one in facts.actions if checkpoint is None or is_behind(one, checkpoint)]
    listed_, left_out = _listed(facts, checkpoint, later)
    found = [_step(facts, action) for action in listed_]
    steps = found + _pending(facts, checkpoint, found)
    looked = {action.pk: action for action in [*listed_, *later]}.values()
    unsafe = {
        action.action: action.tool
        for action in looked
        if _label(facts, action)[0] == "repeat_may_duplicate"
    }
    doubled = [*unsafe.values()]
    if facts.whole:
        doubled += [
            one.tool
            for one in facts.whole.unkeyed
            if checkpoint is None or is_behind(one, checkpoint)
        ]
    standing = [(a, e) for a, e in facts.standing() if a.action in unsafe]
    stale = staleness(facts, checkpoint)
    body = {
        "run": case.run.run,
        "from": checkpoint.event_id if checkpoint else None,
        "steps": [step.as_json() for step in steps],
    }
    return Resume(
        case=case,
        facts=facts,
        checkpoint=checkpoint,
        steps=steps,
        left_out=left_out,
        standing=standing,
        digest=digest(body),
        checked_at=timezone.now(),
        stale=stale,
        hindrances=[one for one in _hindrances(case, facts, doubled, stale, plan) if one],
    )


def _listed(
    facts: RunFacts, checkpoint: Checkpoint | None, later: Sequence[Action]
) -> tuple[Sequence[Action], int]:
    """The calls that come first after the checkpoint, and for how many more there is no room; of a
    long run others than were gathered.
    """
    if facts.whole is None:
        return later[:STEPS_MAX], len(later[STEPS_MAX:])
    rows = Action.objects.filter(behind(checkpoint), run=facts.run)
    shown = list(rows.order_by("n", "first_place")[:STEPS_MAX])
    for action in shown:
        action.run = facts.run
    return shown, max(0, rows.count() - len(shown))


def staleness(facts: RunFacts, checkpoint: Checkpoint | None) -> str:
    """Why a checkpoint no longer holds: what it rests on has been undone since."""
    if checkpoint is None:
        return ""
    of_all = [one for one in facts.actions if one.compensated != Compensated.NONE]
    undone = [
        one.tool
        for one in (facts.whole.undone if facts.whole else of_all)
        if not is_behind(one, checkpoint)
    ]
    if not undone:
        return ""
    return f"It rests on {listed(list(dict.fromkeys(undone)))}, which was undone since."


def _step(facts: RunFacts, action: Action) -> ResumeStep:
    label, why = _label(facts, action)
    return ResumeStep(
        action=action.action,
        tool=action.tool,
        targets=action.targets or [],
        label=label,
        key=action.key,
        why=why,
    )


def _label(facts: RunFacts, action: Action) -> tuple[str, str]:
    if action.compensated in UNDONE:
        return UNDONE[Compensated(action.compensated)]
    if facts.is_unknown(action):
        return "repeat_may_duplicate", "Nobody knows whether it happened."
    if action.state == ActionState.SUCCEEDED:
        if action.key or facts.judgement(action).action_class in WITHOUT_EFFECT:
            return "skip", "Its first result is answered again."
        return "repeat_may_duplicate", "It has no key by which it would be recognised."
    if action.state == ActionState.FAILED:
        return "repeat_same_key", "It had no effect."
    return "new", "It was planned and never started."


def _pending(
    facts: RunFacts, checkpoint: Checkpoint | None, known: Sequence[ResumeStep]
) -> list[ResumeStep]:
    """What the checkpoint says is still to come, and the ledger has not seen."""
    coming = checkpoint.pending if checkpoint is not None else []
    names = {action.action for action in facts.actions} | {step.tool for step in known}
    if facts.whole:
        told = [one for one in coming if isinstance(one, str)]
        of_them = Action.objects.filter(run=facts.run, action__in=told)
        names |= {*of_them.values_list("action", flat=True)} | facts.whole.tools
    fresh = [str(one) for one in coming if isinstance(one, str) and one not in names]
    return [
        ResumeStep(action=name, tool=name, targets=[], label="new", key="")
        for name in fresh[:STEPS_MAX]
    ]


def _hindrances(
    case: Case, facts: RunFacts, doubled: Sequence[str], stale: str, plan: Plan | None
) -> list[str]:
    twice = listed(list(dict.fromkeys(doubled)))
    lease = facts.run.lease_until
    live = not facts.has_ended and lease is not None and lease > facts.now
    return [
        "The case is closed: reopen it first." if case.state == CaseState.CLOSED else "",
        f"Plan {plan.number} has not ended: stop it first." if plan else "",
        "What was said in it is erased: no agent goes on with it."
        if facts.run.forgotten_at
        else "",
        "It was told to resume already." if case.state == CaseState.RESUMING else "",
        _sent(facts),
        "The run still goes on by itself." if live else "",
        facts.calls_to_settle(),
        f"{twice} might be done twice: undo it first." if twice else "",
        f"The checkpoint is stale. {stale}" if stale else "",
        _put_right_by_hand(case, facts),
    ]


def _put_right_by_hand(case: Case, facts: RunFacts) -> str:
    """What stands for all the desk has seen, and no longer does as its people say: the run would go
    on upon it from any checkpoint, and be answered its first result from the start.
    """
    said = case.by_hand_at
    if said is None:
        return ""
    done = [one for one, _ in facts.standing() if not one.finished_at or one.finished_at <= said]
    names = list(dict.fromkeys(one.tool for one in done))
    verb = "were" if names[1:] else "was"
    told = f"{listed(names)} {verb} put right by hand, as was said when the case was closed."
    return told if names else ""


def _sent(facts: RunFacts) -> str:
    """An undo that may still happen: the run would go on upon what it then takes away."""
    lost = facts.steps_to_settle()
    if lost:
        return lost
    for step in facts.under_way:
        where = f"Step {step.position} of plan {step.plan.number}"
        return f"{where} was sent: wait until it is known what became of it."
    return ""


def commit(
    case: Case,
    *,
    digest: str,
    revision: int,
    by: User,
    reason: str = "",
    checkpoint: Checkpoint | None = None,
) -> Directive:
    """Issue the directive that was previewed; once more as it was, by a second click or a proxy
    that heard no answer, it is the one that was issued.

    Raises OutOfDate, CannotResume, CannotMove, or InvalidInput for a reason that is too long.
    """
    reason = kept_text(reason, REASON_CHARACTERS_MAX)
    try:
        with transaction.atomic():
            case = locked(case, seen=revision)
            refuse_if_claimed(case, by, CaseState.RESUMING)
            resume = preview(case, checkpoint=checkpoint)
            if resume.digest != digest:
                raise OutOfDate(case, "What would happen has changed since you saw it.")
            if resume.why_not:
                raise CannotResume(resume.why_not)
            return _issue(case, resume, by, reason)
    except REFUSALS:
        told = Event.objects.filter(
            workspace=case.workspace_id, run=case.run.run, type=EventType.RESUME_DIRECTED,
            actor_kind="person", actor=str(by.pk), data__contains={"seen": revision},
        ).first()  # fmt: skip
        data = told.data if told is not None and told.data else {}
        if (data.get("digest"), data.get("reason")) != (digest, reason):
            raise
        mine = Directive.objects.filter(pk=data["directive"], withdrawn_at=None).first()
        if mine is None:
            raise
        return mine


def _issue(case: Case, resume: Resume, by: User, reason: str) -> Directive:
    seconds = max(resume.facts.policy.stuck_after_seconds, ACKNOWLEDGE_SECONDS_MIN)
    directive = direct(
        case.run_id,
        "resume",
        by=by,
        acknowledge_by=database_time() + timedelta(seconds=seconds),
        checkpoint=resume.checkpoint,
        steps=[step.as_json() for step in resume.steps],
    )
    Run.objects.filter(pk=case.run_id).update(held_by=pauses.still_holds())
    seen = case.revision
    move(case, CaseState.RESUMING)
    data = {
        "directive": directive.pk,
        "from": resume.checkpoint.name if resume.checkpoint else None,
        "steps": directive.steps,
        "reason": reason,
        "digest": resume.digest,
        "seen": seen,
    }
    record(case, EventType.RESUME_DIRECTED, by=by, data=data)
    return directive


def step_title(step: ResumeStep) -> str:
    """`charge_card on card 4421`"""
    first = next(iter(step.targets), None)
    if not isinstance(first, dict):
        return formatting.named(step.tool)
    where = target_words(str(first.get("type", "")), str(first.get("id", "")))
    tool = formatting.named(step.tool)
    return f"{tool} on {where}" if where else tool


# What stood at the checkpoint, from the ledger and the decisions of then.


APPROVALS_MAX = 20


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """`approvals` were granted and not used yet; `verified_at` is the last check that went well."""

    approvals: list[str]
    verified_at: datetime | None
    trace: dict[str, Any] | None

    @property
    def trace_id(self) -> str:
        return str((self.trace or {}).get("trace_id", ""))


def known_at(run: Run, checkpoint: Checkpoint) -> CheckpointState:
    """What the ledger held as the checkpoint was told; its trace is that of its own event."""
    events = Event.objects.filter(workspace=run.workspace_id, run=run.run)
    if run.started_at is not None:
        events = events.filter(received_at__gte=run.started_at)
    event = events.filter(event_id=checkpoint.event_id).first()
    checked = events.filter(type=EventType.ACTION_VERIFIED, place__lte=checkpoint.place)
    last = checked.filter(data__ok=True).order_by("-place").first()
    granted = Approval.objects.filter(
        Q(used_at=None) | Q(used_at__gt=checkpoint.at),
        Q(run_ref=run.run) | Q(action__run=run),
        workspace=run.workspace_id,
        state__in=[ApprovalState.GRANTED, ApprovalState.USED],
        decided_at__lte=checkpoint.at,
        expires_at__gt=checkpoint.at,
    )
    titles = granted.order_by("decided_at").values_list("headline", flat=True)
    return CheckpointState(
        approvals=list(titles[:APPROVALS_MAX]),
        verified_at=last.received_at if last else None,
        trace=(event.trace if event and event.trace else run.trace),
    )
