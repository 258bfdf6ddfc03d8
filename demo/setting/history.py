"""A month of Skyline's work before the newcomer came, so that Insights, Causes and Health live.

It goes only into a workspace in which nothing ever ran, and once. Nothing of it happened outside:
each event says `seeded` in its sealed content, and the ledger received it when it did. When a run
is told to have been stands in its events' own `time`; the rows that are folded from them, and those
of cases, plans and approvals, are put at that time.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from amends.protocol.vocabulary import EventType
from approvals import approval_requests, card_context, digests
from approvals.digests import CallFacts
from approvals.models import (
    Approval,
    ApprovalState,
    BrokenGlass,
    Decision,
    Requirement,
    SubjectKind,
)
from approvals.policy import ToolCall, active, judge
from demo.setting import past_runs
from ledger import desk_events, drivers, finding, timestamps, wire
from ledger.append import events as append
from ledger.desk_events import EventDraft
from ledger.models import Action, Run
from ledger.parsed_events import Actor, ParsedEvent, new_id
from recovery.engine import approved_calls, steps
from recovery.models import (
    Case,
    CaseOutcome,
    CaseState,
    Plan,
    PlanState,
    Residue,
    StepAttempt,
    StepState,
)
from recovery.planning.drafting import DraftStep, connections_of
from recovery.run_facts.policies import policies_of
from recovery.run_facts.runs import RunFacts, gather
from recovery.triage import causes
from recovery.triage.case_projection import CaseProjection, case_file, of_run
from recovery.triage.detectors import reasons
from workspaces.access import people_with
from workspaces.clock import database_time
from workspaces.models import Agent, Team, User, Workspace

DAYS = 30
RUNS_A_DAY = 6
EVENTS_AT_A_TIME = 400
SEED = 2026
OPERATOR, FINANCE, LEADS = "rina", "moreau", "lindqvist"
SAYS = {"seeded": True}
ENDINGS = {
    "trip": (CaseOutcome.RESTORED, "The customer has nothing of half a trip"),
    "ticket": (CaseOutcome.RESTORED, "The wrong ticket was raised"),
    "hire": (CaseOutcome.RESTORED, "The mail gateway was down; done anew by hand"),
    "invoice": (CaseOutcome.CORRECTED, "The reader was asked to delete it"),
}


@transaction.atomic
def seed(workspace: Workspace) -> int:
    """Write the month, unless anything ever ran here; how many runs."""
    if Run.objects.filter(workspace=workspace).exists():
        return 0
    chance, now = random.Random(SEED), database_time()
    past = list(past_runs.of_days(chance, now, days=DAYS, a_day=RUNS_A_DAY))
    _append(workspace, past)
    with connection.cursor() as cursor:
        cursor.execute(IN_THE_PAST, {"here": workspace.pk})
    runs = Run.objects.filter(workspace=workspace).select_related("workspace", "agent")
    _cases(workspace, list(runs.order_by("started_at")), chance, now)
    _questions(workspace, chance)
    runs.update(seen_revision=F("revision"), last_event_at=F("ended_at"))
    return len(past)


def _append(workspace: Workspace, past: Sequence[past_runs.PastRun]) -> None:
    """What agents said, as their keys would have sent it, in the order in which it was."""
    for agent in Agent.objects.filter(workspace=workspace):
        actor = Actor(
            workspace.pk, workspace.slug, "agent", agent.name, agent_id=agent.pk, trusted=True,
            mask=tuple(workspace.mask), masking_key=desk_events.masking_key(workspace),
        )  # fmt: skip
        told = [
            _parsed(one, actor) for run in past if run.agent == agent.name for one in run.events
        ]
        for at in range(0, len(told), EVENTS_AT_A_TIME):
            some = told[at : at + EVENTS_AT_A_TIME]
            drivers.run(append.record(actor, some), drivers.plain_connection())


def _parsed(one: past_runs.PastEvent, actor: Actor) -> ParsedEvent:
    said = {
        "id": new_id(), "type": one.type, "run": one.run, "action": one.action or None,
        "n": one.n, "time": timestamps.formatted(one.at), "data": one.data | SAYS,
    }  # fmt: skip
    found = wire.read(msgspec.json.encode(said), actor, reserved=True)
    if not isinstance(found, ParsedEvent):
        raise TypeError(f"{one.type}: {found[1]}")
    return found


# The rows say when it was told to be; the events go on saying when they were received.
IN_THE_PAST = """
WITH told AS (
    SELECT run, action, min(time) AS began, max(time) AS ended FROM ledger_event
    WHERE workspace_id = %(here)s AND time IS NOT NULL GROUP BY GROUPING SETS ((run), (run, action))
), runs AS (
    UPDATE ledger_run one SET started_at = began, ended_at = ended, last_event_at = ended
    FROM told WHERE told.run = one.run AND told.action IS NULL AND one.workspace_id = %(here)s
), actions AS (
    UPDATE ledger_action one SET planned_at = began, started_at = began, finished_at = ended
    FROM told JOIN ledger_run run ON run.run = told.run AND run.workspace_id = %(here)s
    WHERE one.run_id = run.id AND one.action = told.action RETURNING one.id, began, ended
)
UPDATE ledger_attempt one SET started_at = began, finished_at = ended
FROM actions WHERE one.action_id = actions.id"""


# Cases: found by triage's own rules, and each at its end.


def _cases(workspace: Workspace, runs: Sequence[Run], chance: random.Random, now: datetime) -> None:
    rina = User.objects.get(email__startswith=f"{OPERATOR}@")
    linked, drafts = connections_of({workspace.pk}), list[EventDraft]()
    closed = list[EventDraft]()
    for facts in gather(runs, policies=policies_of(runs), now=now):
        found = reasons(facts, None)
        if not found:
            continue
        known = replace(facts, now=facts.run.ended_at or now)  # as its failure was told
        file = case_file(known, found, linked, None)
        outcome, why = _ending(facts, chance)
        took = timedelta(minutes=min(chance.lognormvariate(4.2, 0.9), 2_000))
        failed_at = file.columns["failed_at"]
        at = min(failed_at + took, now - timedelta(minutes=chance.uniform(5, 50)))
        ended = {"outcome": outcome, "closed_at": at, "closed_by": rina, "closing_reason": why}
        case = _case(facts, file, ended, [one.key for one in found])
        said = {"case": case.pk, "headline": case.headline, "risk": case.risk}
        said |= {"reasons": [one.as_json() for one in found], "at": failed_at.isoformat()}
        drafts.append(EventDraft(EventType.CASE_OPENED, facts.run.run, "", said | SAYS))
        if outcome == CaseOutcome.PARTLY:
            Residue.objects.create(
                case=case, owner=rina, due_at=now + timedelta(days=2), text=LEFT, effect=None
            )
        if outcome != CaseOutcome.EXPECTED:
            drafts += _plan(case, facts, file.drafted.steps, (at, why, rina), chance)
        said = {"case": case.pk, "outcome": outcome, "reason": why, "at": at.isoformat()}
        closed.append(EventDraft(EventType.CASE_CLOSED, facts.run.run, "", said | SAYS))
    _record(workspace, drafts, None)
    _record(workspace, closed, rina)
    with connection.cursor() as cursor:
        cursor.execute(CAUSES, {"here": workspace.pk})


LEFT = "Ask the reader on the phone whether the invoice was deleted"
EXPECTED_OF_TICKETS, LEFT_OF_INVOICES = 0.25, 0.2


def _ending(facts: RunFacts, chance: random.Random) -> tuple[CaseOutcome, str]:
    """How it ended, and why: mostly as its story does."""
    story = facts.run.labels["story"]
    if story == "ticket" and chance.random() < EXPECTED_OF_TICKETS:
        return CaseOutcome.EXPECTED, "The customer had asked for both"
    if story == "invoice" and chance.random() < LEFT_OF_INVOICES:
        return CaseOutcome.PARTLY, "A correction was sent; nobody has answered"
    return ENDINGS[story]


def _case(
    facts: RunFacts, file: CaseProjection, ended: dict[str, Any], answered: Sequence[str]
) -> Case:
    cause = causes.keep(facts.run.workspace, file.alike) if file.alike else None
    columns = {**file.columns, "standing_count": 0, "needs_approval": ""}
    case = Case.objects.create(
        workspace=facts.run.workspace, run=facts.run, cause=cause, was=CaseState.RECOVERING,
        state=CaseState.CLOSED, answered=sorted(answered), corrections_drafted_at=Now(),
        **columns, **of_run(facts.run), **ended,
    )  # fmt: skip
    words = finding.words(file.searched)
    Case.objects.filter(pk=case.pk).update(opened_at=columns["failed_at"], search=words)
    return case


CAUSES = """
UPDATE recovery_cause one
SET first_seen_at = began, last_seen_at = seen, last_closed_at = closed, case_count = cases
FROM (SELECT cause_id, min(opened_at) AS began, max(opened_at) AS seen, max(closed_at) AS closed,
        count(*) AS cases FROM recovery_case WHERE workspace_id = %(here)s GROUP BY cause_id) found
