"""Whether a process may start on DATABASE_URL: what it leads to keeps the time limits that we count
on, and no restore was left half done there.

The desk gives each connection time limits when it is made (`options`), and prepares statements on
it. A pooler that hands a connection's transactions to any server process, or leaves the options
out, keeps neither: agents would get 500 and 503 now and then, and locks be waited for without end.
So no process starts behind one unnamed. Where AMENDS_POOLER names it we give no options and prepare
nothing, and the limits have to be those of the pooler's own sessions.
"""

from typing import Any

import psycopg
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from edge import sockets

# No process of ours asks for just this: who finds it again has what was asked for here.
PROBE_MILLISECONDS = 12_347
LOOKS = 3
WHO = "SELECT pg_backend_pid()"
# Of a pooler's sessions, which web, workers and jobs share; and what we advise.
LIMITS_MAX = {
    "lock_timeout": 10_000,
    "statement_timeout": 300_000,
    "idle_in_transaction_session_timeout": 120_000,
}
LIMITS = (
    "SET lock_timeout = 5000; SET statement_timeout = 30000;"
    " SET idle_in_transaction_session_timeout = 15000"
)
MILLISECONDS = "SELECT setting::int FROM pg_settings WHERE name = %s"
Session = psycopg.Connection[tuple[Any, ...]]

WHAT_TO_DO = (
    "The desk counts on sessions of its own, for time limits and prepared statements. Let"
    " DATABASE_URL name PostgreSQL itself, or set AMENDS_POOLER=1 and give the pooler's sessions"
    " their limits; DATABASE_OWNER_URL always names PostgreSQL itself. See docs/running.md,"
    " “Poolers”."
)
_found_whole: set[str] = set()


HALF_RESTORED = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'amends_restore')"
"""`manage.py restore` makes this mark first and takes it away last (config/backups.py)."""


class UnfitDatabase(Exception):
    """We stopped because no process of ours may work with this database; the text says why."""


class HalfRestored(UnfitDatabase):
    """We stopped because a restore was begun here and did not come to its end."""

    def __init__(self) -> None:
        super().__init__(
            "A restore was begun in the database of DATABASE_URL and did not end. Run `manage.py"
            " restore` again, with the same backup, or name an empty database."
        )


class Pooled(UnfitDatabase):
    """We stopped because something in front of the database takes sessions apart."""

    def __init__(self, why: str) -> None:
        super().__init__(f"The database's URL leads to a pooler {why}. {WHAT_TO_DO}")


class Unlimited(UnfitDatabase):
    """We stopped because somebody behind the pooler could wait, or hold others up, for ever."""

    def __init__(self, name: str, found: int, allowed: int) -> None:
        super().__init__(
            f"The sessions of the pooler have {name} = {found} ms; the desk starts with 1 to"
            f" {allowed}. In pgbouncer.ini its entry is to have connect_query='{LIMITS}'."
            " See docs/running.md, “Poolers”."
        )


def check(url: str) -> None:
    """Raise `UnfitDatabase`, or psycopg.OperationalError where nobody answers. Found well once, it
    is not looked at again in this process.
    """
    if url in _found_whole:
        return
    if settings.POOLER and url == settings.DATABASE_URL:
        check_pooler(url)
    else:
        check_server(url)
    _found_whole.add(url)


def check_pooler(url: str) -> None:
    """It is said to be one: its sessions have limits of their own, and the owner goes past it."""
    if url == settings.DATABASE_OWNER_URL:
        raise UnfitDatabase(
            "AMENDS_POOLER is set, and DATABASE_OWNER_URL is the pooler too. Migrations, partitions"
            " and backups need a session of their own: let it name PostgreSQL itself."
        )
    with psycopg.connect(sockets.postgres(url), autocommit=True, prepare_threshold=None) as one:
        for name, allowed in LIMITS_MAX.items():
            row = one.execute(MILLISECONDS, [name]).fetchone()
            if not row or not 0 < row[0] <= allowed:
                raise Unlimited(name, row[0] if row else 0, allowed)
        if one.execute(HALF_RESTORED).fetchone() == (True,):
            raise HalfRestored


def check_server(url: str) -> None:
    """It is PostgreSQL itself, or as good as that: a session is ours, with its options."""
    given = conninfo_to_dict(sockets.postgres(url))
    options = f"{given.get('options') or ''} -c lock_timeout={PROBE_MILLISECONDS}"
    conninfo = make_conninfo("", **given | {"options": options.strip()})
    try:
        with (
            psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as one,
            psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as other,
        ):
            check_encoding(one)
            check_options(one)
            check_sessions(one, other)
            if one.execute(HALF_RESTORED).fetchone() == (True,):
                raise HalfRestored
    except psycopg.OperationalError as error:
        if "startup parameter" in str(error):
            raise Pooled("that refuses the options of a connection") from error
        raise


def check_encoding(one: Session) -> None:
    """PostgreSQL's own choice where no locale was set is SQL_ASCII, and gives texts as bytes."""
    encoding = one.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise UnfitDatabase(
            f"The database {one.info.dbname} is encoded in {encoding}; the desk needs UTF8. Make it"
            " anew: createdb --encoding=UTF8 --template=template0 NAME."
        )


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
