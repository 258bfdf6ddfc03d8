"""Reported: runs that happened elsewhere and were imported, and what the policy says of them.

They passed no gate, so nothing is held against them. What it would have asked people for, or
denied, is listed instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from approvals.dry_run import deed_of
from approvals.policy import Policy, judge
from ledger.models import Action, ActionState, Run
from ledger.schemas import IMPORTED
from workspaces.models import Workspace

RUNS_MAX = 500
ACTIONS_MAX = 5_000
ROWS_MAX = 200
MISSING = "args_missing"
NOT_RUN = (ActionState.PLANNED, ActionState.APPROVED, ActionState.FAILED)


@dataclass(frozen=True, slots=True)
class WouldHave:
    """One imported call that the gate would have stopped."""

    run: str
    action: str
    tool: str
    answer: str
    why: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Reported:
    """The newest of them, and how many of how many calls; `capped` says that there are more."""

    rows: Sequence[WouldHave]
    runs: int
    judged: int
    asked: int
    denied: int
    capped: bool


def would_have_asked(workspace: Workspace, policy: Policy) -> Reported:
    """The newest imported runs, judged by the policy as it is now."""
    imported = Run.objects.filter(workspace=workspace, flags__contains=[IMPORTED])
    runs = list(imported.order_by("-id").values_list("pk", flat=True)[:RUNS_MAX])
    actions = (
        Action.objects.filter(run__in=runs)
        .exclude(state__in=NOT_RUN)
        .exclude(tool="")
        .select_related("run", "agent")
        .order_by("-id")[:ACTIONS_MAX]
    )
    rows: list[WouldHave] = []
    judged, answers = 0, {"MANUAL": 0, "DENY": 0}
    for action in actions:
        judgement = judge(policy, deed_of(action))
        judged += 1
        if judgement.approval not in answers:
            continue
        answers[judgement.approval] += 1
        if len(rows) < ROWS_MAX:
            at = action.started_at or action.finished_at
            why = judgement.why + "; its arguments were not told" * (MISSING in action.flags)
            told = (action.tool, judgement.approval, why, at)
            rows.append(WouldHave(action.run.run, action.action, *told))
    capped = len(runs) == RUNS_MAX or judged == ACTIONS_MAX
    return Reported(rows, len(runs), judged, answers["MANUAL"], answers["DENY"], capped)
