"""Policy: which actions are allowed, need approval or are denied, and how they are compensated."""

from approvals.policy.document import Policy
from approvals.policy.expressions import CannotEvaluate
from approvals.policy.inforce import active, default
from approvals.policy.judging import class_of, judge, strictest, verdict
from approvals.policy.loading import load, load_new
from approvals.policy.problems import Invalid, Problem, Unreadable
from approvals.policy.twins import Call, Twin
from approvals.policy.words import IRREVERSIBLE, Deed, Judgement, Need, Rule

__all__ = [
    "IRREVERSIBLE",
    "Call",
    "CannotEvaluate",
    "Deed",
    "Invalid",
    "Judgement",
    "Need",
    "Policy",
    "Problem",
    "Rule",
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
