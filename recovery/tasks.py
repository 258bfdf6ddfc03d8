"""Hints: a message to a worker carries an id and decides nothing, and a lost one is made up for.

The sweep finds, straight on the database, what a lost message left behind. It does no work of a
plan by itself, for a step that takes its process down must not take the sweeper with it: it sends
the hint again. How often is bounded per plan, so that a long queue does not fill with copies.
"""

from celery import Task, shared_task
from django.db import connection
from django.dispatch import receiver

from approvals.models import ApprovalState, SubjectKind
from approvals.signals import approval_decided
from recovery.engine import plan_runner
from recovery.models import Plan, PlanState
from recovery.models.plans import DUE_IN_TIME, ENDED, IN_HAND, STARTED, WAITS_FOR_TURN, literals
from workspaces.locks import ROW_LOCK
from workspaces.wakeups import ENGINE_QUEUE, wake


@shared_task(bind=True, acks_late=True, ignore_result=True)
def run_plan(self: "Task[..., None]", plan_id: int) -> None:
    queue = (self.request.delivery_info or {}).get("routing_key") or ENGINE_QUEUE
    for onward, where in plan_runner.run_together(plan_id, queue=queue).items():
        wake(run_plan, onward, queue=where)


# A decision shortens the wait of its plan. The sweeper would find it anyway.


@receiver(approval_decided, dispatch_uid="recovery.sweeper")
def wake_the_plan(approval_id: int, subject_kind: str, **_: object) -> None:
    if subject_kind != SubjectKind.PLAN:
        return
    for plan_id in Plan.objects.filter(approval_id=approval_id).values_list("pk", flat=True):
        wake(run_plan, plan_id, queue=plan_runner.queue_of_plan(plan_id))


PLANS_MAX = 500
"""Hints in one sweep; the next sweep is a second later."""

HINT_SECONDS = 5.0
"""Between two hints for the same plan."""

QUIET_SECONDS = 3.0
"""A step that moved just now is in somebody's hands, or its own hint is on its way."""

IDLE_SECONDS = 30.0
"""A running plan in which nothing seems due is looked at this often all the same."""

NO_NEWS = (ApprovalState.WAITING, ApprovalState.USED)
"""Of a plan's approval: nobody has decided, or the plan has started with it."""

# What is due: a lease that is over, a time that has come (of a blocked step, too, whose turn came
# while its connection was busy), a step whose turn nobody took, a plan whose question was decided,
# or whose run has stopped, and one that was stopped and has nothing left to wait for. The hint's
# time is taken by compare and swap, so two sweepers send one.
DUE_SQL = f"""
WITH due AS (
    SELECT DISTINCT s.plan_id AS id
    FROM recovery_step s JOIN recovery_plan p ON p.id = s.plan_id
    WHERE p.state IN ({literals(STARTED)}) AND (
        (s.state IN ({literals(IN_HAND)}) AND s.lease_until < clock_timestamp())
        OR (s.state IN ({literals(DUE_IN_TIME)})
            AND coalesce(s.wake_at, s.moved_at + %(quiet)s * interval '1 second')
                < clock_timestamp())
        OR (s.state IN ({literals(WAITS_FOR_TURN)}) AND s.wake_at < clock_timestamp()))
    UNION
    SELECT p.id FROM recovery_plan p LEFT JOIN approvals_approval a ON a.id = p.approval_id
    WHERE p.state = '{PlanState.WAITING}'
      AND (a.id IS NULL OR a.state NOT IN ({literals(NO_NEWS)}))
    UNION
    SELECT p.id FROM recovery_plan p WHERE p.state = '{PlanState.STARTING}'
    UNION
    SELECT p.id FROM recovery_plan p
    WHERE p.state = '{PlanState.STOPPED}' AND p.ended_at IS NULL
      AND NOT EXISTS (
        SELECT FROM recovery_step s WHERE s.plan_id = p.id AND s.state NOT IN ({literals(ENDED)}))
    UNION
    SELECT p.id FROM recovery_plan p
    WHERE p.state = '{PlanState.RUNNING}'
      AND coalesce(p.hinted_at, p.started_at) < clock_timestamp() - %(idle)s * interval '1 second'
      AND NOT EXISTS (
        SELECT FROM recovery_step s WHERE s.plan_id = p.id
        AND s.state IN ({literals(IN_HAND)}) AND s.lease_until >= clock_timestamp())
)
UPDATE recovery_plan SET hinted_at = clock_timestamp()
WHERE id IN (
    SELECT p.id FROM recovery_plan p JOIN due USING (id)
    WHERE coalesce(p.hinted_at, '-infinity') < clock_timestamp() - %(hint)s * interval '1 second'
    ORDER BY p.hinted_at NULLS FIRST LIMIT %(most)s {ROW_LOCK} OF p SKIP LOCKED)
RETURNING id
"""  # noqa: S608 - our own words


def sweep() -> int:
    """Send a hint for each plan that has something due; returns how many."""
    return sum(wake(run_plan, plan_id) for plan_id in due())


def due() -> list[int]:
    """Plans with something due and no hint just now; each is given to one sweeper."""
    with connection.cursor() as cursor:
        cursor.execute(
            DUE_SQL,
            {
                "quiet": QUIET_SECONDS,
                "idle": IDLE_SECONDS,
                "hint": HINT_SECONDS,
                "most": PLANS_MAX,
            },
        )
        return [plan_id for (plan_id,) in cursor.fetchall()]
