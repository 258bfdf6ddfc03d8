"""Every tool ever seen, with what the policy makes of it; unclassified ones first."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from approvals import tool_shapes
from approvals.dry_run import deed_of
from approvals.policy import Policy, PolicyDecision, judge
from ledger.models import Action
from workspaces.models import Workspace

TOOLS_MAX = 500
COUNT_MAX = 1_000

# A loose index scan: one step in the index per tool, however many actions there are.
NEWEST_OF_EACH = """
WITH RECURSIVE newest AS (
    (SELECT tool, id FROM ledger_action WHERE workspace_id = %(workspace)s
     ORDER BY tool, id DESC LIMIT 1)
    UNION ALL
    SELECT next.tool, next.id FROM newest, LATERAL (
        SELECT tool, id FROM ledger_action
        WHERE workspace_id = %(workspace)s AND tool > newest.tool
        ORDER BY tool, id DESC LIMIT 1) AS next
)
SELECT newest.id, (
    SELECT count(*) FROM (
        SELECT FROM ledger_action a WHERE a.workspace_id = %(workspace)s AND a.tool = newest.tool
        LIMIT %(count)s) AS seen)
FROM newest WHERE tool <> '' LIMIT %(tools)s"""

# Of the newest undone actions of a tool: when it was last read back, and when a receipt last came.
UNDONE = """
SELECT max(e.received_at) FILTER (WHERE e.data ->> 'verified' = 'true'),
    max(e.received_at) FILTER (WHERE e.data ->> 'verified' IS DISTINCT FROM 'true')
FROM (
    SELECT run_id, action FROM ledger_action
    WHERE workspace_id = %(workspace)s AND tool = %(tool)s AND compensated = 'compensated'
    ORDER BY id DESC LIMIT %(limit)s
) a JOIN ledger_run r ON r.id = a.run_id
JOIN ledger_event e ON e.workspace_id = %(workspace)s AND e.run = r.run AND e.action = a.action
    AND e.type = 'action.compensated'"""
UNDONE_MAX = 50


@dataclass(frozen=True, slots=True)
class Line:
    """One tool of the inventory."""

    tool: str
    classified: bool
    action_class: str
    risk: str
    answer: str
    rule: str
    twin: str
    runnable: bool
    seen: int
    last_seen: datetime | None
    last_undone: datetime | None
    """When a compensation of it was last verified, that is, read back."""
    last_receipt: datetime | None
    """When one was last reported done, and nothing could be read back."""
    takes: tuple[str, ...]
    """The arguments that it takes, as its agent announced them last."""
    reshaped: datetime | None
    """When these took the place of others."""


def tools(workspace: Workspace, policy: Policy) -> list[Line]:
    """The inventory; a compensation that the rules name without a twin shows as not runnable."""
    asked = {"workspace": workspace.pk, "count": COUNT_MAX + 1, "tools": TOOLS_MAX}
    with connection.cursor() as cursor:
        cursor.execute(NEWEST_OF_EACH, asked)
        counts = dict(cursor.fetchall())
    rows = Action.objects.filter(pk__in=counts).select_related("agent", "run")
    found = [_line(workspace, policy, action, counts[action.pk]) for action in rows]
    return sorted(found, key=lambda line: (line.classified, line.tool))


def _line(workspace: Workspace, policy: Policy, action: Action, seen: int) -> Line:
    judgement = judge(policy, deed_of(action))
    target = str(action.targets[0].get("type", "")) if action.targets else ""
    twin = policy.twin(action.tool, target)
    entry = policy.tool(action.tool)
    undone, receipt = _last_undone(workspace, action.tool)
    shapes = tool_shapes.newest(action.agent_id, action.tool) if action.agent_id else []
    words = f"{twin.connection}.{twin.operation}" if twin else _kind(judgement)
    return Line(
        tool=action.tool,
        classified=entry is not None and entry.action_class is not None,
        action_class=judgement.action_class,
        risk=judgement.risk,
        answer=judgement.approval,
        rule=judgement.why,
        twin=words,
        runnable=twin is not None or judgement.compensation in {None, "NONE"},
        seen=seen,
        last_seen=action.planned_at or action.started_at,
        last_undone=undone,
        last_receipt=receipt,
        takes=shapes[0].arguments() if shapes else (),
        reshaped=shapes[0].since if len(shapes) > 1 else None,
    )


def _kind(judgement: PolicyDecision) -> str:
    if judgement.compensation in {None, "NONE"}:
        return "none"
    return f"{judgement.compensation.lower()}, but no twin says how"


def _last_undone(workspace: Workspace, tool: str) -> tuple[datetime | None, datetime | None]:
    """When a compensation of this tool was last verified, and when it was last only reported."""
    asked: dict[str, Any] = {"workspace": workspace.pk, "tool": tool, "limit": UNDONE_MAX}
    with connection.cursor() as cursor:
        cursor.execute(UNDONE, asked)
        verified, reported = cursor.fetchone()
    return verified, reported
