"""Approving with a change: who may decide on a waiting call corrects arguments of it.

The question ends, and one about the changed call takes its place, in one transaction: it has a
digest of its own, no answer is carried over, and what was asked for stays on the record beside it.
The policy judges it under the locks of `begin`, so that neither a rule nor a sum can be passed this
way. Whoever changed it has asked for it: somebody else decides, unless the rule lets people approve
their own.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from django.db import transaction
from psycopg.errors import LockNotAvailable

from amends.protocol.vocabulary import EventType
from approvals import (
    approval_requests,
    argument_fields,
    call_context,
    deciders,
    digests,
    grants,
    inbox,
    inventory,
    tallies,
)
from approvals.argument_fields import ArgumentField
from approvals.digests import ArgumentChange, CallFacts
from approvals.gate.begin_context import BeginContext
from approvals.gate.begin_request import BeginRequest, parse
from approvals.gate.decision_table import judged
from approvals.gate.gathering import gather
from approvals.gate.slow_path import run_statements
from approvals.gate.slow_path_statements import policy_in_force, read_context
from approvals.models import Approval, SubjectKind
from approvals.policy import PolicyDecision
from edge.asgi import Refused
from ledger import desk_events, drivers, snapshots
from ledger.models import Action
from ledger.parsed_events import Actor
from workspaces import formatting
from workspaces.free_text import REASON_CHARACTERS_MAX, InvalidInput, kept_text
from workspaces.models import User

WITHOUT_REASON = "Say why you change it, so that whoever decides can follow."
UNCHANGED = "Nothing was changed: correct an argument first."
PLAN = "A plan is changed where it was drafted, not here."
NOT_TAKEN = "Its client did not say that it takes changed arguments: it would use its own."
BUSY = "The agent is asking about it just now: press again."
NO_OBJECT = "Its arguments have no names, so that no client would take others."
NOBODY_ELSE = (
    "Whoever changes it has asked for it and does not decide, and too few others could answer:"
    " reject it instead, and say what would be right."
)
MASKED = "A value that you typed reads like a secret or a card number, and would be masked."
CHANGES_SHOWN_MAX = 20


def why_not(approval: Approval) -> str:
    """Why nobody can change this one's arguments, in words; empty where people can."""
    if approval.subject_kind != SubjectKind.ACTION:
        return PLAN
    if not approval.accepts_changed_arguments or not approval.calls:
        return NOT_TAKEN
    args = approval.calls[0].get("args")
    return "" if isinstance(args, dict) and args else NO_OBJECT


def why_not_by(approval: Approval, person: User) -> str:
    """Why this person's change would lead nowhere, in words: nobody else could decide on it."""
    asked = copy(approval)
    asked.requested_by = person
    return "" if _may_be_decided(asked) else NOBODY_ELSE


def fields_of(approval: Approval) -> list[ArgumentField]:
    """The arguments as they stand now, one by one; typed by what the tool announced last."""
    call = approval.calls[0]
    schema: Mapping[str, Any] = {}
    if approval.agent_id is not None:
        shapes = inventory.newest(approval.agent_id, str(call["operation"]))
        schema = shapes[0].schema if shapes else {}
    return argument_fields.fields(call.get("args"), schema, call.get("targets") or [])


def touched(approval: Approval, typed: Mapping[int, str]) -> list[ArgumentField]:
    """The arguments into which something else was typed; none where nobody can change them."""
    if not typed or why_not(approval):
        return []
    return argument_fields.touched(fields_of(approval), typed)


def in_words(found: Sequence[ArgumentChange], approval: Approval) -> str:
    """“amount €1.00 → €0.80; to “ann” → “bob”; …”, of what was changed in this approval's call.

    Money is what the changed call is known to move; under another currency it stays a number.
    """
    now = {one.field: argument_fields.as_text(one.now) for one in found}
    is_other = approval.currency.casefold() in {text.casefold() for text in now.values()}
    currency = "" if is_other else approval.currency
    of_money = call_context.sum_among(now, approval.amount_minor)

    def shown(value: Any, field: str) -> str:
        moved = call_context.money_beside(value, currency) if field == of_money else ""
        words = argument_fields.as_text(value)
        is_number = isinstance(value, int | float)  # a truth value is one
        return moved or (words if is_number else formatting.quoted(words))

    told = [
        f"{formatting.named(one.field)} {shown(one.approved, one.field)}"
        f" → {shown(one.now, one.field)}"
        for one in found[:CHANGES_SHOWN_MAX]
    ]
    more = len(found) - CHANGES_SHOWN_MAX
    return "; ".join([*told, *([f"{more} more"] if more > 0 else [])])


@dataclass(frozen=True, slots=True)
class Changed:
    """The changed call, judged: all that the question about it is made of."""

    request: BeginRequest
    facts: CallFacts
    judgement: PolicyDecision
    preview: Mapping[str, Any]
    money: Any
    holds: Sequence[Any]
    expires_seconds: int


