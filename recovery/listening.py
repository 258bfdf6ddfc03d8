"""Bells from below: a decision shortens the wait of its plan. The sweeper would find it anyway."""

from django.dispatch import receiver

from approvals.bells import approval_decided
from recovery.engine import queues
from recovery.models import Plan
from recovery.tasks import run_plan
from workspaces.wake import wake


@receiver(approval_decided, dispatch_uid="recovery.listening")
def wake_the_plan(approval_id: int, **_: object) -> None:
    for plan_id in Plan.objects.filter(approval_id=approval_id).values_list("pk", flat=True):
        wake(run_plan, plan_id, queue=queues.of_plan(plan_id))
