"""The database's time, told without asking it each time: its clock is the one that decides.

Several web processes, each with a clock of its own, must agree on when a claim or a key is over. A
statement that runs anyway compares with `Now()`; where none does, this tells the time: the database
was asked once, and a clock that nobody sets has counted since then.
"""

import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection

ASKED_SECONDS_MAX = 60.0
"""Then the database is asked again, for no two clocks go equally fast."""


@dataclass(frozen=True)
class Asked:
    """What the database said, and when that was by `CLOCK_BOOTTIME`."""

    said: datetime
    boot_seconds: float


_asked: dict[str, Asked] = {}


def now() -> datetime:
    """The database's time, as exact as its answer was quick."""
    boot_seconds = time.clock_gettime(time.CLOCK_BOOTTIME)
    asked = _asked.get(connection.alias)
    if asked is None or boot_seconds - asked.boot_seconds > ASKED_SECONDS_MAX:
        asked = _asked[connection.alias] = Asked(_ask(), boot_seconds)
    return asked.said + timedelta(seconds=boot_seconds - asked.boot_seconds)


def _ask() -> datetime:
    """By psycopg's own cursor: which statements a page needs does not depend on the minute."""
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    with connection.wrap_database_errors:
        row = connection.connection.execute("SELECT clock_timestamp()").fetchone()
    moment: datetime = row[0]
    return moment
