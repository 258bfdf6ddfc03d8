"""Withdrawals: the desk takes back what no answer can help any more.

A question ends with its run, and with its call where that was made without waiting for people. Both
are seen in the tables, so that nothing is missed; whoever asked and whoever was asked is told.
"""

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Case, CharField, Exists, F, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Concat, Now

from approvals import approval_requests
from approvals.deciders import locked
from approvals.digests import FORWARD_FORM
from approvals.models import Approval, SubjectKind
from ledger.models import Attempt, AttemptState, RunState

BATCH = 200
RAN_WITHOUT = "the call was made without it"
OLD_FORM_SECONDS = 60
"""Asked in a rolling deploy by a process of before; none is younger than that for long."""


def sweep() -> int:
    """Withdraw what is moot; how many."""
    found = _moot(Approval.objects.living()).only("pk", "workspace_id", "run_ref")
    return sum(_withdraw(approval) for approval in found.order_by("pk")[:BATCH])


def sweep_old_forms() -> int:
    """Withdraw what was asked before the desk bound as much as it does now; how many.

    The agent is asked anew when it comes again, and nobody answers what would not be used.
    """
    old = Approval.objects.living().filter(
        Q(calls__0__more__form__isnull=True) | ~Q(calls__0__more__form=FORWARD_FORM),
        subject_kind=SubjectKind.ACTION,
        asked_at__lt=Now() - timedelta(seconds=OLD_FORM_SECONDS),
    )
    found = old.only("pk", "workspace_id", "run_ref").order_by("pk")[:BATCH]
    return sum(_withdraw_old(approval) for approval in found)


def _moot(approvals: QuerySet[Approval]) -> QuerySet[Any]:
    """Those of calls whose run is over, or which were made meanwhile, with the reason as `why`."""
    return (
        approvals.filter(subject_kind=SubjectKind.ACTION)
        .annotate(
            why=Case(
                When(Exists(_past_the_gate()), then=Value(RAN_WITHOUT)),
                When(
                    ~Q(action__run__state=RunState.RUNNING),
                    then=Concat(Value("its run has "), F("action__run__state")),
                ),
                When(
                    ~Q(action__run__held_by=""),
                    then=Value("its run was stopped for recovery"),
                ),
                default=Value(""),
                output_field=CharField(),
            )
        )
        .exclude(why="")
    )


def _past_the_gate() -> QuerySet[Attempt]:
    """Tries under the key that no `begin` has let through, and that began or ended since."""
    since = OuterRef("asked_at")
    return Attempt.objects.filter(
        Q(started_at__gt=since) | Q(finished_at__gt=since),
        ~Q(state=AttemptState.NO_EFFECT),
        action__agent=OuterRef("agent"),
        action__key=OuterRef("action__key"),
        fence=None,
    )


@transaction.atomic
def _withdraw(approval: Approval) -> bool:
    row = locked(approval)
    why = _moot(Approval.objects.living().filter(pk=row.pk)).values_list("why", flat=True).first()
    if not why:
        return False
    approval_requests.void(row, why=why)
    return True


@transaction.atomic
def _withdraw_old(approval: Approval) -> bool:
    row = locked(approval)
    if not Approval.objects.living().filter(pk=row.pk).exists():
        return False
    approval_requests.void(row, why=approval_requests.ASKED_BEFORE)
    return True
