"""What approvals of plans came to: the plan was stopped on its way, or what it did undone."""

from django.db.models import CharField, Exists, OuterRef, Q, Value
from django.db.models.functions import Cast, Concat

from approvals import health
from ledger.models import Action
from ledger.models.actions import Compensated
from recovery.engine import steps
from recovery.models import Plan, PlanState


@health.of_plans
def stopped_or_undone() -> Q:
    """A plan is a run of the desk's own, so a wrong undo is compensated like anything else."""
    run = Concat(
        Value(steps.PLAN_RUN), Cast(OuterRef("plan_id"), CharField()), output_field=CharField()
    )
    own = Action.objects.filter(workspace_id=OuterRef("workspace_id"), run__run=run)
    stopped = Plan.objects.filter(pk=OuterRef("plan_id"), state=PlanState.STOPPED)
    return Q(Exists(stopped)) | Q(Exists(own.exclude(compensated=Compensated.NONE)))
