"""The table of `begin` (docs/architecture.md): from what is known of a call to its decision.

A pure function, `decide`: the first row of the table that fits. What a decision has to write is in
`slow_path_statements` and `slow_path`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from amends.protocol.masking import same
from amends.protocol.vocabulary import WITHOUT_EFFECT
from approvals.gate.begin_context import (
    BeginContext,
    KnownAction,
    KnownApproval,
    Paused,
    as_approved,
    as_asked,
)
from approvals.gate.begin_request import BeginRequest
from approvals.models import LIVING, RESTORED, ApprovalState, PauseKind, pause_fits
from approvals.policy import LookupResult, Policy, PolicyDecision, any_pivot, judge
from edge.asgi import Problem, Refused, problem
from ledger.canonical import digest
from ledger.fold.runs import BY_A_RESTORE
from ledger.models import ActionState, Compensated, RunState
from workspaces import formatting

NOTHING_YET = frozenset({ActionState.PLANNED, ActionState.APPROVED})
NOTHING_BEGUN = NOTHING_YET | {ActionState.FAILED}
SAGA_AFTER_PIVOT = "retriable"
GENERATION = "~"
BY_RULE = "rule"
CHANGED = "an approver has changed its arguments"
KEY_CHARACTERS_MAX = 200
NUMBER_CHARACTERS_MAX = 8
NOT_COMPARABLE = problem(
    "not-comparable",
    "A masked value cannot be compared",
    422,
    "It was masked without a mark, by an older client or one that had not reached the desk: it"
    " cannot be told which value it was. Nothing was done. Let the client fetch the policy, and"
    " call again; where this key was used that way, look first whether the call was made.",
)


class TryUnderWay(Problem, frozen=True, kw_only=True):
    """The problem of a call that another try has in hand."""

    lease_until: str


KEY_REUSED = problem(
    "key-reused",
    "Other arguments were sent under this key",
    422,
    "A second operation needs an “op” or a key of its own. A case was opened.",
)


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """Answer with this body; nothing is written but, with `renews`, the leases."""

    body: dict[str, Any]
    renews: bool = False


@dataclass(frozen=True, slots=True)
class Proceed:
    """The call may be made: write the plan and the start of this try, with the next fence."""

    run: str
    action: str
    fence: int
    is_planned: bool
    replaces: bool = False
    arguments: dict[str, Any] | None = None
    """Those to make the call with, where an approver has changed them."""
    approval: int = 0
    """The yes that lets it pass, of this call or a bounded grant, if one does."""

    def as_body(self, until: datetime) -> dict[str, Any]:
        body = proceed_body(self.fence, until) | {"action": self.action, "run": self.run}
        body |= {"approval": str(self.approval)} if self.approval else {}
        return body if self.arguments is None else body | {"arguments": self.arguments}


@dataclass(frozen=True, slots=True)
class UseGrant:
    """Use this grant, if it still holds, and proceed; otherwise ask anew."""

    approval: int
    proceed: Proceed


@dataclass(frozen=True, slots=True)
class ChangedReplay:
    """The answer of a try that was let through with changed arguments, if these still stand."""

    approval: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ApprovalRequired:
    """People have to approve it; `note` says why it is asked again."""

    proceed: Proceed
    note: str = ""


@dataclass(frozen=True, slots=True)
class Denied:
    """Refused by rule, pause, state or people. Recorded once for each code of a key."""

    code: str
    reason: str
    more: dict[str, Any] = field(default_factory=dict)

    def as_body(self) -> dict[str, Any]:
        return {"answer": "denied", "code": self.code, "reason": self.reason, **self.more}


@dataclass(frozen=True, slots=True)
class InDoubt:
    """It may have happened. `is_new` says that the ledger does not know of the doubt yet."""

    known: KnownAction
    is_new: bool

    def as_body(self) -> dict[str, Any]:
        return _of(self.known, {"answer": "in_doubt"})


@dataclass(frozen=True, slots=True)
class InProgress:
    """Another try has the key: who asks waits for its outcome, or until its lease ends."""

    now: datetime
    until: datetime

    def as_reply(self) -> "BeginResponse":
        seconds = max(1, round((self.until - self.now).total_seconds()))
        what = TryUnderWay(
            "urn:amends:problem:in-progress",
            "Another try is under way",
            409,
            "Its lease is not over.",
            lease_until=self.until.isoformat(),
        )
        return BeginResponse(what, (("retry-after", str(seconds)),))


@dataclass(frozen=True, slots=True)
class KeyReused:
    """Other arguments under the key: refused, flagged, and a case."""

    known: KnownAction


@dataclass(frozen=True, slots=True)
class LostInRestore:
    """The run lived when the backup was taken from which the desk was restored, and nothing is
    known of the call: it may have been made since. The try is recorded as one of unknown outcome.
    """

    proceed: Proceed

    def as_body(self) -> dict[str, Any]:
        return {"answer": "in_doubt", "action": self.proceed.action, "run": self.proceed.run}


Repeated = KnownAnswer | ChangedReplay
NotMade = Denied | InDoubt | InProgress | KeyReused | LostInRestore
Decision = Repeated | Proceed | UseGrant | ApprovalRequired | NotMade
Findings = Mapping[str, LookupResult]


def decide(
    request: BeginRequest, context: BeginContext, policy: Policy, findings: Findings
) -> tuple[Decision, PolicyDecision]:
    """The first row of the table that fits, and the policy's judgement of the call. `findings` are
    the results of the policy's lookups. Raises Refused for a call that cannot be answered at all:
    of another agent's run, under an action id of another call, or not comparable.
    """
    _check_whose(request, context)
    judgement = judged(request, context, policy, findings)
    known = as_asked(request, _binding_action(request, context), context)
    _check_comparable(request, context, known, judgement)
    is_asked_anew = known and known.holds_bare and known.state in NOTHING_YET
    if (
        known
        and known.state != ActionState.FAILED
        and not is_asked_anew
        and _differs(request, known)
    ):
        return KeyReused(known), judgement
    paused = pause_of(request, context.pauses, policy)
    denied = Denied("paused", paused) if paused else _denied(context, judgement, known)
    if denied is not None:
        return denied, judgement
    if known is None or known.state in NOTHING_BEGUN:
        return _before_begun(request, context, judgement, known), judgement
    return _after_begun(request, context, known), judgement


def _check_whose(request: BeginRequest, context: BeginContext) -> None:
    if context.run is not None and context.run.agent_id != request.actor.agent_id:
        raise Refused(problem("not-your-run", "The run belongs to another agent", 403))
    if context.other_key is not None:
        raise Refused(
            problem(
                "action-reused",
                "The action id belongs to another call",
                422,
                "A second call needs an action id of its own.",
            )
        )


def _check_comparable(
    request: BeginRequest,
    context: BeginContext,
    known: KnownAction | None,
    judgement: PolicyDecision,
) -> None:
    """Refuse a call that would rest on a comparison which nobody can make.

    A placeholder without a mark says that something was masked, not what. People would approve any
    value, and a second call under the key could be another. What a question was asked about in that
    form, before anything began, is put to people anew.
    """
    bare = request.holds_bare
    if bare and (judgement.approval == "MANUAL" or context.approval is not None):
        raise Refused(NOT_COMPARABLE)
    if known is None or known.state == ActionState.FAILED or not (bare or known.holds_bare):
        return
    if known.state in NOTHING_YET and not bare:
        return
    if known.attempt == request.attempt and not _differs(request, known):
        return  # its answer was lost on the way: the same try, not a second call
    raise Refused(NOT_COMPARABLE)


def judged(
    request: BeginRequest, context: BeginContext, policy: Policy, findings: Findings
) -> PolicyDecision:
    """The policy's judgement of what would run, and the ordering law's if it is stricter. What an
    approver has changed is never made unasked.
    """
    call = as_approved(request, context)
    judgement = judge(policy, call.tool_call(context.labels, findings))
    breach = order_breach(request, context, policy, judgement)
    if breach and policy.order_law == "DENY" and judgement.approval != "DENY":
        return replace(judgement, approval="DENY", why=breach)
    if breach and policy.order_law == "ASK" and judgement.approval != "DENY":
        return judgement.asked_by_order(breach)
    if context.change is not None and judgement.approval == "AUTO":
        return judgement.but_asked(f"{CHANGED}; {judgement.why}")
    return judgement


def order_breach(
    request: BeginRequest, context: BeginContext, policy: Policy, judgement: PolicyDecision
) -> str:
    """Compensatable first, one pivot, then only what can be retried; empty if the law holds."""
    run = context.run
    if run is None or not (run.pivot_passed or any_pivot(policy, run.without_place)):
        return ""
    return breach_after_pivot(request, judgement.action_class)


def breach_after_pivot(request: BeginRequest, action_class: str) -> str:
    """What the law says against this call where the run's pivot has passed."""
    if action_class in WITHOUT_EFFECT:
        return ""
    saga = request.data.get("saga") or ""
    if saga == "pivot":
        return "a second pivot in this run"
    if saga != SAGA_AFTER_PIVOT:
        return "after the pivot only what can be retried may follow"
    return ""


