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

import hashlib
import io
import os
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

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
SSH = b"-----BEGIN "
"""How the private half of a recipient `ssh-…` begins; one with a passphrase opens nothing here."""
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


def take(url: str, destination: Path, keys: Sequence[Any], progress: Progress) -> Path:
    """Write a backup into a new folder below `destination`, complete or not at all; that folder."""
    with psycopg.connect(sockets.postgres(url)) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        cursor = connection.execute("SELECT pg_export_snapshot(), clock_timestamp()")
        snapshot, taken_at = cursor.fetchall()[0]
        sizes: dict[str, int] = dict(connection.execute(TABLES).fetchall())
        contents = Contents(
            migrations=connection.execute("SELECT app, name FROM django_migrations").fetchall(),
            heads=[SavedHead(*row) for row in connection.execute(HEADS_OF).fetchall()],
        )
        folder = destination / f"amends-{taken_at:%Y%m%dT%H%M%SZ}"
        partial = folder.with_name(folder.name + PARTIAL)
        if folder.exists() or partial.exists():
            raise CannotBackUp(f"{folder} is there already, or being written.")
        try:
            partial.mkdir(mode=0o700, parents=True)
            dump = ["pg_dump", "--format=custom", f"--snapshot={snapshot}", "--no-owner",
                    "--no-privileges", "--verbose"]  # fmt: skip
            with running(dump, url, progress_of(sizes, progress), stdout=subprocess.PIPE) as child:
                files = {DATABASE: encrypted(pipe(child.stdout), partial / DATABASE, keys)}
            files[HEADS] = encrypted(
                io.BytesIO(msgspec.json.encode(contents)), partial / HEADS, keys
            )
            note = BackupManifest(FORM, taken_at, connection.info.server_version, files)
            durably(partial / NOTE, msgspec.json.format(msgspec.json.encode(note)))
            partial.rename(folder)
        except BaseException as error:
            shutil.rmtree(partial, ignore_errors=True)
            if isinstance(error, OSError):
                raise CannotBackUp(f"{destination}: {error}") from error
            raise
    progress("done", 1.0)
    return folder


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
    if child.returncode != 0:
        errors = [line for line in last if "error:" in line or "ERROR" in line] or list(last)
        raise ProgramFailed(f"{command[0]} failed: {' '.join(errors)}")


def pipe(end: IO[bytes] | None) -> IO[bytes]:
    """Of a program that was started with it."""
    return cast("IO[bytes]", end)


class Hashing:
    """A file that is written through, and what was written: its size and digest."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._digest, self.byte_count = file, hashlib.sha256(), 0

    def write(self, part: bytes) -> int:
        self._digest.update(part)
        self.byte_count += len(part)
        return self._file.write(part)

    def flush(self) -> None:
        self._file.flush()

    def as_file(self) -> File:
        return File(self.byte_count, self._digest.hexdigest())


def encrypted(clear: IO[bytes], path: Path, keys: Sequence[Any]) -> File:
    with path.open("xb") as file:
        through = Hashing(file)
        pyrage.encrypt_io(clear, through, keys)
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


# Backups in S3, or whatever speaks its protocol: a folder here is objects below a prefix there. A
# backup is written here first, whole, and carried over then: pg_dump is held up by no network, and
# what is half there lacks `backup.json`, which is carried last. Region, endpoint and credentials
# are those that boto3 finds for itself (`AWS_…`, a profile, the machine's role).

SCHEME = "s3://"
FILES_MAX = 20
"""A backup has three files; a prefix with more is none."""


class StorageLocation(NamedTuple):
    """`s3://BUCKET/PREFIX`; the prefix without slashes at its ends, and maybe empty."""

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.prefix}".rstrip("/")

    def below(self, name: str) -> "StorageLocation":
        return StorageLocation(self.bucket, f"{self.prefix}/{name}".lstrip("/"))


def place_of(text: str) -> StorageLocation | None:
    """Where an address leads to; None for a path of this machine."""
    if not text.startswith(SCHEME):
        return None
    bucket, _, prefix = text.removeprefix(SCHEME).partition("/")
    return StorageLocation(bucket, prefix.strip("/"))


def carry_over(folder: Path, to: StorageLocation, progress: Progress) -> StorageLocation:
    """The folder's files, as objects below its name there, `backup.json` last. Raises
    CannotBackUp."""
    there = to.below(folder.name)
    files = sorted(folder.iterdir(), key=lambda one: (one.name == NOTE, one.name))
    whole, done = sum(one.stat().st_size for one in files) or 1, 0
    with _storage(CannotBackUp) as s3:
        if _names(s3, there):
            raise CannotBackUp(f"{there} is there already.")
        for file in files:
            key = there.below(file.name).prefix
            progress(f"to {there}: {file.name}", done / whole)
            s3.upload_file(str(file), there.bucket, key, ExtraArgs={"ChecksumAlgorithm": "SHA256"})
            size = file.stat().st_size
            if s3.head_object(Bucket=there.bucket, Key=key)["ContentLength"] != size:
                raise CannotBackUp(f"{there.below(file.name)} is not as long as it is here.")
            done += size
    progress("done", 1.0)
    return there


def fetch(there: StorageLocation, folder: Path, progress: Progress) -> None:
    """A backup that was carried over, into an empty folder here. Raises CannotRestore."""
    with _storage(CannotRestore) as s3:
        names = _names(s3, there)
        if NOTE not in names:
            raise CannotRestore(f"{there} is no whole backup: there is no {NOTE}.")
        if len(names) > FILES_MAX:
            raise CannotRestore(f"{there} has more than a backup's files: name the backup itself.")
        for number, name in enumerate(names):
            progress(f"from {there}: {name}", number / len(names))
            s3.download_file(there.bucket, there.below(name).prefix, str(folder / name))


def _names(s3: Any, there: StorageLocation) -> list[str]:
    """The files there, FILES_MAX and one more at most; what lies in folders below is none of it."""
    prefix = f"{there.prefix}/" if there.prefix else ""
    asked = {"Bucket": there.bucket, "Prefix": prefix, "Delimiter": "/", "MaxKeys": FILES_MAX + 1}
    found = s3.list_objects_v2(**asked).get("Contents", [])
    return sorted(one["Key"].removeprefix(prefix) for one in found)


@contextmanager
def _storage(stopped: type[Exception]) -> Iterator[Any]:
    """A client; what it says goes wrong is raised as `stopped`, in its own words."""
    try:
        import boto3
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as missing:
        raise stopped("An address of S3 takes boto3: pip install 'amends-desk[s3]'.") from missing
    try:
        yield boto3.client("s3")
    except (Boto3Error, BotoCoreError, ClientError) as error:
        raise stopped(str(error)) from error
