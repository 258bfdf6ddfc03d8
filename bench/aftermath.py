"""What became of the runs that failed: cases, corrections and approvals of the generated desk."""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bench.copying import Table
from bench.stories import DAYS, EVERY_OPEN, Rows, Setting, Told

WAITING_APPROVALS_MAX = 500
CORRECTIONS_EVERY = 4


@dataclass
class Cases:
    """Makes the rows behind a failed run; ids are counted here, for the tables are empty."""

    setting: Setting
    case_id: int = 0
    case_in_doubt: int = 0
    approval_id: int = 0

    def __post_init__(self) -> None:
        from approvals.models import Approval, Requirement
        from recovery.models import Case, Correction

        self.tables = {
            "case": Table(Case),
            "correction": Table(Correction, without=["id"]),
            "approval": Table(Approval),
            "requirement": Table(Requirement, without=["id"]),
        }

    def add(self, rows: Rows, story: Told, *, failed_action: int) -> None:
        deed = story.deed
        self.case_id += 1
        if story.in_doubt:
            self.case_in_doubt = self.case_id
        target = f"{deed.target} {deed.target[:1].upper()}{story.number:06X}3"
        headline = (
            f"Agent “{story.agent}” {deed.verb} 2 {deed.target}s, then {deed.tool} failed:"
            f" {deed.message}"
        )
        rank = ["low", "medium", "high", "critical"].index(deed.risk)
        closed: dict[str, Any] = {"state": "closed", "closed_at": story.at + timedelta(hours=3),
                                  "outcome": "restored", "closing_reason": "put back",
                                  "corrections_drafted_at": story.at}  # fmt: skip
        said = (headline, deed.tool, target, story.customer, story.run, story.name, story.request)
        rows["case"].append(
            self.tables["case"].row(
                **({"state": "open"} if story.is_open else closed),
                id=self.case_id, workspace_id=self.setting.workspace_id, run_id=story.number,
                agent_id=story.agent_id, cause_id=self.setting.causes[deed.tool],
                reasons="{run_failed}",
                evidence=json.dumps([{"code": "run_failed", "key": "run_failed", "words": "…"}]),
                headline=headline, risk=deed.risk, risk_rank=rank, failed_action_id=failed_action,
                failed_tool=deed.tool, failed_target=target,
                tools=f"{{{deed.tool.lower()}}}", customer=story.customer,
                customer_name=story.name, request=story.request, suggestion="compensate",
                suggestion_reason="Two effects stand.", suggestion_text=deed.suggestion,
                reversibility=deed.reversibility, unknown_count=int(story.in_doubt),
                needs_approval="operators" if rank > 1 else "", standing_count=2 * story.is_open,
                amount_minor=1286_00 if deed.target == "charge" else None,
                currency="USD" if deed.target == "charge" else "",
                failed_at=story.at + timedelta(seconds=40), opened_at=story.at,
                due_at=story.at + timedelta(days=DAYS + 1 - story.number % 3),
                considered_revision=1, search=" ".join(said),
            )
        )  # fmt: skip
        if not story.is_open and self.case_id % CORRECTIONS_EVERY == 0:
            rows["correction"].append(self._correction(story))
        self.approval(rows, story, failed_action)

    def _correction(self, story: Told) -> Any:
        return self.tables["correction"].row(
            workspace_id=self.setting.workspace_id, case_id=self.case_id,
            reference=f"AM-{self.case_id}", person_id=story.customer, person_name=story.name,
            state="published", facts="{}", title="We put your booking right",
            published_at=story.at, drafted_at=story.at,
        )  # fmt: skip

    def approval(self, rows: Rows, story: Told, failed_action: int) -> None:
        """Every eighth case had a question; the newest of the open ones are still unanswered."""
        if self.case_id % 8 > 1:
            return
        left = (self.setting.total - story.number) / EVERY_OPEN / 4
        waits = story.is_open and left < WAITING_APPROVALS_MAX
        self.approval_id += 1
        expires = (
            self.setting.now + timedelta(hours=20) if waits else story.at + timedelta(hours=24)
        )
        state = ("", "waiting") if waits else ("granted", "used")
        rows["approval"].append(
            self.tables["approval"].row(
                id=self.approval_id, workspace_id=self.setting.workspace_id, subject_kind="action",
                action_id=failed_action, subject_key=f"{story.agent_id} {story.run}",
                run_ref=story.run, subject=json.dumps({"kind": "action", "key": story.run}),
                digest="d" * 64, calls="[]", rules="[]", headline=story.deed.suggestion,
                previews=json.dumps([{"kind": "http", "title": story.deed.suggestion}]),
                risk=story.deed.risk, agent_id=story.agent_id, was=state[0], state=state[1],
                asked_at=story.at, expires_at=expires,
                decided_at=None if waits else story.at, used_at=None if waits else story.at,
            )
        )  # fmt: skip
        rows["requirement"].append(
            self.tables["requirement"].row(
                approval_id=self.approval_id, team_id=self.setting.team_id
            )
        )
