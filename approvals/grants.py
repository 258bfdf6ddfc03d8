"""Grants: what was approved runs once, while those who approved it still may.

A yes can be for later: the call is approved and waits until its moment has come. Whoever says yes
names it; where several do, the latest counts. It can only hold up what was approved: the digest,
the end and everybody's part stay as they are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import (
    BooleanField,
    Case,
    Count,
    Exists,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    TextField,
    Value,
    When,
)
from django.db.models.expressions import RawSQL
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce, Now

from amends.protocol.vocabulary import EventType
from approvals import argument_fields, deciders, digests, glass_eligibility, signatures
from approvals.deciders import locked
from approvals.digests import CallFacts, record
from approvals.models import Approval, ApprovalState, GrantUse, Pause, SubjectKind
from approvals.policy import PolicyDecision, RequiredApprovers
from approvals.policy.decisions import ASKING, Escalation
from ledger.canonical import canonical_of as canonical
from ledger.canonical import digest as canonical_digest
from ledger.models import Action, ActionState, Attempt, AttemptState, Event
from workspaces import formatting
from workspaces.free_text import InvalidInput
from workspaces.models import User, Workspace

KEPT_MAX = 64
"""Approvals whose calls a process remembers; a plan is at work on one for a while."""

NO_ACCOUNTS: Mapping[str, Mapping[str, str]] = {}

OTHER_ACCOUNTS = "Its plan says other accounts than those that were approved."

HAS_LEFT = "One who approved it may no longer do so."
UNRECORDED = "The ledger does not tell that anybody approved it."

PAUSED_BY_THE_DESK = Pause.objects.standing().filter(paused_by=None)

LIGHT = ("workspace", "digest", "state", "self_approval", "signed", "requested_by", "agent_owner")

# Whether the ledger tells of every yes under an approval.
RECORDED = "approvals_is_recorded(approvals_approval.id)"


def recorded() -> RawSQL:
    return RawSQL(RECORDED, (), output_field=BooleanField())  # noqa: S611 - our own words


def is_recorded(approval: Approval) -> bool:
    """Whether the ledger tells of every yes under it."""
    return Approval.objects.filter(recorded(), pk=approval.pk).exists()


@transaction.atomic
def use(approval_id: int, digest: str, *, attempt: str = "") -> bool:
    """Use the grant if it is granted, unused, of this digest, by the database's clock alive, told
    of by the ledger, signed where it has to be, and the desk itself holds nothing back.

    One conditional UPDATE: of any number of callers one hears True. `attempt` is the try of an
    agent's call that has used it.
    """
    held = PAUSED_BY_THE_DESK.filter(workspace=OuterRef("workspace"))
    asked = Approval.objects.select_related("workspace", "action")
    if unsigned(asked.get(pk=approval_id)):
        return False
    moved = Approval.objects.filter(
        Q(not_before=None) | Q(not_before__lte=Now()),
        ~Exists(held),
        recorded(),
        pk=approval_id,
        state=ApprovalState.GRANTED,
        digest=digest,
        expires_at__gt=Now(),
    ).update(was=ApprovalState.GRANTED, state=ApprovalState.USED, used_at=Now(), used_by=attempt)
    if not moved:
        return False
    approval = Approval.objects.select_related("workspace", "action").get(pk=approval_id)
    record(approval, EventType.APPROVAL_USED, subject=approval.subject)
    return True


class Hindrance(NamedTuple):
    """Why a grant could not be used: the code under which `begin` denies, and words for people."""

    code: str
    words: str


def why_unused(approval_id: int, digest: str, *, now: datetime) -> Hindrance:
    """Why `use` has just said no, in the same transaction, under the lock of the approval."""
    approval = Approval.objects.select_related("workspace", "action").get(pk=approval_id)
    if why := unsigned(approval):
        return Hindrance("not_approved", f"its signatures do not stand: {why}")
    if not is_recorded(approval):
        return Hindrance("not_approved", "the ledger does not tell that people approved it")
    if approval.digest != digest or approval.state != ApprovalState.GRANTED:
        return Hindrance("not_approved", "it is not what was approved, or no longer")
    held = PAUSED_BY_THE_DESK.filter(workspace=approval.workspace_id)
    for why in held.values_list("reason", flat=True)[:1]:
        return Hindrance("paused", f"the desk itself has paused everything here: {why}")
    if is_early(approval, now):
        return Hindrance("paused", "it was approved for later")
    return Hindrance("expired", "the grant was not used in time")


# What a bounded grant is bound to, and what it has let pass.


def rules_digest(rules: Iterable[Mapping[str, Any]]) -> str:
    """Of rules, without what was found because of them."""
    told = [{name: one for name, one in rule.items() if name != "facts"} for rule in rules]
    return canonical_digest(sorted(told, key=canonical))


CALLS, IN_ALL = "Calls", "In all at most"
SAID_BY_USE = {CALLS, IN_ALL}
"""Terms that the words of how much is used up say, too."""


def preview(approval: Approval, bounded: Mapping[str, Any]) -> dict[str, Any]:
    """What a bounded grant of these terms lets pass, for whoever is asked about it."""
    tool = formatting.named(approval.calls[0]["operation"])
    plural = "s" * (bounded["uses"] != 1)
    each, total = (amount(bounded, bounded[one]) if bounded[one] else "" for one in ("each", "sum"))
    up_to = f", {total} in all" if total else ""
    target = bounded["target"]
    rows = [
        ["Agent", str(approval.agent)],
        ["On", _on(target, bounded.get("listed"))],
        [CALLS, str(bounded["uses"])],
        *([["Each at most", each]] if each else []),
        *([[IN_ALL, total]] if total else []),
        *(_stays(path, str(one)) for path, one in bounded["same"].items()),
        ["For", f"{formatting.span(timedelta(seconds=bounded['seconds']))} from the first yes on"],
    ]
    return {
        "kind": "http",
        "title": f"Up to {bounded['uses']} more call{plural} of {tool}{up_to}",
        "rows": rows,
        "args": [],
        "money": None,
        "recipients": [],
    }


def _stays(path: str, value: str) -> list[str]:
    field = argument_fields.words_of(path)
    is_currency = field.endswith("currency") or value.upper() in formatting.EXPONENTS
    is_code = is_currency and value.isascii()
    return [f"Same {field}", value.upper() if is_code else formatting.one_line(value)]


def _on(target: Mapping[str, str] | None, listed: Mapping[str, Any] | None) -> str:
    if listed:
        version = listed["version"]
        return f"what stood on the list {listed['list']} in version {version}, and still does"
    return f"{target['type']} {target['id']}" if target else "any target of the rule"


class Drawdown(NamedTuple):
    """How many calls, and how much they come to."""

    calls: int
    total: Decimal

    @classmethod
    def of(cls, uses: QuerySet[GrantUse]) -> "Drawdown":
        found = uses.aggregate(count=Count("pk"), total=Sum("amount"))
        return cls(found["count"], found["total"] or Decimal(0))


def bounded_in(workspace: Workspace) -> QuerySet[Approval]:
    """Bounded grants; they have no action, by which an index tells them from answers to calls."""
    return Approval.objects.filter(
        workspace=workspace, subject_kind=SubjectKind.GRANT, action__isnull=True
    )


def drawn(approval: Approval) -> QuerySet[GrantUse]:
    """The uses that count: those of tries that are not known to have had no effect. What has let a
    later try of the call pass is another use, or no use of a grant.
    """
    calls = Action.objects.filter(
        workspace=approval.workspace_id, run__run=OuterRef("run_ref"), action=OuterRef("action")
    )
    let_pass = tries_since_use(approval.workspace_id)
    had_none = Case(When(known_without_effect(), then=True), default=False)
    first = let_pass.values(had_none=had_none)[:1]
    uses = GrantUse.objects.filter(approval=approval).exclude(
        Exists(calls.filter(state=ActionState.FAILED))
    )
    known = Coalesce(Subquery(first), Value(value=False))  # what was erased, say, counts
    return uses.alias(given_back=known).filter(given_back=False)


def known_without_effect() -> Q:
    """Of tries: that they are known to have had none. A success may be told once a later one has
    begun; that is stale and settles nothing, and neither then is the try known to have had none.
    """
    successes = Event.objects.filter(
        workspace=OuterRef("action__workspace"), run=OuterRef("action__run__run"),
        action=OuterRef("action__action"), type=EventType.ACTION_SUCCEEDED,
    )  # fmt: skip
    attempt = KeyTextTransform("attempt", "data")
    of_which = Coalesce(attempt, Value(""), output_field=TextField())
    told = successes.alias(of=of_which).filter(of__in=[OuterRef("attempt"), Value("")])
    return Q(state=AttemptState.NO_EFFECT) & (Q(stale=False) | ~Q(Exists(told)))


def tries_since_use(workspace: int | OuterRef) -> QuerySet[Attempt]:
    """Of the call of a use the tries since; the first of them is the one that it let pass."""
    return Attempt.objects.filter(
        action__workspace=workspace, action__run__run=OuterRef("run_ref"),
        action__action=OuterRef("action"), started_at__gte=OuterRef("at"),
    ).order_by("fence")  # fmt: skip


def amount(terms: Mapping[str, Any], number: Decimal | str) -> str:
    """A number of a bounded grant's terms, as money where it is known to be some."""
    found, currency = Decimal(number), terms.get("currency")
    if currency and found == int(found):
        return formatting.money(int(found), currency)
    return f"{found.normalize():f}"


