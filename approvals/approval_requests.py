"""Questions: an approval is asked for one forward action or one whole plan.

What people will see and what will run are frozen here, under one digest.

The desk withdraws what no answer can help any more: a question ends with its run, and with its call
where that was made without waiting for people. Both are seen in the tables, so that nothing is
missed; whoever asked and whoever was asked is told.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Case, CharField, Exists, F, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Concat, Now

from amends.protocol.vocabulary import EventType
from approvals import card_context, consent_requests, digests, notifications
from approvals.deciders import locked
from approvals.digests import CallFacts, record
from approvals.models import APPROVAL_MOVES, Approval, ApprovalState, Requirement, SubjectKind
from approvals.policy import PolicyDecision, RequiredApprovers
from approvals.signals import publish_on_commit
from connectors.contract import Money
from ledger.fold.runs import BY_A_RESTORE
from ledger.models import Action, Attempt, AttemptState, RunState
from workspaces.clock import database_time
from workspaces.free_text import REASON_CHARACTERS_MAX
from workspaces.models import Agent, Team, User, Workspace
from workspaces.moves import move
from workspaces.periodic import each

PLAN_EXPIRES_SECONDS = 24 * 3600
HEADLINE_CHARACTERS_MAX = 300


class NobodyToAsk(Exception):
    """We stopped because a rule asks a team or a person that is not there; mend the policy."""


@transaction.atomic
def ask_for_action(
    action: Action,
    *,
    subject_key: str,
    facts: CallFacts,
    judgement: PolicyDecision,
    preview: Mapping[str, Any],
    agent_text: Mapping[str, Any] | None,
    amount: Money | None,
    note: str,
    accepts_changed_arguments: bool,
    expires_seconds: int,
    requested_by: User | None = None,
    replaces: Approval | None = None,
) -> Approval:
    """Put one forward action in front of people; `note` says why it is asked anew.

    Whoever owns the agent never counts, nor does `requested_by`, who has changed the arguments of
    the question that this one `replaces`. Raises NobodyToAsk.
    """
    agent = action.agent
    if agent is None:
        raise NobodyToAsk("an action of the desk itself is approved with its plan")
    return _ask(
        Approval(
            workspace=action.workspace,
            subject_kind=SubjectKind.ACTION,
            action=action,
            subject_key=subject_key,
            subject={"kind": "action", "agent": agent.name, "key": action.key},
            run_ref=action.run.run,
            headline=shortened(str(preview["title"])),
            previews=[dict(preview)],
            agent=agent,
            agent_owner=agent.owner,
            agent_text=dict(agent_text) if agent_text else None,
            reason=note,
            accepts_changed_arguments=accepts_changed_arguments,
            requested_by=requested_by,
            replaces=replaces,
            amount_minor=amount.in_column if amount else None,
            currency=amount.currency if amount else "",
        ),
        [facts],
        judgement,
        judgement.expires_seconds or expires_seconds,
        consent_requests.affected([action.run.on_behalf_of]),
    )


@transaction.atomic
def ask_for_grant(
    approval: Approval,
    terms: CallFacts,
    judgement: PolicyDecision,
    *,
    preview: Mapping[str, Any],
    reason: str,
    subject_key: str,
    expires_seconds: int,
) -> Approval:
    """Put a bounded grant in front of the people who are asked about the call of `approval`; it
    ends when that time is over, whether it was answered or not. Raises NobodyToAsk.
    """
    agent = approval.agent
    return _ask(
        Approval(
            workspace=approval.workspace,
            subject_kind=SubjectKind.GRANT,
            subject_key=subject_key,
            subject={"kind": "grant", "agent": agent.name if agent else "", "of": approval.pk},
            run_ref=approval.run_ref,
            headline=shortened(str(preview["title"])),
            previews=[dict(preview)],
            agent=agent,
            agent_owner=approval.agent_owner,
            reason=reason,
        ),
        [terms],
        judgement,
        expires_seconds,
        (),
    )


@transaction.atomic
def void(approval: Approval, *, why: str) -> None:
    """The desk itself takes a question or an unused grant back, because it no longer fits."""
    move(
        approval,
        ApprovalState.WITHDRAWN,
        moves=APPROVAL_MOVES,
        decided_at=Now(),
        closing_reason=why[:REASON_CHARACTERS_MAX],
    )
    record(approval, EventType.APPROVAL_WITHDRAWN, reason=approval.closing_reason)
    notifications.ended(approval)
    publish_on_commit(approval.pk, approval.subject_kind)


@transaction.atomic
def ask_for_plan(
    workspace: Workspace,
    plan_id: int,
    *,
    case_ref: str,
    digest: str = "",
    accounts: Mapping[str, Any] | None = None,
    calls: Sequence[CallFacts],
    judgement: PolicyDecision,
    headline: str,
    previews: Sequence[Mapping[str, Any]],
    by: User | None,
    reason: str,
    amount: Money | None = None,
    run: str = "",
    agent: Agent | None = None,
    affected: Iterable[Mapping[str, Any] | None] = (),
    expires_seconds: int = PLAN_EXPIRES_SECONDS,
) -> Approval:
    """Put a whole plan in front of the people whom the policy names.

    `digest` is the plan's own, by which people find it again on preview, case and card; `accounts`
    are those that its calls go to, by connection and purpose. `agent` is the agent of the run that
    is compensated: its owner never counts. The requester `by` is None where the policy itself
    started the plan; `affected` ({id, name, contact}) are asked first where a rule says so. Raises
    NobodyToAsk.
    """
    subject = {"kind": "plan", "id": plan_id, "case": case_ref}
    subject |= {"digest": digest} if digest else {}
    subject |= {"accounts": accounts} if accounts and any(accounts.values()) else {}
    return _ask(
        Approval(
            workspace=workspace,
            subject_kind=SubjectKind.PLAN,
            plan_id=plan_id,
            subject_key=f"plan {plan_id}",
            subject=subject,
            run_ref=run,
            case_ref=case_ref,
            headline=shortened(headline),
            previews=[dict(one) for one in previews],
            agent=agent,
            agent_owner=agent.owner if agent else None,
            requested_by=by,
            reason=reason,
            amount_minor=amount.in_column if amount else None,
            currency=amount.currency if amount else "",
        ),
        calls,
        judgement,
        judgement.expires_seconds or expires_seconds,
        consent_requests.affected(affected),
    )


def _ask(
    approval: Approval,
    calls: Sequence[CallFacts],
    judgement: PolicyDecision,
    expires_seconds: int,
    affected: Sequence[consent_requests.AffectedPerson],
) -> Approval:
    if lacking := _why_not_affected(judgement, affected):
        raise NobodyToAsk(lacking)
    now = database_time()
    needs = teams_of(approval.workspace, judgement.requires or (RequiredApprovers(None, 1),))
    approval.asked_at = now
    approval.expires_at = now + timedelta(seconds=expires_seconds)
    approval.remind_at = now + timedelta(seconds=expires_seconds / 2)
    if (later := judgement.escalate) and later.seconds < expires_seconds:
        approval.escalate_at = now + timedelta(seconds=later.seconds)
    approval.calls = [one.as_json() | {"digest": digests.call_digest(one)} for one in calls]
    approval.targets = card_context.targets_of(approval.calls)
    approval.rules = list(judgement.rules)
    approval.risk = judgement.risk
    approval.self_approval = judgement.self_approval
    approval.fresh_login = judgement.fresh_login
    approval.signed = judgement.signed
    approval.affected = judgement.affected
    approval.digest = digests.digest_with(approval, approval.calls)
    approval.save(force_insert=True)
    Requirement.objects.bulk_create(
        Requirement(approval=approval, team=team, count=need.count, position=place)
        for place, (need, team) in enumerate(needs)
    )
    asker = approval.requested_by
    record(approval, EventType.APPROVAL_REQUESTED, by=asker, **requested(approval, needs))
    notifications.asked(approval)
    if judgement.affected:
        consent_requests.ask(approval, affected, judgement.affected_words)
    return approval


def why_no_team(workspace: Workspace, requires: Sequence[RequiredApprovers]) -> str:
    """Why a question could not be put to the teams that the policy names; empty where it could."""
    try:
        teams_of(workspace, requires)
    except NobodyToAsk as nobody:
        return str(nobody)
    return ""


def why_not_affected(
    judgement: PolicyDecision, affected: Iterable[Mapping[str, Any] | None]
) -> str:
    """Why the affected person could not be asked first where the rule wants that; else empty."""
    return _why_not_affected(judgement, consent_requests.affected(affected))


def _why_not_affected(
    judgement: PolicyDecision, affected: Sequence[consent_requests.AffectedPerson]
) -> str:
    if judgement.affected != "must" or 0 < len(affected) <= consent_requests.PEOPLE_MAX:
        return ""
    named = "too many to ask" if affected else "nobody"
    return f"the rule asks the affected person first, and the record names {named}"


def shortened(title: str) -> str:
    """The title as a headline: a longer one says that it goes on; the card shows it in full."""
    whole = len(title) <= HEADLINE_CHARACTERS_MAX
    return title if whole else f"{title[: HEADLINE_CHARACTERS_MAX - 1]}…"


def teams_of(
    workspace: Workspace, needs: Sequence[RequiredApprovers]
) -> list[tuple[RequiredApprovers, Team | None]]:
    """Each need with its team. Raises NobodyToAsk where the workspace has no such team."""
    names = [need.team for need in needs if need.team]
    teams = {team.name: team for team in Team.objects.filter(workspace=workspace, name__in=names)}
    for name in names:
        if name not in teams:
            raise NobodyToAsk(
                f"the policy asks team “{name}”, which {workspace.name} does not have"
            )
    return [(need, teams[need.team] if need.team else None) for need in needs]


def requested(
    approval: Approval, needs: Sequence[tuple[RequiredApprovers, Team | None]]
) -> dict[str, Any]:
    """What the ledger keeps of the question."""
    return {
        "subject": approval.subject,
        "headline": approval.headline,
        "risk": approval.risk,
        "rules": approval.rules,
        "requires": [{"group": need.team, "count": need.count} for need, _ in needs],
        "expires_at": approval.expires_at.isoformat(),
        "affected": approval.affected,
        "reason": approval.reason,
        **({"signed": True} if approval.signed else {}),
    }


BATCH = 200
RAN_WITHOUT = "the call was made without it"


def sweep() -> int:
    """Withdraw what is moot; how many."""
    found = _moot(Approval.objects.living()).only("pk", "workspace_id", "run_ref")
    return each(found.order_by("pk")[:BATCH], _withdraw)


def _moot(approvals: QuerySet[Approval]) -> QuerySet[Any]:
    """Those of calls whose run is over, or which were made meanwhile, with the reason as `why`."""
    return (
        approvals.filter(subject_kind=SubjectKind.ACTION)
        .annotate(
            why=Case(
                When(Exists(_past_the_gate()), then=Value(RAN_WITHOUT)),
                When(
                    ~Q(action__run__state=RunState.RUNNING),
                    then=Concat(Value("its run has "), F("action__run__state")),
                ),
                When(
                    ~Q(action__run__held_by="")
                    & ~Q(action__run__held_by__startswith=BY_A_RESTORE),  # that one goes on
                    then=Value("its run was stopped for recovery"),
                ),
                default=Value(""),
                output_field=CharField(),
            )
        )
        .exclude(why="")
    )


def _past_the_gate() -> QuerySet[Attempt]:
    """Tries under the key that no `begin` has let through, and that began or ended since.

    The index by keys has no empty ones, and is used where none is asked for. Without that each
    question that waits had all actions of the desk read for it.
    """
    since = OuterRef("asked_at")
    return Attempt.objects.filter(
        Q(started_at__gt=since) | Q(finished_at__gt=since),
        ~Q(state=AttemptState.NO_EFFECT),
        ~Q(action__key=""),
        action__agent=OuterRef("agent"),
        action__key=OuterRef("action__key"),
        fence=None,
    )


@transaction.atomic
def _withdraw(approval: Approval) -> bool:
    row = locked(approval)
    why = _moot(Approval.objects.living().filter(pk=row.pk)).values_list("why", flat=True).first()
    if not why:
        return False
    void(row, why=why)
    return True
