"""Wake-ups: a hint to a worker that a row waits for it, sent after the commit that made the row.

A hint may be lost, for the sweeper finds the row: so sending one never fails the act that caused it
and never keeps a person waiting for a broker that is away. And whether a worker was told to end.
"""

import logging
import mmap
import threading
import time
from typing import Any

from celery import Task
from django.db import transaction
from kombu.exceptions import OperationalError
from redis import TimeoutError as BrokerIsSilent

logger = logging.getLogger(__name__)

# Queues: the engine's own, and one for each class of connectors, so that a slow system holds up
# nobody else.

ENGINE_QUEUE = "engine"
"""Where plans start and end, and where nothing is called."""

_OF_CONNECTOR = "connector."


def connector_queue(name: str) -> str:
    """The queue in which calls to this class of connectors are made."""
    return f"{_OF_CONNECTOR}{name}"


def connector_of_queue(queue: str) -> str:
    """The class of connectors whose queue it is."""
    return queue.removeprefix(_OF_CONNECTOR)


# After a failure nobody tries again for a moment: a hundred decisions must not each wait for a dead
# broker.
PAUSE_SECONDS = 2.0


class Broker:
    """Whether the broker answered when somebody last tried, in this process."""

    def __init__(self) -> None:
        self._away_until = 0.0
        self._lock = threading.Lock()

    def is_away(self) -> bool:
        return time.monotonic() < self._away_until

    def forget(self) -> None:
        """Try again at once, whatever happened before."""
        self._away_until = 0.0

    def did_not_answer(self) -> None:
        with self._lock:
            self._away_until = time.monotonic() + PAUSE_SECONDS


broker = Broker()


def wake_on_commit(task: "Task[..., Any]", *args: Any) -> None:
    """After the commit of the present transaction, hint to a worker. Never raises, never waits
    long.

    `args` are ids, nothing else: a task decides by what it reads.
    """
    transaction.on_commit(lambda: wake(task, *args), robust=True)


def wake(task: "Task[..., Any]", *args: Any, queue: str | None = None) -> bool:
    """Hint now; True if the broker took it. For places that have no transaction of Django's.

    `queue` is the engine's unless the work is for one class of connectors (`connector_queue`).
    """
    if broker.is_away():
        return False
    try:
        publish(task, args, queue)
    except Exception:
        broker.did_not_answer()
        logger.warning(
            "%s%r was not sent: the sweeper will find it", task.name, args, exc_info=True
        )
        return False
    return True


def publish(task: "Task[..., Any]", ids: tuple[Any, ...], queue: str | None) -> None:
    try:
        task.apply_async(ids, queue=queue, retry=False)
    except OperationalError as error:
        if isinstance(error.__cause__, BrokerIsSilent):
            raise  # it is there and silent: asking again would double the wait
        # A connection from before a restart of the broker fails on its first use, and only then.
        task.apply_async(ids, queue=queue, retry=False)


# Whether this process was told to end: what has not begun is left to others, at once. A worker's
# pool is told by its main process, which alone hears SIGTERM, through memory that they share since
# the fork. It only ever shortens a wait: who does not look ends later, and by a lease.

_TOLD = mmap.mmap(-1, 1)
"""One byte, shared with every process that is forked from this one."""


def begin_draining() -> None:
    """From now on nobody in this process, or forked from it, takes up anything new."""
    _TOLD[0] = 1


def is_draining() -> bool:
    """Whether `begin_draining` was called here, or where we were forked from."""
    return _TOLD[0] == 1
