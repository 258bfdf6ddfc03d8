"""Opening: how what triage found becomes a case, once, and how a closed case comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.postgres.search import SearchVector
from django.db.models import Value
from django.db.models.functions import Now
from django.utils import timezone

from amends.protocol.vocabulary import EventType, Risk
from connectors import channels
from connectors.channels import Message
from connectors.models import Connection, Delivery
from ledger import desk_events
from recovery.cases.lifecycle import REOPENED, move
from recovery.models import Case, CaseState
from recovery.run_facts.runs import RunFacts
from recovery.triage import causes
from recovery.triage.case_projection import CaseProjection
from recovery.triage.detectors import Reason

# Alarms: a new critical case must reach somebody who is not looking at the queue.

CRITICAL = "case.critical"
"""The subject to which a channel subscribes."""

TOGETHER_SECONDS = 600
ALONE_MAX = 20
"""So many cases are told one by one in ten minutes; of the rest one message says that there are
more, for a pager that rings a thousand times is switched off."""


def ring(case: Case) -> None:
    """Tell the channels once for each time that the case opens; the caller holds the transaction.

    The message carries what the queue shows, and no arguments.
    """
    if case.risk != Risk.CRITICAL:
        return
    here = f"{settings.AMENDS_URL}/w/{case.workspace.slug}/"
    since = case.reopened_at or case.opened_at
    if _told_lately(case) >= ALONE_MAX:
        more = Message(
            title="There are more critical cases",
            text="They came faster than is told one by one. The queue has all of them.",
            url=f"{here}queue/?q=risk%3Acritical",
        )
        turn = int(since.timestamp()) // TOGETHER_SECONDS
        channels.announce(case.workspace, CRITICAL, more, key=f"critical cases {turn}")
        return
    message = Message(
        title=f"Critical: {case.headline}",
        text=f"{case.suggestion_reason}\nRun {case.run.run}.",
        url=f"{here}cases/{case.pk}/",
    )
    channels.announce(case.workspace, CRITICAL, message, key=f"case {case.pk} {since.isoformat()}")


def _told_lately(case: Case) -> int:
    lately = Delivery.objects.filter(
        workspace=case.workspace_id,
        subject=CRITICAL,
        created_at__gt=Now() - timedelta(seconds=TOGETHER_SECONDS),
    )
    return lately.values("message").distinct()[:ALONE_MAX].count()


Connections = Mapping[tuple[int, str], Connection]

STORY = frozenset(
    {
        "reasons",
        "evidence",
        "without_effects",
        "headline",
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


def keep(
    facts: RunFacts, case: Case | None, reasons: Sequence[Reason], file: CaseProjection
) -> Case:
    """Open, renew or reopen the case of a run; the caller holds the locks of both."""
    if case is None:
        return _open(facts, reasons, file)
    if case.state == CaseState.CLOSED:
        fresh = [reason for reason in reasons if reason.key not in case.answered]
        if not fresh:
            return case
        return _reopen(facts, case, fresh, file)
    return _renew(facts, case, file)


def _open(facts: RunFacts, reasons: Sequence[Reason], file: CaseProjection) -> Case:
    run = facts.run
    cause = causes.keep(run.workspace, file.alike) if file.alike else None
    case = Case.objects.create(workspace=run.workspace, run=run, cause=cause, **file.columns)
    if cause is not None:
        causes.joined(cause)
    _searchable(case, file)
    _say(case, facts, EventType.CASE_OPENED, reasons)
    ring(case)
    return case


def _reopen(facts: RunFacts, case: Case, reasons: Sequence[Reason], file: CaseProjection) -> Case:
    move(case, CaseState.OPEN, reopened_at=timezone.now(), **REOPENED)
    _write(facts, case, file.columns, file)
    _say(case, facts, EventType.CASE_REOPENED, reasons)
    ring(case)
    return case


def _renew(facts: RunFacts, case: Case, file: CaseProjection) -> Case:
    """Write what changed; nothing where nothing did, so that looking twice changes nothing."""
    columns = file.columns
    if not columns["reasons"]:  # all has been put right: what went wrong is still what went wrong
        columns = {name: value for name, value in columns.items() if name not in STORY}
    changes = {name: value for name, value in columns.items() if _now(case, name) != _plain(value)}
    if not changes:
        return case
    before = set(case.reasons)
    _write(facts, case, changes, file)
    if "risk" in changes:
        ring(case)
    if set(case.reasons) != before:
        known = [Reason(code, "") for code in case.reasons if code not in before]
        _say(case, facts, EventType.CASE_RENEWED, known)
    return case


def _write(facts: RunFacts, case: Case, changes: Mapping[str, Any], file: CaseProjection) -> None:
    changes = dict(changes)
    if changes.get("unknown_count", 0) > case.unknown_count:
        changes |= {"probes": 0, "probe_at": None}
    if "reasons" in changes or "failed_tool" in changes:
        changes |= _cause(facts, case, file)
    if case.without_effects and not changes.get("without_effects", True):
        changes["opened_at"] = timezone.now()  # now it comes to the queue, as news
    for name, value in changes.items():
        setattr(case, name, value)
    case.revision += 1
    case.save(update_fields=[*changes, "revision"])
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
    Case.objects.filter(pk=case.pk).update(
        search=SearchVector(Value(file.searched), config="simple")
    )


def _now(case: Case, name: str) -> Any:
    return (
        getattr(case, f"{name}_id") if name in {"agent", "failed_action"} else getattr(case, name)
    )


def _plain(value: Any) -> Any:
    return getattr(value, "pk", value)


def _say(case: Case, facts: RunFacts, what: EventType, reasons: Sequence[Reason]) -> None:
    desk_events.say(
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
