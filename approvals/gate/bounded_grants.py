"""Bounded grants: a yes for the next calls like this one, within limits that its rule allows.

It is asked for from the card of a call, of the same people, as an approval of its own: its terms
are in its digest, its end is the grant's, and taking it back ends it. `begin` draws on it under the
lock of its row, instead of asking: so no number of calls at once passes its uses or its sum, and a
revocation comes before a call or after it. A call without effect gives its use back, as with sums
(approvals/tallies.py). It lets nothing pass that its rules, word by word, do not ask people for: a
changed rule, another rule that asks, a pause or a no ends it for that call.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from amends.protocol.masking import holds_bare, without_last4
from amends.protocol.vocabulary import ActionClass, EventType, Risk
from approvals import approval_requests, digests, grants, inbox, named_lists, tallies
from approvals.digests import CallFacts
from approvals.gate.begin_request import ASKED_APART, BeginRequest
from approvals.gate.decision_table import Proceed
from approvals.models import Approval, ApprovalState, GrantUse, SubjectKind
from approvals.policy import CannotEvaluate, PolicyDecision
from approvals.policy.expressions import Expression
from approvals.policy.loading import CALL_FACTS
from ledger import desk_events
from ledger.canonical import canonical_of as canonical
from workspaces import locks
from workspaces.free_text import REASON_CHARACTERS_MAX, InvalidInput, kept_text
from workspaces.models import User, Workspace
from workspaces.moves import CannotMove

FORM = "amends bounded grant 1"
SECONDS_MIN = 60
GRANTS_LOOKED_AT_MAX = 20
"""Of an agent's living grants for one tool so many, the oldest, are looked through."""
NOTHING_DRAWN = grants.Drawdown(0, Decimal(0))
WHY = "Say why, so that whoever looks later can follow."


@dataclass(frozen=True, slots=True)
class GrantLimits:
    """The most that the rules which ask about a call let be granted ahead."""

    uses: int
    seconds: int
    amount: str
    each: int | None
    sum: int | None
    same: Sequence[str]
    listed: Mapping[str, str] | None = None
    """What may be granted for a list: the argument by its names, and the list."""

    @classmethod
    def of(cls, rules: Iterable[Mapping[str, Any]]) -> "GrantLimits | None":
        """The tightest of all that ask; None where one of them offers none."""
        asking = [one for one in rules if one.get("approval") != "AUTO"]
        told = [one["bounded"] for one in asking if one.get("bounded")]
        if not told or len(told) < len(asking) or len({one["amount"] for one in told}) > 1:
            return None
        return cls(
            uses=min(one["uses"] for one in told),
            seconds=min(one["for"] for one in told),
            amount=told[0]["amount"],
            each=_least(one["each"] for one in told),
            sum=_least(one["sum"] for one in told),
            same=sorted({path for one in told for path in one["same"]}),
            listed=told[0].get("listed")
            if all(one.get("listed") == told[0].get("listed") for one in told)
            else None,
        )


def _least(found: Iterable[int | None]) -> int | None:
    return min((one for one in found if one is not None), default=None)


@dataclass(frozen=True, slots=True)
class Terms:
    """For so many calls, each and together up to so much, on one target or any."""

    uses: int
    seconds: int
    each: Decimal | None
    sum: Decimal | None
    target: str
    """`one`, the card's; `any` of the rule; or what stands on the rule's `list`."""

    @classmethod
    def read(cls, typed: Mapping[str, str], limits: GrantLimits) -> "Terms":
        """The terms that were typed. Raises InvalidInput for what is beyond the limits."""
        uses = _number(typed.get("uses", ""), "How many calls", limits.uses)
        longest = Decimal(f"{limits.seconds / 3600:g}")  # as the page fills it in
        hours = _number(typed.get("hours", ""), "For how long", longest)
        if uses is None or hours is None:
            raise InvalidInput("Say for how many calls it is, and for how long.")
        if uses != int(uses):
            raise InvalidInput("How many calls is a whole number.")
        seconds = min(round(hours * 3600), limits.seconds)
        if seconds < SECONDS_MIN:
            raise InvalidInput("For how long: a minute, please, or more.")
        each = total = None
        if limits.amount:
            each = _number(typed.get("each", ""), "Each at most", limits.each)
            total = _number(typed.get("sum", ""), "In all at most", limits.sum)
            if (limits.each is not None and each is None) or (limits.sum and total is None):
                raise InvalidInput("Say how much each may be, and all of them together.")
        target = typed.get("target") or "one"
        if target not in {"one", "any", *(["list"] if limits.listed else [])}:
            raise InvalidInput("Say what it is for: this target, any, or what is on the list.")
        return cls(int(uses), seconds, each, total, target)


