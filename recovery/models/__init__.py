"""Cases, plans, steps, and what people are told."""

from recovery.models.bulk import (
    BulkItem,
    BulkJob,
    Correction,
    CorrectionDelivery,
    CorrectionState,
    Directive,
    SavedView,
)
from recovery.models.cases import (
    CASE_MOVES,
    AdviceRenewal,
    Case,
    CaseOutcome,
    CaseState,
    Cause,
    Comment,
    Readback,
    Report,
    ReportSource,
    Residue,
    Silence,
    Suggestion,
)
from recovery.models.plans import PLAN_MOVES, Plan, PlanState
from recovery.models.steps import STEP_MOVES, Step, StepAttempt, StepState

__all__ = [
    "CASE_MOVES",
    "PLAN_MOVES",
    "STEP_MOVES",
    "AdviceRenewal",
    "BulkItem",
    "BulkJob",
    "Case",
    "CaseOutcome",
    "CaseState",
    "Cause",
    "Comment",
    "Correction",
    "CorrectionDelivery",
    "CorrectionState",
    "Directive",
    "Plan",
    "PlanState",
    "Readback",
    "Report",
    "ReportSource",
    "Residue",
    "SavedView",
    "Silence",
    "Step",
    "StepAttempt",
    "StepState",
    "Suggestion",
]