def drawn_words(approval: Approval, used: Drawdown | None = None) -> str:
    """“3 of 9 calls used, 210 of 500 in all”, of a bounded grant."""
    used = used or Drawdown.of(drawn(approval))
    if not approval.calls:  # erased
        return f"{used.calls} call{'s' if used.calls != 1 else ''} used"
    terms = approval.calls[0]["more"]["bounded"]
    most = terms["sum"]
    in_all = f", {amount(terms, used.total)} of {amount(terms, most)} in all" if most else ""
    return f"{used.calls} of {terms['uses']} call{'s' if terms['uses'] != 1 else ''} used{in_all}"


def drawn_percent(approval: Approval, used: Drawdown) -> int:
    """How much of a bounded grant is used, in calls or in all, whichever is nearer its end."""
    if not approval.calls:  # erased
        return 0
    terms = approval.calls[0]["more"]["bounded"]
    shares: list[float] = [used.calls / terms["uses"]]
    if terms["sum"]:
        shares.append(float(used.total / Decimal(terms["sum"])))
    return min(100, round(100 * max(shares)))


def unsigned(approval: Approval, *, wanted: bool = False) -> str:
    """Why the yes of its people is not signed as it has to be, in words; empty where it is.

    `wanted` is what the policy says now: the approval's own row says it only as its writer did.
    """
    return signatures.lacking(approval) if approval.signed or wanted else ""


