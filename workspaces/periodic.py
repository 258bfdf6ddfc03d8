"""What is done again and again: each floor states its jobs in a module `periodic`.

A job must do no harm when two processes run it at the same time, and must bound its own work: the
next turn comes soon. `scheduler` jobs may be late; `sweeper` jobs re-drive what a lost message left
behind. Each loop gives a sign of life, so that silence is seen as well as failure.
"""

import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from django.db import connection
from django.db.models import Model, QuerySet
from django.utils.module_loading import autodiscover_modules

from workspaces.models import Heartbeat

SCHEDULER, SWEEPER = "scheduler", "sweeper"
Row = TypeVar("Row")
Found = TypeVar("Found", bound=Model)


class Queue:
    """Rows that wait for a job. Whether there are any is asked by a statement that is written once:
    Django takes longer to write it than PostgreSQL to see that nothing waits.

    So `rows` holds nothing that is known here only at the moment: its clock is the database's.
    """

    def __init__(self, rows: Callable[[], QuerySet[Any]]) -> None:
        self._rows = rows
        self._statement: tuple[str, Sequence[Any]] | None = None

    def has_any(self) -> bool:
        if self._statement is None:
            query = self._rows().order_by().values("pk")[:1].query
            self._statement = query.sql_with_params()
        with connection.cursor() as cursor:
            cursor.execute(*self._statement)
            return cursor.fetchone() is not None


@dataclass(frozen=True)
class Job:
    """One thing to do every so many seconds, measured from end to start; where it says in which
    queues its rows wait, only if there are any.
    """

    name: str
    seconds: float
    work: Callable[[], object]
    process: str
    queues: Sequence[Queue] = ()

    def do(self) -> object:
        """What the work answers; 0 where nothing waits for it."""
        if self.queues and not any(one.has_any() for one in self.queues):
            return 0
        return self.work()


_jobs: dict[str, Job] = {}


def every(
    seconds: float,
    *,
    name: str,
    process: str = SCHEDULER,
    where: Sequence[Callable[[], QuerySet[Any]]] = (),
) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Register the decorated function; `name` is what /statusz and the logs call it
    ("ledger.seal"), and `where` gives the rows that wait for it (`Queue`).
    """

    def register(work: Callable[[], object]) -> Callable[[], object]:
        if name in _jobs:
            raise ValueError(f"Two jobs are named {name}.")
        _jobs[name] = Job(name, seconds, work, process, [Queue(rows) for rows in where])
        return work

    return register


def jobs(process: str | None = None) -> list[Job]:
    """All jobs that any floor states, or those of one process."""
    autodiscover_modules("periodic")
    return [job for job in _jobs.values() if process in (None, job.process)]


def each(rows: Iterable[Row], work: Callable[[Row], int]) -> int:
    """Do it with every row, one after the other; the sum of what it answers. One that fails keeps
    no other waiting: the first error is raised once all have had their turn.
    """
    done, failed = 0, None
    for row in rows:
        try:
            done += work(row)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is raised below
            failed = failed or error
    if failed is not None:
        raise failed
    return done


class Turns:
    """Some of the waiting rows in each turn, oldest first, and the next turn goes on behind them:
    those that stay as they are keep none from its turn.

    How far it came is this process's own: one that starts anew begins with the oldest.
    """

    def __init__(self, at_a_time: int) -> None:
        self._at_a_time = at_a_time
        self._after = 0

    def next(self, rows: QuerySet[Found]) -> list[Found]:
        """As many of these rows as one turn has; behind the last one come the oldest again."""
        ordered, most = rows.order_by("pk"), self._at_a_time
        found = list(ordered.filter(pk__gt=self._after)[:most])
        if len(found) < most and self._after:
            found += ordered.filter(pk__lte=self._after)[: most - len(found)]
        self._after = found[-1].pk if found else 0
        return found


# Signs of life of the loops and processes, so that silence is seen as well as failure.

ERROR_CHARACTERS_MAX = 400

BEAT = """
    INSERT INTO workspaces_heartbeat AS known
        (name, beat_at, every_seconds, last_error, failing_since)
    VALUES (%(name)s, clock_timestamp(), %(every)s, %(error)s,
        CASE WHEN %(error)s::text <> '' THEN clock_timestamp() END)
    ON CONFLICT (name) DO UPDATE SET
        beat_at = excluded.beat_at,
        every_seconds = excluded.every_seconds,
        last_error = excluded.last_error,
        failing_since = CASE WHEN excluded.last_error <> ''
            THEN coalesce(known.failing_since, excluded.failing_since) END
