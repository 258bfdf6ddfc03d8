"""Whether a process may start on DATABASE_URL: it leads to PostgreSQL itself, not to a pooler that
takes a session apart, and no restore was left half done there.

The desk gives each connection time limits when it is made (`options`), and prepares statements on
it. A pooler that hands a connection's transactions to any server process, or leaves the options
out, keeps neither: agents would get 500 and 503 now and then, and locks be waited for without end.
So no process starts behind one. None is needed either: each web process has pools of its own.
"""

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from edge import sockets

# No process of ours asks for just this: who finds it again has what was asked for here.
PROBE_MILLISECONDS = 12_347
LOOKS = 3
WHO = "SELECT pg_backend_pid()"
Session = psycopg.Connection[tuple[Any, ...]]

WHAT_TO_DO = (
    "The desk needs sessions of its own, for time limits and prepared statements. Let DATABASE_URL"
    " and DATABASE_OWNER_URL name PostgreSQL itself: each web process pools its own connections"
    " (AMENDS_POOL_SIZE, AMENDS_HOT_POOL_SIZE). See docs/running.md, “Poolers”."
)
_found_whole: set[str] = set()


HALF_RESTORED = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'amends_restore')"
"""`manage.py restore` makes this mark first and takes it away last (config/backups.py)."""


class Unfit(Exception):
    """We stopped because no process of ours may work with this database; the text says why."""


class HalfRestored(Unfit):
    """We stopped because a restore was begun here and did not come to its end."""

    def __init__(self) -> None:
        super().__init__(
            "A restore was begun in the database of DATABASE_URL and did not end. Run `manage.py"
            " restore` again, with the same backup, or name an empty database."
        )


class Pooled(Unfit):
    """We stopped because something in front of the database takes sessions apart."""

    def __init__(self, why: str) -> None:
        super().__init__(f"DATABASE_URL leads to a pooler {why}. {WHAT_TO_DO}")


def check(url: str) -> None:
    """Raise `Unfit`, or psycopg.OperationalError where nobody answers. Found well once, it is not
    looked at again in this process.
    """
    if url in _found_whole:
        return
    given = conninfo_to_dict(sockets.postgres(url))
    options = f"{given.get('options') or ''} -c lock_timeout={PROBE_MILLISECONDS}"
    conninfo = make_conninfo("", **given | {"options": options.strip()})
    try:
        with (
            psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as one,
            psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as other,
        ):
            check_options(one)
            check_sessions(one, other)
            if one.execute(HALF_RESTORED).fetchone() == (True,):
                raise HalfRestored
    except psycopg.OperationalError as error:
        if "startup parameter" in str(error):
            raise Pooled("that refuses the options of a connection") from error
        raise
    _found_whole.add(url)


def check_options(one: Session) -> None:
    row = one.execute("SHOW lock_timeout").fetchone()
    if row != (f"{PROBE_MILLISECONDS}ms",):
        raise Pooled("that leaves out the options of a connection")


def check_sessions(one: Session, other: Session) -> None:
    """Whether two connections have a server process each, and the same one from call to call."""
    for _ in range(LOOKS):
        first = one.execute(WHO).fetchone()
        with other.transaction():
            second = other.execute(WHO).fetchone()
            again = one.execute(WHO).fetchone()
        if first == second or first != again:
            raise Pooled("that lends each transaction any server process (transaction mode)")
