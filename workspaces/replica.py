"""Reading from a standby, where a desk has one (`AMENDS_REPLICA_URL`): lists and insights, which
read much and change nothing.

A page says no less than the primary would: the standby is asked once it has everything that the
primary had when the page was asked for. Where that takes it longer than a moment, or it is away,
the primary answers, and the standby is left alone for a while.
"""

import logging
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http.response import HttpResponseBase
from psycopg.errors import QueryCanceled

REPLICA = "replica"
CATCH_UP_SECONDS_MAX = 0.1
LOOK_SECONDS = 0.005
LEFT_ALONE_SECONDS = 10.0
DATABASE_AWAY = (OperationalError, InterfaceError)
"""What is raised where the database is not there, or goes while it is asked."""

V = TypeVar("V", bound=Callable[..., HttpResponseBase])
logger = logging.getLogger(__name__)

_reading: ContextVar[str] = ContextVar("reading", default=DEFAULT_DB_ALIAS)


class Router:
    """What is read inside a view of `reads` comes from the standby; all else goes as without it."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        alias = _reading.get()
        return alias if alias == REPLICA else self.db_for_write(model, **hints)

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        """The primary also of a row that was read from the standby; else Django's own way."""
        instance = hints.get("instance")
        was_read = instance is not None and instance._state.db == REPLICA  # noqa: SLF001 - as Django says it
        return DEFAULT_DB_ALIAS if was_read else None

    def allow_relation(self, one: Any, other: Any, **hints: Any) -> bool | None:
        """The two are one database."""
        return True

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if db == REPLICA else None


def connection() -> BaseDatabaseWrapper:
    """The one by which statements of our own are to be read."""
    return connections[_reading.get()]


def reads(view: V) -> V:
    """The view, which changes nothing, from the standby if that has caught up.

    Where it cannot go on there (it fell over, or held up what the primary changes), the view is
    asked once more, of the primary.
    """

    @wraps(view)
    def reading(*args: Any, **kwargs: Any) -> HttpResponseBase:
        if not _has_caught_up():
            return view(*args, **kwargs)
        token = _reading.set(REPLICA)
        try:
            return view(*args, **kwargs)
        except DATABASE_AWAY as error:
            if isinstance(error.__cause__, QueryCanceled):  # too slow there is too slow here
                raise
            _leave_alone(str(error))
        finally:
            _reading.reset(token)
        return view(*args, **kwargs)

    return cast("V", reading)


HERE = "SELECT pg_current_wal_lsn()"
THERE = "SELECT pg_is_in_recovery() AND pg_last_wal_replay_lsn() >= %s::pg_lsn"


def _has_caught_up() -> bool:
    """Whether there is a standby that has all that the primary has now; it is given a moment."""
    if REPLICA not in connections.settings or time.monotonic() < _standby.left_alone_until:
        return False
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute(HERE)
        [position] = cursor.fetchone()
    try:
        with connections[REPLICA].cursor() as cursor:
            until = time.monotonic() + CATCH_UP_SECONDS_MAX
            while True:
                cursor.execute(THERE, [position])
                if cursor.fetchone()[0]:
                    return True
                if time.monotonic() > until:
                    break
                time.sleep(LOOK_SECONDS)
    except DATABASE_AWAY as error:
        connections[REPLICA].close()
        _leave_alone(str(error))
        return False
    _leave_alone("it lags")
    return False


@dataclass
class _Standby:
    """What this process knows of it, by the monotonic clock."""

    left_alone_until: float = 0.0


_standby = _Standby()


def _leave_alone(why: str) -> None:
    _standby.left_alone_until = time.monotonic() + LEFT_ALONE_SECONDS
    logger.warning("The standby is not read for %d s: %s", LEFT_ALONE_SECONDS, why.strip())
