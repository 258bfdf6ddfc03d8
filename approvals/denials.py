"""Denials: what a rule denied at the gate, kept so that a laxer policy can be tried on it."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

from django.db.models import Max, QuerySet, Sum
from django.db.models.functions import Now

from approvals.models import Denial
from approvals.policy import ToolCall
from ledger.append.statements import Statement, json_text
from ledger.canonical import canonical_of
from ledger.models import Run
from workspaces.models import Workspace

KEPT_DAYS = 30
"""As far back as a dry run looks."""

FORGOTTEN_AT_A_TIME = 1_000

OFTEN = 10
"""So many calls of one run that a rule denied are a case: whatever drives it does not take no."""

CALL_BYTES_MAX = 16 * 1024
"""Of a larger call the arguments are left out: conditions that ask for them are then not met."""


KEEP = """
INSERT INTO approvals_denial AS d (workspace_id, agent_id, key, run_ref, deed)
VALUES (%b, %b, %b, %b, %b::jsonb)
ON CONFLICT (agent_id, key, run_ref) DO UPDATE
SET times = d.times + 1, deed = excluded.deed, denied_at = clock_timestamp()"""


def kept(workspace_id: int, agent_id: int, *, key: str, run: str, call: ToolCall) -> Statement:
    """What remembers one denied call; the same key again in the same run is the same call."""
    said = asdict(replace(call, findings={})) | {"targets": [dict(one) for one in call.targets]}
    if len(canonical_of(said)) > CALL_BYTES_MAX:
        said["args"] = said["before"] = None
    return KEEP, [workspace_id, agent_id, key, run, json_text(said)]


def often(runs: Iterable[Run]) -> dict[int, str]:
    """Of these runs those that were denied often, each with the tool that was denied last."""
    by_name = {(run.workspace_id, run.run): run.pk for run in runs}
    counted = (
        Denial.objects.filter(
            workspace__in={pk for pk, _ in by_name}, run_ref__in={name for _, name in by_name}
        )
        .values("workspace_id", "run_ref")
        .annotate(in_all=Sum("times"), last=Max("pk"))
        .filter(in_all__gte=OFTEN)
    )
    last = {row["last"]: (row["workspace_id"], row["run_ref"]) for row in counted}
    tools = dict(Denial.objects.filter(pk__in=last).values_list("pk", "deed__tool"))
    return {by_name[name]: str(tools[pk] or "") for pk, name in last.items() if name in by_name}


def newest(workspace: Workspace, since: Any) -> QuerySet[Denial]:
    """The newest first; those whose words were erased are not among them."""
    found = Denial.objects.filter(workspace=workspace, denied_at__gte=since)
    return found.exclude(deed={}).order_by("-id")


def call_of(denial: Denial) -> ToolCall:
    return ToolCall(**denial.deed)


def forget_old() -> int:
    """Drop what no dry run looks at any more; how many went."""
    old = Denial.objects.filter(denied_at__lt=Now() - timedelta(days=KEPT_DAYS))
    some = list(old.order_by("pk").values_list("pk", flat=True)[:FORGOTTEN_AT_A_TIME])
    Denial.objects.filter(pk__in=some).delete()
    return len(some)
