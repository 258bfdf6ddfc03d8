"""Tasks: a message is a hint that carries an id, and decides nothing."""

from celery import Task, shared_task

from recovery.engine import plan_runner
from workspaces.wakeups import ENGINE_QUEUE, wake


@shared_task(bind=True, acks_late=True, ignore_result=True)
def run_plan(self: "Task[..., None]", plan_id: int) -> None:
    queue = (self.request.delivery_info or {}).get("routing_key") or ENGINE_QUEUE
    for onward, where in plan_runner.run_together(plan_id, queue=queue).items():
        wake(run_plan, onward, queue=where)