def unproven(approval: Approval) -> str:
    """Why the yes on an approval's row starts nothing, and never will, in words; empty where it is
    told of by the ledger, and signed where it has to be.
    """
    if why := unsigned(approval):
        return f"Its signatures do not stand: {why}."
    return "" if is_recorded(approval) else UNRECORDED


def lost(
    approval_id: int,
    call_digest: str,
    *,
    accounts: Mapping[str, Mapping[str, str]] = NO_ACCOUNTS,
    signed: bool = False,
) -> str:
    """Why a call may no longer be made under this approval, which its plan has used; or nothing.

    A plan asks before each of its calls, so what grows with the plan is not read here. `accounts`:
    by connection and purpose, those that the plan says it goes to; `signed`: the policy wants each
    yes signed.
    """
    rows = Approval.objects.select_related("workspace").only(*LIGHT)
    approval = rows.prefetch_related("decisions", "requirements").get(pk=approval_id)
    if approval.state != ApprovalState.USED:
        return "Its approval is no longer in force."
    try:
        _told_of(approval.pk, approval.digest, _yes(approval))
    except NotRecorded:
        return UNRECORDED
    calls = _calls_of(approval.pk, approval.digest)
    if call_digest not in calls.digests:
        return "This call is not among those that were approved."
    if calls.accounts != (accounts if any(accounts.values()) else {}):
        return OTHER_ACCOUNTS
    if approval.signed or signed:
        whole = Approval.objects.select_related("workspace", "action").get(pk=approval_id)
        if why := unsigned(whole, wanted=True):
            return f"Its signatures do not stand: {why}."
    return "" if still_entitled(approval) else HAS_LEFT


class NotRecorded(Exception):
    """The ledger does not tell of every yes under an approval."""


def _yes(approval: Approval) -> frozenset[tuple[int, int | None, bool]]:
    """Who has said yes, and in which right."""
    given = [one for one in approval.decisions.all() if one.granted]
    return frozenset((one.person_id, one.delegation_id, one.break_glass) for one in given)


@lru_cache(maxsize=KEPT_MAX)
def _told_of(approval_id: int, digest: str, yes: frozenset[tuple[int, int | None, bool]]) -> None:
    """Raises NotRecorded unless the ledger tells of each of these answers to these very bytes.

    What the ledger has told it tells for ever, so a process searches for it once, however long the
    plan; a refusal is not remembered. `yes` is from the rows as they are now: whoever changes one
    has it searched for anew.
    """
    approval = Approval.objects.only("digest").prefetch_related("decisions").get(pk=approval_id)
    if (approval.digest, _yes(approval)) != (digest, yes) or not is_recorded(approval):
        raise NotRecorded


class ApprovedCalls(NamedTuple):
    """The digests of calls, and the accounts that they go to, where some are told."""

    digests: frozenset[str]
    accounts: Mapping[str, Mapping[str, str]]


@lru_cache(maxsize=KEPT_MAX)
def _calls_of(approval_id: int, digest: str) -> ApprovedCalls:
    """The calls and accounts that add up to `digest`, which is what people approved.

    No others do, so they may be remembered: whoever changes the row changes its digest, too, or
    approves nothing with it.
    """
    approval = Approval.objects.select_related("workspace").get(pk=approval_id)
    found = [str(one.get("digest")) for one in approval.calls]
    approved = found if digests.digest_over(approval, found) == digest else ()
    return ApprovedCalls(frozenset(approved), approval.subject.get("accounts", {}))


