"""Tools: every one ever seen with what the policy makes of it, unclassified ones first; and which
arguments each takes.

A server that is not ours may swap a tool for another under its old name. A client says with a
tool's first call in a process which arguments the tool takes (JSON Schema); where these are others
than before, whoever is asked about the tool reads it on the card, until somebody has agreed to a
call of it since. What was announced decides nothing.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import F, Window
from django.db.models.functions import RowNumber

from amends.protocol.vocabulary import ActionClass
from approvals import digests
from approvals.dry_run import call_of
from approvals.models import Approval, ApprovalState, ToolShape
from approvals.policy import Policy, PolicyDecision, judge
from approvals.policy.decisions import UNASKED
from connectors import calls
from ledger.append.statements import Statement
from ledger.canonical import canonical, digest
from ledger.models import Action
from workspaces import exporting, formatting
from workspaces.models import Workspace
from workspaces.request_cache import cached

SCHEMA_BYTES_MAX = 8 * 1024
"""A larger one is told apart by its digest alone, and not shown."""
SHAPES_OF_AGENT_MAX = 2_000
CHANGES_SHOWN_MAX = 5
VALUE_CHARACTERS_MAX = 120

# That an earlier shape is announced again is a change, too: it is the newest from now on.
NOTE = """
INSERT INTO approvals_toolshape AS shape (agent_id, tool, digest, schema, since, told_at)
SELECT %b, %b, %b, %b::jsonb, clock_timestamp(), clock_timestamp()
WHERE (SELECT count(*) FROM (
    SELECT FROM approvals_toolshape WHERE agent_id = %b LIMIT %b) known) < %b
ON CONFLICT (agent_id, tool, digest) DO UPDATE SET told_at = clock_timestamp(),
    since = CASE WHEN EXISTS (SELECT FROM approvals_toolshape other
            WHERE other.agent_id = shape.agent_id AND other.tool = shape.tool
                AND other.told_at > shape.told_at)
        THEN clock_timestamp() ELSE shape.since END"""


def noting(agent_id: int | None, tool: str, schema: Mapping[str, Any]) -> Statement:
    """The statement that notes a shape."""
    written = canonical(schema)
    kept = written.decode() if len(written) <= SCHEMA_BYTES_MAX else "{}"
    most = SHAPES_OF_AGENT_MAX
    return NOTE, [agent_id, tool, digest(schema), kept, agent_id, most, most]


def newest(agent_id: int, tool: str) -> list[ToolShape]:
    """The shape that was announced last and the one before it."""
    shapes = ToolShape.objects.filter(agent=agent_id, tool=tool)
    return list(shapes.order_by("-told_at", "-pk")[:2])


def newest_of(asked: Collection[tuple[int, str]]) -> dict[tuple[int, str], list[ToolShape]]:
    """As `newest`, of many agents' tools at once, by agent and tool."""
    agents, tools = {agent for agent, _ in asked}, {tool for _, tool in asked}
    rank = Window(
        RowNumber(),
        partition_by=[F("agent"), F("tool")],
        order_by=[F("told_at").desc(), F("pk").desc()],
    )
    shapes = ToolShape.objects.filter(agent__in=agents, tool__in=tools).annotate(rank=rank)
    found: dict[tuple[int, str], list[ToolShape]] = {}
    for one in shapes.filter(rank__lte=2).order_by("rank"):
        found.setdefault((one.agent_id, one.tool), []).append(one)
    return found


def change(approval: Approval) -> str:
    """What is new of the arguments of the tool that is asked about, since people last agreed to a
    call of it; empty where nothing is.
    """
    agent, action = approval.agent_id, approval.action
    if action is None or agent is None:
        return ""
    shapes = cached(("shapes", agent, action.tool), lambda: newest(agent, action.tool))
    if len(shapes) < 2:  # noqa: PLR2004 - nothing to compare
        return ""
    now, before = shapes
    agreed = Approval.objects.filter(
        workspace=approval.workspace_id,
        agent=agent,
        action__tool=action.tool,
        state__in=[ApprovalState.GRANTED, ApprovalState.USED],
        decided_at__gt=now.since,
    ).exclude(pk=approval.pk)
    if agreed.exists():
        return ""
    changes = digests.changes(before.schema, now.schema)
    if not changes or {} in (before.schema, now.schema):
        return "What is new of it cannot be shown: it is too large, or was erased."
    more = len(changes) - CHANGES_SHOWN_MAX
    words = [*map(_words, changes[:CHANGES_SHOWN_MAX]), *([f"{more} more"] if more > 0 else [])]
    return f"Since people last agreed: {'; '.join(words)}."


