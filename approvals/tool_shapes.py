"""Which arguments a tool takes, as agents announce it, and whether that has changed.

A server that is not ours may swap a tool for another under its old name. A client says with a
tool's first call in a process which arguments the tool takes (JSON Schema); where these are others
than before, whoever is asked about the tool reads it on the card, until somebody has agreed to a
call of it since. What was announced decides nothing.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from django.db.models import F, Window
from django.db.models.functions import RowNumber

from approvals import digests
from approvals.models import Approval, ApprovalState, ToolShape
from ledger.append.statements import Statement
from ledger.canonical import canonical, digest
from workspaces import formatting

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
    if approval.action is None or approval.agent_id is None:
        return ""
    shapes = newest(approval.agent_id, approval.action.tool)
    if len(shapes) < 2:  # noqa: PLR2004 - nothing to compare
        return ""
    now, before = shapes
    agreed = Approval.objects.filter(
        workspace=approval.workspace_id,
        agent=approval.agent_id,
        action__tool=approval.action.tool,
        state__in=[ApprovalState.GRANTED, ApprovalState.USED],
        decided_at__gt=now.since,
    ).exclude(pk=approval.pk)
    if agreed.exists():
        return ""
    changes = digests.diff(before.schema, now.schema)
    if not changes or {} in (before.schema, now.schema):
        return "What is new of it is too large to be shown."
    more = len(changes) - CHANGES_SHOWN_MAX
    words = [*map(_words, changes[:CHANGES_SHOWN_MAX]), *([f"{more} more"] if more > 0 else [])]
    return f"Since people last agreed: {'; '.join(words)}."


def _words(change: digests.Change) -> str:
    what = formatting.quoted(change.field.removeprefix("properties."))
    was, now = (
        formatting.quoted(json.dumps(one, ensure_ascii=False), VALUE_CHARACTERS_MAX)
        for one in (change.approved, change.now)
    )
    if change.approved is None:
        return f"{what} is new, {now}"
    return f"{what} is gone" if change.now is None else f"{what} was {was} and is {now}"
