"""How an approval is shown: every call in full, why people are asked, who has answered.

What an agent wrote never mixes with what the desk computed: it stands apart, as a quotation.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.db.models import F
from django.urls import reverse
from django.utils import timezone

from amends.protocol.masking import holds_mask
from approvals import (
    call_context,
    call_history,
    consent_requests,
    deciders,
    digests,
    glass_eligibility,
    grants,
)
from approvals.argument_fields import as_text
from approvals.call_context import calls
from approvals.models import (
    LIVING,
    Approval,
    ApprovalState,
    ConsentAnswer,
    NotificationRecord,
    SubjectKind,
)
from connectors.models import DeliveryState
from ledger.models import ActionState, Run
from workspaces import clock, formatting
from workspaces.models import Membership, User

# Precedents: what people decided before about the same targets.

SHOWN_MAX = 5
PRECEDENT_TARGETS_MAX = 200  # as of a call
TARGET_CHARACTERS_MAX = 400


def targets_of(calls: Sequence[Mapping[str, Any]]) -> list[str]:
    """The targets of an approval's calls, each as `type id`, sorted; what the index holds."""
    found = set()
    for call in calls:
        for one in call.get("targets") or []:
            found.add(f"{one.get('type', '')} {one.get('id', '')}")
        if call.get("target_id"):
            found.add(f"{call.get('target_type', '')} {call['target_id']}")
    return sorted(one.strip()[:TARGET_CHARACTERS_MAX] for one in found)[:PRECEDENT_TARGETS_MAX]


def before(approval: Approval) -> list[dict[str, Any]]:
    """The last approvals on one of the same targets that have ended, newest first."""
    if not approval.targets:
        return []
    ended = Approval.objects.filter(
        workspace=approval.workspace_id, targets__overlap=approval.targets, pk__lt=approval.pk
    ).exclude(state=ApprovalState.WAITING)
    rows = ended.select_related("workspace", "closed_by").prefetch_related(
        "decisions__person", "decisions__principal"
    )
    return [_precedent_told(one) for one in rows.order_by("-pk")[:SHOWN_MAX]]


def _precedent_told(one: Approval) -> dict[str, Any]:
    people = ", ".join(decision.who for decision in one.decisions.all())
    who = people or str(one.closed_by or "")
    if not who and one.state != ApprovalState.WITHDRAWN:  # its reason says who made the desk do it
        who = "nobody"
    return {
        "url": f"/w/{one.workspace.slug}/approvals/{one.pk}/",
        "title": one.headline,
        "state": "granted" if one.state == ApprovalState.USED else one.state,
        "by": who,
        "reason": one.closing_reason,
        "when": formatting.moment(one.decided_at),
    }


# Who must answer, who has, and who was told: the people of an approval, as its card shows them.

TOLD_SHOWN_MAX = 200
WISHED = {ConsentAnswer.OPEN: "wait", ConsentAnswer.YES: "ok", ConsentAnswer.NO: "bad"}
BECAME = {
    DeliveryState.WAITING: ("calm", "on its way"),
    DeliveryState.SENT: ("ok", "sent"),  # whether it arrived, whoever took it does not say
    DeliveryState.FAILED: ("bad", "not delivered"),
}


def decided(approval: Approval) -> list[dict[str, Any]]:
    rows = approval.decisions.select_related("person", "principal", "requirement__team")
    rows = rows.order_by("pk")
    brought_in = _brought_in(approval, [one.person_id for one in rows])
    slug = approval.workspace.slug
    return [
        {
            "who": one.who,
            "group": str(one.requirement.team or "") if one.requirement else "",
            "words": ("yes" if one.granted else "no")
            + (f", {formatting.quoted(one.reason)}" if one.reason else ""),
            "time": formatting.moment(one.at),
            "brought_in": brought_in.get(one.person_id, ""),
            "signed_url": reverse("approvals:signed", args=[slug, approval.pk, one.pk])
            if one.signature
            else "",
        }
        for one in rows
    ]


def _brought_in(approval: Approval, people: list[int]) -> dict[int, str]:
    """Who of the people was brought into the workspace by whom, and on which day."""
    rows = Membership.objects.filter(workspace=approval.workspace_id, person__in=people)
    rows = rows.exclude(added_by=None).exclude(added_by=F("person")).select_related("added_by")
    return {
        row.person_id: f"brought in by {row.added_by} on {timezone.localdate(row.added_at)}"
        for row in rows.order_by("-added_at")
    }


def newcomers(approval: Approval) -> list[dict[str, Any]]:
    """Who could answer but for having been brought in a short while ago by those who ask."""
    return [
        {
            "who": str(one.person),
            "words": one.brought_in_by,
            "time": formatting.moment(one.at),
            "counts": formatting.moment(one.counts_at, "full"),
        }
        for one in deciders.newcomers(approval)
    ]