def _number(text: str, name: str, most: Decimal | int | None) -> Decimal | None:
    if not (text := text.strip()):
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise InvalidInput(f"{name}: that is no number.") from None
    if not number.is_finite() or number <= 0:
        raise InvalidInput(f"{name}: more than nothing, please.")
    if most is not None and number > most:
        raise InvalidInput(f"{name}: the rule allows {_plain(Decimal(most))} at most.")
    return number


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"


def why_not(approval: Approval) -> str:
    """Why nobody can grant more calls like this one ahead, in words; empty where people can."""
    if approval.subject_kind != SubjectKind.ACTION or approval.agent is None:
        return "A plan is approved as a whole."
    if approval.run_ref.startswith(ASKED_APART):
        return "It comes over another protocol, by which people are asked about each call."
    if approval.affected:
        return "The affected person is asked about each call."
    if approval.signed:
        return "Each yes is signed by itself, so each call is asked about."
    if GrantLimits.of(approval.rules) is None:
        return "Its rule allows none: the policy says for how many, how much and how long."
    return ""


@transaction.atomic
def approve_with_more(
    approval: Approval,
    *,
    by: User,
    seen: str,
    typed: Mapping[str, str],
    reason: str,
    shown: Mapping[str, Any] | None = None,
    shown_seconds: float | None = None,
    login_at: datetime | None = None,
) -> Approval:
    """Say yes to this call and to the next ones like it; the grant, living once as many people have
    agreed to it as the call takes; once more, that very one. Raises as `inbox.grant` does.
    """
    limits = GrantLimits.of(approval.rules)
    if limits is None or why_not(approval):
        raise InvalidInput(why_not(approval))
    reason = kept_text(reason, REASON_CHARACTERS_MAX, asking=WHY)
    terms = Terms.read(typed, limits)
    answer: dict[str, Any] = {"by": by, "reason": reason, "login_at": login_at, "shown": shown}
    answer["shown_seconds"] = shown_seconds
    try:
        granted = inbox.grant(approval, seen=seen, **answer)
    except (CannotMove, inbox.OutOfDate):
        is_given = inbox.is_given(approval, by, granted=True, seen=seen, reason=reason)
        if is_given and (asked := _agreed_to(approval, terms, limits, by)):
            return asked
        raise
    asked = _ask(granted, terms, limits, reason, by)
    return inbox.grant(asked, seen=asked.digest, **answer)


def _agreed_to(approval: Approval, terms: Terms, limits: GrantLimits, by: User) -> Approval | None:
    """The newest grant of these terms that they have agreed to since they did to the call."""
    rows = grants.bounded_in(approval.workspace).filter(agent=approval.agent).exclude(calls=[])
    since = approval.decisions.filter(person=by).values("at")[:1]
    given = {"decisions__person": by, "decisions__granted": True, "decisions__at__gte": since}
    mine = rows.filter(**given).order_by("-pk")
    more = _facts(approval, terms, limits).more if approval.calls else {}
    return next((one for one in mine[:GRANTS_LOOKED_AT_MAX] if one.calls[0]["more"] == more), None)


