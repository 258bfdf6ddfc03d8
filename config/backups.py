"""Backups of a desk: one consistent dump, encrypted to keys that the desk itself does not have.

A backup is a folder with three files:

* `backup.json`, in clear: when, by which version, and the size and SHA-256 of the two others;
* `database.age`: everything in PostgreSQL as of one snapshot, in pg_dump's custom format. Snapshots
  that agents sent as blobs are in the database, so there is nothing else to carry;
* `heads.age`: which migrations it has, and the newest signed head of each log in that snapshot.

Both are age files (https://age-encryption.org/v1) for the recipients of AMENDS_BACKUP_RECIPIENTS:
whoever takes over the desk can write backups and read none. What is not in them: the keys of
AMENDS_SECRET_KEYS and DJANGO_SECRET_KEY, without which credentials in the dump stay closed.
"""

import errno
import fcntl
import hashlib
import io
import os
import re
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TextIO, cast

import msgspec
import psycopg
import pyrage
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from rich import progress as bars
from rich.console import Console

from config.local.postgres import binaries_in, wheel
from config.pooling import HALF_RESTORED
from edge import sockets

FORM = 1
NOTE, DATABASE, HEADS = "backup.json", "database.age", "heads.age"
PARTIAL = ".partial"
MOMENT, MOMENT_GLOB = "%Y%m%dT%H%M%SZ", "[0-9]" * 8 + "T" + "[0-9]" * 6 + "Z"
"""In a folder's name; as a glob it fits no other workspace's export, whose short name may go on as
ours does."""
SSH = b"-----BEGIN "
"""How the private half of a recipient `ssh-…` begins; one with a passphrase opens nothing here."""
FSTAB, MOUNTED = Path("/etc/fstab"), Path("/proc/self/mountinfo")
"""What should be mounted, and what is: one folder bound to another has no device of its own."""
CHUNK_BYTES = 1024 * 1024
LINES_KEPT = 20
WAIT_SECONDS_MAX = 24 * 3600
"""For pg_dump and pg_restore; a day, so that a hung one ends."""

Progress = Callable[[str, float], None]
"""What is done now, and which part of all, 0 to 1."""

TABLES = """
SELECT c.relname, pg_total_relation_size(c.oid) FROM pg_class c
WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace"""
HEADS_OF = """
SELECT DISTINCT ON (h.workspace_id, h.origin) w.slug, h.origin, h.size, encode(h.root, 'base64')
FROM ledger_treehead h JOIN workspaces_workspace w ON w.id = h.workspace_id
ORDER BY h.workspace_id, h.origin, h.size DESC"""
# Before anything else is there, so that a desk which is half restored starts no process.
MARK = """
CREATE SCHEMA amends_restore;
CREATE TABLE amends_restore.pending (taken_at timestamptz NOT NULL)"""
PENDING = "SELECT max(taken_at) FROM amends_restore.pending"


class CannotBackUp(Exception):
    """We stopped, and the text says why; nothing usable was left at the destination."""


class ProgramFailed(Exception):
    """We stopped because pg_dump or pg_restore ended badly; the text is what it said."""


class CannotRestore(Exception):
    """We stopped, and the text says why and what is to be done."""


class File(msgspec.Struct):
    byte_count: int
    sha256: str


class BackupManifest(msgspec.Struct):
    """`backup.json`."""

    form: int
    taken_at: datetime
    postgresql: int
    files: dict[str, File]


class SavedHead(msgspec.Struct):
    workspace: str
    origin: str
    size: int
    root: str


class Contents(msgspec.Struct):
    """`heads.age`: what a restore compares with, and needs to know before it begins."""

    migrations: list[tuple[str, str]]
    heads: list[SavedHead]


def recipients(given: Sequence[str]) -> list[Any]:
    """Public keys, `age1…` or `ssh-ed25519 …`. Raises CannotBackUp for none, or a broken one."""
    found: list[Any] = []
    for text in given:
        kind: Any = pyrage.ssh if text.startswith("ssh-") else pyrage.x25519
        try:
            found.append(kind.Recipient.from_str(text))
        except pyrage.RecipientError as error:
            raise CannotBackUp(f"AMENDS_BACKUP_RECIPIENTS: {text[:16]}… is no key.") from error
    if not found:
        raise CannotBackUp(
            "AMENDS_BACKUP_RECIPIENTS is empty: name at least one age public key. Make one where"
            " backups will be read, with `manage.py backup_key FILE`, and keep that file away from"
            " this desk."
        )
    return found


