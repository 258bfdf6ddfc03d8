"""The Celery app. A message is a hint that carries an id: the table is the queue.

So nothing here tries to make messages safe. They are acknowledged late, may come twice, may be
lost, and have no results. What matters is that a publisher never waits long, and that a worker
comes back by itself.
"""

import gc
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery, signals
from celery.platforms import SecurityWarning
from kombu.entity import Exchange, Queue
from kombu.transport import redis as broker
from redis.backoff import NoBackoff
from redis.retry import Retry

from workspaces import wakeups
from workspaces.wakeups import ENGINE_QUEUE, connector_queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

# A publisher is a person's click: it gives up soon, a sweep finds what was not said.
PUBLISH_SECONDS_MAX = 0.2
# One more try to connect, without a pause before it; kombu's own would be two seconds.
AT_ONCE = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}
# A worker waits longer than the ten seconds for which it listens in one go.
LISTEN_SECONDS_MAX = 30
# Abandoned messages are looked for this often, or more often where they are given out again sooner.
RESTORE_SECONDS = 10
TASK_SECONDS_MAX = 300
TASK_SECONDS_HARD_MAX = 330
# Connections last for this many tasks, then are made new, in case a server changed behind a proxy.
TASKS_PER_CONNECTION_MAX = 1_000

# It warns of root because of pickle, which we do not accept.
warnings.filterwarnings("ignore", category=SecurityWarning)

logger = logging.getLogger(__name__)
BEAT_SECONDS = 10.0
# A task with thirty plans makes some ten thousand objects a turn; the default is to look at 700.
OBJECTS_BEFORE_SEARCHING = 20_000
last_beat = [float("-inf")]
ORPHAN_SECONDS_MAX = 15.0
starter = os.getppid()


class Channel(broker.Channel):
    """What is said to the broker of a connection that was let go fails like a connection.

    A worker whose broker goes away lets go of the connection first, and then gives back, or
    acknowledges, what it still has in hand. Kombu looks for the broker's address where it no longer
    is, and that error is none of a connection's, so the worker would end
    (docs/decisions/when-a-part-is-away.md).
    """

    @contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        if client is None and getattr(self.connection, "client", None) is None:
            raise ConnectionError("The connection to the broker is gone.")
        with super().conn_or_acquire(client) as found:
            yield found

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002
        """A worker that cannot connect says so, and tries again, in its own loop: redis-py would
        try for minutes within one call, and nobody would hear of it.
        """
        found: dict[str, Any] = super()._connparams(asynchronous)  # type: ignore[no-untyped-call]
        return found | {"retry": Retry(NoBackoff(), 0)}


broker.Transport.Channel = Channel

app = Celery("amends")


def queues() -> list[str]:
    """Every queue that a worker may serve."""
    from connectors import registry

    return [ENGINE_QUEUE, *map(connector_queue, registry.names())]


def queue(name: str) -> Queue:
    return Queue(name, Exchange(name), routing_key=name)  # type: ignore[no-untyped-call]


def broker_fault(seconds_max: float) -> str | None:
    """What a worker would meet at the broker, in one line, or nothing. Raises nothing."""
    limits = {"socket_timeout": seconds_max, "socket_connect_timeout": seconds_max}
    given = {"connect_timeout": seconds_max, "transport_options": limits}
    try:
        with app.connection_for_write(**given) as connection:
            connection.connect()
    except Exception as error:  # noqa: BLE001 - each transport has its own; an unknown one a KeyError
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return None


