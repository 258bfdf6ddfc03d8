"""Denials: what a rule denied at the gate, kept so that a laxer policy can be tried on it."""

from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Now

from approvals.models import Denial
from approvals.policy import Deed
from connectors.canonical import canonical
from workspaces.models import Workspace

KEPT_DAYS = 30
"""As far back as a dry run looks."""

FORGOTTEN_AT_A_TIME = 1_000
DEED_BYTES_MAX = 16 * 1024
"""Of a larger call the arguments are left out: conditions that ask for them are then not met."""


def keep(workspace_id: int, agent_id: int, *, key: str, run: str, deed: Deed) -> None:
    """Remember one denied call; the same key again is the same call."""
    said = asdict(deed) | {"targets": [dict(one) for one in deed.targets]}
    if len(canonical(said)) > DEED_BYTES_MAX:
        said["args"] = None
    Denial.objects.update_or_create(
        agent_id=agent_id,
        key=key,
        defaults={"workspace_id": workspace_id, "run_ref": run, "deed": said, "denied_at": Now()},
    )


def newest(workspace: Workspace, since: Any) -> QuerySet[Denial]:
    """The newest first; those whose words were erased are not among them."""
    found = Denial.objects.filter(workspace=workspace, denied_at__gte=since)
    return found.exclude(deed={}).order_by("-id")


def deed_of(denial: Denial) -> Deed:
    return Deed(**denial.deed)


def forget_old() -> int:
    """Drop what no dry run looks at any more; how many went."""
    old = Denial.objects.filter(denied_at__lt=Now() - timedelta(days=KEPT_DAYS))
    some = list(old.order_by("pk").values_list("pk", flat=True)[:FORGOTTEN_AT_A_TIME])
    Denial.objects.filter(pk__in=some).delete()
    return len(some)
