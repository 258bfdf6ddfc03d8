"""Policy: which actions are allowed, need approval or are denied, and how they are compensated."""

from approvals.policy.active_policies import active, default
from approvals.policy.conditions import UNKNOWN, Lookup, LookupResult
from approvals.policy.decisions import (
    PolicyDecision,
    RequiredApprovers,
    Rule,
    ToolCall,
)
from approvals.policy.document import Policy, Twin, TwinCall
from approvals.policy.evaluation import (
    any_pivot,
    class_of,
    fitting_rules,
    judge,
    lookups,
    saga_of,
    strictest,
    verdict,
)
from approvals.policy.expressions import CannotEvaluate
from approvals.policy.loading import load, load_new
from approvals.policy.reading import Invalid, Mistake, PolicyUnreadable

__all__ = [
    "UNKNOWN",
    "CannotEvaluate",
    "Invalid",
    "Lookup",
    "LookupResult",
    "Mistake",
    "Policy",
    "PolicyDecision",
    "PolicyUnreadable",
    "RequiredApprovers",
    "Rule",
    "ToolCall",
    "Twin",
    "TwinCall",
    "active",
    "any_pivot",
    "class_of",
    "default",
    "fitting_rules",
    "judge",
    "load",
    "load_new",
    "lookups",
    "saga_of",
    "strictest",
    "verdict",
]
