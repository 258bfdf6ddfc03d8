"""Weekly partitions of the event table, made ahead of need.

The default partition catches what none covers, so that a missing one loses nothing; but rows in it
keep the week's own partition from being made, and retention from dropping them. So a missing one is
an error that the job reports (and with it /statusz) before it is needed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from psycopg import sql

from workspaces.clock import database_time
from workspaces.locks import patiently

WEEKS_AHEAD = 4
WEEK = timedelta(days=7)
PARENT = "ledger_event"
DEFAULT = "ledger_event_default"
# Weeks before it is needed there is no hurry; until then the job says that it fails.
LOCKED_SECONDS_MAX = 60.0


class PartitionMissing(Exception):
    """We stopped because events of the named weeks would land, or did land, in the default one."""


@dataclass(frozen=True)
class Partition:
    name: str
    since: datetime
    until: datetime


def week_of(moment: datetime) -> Partition:
    """The partition that covers the ISO week of a moment, Monday to Monday, in UTC."""
    day = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since = day - timedelta(days=day.weekday())
    year, week, _ = since.isocalendar()
    return Partition(f"{PARENT}_{year}w{week:02}", since, since + WEEK)


def owner_alias() -> str:
    """Django's name for the connection of the role that owns the tables."""
    return "owner" if "owner" in settings.DATABASES else DEFAULT_DB_ALIAS


@contextmanager
def owner_cursor() -> Iterator[Any]:
    with connections[owner_alias()].cursor() as cursor:
        yield cursor


def named(name: str) -> Partition | None:
    """The partition of this name; None for the default one."""
    year, _, week = name.removeprefix(f"{PARENT}_").partition("w")
    if not (year.isdecimal() and week.isdecimal()):
        return None
    monday = date.fromisocalendar(int(year), int(week), 1)
    return week_of(datetime(monday.year, monday.month, monday.day, tzinfo=UTC))


def existing(cursor: Any) -> set[str]:
    cursor.execute(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = %s::regclass",
        [PARENT],
    )
    return {name for (name,) in cursor.fetchall()}


def make_ahead(now: datetime | None = None) -> list[str]:
    """Make the partitions of this week and the next four; returns the new ones.

    Raises `PartitionMissing` if one cannot be made, after making the others.
    """
    now = now or database_time(owner_alias())
    made, missing = [], []
    with owner_cursor() as cursor:
        have = existing(cursor)
        for ahead in range(WEEKS_AHEAD + 1):
            partition = week_of(now + ahead * WEEK)
            if partition.name in have:
                continue
            if _default_holds(cursor, partition):
                missing.append(partition.name)
                continue
            make(partition)
            made.append(partition.name)
        cursor.execute("SELECT EXISTS (SELECT 1 FROM ledger_event_default)")
        strays = bool(cursor.fetchone()[0])
    if missing or strays:
        where = ", ".join(missing) or "their own week's"
        raise PartitionMissing(f"events lie in {DEFAULT} instead of {where}")
    return made


def _default_holds(cursor: Any, partition: Partition) -> bool:
    cursor.execute(
        "SELECT EXISTS (SELECT 1 FROM ledger_event_default"
        " WHERE received_at >= %s AND received_at < %s)",
        [partition.since, partition.until],
    )
    return bool(cursor.fetchone()[0])


def make(partition: Partition) -> None:
    """It takes the parent from its readers for a moment: asked for shortly, so that nobody waits
    behind it for long. Raises StillLocked; the job comes again.
    """
    alias = owner_alias()

    def work() -> None:
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            _make(cursor, partition)

    patiently(alias, work, seconds_max=LOCKED_SECONDS_MAX, what=f"Making {partition.name}")


def _make(cursor: Any, partition: Partition) -> None:
    """Row triggers come down from the parent, the one against TRUNCATE does not."""
    names = {
        "name": sql.Identifier(partition.name),
        "parent": sql.Identifier(PARENT),
        "since": sql.Literal(partition.since.isoformat()),
        "until": sql.Literal(partition.until.isoformat()),
    }
    cursor.execute(
        sql.SQL(
            "CREATE TABLE IF NOT EXISTS {name} PARTITION OF {parent}"
            " FOR VALUES FROM ({since}) TO ({until})"
        ).format(**names)
    )
    guard(cursor, partition.name)


def guard(cursor: Any, name: str) -> None:
    """Refuse TRUNCATE of one partition."""
    cursor.execute(
        sql.SQL(
            "CREATE OR REPLACE TRIGGER ledger_event_no_truncate BEFORE TRUNCATE ON {}"
            " FOR EACH STATEMENT EXECUTE FUNCTION ledger_event_only_grows()"
        ).format(sql.Identifier(name))
    )
