"""Triage: looks at every run that changed since it last looked, and opens, renews or reopens cases.

The table is the queue: a run whose revision is above its seen revision is looked at. Never "numbers
above the last", which would lose late commits. Looking is idempotent, and many may look at once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet

from amends.protocol.vocabulary import EventType
from ledger.models import Event, Run, RunState
from recovery.cases import lifecycle
from recovery.cases.lifecycle import move, say
from recovery.engine.queries import DATABASE_AWAY
from recovery.models import Case, CaseOutcome, CaseState, Directive, Silence
from recovery.planning.plan_drafting import connections_of
from recovery.run_facts.runs import RunFacts, gather, policies_of
from recovery.triage import opening, verification
from recovery.triage.case_projection import case_file
from recovery.triage.detectors import Reason, reasons
from workspaces import row_locks
from workspaces.clock import database_time

# Following: how a run goes on that was told to resume. Triage calls it; nobody waits for it.

LATE_MAX = 100


def follow(facts: RunFacts, case: Case, found: Sequence[Reason]) -> None:
    """See how a directed run goes on; triage calls it under the locks of run and case."""
    if case.state != CaseState.RESUMING:
        return
    directive = facts.directive
    if directive is None or directive.withdrawn_at is not None:
        move(case, CaseState.OPEN)
        return
    if directive.acknowledged_at is None and not _acknowledge(facts, case, directive):
        if directive.acknowledge_by and directive.acknowledge_by < facts.now:
            _give_up(case, directive)
        return
    fresh = [reason for reason in found if reason.key not in case.answered]
    if not (facts.has_ended or facts.is_silent):
        return
    if fresh or facts.run.state != RunState.COMPLETED:
        move(case, CaseState.OPEN)
    else:
        _close(facts, case, found)


def _acknowledge(facts: RunFacts, case: Case, directive: Directive) -> bool:
    said = Event.objects.filter(
        workspace=facts.run.workspace_id,
        run=facts.run.run,
        type=EventType.RUN_RESUMED,
        received_at__gt=directive.issued_at,
    ).first()
    if said is None:
        return False
    directive.acknowledged_at = said.received_at
    directive.save(update_fields=["acknowledged_at"])
    say(
        case,
        EventType.RESUME_ACKNOWLEDGED,
        data={"directive": directive.pk, "event": said.event_id},
    )
    return True


def _give_up(case: Case, directive: Directive) -> None:
    directive.withdrawn_at = database_time()
    directive.save(update_fields=["withdrawn_at"])
    move(case, CaseState.OPEN)
    say(case, EventType.RESUME_UNANSWERED, data={"directive": directive.pk})


def _close(facts: RunFacts, case: Case, found: Sequence[Reason]) -> None:
    """The desk's own closing: the run went on as directed, and came to a good end."""
    words = "The run went on and came to its end."
    lifecycle.end(case, CaseOutcome.RESUMED, words, present=found, standing=facts.remaining())


def overdue() -> list[int]:
    """Runs whose directive nobody acknowledged in time."""
    late = Directive.objects.filter(
        kind="resume",
        acknowledged_at=None,
        withdrawn_at=None,
        acknowledge_by__lt=database_time(),
    )
    return list(late.order_by("acknowledge_by").values_list("run_id", flat=True)[:LATE_MAX])


logger = logging.getLogger(__name__)

BATCH_RUNS = 50
"""Each batch holds its runs' row locks for its transaction; ingest of those runs waits as long."""

BATCHES_MAX = 40
"""Of one look, so that a large backlog does not keep one call busy for ever."""

ALONE_MAX = BATCH_RUNS * BATCHES_MAX
"""Runs that are looked at one by one, when one of them cannot be."""

SILENT_DAYS_MAX = 30
"""A run that fell silent longer ago was looked at, or is of no use to anybody."""