def proposed(approval: Approval, limits: GrantLimits, person: User) -> list[Approval]:
    """Grants for calls like this one that others have agreed to and `person` has not answered."""
    call, rules = approval.calls[0], grants.rules_digest(approval.rules)
    rows = Approval.objects.open().filter(
        workspace=approval.workspace_id, subject_kind=SubjectKind.GRANT,
        subject_key=subject_key(approval.agent_id or 0, str(call["operation"])),
        fresh_login=approval.fresh_login,
    ).exclude(calls=[])  # fmt: skip
    found = rows.exclude(decisions__person=person).order_by("pk")[:GRANTS_LOOKED_AT_MAX]
    targets = [None, *({"type": one["type"], "id": one["id"]} for one in call.get("targets") or [])]
    return [
        one
        for one in found
        if (terms := one.calls[0]["more"]["bounded"])["rules"] == rules
        and terms["same"] == _same(approval, limits)
        and terms["target"] in targets
    ]


def _same(approval: Approval, limits: GrantLimits) -> dict[str, Any]:
    return {path: _at(approval.calls[0].get("args"), path) for path in limits.same}


def _ask(approval: Approval, terms: Terms, limits: GrantLimits, reason: str, by: User) -> Approval:
    """The grant of these terms that waits for one more yes, or else a new one."""
    facts = _facts(approval, terms, limits)
    for one in proposed(approval, limits, by):
        if one.calls[0]["more"] == facts.more:
            return one
    first = next(one for one in approval.rules if one.get("approval") != "AUTO")
    judgement = PolicyDecision(
        approval="MANUAL",
        risk=Risk(approval.risk),
        action_class=ActionClass.EXTERNAL_REVERSIBLE,
        requires=grants.required_of(approval),
        fresh_login=approval.fresh_login,
        self_approval=approval.self_approval,
        rules=tuple(approval.rules),
        why=str(first.get("words", "")),
    )
    return approval_requests.ask_for_grant(
        approval,
        facts,
        judgement,
        preview=grants.preview(approval, facts.more["bounded"]),
        reason=reason,
        subject_key=subject_key(approval.agent_id or 0, facts.operation),
        expires_seconds=terms.seconds,
    )


def _facts(approval: Approval, terms: Terms, limits: GrantLimits) -> CallFacts:
    """What is put to people as a grant of these terms. Raises InvalidInput."""
    call = approval.calls[0]
    target = _only_target(call) if terms.target == "one" else None
    listed = None
    if terms.target == "list" and limits.listed:
        listed = named_lists.bound(approval.workspace, limits.listed)
    same = _same(approval, limits)
    if holds_bare(same):
        raise InvalidInput("What has to stay the same is masked without a mark.")
    bounded = {
        "form": FORM,
        "uses": terms.uses,
        "each": None if terms.each is None else _plain(terms.each),
        "sum": None if terms.sum is None else _plain(terms.sum),
        "amount": limits.amount,
        "seconds": terms.seconds,
        "same": same,
        "target": target,
        "rules": grants.rules_digest(approval.rules),
        **({"listed": listed} if listed else {}),
        **({"currency": currency} if (currency := currency_of(approval, limits)) else {}),
    }
    return CallFacts(
        operation=str(call["operation"]),
        args=None,
        targets=[target] if target else [],
        target_type=target["type"] if target else "",
        target_id=target["id"] if target else "",
        more={"agent": str(approval.agent), "bounded": bounded},
    )


def _only_target(call: Mapping[str, Any]) -> dict[str, str]:
    targets = call.get("targets") or []
    if len(targets) != 1:
        raise InvalidInput("It has no one target that the next calls could be bound to.")
    return {"type": str(targets[0]["type"]), "id": str(targets[0]["id"])}


def _at(args: Any, path: str) -> Any:
    """The value at `args.currency`; None where there is none."""
    value: Any = {"args": args}
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def currency_of(approval: Approval, limits: GrantLimits) -> str:
    """The currency whose smallest unit the amounts count; empty where they need not be money.

    They are where the sum on the card is what is counted, and its currency has to stay the same.
    """
    args = approval.calls[0].get("args")
    stays = {str(_at(args, path)).upper() for path in limits.same}
    counted = _at(args, limits.amount) if limits.amount else None
    is_money = approval.amount_minor is not None and counted == approval.amount_minor
    return approval.currency if is_money and approval.currency.upper() in stays else ""


