"""Triage: looks at every run that changed since it last looked, and opens, renews or reopens cases.

The table is the queue: a run whose revision is above its seen revision is looked at. Never "numbers
above the last", which would lose late commits. Looking is idempotent, and many may look at once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet
from django.db.models.functions import Now

from amends.protocol.vocabulary import EventType, Risk
from connectors import channels
from connectors.channels import Message
from connectors.models import Connection, Delivery
from ledger import desk_events, finding
from ledger.models import Action, Compensated, Effect, Event, Run, RunState
from recovery.cases import lifecycle
from recovery.cases.lifecycle import REOPENED, move, record
from recovery.engine.plan_lifecycle import cases_behind
from recovery.models import Case, CaseOutcome, CaseState, Directive, Silence
from recovery.planning.drafting import connections_of
from recovery.run_facts.policies import policies_of
from recovery.run_facts.runs import RunFacts, gather, steps_of
from recovery.triage import case_projection, causes, verification
from recovery.triage.case_projection import CaseProjection, case_file, of_run, told_to_the_end
from recovery.triage.case_reasons import Reason, doubted, unanswered
from recovery.triage.detectors import reasons, stood_at_closing
from recovery.triage.headlines import without_sum
from workspaces import locks
from workspaces.clock import database_time
from workspaces.models import User
from workspaces.replica import DATABASE_AWAY

logger = logging.getLogger(__name__)


# Alarms: a new critical case must reach somebody who is not looking at the queue.

CRITICAL = "case.critical"
"""The subject to which a channel subscribes."""

TOGETHER_SECONDS = 600
ALARMS_ALONE_MAX = 20
"""So many cases are told one by one in ten minutes; of the rest one message says that there are
more, for a pager that rings a thousand times is switched off."""


def alarm(case: Case) -> None:
    """Tell the channels once for each time that the case opens; the caller holds the transaction.

    The message carries what the queue shows, and no arguments.
    """
    if case.risk != Risk.CRITICAL:
        return
    here = f"{settings.AMENDS_URL}/w/{case.workspace.slug}/"
    since = case.reopened_at or case.opened_at
    if _told_lately(case) >= ALARMS_ALONE_MAX:
        more = Message(
            title="There are more critical cases",
            text="They came faster than is told one by one. The queue has all of them.",
            url=f"{here}queue/?q=risk%3Acritical",
        )
        turn = int(since.timestamp()) // TOGETHER_SECONDS
        channels.announce(case.workspace, CRITICAL, more, key=f"critical cases {turn}")
        return
    text, url = f"{case.suggestion_reason}\nRun {case.run.run}.", f"{here}cases/{case.pk}/"
    channels.announce(
        case.workspace,
        CRITICAL,
        Message(title=f"Critical: {without_sum(case.headline)}", text=text, url=url),
        fuller=Message(title=f"Critical: {case.headline}", text=text, url=url),
        key=f"case {case.pk} {since.isoformat()}",
    )


def _told_lately(case: Case) -> int:
    lately = Delivery.objects.filter(
        workspace=case.workspace_id,
        subject=CRITICAL,
        created_at__gt=Now() - timedelta(seconds=TOGETHER_SECONDS),
    )
    return lately.values("message__url").distinct()[:ALARMS_ALONE_MAX].count()


Connections = Mapping[tuple[int, str], Connection]

STORY = frozenset(
    {
        "reasons",
        "evidence",
        "without_effects",
        "headline",
        "headline_in_full",
        "brief",
        "failed_action",
        "failed_tool",
        "failed_target",
        "failed_at",
        "risk",
        "risk_rank",
        "due_at",
    }
)
"""Columns that tell what went wrong; they outlive its being put right."""

SENTENCES = ("reasons", "evidence", "headline", "headline_in_full", "brief")


def keep(
    facts: RunFacts, case: Case | None, reasons: Sequence[Reason], file: CaseProjection
) -> Case:
    """Open, renew or reopen the case of a run; the caller holds the locks of both."""
    if case is None:
        return _open_case(facts, reasons, file)
    if _changed(case, of_run(facts.run)):  # no change of the case, whose revision stays
        Case.objects.filter(pk=case.pk).update(**of_run(facts.run))
    if case.state == CaseState.CLOSED:
        fresh = unanswered(facts, case, reasons)
        if not fresh:
            changes = _changed(case, _told_at_last(facts, case, reasons, file))
            if changes:
                lifecycle.change(case, changes)
            return case
        move(case, CaseState.OPEN, reopened_at=file.learnt_at, **REOPENED)
        _write_case(facts, case, file.columns, file)
        _record(case, facts, EventType.CASE_REOPENED, fresh)
        alarm(case)
        return case
    return _renew_case(facts, case, file)


def _open_case(facts: RunFacts, reasons: Sequence[Reason], file: CaseProjection) -> Case:
    run = facts.run
    cause = causes.keep(run.workspace, file.alike) if file.alike else None
    columns = {**file.columns, **of_run(run), "opened_at": file.learnt_at}
    case = Case.objects.create(workspace=run.workspace, run=run, cause=cause, **columns)
    if cause is not None:
        causes.joined(cause)
    _searchable(case, file)
    _record(case, facts, EventType.CASE_OPENED, reasons)
    alarm(case)
    return case


def _renew_case(facts: RunFacts, case: Case, file: CaseProjection) -> Case:
    """Write what changed; nothing where nothing did, so that looking twice changes nothing."""
    columns = file.columns
    # All has been put right, or a plan is at it: what went wrong is still what went wrong.
    if not columns["reasons"] or case_projection.is_being_undone(case, columns):
        columns = {name: value for name, value in columns.items() if name not in STORY}
    if not file.columns["reasons"]:
        columns = {**columns, **_sentences_at_last(facts, case)}
    changes = _changed(case, columns)
    if not changes:
        return case
    before = set(case.reasons)
    changes |= lifecycle.woken(case, changes)
    _write_case(facts, case, changes, file)
    if "risk" in changes:
        alarm(case)
    if set(case.reasons) != before:
        known = [Reason(code, "") for code in case.reasons if code not in before]
        _record(case, facts, EventType.CASE_RENEWED, known)
    return case


def _changed(case: Case, columns: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in columns.items()
        if _now(case, name) != getattr(value, "pk", value)
    }


def _told_at_last(
    facts: RunFacts, case: Case, reasons: Sequence[Reason], file: CaseProjection
) -> dict[str, Any]:
    """What a closed case says once the doubt that it told of is over; whatever else, as it was."""
    if not reasons:
        return _sentences_at_last(facts, case)
    told = case.reasons[0] if case.reasons else ""
    if told not in case_projection.UNSETTLED or told in file.columns["reasons"]:
        return {}
    return {name: file.columns[name] for name in SENTENCES}


def _sentences_at_last(facts: RunFacts, case: Case) -> dict[str, Any]:
    is_over = case.evidence and case.reasons[0] in case_projection.UNSETTLED
    return told_to_the_end(facts, case.evidence) if is_over else {}


def _write_case(
    facts: RunFacts, case: Case, changes: Mapping[str, Any], file: CaseProjection
) -> None:
    changes = dict(changes)
    fresh = doubted(changes.get("evidence", ())) - doubted(case.evidence)
    if fresh or changes.get("unknown_count", 0) > case.unknown_count:
        changes |= {"probes": 0, "probe_at": None}
    if "reasons" in changes or "failed_tool" in changes:
        changes |= _cause(facts, case, file)
    if case.without_effects and not changes.get("without_effects", True):
        changes["opened_at"] = file.learnt_at  # now it comes to the queue, as news
    lifecycle.change(case, changes)
    _searchable(case, file)


def _cause(facts: RunFacts, case: Case, file: CaseProjection) -> dict[str, Any]:
    if file.alike is None:  # it never was like others: it has no cause to leave
        return {}
    cause = causes.keep(facts.run.workspace, file.alike)
    if cause.pk == case.cause_id:
        return {}
    causes.left(case.cause_id)
    causes.joined(cause)
    return {"cause": cause}


def _searchable(case: Case, file: CaseProjection) -> None:
    Case.objects.filter(pk=case.pk).update(search=finding.words(file.searched))


def _now(case: Case, name: str) -> Any:
    return getattr(case, f"{name}_id" if name in {"agent", "failed_action"} else name)


def _record(case: Case, facts: RunFacts, what: EventType, reasons: Sequence[Reason]) -> None:
    desk_events.record(
        facts.run.workspace,
        what,
        run=facts.run.run,
        part="triage",
        data={
            "case": case.pk,
            "headline": case.headline,
            "risk": case.risk,
            "reasons": [reason.as_json() for reason in reasons],
            "suggestion": case.suggestion,
        },
    )


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
    fresh = [reason for reason in found if not reason.is_answered(case.answered)]
    if not (facts.has_ended or facts.is_silent):
        return
    if fresh or facts.run.state != RunState.COMPLETED:
        move(case, CaseState.OPEN)
    else:
        _close(facts, case, found)


def _acknowledge(facts: RunFacts, case: Case, directive: Directive) -> bool:
    answer = Event.objects.filter(
        workspace=facts.run.workspace_id,
        run=facts.run.run,
        type=EventType.RUN_RESUMED,
        received_at__gt=directive.issued_at,
    ).first()
    if answer is None:
        return False
    directive.acknowledged_at = answer.received_at
    directive.save(update_fields=["acknowledged_at"])
    record(
        case,
        EventType.RESUME_ACKNOWLEDGED,
        data={"directive": directive.pk, "event": answer.event_id},
    )
    return True


def _give_up(case: Case, directive: Directive) -> None:
    directive.withdrawn_at = database_time()
    directive.save(update_fields=["withdrawn_at"])
    move(case, CaseState.OPEN)
    record(case, EventType.RESUME_UNANSWERED, data={"directive": directive.pk})


def _close(facts: RunFacts, case: Case, found: Sequence[Reason]) -> None:
    """The desk's own closing: the run went on as directed, and came to a good end."""
    words = "The run went on and came to its end."
    ending = lifecycle.Ending(case, found, facts.remaining(), more=facts.more_remaining)
    lifecycle.end_each([ending], CaseOutcome.RESUMED, words)


