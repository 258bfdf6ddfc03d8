"""The drill: agents act, the desk is backed up, goes on, is destroyed, and comes back from it.

What was done after the backup is not known to the desk that came back. It must not be done twice.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat, PublicFormat
from django.core.management import CommandError, call_command
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from amends.protocol.vocabulary import EventType
from config import backups
from config.local.places import ROOT
from config.local.postgres import OWNER
from config.management.commands import restore
from ledger import desk_events, merkle, sealer
from ledger.sealer import seal_all
from tests import people
from tests.approvals.door import Agent, planned
from tests.processes import Processes
from tests.servers import as_runtime
from workspaces import keys, periodic
from workspaces.models import Agent as AgentRow
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)
acme, leads, operators = people.acme, people.leads, people.operators
RESTORED = f"restored_{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
LOOK = "from recovery.triage import triage; triage.look()"
LIFT = """
from approvals.models import Pause; from approvals import pauses; from workspaces.models import User
from workspaces import teams; from tests import people
one = Pause.objects.get(lifted_at=None); print(one.reason)
boss = people.person("boss", people.team(one.workspace, "bosses", "view", "administer"))
pauses.lift(one, by=boss)
"""

Manage = Callable[..., str]


@pytest.fixture
def manage(tmp_path: Path) -> Manage:
    """Run a command of manage.py; what it prints. With `fails` what it says as it ends badly."""

    def run(*command: str, fails: bool = False, **environment: str) -> str:
        given = os.environ | {
            "AMENDS_HEADS_FOLDER": str(tmp_path / "heads"),
            "AMENDS_DEMO": "0",
        }
        given |= environment
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "manage.py", *command],
            cwd=ROOT, env=given, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr if fails else done.stdout

    return run


@pytest.fixture
def empty() -> Iterator[str]:
    """The URL of a database in which there is nothing, on the tests' server."""
    here = os.environ["DATABASE_OWNER_URL"]
    administration = make_conninfo(here, dbname="postgres")

    def drop() -> None:
        with psycopg.connect(administration, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {RESTORED} WITH (FORCE)")

    drop()
    with psycopg.connect(administration, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {RESTORED}")
    yield here.replace(f"/{conninfo_to_dict(here)['dbname']}?", f"/{RESTORED}?")
    drop()


@pytest.fixture
def backup_key(manage: Manage, tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """The private half, and the environment that has the public one."""
    file = tmp_path / "kept-elsewhere"
    name, _, public = manage("backup_key", str(file)).strip().partition("=")
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    return file, {name: public}


def rows(url: str, question: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute(question).fetchall()


def test_what_happened_after_the_backup_is_not_done_twice(
    manage: Manage, backup_key: tuple[Path, dict[str, str]], empty: str, processes: Processes,
    acme: Any, tmp_path: Path, settings: Any,
) -> None:  # fmt: skip
    settings.AMENDS_HEADS_FOLDER = str(tmp_path / "heads")
    secret, public = backup_key
    token = keys.create_key(
        AgentRow.objects.create(workspace=acme, name="desk-agent"), by=None, name="t"
    )[1]
    agent = Agent(token)
    agent.succeeded(agent.begin(key="before", attempt="a1"), attempt="a1", result={"id": 7})
    seal_all()

    folder = Path(manage("backup", str(tmp_path / "backups"), **public).split(" (")[0])

    assert periodic.BACKUP in periodic.known(), "so that a night without one is noticed"
    # The desk goes on: a call that the backup does not know, and entries that it lacks.
    assert agent.begin(key="after", action="act_2", attempt="a2").json()["answer"] == "proceed"
    made_later = Workspace.objects.create(slug="late", name="Late")
    desk_events.record(made_later, EventType.CASE_OPENED, data={"case": 1})
    seal_all()
    assert {file.name for file in folder.iterdir()} == {"backup.json", "database.age", "heads.age"}
    assert b"desk-agent" not in (folder / "database.age").read_bytes()

    here = {"DATABASE_URL": as_runtime(empty), "DATABASE_OWNER_URL": empty}
    report = manage("restore", str(folder), "--identity", str(secret), **here)
    assert "1 runs whose calls are in doubt" in report
    assert "signed entries" in report
    assert "are missing" in report
    assert "localhost/late: 1 signed entries of a log of which the backup knows nothing" in report
    assert "not empty" in manage(
        "restore", str(folder), "--identity", str(secret), fails=True, **here
    )

    url = processes.web(DATABASE_URL=empty).url

    def begin(key: str, action: str, attempt: str) -> dict[str, Any]:
        answer = httpx.post(
            f"{url}/api/v1/actions/begin",
            json=planned(key=key, action=action, attempt=attempt),
            headers={"authorization": f"Bearer {token}"},
            timeout=60,
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    assert begin("after", "act_2", "b1")["code"] == "paused"
    said = manage("shell", "-c", LIFT, **here)
    assert "restored from the backup of" in said
    assert "are missing" in said
    assert begin("before", "act_9", "b2")["answer"] == "replay"
    assert [begin("after", "act_2", f"b{n}")["answer"] for n in (3, 4)] == ["in_doubt"] * 2
    manage("shell", "-c", LOOK, **here)
    assert rows(empty, "SELECT state FROM ledger_action WHERE key = 'after'") == [("unknown",)]
    assert len(rows(empty, "SELECT FROM recovery_case")) == 1
    log = manage("check_log", fails=True, **here)
    assert log.count("BAD") == 1
    assert "acme went back, and a new one began" in log


def test_a_desk_whose_secret_keys_are_lost_comes_back_with_new_ones_where_that_is_said(
    manage: Manage, backup_key: tuple[Path, dict[str, str]], empty: str, acme: Any, tmp_path: Path
) -> None:
    secret, public = backup_key
    desk_events.record(acme, EventType.CASE_OPENED, data={"case": 1})
    seal_all()
    folder = Path(manage("backup", str(tmp_path), **public).split(" (")[0])
    here = {"DATABASE_URL": as_runtime(empty), "DATABASE_OWNER_URL": empty}
    assert "nothing is lost" in manage("replace_lost_keys", "--for-good")
    here["AMENDS_SECRET_KEYS"] = Fernet.generate_key().decode()
    command = ["restore", str(folder), "--identity", str(secret)]

    refused = manage(*command, fails=True, **here)

    assert "Put the key back that was in use then" in refused
    assert "Traceback" not in refused
    told = manage("replace_lost_keys", **here)
    assert told == "acme: masking key and key of the log: lost, and nothing is changed.\n"
    assert "made anew" in manage("replace_lost_keys", "--for-good", **here)
    assert "Restored" in manage(*command, **here)
    heads = "SELECT count(DISTINCT size), count(DISTINCT origin) FROM ledger_treehead"
    assert rows(empty, heads) == [(2, 1)], "the log goes on, signed by another key"
    assert "BAD" not in manage("check_log", **here)


def test_a_restore_that_broke_off_lets_no_process_start_until_it_is_finished(
    manage: Manage, backup_key: tuple[Path, dict[str, str]], empty: str, acme: Any, tmp_path: Path
) -> None:
    secret, public = backup_key
    folder = Path(manage("backup", str(tmp_path), **public).split(" (")[0])
    here = {"DATABASE_URL": as_runtime(empty), "DATABASE_OWNER_URL": empty}
    whole = (folder / "heads.age").read_bytes()
    with psycopg.connect(empty) as connection:
        connection.execute("CREATE SCHEMA amends_restore")
        connection.execute("CREATE TABLE amends_restore.pending (taken_at timestamptz)")

    assert "did not end" in manage("prepare", fails=True, **here)
    assert "did not end" in manage("sweeper", fails=True, **here)
    nobody = here | {"DATABASE_URL": empty.replace(f"://{OWNER}@", "://nobody@", 1)}
    assert manage("restore", str(folder), "--identity", str(secret), fails=True, **nobody)
    later = Path(manage("backup", str(tmp_path / "later"), **public).split(" (")[0])
    refused = manage("restore", str(later), "--identity", str(secret), fails=True, **here)
    assert "Run this with that backup" in refused, "what is in there is not of the later one"
    assert "Restored" in manage("restore", str(folder), "--identity", str(secret), **here)
    manage("prepare", **here)
    assert rows(empty, "SELECT slug FROM workspaces_workspace") == [("acme",)]
    assert len(rows(empty, "SELECT FROM approvals_pause WHERE lifted_at IS NULL")) == 1
    assert (folder / "heads.age").read_bytes() == whole


def test_a_backup_that_was_changed_or_is_anothers_is_refused_before_anything_is_written(
    manage: Manage, backup_key: tuple[Path, dict[str, str]], empty: str, tmp_path: Path
) -> None:
    secret, public = backup_key
    here = {"DATABASE_URL": as_runtime(empty), "DATABASE_OWNER_URL": empty}
    folder = Path(manage("backup", str(tmp_path), **public).split(" (")[0])
    other = tmp_path / "other"
    manage("backup_key", str(other))

    def refused(identity: Path) -> str:
        return manage("restore", str(folder), "--identity", str(identity), fails=True, **here)

    assert "does not open with this identity" in refused(other)
    file = folder / "database.age"
    file.write_bytes(file.read_bytes()[:-1])
    assert "cut or changed" in refused(secret)
    file.unlink()
    assert "is missing" in refused(secret)
    (folder / "backup.json").write_text(json.dumps({"form": 1}))
    assert "is no backup" in refused(secret)
    assert rows(empty, "SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace") == []


def test_without_its_heads_a_restore_does_not_say_that_nothing_is_missing(
    acme: Any, tmp_path: Path, settings: Any
) -> None:
    settings.AMENDS_HEADS_FOLDER = str(tmp_path / "kept")
    desk_events.record(acme, EventType.CASE_OPENED, data={"case": 1})
    seal_all()
    root = merkle.base64_text(sealer.remembered("localhost/acme").root)

    def told(size: int) -> str:
        head = backups.SavedHead("acme", "localhost/acme", size, root)
        return " ".join(restore.missing([head]).get("acme", []))

    assert told(1) == ""
    assert "is not known" in told(2), "what is kept is older than the backup"
    settings.AMENDS_HEADS_FOLDER = str(tmp_path / "lost")
    assert "is not known" in told(1)


def test_what_is_made_for_an_ssh_key_is_read_with_its_private_half(
    manage: Manage, tmp_path: Path
) -> None:
    secret, key = tmp_path / "id_ed25519", Ed25519PrivateKey.generate()
    secret.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, serialization.NoEncryption())
    )
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()

    told = manage("backup", str(tmp_path / "there"), AMENDS_BACKUP_RECIPIENTS=public)

    folder = Path(told.split(" (")[0])
    _, contents = backups.look(folder, backups.identities(secret), lambda *_: None)
    assert contents.migrations
    secret.write_bytes(secret.read_bytes()[:100])
    with pytest.raises(backups.CannotRestore, match="no SSH key"):
        backups.identities(secret)


def test_a_desk_without_a_key_or_a_place_for_backups_says_so(
    manage: Manage, backup_key: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    _, public = backup_key
    file = tmp_path / "file"
    file.touch()

    assert "AMENDS_BACKUP_RECIPIENTS is empty" in manage("backup", str(tmp_path), fails=True)
    broken = manage("backup", str(tmp_path), fails=True, AMENDS_BACKUP_RECIPIENTS="age1nothing")
    assert "is no key" in broken
    assert str(file) in manage("backup", str(file), fails=True, **public)
    assert list(tmp_path.glob("amends-*")) == []


def test_a_backup_whose_session_the_server_ended_is_whole_and_named_by_utc(
    backup_key: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """As one does that lets no transaction stand idle: ours holds the snapshot for pg_dump."""
    secret, public = backup_key
    url = os.environ["DATABASE_OWNER_URL"]
    ours = make_conninfo(url, options="-c timezone=Etc/GMT+11")
    end = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        f" WHERE datname = current_database() AND query = $${backups.HEADS_OF}$$"
    )
    ended: list[Any] = []

    def progress(*_: Any) -> None:
        ended.extend([] if ended else rows(url, end))

    folder = backups.take(ours, tmp_path, backups.recipients([*public.values()]), progress)

    assert ended == [(True,)]
    assert backups.look(folder, backups.identities(secret), lambda *_: None)
    named = datetime.strptime(folder.name, f"amends-{backups.MOMENT}").replace(tzinfo=UTC)
    assert abs(datetime.now(UTC) - named) < timedelta(hours=1)


def test_a_backup_for_which_there_is_no_room_says_so_and_leaves_nothing(
    backup_key: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    _, public = backup_key
    keys = backups.recipients([*public.values()])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(CommandError, match=r"File too large\. Nothing was written"):
            call_command("backup_key", tmp_path / "second.key")
        assert not (tmp_path / "second.key").exists()
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        with pytest.raises(backups.CannotBackUp, match="File too large"):
            backups.take(os.environ["DATABASE_URL"], tmp_path / "to", keys, lambda *_: None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "to").iterdir()) == []


def test_a_backup_that_is_told_to_end_leaves_nothing_and_the_next_clears_away_the_dead_alone(
    manage: Manage, backup_key: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    _, public = backup_key
    to, programs = tmp_path / "to", tmp_path / "programs"
    programs.mkdir()
    (programs / "pg_dump").write_text("#!/bin/sh\nexec sleep 100\n")
    (programs / "pg_dump").chmod(0o700)
    slow = public | {"AMENDS_POSTGRES_PROGRAMS": str(programs), "AMENDS_DEMO": "0"}
    (to / "amends-20200101T000000Z.partial").mkdir(parents=True)  # of one that was killed
    command = [sys.executable, "-W", "ignore", "manage.py", "backup", str(to)]
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | slow) as child:
        while not (made := [one for one in to.iterdir() if "2020" not in one.name]):
            assert child.poll() is None
            time.sleep(0.05)
        time.sleep(1.1)  # so that the other one has a name of its own

        whole = Path(manage("backup", str(to), **public).split(" (")[0])

        assert sorted(to.iterdir()) == sorted([*made, whole])
        child.terminate()
    assert child.returncode == 143
    assert list(to.iterdir()) == [whole]
