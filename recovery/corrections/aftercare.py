"""Aftercare: drafts corrections of cases that were just recovered, and follows what was sent."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db.models import Exists, OuterRef
from django.utils import timezone

from approvals import policy
from recovery.cases.lifecycle import REFUSALS
from recovery.corrections import drafting, publishing
from recovery.models import (
    Case,
    CaseOutcome,
    CaseState,
    Correction,
    CorrectionState,
    Plan,
)
from recovery.models.cases import RECOVERED

logger = logging.getLogger(__name__)

BATCH = 50
LOOK_BACK_DAYS = 7
"""Cases closed longer ago have their drafts, or get them when somebody asks."""


def sweep() -> int:
    """Draft, publish and follow what is due; how many."""
    return draft_due() + publish_due() + publishing.follow()


def draft_due() -> int:
    """Draft what affected people are told of cases closed as recovered; the number of cases."""
    since = timezone.now() - timedelta(days=LOOK_BACK_DAYS)
    due = Case.objects.filter(
        state=CaseState.CLOSED,
        outcome__in=RECOVERED,
        closed_at__gt=since,
        corrections_drafted_at=None,
    )
    cases = list(due.order_by("closed_at")[:BATCH])
    for case in cases:
        drafting.draft(case)
        Case.objects.filter(pk=case.pk).update(corrections_drafted_at=timezone.now())
    return len(cases)


def publish_due() -> int:
    """Publish drafts of auto-compensated cases where the policy says so; the number published."""
    plans = Plan.objects.filter(case=OuterRef("case"), started_at__isnull=False)
    due = Correction.objects.filter(
        Exists(plans.filter(automatic=True)),
        ~Exists(plans.filter(automatic=False)),
        state=CorrectionState.DRAFT,
        case__state=CaseState.CLOSED,
        case__outcome=CaseOutcome.RESTORED,
        drafted_at__gt=timezone.now() - timedelta(days=1),
    )
    return sum(map(_publish, due.select_related("workspace", "case")[:BATCH]))


def _publish(correction: Correction) -> int:
    if not policy.active(correction.workspace).auto_compensation.publish:
        return 0
    way = publishing.MAIL if "@" in correction.contact else publishing.LINK
    try:
        publishing.publish(correction, by=None, seen=correction.revision, ways=[way])
    except REFUSALS as stopped:
        logger.info("correction %s waits for a person: %s", correction.reference, stopped)
        return 0
    return 1
