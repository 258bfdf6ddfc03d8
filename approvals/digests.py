"""Digests: what binds an approval to what will run, byte by byte.

Every call has its own digest over everything that decides what it does; a plan's digest and an
approval's digest are built over those. Canonical JSON is RFC 8785, the hash SHA-256 (FIPS 180-4).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

from django.db.models import QuerySet

from amends.protocol.vocabulary import EventType
from approvals.models import Approval
from approvals.policy import PolicyDecision
from ledger import desk_events
from ledger.canonical import digest
from ledger.desk_events import EventDraft
from ledger.models import Event
from workspaces.models import User

# The record: what the ledger is told of an approval, in the gate's voice or a person's.


def record(approval: Approval, event: EventType, /, *, by: User | None = None, **data: Any) -> None:
    """Tell of the approval in its run's story; call it in the transaction of the act."""
    record_all(approval, [drafted(approval, event, **data)], by=by)


def drafted(approval: Approval, event: EventType, /, **data: Any) -> EventDraft:
    """What is told of the approval. Its number and digest are always said with `data`, so that
    whoever reads the event knows what was approved to the byte.
    """
    told = {"approval": approval.pk, "digest": approval.digest, **data}
    action = approval.action.action if approval.action else ""
    return EventDraft(event, approval.run_ref, action, told)


def record_all(approval: Approval, drafts: Sequence[EventDraft], *, by: User | None) -> None:
    """As `record`, several together, which costs little more than one."""
    desk_events.record_all(approval.workspace, drafts, by=by, part="gate")


def events_of(approval: Approval, kind: EventType) -> QuerySet[Event]:
    """What the ledger tells of this very question."""
    return Event.objects.filter(
        workspace=approval.workspace_id,
        run=approval.run_ref,
        action=approval.action.action if approval.action else "",
        type=kind,
        data__approval=approval.pk,
        data__digest=approval.digest,
    )


PLAN_FORM = "amends plan 1"
APPROVAL_FORM = "amends approval 1"
CALL_FORM = "amends call 1"
# What stands in `more` of an agent's call; without it: before run, person and
# compensation did; 3: masked values carry marks that tell them apart.
FORWARD_FORM = "amends forward call 3"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """Everything that decides what one call does.

    `fingerprint` is the state in which the target is expected just before the call. For a forward
    action, which the agent sends itself, connection, its digest and the connector's version are
    empty and the operation is the tool.
    """

    operation: str
    args: Any
    connection: str = ""
    connection_digest: str = ""
    connector_version: str = ""
    fingerprint: str = ""
    target_type: str = ""
    target_id: str = ""
    targets: Sequence[Mapping[str, Any]] = ()
    key: str = ""
    must_be_true: Mapping[str, Any] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        facts = {one.name: getattr(self, one.name) for one in fields(self)}
        facts["targets"] = [dict(target) for target in self.targets]
        return facts


def changed(asked: CallFacts, args: Any) -> CallFacts:
    """The call with what an approver has made of its arguments, bound together with what was asked
    for. How the agent would have had that undone says nothing of it, and is left out.
    """
    before = {"args": asked.args, "compensation": asked.more.get("compensation")}
    return replace(asked, args=args, more={**asked.more, "compensation": None, "asked": before})


@dataclass(frozen=True, slots=True)
class ArgumentChange:
    """One field that differs between what was approved and what is there now."""

    field: str
    approved: Any
    now: Any


def call_digest(facts: CallFacts | Mapping[str, Any]) -> str:
    """The digest of one call; a mapping is the facts as stored, its own digest left out."""
    return digest({"form": CALL_FORM, "call": _digested(facts)})


def _digested(facts: CallFacts | Mapping[str, Any]) -> dict[str, Any]:
    values = facts.as_json() if isinstance(facts, CallFacts) else dict(facts)
    values.pop("digest", None)
    return values


def plan_digest(workspace: str, subject: Mapping[str, Any], call_digests: Sequence[str]) -> str:
    """What a preview shows and posts back: the calls in their order, no rules, no expiry."""
    return digest(
        {
            "form": PLAN_FORM,
            "workspace": workspace,
            "subject": dict(subject),
            "calls": list(call_digests),
        }
    )