def look(run_ids: Sequence[int] | None = None) -> int:
    """Look at what is unseen, or at these runs, seen or not; the number of runs looked at."""
    if run_ids is not None:
        for start in range(0, len(run_ids), BATCH_RUNS):
            _look_at(Run.objects.filter(pk__in=run_ids[start : start + BATCH_RUNS]))
        return len(run_ids)
    looked = 0
    for _ in range(BATCHES_MAX):
        found = _beside_each_other(Run.objects.filter(is_unseen=True))
        looked += found
        if found < BATCH_RUNS:
            break
    return looked


def listen_for_silence() -> int:
    """Look at runs whose lease has ended since the last look; the clock changes no revision."""
    now = database_time()
    heard = Silence.objects.filter(run=OuterRef("pk"), lease_until__gte=OuterRef("lease_until"))
    silent = Run.objects.filter(
        ~Exists(heard),
        state=RunState.RUNNING,
        agent__isnull=False,
        lease_minute__lt=now,
        lease_until__lt=now,
        lease_until__gt=now - timedelta(days=SILENT_DAYS_MAX),
    )
    return _beside_each_other(silent)


def _beside_each_other(wanted: QuerySet[Run]) -> int:
    """One batch; where one of its runs cannot be looked at, each by itself, so that it holds up no
    other. It stays unseen, and what went wrong is raised at the end: the loop's beat says so.
    """
    try:
        return _look_at(wanted)
    except DATABASE_AWAY:
        raise
    except Exception as failure:  # noqa: BLE001 - whatever a run has in it, others are looked at
        logger.warning("A batch of runs is looked at one by one: %s", type(failure).__name__)
    failed: list[Exception] = []
    looked = 0
    for pk in list(wanted.order_by("pk").values_list("pk", flat=True)[:ALONE_MAX]):
        try:
            looked += _look_at(wanted.filter(pk=pk))
        except DATABASE_AWAY:
            raise
        except Exception as failure:
            logger.exception("Run %d cannot be looked at.", pk)
            failed.append(failure)
    if failed:
        raise failed[0]
    return looked


@transaction.atomic
def _look_at(wanted: QuerySet[Run]) -> int:
    """One batch: what nobody else is looking at."""
    runs = list(
        row_locks.not_in_hand(wanted)
        .select_related("workspace", "agent")
        .order_by("pk")[:BATCH_RUNS]
    )
    if not runs:
        return 0
    now = database_time()
    cases = {
        case.run_id: case
        for case in row_locks.locked(Case.objects.all())
        .filter(run__in=[run.pk for run in runs])
        .order_by("pk")
    }
    connections = connections_of({run.workspace_id for run in runs})
    for facts in gather(runs, policies=policies_of(runs), now=now):
        _consider(facts, cases.get(facts.run.pk), connections)
    _remember(runs, now)
    return len(runs)


def _consider(facts: RunFacts, case: Case | None, connections: opening.Connections) -> None:
    if case is None and facts.run.agent_id is None:
        return  # the desk's own run: only a person opens its case
    verification.want(facts)
    found = reasons(facts, case)
    if case is None and not found:
        return
    case = opening.keep(facts, case, found, case_file(facts, found, connections))
    follow(facts, case, found)
    if _went_on_by_itself(facts, case, found):
        _close(facts, case, found)


def _went_on_by_itself(facts: RunFacts, case: Case, found: Sequence[Reason]) -> bool:
    """Its case said only that it failed and did nothing, and now it has completed."""
    is_free = case.without_effects and case.state == CaseState.OPEN
    return is_free and not found and facts.run.state == RunState.COMPLETED


def _remember(runs: Sequence[Run], now: datetime) -> None:
    """All are seen as they now stand: nothing else can have changed them under their locks."""
    Run.objects.filter(pk__in=[run.pk for run in runs]).update(seen_revision=F("revision"))
    silent = [run for run in runs if run.state == RunState.RUNNING and run.lease_until]
    Silence.objects.bulk_create(
        [
            Silence(run=run, lease_until=run.lease_until)
            for run in silent
            if run.lease_until and run.lease_until < now
        ],
        update_conflicts=True,
        unique_fields=["run"],
        update_fields=["lease_until"],
    )
