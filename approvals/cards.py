"""How an approval is shown: every call in full, why people are asked, who has answered.

What an agent wrote never mixes with what the desk computed: it stands apart, as a quotation.
"""

import json
from collections.abc import Mapping
from datetime import tzinfo
from typing import Any

from approvals import answers, deciders, precedents
from approvals.models import Approval, ApprovalState, SubjectKind
from approvals.oddities import oddities
from workspaces import look
from workspaces.access import Codename

SHOWN_STATES = {ApprovalState.WAITING: "pending", ApprovalState.USED: "granted"}
NAMES_MAX = 8
# Whoever has one of these sees amounts and payloads.
SEEING: tuple[Codename, ...] = ("approve", "recover", "view_sensitive")
HIDDEN = [
    {"name": "Payload", "value": "hidden: seeing it needs approve, recover or view_sensitive"}
]


def shown_state(approval: Approval) -> str:
    return SHOWN_STATES.get(ApprovalState(approval.state), approval.state)


def card(approval: Approval, zone: tzinfo, *, sees: bool) -> dict[str, Any]:
    """The context of templates/approvals/card.html, but for what depends on the reader."""
    slug = approval.workspace.slug
    standing = deciders.standing(approval)
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
            "title": approval.headline,
            "expires": look.moment(approval.expires_at, "ago", zone),
            "decided_words": ended(approval),
        },
        "calls": calls(approval, sees=sees),
        "why": why(approval),
        "decided": answers.decided(approval, zone),
        "requirements": answers.requirements(standing),
        "enquiries": answers.enquiries(approval, zone),
        "before": precedents.before(approval, zone),
        "told": answers.told(approval, zone),
        "agent_text": agent_text(approval) if sees else "",
        "agent_note": note_on(agent_text(approval)),
        "notices": notices(approval, standing, sees=sees),
    }


def subject(approval: Approval) -> str:
    if approval.subject_kind == SubjectKind.PLAN:
        return f"Plan of {len(approval.calls)} call{'s' if len(approval.calls) != 1 else ''}"
    agent = approval.agent.name if approval.agent else "an agent"
    return f"One call of {agent}" + (f" in {approval.run_ref}" if approval.run_ref else "")


def calls(approval: Approval, *, sees: bool) -> list[dict[str, Any]]:
    """Every call in order; nothing is left out before a decision."""
    found = []
    for place, facts in enumerate(approval.calls):
        shown = approval.previews[place] if place < len(approval.previews) else {}
        money = shown.get("money")
        amount = look.money(money["amount_minor"], money["currency"]) if money else ""
        target = f"{facts.get('target_type', '')} {facts.get('target_id', '')}".strip()
        found.append(
            {
                "number": place + 1,
                "title": shown.get("title") or f"{facts['operation']} {target}",
                "amount": amount if sees else "",
                "amount_note": f"to {', '.join(shown.get('recipients') or [])}"
                if money and shown.get("recipients")
                else "",
                "facts": _facts(facts, shown, target) if sees else HIDDEN,
                "diff": _diff(shown) if sees else [],
                "reversibility": shown.get("reversibility", ""),
                "held": True,
                "raw": json.dumps(facts, indent=2, ensure_ascii=False, sort_keys=True)
                if sees
                else "",
            }
        )
    return found


def _facts(facts: Mapping[str, Any], shown: Mapping[str, Any], target: str) -> list[dict[str, Any]]:
    by = (
        f"{facts['connection']}.{facts['operation']}" if facts["connection"] else facts["operation"]
    )
    rows = [{"name": "Call", "value": by, "mono": True}]
    if target:
        rows.append({"name": "On", "value": target, "mono": True})
    told = {"Call", "On"} if target else {"Call"}
    rows += [
        {"name": name, "value": value} for name, value in shown.get("rows", []) if name not in told
    ]
    if shown.get("recipients"):
        rows.append({"name": "Reaches", "value": ", ".join(shown["recipients"])})
    if not shown.get("rows"):
        rows += [{"name": name, "value": _text(value)} for name, value in _args(facts)]
    return rows


def _args(facts: Mapping[str, Any]) -> list[tuple[str, Any]]:
    args = facts.get("args")
    return list(args.items()) if isinstance(args, dict) else [("arguments", args)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _diff(shown: Mapping[str, Any]) -> list[dict[str, Any]]:
    """As it is now, and as it will be, field by field; of calls that write fields."""
    if shown.get("kind", "row") not in ("row", "calendar"):
        return []
    goes = (shown.get("must_be_true") or {}).get("exists") is False
    return [
        {
            "field": row["field"],
            "was": _plain(row.get("agent_wrote") if row.get("now") is None else row["now"]),
            "now": _plain(row.get("was")),
            "kind": "removed" if goes else "changed",
        }
        for row in shown.get("diff") or []
    ]


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else json.dumps(value)


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
    run = approval.action.run if approval.action else None
    return f"{run.customer_name} ({run.customer})" if run and run.customer else ""


def agent_text(approval: Approval) -> str:
    """What the agent wrote of its intent, member by member, as one quotation."""
    said = approval.agent_text
    if not isinstance(said, dict):
        return ""
    return "\n".join(f"{name}: {_text(value)}" for name, value in said.items() if value is not None)


def note_on(text: str) -> str:
    hidden = look.hidden_count(text)
    if not hidden:
        return ""
    return f"untrusted, not checked · {hidden} hidden character{'s' * (hidden != 1)} made visible"


def notices(approval: Approval, standing: deciders.Standing, *, sees: bool) -> list[dict[str, Any]]:
    found = []
    hidden = sum(look.hidden_count(json.dumps(one, ensure_ascii=False)) for one in approval.calls)
    if hidden:
        text = f"{hidden} invisible or reordering characters in the arguments are shown as signs."
        found.append({"tone": "bad", "title": "Hidden characters.", "text": text})
    if approval.state == ApprovalState.WAITING:
        found += oddities(approval) if sees else ()
        able = deciders.can_still_decide(approval)
        lacking = sum(count for _, count in standing.missing())
        if len(able) < lacking:
            text = "Fewer people can answer than must. Somebody has to join a team, or it expires."
            found.append({"tone": "wait", "title": "Nobody can complete this.", "text": text})
        elif able:
            names = ", ".join(map(str, able[:NAMES_MAX]))
            more = f" and {len(able) - NAMES_MAX} more" if len(able) > NAMES_MAX else ""
            found.append({"tone": "calm", "title": "Who can answer:", "text": names + more})
    if approval.self_approval:
        text = "The rule lets whoever asked approve it, too. The record will say so."
        found.append({"tone": "wait", "title": "One pair of eyes.", "text": text})
    return found


def ended(approval: Approval) -> str:
    """What became of it, in one sentence; empty while people are asked."""
    reason = f": {approval.closing_reason}" if approval.closing_reason else ""
    by = f" by {approval.closed_by}" if approval.closed_by else " by the desk"
    return {
        ApprovalState.WAITING: "",
        ApprovalState.GRANTED: "Approved, and not yet used.",
        ApprovalState.USED: "Approved and used. What was approved is what ran, once.",
        ApprovalState.REJECTED: f"Rejected{by}{reason}",
        ApprovalState.EXPIRED: "Expired: nobody answered in time, or the grant was not used.",
        ApprovalState.WITHDRAWN: f"Withdrawn{by}{reason}",
    }[ApprovalState(approval.state)]