def new_identity() -> tuple[str, str]:
    """A private key and its public half, as age writes them."""
    identity = pyrage.x25519.Identity.generate()
    return str(identity), str(identity.to_public())


def identities(path: Path) -> list[Any]:
    """The private keys in a file, one in a line as age-keygen writes them, or one of SSH."""
    try:
        content = path.read_bytes()
        if content.startswith(SSH):
            return [pyrage.ssh.Identity.from_buffer(content)]
        lines = content.decode().split("\n")
        found: list[Any] = [
            pyrage.x25519.Identity.from_str(line.strip())
            for line in lines
            if line.strip() and not line.startswith("#")
        ]
    except (OSError, UnicodeDecodeError, pyrage.IdentityError) as error:
        raise CannotRestore(
            f"{path} holds no age identity (AGE-SECRET-KEY-…) and no SSH key: {error}"
        ) from error
    if not found:
        raise CannotRestore(f"{path} holds no age identity.")
    return found


def unmounted(folder: Path) -> Path | None:
    """The place of the disk on which the folder should lie, by fstab(5), where nothing is mounted
    there: the folder may be there all the same, on the disk below.
    """
    ways = [Path(way(folder)) for way in (os.path.abspath, os.path.realpath)]
    above = {one for way in ways for one in (way, *way.parents)}
    try:
        # The root is always there, and is not told of in a root of a process's own (chroot).
        named = above & _mount_points(FSTAB, 1) - {Path("/")}
        mounted = _mount_points(MOUNTED, 4)
    except OSError:  # nobody says what should be there, or what is
        return None
    # What fstab names by a link is mounted where that leads.
    return max((one for one in named if Path(os.path.realpath(one)) not in mounted), default=None)


def _mount_points(table: Path, at: int) -> set[Path]:
    """Of each line the field of that number, in which blanks and the like stand in octal."""
    lines = table.read_text(errors="replace").splitlines()
    fields = [line.split() for line in lines if not line.lstrip().startswith("#")]
    named = [re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), one[at])
             for one in fields if len(one) > at]  # fmt: skip
    return {Path(one) for one in named if one.startswith("/")}


def take(url: str, destination: Path, keys: Sequence[Any], progress: Progress) -> Path:
    """Write a backup into a new folder below `destination`, complete or not at all; that folder."""
    if disk := unmounted(destination):
        raise CannotBackUp(f"{destination}: {disk}, which {FSTAB} names, is not mounted.")
    # Closed and not committed: what the server says at the end of a long dump spoils no whole one.
    with closing(psycopg.connect(sockets.postgres(url))) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        cursor = connection.execute("SELECT pg_export_snapshot(), clock_timestamp()")
        snapshot, local = cursor.fetchall()[0]
        taken_at = local.astimezone(UTC)
        sizes: dict[str, int] = dict(connection.execute(TABLES).fetchall())
        contents = Contents(
            migrations=connection.execute("SELECT app, name FROM django_migrations").fetchall(),
            heads=[SavedHead(*row) for row in connection.execute(HEADS_OF).fetchall()],
        )
        folder = destination / f"amends-{taken_at:{MOMENT}}"
        try:
            with new_folder(folder, f"amends-{MOMENT_GLOB}") as partial:
                dump = ["pg_dump", "--format=custom", f"--snapshot={snapshot}", "--no-owner",
                        "--no-privileges", "--verbose"]  # fmt: skip
                read = progress_of(sizes, progress)
                with running(dump, url, read, stdout=subprocess.PIPE) as child:
                    files = {DATABASE: encrypted(pipe(child.stdout), partial / DATABASE, keys)}
                files[HEADS] = encrypted(
                    io.BytesIO(msgspec.json.encode(contents)), partial / HEADS, keys
                )
                note = BackupManifest(FORM, taken_at, connection.info.server_version, files)
                durably(partial / NOTE, msgspec.json.format(msgspec.json.encode(note)))
        except OSError as error:
            raise CannotBackUp(f"{destination}: {error}") from error
    progress("done", 1.0)
    return folder


