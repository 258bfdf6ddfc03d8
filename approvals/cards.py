"""How an approval is shown: every call in full, why people are asked, who has answered.

What an agent wrote never mixes with what the desk computed: it stands apart, as a quotation.
"""

import json
from collections.abc import Sequence
from datetime import tzinfo
from typing import Any

from approvals import answers, deciders, precedents
from approvals.anomalies import anomalies
from approvals.calls import calls
from approvals.models import Approval, ApprovalState, SubjectKind
from ledger.masking import holds_mask
from ledger.models import Run
from workspaces import look

SHOWN_STATES = {ApprovalState.WAITING: "pending", ApprovalState.USED: "granted"}
NAMES_MAX = 8


def shown_state(approval: Approval) -> str:
    return SHOWN_STATES.get(ApprovalState(approval.state), approval.state)


def card(approval: Approval, zone: tzinfo, *, sees: bool) -> dict[str, Any]:
    """The context of templates/approvals/card.html, but for what depends on the reader."""
    slug = approval.workspace.slug
    standing = deciders.standing(approval)
    is_open = approval.state == ApprovalState.WAITING
    able = list(map(str, deciders.can_still_decide(approval))) if is_open else []
    case = f"/w/{slug}/cases/{approval.case_ref}/" if approval.case_ref else ""
    return {
        "approval": {
            "id": approval.pk,
            "digest": approval.digest,
            "digest_short": approval.digest[:12],
            "risk": approval.risk,
            "state": shown_state(approval),
            "subject": subject(approval),
            "case_url": case,
            "case_label": f"Case {approval.case_ref}" if case else "",
            "run": "" if case else approval.run_ref,
            "title": approval.headline,
            "expires": look.moment(approval.expires_at, "ago", zone),
        }
        | outcome(approval, zone),
        "calls": calls(approval, sees=sees),
        "hides_values": holds_mask(approval.calls),
        "why": why(approval),
        "decided": answers.decided(approval, zone),
        "requirements": answers.requirements(standing),
        "enquiries": answers.enquiries(approval, zone),
        "before": precedents.before(approval, zone),
        "told": answers.told(approval, zone),
        "agent_text": agent_text(approval) if sees else "",
        "agent_note": note_on(agent_text(approval)),
        "pointed_out": pointed_out(approval, sees=sees),
        "notices": notices(approval, standing, len(able)),
        "who_can": who_can(able),
        "newcomers": answers.newcomers(approval, zone) if is_open else [],
    }


def subject(approval: Approval) -> str:
    if approval.subject_kind == SubjectKind.PLAN:
        return f"Plan of {len(approval.calls)} call{'s' if len(approval.calls) != 1 else ''}"
    agent = approval.agent.name if approval.agent else "an agent"
    return f"One call of {agent}"


def why(approval: Approval) -> list[dict[str, Any]]:
    asking_first = sorted(approval.rules, key=lambda rule: rule.get("approval") == "AUTO")
    rules = [
        {"name": "Rule", "value": rule["words"], "note": rule.get("glob") or ""}
        for rule in asking_first
    ]
    asked = str(approval.requested_by or approval.agent or "the policy itself")
    rows = [*rules, {"name": "Asked by", "value": asked}]
    if approval.agent and approval.requested_by:
        rows.append({"name": "Agent", "value": approval.agent.name})
    customer = _customer(approval)
    if customer:
        rows.append({"name": "On behalf of", "value": customer})
    if approval.reason:
        rows.append({"name": "Because", "value": approval.reason})
    instead = (
        "the agent is told no, with your reason; nothing is done"
        if approval.subject_kind == SubjectKind.ACTION
        else "nothing of this plan runs, and the case is open again"
    )
    return [*rows, {"name": "If rejected", "value": instead}]


def _customer(approval: Approval) -> str:
    """On whose behalf the agent acted: in the call, or in the run that the plan undoes."""
    run = approval.action.run if approval.action else None
    if run is None and approval.run_ref:
        run = Run.objects.filter(workspace=approval.workspace_id, run=approval.run_ref).first()
    return f"{run.customer_name} ({run.customer})" if run and run.customer else ""


def agent_text(approval: Approval) -> str:
    """What the agent wrote of its intent, member by member, as one quotation."""
    said = approval.agent_text
    if not isinstance(said, dict):
        return ""
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in said.items()
        if value is not None
    )


def note_on(text: str) -> str:
    hidden = look.hidden_count(text)
    if not hidden:
        return ""
    return f"untrusted, not checked · {hidden} hidden character{'s' * (hidden != 1)} made visible"


def pointed_out(approval: Approval, *, sees: bool) -> dict[str, Any] | None:
    """What is unusual, together in one notice as bad as its worst; None where nothing is."""
    found = []
    hidden = sum(look.hidden_count(json.dumps(one, ensure_ascii=False)) for one in approval.calls)
    if hidden:
        text = f"{hidden} invisible or reordering characters in the arguments are shown as signs."
        found.append({"tone": "bad", "title": "Hidden characters.", "text": text})
    if approval.state == ApprovalState.WAITING and sees:
        found += anomalies(approval)
    if not found:
        return None
    tone = "bad" if any(one["tone"] == "bad" for one in found) else "wait"
    return {"tone": tone, "items": found}


def notices(
    approval: Approval, standing: deciders.Standing, able_count: int
) -> list[dict[str, Any]]:
    """What stands over the card; `able_count` people can still answer."""
    found = []
    lacking = sum(count for _, count in standing.missing())
    if approval.state == ApprovalState.WAITING and able_count < lacking:
        text = "Fewer people can answer than must. Somebody has to join a team, or it expires."
        found.append({"tone": "wait", "title": "Nobody can complete this.", "text": text})
    if approval.self_approval:
        text = "The rule lets whoever asked approve it, too. The record will say so."
        found.append({"tone": "wait", "title": "One pair of eyes.", "text": text})
    return found


def who_can(able: Sequence[str]) -> str:
    """The people who can still answer, by name."""
    more = f" and {len(able) - NAMES_MAX} more" if len(able) > NAMES_MAX else ""
    return ", ".join(able[:NAMES_MAX]) + more


def outcome(approval: Approval, zone: tzinfo) -> dict[str, Any]:
    """What became of it, when its grant was used, and whether nothing can come of it any more."""
    return {
        "decided_words": ended(approval),
        "used": look.moment(approval.used_at, "ago", zone) if approval.used_at else "",
        "is_over": approval.state not in {ApprovalState.WAITING, ApprovalState.GRANTED},
    }


def ended(approval: Approval) -> str:
    """What became of it, in one sentence; empty while people are asked."""
    reason = f": {approval.closing_reason}" if approval.closing_reason else ""
    by = f" by {approval.closed_by}" if approval.closed_by else " by the desk"
    return {
        ApprovalState.WAITING: "",
        ApprovalState.GRANTED: "Approved, and not yet used.",
        ApprovalState.USED: "Approved, and used. What was approved is what ran, once.",
        ApprovalState.REJECTED: f"Rejected{by}{reason}",
        ApprovalState.EXPIRED: "Expired: nobody answered in time, or the grant was not used.",
        ApprovalState.WITHDRAWN: f"Withdrawn{by}{reason}",
    }[ApprovalState(approval.state)]
