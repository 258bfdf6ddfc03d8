"""Working hours: on which days and between which times somebody is there, in a time zone.

Whether a moment falls into them is said of the database's clock, never of a process's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from zoneinfo import ZoneInfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, slots=True)
class WorkingHours:
    """From a minute of the day until another, which may be of the next day."""

    zone: str
    days: Sequence[str]
    start: int
    end: int
    closed: frozenset[date]

    def covers(self, moment: datetime) -> bool:
        """Whether somebody is there at this moment; a shift past midnight is of its first day."""
        local = moment.astimezone(ZoneInfo(self.zone))
        minute, today = local.hour * 60 + local.minute, local.date()
        if self.start < self.end:
            return self.start <= minute < self.end and self._is_open(today)
        if minute >= self.start:
            return self._is_open(today)
        return minute < self.end and self._is_open(date.fromordinal(today.toordinal() - 1))

    def _is_open(self, day: date) -> bool:
        return DAYS[day.weekday()] in self.days and day not in self.closed