AS_IT_STANDS = {
    CaseOutcome.RESTORED: lifecycle.WAS_RESTORED,
    CaseOutcome.PARTLY: "Some of what undid it was undone: that stands again.",
    CaseOutcome.EXPECTED: "What undid it was undone: it stands again.",
}


def _close_as_it_stands(case: Case) -> None:
    """What the desk closed as restored is so no longer once its plan's work was itself undone, and
    is so again once that was.
    """
    case = locks.locked(Case.objects.select_related("run", "workspace")).get(pk=case.pk)
    if case.state != CaseState.CLOSED or case.closing_reason not in AS_IT_STANDS.values():
        return
    told = Effect.objects.filter(action__run=case.run_id, withdrawn=False).exclude(
        compensated=Compensated.NONE
    )
    effects = list(told.select_related("action").order_by("pk"))
    undone = steps_of(case.run_id, [effect.pk for effect in effects])
    again = [one for one in effects if one.pk in undone and undone[one.pk].is_undone_again]
    stands = CaseOutcome.EXPECTED if len(again) == len(effects) else CaseOutcome.PARTLY
    outcome = stands if again else CaseOutcome.RESTORED
    if outcome != case.outcome:
        standing = [(one.action, one) for one in again]
        ending = lifecycle.Ending(case, [stood_at_closing(case.run)], standing)
        lifecycle.close_otherwise(ending, outcome, AS_IT_STANDS[outcome])


