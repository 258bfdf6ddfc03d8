"""Rows: what every verb of a case begins and ends with. Its lock, its claim, its words."""

from __future__ import annotations

from typing import Any

from ledger import desk
from ledger.models import Run
from recovery.models import Case
from workspaces import clock
from workspaces.models import User


class Empty(ValueError):
    """We stopped because there is nothing to write down. Ask for a few words."""


class OutOfDate(Exception):
    """We stopped because the case is no longer as it was shown. Nothing was changed: show it."""

    def __init__(
        self, case: Case, why: str = "Somebody changed this case since you saw it."
    ) -> None:
        super().__init__(why)
        self.case = case


def holder_of(case: Case) -> User | None:
    """Who has claimed it, as long as the lease lasts."""
    if case.claimed_until is None or case.claimed_until <= clock.now():
        return None
    return case.claimed_by


def held_by_another(case: Case, person: User | None) -> User | None:
    """Who has claimed it, if that is somebody else: two people cannot both act."""
    holder = holder_of(case)
    return holder if holder is not None and holder != person else None


def locked(case: Case, *, seen: int | None = None) -> Case:
    """The case under its lock and its run's, the run first, as everybody takes them.

    Raises OutOfDate unless it is as it was seen.
    """
    Run.objects.select_for_update(no_key=True).only("pk").get(pk=case.run_id)
    now = (
        Case.objects.select_for_update(of=("self",))
        .select_related("workspace", "run__agent", "claimed_by")
        .get(pk=case.pk)
    )
    if seen is not None and now.revision != seen:
        raise OutOfDate(now)
    return now


def changed(case: Case, **columns: Any) -> None:
    """Write columns and raise the revision; the caller holds the lock."""
    for name, value in columns.items():
        setattr(case, name, value)
    case.revision += 1
    case.save(update_fields=[*columns, "revision"])


def say(
    case: Case,
    what: str,
    *,
    by: User | None = None,
    data: dict[str, Any] | None = None,
    part: str = "desk",
) -> str:
    """Tell the ledger, in the run's own story."""
    return desk.say(
        case.workspace,
        what,
        run=case.run.run,
        by=by,
        part=part,
        data={"case": case.pk} | (data or {}),
    )
