"""Causes as a list: like failures together, and whether they are new, back again, or growing.

The figures of a page's causes are read anew each time, each up to a limit, so that a cause with a
hundred thousand cases costs what one with a thousand does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from recovery.models import Case, CaseState, Cause
from workspaces.models import Workspace

NEW_HOURS = 24
"""So long a cause counts as new, and cases are compared with as many hours before."""

COUNT_MAX = 1_000
GROWING_CASES_MIN = 3
"""Fewer in a day are no trend: one after none would be twice as many as before."""

LOOKED_AT_MAX = 200
"""Of the causes seen last, to find those that grow."""

VIEWS = ("", "new", "regressed", "growing")


@dataclass(frozen=True, slots=True)
class Trend:
    """How a cause goes on: its open cases, and those of the last day and of the day before."""

    open: int
    lately: int
    before: int
    is_new: bool
    is_back: bool

    @property
    def is_growing(self) -> bool:
        return self.lately >= GROWING_CASES_MIN and self.lately > self.before

    @property
    def words(self) -> str:
        """The one word that a line shows; what is new cannot be back, nor grow."""
        if self.is_new:
            return "new"
        if self.is_back:
            return "regressed"
        return "growing" if self.is_growing else ""


def listed(workspace: Workspace, view: str = "", now: datetime | None = None) -> QuerySet[Cause]:
    """Causes of the workspace, the one seen last first."""
    now = now or timezone.now()
    day = now - timedelta(hours=NEW_HOURS)
    found = Cause.objects.filter(workspace=workspace, case_count__gt=0)
    if view == "new":
        found = found.filter(first_seen_at__gt=day)
    elif view == "regressed":
        found = found.filter(_is_back(), Exists(_open(OuterRef("pk"))))
    elif view == "growing":
        found = found.filter(last_seen_at__gt=day, first_seen_at__lte=day)
        lately = found.order_by("-last_seen_at", "-id")[:LOOKED_AT_MAX]
        growing = [one.pk for one in lately if trend(one, now).is_growing]
        found = Cause.objects.filter(pk__in=growing)
    return found.order_by("-last_seen_at", "-id")


def trend(cause: Cause, now: datetime | None = None) -> Trend:
    now = now or timezone.now()
    day, two_days = (now - timedelta(hours=NEW_HOURS * days) for days in (1, 2))
    cases = Case.objects.filter(cause=cause)
    standing = _count(_open(cause.pk))
    return Trend(
        open=standing,
        lately=_count(cases.filter(opened_at__gt=day)),
        before=_count(cases.filter(opened_at__gt=two_days, opened_at__lte=day)),
        is_new=cause.first_seen_at > day,
        is_back=standing > 0
        and cause.last_closed_at is not None
        and cause.last_seen_at > cause.last_closed_at,
    )


def _is_back() -> Q:
    """Seen again after its last case was closed."""
    return Q(last_closed_at__isnull=False, last_seen_at__gt=F("last_closed_at"))


def _open(cause: Any) -> QuerySet[Case]:
    return Case.objects.filter(cause=cause).exclude(state=CaseState.CLOSED)


def _count(cases: QuerySet[Case]) -> int:
    return cases.order_by().values("pk")[: COUNT_MAX + 1].count()