def requirements(standing: deciders.ApprovalProgress) -> list[dict[str, Any]]:
    names = {person.pk: str(person) for person in User.objects.filter(pk__in=list(standing.filled))}
    found = []
    for place, one in enumerate(standing.requirements):
        people = [names[person] for person, at in standing.filled.items() if at == place]
        who = f"from {one.team}" if one.team else "who may approve"
        if one.escalated_to:
            who += f" or, as nobody had decided in time, from {one.escalated_to}"
        words = f"{one.count} {'person' if one.count == 1 else 'people'} {who}"
        met = len(people) == one.count
        missing = (
            "" if met or not people else f" ({len(people)} of {one.count}: {', '.join(people)})"
        )
        found.append({"words": words + missing, "met_by": ", ".join(people) if met else ""})
    return found


def affected(approval: Approval, *, link: bool) -> list[dict[str, Any]]:
    """What affected people were asked first and said; the link only for who may pass it on."""
    return [
        {
            "who": one.name or one.person_ref,
            "contact": one.contact or "no address known: pass the link on",
            "question": one.question,
            "tone": WISHED[ConsentAnswer(one.answer)],
            "words": one.get_answer_display(),
            "note": one.note,
            "time": formatting.moment(one.answered_at or one.asked_at),
            "link": consent_requests.link_of(one) if link else "",
        }
        for one in approval.consent_requests.order_by("pk")
    ]


def enquiries(approval: Approval) -> list[dict[str, Any]]:
    """What was asked back, with the answers; an agent's are quoted, as all that it writes."""
    rows = approval.clarifications.select_related("asked_by", "answered_by").order_by("pk")
    return [
        {
            "id": one.pk,
            "who": str(one.asked_by),
            "question": one.question,
            "time": formatting.moment(one.asked_at),
            "answer": one.answer,
            "answered_by": str(one.answered_by or approval.agent or "the agent"),
            "by_agent": one.answered_at is not None and one.answered_by is None,
            "answered": formatting.moment(one.answered_at) if one.answered_at else "",
        }
        for one in rows
    ]


def told(approval: Approval) -> list[dict[str, Any]]:
    """Who was told what, when and by which channel, and whether it arrived; oldest first."""
    rows = approval.told.select_related("delivery", "person").order_by("pk")
    return [_told(one) for one in rows[:TOLD_SHOWN_MAX]]


def _told(one: NotificationRecord) -> dict[str, Any]:
    delivery = one.delivery
    tone, word = ("calm", "no longer known")
    if delivery is not None:
        tone, word = BECAME[DeliveryState(delivery.state)]
    return {
        "who": str(one.person) if one.person else one.to,
        "way": delivery.get_kind_display() if delivery else "",
        "words": one.get_about_display(),
        "tone": tone,
        "became": word,
        "why": delivery.last_error if delivery and delivery.state == DeliveryState.FAILED else "",
        "time": formatting.moment((delivery.sent_at if delivery else None) or one.at),
    }


NOT_ENDED = (ActionState.PLANNED, ActionState.APPROVED, ActionState.RUNNING)
SHOWN_STATES = {ApprovalState.WAITING: "pending", ApprovalState.USED: "granted"}
NAMES_MAX = 8
REQUEST_CHARACTERS_MAX = 300


def shown_state(approval: Approval) -> str:
    return SHOWN_STATES.get(ApprovalState(approval.state), approval.state)


def card(approval: Approval, *, sees: bool) -> dict[str, Any]:
    """The context of templates/approvals/card.html, but for what depends on the reader."""
    slug = approval.workspace.slug
    standing = deciders.progress(approval)
    is_open = approval.state == ApprovalState.WAITING
    mandates = deciders.mandates(approval) if is_open else []
    case = f"/w/{slug}/cases/{approval.case_ref}/" if approval.case_ref else ""
    earlier = call_history.earlier_like(approval) if is_open and sees else None
    return {
        "approval": {
            "id": approval.pk,
            "digest": approval.digest,
            "digest_short": formatting.digest(approval.digest),
            "plan_digest": formatting.digest(approval.subject.get("digest", "")),
            "risk": approval.risk,
            "state": shown_state(approval),
            "subject": subject(approval),
            "agent": str(approval.agent or ""),
            "is_grant": approval.subject_kind == SubjectKind.GRANT,
            "case_url": case,
            "case_label": f"Case {approval.case_ref}" if case else "",
            "run": "" if case else approval.run_ref,
            "title": approval.headline,
            "expires": formatting.moment(approval.expires_at),
            "may_wait": is_open and approval.subject_kind == SubjectKind.ACTION,
            "why_not_later": grants.why_not_later(approval),
            "not_before": formatting.moment(approval.not_before, "full")
            if approval.not_before
            else "",
        }
        | outcome(approval),
        "changed": changed(approval, sees=sees),
        "calls": [
            one | {"amount": _unsaid(one["title"], one.get("amount", ""))}
            for one in calls(approval, sees=sees)
        ],
        "hides_values": holds_mask(approval.calls),
        "why": why(approval),
        "decided": decided(approval),
        "requirements": requirements(standing),
        "enquiries": enquiries(approval),
        "before": before(approval),
        "told": told(approval),
        "agent_text": agent_text(approval) if sees else "",
        "agent_note": note_on(agent_text(approval)),
        "pointed_out": pointed_out(approval, earlier),
        "notices": notices(approval, standing, mandates),
        "asked_for": asked_for(approval, sees=sees),
        "way_back": call_history.way_back(approval)
        if approval.state in {*LIVING, ApprovalState.USED}
        else None,
        "earlier_steps": call_history.earlier_steps(approval),
        "payees": call_history.payees(approval, earlier),
        "who_can": who_can(deciders.names(mandates)),
        "newcomers": newcomers(approval) if is_open else [],
    }


