"""What time does to requests of the Agent Approval Protocol (aap_requests.py): one that waits for
longer than its agent wanted is taken back, whoever registered hears of its end or its moment, and
what was sealed of it is thrown away. One that cannot be dealt with keeps no other from its turn.
"""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Concat, Now, Substr

from approvals import grants, notifications
from approvals.gate.covered_questions import walked
from approvals.interchange import instances
from approvals.interchange.aap_requests import RUN, SEALED, TIME_OVER, take_back
from approvals.models import Approval, ApprovalState
from connectors.models import Delivery
from ledger.models import Run
from workspaces.clock import database_time
from workspaces.models import Secret
from workspaces.periodic import each

KEPT_DAYS = 8
ENDED_DAYS = 1
FORGOTTEN_AT_A_TIME = 500
TOLD_LATE_MAX = timedelta(days=1)
"""So long after its moment a receiver is still woken, though nothing ran meanwhile."""


def take_back_overdue() -> int:
    """Take back what waits longer than its agent wanted, though nobody comes to ask; how many."""
    waits = Q(state=ApprovalState.WAITING) | Q(
        state=ApprovalState.GRANTED, not_before__gt=Now(), expires_at__gt=Now()
    )
    asked = Approval.objects.filter(waits, run_ref__startswith=RUN)
    return each(walked(asked), _take_back_overdue)


def _take_back_overdue(approval: Approval) -> bool:
    """Where no key opens what was sealed nobody knows its time: its rule's own is its end."""
    name = f"{SEALED}{approval.run_ref.removeprefix(RUN)}"
    secret = Secret.objects.filter(workspace=approval.workspace_id, name=name).first()
    if secret is None or datetime.fromisoformat(secret.open()["deadline"]) > database_time():
        return False
    take_back(approval, TIME_OVER)
    return True


def _tell_receivers(approval: Approval) -> None:
    """Whoever registered for it hears that a request has an end, whoever or whatever ended it; of
    one that was approved for later they hear at its moment, for until then it is pending.
    """
    if approval.agent_id is None or not approval.run_ref.startswith(RUN):
        return
    row, now = Approval.objects.get(pk=approval.pk), database_time()
    if not grants.is_early(row, now):
        request = approval.run_ref.removeprefix(RUN)
        instances.tell(approval.agent_id, request, row.decided_at or now)


def tell_put_off() -> int:
    """Wake the receivers of what was approved for later, once its moment has come; how many."""
    return each(walked(put_off()), _tell_put_off)


@transaction.atomic
def _tell_put_off(approval: Approval) -> bool:
    _tell_receivers(approval)
    return True


def put_off() -> QuerySet[Approval]:
    """Requests that were approved for a moment which has come, and whose receivers do not know."""
    key = Concat(Value("aap "), Substr(OuterRef("run_ref"), len(RUN) + 1), Value("/"))
    told = Delivery.objects.filter(workspace=OuterRef("workspace"), key__startswith=key)
    return Approval.objects.filter(
        ~Exists(told),
        state=ApprovalState.GRANTED,
        run_ref__startswith=RUN,
        not_before__range=(Now() - TOLD_LATE_MAX, Now()),
        expires_at__gt=Now(),
    )


notifications.when_ended.append(_tell_receivers)


def forget_old() -> int:
    """Throw away what was sealed of requests that are over, or whose run was forgotten."""
    # A run's name is its agent's choice: only one of the same workspace is the request's.
    its_run = Concat(Value(RUN), Substr(OuterRef("name"), len(SEALED) + 1))
    over = Run.objects.filter(workspace=OuterRef("workspace"), run=its_run).filter(
        Q(forgotten_at__isnull=False) | Q(ended_at__lt=Now() - timedelta(days=ENDED_DAYS))
    )
    old = Secret.objects.filter(name__startswith=SEALED).filter(
        Exists(over) | Q(created_at__lt=Now() - timedelta(days=KEPT_DAYS))
    )
    pks = list(old.values_list("pk", flat=True)[:FORGOTTEN_AT_A_TIME])
    return Secret.objects.filter(pk__in=pks).delete()[0]
