"""What was undone by itself within the hour is not undone by itself again: a loop asks a person."""

from __future__ import annotations

from datetime import timedelta

from django.db import connection

from recovery.models import Plan, Step
from recovery.planning.previews import Draft
from recovery.planning.step_drafting import DraftStep
from workspaces.clock import database_time

AGAIN_SECONDS = 3600
# The first half of the advisory lock's key; the second is the workspace.
LOCK = 0xA070


def one_by_one(workspace: int) -> None:
    """Until the transaction ends, nobody else starts a plan of this workspace by itself: whoever
    comes after this call sees what those before it have started."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s::int, %s::int)", [LOCK, workspace])


def undone_lately(draft: Draft, one: DraftStep) -> bool:
    """Whether this agent's tool was undone on this target by itself within the hour."""
    since = database_time() - timedelta(seconds=AGAIN_SECONDS)
    recent = Plan.objects.filter(
        workspace=draft.case.workspace_id, automatic=True, submitted_at__gt=since
    )
    return Step.objects.filter(
        plan__in=recent,
        target_type=one.step.target_type,
        target_id=one.step.target_id,
        effect__action__tool=one.action.tool,
        effect__action__run__agent=draft.run.agent_id,
    ).exists()
