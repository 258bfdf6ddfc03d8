"""Opening: how what triage found becomes a case, once, and how a closed case comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.postgres.search import SearchVector
from django.db.models import Value
from django.utils import timezone

from connectors.models import Connection
from ledger import desk
from recovery.facts.runs import RunFacts
from recovery.models import Case, CaseState
from recovery.triage import alarms, causes
from recovery.triage.casefile import CaseFile
from recovery.triage.reasons import Reason

Connections = Mapping[tuple[int, str], Connection]

STORY = frozenset(
    {
        "reasons",
        "evidence",
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


def keep(facts: RunFacts, case: Case | None, reasons: Sequence[Reason], file: CaseFile) -> Case:
    """Open, renew or reopen the case of a run; the caller holds the locks of both."""
    if case is None:
        return _open(facts, reasons, file)
    if case.state == CaseState.CLOSED:
        fresh = [reason for reason in reasons if reason.key not in case.answered]
        if not fresh:
            return case
        return _reopen(facts, case, fresh, file)
    return _renew(facts, case, file)


def _open(facts: RunFacts, reasons: Sequence[Reason], file: CaseFile) -> Case:
    run = facts.run
    cause = causes.keep(run.workspace, file.alike)
    case = Case.objects.create(workspace=run.workspace, run=run, cause=cause, **file.columns)
    causes.joined(cause)
    _searchable(case, file)
    _say(case, facts, "case.opened", reasons)
    alarms.ring(case)
    return case


def _reopen(facts: RunFacts, case: Case, reasons: Sequence[Reason], file: CaseFile) -> Case:
    changes = dict(file.columns) | {
        "state": CaseState.OPEN,
        "reopened_at": timezone.now(),
        "corrections_drafted_at": None,
        "outcome": "",
        "closing_reason": "",
        "closed_at": None,
        "closed_by": None,
    }
    _write(facts, case, changes, file)
    _say(case, facts, "case.reopened", reasons)
    alarms.ring(case)
    return case


def _renew(facts: RunFacts, case: Case, file: CaseFile) -> Case:
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
        alarms.ring(case)
    if set(case.reasons) != before:
        known = [Reason(code, "") for code in case.reasons if code not in before]
        _say(case, facts, "case.renewed", known)
    return case


def _write(facts: RunFacts, case: Case, changes: Mapping[str, Any], file: CaseFile) -> None:
    changes = dict(changes)
    if changes.get("unknown_count", 0) > case.unknown_count:
        changes |= {"probes": 0, "probe_at": None}
    if "reasons" in changes or "failed_tool" in changes:
        changes |= _cause(facts, case, file)
    for name, value in changes.items():
        setattr(case, name, value)
    case.revision += 1
    case.save(update_fields=[*changes, "revision"])
    _searchable(case, file)


def _cause(facts: RunFacts, case: Case, file: CaseFile) -> dict[str, Any]:
    cause = causes.keep(facts.run.workspace, file.alike)
    if cause.pk == case.cause_id:
        return {}
    causes.left(case.cause_id)
    causes.joined(cause)
    return {"cause": cause}


def _searchable(case: Case, file: CaseFile) -> None:
    Case.objects.filter(pk=case.pk).update(
        search=SearchVector(Value(file.searched), config="simple")
    )


def _now(case: Case, name: str) -> Any:
    return (
        getattr(case, f"{name}_id") if name in {"agent", "failed_action"} else getattr(case, name)
    )


def _plain(value: Any) -> Any:
    return getattr(value, "pk", value)


def _say(case: Case, facts: RunFacts, what: str, reasons: Sequence[Reason]) -> None:
    desk.say(
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