def differences(
    approval: Approval, calls: Sequence[CallFacts]
) -> list[list[digests.ArgumentChange]]:
    """Per call, what differs between approved and present, field by field."""
    if len(calls) != len(approval.calls):
        return [[digests.ArgumentChange("calls", len(approval.calls), len(calls))]]
    return [
        digests.diff(approved, now) for approved, now in zip(approval.calls, calls, strict=True)
    ]


def still_entitled(approval: Approval) -> bool:
    """Whether everybody who had to approve did, is still active and still stands in the team; or
    two broke the glass in their place, and still may.
    """
    return deciders.progress(approval).complete or glass_eligibility.stands(approval)


def suffices(approval: Approval, judgement: PolicyDecision) -> bool:
    """Whether the policy as it is now asks for no more than was approved.

    Where it no longer lets people approve their own, or no longer asks the second team that was
    asked as nobody had decided in time, what was approved so is asked anew.
    """
    if judgement.stricter_than(asked_by(approval, judgement)):
        return False
    if rests_on_escalation(approval, lambda team, second: judgement.escalates(team) == second):
        return False
    return judgement.self_approval or not rests_on_own(approval)


def rests_on_own(approval: Approval) -> bool:
    """Whether somebody who asked, or owns the agent, is among those who said yes."""
    return approval.decisions.filter(granted=True, person__in=approval.askers).exists()


def rests_on_escalation(approval: Approval, still: Callable[[str | None, str], bool]) -> bool:
    """Whether what was approved is enough only because a second team was asked, which would be
    asked in the first one's place no longer: `still` is given the names of both.
    """
    if approval.escalated_at is None or approval.state == ApprovalState.WAITING:
        return False
    rows = approval.requirements.exclude(escalated_to=None).select_related("team", "escalated_to")
    gone = {
        one.pk
        for one in rows
        if one.escalated_to
        and not still(one.team.name if one.team else None, one.escalated_to.name)
    }
    if not gone:
        return False
    whole = Approval.objects.select_related("workspace", "action")
    unasked = whole.prefetch_related("decisions", "requirements").get(pk=approval.pk)
    for one in deciders.required(unasked):
        if one.pk in gone:
            one.escalated_to = None
    return not (deciders.progress(unasked).complete or glass_eligibility.stands(approval))


def required_of(approval: Approval) -> tuple[RequiredApprovers, ...]:
    """Whom it was asked of, as the policy puts it."""
    return tuple(
        RequiredApprovers(one.team.name if one.team else None, one.count)
        for one in approval.requirements.select_related("team").order_by("position")
    )


def asked_by(approval: Approval, now: PolicyDecision) -> PolicyDecision:
    """What the policy asked for when the approval was asked, beside what it asks for `now`."""
    told = [one["escalate"] for one in approval.rules if one.get("escalate")]
    return PolicyDecision(
        approval="MANUAL",
        risk=now.risk,
        action_class=now.action_class,
        requires=required_of(approval),
        fresh_login=approval.fresh_login,
        signed=approval.signed,
        self_approval=approval.self_approval,
        affected=next((one for one in ASKING if one == approval.affected), ""),
        escalate=min((Escalation(int(one["seconds"]), one["team"]) for one in told), default=None),
        why="; ".join(str(rule.get("words") or "") for rule in approval.rules),
    )


LATER_ONLY_CALLS = "A moment is named for a call of an agent alone."
LATER_NOT_SIGNED = "Each yes is signed by its person, and what they sign names no moment."


def why_not_later(approval: Approval) -> str:
    """Why no moment can be named for it, in words; empty where one can."""
    if approval.subject_kind != SubjectKind.ACTION:
        return LATER_ONLY_CALLS
    return LATER_NOT_SIGNED if approval.signed else ""


def is_early(approval: Approval, now: datetime) -> bool:
    """Whether it was approved, and for later than now."""
    later = approval.not_before
    return approval.state == ApprovalState.GRANTED and later is not None and later > now


@transaction.atomic
def put_off(approval: Approval, until: datetime, *, by: User, now: datetime) -> Approval:
    """Let the call wait until then, once it is approved. Raises InvalidInput for a moment that is
    over, or after which nothing could be done any more.
    """
    row = locked(approval)
    if why := why_not_later(row):
        raise InvalidInput(why)
    if until <= now:
        raise InvalidInput("Not before: that moment is over.")
    if until >= row.expires_at:
        raise InvalidInput("Not before: the question expires before that moment.")
    latest = max(until, row.not_before or until)
    Approval.objects.filter(pk=row.pk).update(not_before=latest)
    record(row, EventType.APPROVAL_PUT_OFF, by=by, until=latest.isoformat())
    row.not_before = latest
    return row