def _binding_action(request: BeginRequest, context: BeginContext) -> KnownAction | None:
    """The action of this key. One of another run that never began does not bind this run."""
    known = context.action
    if known and known.run != request.planned.run and known.state in NOTHING_BEGUN:
        return None
    return known


def _differs(request: BeginRequest, known: KnownAction) -> bool:
    """Whether it is another call; the same one is masked otherwise where the policy's paths have
    changed between.
    """
    if not known.args_digest or known.other_call is None:
        return False
    key = request.actor.masking_key
    now = {"tool": request.tool, "targets": request.targets, "args": request.data.get("args")}
    return key is None or not same(dict(known.other_call), now, key)


def _is_replanned(request: BeginRequest, known: KnownAction) -> bool:
    """Whether what the ledger has of the plan is not what is asked for now.

    What the target looked like before counts: recovery restores that, and between two tries
    somebody may have changed it. What is left out now stands as it was planned.
    """
    if _differs(request, known) or known.was_changed or not known.args_digest:
        return bool(known.args_digest)
    if digest(known.compensation) != digest(request.data.get("compensation")):
        return True
    said = {name: request.data[name] for name in known.plan or () if name in request.data}
    return any(digest((known.plan or {})[name]) != digest(now) for name, now in said.items())


def _denied(
    context: BeginContext, judgement: PolicyDecision, known: KnownAction | None
) -> Denied | None:
    if judgement.approval == "DENY":
        return Denied(BY_RULE, judgement.why)
    run = context.run
    if run is not None:
        if run.held_by and not run.held_by.startswith(BY_A_RESTORE):
            return Denied("recovery", f"the run is under recovery ({run.held_by})")
        if run.state != RunState.RUNNING:
            return Denied("run_ended", f"the run has {run.state}")
        if run.verification_failed:
            return Denied("verification", "a verification in this run has failed")
    approval = context.approval
    fresh = known is None or known.state in NOTHING_BEGUN
    if approval is not None and fresh:
        return _denied_by_people(approval)
    return None


