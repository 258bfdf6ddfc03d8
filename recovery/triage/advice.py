"""Advice: open cases follow a policy that comes into force, which changes no run and so is nothing
that triage would look at.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q

from approvals.models import PolicyVersion
from recovery.cases import lifecycle
from recovery.models import AdviceRenewal, Case, CaseState
from recovery.planning.drafting import connections_of
from recovery.run_facts.policies import policies_of
from recovery.run_facts.runs import gather
from recovery.triage.case_projection import advice
from workspaces import locks
from workspaces.clock import database_time
from workspaces.periodic import each

ADVISED_CASES = 50
"""At once: their runs are held meanwhile, and what agents tell of them waits."""

ADVISED_WORKSPACES_MAX = 20
ADVISING_SECONDS_MAX = 2.0
"""Of one turn; the next comes soon, and nothing is lost if it comes late."""

JUDGED_SECONDS_MAX = 60
"""A batch of triage that began before a policy came into force has ended by then."""


def renew() -> int:
    """Advise open cases anew where a policy came into force since; how many were looked at."""
    fresh = Q(
        workspace__advicerenewal__since=F("activated_at"), workspace__advicerenewal__is_done=True
    )
    active = PolicyVersion.objects.filter(active=True, activated_at__isnull=False)
    due = active.exclude(fresh).order_by("activated_at").values_list("workspace", "activated_at")
    until = time.monotonic() + ADVISING_SECONDS_MAX

    def follow(one: tuple[int, datetime | None]) -> int:
        looked, (workspace, since) = 0, one
        while since and time.monotonic() < until:
            found = _advise_some(workspace, since)
            looked += found
            if found < ADVISED_CASES:
                break
        return looked

    return each(due[:ADVISED_WORKSPACES_MAX], follow)


def advise_all_anew() -> None:
    """After an upgrade, which may judge otherwise, each open case is advised anew."""
    AdviceRenewal.objects.update(up_to=0, is_done=False)


@transaction.atomic
def _advise_some(workspace: int, since: datetime) -> int:
    """The next open cases of its workspace. Who holds the row goes on with them by themselves.

    It is done once nothing was left after every batch of triage that may still have judged by the
    policy before has come to its end.
    """
    AdviceRenewal.objects.bulk_create(
        [AdviceRenewal(workspace_id=workspace, since=since)], ignore_conflicts=True
    )
    rows = AdviceRenewal.objects.filter(workspace=workspace)
    renewal = locks.not_in_hand(rows).first()
    if renewal is None:
        return 0
    if renewal.since != since:
        renewal.since, renewal.up_to, renewal.is_done = since, 0, False
    waiting = Case.objects.filter(
        workspace=workspace, state=CaseState.OPEN, without_effects=False, pk__gt=renewal.up_to
    )
    cases = list(waiting.order_by("pk")[:ADVISED_CASES])
    _advise(cases)
    if cases:
        renewal.up_to = cases[-1].pk
    elif database_time() - since > timedelta(seconds=JUDGED_SECONDS_MAX):
        renewal.is_done = True
    else:
        renewal.up_to = 0
    renewal.save()
    return len(cases)


def _advise(cases: Sequence[Case]) -> None:
    """Write what changed of the advice; nothing where nothing did."""
    if not cases:
        return
    lifecycle.lock_runs(cases)
    fresh = [one for one in lifecycle.locked_each(cases).values() if one.state == CaseState.OPEN]
    runs = [case.run for case in fresh]
    connections = connections_of({run.workspace_id for run in runs})
    known = gather(runs, policies=policies_of(runs), now=database_time())
    for case, facts in zip(fresh, known, strict=True):
        advised = advice(facts, connections)
        changes = {name: new for name, new in advised.items() if getattr(case, name) != new}
        if changes:
            lifecycle.change(case, changes)
