"""What the ledger knows of calls like the one that is asked about, never what an agent says.

Whether it can be taken back, what its run did before it, whom the same tool reached before, and
what is unusual about it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Q, QuerySet
from django.utils import timezone

from amends.protocol.vocabulary import WITHOUT_EFFECT, ActionClass
from approvals import call_context, inventory, policy
from approvals.memory import ASKED_FOR, GATED, TOLD_AGAIN
from approvals.models import Approval, ApprovalState, SubjectKind
from connectors.contract import Money
from ledger.models import Action, ActionState, Compensated, Reversibility
from ledger.schemas import IMPORTED
from workspaces import formatting
from workspaces.access import people_with
from workspaces.lookalikes import skeleton
from workspaces.models import Workspace
from workspaces.request_cache import cached

HISTORY_MAX = 200  # the newest ones; older ones say little about what is usual
TOLD_MAX = 2_000  # looked through for them: an agent can tell of any number that nobody let through
ENOUGH_TO_COMPARE = 3
UNUSUAL_TIMES = 2
TARGETS_MAX = 5
TARGETS_LOOKED_AT_MAX = 50
RECIPIENTS_SHOWN_MAX = 5
STEPS_SHOWN_MAX = 12
RAN = (ActionState.RUNNING, ActionState.UNKNOWN, ActionState.SUCCEEDED, ActionState.FAILED)

Notice = dict[str, Any]
Touched = Collection[tuple[int, str, str]]
"""Of which question a target, by its type and id, was touched by another call before."""


@dataclass(frozen=True, slots=True)
class EarlierCall:
    """A call of the same tool that succeeded, as the tool's preview in the policy reads it."""

    money: Money | None
    reached: tuple[str, ...]
    at: datetime | None
    stood: bool
    """Whether nobody found it wrong or took it back."""


def earlier_like(approval: Approval) -> list[EarlierCall]:
    """The newest calls of the tool that is asked about, approved by people or not; for a plan, what
    earlier plans moved that people approved.
    """
    action = approval.action
    if action is None:
        return [EarlierCall(money, (), None, stood=True) for money in _of_plans(approval)]
    entry = policy.active(approval.workspace).tool(action.tool)
    manifest = entry.preview if entry else {}
    told = Action.objects.filter(
        workspace=approval.workspace_id, tool=action.tool, state=ActionState.SUCCEEDED
    )
    newest = told.exclude(pk=action.pk).order_by("-id").values("pk")[:TOLD_MAX]
    rows = _gated(Action.objects.filter(pk__in=newest)).order_by("-id")
    return [_earlier(manifest, one) for one in rows[:HISTORY_MAX]]


def _gated(calls: QuerySet[Action]) -> QuerySet[Action]:
    """Those of which not only an agent tells (`memory.GATED`)."""
    known = calls.filter(Q(fence__gt=0) | Q(run__flags__contains=[IMPORTED]))
    return known.exclude(flags__overlap=TOLD_AGAIN)


def _earlier(manifest: Mapping[str, Any], action: Action) -> EarlierCall:
    targets = action.targets or []
    told: dict[str, Any] = {"tool": action.tool, "args": action.args, "targets": targets}
    return EarlierCall(
        money=call_context.money(manifest, **told) if manifest else None,
        reached=tuple(call_context.recipients(manifest, **told)) or _named(targets),
        at=action.finished_at or action.started_at,
        stood=action.verified != "failed" and action.compensated == Compensated.NONE,
    )