"""
# All that went well in one process, in one statement; by name, so that two processes never wait for
# each other crosswise.
BEAT_TOGETHER = """
    INSERT INTO workspaces_heartbeat (name, beat_at, every_seconds, last_error, failing_since)
    SELECT name, clock_timestamp(), every, '', NULL
    FROM unnest(%s::text[], %s::float8[]) AS went (name, every) ORDER BY name
    ON CONFLICT (name) DO UPDATE SET beat_at = excluded.beat_at,
        every_seconds = excluded.every_seconds, last_error = '', failing_since = NULL
"""

SILENT = """
    SELECT name, beat_at FROM workspaces_heartbeat
    WHERE name = ANY(%s) AND clock_timestamp() - beat_at
        > greatest(every_seconds * %s, %s) * interval '1 second'
"""

OF = "@"
"""Stands in the name of one process among several, and in no job's."""
HOST_CHARACTERS_MAX = 32

# A loop may miss a few rounds, and a quick one half a minute, before anybody is alarmed.
ROUNDS_MISSED_MAX = 3
SILENCE_SECONDS_MIN = 30.0


def beat(name: str, *, every_seconds: float, error: str = "") -> None:
    """Say that `name` went round just now, well or with an error."""
    with connection.cursor() as cursor:
        said: dict[str, Any] = {
            "name": name,
            "every": every_seconds,
            "error": error[:ERROR_CHARACTERS_MAX],
        }
        cursor.execute(BEAT, said)


def beat_together(went: Mapping[str, float]) -> None:
    """Say that all of these went round well lately; each with how often it does, in seconds."""
    with connection.cursor() as cursor:
        cursor.execute(BEAT_TOGETHER, [list(went), list(map(float, went.values()))])


# What is done now and then, by nobody's loop, keeps its last good time in the same table. It is no
# process: only its age is told (recovery/prometheus.py, config/health.py).
BACKUP, RETENTION = "backup", "retention"
DONE = (BACKUP, RETENTION)
LATE_HOURS = 27
"""A backup is made each night, and one that takes long has three hours."""


def done(what: str) -> None:
    """Say that it was done just now, and all of it; silence becomes stopping after LATE_HOURS."""
    beat(what, every_seconds=LATE_HOURS * 3600.0 / ROUNDS_MISSED_MAX)


def own_name(process: str) -> str:
    """This very process among all of its kind: `worker@host/4711`."""
    return f"{process}{OF}{socket.gethostname()[:HOST_CHARACTERS_MAX]}/{os.getpid()}"


def ended(process: str) -> None:
    """This very process ends in order, so nobody is to miss it."""
    Heartbeat.objects.filter(pk=own_name(process)).delete()


def silent(names: Sequence[str]) -> dict[str, datetime]:
    """Which of these went round longer ago than their patience, by the database's clock, and when;
    one that never ran is not among them.
    """
    with connection.cursor() as cursor:
        cursor.execute(SILENT, [list(names), ROUNDS_MISSED_MAX, SILENCE_SECONDS_MIN])
        return dict(cursor.fetchall())


def patience(every_seconds: float) -> float:
    """Seconds of silence after which a loop of this pace counts as stopped."""
    return max(SILENCE_SECONDS_MIN, ROUNDS_MISSED_MAX * every_seconds)


def known() -> dict[str, Heartbeat]:
    return {beat.name: beat for beat in Heartbeat.objects.all()}
