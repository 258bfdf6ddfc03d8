"""After a restore the desk knows what was so when the backup was taken, and not what came after.

Agents acted on, grants were used, steps were sent. Whoever went on from the backup as if nothing
had happened would do things twice. So before any process starts everything is held:

* a call that was on its way is *unknown*; plans that ran are stopped, for a new one looks at the
  outside before it acts, and what reads nothing counts as tried, for it may have been sent;
* a letter that waited to be sent may have gone: a person says whether it goes once more;
* a grant that was not used is void, and people who were asked are asked anew;
* a run that lived is marked: to a call that is not known the gate answers `in_doubt`, and a person
  says whether it happened (approvals/pauses.py);
* people are logged out, since a log-out after the backup would be forgotten;
* each workspace is paused until an administrator lifts the pause.
"""

from collections import Counter
from datetime import UTC, datetime

from allauth.socialaccount.models import SocialToken
from django.contrib.sessions.models import Session
from django.db.models import Exists, OuterRef, QuerySet

from approvals import pauses
from approvals.models import Pause
from connectors.contract import Refused
from recovery.corrections import publishing
from recovery.engine import failure_paths, outbound_calls, plan_lifecycle
from recovery.models import Plan, PlanState, Step, StepAttempt, StepState
from recovery.models.plans import LIVING, TO_RUN
from workspaces import periodic
from workspaces.models import Heartbeat, Workspace

BATCH = 500


def log_out() -> int:
    """Everybody. What a provider gave then, it may have taken back since: nobody left by that."""
    SocialToken.objects.all().delete()
    return Session.objects.all().delete()[0]


def hold_everything(taken_at: datetime, lost: dict[str, list[str]]) -> Counter[str]:
    """Hold what was restored, in the caller's transaction, while no process of the desk runs.

    `lost` has, by workspace, in words what is known to be missing of its ledger. Returns how much
    of each kind was held, for the report.
    """
    when = taken_at.astimezone(UTC)
    why = f"The desk was restored from the backup of {when:%d %B %Y, %H:%M:%S} UTC."
    doubt_what_reads_nothing(Step.objects.all(), when, why)  # before anything is cancelled
    held = Counter(
        {
            "plans stopped": stop_plans(why),
            "calls now unknown": lose_calls(why),
            "letters perhaps sent": publishing.doubt_what_waits(),
            "grants void": pauses.void_grants(why),
            "runs whose calls are in doubt": pauses.mark_runs(when),
            "people logged out": log_out(),
        }
    )
    Heartbeat.objects.exclude(pk__in=periodic.DONE).delete()  # of processes that ended long ago
    for workspace in Workspace.objects.order_by("pk"):
        known = f" {'; '.join(missing)}." if (missing := lost.get(workspace.slug)) else ""
        reason = (
            f"{why}{known} What was done after it is not known here; an administrator looks at the"
            " outside systems, then lifts this."
        )
        data = {"taken_at": when.isoformat(), "missing": lost.get(workspace.slug, [])}
        pauses.hold_after_restore(workspace, reason, data, taken_at=when)
        held["workspaces paused"] += 1
    return held


@pauses.when_entries_are_gone
def doubt_what_may_be_gone(lifted: Pause) -> None:
    """The same of a log that went back: that a step was sent may be among the entries that are
    gone. Of a restore it was noted before. When it was sent is among them, too: at the earliest
    once its plan was drafted.
    """
    why = f"The log went back, as was found at {lifted.paused_at:%Y-%m-%d %H:%M} UTC."
    there = Step.objects.filter(workspace=lifted.workspace, plan__drafted_at__lt=lifted.paused_at)
    noted = StepAttempt.objects.filter(step=OuterRef("pk"), key=OuterRef("key"))
    untried = there.exclude(Exists(noted.with_possible_effect()))
    doubt_what_reads_nothing(untried, None, why)


def doubt_what_reads_nothing(among: QuerySet[Step], since: datetime | None, why: str) -> None:
    """Note a try without an answer for each step that is not sent as far as is known here, and of
    which no look at its target would tell whether it was. From then on it is as of a lost answer:
    only a key that the provider still remembers, or a person, has it sent, in whatever plan. It was
    sent `since` then at the earliest, or since its plan was drafted.
    """
    waiting = among.filter(plan__state__in=LIVING, state__in=TO_RUN)
    waiting = waiting.select_related("connection", "plan")
    for step in waiting.order_by("pk").iterator(chunk_size=BATCH):
        try:
            operation = outbound_calls.operation_of(step)
            would_tell = outbound_calls.a_look_tells(step, operation)
        except Refused:  # a connector that is gone promises nothing
            would_tell = False
        if not would_tell:
            step.attempts.create(
                number=step.attempts.count() + 1,
                fence=step.fence,
                key=step.key,
                intended_at=since or step.plan.drafted_at,
                outcome="unknown",
                detail=f"{why} Whether this was sent is not known.",
            )


def stop_plans(why: str) -> int:
    rows = Plan.objects.filter(state__in=[PlanState.STARTING, PlanState.RUNNING])
    note = f"{why} Whether this was sent after it is not known: a new plan looks first."
    count = 0
    for plan in rows.order_by("pk").iterator(chunk_size=BATCH):
        plan_lifecycle.stop(plan, by=None, reason=note)
        count += 1
    return count


def lose_calls(why: str) -> int:
    rows = Step.objects.filter(state=StepState.INTENDED).order_by("pk")
    count = 0
    for step in rows.iterator(chunk_size=BATCH):
        failure_paths.lose_in_restore(step, f"{why} The call was on its way.")
        count += 1
    return count
