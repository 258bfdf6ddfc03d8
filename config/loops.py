"""The loop of the scheduler and of the sweeper: every job in a thread of its own.

A thread each, because a slow job must not hold up the others; a job that raises is logged, shown
by /statusz, and done again in its turn.
"""

import logging
import signal
import threading
import time
from contextlib import suppress

from django.conf import settings
from django.db import connection, connections
from django.db.utils import Error as DatabaseError
from psycopg import OperationalError

from config import pooling
from workspaces import periodic

logger = logging.getLogger(__name__)

# A quick job says that it lives no more often than this.
BEAT_SECONDS_MIN = 5.0
# Between turns further apart than this, a job's connection is given back.
KEEP_CONNECTION_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 20.0


def run(process: str) -> None:
    """Do the jobs of this process until SIGTERM or SIGINT; a turn under way is finished."""
    with suppress(OperationalError):  # away: its jobs say so, and try again
        pooling.check(settings.DATABASE_URL)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    jobs = [*periodic.jobs(process), periodic.Job(process, BEAT_SECONDS_MIN, int, process)]
    threads = [threading.Thread(target=repeat, args=(job, stopping), name=job.name) for job in jobs]
    for thread in threads:
        thread.daemon = True  # one that hangs does not keep the process alive
        thread.start()
    logger.info("%s: %s", process, ", ".join(job.name for job in jobs))
    stopping.wait()
    deadline = time.monotonic() + STOP_SECONDS_MAX
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def repeat(job: periodic.Job, stopping: threading.Event) -> None:
    last_beat = 0.0
    while not stopping.is_set():
        error = turn(job)
        if error or time.monotonic() - last_beat >= BEAT_SECONDS_MIN:
            say(job, error)
            last_beat = time.monotonic()
        if job.seconds > KEEP_CONNECTION_SECONDS_MAX:
            connections.close_all()
        stopping.wait(job.seconds)
    connections.close_all()


def turn(job: periodic.Job) -> str:
    """One turn; the error in words, or nothing."""
    try:
        job.work()
    except Exception as error:
        logger.exception("%s failed; it is tried again in %s s", job.name, job.seconds)
        for one in connections.all(initialized_only=True):
            one.close_if_unusable_or_obsolete()
        return f"{type(error).__name__}: {error}"
    return ""


def say(job: periodic.Job, error: str) -> None:
    try:
        periodic.beat(job.name, every_seconds=max(job.seconds, BEAT_SECONDS_MIN), error=error)
    except DatabaseError:
        logger.warning("%s: no sign of life could be written", job.name)
        connection.close()