@transaction.atomic
def change(
    approval: Approval, *, by: User, seen: str, typed: Mapping[int, str], reason: str
) -> Approval:
    """The question about the changed call, in place of this one; `typed` are texts by the numbers
    of `fields_of`. Raises InvalidInput, OutOfDate, NotEntitled, or CannotMove where it is answered,
    or was changed meanwhile.
    """
    reason = kept_text(reason, REASON_CHARACTERS_MAX, asking=WITHOUT_REASON)
    if why := why_not(approval):
        raise InvalidInput(why)
    actions = Action.objects.select_related("run", "agent__owner", "workspace")
    action = actions.get(pk=approval.action_id or 0)
    asked = as_asked(action)
    try:  # the key's lock and the run's come before the approval's
        context = run_statements(read_context(asked, asks=True))
    except LockNotAvailable as busy:
        raise InvalidInput(BUSY) from busy
    row = inbox.as_shown(approval, seen)
    inbox.may_answer(row, by)
    call = row.calls[0]
    args = argument_fields.corrected(call["args"], fields_of(row), typed)
    if not digests.changes(call["args"], args):
        raise InvalidInput(UNCHANGED)
    changed = _judged(row, asked, replace(context, approval=None), args)
    words = f"{formatting.plain(str(by))} changed what was asked for, and others are asked about it"
    approval_requests.void(row, why=words)
    try:
        new = approval_requests.ask_for_action(
            action,
            subject_key=row.subject_key,
            facts=changed.facts,
            judgement=changed.judgement,
            preview=changed.preview,
            agent_text=row.agent_text,
            amount=changed.money,
            note=reason,
            accepts_changed_arguments=True,
            expires_seconds=changed.expires_seconds,
            requested_by=by,
            replaces=row,
        )
    except approval_requests.NobodyToAsk as nobody:
        raise InvalidInput(f"Nobody could be asked: {nobody}.") from nobody
    if not _may_be_decided(new):  # it would only end the question
        raise InvalidInput(NOBODY_ELSE)
    drivers.execute(drivers.plain_connection(), changed.holds)
    _tell(row, new, by, reason)
    return new


def as_asked(action: Action, *, explain: bool = False) -> BeginRequest:
    """The call as the agent asked for it, out of what the ledger has of its plan; with `explain` to
    see what would be answered. Raises InvalidInput.
    """
    if action.agent is None:
        raise InvalidInput(PLAN)
    here = action.workspace
    actor = Actor(
        here.pk, here.slug, "agent", action.agent.name, action.agent.pk, trusted=action.trusted,
        mask=tuple(here.mask), stuck_after_seconds=here.stuck_after_seconds,
        masking_key=desk_events.masking_key(here),
    )  # fmt: skip
    plan = {
        "tool": action.tool, "targets": action.targets, "args": action.args, "key": action.key,
        "class": action.action_class or None, "risk": action.risk or None,
        "saga": action.saga or None, "op": action.op or None, "intent": action.intent,
        "compensation": action.compensation, "before": action.before,
    }  # fmt: skip
    said = {name: one for name, one in plan.items() if one is not None}
    return _parsed(actor, action, said, explain=explain)


def _parsed(
    actor: Actor, action: Action, data: dict[str, Any], *, explain: bool = False
) -> BeginRequest:
    event = {"run": action.run.run, "action": action.action, "attempt": "changed", "data": data}
    try:
        return parse(msgspec.json.encode(event), actor, explain=explain)
    except Refused as refused:
        detail = refused.problem.detail or refused.problem.title
        raise InvalidInput(f"The desk does not take these arguments. {detail}") from refused


def _judged(row: Approval, asked: BeginRequest, context: BeginContext, args: Any) -> Changed:
    """The changed call as the gate would judge it were it asked for now."""
    action = row.action
    if action is None:
        raise InvalidInput(PLAN)
    facts = asked.facts(context.on_behalf_of)
    before = digests.changed(facts, row.calls[0]["args"]) if row.replaces_id else facts
    asked_for, on_card = digests.digest_with(row, [before]), digests.digest_with(row, row.calls)
    if not asked_for == on_card == row.digest:
        raise inbox.OutOfDate("what the agent asks for is no longer what is on record")
    request = _parsed(asked.actor, action, asked.data | {"args": args})
    if digests.changes(args, request.data["args"]):
        raise InvalidInput(MASKED)
    policy = policy_in_force(row.workspace_id, context.policy_digest)
    gathered = run_statements(gather(request, context, policy))
    judgement = judged(request, context, policy, gathered.findings)
    if judgement.approval == "DENY":
        raise InvalidInput(f"So changed it is never allowed: {judgement.why}.")
    if judgement.approval == "AUTO":  # people were asked, and what a person made of it is theirs
        judgement = replace(grants.asked_by(row, judgement), rules=judgement.rules)
    try:
        shown, money = call_context.preview(
            policy, tool=request.tool, args=args, targets=request.targets,
            before=snapshots.looked_up(row.workspace_id, request.data.get("before")),
        )  # fmt: skip
    except call_context.TooLargeToShow as large:
        raise InvalidInput(str(large)) from large
    holds = [
        tallies.let_go(gathered.caller),
        *gathered.ask_statements(request.planned.run, action.action),
    ]
    seconds = policy.action_expires_seconds
    return Changed(request, digests.changed(facts, args), judgement, shown, money, holds, seconds)


def _may_be_decided(approval: Approval) -> bool:
    """Whether enough people could answer it, in their own right."""
    places = [one.count for one in deciders.required(approval)]
    return len(deciders.assign(deciders.themselves(approval), places)) == sum(places)


def _tell(row: Approval, new: Approval, by: User, reason: str) -> None:
    told = [
        {"field": one.field, "asked": one.approved, "approved": one.now}
        for one in digests.changes_of(new)
    ]
    digests.record(
        new,
        EventType.APPROVAL_CHANGED,
        by=by,
        replaces=row.pk,
        replaces_digest=row.digest,
        changes=told,
        reason=reason,
    )


def successor(approval: Approval) -> Approval | None:
    """The question that stands in this one's place by now, after any number of changes."""
    found: Approval | None = None
    while after := Approval.objects.filter(replaces=found or approval).first():
        found = after
    return found
