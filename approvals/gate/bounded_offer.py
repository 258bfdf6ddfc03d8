"""What a card offers besides its one call: a bounded grant, and how far its rule lets one go."""

from datetime import timedelta
from typing import Any

from approvals import grants
from approvals.gate.bounded_grants import Limits, currency_of, why_not
from approvals.models import Approval
from workspaces import formatting


def offer(approval: Approval) -> dict[str, Any]:
    """What a card offers: the limits as the first values of its fields, or why there are none."""
    limits = Limits.of(approval.rules)
    if limits is None or why_not(approval):
        return {"why_not": why_not(approval)}
    most = [f"{limits.uses} calls", formatting.span(timedelta(seconds=limits.seconds))]
    terms = {"currency": currency_of(approval, limits)}
    most += [f"{grants.amount(terms, str(limits.each))} each"] if limits.each else []
    most += [f"{grants.amount(terms, str(limits.sum))} in all"] if limits.sum else []
    minor = approval.amount_minor or 0
    targets = approval.calls[0].get("targets") or []
    return {
        "limits": ", ".join(most),
        "same": ", ".join(limits.same),
        "uses": limits.uses,
        "hours": f"{limits.seconds / 3600:g}",
        "counts": bool(limits.amount),
        "unit": f"As the call has it: {minor} is {formatting.money(minor, approval.currency)}."
        if terms["currency"]
        else "",
        "each": limits.each or "",
        "sum": limits.sum or "",
        "listed": f"what stands on the list {limits.listed['list']} ({limits.listed['path']})"
        if limits.listed
        else "",
        "target": f"{targets[0]['type']} {targets[0]['id']}" if len(targets) == 1 else "",
    }
