"""Policy: which actions are allowed, need approval or are denied, and how they are compensated."""

from approvals.policy.active_policies import active, default
from approvals.policy.decisions import (
    PolicyDecision,
    RequiredApprovers,
    Rule,
    ToolCall,
)
from approvals.policy.document import Call, Policy, Twin
from approvals.policy.evaluation import class_of, judge, strictest, verdict
from approvals.policy.expressions import CannotEvaluate
from approvals.policy.loading import load, load_new
from approvals.policy.reading import Invalid, Problem, Unreadable

__all__ = [
    "Call",
    "CannotEvaluate",
    "Invalid",
    "Policy",
    "PolicyDecision",
    "Problem",
    "RequiredApprovers",
    "Rule",
    "ToolCall",
    "Twin",
    "Unreadable",
    "active",
    "class_of",
    "default",
    "judge",
    "load",
    "load_new",
    "strictest",
    "verdict",
]
