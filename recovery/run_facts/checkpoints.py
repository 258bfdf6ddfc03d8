"""Checkpoints: what stood when one was told, from the ledger and the decisions of then."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from amends.protocol.vocabulary import EventType
from approvals.models import Approval, ApprovalState
from ledger.models import Checkpoint, Event, Run

APPROVALS_MAX = 20


@dataclass(frozen=True, slots=True)
class Known:
    """`approvals` were granted and not used yet; `verified_at` is the last check that went well."""

    approvals: list[str]
    verified_at: datetime | None
    trace: dict[str, Any] | None

    @property
    def trace_id(self) -> str:
        return str((self.trace or {}).get("trace_id", ""))


def known_at(run: Run, checkpoint: Checkpoint) -> Known:
    """What the ledger held as the checkpoint was told; its trace is that of its own event."""
    events = Event.objects.filter(workspace=run.workspace_id, run=run.run)
    if run.started_at is not None:
        events = events.filter(received_at__gte=run.started_at)
    told = events.filter(event_id=checkpoint.event_id).first()
    checked = events.filter(type=EventType.ACTION_VERIFIED, place__lte=checkpoint.place)
    last = checked.filter(data__ok=True).order_by("-place").first()
    granted = Approval.objects.filter(
        Q(used_at=None) | Q(used_at__gt=checkpoint.at),
        Q(run_ref=run.run) | Q(action__run=run),
        workspace=run.workspace_id,
        state__in=[ApprovalState.GRANTED, ApprovalState.USED],
        decided_at__lte=checkpoint.at,
        expires_at__gt=checkpoint.at,
    )
    titles = granted.order_by("decided_at").values_list("headline", flat=True)
    return Known(
        approvals=list(titles[:APPROVALS_MAX]),
        verified_at=last.received_at if last else None,
        trace=(told.trace if told and told.trace else run.trace),
    )