def pause_of(request: BeginRequest, pauses: Sequence[Paused], policy: Policy) -> str:
    """The pause that stops this call, in words; empty if none does.

    A connection stands for its system: its pause stops the tools that are undone over it.
    """
    for one in pauses:
        over = _undone_over(request, policy) if one.kind == PauseKind.CONNECTION else ()
        if pause_fits(
            one.kind,
            one.name,
            agent=request.actor.name,
            run=request.planned.run,
            tool=request.tool,
            connections=over,
        ):
            return paused_by(one.kind, one.name, one.reason, one.by)
    return ""


def _undone_over(request: BeginRequest, policy: Policy) -> set[str]:
    twins = (policy.twin(request.tool, str(one.get("type", ""))) for one in request.targets or [{}])
    return {twin.connection for twin in twins if twin is not None}


def paused_by(kind: str, name: str, reason: str, by: str) -> str:
    what = "everything here" if kind == PauseKind.WORKSPACE else f"{kind} {formatting.named(name)}"
    return f"{by} has paused {what}: {reason}"


def _denied_by_people(approval: KnownApproval) -> Denied | None:
    more = {"approval": str(approval.id)}
    if approval.state == ApprovalState.REJECTED:
        return Denied("rejected", approval.closing_reason or "rejected", more)
    if approval.state == ApprovalState.WITHDRAWN and approval.closed_by is not None:
        return Denied("withdrawn", approval.closing_reason or "withdrawn", more)
    over = approval.is_over and approval.state in LIVING
    if approval.state == ApprovalState.EXPIRED or over:
        return Denied("expired", "nobody has answered in time, or the grant was not used", more)
    return None