def _words(change: digests.ArgumentChange) -> str:
    what = formatting.quoted(change.field.removeprefix("properties."))
    was, now = (
        formatting.quoted(json.dumps(one, ensure_ascii=False), VALUE_CHARACTERS_MAX)
        for one in (change.approved, change.now)
    )
    if change.approved is None:
        return f"{what} is new, {now}"
    return f"{what} is gone" if change.now is None else f"{what} was {was} and is {now}"


HARMLESS = {ActionClass.READ_ONLY, ActionClass.DRAFT, ActionClass.EXTERNAL_IRREVERSIBLE}
"""Classes of which nothing is undone, or nothing can be."""
COUNT_MAX = 1_000

# A loose index scan: one step in the index per tool, however many actions there are; backwards, for
# so the index has them (action_of_tool), the newest of each tool first.
NEWEST_OF_EACH = """
WITH RECURSIVE newest AS (
    (SELECT tool, id FROM ledger_action WHERE workspace_id = %s
     ORDER BY tool DESC, id DESC LIMIT 1)
    UNION ALL
    SELECT next.tool, next.id FROM newest, LATERAL (
        SELECT tool, id FROM ledger_action
        WHERE workspace_id = %s AND tool < newest.tool
        ORDER BY tool DESC, id DESC LIMIT 1) AS next
)
SELECT tool, id FROM newest WHERE tool <> '' LIMIT %s"""

SEEN = """
SELECT named.tool, (
    SELECT count(*) FROM (
        SELECT FROM ledger_action a WHERE a.workspace_id = %s AND a.tool = named.tool
        LIMIT %s) AS seen)
FROM unnest(%s::text[]) AS named (tool)"""

# Of the newest undone actions of each tool: when one was last read back, and when a receipt came.
UNDONE = """
SELECT named.tool, max(e.received_at) FILTER (WHERE e.data ->> 'verified' = 'true'),
    max(e.received_at) FILTER (WHERE e.data ->> 'verified' IS DISTINCT FROM 'true')
FROM unnest(%(tools)s::text[]) AS named (tool), LATERAL (
    SELECT run_id, action FROM ledger_action
    WHERE workspace_id = %(workspace)s AND tool = named.tool AND compensated = 'compensated'
    ORDER BY id DESC LIMIT %(limit)s
) a JOIN ledger_run r ON r.id = a.run_id
JOIN ledger_event e ON e.workspace_id = %(workspace)s AND e.run = r.run AND e.action = a.action
    AND e.type = 'action.compensated'
GROUP BY named.tool"""
UNDONE_MAX = 50


@dataclass(frozen=True, slots=True)
class InventoryEntry:
    """One tool of the inventory."""

    tool: str
    classified: bool
    action_class: str
    risk: str
    answer: str
    rule: str
    because: str
    """The rule in short: what the answer beside it does not say."""
    twin: str
    runnable: bool
    teachable: bool
    """Whether it changes something, and nothing says how that is undone. Not what the desk undoes
    others with: that is taught where people report such an undo as wrong.
    """
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


class Listed(NamedTuple):
    """A tool's place in the inventory, unclassified ones first, and its newest action."""

    classified: bool
    tool: str
    newest: int

    def place(self) -> str:
        """The place as text, which sorts as the list does."""
        return f"{self.classified:d} {self.tool}"


def listed(workspace: Workspace, policy: Policy) -> list[Listed]:
    """Every tool ever seen, in the order of the inventory; one more than a file holds, at most."""
    found = newest_of_each(workspace)
    return sorted(Listed(_is_classified(policy, tool), tool, pk) for tool, pk in found)


