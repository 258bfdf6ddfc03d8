"""Which policy is in force where, and since when."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from approvals import policy
from approvals.models import PolicyVersion
from approvals.policy import Policy
from ledger.models import Run


def policies_of(runs: Iterable[Run]) -> dict[int, tuple[Policy, datetime | None]]:
    """The policy of each workspace that these runs belong to, and when it came into force."""
    workspaces = {run.workspace_id for run in runs}
    since = dict(
        PolicyVersion.objects.filter(workspace__in=workspaces, active=True).values_list(
            "workspace_id", "activated_at"
        )
    )
    return {pk: (policy.active(pk), since.get(pk)) for pk in workspaces}
