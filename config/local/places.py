"""Where local things live: data below `.local/`, sockets where their path is short enough."""

import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# The kernel refuses a socket path of 108 bytes; the longest name we put behind this is 20.
SOCKET_FOLDER_BYTES_MAX = 80
# A comma, a space or a question mark means something else in one of the URLs it is named in.
PLAIN = re.compile(r"[A-Za-z0-9_./-]+")


def local_home() -> Path:
    """The folder of this checkout's servers, secrets and logs (`AMENDS_LOCAL` moves it)."""
    return Path(os.environ.get("AMENDS_LOCAL") or ROOT / ".local").absolute()


def private_folder(path: Path) -> Path:
    """Make a folder that only this user can enter, and refuse one that somebody else prepared."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{path} is not a folder of this user; remove it and start again")
    path.chmod(0o700)
    return path


def socket_folder(home: Path) -> Path:
    """Where the servers of this home put their sockets. Two homes never share one."""
    near = home / "run"
    if PLAIN.fullmatch(str(near)) and len(os.fsencode(near)) <= SOCKET_FOLDER_BYTES_MAX:
        return near
    name = hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"amends-{os.geteuid()}-{name}"
