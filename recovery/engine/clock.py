"""The two clocks of the engine: the database's, by which everybody agrees, and this process's own.

Leases and expiries are compared in SQL with `clock_timestamp()`, so that a machine whose clock is
an hour off steals nothing. `now()` would be the beginning of the transaction and
`statement_timestamp()` that of the statement: after a wait for a row lock both lie.
"""

import time
from datetime import datetime, timedelta

from django.db import InterfaceError, OperationalError, connection
from django.db.models import DateTimeField, Func, Value
from django.db.models.expressions import Combinable

DATABASE_AWAY = (OperationalError, InterfaceError)


class Clock(Func):
    """`clock_timestamp()`: the database's time at the moment in which the row is looked at."""

    function = "clock_timestamp"
    template = "%(function)s()"
    output_field = DateTimeField()


def after(seconds: float) -> Combinable:
    """So many seconds from now, by the database's clock."""
    return Clock() + Value(timedelta(seconds=seconds))


def database_time() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment


def boot_seconds() -> float:
    """Time that goes on while this process, or the machine, is stopped; only differences mean a
    thing.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)