def approval_digest(
    workspace: str,
    subject: Mapping[str, Any],
    call_digests: Sequence[str],
    rules: Sequence[Mapping[str, Any]],
    expires_at: datetime,
) -> str:
    """What people approve: the calls, the rules because of which they are asked, and the expiry."""
    return digest(
        {
            "form": APPROVAL_FORM,
            "workspace": workspace,
            "subject": dict(subject),
            "calls": list(call_digests),
            "rules": [dict(rule) for rule in rules],
            "expires_at": expires_at.astimezone(UTC).isoformat(timespec="microseconds"),
        }
    )


def digest_over(approval: Approval, call_digests: Sequence[str]) -> str:
    """The digest that the approval would have over calls of these digests."""
    return approval_digest(
        approval.workspace.slug,
        approval.subject,
        call_digests,
        approval.rules,
        approval.expires_at,
    )


def digest_with(approval: Approval, calls: Iterable[CallFacts | Mapping[str, Any]]) -> str:
    """The digest that the approval would have over `calls`: another one was not approved."""
    return digest_over(approval, [call_digest(call) for call in calls])


def diff(
    approved: CallFacts | Mapping[str, Any], now: CallFacts | Mapping[str, Any]
) -> list[ArgumentChange]:
    """Where two calls differ, field by field, by path."""
    return changes(_digested(approved), _digested(now))


def changes(old: Any, new: Any) -> list[ArgumentChange]:
    """Where two values differ, by path."""
    return list(_changes("", old, new))


def fields_in_words(changes: Sequence[ArgumentChange], most: int) -> str:
    """“args.to, more.on_behalf_of and 3 more”: what differs, without a value of it, for whoever
    reads that somebody was asked anew.
    """
    more = f" and {len(changes) - most} more" if len(changes) > most else ""
    return ", ".join(one.field for one in changes[:most]) + more


def changes_of(approval: Approval) -> list[ArgumentChange]:
    """What somebody has made of what was asked for, path by path; none where nobody has, and none
    are left of what is erased.
    """
    if not approval.replaces_id or not approval.calls:
        return []
    call = approval.calls[0]
    asked = call.get("more", {}).get("asked")
    return changes(asked["args"], call.get("args")) if asked else []


def currency_before(changes: Sequence[ArgumentChange], currency: str) -> Any:
    """In what a sum was that is in `currency` now: that, unless an argument became that; nothing
    where several did, for nobody knows which of them says it.
    """
    became = [one.approved for one in changes if str(one.now).casefold() == currency.casefold()]
    if not became:
        return currency
    return became[0] if len(became) == 1 else ""


def _changes(path: str, old: Any, new: Any) -> list[ArgumentChange]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found: list[ArgumentChange] = []
        for name in sorted({*old, *new}, key=str):
            inner = f"{path}.{name}" if path else str(name)
            if (name in old) != (name in new):
                found.append(ArgumentChange(inner, old.get(name), new.get(name)))
                continue
            found += _changes(inner, old.get(name), new.get(name))
        return found
    if isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        found = []
        for place, (before, after) in enumerate(zip(old, new, strict=True)):
            found += _changes(f"{path}[{place}]", before, after)
        return found
    return [] if digest(old) == digest(new) else [ArgumentChange(path, old, new)]


# What a rule asks for now, held against what it asked for when people said yes, field by field.

NOBODY = "nobody"
OWN = {False: "does not count", True: "may be approved"}
AFFECTED = {"": "is not asked", "ask": "is asked first", "must": "must say yes first"}


def differences(approved: PolicyDecision | None, now: PolicyDecision) -> list[ArgumentChange]:
    """Each thing that is asked for otherwise; without `approved` nobody knows what was asked."""
    return changes(_asked(approved) if approved else {"rule": {}}, _asked(now))


def in_words(changes: list[ArgumentChange], most: int) -> str:
    """“rule.approval was 'AUTO' and is 'DENY'; …”, at most so many of them."""
    return "; ".join(
        f"{one.field} was {one.approved!r} and is {one.now!r}" for one in changes[:most]
    )


def _asked(judgement: PolicyDecision) -> dict[str, Any]:
    """What people would notice of a judgement; which rule says it comes last."""
    return {
        "rule": {
            "affected person": AFFECTED[judgement.affected],
            "answer": judgement.approval,
            "because": judgement.why,
            "fresh log-in": judgement.fresh_login,
            "one's own": OWN[judgement.self_approval],
            **({"signature": "of each person's own key"} if judgement.signed else {}),
            **({"asked later": judgement.escalate.team} if judgement.escalate else {}),
            "people": judgement.people if judgement.approval == "MANUAL" else NOBODY,
        }
    }