# Drawing on one, in `begin`.


@dataclass(frozen=True, slots=True)
class GrantableCall:
    """The call that a grant may cover, as `begin` has it or as a question that waits has kept it,
    and the rules that ask people about it.
    """

    workspace_id: int
    agent_id: int
    key: str
    tool: str
    args: Any
    targets: Sequence[Mapping[str, Any]]
    rules: Sequence[Mapping[str, Any]]
    fresh_login: bool
    self_approval: bool

    @classmethod
    def of(cls, request: BeginRequest, judgement: PolicyDecision) -> "GrantableCall":
        actor = request.actor
        return cls(
            actor.workspace_id, actor.agent_id or 0, request.key, request.tool,
            request.data.get("args"), request.targets, judgement.rules,
            judgement.fresh_login, judgement.self_approval,
        )  # fmt: skip

    @classmethod
    def of_question(cls, approval: Approval) -> "GrantableCall":
        call, key = approval.calls[0], str(approval.subject.get("key", ""))
        return cls(
            approval.workspace_id, approval.agent_id or 0, key, str(call["operation"]),
            call.get("args"), call.get("targets") or [], approval.rules,
            approval.fresh_login, approval.self_approval,
        )  # fmt: skip


def draw(request: BeginRequest, judgement: PolicyDecision, proceed: Proceed) -> int | None:
    """The grant that lets this call pass, drawn on; None where people have to be asked. Call it in
    the transaction in which the call proceeds.
    """
    limits = GrantLimits.of(judgement.rules)
    if limits is None or judgement.approval != "MANUAL" or judgement.affected or judgement.signed:
        return None
    asked = GrantableCall.of(request, judgement)
    ids = list(living(asked).order_by("pk").values_list("pk", flat=True)[:GRANTS_LOOKED_AT_MAX])
    for pk in ids:
        if (approval := _held(pk)) is not None and not lacking(approval, asked):
            _note(approval, asked, proceed)
            return pk
    return None


def living(asked: GrantableCall) -> QuerySet[Approval]:
    """The agent's grants for this tool that may be drawn on."""
    return Approval.objects.filter(
        workspace=asked.workspace_id, subject_key=subject_key(asked.agent_id, asked.tool),
        subject_kind=SubjectKind.GRANT, state=ApprovalState.GRANTED, expires_at__gt=Now(),
    )  # fmt: skip


def _held(pk: int) -> Any:
    """A living grant under its lock; None where it lives no more."""
    rows = locks.locked(Approval.objects.filter(pk=pk, state=ApprovalState.GRANTED))
    return told(rows.filter(expires_at__gt=Now())).first()


def told(rows: QuerySet[Approval]) -> QuerySet[Any]:
    return rows.annotate(is_recorded=grants.recorded()).select_related("workspace")


def subject_key(agent_id: int, tool: str) -> str:
    return f"{agent_id} bounded {tool}"[:400]


def lacking(approval: Any, asked: GrantableCall, beside: grants.Drawdown = NOTHING_DRAWN) -> str:
    """Why the grant, told of its record, does not cover this call, in words; empty where it stands
    as it was agreed to and has room `beside` what others are about to draw.
    """
    if not approval.is_recorded or digests.digest_with(approval, approval.calls) != approval.digest:
        return "its record was changed"
    terms = approval.calls[0]["more"]["bounded"]
    used = grants.Drawdown.of(grants.drawn(approval).exclude(agent=asked.agent_id, key=asked.key))
    return (
        _unlike(terms, asked)
        or _off_list(approval, terms, asked)
        or _without_room(terms, amount_of(terms, asked), used, beside)
        or _not_agreed(approval, asked)
    )


