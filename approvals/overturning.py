"""Which approvals were overturned: taken back by a person, or undone after they had been used.

Of forward actions the ledger tells; of plans the floor above does, which states here how to ask.
"""

from collections.abc import Callable
from functools import reduce
from operator import or_

from django.db.models import Exists, OuterRef, Q

from approvals.models import ApprovalState, SubjectKind
from ledger.models import Action
from ledger.models.actions import Compensated

Condition = Callable[[], Q | Exists]
_of_plans: list[Condition] = []


def of_plans(condition: Condition) -> Condition:
    """Register what says of an approval of a plan (`OuterRef("plan_id")`) that it was undone."""
    _of_plans.append(condition)
    return condition


def taken_back() -> Q:
    """By a person; what the desk itself withdraws is asked anew and no change of mind."""
    return Q(was=ApprovalState.GRANTED, state=ApprovalState.WITHDRAWN, closed_by__isnull=False)


def undone_later() -> Q:
    """Used, and compensated, corrected or stopped afterwards."""
    undone = Action.objects.filter(pk=OuterRef("action")).exclude(compensated=Compensated.NONE)
    forward = Q(subject_kind=SubjectKind.ACTION) & Q(Exists(undone))
    plans = [Q(subject_kind=SubjectKind.PLAN) & Q(condition()) for condition in _of_plans]
    return Q(state=ApprovalState.USED) & reduce(or_, plans, forward)


def overturned() -> Q:
    return taken_back() | undone_later()