def _named(targets: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(call_context.target_words(one) for one in targets)


# Whether it can be taken back.


def way_back(approval: Approval) -> Notice | None:
    """How far what is asked can be undone once it ran; None where nobody knows."""
    action = approval.action
    if action is None:
        lasting = any(
            shown.get("reversibility") == Reversibility.IRREVERSIBLE for shown in approval.previews
        )
        return _cannot("A step of this plan cannot be taken back once it ran.") if lasting else None
    here = approval.workspace
    known = cached(("policy in force", here.pk), lambda: policy.active(here))
    entry = known.tool(action.tool)
    classes = {action.action_class, entry.action_class if entry else None}
    if classes <= {*WITHOUT_EFFECT, None, ""}:
        return None
    targets = action.targets or [{}]
    twins = [known.twin(action.tool, str(one.get("type", ""))) for one in targets]
    if ActionClass.EXTERNAL_IRREVERSIBLE in classes or any(
        twin is not None and twin.reversibility == Reversibility.IRREVERSIBLE for twin in twins
    ):
        return _cannot("Once it ran, nothing undoes it.")
    ways = {f"{twin.connection}.{twin.operation}" for twin in twins if twin is not None}
    if ways:
        lacking = [one for one, twin in zip(targets, twins, strict=True) if twin is None]
        words = f"If it was wrong, {' or '.join(sorted(ways))} undoes it."
        return _undoable(words, lacking, suggested=bool(action.compensation))
    if not action.compensation:
        return {
            "tone": "wait",
            "title": "No way back is known.",
            "text": "The policy has no twin for it, and the agent names none.",
        }
    return None


def _undoable(words: str, lacking: Sequence[Mapping[str, Any]], *, suggested: bool) -> Notice:
    """Targets that are `lacking` a twin are named, and whether the agent suggests a way back."""
    if not lacking:
        return {"tone": "calm", "title": "Can be undone.", "text": words}
    more = f" and {len(lacking) - TARGETS_MAX} more" if len(lacking) > TARGETS_MAX else ""
    named = f"{', '.join(_named(lacking[:TARGETS_MAX]))}{more}"
    agent = "the agent only suggests a way back" if suggested else "the agent names none"
    return {
        "tone": "wait",
        "title": "Only a part can be undone.",
        "text": f"{words} The policy has no twin for {named}, and {agent}.",
    }


def _cannot(words: str) -> Notice:
    return {"tone": "bad", "title": "Cannot be taken back.", "text": words}


# What the run did before.


def earlier_steps(approval: Approval) -> list[dict[str, Any]]:
    """The last calls of the run before the one that is asked about, in their order."""
    action = approval.action
    if action is None:
        return []
    before = Action.objects.filter(run=action.run_id, pk__lt=action.pk)
    newest = before.order_by("-n", "-first_place").exclude(tool="")[:STEPS_SHOWN_MAX]
    return [
        {
            "tool": one.tool_words,
            "targets": ", ".join(_named(one.targets or [])[:TARGETS_MAX]),
            "state": one.state,
            "at": formatting.moment(one.finished_at or one.planned_at),
        }
        for one in reversed(newest)
    ]


# Whom the tool reached before.


def payees(approval: Approval, earlier: Sequence[EarlierCall] | None) -> list[dict[str, Any]]:
    """Each recipient, else each target, with what is on record of it, those first that are new; of
    many some, and how many more. Nothing of `earlier` None.
    """
    if approval.action is None or earlier is None:
        return []
    before = {one for call in earlier for one in call.reached}
    reached = sorted(_reached(approval), key=lambda one: one in before)
    shown = [_payee(one, earlier) for one in reached[:RECIPIENTS_SHOWN_MAX]]
    more = reached[RECIPIENTS_SHOWN_MAX:]
    return [*shown, *([_others(more, before)] if more else [])]


def _others(names: Sequence[str], before: Collection[str]) -> dict[str, Any]:
    new = sum(one not in before for one in names)
    told = {"name": f"{len(names)} more", "tone": "calm", "word": "Not new", "words": ""}
    if new:
        told |= {"tone": "wait", "word": "New", "words": f"{new} of them never before"}
    return told


def _reached(approval: Approval) -> list[str]:
    """Recipients by the tool's preview, else the targets of the call."""
    shown = [str(one) for preview in approval.previews for one in preview.get("recipients") or []]
    targets = approval.calls[0].get("targets") or [] if approval.calls else []
    return list(dict.fromkeys(shown or _named(targets)))


def _payee(name: str, earlier: Sequence[EarlierCall]) -> dict[str, Any]:
    known = [one for one in earlier if name in one.reached]
    if not known:
        alike = _alike(name, earlier)
        if alike:
            words = f"never before; it looks like {formatting.quoted(alike)}, which is known"
            return {"name": name, "tone": "bad", "word": "Looks like another", "words": words}
        words = "this tool never reached it before" if earlier else "no call of this tool before"
        return {"name": name, "tone": "wait", "word": "New", "words": words}
    times = [one.at for one in known if one.at]
    wrong = sum(not one.stood for one in known)
    most: dict[str, Money] = {}
    for money in (one.money for one in known if one.money):
        kept = most.setdefault(money.currency, money)
        most[money.currency] = max(kept, money, key=lambda one: one.amount_minor)
    parts = [f"{len(known)} call{'s' * (len(known) > 1)} of this tool before"]
    if times:
        parts.append(f"known since {timezone.localdate(min(times))}")
        parts.append(f"last {formatting.ago(max(times))}")
    parts += [f"{' or '.join(map(str, most.values()))} at most"] if most else []
    parts += [f"{wrong} found wrong or undone"] if wrong else []
    tone, word = ("wait", "Known, with trouble") if wrong else ("ok", "Known")
    return {"name": name, "tone": tone, "word": word, "words": ", ".join(parts)}


def _alike(name: str, earlier: Sequence[EarlierCall]) -> str:
    """One that was reached before, is another, and looks the same to a person."""
    looks = skeleton(name)
    seen = (one for call in earlier if call.stood for one in call.reached)
    return next((one for one in seen if one != name and skeleton(one) == looks), "")


# What is unusual.


def anomalies(
    approval: Approval, earlier: Sequence[EarlierCall], touched: Touched | None = None
) -> Iterator[Notice]:
    """Notices for the card, the weightiest first. Of many, `touched` is looked up once."""
    yield from _unusual_amount(approval, earlier)
    for name in _reached(approval) if approval.action_id else ():
        if not any(name in one.reached for one in earlier) and (alike := _alike(name, earlier)):
            text = f"{formatting.quoted(name)} is not {formatting.quoted(alike)}, which is known."
            yield {"tone": "bad", "title": "Looks like another.", "text": text}
    yield from _reaches_out(approval)
    if approval.subject_kind == SubjectKind.ACTION:  # a plan undoes what is on record
        if change := inventory.change(approval):
            title = "This tool takes other arguments than before."
            yield {"tone": "bad", "title": title, "text": change}
        yield from _first_time(approval, touched_before([approval]) if touched is None else touched)


def _unusual_amount(approval: Approval, earlier: Sequence[EarlierCall]) -> Iterator[Notice]:
    """Above twice the most that the same tool moved before, or, for a plan, earlier plans did."""
    if approval.amount_minor is None:
        return
    currency = approval.currency
    calls = [one.money for one in earlier if one.money and one.money.currency == currency]
    known = [one.amount_minor for one in calls]
    if len(known) < ENOUGH_TO_COMPARE or approval.amount_minor <= UNUSUAL_TIMES * max(known):
        return
    most = formatting.money(max(known), approval.currency)
    what = "calls of this tool" if approval.action_id else "plans that were approved"
    text = f"The most among the last {len(known)} {what} was {most}."
    yield {"tone": "bad", "title": "Unusual amount.", "text": text}


def _of_plans(approval: Approval) -> list[Money]:
    used = Approval.objects.filter(
        workspace=approval.workspace_id,
        subject_kind=SubjectKind.PLAN,
        state=ApprovalState.USED,
        currency=approval.currency,
        pk__lt=approval.pk,
    ).exclude(amount_minor=None)
    found = used.order_by("-pk").values_list("amount_minor", flat=True)[:HISTORY_MAX]
    return [Money(amount, approval.currency) for amount in found if amount is not None]


def _reaches_out(approval: Approval) -> Iterator[Notice]:
    """Recipients whose mail domain is nobody's of the workspace."""
    reached = [str(one) for shown in approval.previews for one in shown.get("recipients") or []]
    addresses = [one for one in dict.fromkeys(reached) if "@" in one]
    if not addresses:
        return
    here = approval.workspace
    own = cached(("domains", here.pk), lambda: _domains(here))
    outside = [one for one in addresses if domain_of(one) not in own]
    if outside:
        more = len(outside) - RECIPIENTS_SHOWN_MAX
        names = ", ".join(outside[:RECIPIENTS_SHOWN_MAX]) + (f" and {more} more" * (more > 0))
        text = f"{names}: nobody here has an address there."
        yield {"tone": "wait", "title": "Reaches people outside.", "text": text}


def _domains(here: Workspace) -> set[str]:
    """The mail domains of its people."""
    return {domain_of(email) for email in people_with("view", here).values_list("email", flat=True)}


def domain_of(address: str) -> str:
    return address.rpartition("@")[2].strip(" >").lower()


def _first_time(approval: Approval, touched: Touched) -> Iterator[Notice]:
    action = approval.action
    if action is None:
        return
    new = [
        call_context.target_words(one)
        for one in _targets(approval)
        if (approval.pk, one["type"], one["id"]) not in touched
    ]
    told = len(approval.calls[0].get("targets") or []) if approval.calls else 0
    looked_at = f" Only {TARGETS_LOOKED_AT_MAX} of its {told} targets were looked up."
    left_out = looked_at if told > TARGETS_LOOKED_AT_MAX else ""
    if new:
        more = f" and {len(new) - TARGETS_MAX} more" if len(new) > TARGETS_MAX else ""
        text = f"Nothing on record was ever done to {', '.join(new[:TARGETS_MAX])}{more}."
        yield {"tone": "wait", "title": "First time.", "text": text + left_out}
    elif left_out:
        yield {"tone": "wait", "title": "Many targets.", "text": left_out.strip()}
    # Calls that ran or may have run: who asks again and again has not called anything.
    calls = Action.objects.filter(
        workspace=approval.workspace_id, tool=action.tool, agent=approval.agent_id, state__in=RAN
    )
    ran = _gated(calls).values_list("pk", flat=True)
    key = ("ran", approval.workspace_id, approval.agent_id, action.tool)
    if set(cached(key, lambda: list(ran[:2]))) <= {action.pk}:
        text = f"{approval.agent} has never called {action.tool_words} before."
        yield {"tone": "wait", "title": "First call of this tool.", "text": text}


def _targets(approval: Approval) -> list[dict[str, Any]]:
    told = approval.calls[0].get("targets") or [] if approval.calls else []
    return list(told[:TARGETS_LOOKED_AT_MAX])


TOUCHED = f"""
SELECT asked.question, asked.type, asked.id
FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[])
    AS asked (question, action, type, id)
WHERE EXISTS (SELECT FROM ledger_effect e
    JOIN ledger_action a ON a.id = e.action_id JOIN ledger_run r ON r.id = a.run_id
    WHERE e.workspace_id = %s AND e.target_type = asked.type AND e.target_id = asked.id
        AND e.action_id <> asked.action AND {GATED} AND {ASKED_FOR.format("asked")})"""  # noqa: S608


def touched_before(approvals: Sequence[Approval]) -> Touched:
    """Of these questions, all of one workspace and about calls of agents, in one statement."""
    asked = [
        (one.pk, one.action_id, target["type"], target["id"])
        for one in approvals
        if one.action_id is not None
        for target in _targets(one)
    ]
    if not asked:
        return ()
    with connection.cursor() as cursor:
        columns = [list(column) for column in zip(*asked, strict=True)]
        cursor.execute(TOUCHED, [*columns, approvals[0].workspace_id])
        return set(cursor.fetchall())