def _not_agreed(approval: Approval, asked: GrantableCall) -> str:
    """Why the yes of its people is none to this call: no rule says it, so none has changed."""
    if asked.fresh_login and not approval.fresh_login:
        return "it is critical, and nobody logged in afresh to agree to it"
    if approval.self_approval and not asked.self_approval and grants.rests_on_own(approval):
        return "the policy no longer lets people approve their own"
    return "" if grants.still_entitled(approval) else "one who agreed to it may no longer do so"


def _without_room(
    terms: Mapping[str, Any], amount: Decimal | None, used: grants.Drawdown, beside: grants.Drawdown
) -> str:
    """What keeps it from taking one call more of this amount, beside what was drawn."""
    if amount is None:
        return "how much this call is cannot be told"
    if used.calls + beside.calls >= terms["uses"]:
        return "all its calls are used"
    if terms["each"] is not None and amount > Decimal(terms["each"]):
        return f"this is more than {grants.amount(terms, terms['each'])}, the most for one call"
    if terms["sum"] is not None and used.total + beside.total + amount > Decimal(terms["sum"]):
        return f"with this it would be more than {grants.amount(terms, terms['sum'])} in all"
    return ""


def _unlike(terms: Mapping[str, Any], asked: GrantableCall) -> str:
    """What keeps the call from being like those that were granted: the same rules ask about it, on
    the same target if one is named, with the same values where the rule wants that.
    """
    target = terms["target"]
    if target and not (asked.targets and all(one == target for one in _named(asked))):
        return "it is for another target"
    if terms["rules"] != grants.rules_digest(asked.rules):
        return "other rules ask about this call"
    for path, one in terms["same"].items():
        if _form(_at(asked.args, path)) != _form(one):
            return f"{path} is another"
    return ""


def _off_list(approval: Approval, terms: Mapping[str, Any], asked: GrantableCall) -> str:
    """Whether it is for something that stood on the list when the grant was given, and does now."""
    listed = terms.get("listed")
    if not listed:
        return ""
    value = _at(asked.args, listed["path"])
    if named_lists.is_bound(approval.workspace, listed, value):
        return ""
    return f"{listed['path']} is not on the list {listed['list']} as it was granted"


def _named(asked: GrantableCall) -> list[dict[str, str]]:
    return [{"type": str(one["type"]), "id": str(one["id"])} for one in asked.targets]


def _form(value: Any) -> bytes:
    return without_last4(canonical(value))


def amount_of(terms: Mapping[str, Any], asked: GrantableCall) -> Decimal | None:
    """How much this call is, by the rule; None where it cannot be told, or is less than nothing."""
    if not terms["amount"]:
        return Decimal(0)
    first = dict(asked.targets[0]) if asked.targets else {}
    facts = {
        "tool": asked.tool, "args": asked.args, "target": first,
        "targets": [dict(one) for one in asked.targets],
    }  # fmt: skip
    try:
        return tallies.number(_compiled(terms["amount"]).evaluate(facts))
    except CannotEvaluate:
        return None


@lru_cache(maxsize=256)
def _compiled(source: str) -> Expression:
    return Expression(source, CALL_FACTS)


def _note(approval: Approval, asked: GrantableCall, proceed: Proceed) -> None:
    amount = amount_of(approval.calls[0]["more"]["bounded"], asked)
    GrantUse.objects.update_or_create(
        approval=approval, agent_id=asked.agent_id, key=asked.key,
        defaults={"run_ref": proceed.run, "action": proceed.action,
                  "amount": amount or Decimal(0), "at": Now()},
    )  # fmt: skip


def tell(request: BeginRequest, proceed: Proceed) -> None:
    """The ledger hears under which grant the call went on, in the story of the call."""
    approval = Approval.objects.get(pk=proceed.approval)
    used = grants.Drawdown.of(grants.drawn(approval))
    desk_events.record(
        Workspace.objects.get(pk=request.actor.workspace_id), EventType.APPROVAL_DRAWN,
        run=proceed.run, action=proceed.action, part="gate",
        data={
            "approval": proceed.approval,
            "digest": approval.digest,
            "key": request.key,
            "uses": used.calls,
            "sum": _plain(used.total),
        },
    )  # fmt: skip
