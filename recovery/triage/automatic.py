"""By itself: compensation without a person, only where policy allows it and every condition holds.

The conditions are those of docs/engine.md. A case that misses one waits in the queue like any
other.
"""

from __future__ import annotations

import logging

from django.db.models import F, QuerySet

from approvals import policy
from ledger.models import Reversibility, SnapshotSource
from recovery.cases.lifecycle import REFUSALS
from recovery.models import Case, CaseState, Suggestion
from recovery.planning import plans
from recovery.planning.drafting import UNTOUCHED, DraftStep
from recovery.planning.plans import PlanDraft
from recovery.triage.detectors import KINDS

logger = logging.getLogger(__name__)

BATCH = 20
REASON = "By policy: every step is low risk, exact and repeatable."


def sweep() -> int:
    """Consider open cases that nobody has considered as they now are; the number started."""
    started = 0
    for case in unconsidered().select_related("workspace", "run").order_by("pk")[:BATCH]:
        seen = case.revision
        taken = Case.objects.filter(pk=case.pk, considered_revision__lt=seen)
        if taken.update(considered_revision=seen):
            started += _consider(case)
    return started


def unconsidered() -> QuerySet[Case]:
    """Open cases that changed since it was considered to compensate them without asking."""
    return Case.objects.filter(
        state=CaseState.OPEN,
        suggestion=Suggestion.COMPENSATE,
        without_effects=False,
        considered_revision__lt=F("revision"),
    )


def _consider(case: Case) -> bool:
    """Start the plan if all conditions hold."""
    if not policy.active(case.workspace).auto_compensation.enabled:
        return False
    if case.reversibility != Reversibility.EXACT or case.risk_rank > 0 or case.plans.exists():
        return False
    draft = plans.draft(case)
    hindrance = why_not(draft)
    if hindrance:
        logger.info("case %s is not compensated by itself: %s", case.pk, hindrance)
        return False
    try:
        plans.submit(
            case,
            digest=draft.digest,
            restores=draft.restores,
            revision=draft.case.revision,
            by=None,
            reason=REASON,
            automatic=True,
        )
    except REFUSALS as overtaken:
        logger.info("case %s is not compensated by itself: %s", case.pk, overtaken)
        return False
    return True


def why_not(draft: PlanDraft) -> str:
    """Which condition does not hold, in one sentence; empty where all do."""
    if draft.why_not:
        return draft.why_not
    if not draft.facts.has_ended and not draft.facts.is_silent:
        return "The run is live."
    if draft.more:
        return "It needs a person: more stands than one plan can undo."
    if draft.cannot or draft.facts.reports or draft.case.claimed_by_id:
        return "It needs a person: not all can be undone, or somebody looks at it already."
    # A kind that only a newer version knows is left to people.
    if not all(code in KINDS and KINDS[code].allows_automatic for code in draft.case.reasons):
        return "Somebody reported it."
    return next(filter(None, (_why_not_step(draft, one) for one in draft.steps)), "")


def _why_not_step(draft: PlanDraft, one: DraftStep) -> str:
    hindrances = {
        "The policy does not allow it for this tool.": not draft.policy.auto_compensation.covers(
            one.action.tool
        ),
        "A step needs approval.": one.judgement.approval != "AUTO",
        "A step is above low risk.": one.judgement.risk != "low",
        "A step is not exact.": one.step.reversibility != Reversibility.EXACT,
        "A step may not be repeated.": not one.operation.may_repeat,
        "Only the agent suggests the step.": one.suggested_by_agent,
        "A snapshot was only reported.": one.effect.source == SnapshotSource.REPORTED
        and not one.action.trusted,
        "A target could not be read.": one.drift_state not in UNTOUCHED,
        "It would bring back what was undone elsewhere.": bool(one.brings_back),
        plans.UNDONE_LATELY: plans.undone_lately(draft, one),
    }
    return next((words for words, holds in hindrances.items() if holds), "")