WHERE one.id = found.cause_id"""

Ended = tuple[datetime, str, User]


def _plan(
    case: Case,
    facts: RunFacts,
    drafted: Sequence[DraftStep],
    ended: Ended,
    chance: random.Random,
) -> Iterator[EventDraft]:
    """What undid it, step by step, as the engine leaves it; what it says."""
    at, why, by = ended
    if not drafted:
        return
    headline = case.suggestion_text[:400] or case.headline
    plan = Plan.objects.create(
        workspace=case.workspace, case=case, number=1, was=PlanState.RUNNING,
        state=PlanState.FINISHED, headline=headline, case_revision=case.revision,
        digest=digests.call_digest(drafted[0].facts), run_revision=facts.run.revision,
        basis=approved_calls.basis_of(facts.run), policy_digest=facts.policy.digest,
        drafted_by=by, reason=why, submitted_at=at, started_at=at, ended_at=at,
    )  # fmt: skip
    run, said = facts.run.run, {"case": case.pk, "plan": plan.number, "at": at.isoformat()} | SAYS
    yield EventDraft(EventType.PLAN_SUBMITTED, run, "", said | {"headline": headline})
    for one in drafted:
        step = one.step
        step.plan, step.was, step.state = plan, StepState.APPLIED, StepState.VERIFIED
        step.tries, step.moved_at = 1, at
        step.save(force_insert=True)
        StepAttempt.objects.create(
            step=step, number=1, fence=1, key=step.key, intended_at=at, outcome="applied",
            answered_at=at + timedelta(milliseconds=chance.lognormvariate(5.4, 0.6)),
        )  # fmt: skip
        is_mail = one.action.tool.startswith("mail.")
        done: dict[str, Any] = {
            "positions": [one.effect.position],
            "verified": True,
            "plan": steps.run_of(plan),
        }
        done |= {"outcome": "corrected" if is_mail else "restored"}
        done |= {"step": steps.action_of(step)} | SAYS
        yield EventDraft(EventType.ACTION_COMPENSATED, run, one.action.action, done)
    yield EventDraft(EventType.PLAN_FINISHED, run, "", said)


# Questions: what finance and the leads were asked of transfers, and how they answered.


def _questions(workspace: Workspace, chance: random.Random) -> None:
    people = {name: User.objects.get(email__startswith=f"{name}@") for name in (FINANCE, LEADS)}
    policy = active(workspace)
    said: dict[User | None, list[EventDraft]] = {None: [], **{one: [] for one in people.values()}}
    asked = Action.objects.filter(workspace=workspace, tool=past_runs.TRANSFER)
    asked = asked.select_related("run", "agent__owner", "workspace").order_by("planned_at")
    late, at_night = _newest(asked, large=False), _newest(asked, large=True)
    for action in asked:
        call = ToolCall(
            tool=action.tool, args=action.args, targets=action.targets, agent=past_runs.PAYER
        )
        judgement = judge(policy, call)
        needs = approval_requests.teams_of(workspace, judgement.requires)
        second = workspace.teams.get(name=LEADS_TEAM) if action.pk == late else None
        approval = _asked(action, judgement, is_late=second is not None)
        Requirement.objects.bulk_create(
            Requirement(
                approval=approval, team=team, count=need.count, position=place, escalated_to=second
            )
            for place, (need, team) in enumerate(needs)
        )
        told = approval_requests.requested(approval, needs) | {"approval": approval.pk} | SAYS
        said[None].append(
            EventDraft(EventType.APPROVAL_REQUESTED, approval.run_ref, action.action, told)
        )
        if action.pk == at_night:
            _break_the_glass(approval, people[LEADS], said)
            continue
        if second:
            said[None].append(_escalated(approval, second, people[LEADS]))
        for need, _ in needs:
            by = people[LEADS if second or need.team == LEADS_TEAM else FINANCE]
            said[by] += _answer(approval, by, chance)
    for who, drafts in said.items():
        _record(workspace, drafts, who)


LEADS_TEAM = "leads"
LATE = timedelta(minutes=20)
LAPSES = timedelta(hours=1)
ON_A_PLANE = "Finance and the leads are on one plane, and the caterer’s truck stands at the gate"
FOUND = "The bill was due that night, and it is right. The leads have a deputy from now on"


def _newest(asked: Iterable[Action], *, large: bool) -> int:
    """The newest transfer that was made, of those which take both teams, or finance alone."""
    sums = {one.pk: (one.args or {})["amount"] for one in asked if one.run.labels["end"] == "used"}
    fits = [pk for pk, amount in sums.items() if (amount > past_runs.LARGE) == large]
    return fits[-1] if fits else 0


def _escalated(approval: Approval, second: Team, lead: User) -> EventDraft:
    """Finance let it wait for longer than the rule allows; a lead was asked in its place."""
    at = approval.asked_at + LATE
    said = {"approval": approval.pk, "team": second.name, "people": [lead.pk], "at": at.isoformat()}
    action = approval.action.action if approval.action else ""
    return EventDraft(EventType.APPROVAL_ESCALATED, approval.run_ref, action, said | SAYS)


def _break_the_glass(
    approval: Approval, lead: User, said: dict[User | None, list[EventDraft]]
) -> None:
    """One night two administrators decided in place of both teams; a lead looked at it."""
    here, run = approval.workspace, approval.run_ref
    action = approval.action.action if approval.action else ""
    two = list(people_with("administer", here).order_by("pk"))
    at = [approval.asked_at + LATE + timedelta(minutes=3 * place) for place in range(len(two))]
    seen = at[-1] + timedelta(hours=9)
    BrokenGlass.objects.create(
        approval=approval, workspace=here, begun_at=at[0], opened_at=at[-1], reviewed_at=seen,
        reviewed_by=lead, review=FOUND,
    )  # fmt: skip
    Approval.objects.filter(pk=approval.pk).update(decided_at=at[-1], used_at=at[-1])
    for who, when in zip(two, at, strict=True):
        decision = Decision(
            approval=approval, person=who, granted=True, reason=ON_A_PLANE, shown_seconds=41.0,
            seen_digest=approval.digest, fresh_login_at=when, at=when, break_glass=True,
        )  # fmt: skip
        decision.save_base(raw=True, force_insert=True)
        told = {"approval": approval.pk, "reason": ON_A_PLANE, "at": when.isoformat()} | SAYS
        granted = told | {"digest": approval.digest, "complete": when == at[-1], "fills": ""}
        broken = EventType.BREAK_GLASS_BEGUN if when == at[0] else EventType.BREAK_GLASS_OPENED
        people = [str(one) for one in two[: at.index(when) + 1]]
        said.setdefault(who, []).extend([
            EventDraft(EventType.APPROVAL_GRANTED, run, action, granted | {"break_glass": True}),
            EventDraft(broken, run, action, told | {"people": people}),
        ])  # fmt: skip
    review = {"approval": approval.pk, "review": FOUND, "at": seen.isoformat()} | SAYS
    said[lead].append(EventDraft(EventType.BREAK_GLASS_REVIEWED, run, action, review))


def _asked(action: Action, judgement: Any, *, is_late: bool) -> Approval:
    """The question as it was put, at its end: used, rejected, or never answered.

    `is_late`: its rule's time to escalate had passed when somebody answered.
    """
    end = ApprovalState(action.run.labels["end"])
    at = action.planned_at or database_time()
    escalated = at + LATE if is_late else None
    took = timedelta(seconds=float(action.run.labels["seconds"]))
    decided = escalated + timedelta(minutes=4) if escalated else at + took
    is_used, is_over = end == ApprovalState.USED, end == ApprovalState.EXPIRED
    facts = CallFacts(
        operation=action.tool, args=action.args, targets=action.targets, key=action.key
    )
    args: dict[str, Any] = action.args or {}
    approval = Approval(
        workspace=action.workspace, subject_kind=SubjectKind.ACTION, action=action,
        subject_key=f"{past_runs.PAYER} {action.key}", run_ref=action.run.run,
        subject={"kind": "action", "agent": past_runs.PAYER, "key": action.key},
        calls=[facts.as_json() | {"digest": digests.call_digest(facts)}], agent=action.agent,
        agent_owner=action.agent.owner if action.agent else None, rules=list(judgement.rules),
        headline=f"Transfer money to {action.targets[0]['id']}", previews=[_preview(action)],
        risk=judgement.risk, fresh_login=judgement.fresh_login, currency="EUR",
        amount_minor=args["amount"], asked_at=at, expires_at=at + LAPSES,
        was=ApprovalState.GRANTED if is_used else ApprovalState.WAITING, state=end,
        decided_at=at + LAPSES if is_over else decided,
        used_at=decided if is_used else None,
        escalate_at=escalated, escalated_at=escalated,
    )  # fmt: skip
    approval.targets = card_context.targets_of(approval.calls)
    approval.digest = digests.digest_with(approval, approval.calls)
    approval.save(force_insert=True)
    return approval


def _preview(action: Action) -> dict[str, Any]:
    title, args = f"Transfer money to {action.targets[0]['id']}", action.args or {}
    return {"kind": "money", "title": title, "amount": args["amount"], "currency": "EUR"}


def _answer(approval: Approval, by: User, chance: random.Random) -> Iterator[EventDraft]:
    if approval.state == ApprovalState.EXPIRED or approval.decided_at is None:
        return
    granted = approval.state == ApprovalState.USED
    reason = "" if granted else "This payee’s account has just changed: call them first"
    waited = (approval.decided_at - approval.asked_at).total_seconds()
    decision = Decision(
        approval=approval, person=by, granted=granted, reason=reason, seen_digest=approval.digest,
        shown_seconds=min(waited, chance.lognormvariate(2.0, 0.9)),
        fresh_login_at=approval.decided_at if approval.fresh_login else None,
        at=approval.decided_at,
    )  # fmt: skip
    decision.save_base(raw=True, force_insert=True)  # with its own time, not that of writing
    what = EventType.APPROVAL_GRANTED if granted else EventType.APPROVAL_REJECTED
    said = {"approval": approval.pk, "digest": approval.digest, "reason": reason}
    said |= {"at": approval.decided_at.isoformat()}
    action = approval.action.action if approval.action else ""
    yield EventDraft(what, approval.run_ref, action, said | SAYS)


def _record(workspace: Workspace, drafts: Sequence[EventDraft], by: User | None) -> None:
    for at in range(0, len(drafts), EVENTS_AT_A_TIME):
        some = drafts[at : at + EVENTS_AT_A_TIME]
        desk_events.record_all(workspace, some, by=by, part="demo")
