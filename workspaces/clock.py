"""The two clocks: the database's, by which everybody agrees, and this process's own.

Processes and machines, each with a clock of its own, must agree on when a lease or a key is over,
so what decides is compared in SQL with `clock_timestamp()`. (`now()` would be the beginning of the
transaction and `statement_timestamp()` that of the statement: after a wait for a row lock both
lie.) Where no statement runs anyway, `now` here tells the database's time without asking it: it was
asked once, and a clock that nobody sets has counted since then.
"""

import time
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models import DateTimeField, Func
from django.utils import timezone

ASKED_SECONDS_MAX = 60.0
"""Then the database is asked again, for no two clocks go equally fast."""


class Clock(Func):
    """`clock_timestamp()`: the database's time at the moment in which the row is looked at."""

    function = "clock_timestamp"
    template = "%(function)s()"
    output_field = DateTimeField()


def database_time(using: str = DEFAULT_DB_ALIAS) -> datetime:
    """The database's time, by a statement of its own."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment


def boot_seconds() -> float:
    """Time that goes on while this process, or the machine, is stopped; only differences mean a
    thing.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class ClockReading:
    """What the database said, and when that was by `CLOCK_BOOTTIME`."""

    said: datetime
    boot_seconds: float


_asked: dict[str, ClockReading] = {}


def now() -> datetime:
    """The database's time, as exact as its answer was quick."""
    moment = boot_seconds()
    asked = _asked.get(DEFAULT_DB_ALIAS)
    if asked is None or moment - asked.boot_seconds > ASKED_SECONDS_MAX:
        asked = _asked[DEFAULT_DB_ALIAS] = ClockReading(_ask(), moment)
    return asked.said + timedelta(seconds=moment - asked.boot_seconds)


def last_heard() -> datetime:
    """The same by what the database last said, however long ago: for threads that ask it nothing.
    Where it has said nothing to this process yet, it is the process's own time.
    """
    asked = _asked.get(DEFAULT_DB_ALIAS)
    if asked is None:
        return timezone.now()
    return asked.said + timedelta(seconds=boot_seconds() - asked.boot_seconds)


def _ask() -> datetime:
    """By psycopg's own cursor: which statements a page needs does not depend on the minute."""
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    with connection.wrap_database_errors:
        row = connection.connection.execute("SELECT clock_timestamp()").fetchone()
    moment: datetime = row[0]
    return moment


# Days as who reads a page counts them (workspaces/pages.py), for statements that sum up by day.
#
# They are told by where they begin, and not by the name of a zone: the database may know other
# names than Python does, and a page of figures is no place to find that out.

DAY = "(%(days)s::date[])[width_bucket({}, %(beginnings)s::timestamptz[])]"
"""The day in which a moment lies, of those of `by_days`; null before them."""


def by_days(first: date, last: date) -> dict[str, Any]:
    """What DAY is given: each day of the current time zone, and one more for what lies behind."""
    zone = timezone.get_current_timezone()
    days = [first + timedelta(days=at) for at in range((last - first).days + 2)]
    beginnings = [datetime.combine(day, time_of_day.min, zone) for day in days]
    return {"days": days, "beginnings": beginnings}
