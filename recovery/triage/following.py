"""Following: how a run goes on that was told to resume. Triage calls it; nobody waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.models import Event, RunState
from recovery.cases import ending
from recovery.cases.rows import changed, say
from recovery.engine.clock import database_time
from recovery.facts.runs import RunFacts
from recovery.models import Case, CaseOutcome, CaseState, Directive
from recovery.triage.reasons import Reason

LATE_MAX = 100


def follow(facts: RunFacts, case: Case, found: Sequence[Reason]) -> None:
    """See how a directed run goes on; triage calls it under the locks of run and case."""
    if case.state != CaseState.RESUMING:
        return
    directive = facts.directive
    if directive is None or directive.withdrawn_at is not None:
        changed(case, state=CaseState.OPEN)
        return
    if directive.acknowledged_at is None and not _acknowledge(facts, case, directive):
        if directive.acknowledge_by and directive.acknowledge_by < facts.now:
            _give_up(case, directive)
        return
    fresh = [reason for reason in found if reason.key not in case.answered]
    if not (facts.has_ended or facts.is_silent):
        return
    if fresh or facts.run.state != RunState.COMPLETED:
        changed(case, state=CaseState.OPEN)
    else:
        _close(facts, case, found)


def _acknowledge(facts: RunFacts, case: Case, directive: Directive) -> bool:
    said = Event.objects.filter(
        workspace=facts.run.workspace_id,
        run=facts.run.run,
        type="run.resumed",
        received_at__gt=directive.issued_at,
    ).first()
    if said is None:
        return False
    directive.acknowledged_at = said.received_at
    directive.save(update_fields=["acknowledged_at"])
    say(case, "resume.acknowledged", data={"directive": directive.pk, "event": said.event_id})
    return True


def _give_up(case: Case, directive: Directive) -> None:
    directive.withdrawn_at = database_time()
    directive.save(update_fields=["withdrawn_at"])
    changed(case, state=CaseState.OPEN)
    say(case, "resume.unanswered", data={"directive": directive.pk})


def _close(facts: RunFacts, case: Case, found: Sequence[Reason]) -> None:
    """The desk's own closing: the run went on as directed, and came to a good end."""
    words = "The run went on and came to its end."
    ending.end(case, CaseOutcome.RESUMED, words, present=found, standing=facts.remaining())


def overdue() -> list[int]:
    """Runs whose directive nobody acknowledged in time."""
    late = Directive.objects.filter(
        kind="resume",
        acknowledged_at=None,
        withdrawn_at=None,
        acknowledge_by__lt=database_time(),
    )
    return list(late.order_by("acknowledge_by").values_list("run_id", flat=True)[:LATE_MAX])