def _as_money(one: digests.ArgumentChange, was_in: Any, now_in: str) -> dict[str, str]:
    return {
        "was_money": call_context.money_beside(one.approved, was_in),
        "now_money": call_context.money_beside(one.now, now_in),
    }


def changed(approval: Approval, *, sees: bool) -> dict[str, Any] | None:
    """What somebody has made of what the agent asked for; or where that stands, on what it was."""
    slug = approval.workspace.slug
    after = Approval.objects.filter(replaces=approval).values_list("pk", flat=True).first()
    if after is not None:
        return {"url": f"/w/{slug}/approvals/{after}/", "became": True}
    if approval.replaces_id is None:
        return None
    rows = digests.changes_of(approval) if sees else []
    of_money = call_context.sum_among(
        {one.field: as_text(one.now) for one in rows}, approval.amount_minor
    )
    was_in = digests.currency_before(rows, approval.currency)
    return {
        "url": f"/w/{slug}/approvals/{approval.replaces_id}/",
        "who": str(approval.requested_by),
        "why": approval.reason,
        "when": formatting.moment(approval.asked_at),
        "rows": [
            {
                "field": one.field,
                "was": one.approved,
                "now": one.now,
                "kind": "changed",
                **(_as_money(one, was_in, approval.currency) if one.field == of_money else {}),
            }
            for one in rows
        ],
    }


def subject(approval: Approval) -> str:
    if approval.subject_kind == SubjectKind.PLAN:
        return f"Plan of {len(approval.calls)} call{'s' if len(approval.calls) != 1 else ''}"
    agent = approval.agent.name if approval.agent else "an agent"
    if approval.subject_kind == SubjectKind.GRANT:
        return f"Bounded grant for {agent}"
    return f"One call of {agent}"


def why(approval: Approval) -> list[dict[str, Any]]:
    rules = []
    for rule in deciders.asking_rules(approval):
        rules.append({"name": "Rule", "value": rule["words"], "note": rule.get("glob") or ""})
        rules += [{"name": "Found", "value": fact} for fact in rule.get("facts") or ()]
        if later := rule.get("escalate"):
            after = formatting.span(timedelta(seconds=later["seconds"]))
            words = f"{later['team']} is asked, too, after {after}"
            rules.append({"name": "If nobody decides", "value": words})
    told = dict.fromkeys(one for shown in approval.previews for one in shown.get("warnings") or ())
    rows = [*rules, *({"name": "Beware", "value": one} for one in told)]
    rows.append({"name": "Asked by", "value": approval.asker})
    if approval.agent and approval.requested_by:
        rows.append({"name": "Agent", "value": approval.agent.name})
    if person := customer(approval):
        rows.append({"name": "On behalf of", "value": person})
    if approval.reason:
        rows.append({"name": "Because", "value": approval.reason})
    instead = {
        SubjectKind.ACTION: "the agent is told no, with your reason; nothing is done",
        SubjectKind.PLAN: "nothing of this plan runs, and the case is open again",
        SubjectKind.GRANT: "people are asked about each of these calls",
    }[SubjectKind(approval.subject_kind)]
    return [*rows, {"name": "If rejected", "value": instead}]


def asked_for(approval: Approval, *, sees: bool) -> dict[str, str]:
    """What the run had been asked for, and the sum: what a person reads first."""
    run = _run_of(approval)
    return {
        "request": formatting.quoted(run.request, REQUEST_CHARACTERS_MAX)
        if run and run.request
        else "",
        "amount": amount_of(approval) if sees else "",
    }


def amount_of(approval: Approval) -> str:
    """What it moves, unless its headline says so already."""
    if approval.amount_minor is None:
        return ""
    return _unsaid(approval.headline, formatting.money(approval.amount_minor, approval.currency))


