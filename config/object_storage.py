"""Backups in S3, or whatever speaks its protocol: a folder here is objects below a prefix there.

A backup is written here first, whole, and carried over then: pg_dump is held up by no network, and
what is half there lacks `backup.json`, which is carried last. Region, endpoint and credentials are
those that boto3 finds for itself (`AWS_…`, a profile, the machine's role).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from config.backups import NOTE, CannotBackUp, CannotRestore, Progress

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