def overdue() -> list[int]:
    """Runs whose directive nobody acknowledged in time."""
    late = Directive.objects.filter(
        kind="resume",
        acknowledged_at=None,
        withdrawn_at=None,
        acknowledge_by__lt=database_time(),
    )
    return list(late.order_by("acknowledge_by").values_list("run_id", flat=True)[:LATE_MAX])


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
        found = _beside_each_other(unseen().exclude(pk__in=case_projection.resting()))
        looked += found
        if found < BATCH_RUNS:
            break
    return looked


def unseen() -> QuerySet[Run]:
    """Runs of which the ledger has more than was looked at."""
    return Run.objects.filter(is_unseen=True)


def listen_for_silence() -> int:
    """Look at runs whose lease has ended since the last look; the clock changes no revision."""
    return _beside_each_other(silent())


def silent() -> QuerySet[Run]:
    """Runs whose lease has ended since they were looked at."""
    heard = Silence.objects.filter(run=OuterRef("pk"), lease_until__gte=OuterRef("lease_until"))
    return Run.objects.filter(
        ~Exists(heard),
        state=RunState.RUNNING,
        agent__isnull=False,
        lease_minute__lt=Now(),
        lease_until__lt=Now(),
        lease_until__gt=Now() - timedelta(days=SILENT_DAYS_MAX),
    )


def _beside_each_other(wanted: QuerySet[Run]) -> int:
    """One batch; where one of its runs cannot be looked at, each by itself, so that it holds up no
    other. It stays unseen, and what went wrong is raised at the end: the loop's heartbeat says so.
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


def record_of_call(
    case: Case,
    action: Action,
    what: EventType,
    *,
    data: dict[str, Any],
    by: User | None = None,
    part: str = "desk",
) -> Case:
    """Write down what was found out about a call of the case, and look at its run anew; the caller
    holds the locks of both. The case as it then is.
    """
    desk_events.record(
        case.workspace, what, run=case.run.run, action=action.action, data=data, by=by, part=part
    )
    look([case.run_id])
    case.refresh_from_db()
    return case


@transaction.atomic
def _look_at(wanted: QuerySet[Run]) -> int:
    """One batch: what nobody else is looking at."""
    runs = list(
        locks.not_in_hand(wanted).select_related("workspace", "agent").order_by("pk")[:BATCH_RUNS]
    )
    if not runs:
        return 0
    now = database_time()
    cases = {
        case.run_id: case
        for case in locks.locked(Case.objects.all())
        .filter(run__in=[run.pk for run in runs])
        .order_by("pk")
    }
    connections = connections_of({run.workspace_id for run in runs})
    for facts in gather(runs, policies=policies_of(runs), now=now):
        _consider(facts, cases.get(facts.run.pk), connections)
        for case in cases_behind(facts.run):
            _close_as_it_stands(case)
    _remember(runs, now)
    return len(runs)


def _consider(facts: RunFacts, case: Case | None, connections: Connections) -> None:
    if case is None and facts.run.agent_id is None:
        return  # the desk's own run: only a person opens its case
    verification.want(facts)
    found = reasons(facts, case)
    if case is None and not found:
        return
    case = keep(facts, case, found, case_file(facts, found, connections, case))
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
    Silence.objects.bulk_create(
        [
            Silence(run=run, lease_until=run.lease_until)
            for run in runs
            if run.state == RunState.RUNNING and run.lease_until and run.lease_until < now
        ],
        update_conflicts=True,
        unique_fields=["run"],
        update_fields=["lease_until"],
    )