def _unsaid(headline: str, moves: str) -> str:
    # A headline is kept as typed text is, with plain spaces.
    plain = re.escape(" ".join(moves.split()))
    found = re.search(rf"(?<!\d)(?<!\d ){plain}(?!\d)", " ".join(headline.split()))
    return "" if found else moves


def _run_of(approval: Approval) -> Run | None:
    """The run of the call, or the one that the plan undoes."""
    if approval.action is not None:
        return approval.action.run
    if not approval.run_ref:
        return None
    return Run.objects.filter(workspace=approval.workspace_id, run=approval.run_ref).first()


def customer(approval: Approval) -> str:
    """On whose behalf the agent acted."""
    run = _run_of(approval)
    if run is None or not run.customer:
        return ""
    return formatting.person(f"{run.customer_name} ({run.customer})".lstrip())


def agent_text(approval: Approval) -> str:
    """What the agent wrote of its intent, member by member, as one quotation."""
    said = approval.agent_text
    if not isinstance(said, dict):
        return ""
    return "\n".join(
        f"{name}: {as_text(value)}" for name, value in said.items() if value is not None
    )


def note_on(text: str) -> str:
    hidden = formatting.hidden_count(text)
    if not hidden:
        return ""
    return f"untrusted, not checked · {hidden} hidden character{'s' * (hidden != 1)} made visible"


def pointed_out(
    approval: Approval,
    earlier: Sequence[call_history.EarlierCall] | None,
    touched: call_history.Touched | None = None,
) -> dict[str, Any] | None:
    """What is unusual, together in one notice as bad as its worst; None where nothing is. Where
    `earlier` is None, nobody compares it with earlier calls; of many, `touched` is looked up once.
    """
    found = []
    hidden = sum(
        formatting.hidden_count(json.dumps(one, ensure_ascii=False)) for one in approval.calls
    )
    if hidden:
        characters = "character is" if hidden == 1 else "characters are"
        text = f"{hidden} invisible or reordering {characters} shown as signs in the arguments."
        found.append({"tone": "bad", "title": "Hidden characters.", "text": text})
    if earlier is not None:
        found += call_history.anomalies(approval, earlier, touched)
    if not found:
        return None
    tone = "bad" if any(one["tone"] == "bad" for one in found) else "wait"
    return {"tone": tone, "items": found}


COUNTS_NO_MORE = "Somebody who approved it may no longer do so. "
WITHOUT_IT = {
    SubjectKind.ACTION: "Nothing is called with it: when the agent comes, people are asked anew.",
    SubjectKind.PLAN: "Nothing of its plan runs with it.",
    SubjectKind.GRANT: "It lets no call pass: people are asked about each.",
}


def notices(
    approval: Approval, standing: deciders.ApprovalProgress, mandates: Sequence[deciders.Mandate]
) -> list[dict[str, Any]]:
    """What stands over the card."""
    found = []
    is_open = approval.state == ApprovalState.WAITING
    if is_open and not deciders.can_complete(standing, mandates):
        text = (
            "Fewer people can answer than must. Somebody has to join a team, or a rule to say"
            " selfApproval; else it expires."
        )
        found.append({"tone": "wait", "title": "Nobody can complete this.", "text": text})
    if (
        approval.state == ApprovalState.GRANTED
        and not standing.complete
        and not glass_eligibility.stands(approval)
    ):
        text = COUNTS_NO_MORE + WITHOUT_IT[SubjectKind(approval.subject_kind)]
        found.append({"tone": "wait", "title": "This yes no longer counts.", "text": text})
    if approval.self_approval:
        text = "The rule lets whoever asked approve it, too. The record will say so."
        found.append({"tone": "wait", "title": "One pair of eyes.", "text": text})
    return found


def who_can(able: Sequence[str]) -> str:
    """The people who can still answer, by name."""
    more = f" and {len(able) - NAMES_MAX} more" if len(able) > NAMES_MAX else ""
    return ", ".join(able[:NAMES_MAX]) + more


def is_under_way(approval: Approval) -> bool:
    """Whether something can still be learned of it: a grant may be used, and its call may end."""
    is_running = call_context.call_state(approval) in NOT_ENDED
    return approval.state == ApprovalState.GRANTED or (
        is_running and clock.now() < approval.expires_at
    )


def outcome(approval: Approval) -> dict[str, Any]:
    """What became of it, when its grant was used, how its call ended, and whether nothing can come
    of it any more.
    """
    return {
        "call_state": call_context.call_state(approval),
        "decided_words": call_context.ended(approval),
        "used": formatting.moment(approval.used_at) if approval.used_at else "",
        "is_over": approval.state not in LIVING,
    }
