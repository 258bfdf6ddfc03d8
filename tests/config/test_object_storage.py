"""A backup in S3, or whatever speaks its protocol: carried over whole, and restored from there.

The storage is moto's server, in an environment of its own, from which the desk has boto3 alone.
"""

import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import people
from tests.adapters.conftest import environment_of
from tests.config import test_backup
from tests.config.test_backup import Manage, rows
from tests.ports import free_port
from tests.servers import as_runtime

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.earnest]
acme, leads, operators = people.acme, people.leads, people.operators
manage, empty, backup_key = test_backup.manage, test_backup.empty, test_backup.backup_key
BOTO3 = ("boto3", "botocore", "dateutil", "jmespath", "s3transfer", "six.py", "urllib3")
START_SECONDS_MAX = 60

Storage = dict[str, str]


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    """What boto3 reads of the environment, with the bucket `away` at the other end."""
    python = environment_of("s3", Path(__file__).parent / "environments")
    beside = tmp_path / "beside"
    beside.mkdir()
    [packages] = python.parent.parent.glob("lib/python*/site-packages")
    for name in BOTO3:
        (beside / name).symlink_to(packages / name)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with (tmp_path / "moto.log").open("wb") as log:
        server = subprocess.Popen(
            [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not _made(f"{url}/away"):
            assert time.monotonic() < deadline, (tmp_path / "moto.log").read_text()
            time.sleep(0.1)
        yield {
            "PYTHONPATH": str(beside), "AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
        }  # fmt: skip
    finally:
        server.kill()
        server.wait()


def _made(url: str) -> bool:
    anybody = {"x-amz-acl": "public-read-write"}
    made = urllib.request.Request(url, method="PUT", headers=anybody)
    try:
        return bool(urllib.request.urlopen(made).status)
    except OSError:
        return False


def _put(storage: Storage, key: str, content: bytes, method: str = "PUT") -> None:
    """By whoever else writes there."""
    url = f"{storage['AWS_ENDPOINT_URL']}/away/{key}"
    asked = urllib.request.Request(url, data=content or None, method=method)
    urllib.request.urlopen(asked).close()


def test_a_desk_comes_back_from_a_backup_that_was_carried_away(
    manage: Manage, backup_key: tuple[Path, dict[str, str]], empty: str, acme: Any,
    storage: Storage, tmp_path: Path, drilled: Callable[..., None],
) -> None:  # fmt: skip
    secret, public = backup_key
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with_s3 = storage | {"TMPDIR": str(temporary)}

    said = manage("backup", "s3://away/desks/north", **public, **with_s3)

    there = said.split(" (")[0]
    assert there.startswith("s3://away/desks/north/amends-")
    here = {"DATABASE_URL": as_runtime(empty), "DATABASE_OWNER_URL": empty} | with_s3
    assert "Restored" in manage("restore", there, "--identity", str(secret), **here)
    assert rows(empty, "SELECT slug FROM workspaces_workspace") == [("acme",)]
    assert list(temporary.iterdir()) == [], "nothing of it stays on the desk's own disk"
    drilled("backup to S3, and a desk from it", size=said.split(" (")[1].rstrip(")\n"))


def test_half_a_backup_and_a_place_that_is_none_are_refused_in_words(
    manage: Manage, backup_key: tuple[Path, dict[str, str]], empty: str, storage: Storage,
    drilled: Callable[..., None],
) -> None:  # fmt: skip
    secret, public = backup_key
    here = {"DATABASE_URL": as_runtime(empty), "DATABASE_OWNER_URL": empty}
    there = manage("backup", "s3://away", **public, **storage).split(" (")[0]

    def refused(source: str) -> str:
        asked = ("restore", source, "--identity", str(secret))
        return manage(*asked, fails=True, **here, **storage)

    key = there.removeprefix("s3://away/")
    _put(storage, f"{key}/database.age", b"of somebody else")
    assert "cut or changed" in refused(there)
    _put(storage, f"{key}/backup.json", b"", method="DELETE")
    assert "is no whole backup: there is no backup.json" in refused(there)
    assert "NoSuchBucket" in refused("s3://nowhere/desk")
    assert "NoSuchBucket" in manage("backup", "s3://nowhere", fails=True, **public, **storage)
    assert rows(empty, "SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace") == []
    without = dict.fromkeys(storage, "")
    assert os.environ.get("PYTHONPATH") is None
    assert "pip install 'amends-desk[s3]'" in manage(
        "backup", "s3://away", fails=True, **public, **without
    )
    drilled("a backup in S3 that was cut, changed or is none", refused=5)
