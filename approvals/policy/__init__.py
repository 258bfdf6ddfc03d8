"""Policy: which actions are allowed, need approval or are denied, and how they are compensated."""

from approvals.policy.active_policies import active, default
from approvals.policy.conditions import UNKNOWN, Finding, Question
from approvals.policy.decisions import (
    PolicyDecision,
    RequiredApprovers,
    Rule,
    ToolCall,
    first_of,
)
from approvals.policy.document import Call, Policy, Twin
from approvals.policy.evaluation import (
    class_of,
    fitting_rules,
    judge,
    questions,
    strictest,
    verdict,
)
from approvals.policy.expressions import CannotEvaluate
from approvals.policy.loading import load, load_new
from approvals.policy.reading import Invalid, Mistake, Unreadable

__all__ = [
    "UNKNOWN",
    "Call",
    "CannotEvaluate",
    "Finding",
    "Invalid",
    "Mistake",
    "Policy",
    "PolicyDecision",
    "Question",
    "RequiredApprovers",
    "Rule",
    "ToolCall",
    "Twin",
    "Unreadable",
    "active",
    "class_of",
    "default",
    "first_of",
    "fitting_rules",
    "judge",
    "load",
    "load_new",
    "questions",
    "strictest",
    "verdict",
]