def configuration() -> dict[str, Any]:
    from django.conf import settings

    from edge import sockets

    listening = settings.PROCESS == "worker"
    timeout = LISTEN_SECONDS_MAX if listening else PUBLISH_SECONDS_MAX
    return {
        "broker_url": settings.BROKER_URL,
        "broker_connection_timeout": 4 if listening else PUBLISH_SECONDS_MAX,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        # A full broker refuses to note what a worker has taken. The worker connects anew until
        # there is room; without this it would end, and everybody's work with it.
        "broker_channel_error_retry": True,
        "broker_transport_options": {
            "visibility_timeout": settings.REDELIVER_SECONDS,
            "unacked_restore_interval": min(RESTORE_SECONDS, settings.REDELIVER_SECONDS),
            "unacked_restore_throttle": 1,
            "socket_timeout": timeout,
            # A host that vanished does not even refuse.
            "socket_connect_timeout": sockets.CONNECT_SECONDS_MAX if listening else timeout,
            "socket_keepalive": True,
            "socket_keepalive_options": sockets.keepalive_options(),
            "queue_order_strategy": "round_robin",
            **({} if listening else AT_ONCE),
        },
        "task_default_queue": ENGINE_QUEUE,
        # An exchange each: on one exchange with one key, every queue would get every message.
        "task_queues": [queue(name) for name in queues()],
        "task_create_missing_queues": True,
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "task_time_limit": TASK_SECONDS_HARD_MAX,
        "task_soft_time_limit": TASK_SECONDS_MAX,
        "task_serializer": "json",
        "accept_content": ["json"],
        "worker_prefetch_multiplier": 1,
        # A task under way may have a call on the wire: losing the broker is no reason to kill it.
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_hijack_root_logger": False,
        "worker_send_task_events": False,
        # Nobody tells a worker anything through the broker but what there is to do. It would also
        # keep two workers of one host name from one RabbitMQ.
        "worker_enable_remote_control": False,
        "result_backend": None,
        "CELERY_DB_REUSE_MAX": TASKS_PER_CONNECTION_MAX,
        "timezone": "UTC",
    }


app.add_defaults(configuration)
app.autodiscover_tasks()


@signals.setup_logging.connect
def keep_our_logging(**_: object) -> None:
    """Celery would replace what settings.LOGGING says."""


@signals.worker_init.connect
def refuse_a_pooler(**_: object) -> None:
    """A signal's errors are only logged: this one ends the worker, in words."""
    from django.conf import settings
    from psycopg import OperationalError

    from config import pooling

    try:
        pooling.check(settings.DATABASE_URL)
    except OperationalError:
        logger.warning("The database is away.")
    except pooling.UnfitDatabase as unfit:
        raise SystemExit(str(unfit)) from unfit


@signals.worker_before_create_process.connect
def share_what_was_imported(**_: object) -> None:
    """Whoever searches for garbage writes to each object, and so to a page of its own of what all
    of the pool share: 60 MiB for each of them, which nobody searches any more.
    """
    gc.freeze()


@signals.worker_process_init.connect
def search_for_garbage_seldom(**_: object) -> None:
    """What was imported stays, and the objects of a task die by themselves: as in `config`."""
    gc.freeze()
    gc.set_threshold(OBJECTS_BEFORE_SEARCHING, 20, 20)


@signals.task_prerun.connect
def look_at_connections(**_: object) -> None:
    """Celery keeps a connection for many tasks and never asks whether it still works.

    Without this, a worker that met one restart of the database would fail each task from then on.
    """
    from django.db import close_old_connections

    close_old_connections()


@signals.worker_shutting_down.connect
def hand_back(**_: object) -> None:
    """What was not sent is given back at once: the pool looks (`recovery.engine.plan_runner`)."""
    wakeups.begin_draining()


@signals.worker_shutting_down.connect
def end_as_an_orphan(**_: object) -> None:
    """A stop waits for tasks, and for the broker; whose desk was killed, waits for it in vain.

    So with its starter gone the worker takes its pool along after a while. What was under way is
    found again by its lease, as after any kill.
    """
    if os.getppid() == starter or os.getpgrp() != os.getpid():
        return
    end = threading.Timer(ORPHAN_SECONDS_MAX, os.killpg, [os.getpid(), signal.SIGKILL])
    end.daemon = True
    end.start()


@signals.heartbeat_sent.connect
def say_that_the_worker_lives(**_: object) -> None:
    """Sent by the loop that listens to the broker; on its own connection, for the pool forks."""
    import psycopg
    from django.conf import settings

    from edge import sockets
    from workspaces import periodic

    if time.monotonic() - last_beat[0] < BEAT_SECONDS:
        return
    last_beat[0] = time.monotonic()
    names = ("worker", periodic.own_name("worker"))
    try:
        with psycopg.connect(
            sockets.postgres(settings.DATABASE_URL), connect_timeout=2, autocommit=True
        ) as connection:
            for name in names:
                said = {"name": name, "every": BEAT_SECONDS, "error": ""}
                connection.execute(periodic.BEAT, said)
    except psycopg.Error:
        logger.warning("The worker could not write a sign of life.")


@signals.worker_shutdown.connect
def say_that_the_worker_ended(**_: object) -> None:
    from django.db import DatabaseError

    from workspaces import periodic

    try:
        periodic.ended("worker")
    except DatabaseError:
        logger.warning("The worker could not say that it ended.")
