"""The section `hours` of a document."""

import re
from datetime import date
from typing import Any
from zoneinfo import available_timezones

from approvals.policy.expressions import near
from approvals.policy.form import Form
from approvals.policy.reading import Path
from approvals.policy.working_hours import DAYS, WorkingHours

CLOSED_MAX = 400
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|(24):(00)")


def hours(form: Form, value: Any, path: Path) -> WorkingHours | None:
    """The section `hours`: `{zone, days, from, to, closed}`."""
    if value is None:
        return None
    given = form.mapping(value, path, ("zone", "days", "from", "to", "closed"))
    zone = form.text(given.get("zone"), (*path, "zone"), 64) or "UTC"
    if zone not in available_timezones():
        hint = near(zone, available_timezones())
        form.wrong((*path, "zone"), f"“{zone}” is no time zone that is known here{hint}")
        zone = "UTC"
    days = form.each(
        given.get("days"), (*path, "days"), lambda one, at: form.choice(one, at, DAYS), len(DAYS)
    )
    start, end = (_minute(form, given.get(name), (*path, name)) for name in ("from", "to"))
    if start == end:
        form.wrong(path, "“from” and “to” are two times of a day, as 08:00 and 18:00")
    closed = form.each(given.get("closed"), (*path, "closed"), lambda one, at: _day(form, one, at),
                       CLOSED_MAX)  # fmt: skip
    return WorkingHours(zone, tuple(days) or DAYS[:5], start, end, frozenset(closed))


def _minute(form: Form, value: Any, at: Path) -> int:
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        form.wrong(at, 'a time of the day such as "08:30" is wanted here, as a text')
        return 0
    hour, minute = (found[1], found[2]) if found[1] else (found[3], found[4])
    return int(hour) * 60 + int(minute)


def _day(form: Form, value: Any, at: Path) -> date | None:
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        form.wrong(at, 'a day such as "2026-12-25" is wanted here, as a text')
        return None