@contextmanager
def new_folder(folder: Path, alike: str) -> Iterator[Path]:
    """A folder to write into, which is called `folder` once that ended well and is gone otherwise.

    What was left behind by those who were killed (`alike`, a glob of names) goes first: who still
    writes beside us holds a lock on theirs. Raises OSError.
    """
    partial = folder.with_name(folder.name + PARTIAL)
    for left in folder.parent.glob(alike + PARTIAL):
        with suppress(OSError), opened(left) as handle:  # where nothing can be locked it stays
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left)
    if folder.exists():
        raise FileExistsError(f"{folder.name} is there already.")
    partial.mkdir(mode=0o700, parents=True)
    try:
        with opened(partial) as handle:
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            yield partial
            synced(partial)
            partial.rename(folder)
        synced(folder.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


@contextmanager
def new_file(path: Path, *, mode: int = 0o666) -> Iterator[TextIO]:
    """A file to write into, which is on the disk once that ended well and gone otherwise: a disk
    that is full says so only as it is written out. Raises OSError.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "w") as file:
            yield file
            file.flush()
            os.fsync(handle)
        synced(path.parent)
    except BaseException:
        path.unlink()
        raise


def synced(folder: Path) -> None:
    """The names in it, for good; where its file system knows that of files alone (SMB, FUSE), or it
    is a box that nobody looks into, as it is. Raises OSError where the disk fails.
    """
    try:
        with opened(folder) as handle:
            os.fsync(handle)
    except OSError as error:
        if error.errno == errno.EIO:
            raise


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield handle
    finally:
        os.close(handle)


def progress_of(sizes: dict[str, int], progress: Progress) -> Callable[[str], None]:
    """Reads what pg_dump says line by line; tables weigh as much as they are large."""
    whole, done = sum(sizes.values()) or 1, [0]

    def read(line: str) -> None:
        if 'dumping contents of table "' in line:
            name = line.rsplit(".", 1)[-1].strip().strip('"')
            progress(name, done[0] / whole)
            done[0] += sizes.get(name, 0)

    return read


def programs() -> Path:
    """Where pg_dump and pg_restore are: of the wheel's PostgreSQL, or AMENDS_POSTGRES_PROGRAMS."""
    if folder := settings.AMENDS_POSTGRES_PROGRAMS:
        return Path(folder)
    return binaries_in(wheel())


@contextmanager
def running(
    command: list[str], url: str, read: Callable[[str], None], **pipes: Any
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run one of PostgreSQL's programs against `url`; the password goes by the environment.

    Raises ProgramFailed with what it said at last, where it ends badly.
    """
    given = conninfo_to_dict(sockets.postgres(url))
    password = str(given.pop("password", "") or "")
    child = subprocess.Popen(
        [programs() / command[0], *command[1:], f"--dbname={make_conninfo('', **given)}"],
        env=os.environ | ({"PGPASSWORD": password} if password else {}),
        stderr=subprocess.PIPE, **pipes,
    )  # fmt: skip
    last: deque[str] = deque(maxlen=LINES_KEPT)

    def listen() -> None:
        for line in pipe(child.stderr):
            text = line.decode(errors="replace").rstrip()
            last.append(text)
            read(text)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield child
        child.wait(WAIT_SECONDS_MAX)
    except BrokenPipeError:
        child.wait(WAIT_SECONDS_MAX)  # it ended before it had read all, and said why
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        listener.join()
        for end in filter(None, (child.stdin, child.stdout, child.stderr)):
            with suppress(BrokenPipeError):
                end.close()
    if child.returncode != 0:
        errors = [line for line in last if "error:" in line or "ERROR" in line] or list(last)
        raise ProgramFailed(f"{command[0]} failed: {' '.join(errors)}")


def pipe(end: IO[bytes] | None) -> IO[bytes]:
    """Of a program that was started with it."""
    return cast("IO[bytes]", end)


class Hashing:
    """What is read from one file and what is written to another one: its size and digest; or why
    it could not be, of which pyrage keeps the words alone.
    """

    def __init__(self, clear: IO[bytes], file: IO[bytes]) -> None:
        self._clear, self._file = clear, file
        self._digest, self.byte_count = hashlib.sha256(), 0
        self.failure: BaseException | None = None

    def read(self, size: int = -1) -> bytes:
        with self._kept():
            return self._clear.read(size)

    def write(self, part: bytes) -> int:
        self._digest.update(part)
        self.byte_count += len(part)
        with self._kept():
            return self._file.write(part)

    def flush(self) -> None:
        self._file.flush()

    def as_file(self) -> File:
        return File(self.byte_count, self._digest.hexdigest())

    @contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.failure = error
            raise


def encrypted(clear: IO[bytes], path: Path, keys: Sequence[Any]) -> File:
    with path.open("xb") as file:
        through = Hashing(clear, file)
        try:
            pyrage.encrypt_io(through, through, keys)
        except pyrage.EncryptError as error:
            raise through.failure or error from error
        file.flush()
        os.fsync(file.fileno())
    return through.as_file()


def durably(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def look(source: Path, ids: Sequence[Any], progress: Progress) -> tuple[BackupManifest, Contents]:
    """What a backup is, after all of it was read. Raises CannotRestore for what is not whole."""
    try:
        note = msgspec.json.decode((source / NOTE).read_bytes(), type=BackupManifest)
    except (OSError, msgspec.DecodeError) as error:
        raise CannotRestore(f"{source} is no backup: {error}") from error
    if note.form != FORM:
        raise CannotRestore(f"{source} was written by a newer version (form {note.form}).")
    whole, done = sum(file.byte_count for file in note.files.values()) or 1, 0
    for name, expected in note.files.items():
        digest = hashlib.sha256()
        with told(source / name).open("rb") as file:
            while part := file.read(CHUNK_BYTES):
                digest.update(part)
                done += len(part)
                progress(f"reading {name}", done / whole)
        if digest.hexdigest() != expected.sha256:
            raise CannotRestore(f"{source / name} is not what was written: it is cut or changed.")
    clear = io.BytesIO()
    decrypt(source / HEADS, clear, ids)
    return note, msgspec.json.decode(clear.getvalue(), type=Contents)


def told(path: Path) -> Path:
    if not path.is_file():
        raise CannotRestore(f"{path} is missing.")
    return path


def decrypt(path: Path, to: Any, ids: Sequence[Any]) -> None:
    try:
        with path.open("rb") as file:
            pyrage.decrypt_io(file, to, ids)
    except pyrage.DecryptError as error:
        raise CannotRestore(f"{path} does not open with this identity: {error}") from error


def half_restored(url: str) -> datetime | None:
    """Of when the backup is whose restore was begun here and did not end; None where none was."""
    with psycopg.connect(sockets.postgres(url), autocommit=True) as connection:
        if not connection.execute(HALF_RESTORED).fetchall()[0][0]:
            return None
        found: datetime | None = connection.execute(PENDING).fetchall()[0][0]
        return found


def load(
    url: str, source: Path, taken_at: datetime, ids: Sequence[Any], progress: Progress
) -> None:
    """Put the dump into an empty database, whole or not at all, behind a mark that keeps every
    process of ours from starting until `restore` takes it away with its last transaction.
    """
    with psycopg.connect(sockets.postgres(url)) as connection:
        tables = connection.execute(TABLES).fetchall()
        if tables:
            raise CannotRestore(
                f"The database is not empty: it has {len(tables)} tables. Make a new one, and let"
                " DATABASE_URL and DATABASE_OWNER_URL name it."
            )
        if not connection.execute(HALF_RESTORED).fetchall()[0][0]:
            connection.execute(MARK)
        connection.execute("DELETE FROM amends_restore.pending")  # of one that put nothing in
        connection.execute("INSERT INTO amends_restore.pending VALUES (%s)", [taken_at])
    restore = ["pg_restore", "--single-transaction", "--exit-on-error", "--no-owner",
               "--no-privileges", "--no-comments", "--verbose"]  # fmt: skip

    def read(line: str) -> None:
        if "processing data for table" in line or "creating INDEX" in line:
            progress(line.rsplit(" ", 1)[-1].strip('"').replace("public.", ""), 0.5)

    with running(restore, url, read, stdin=subprocess.PIPE) as child:
        decrypt(source / DATABASE, pipe(child.stdin), ids)
        pipe(child.stdin).close()


@contextmanager
def bar(out: Any) -> Iterator[Callable[[str, float], None]]:
    """A function that takes what is done now, and which part of all of it is behind us, 0 to 1."""
    console = Console(file=out._out)  # noqa: SLF001 - Django's wrapper styles each write
    with bars.Progress(console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task("", total=1.0)

        def tell(what: str, part: float) -> None:
            shown.update(task, description=what[:40], completed=part)

        yield tell