def newest_of_each(workspace: Workspace) -> list[tuple[str, int]]:
    """Each tool ever seen with its newest action; one more than a file holds, at most."""
    with connection.cursor() as cursor:
        cursor.execute(NEWEST_OF_EACH, [workspace.pk, workspace.pk, exporting.ROWS_MAX + 1])
        return list(cursor.fetchall())


def _is_classified(policy: Policy, tool: str) -> bool:
    entry = policy.entry_of(tool)
    return entry is not None and entry.action_class is not None


def tools(workspace: Workspace, policy: Policy, newest: Sequence[int]) -> list[InventoryEntry]:
    """What the inventory says of the tools of these actions, the newest of each; a compensation
    that the rules name without a twin, or with one that cannot be called as the connections stand,
    shows as not runnable.
    """
    found = Action.objects.select_related("agent", "run").in_bulk(newest)
    rows = [found[pk] for pk in newest if pk in found]
    names = [one.tool for one in rows]
    with connection.cursor() as cursor:
        cursor.execute(SEEN, [workspace.pk, COUNT_MAX + 1, names])
        seen = dict(cursor.fetchall())
    undone = _last_undone(workspace, names)
    shapes = newest_of({(one.agent_id, one.tool) for one in rows if one.agent_id})
    named = [(twin.connection, twin.operation) for twin in policy.twins]
    missing = calls.missing(workspace, named)
    return [
        _line(
            policy,
            one,
            seen[one.tool],
            undone.get(one.tool, (None, None)),
            shapes.get((one.agent_id or 0, one.tool), []),
            missing,
        )
        for one in rows
    ]


Undone = tuple[datetime | None, datetime | None]
"""When a compensation was last verified, and when one was last only reported."""


def _line(
    policy: Policy,
    action: Action,
    seen: int,
    undone: Undone,
    shapes: list[ToolShape],
    missing: Mapping[tuple[str, str], str],
) -> InventoryEntry:
    judgement = judge(policy, call_of(action))
    target = str(action.targets[0].get("type", "")) if action.targets else ""
    twin = policy.twin(action.tool, target)
    words = f"{twin.connection}.{twin.operation}" if twin else _kind(judgement)
    why_not = missing.get((twin.connection, twin.operation), "") if twin else ""
    return InventoryEntry(
        tool=action.tool,
        classified=_is_classified(policy, action.tool),
        action_class=judgement.action_class,
        risk=judgement.risk,
        answer=judgement.approval,
        rule=judgement.why,
        because=_because(action.tool, judgement),
        twin=f"{words}: {why_not}" if why_not else words,
        runnable=not why_not and (twin is not None or judgement.compensation in {None, "NONE"}),
        teachable=action.agent_id is not None
        and twin is None
        and judgement.compensation != "NONE"
        and judgement.action_class not in HARMLESS,
        seen=seen,
        last_seen=action.planned_at or action.started_at,
        last_undone=undone[0],
        last_receipt=undone[1],
        takes=shapes[0].arguments() if shapes else (),
        reshaped=shapes[0].since if len(shapes) > 1 else None,
    )


def _because(tool: str, judgement: PolicyDecision) -> str:
    """`its own rule`, `rule mail.*`, `no rule`; else what the policy says in words."""
    if len(judgement.rules) != 1 or judgement.approval not in UNASKED:
        return judgement.why
    rule = judgement.rules[0]
    if rule["glob"] is None:
        return "no rule"
    fits = f"{rule['glob']} when {rule['when']}" if rule["when"] else rule["glob"]
    if rule["words"] != f"{fits} {UNASKED[judgement.approval]}":
        return judgement.why
    return "its own rule" if fits == tool else f"rule {fits}"


def _kind(judgement: PolicyDecision) -> str:
    if judgement.compensation in {None, "NONE"}:
        return "none"
    return f"{judgement.compensation.lower()}, but no twin says how"


def _last_undone(workspace: Workspace, tools: list[str]) -> dict[str, Undone]:
    """Of each of these tools that was ever undone."""
    asked: dict[str, Any] = {"workspace": workspace.pk, "tools": tools, "limit": UNDONE_MAX}
    with connection.cursor() as cursor:
        cursor.execute(UNDONE, asked)
        return {tool: (verified, reported) for tool, verified, reported in cursor.fetchall()}