def _before_begun(
    request: BeginRequest,
    context: BeginContext,
    judgement: PolicyDecision,
    known: KnownAction | None,
) -> Decision:
    if known is not None and known.this_attempt:
        raise Refused(
            problem("attempt-reused", "This attempt is over", 422, "Each try has an id of its own.")
        )
    replaces = known is not None and _is_replanned(request, known)
    proceed = Proceed(
        run=request.planned.run,
        action=known.action if known else request.planned.action,
        fence=(known.fence if known else 0) + 1,
        is_planned=known is not None and not replaces and bool(known.args_digest),
        replaces=replaces,
    )
    if _is_lost_in_restore(context):
        return LostInRestore(proceed)
    approval = context.approval
    living = approval is not None and approval.state in LIVING
    if judgement.approval == "AUTO" and not living:
        return proceed
    if approval is None or not living:
        return ApprovalRequired(proceed)
    if approval.state == ApprovalState.GRANTED or judgement.approval == "AUTO" or proceed.replaces:
        return UseGrant(approval.id, proceed)
    return KnownAnswer(wait_body(proceed.action, approval.id, approval.expires_at), renews=True)


def _is_lost_in_restore(context: BeginContext) -> bool:
    """Whether the call may have been made after the backup, and nobody was told of the doubt."""
    run = context.run
    lived = run is not None and run.held_by.startswith(BY_A_RESTORE)
    return lived and not context.denied.startswith(RESTORED)


def _after_begun(request: BeginRequest, context: BeginContext, known: KnownAction) -> Decision:
    if known.compensated in {Compensated.COMPENSATED, Compensated.PARTLY}:
        return KnownAnswer(_of(known, {"answer": "compensated", "next_key": next_key(request.key)}))
    if known.state == ActionState.SUCCEEDED:
        body: dict[str, Any] = {"answer": "replay", "result": known.result, "fence": known.fence}
        return KnownAnswer(_of(known, body))
    if known.state == ActionState.UNKNOWN:
        return InDoubt(known, is_new=False)
    if known.attempt == request.attempt and known.fence:
        return _again(context, known, request.actor.stuck_after_seconds)
    until = lease_until(request, context, known)
    if until > context.now:
        return InProgress(context.now, until)
    return InDoubt(known, is_new=True)


def _again(context: BeginContext, known: KnownAction, lease_seconds: int) -> Repeated:
    """The answer that this try was given, its lease renewed."""
    until = context.now + timedelta(seconds=lease_seconds)
    body, approval = _of(known, proceed_body(known.fence, until)), context.approval
    if approval is not None and approval.used_by == known.attempt:
        body |= {"approval": str(approval.id)}
    if context.change is None or approval is None:
        return KnownAnswer(body, renews=True)
    return ChangedReplay(approval.id, body | {"arguments": context.change["args"]})


def lease_until(request: BeginRequest, context: BeginContext, known: KnownAction) -> datetime:
    """Until when the running try has the key: as begin gave it, else from its start."""
    if context.lease_until is not None and context.lease_of == known.attempt:
        return context.lease_until
    start = known.started_at or context.now
    return start + timedelta(seconds=request.actor.stuck_after_seconds)


def _of(known: KnownAction, body: dict[str, Any]) -> dict[str, Any]:
    return body | {"action": known.action, "run": known.run}


def proceed_body(fence: int, until: datetime) -> dict[str, Any]:
    return {"answer": "proceed", "fence": fence, "lease_until": until.isoformat()}


def wait_body(action: str, approval: int, expires_at: datetime) -> dict[str, Any]:
    return {
        "answer": "wait",
        "action": action,
        "approval": str(approval),
        "expires_at": expires_at.isoformat(),
    }


def next_key(key: str) -> str:
    """The key after a compensated one: the same for whoever asks, and dead ones are never met."""
    stem, mark, number = key.rpartition(GENERATION)
    is_numbered = mark and number.isascii() and number.isdigit() and stem
    stem, generation = (stem, int(number) + 1) if is_numbered else (key, 2)
    if len(stem) > KEY_CHARACTERS_MAX - NUMBER_CHARACTERS_MAX:
        stem = f"sha256:{digest(stem)}"
    return f"{stem}{GENERATION}{generation}"


# How the answers read.


@dataclass(frozen=True, slots=True)
class BeginResponse:
    """What goes out: a body under 200, or a problem under its own status."""

    body: dict[str, Any] | Problem
    headers: tuple[tuple[str, str], ...] = ()


def with_address(body: dict[str, Any], workspace: str) -> dict[str, Any]:
    """Where people answer, added to what waits for them."""
    if "approval" not in body:
        return body
    return body | {"url": f"{settings.AMENDS_URL}/w/{workspace}/approvals/{body['approval']}/"}
