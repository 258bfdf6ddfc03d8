"""A deployment's first steps: `manage.py prepare` on servers of one's own, then `check --deploy`.

The check goes to what the environment names, and each mistake names its variable.
"""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from cryptography.fernet import Fernet
from django.test import override_settings
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from config import backups, checks
from config.local.places import ROOT
from config.local.postgres import RUNTIME, Postgres
from config.management.commands.prepare import digest_of_sources
from tests import people
from tests.ports import free_port
from tests.proxy import Proxy
from tests.servers import as_runtime
from workspaces.models import Secret, Workspace

pytestmark = pytest.mark.django_db(transaction=True)
acme = people.acme

Check = Callable[..., tuple[int, str]]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """The exit code, and what was said, of this environment with a few variables changed."""

    def run(**changed: str) -> tuple[int, str]:
        given = os.environ | {"AMENDS_LOCAL": str(tmp_path), "AMENDS_DEMO": "0"} | changed
        command = [sys.executable, "-W", "ignore", "manage.py", "check", "--deploy"]
        done = subprocess.run(
            command, cwd=ROOT, env=given, capture_output=True, text=True, check=False, timeout=120
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.fixture
def mail_server() -> Iterator[int]:
    """One that wants the password `right`; its port."""

    def knows(
        server: object, session: object, envelope: object, mechanism: str, data: LoginPassword
    ) -> AuthResult:
        return AuthResult(success=data.password == b"right", handled=False)

    port = free_port()
    controller = Controller(
        object(), hostname="127.0.0.1", port=port, authenticator=knows,
        auth_require_tls=False,
    )  # fmt: skip
    controller.start()
    yield port
    controller.stop()


def test_where_all_is_well_nothing_of_it_is_an_error(
    check: Check, acme: Workspace, mail_server: int, tmp_path: Path
) -> None:
    Secret.objects.seal(acme, "stripe", {"key": "sk_test"})

    code, said = check(
        EMAIL_HOST="127.0.0.1",
        EMAIL_PORT=str(mail_server),
        EMAIL_HOST_USER="desk",
        EMAIL_HOST_PASSWORD="right",
        AMENDS_FROM="Amends <desk@example.com>",
        AMENDS_URL="https://desk.example.com",
        AMENDS_TRUST_PROXY="1",
        AMENDS_HEADS_FOLDER=str(tmp_path / "heads"),
        AMENDS_BACKUP_RECIPIENTS=backups.new_identity()[1],
    )

    assert "config." not in said
    assert code == 0, said


def test_every_server_that_is_away_is_told_at_once_with_its_variable(
    check: Check, tmp_path: Path
) -> None:
    closed = free_port()
    file = tmp_path / "file"
    file.touch()

    code, said = check(
        DATABASE_URL=f"postgresql://amends:secret-word@127.0.0.1:{closed}/amends",
        DATABASE_OWNER_URL=f"postgresql://owner@127.0.0.1:{closed}/amends",
        REDIS_URL=f"redis://127.0.0.1:{closed}/0",
        BROKER_URL=f"amqp://guest@127.0.0.1:{closed}//",
        EMAIL_HOST="127.0.0.1",
        EMAIL_PORT=str(closed),
        AMENDS_HEADS_FOLDER=str(file),
        AMENDS_STATIC_ROOT=str(tmp_path / "nowhere"),
        AMENDS_HASHED_STATIC="1",
    )

    assert code == 1
    for name in (
        "DATABASE_URL:", "DATABASE_OWNER_URL:", "REDIS_URL:", "BROKER_URL:", "EMAIL_PORT",
        "AMENDS_HEADS_FOLDER:", "AMENDS_STATIC_ROOT:", "AMENDS_FROM:", "AMENDS_URL is http://",
    ):  # fmt: skip
        assert name in said, name
    assert "Traceback" not in said
    assert "secret-word" not in said


def test_a_role_without_a_right_that_the_desk_needs_is_told_with_the_table(check: Check) -> None:
    as_desk = as_runtime(os.environ["DATABASE_URL"])
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as owner:
        owner.execute(f"REVOKE INSERT ON approvals_decision FROM {RUNTIME}")
        try:
            code, said = check(DATABASE_URL=as_desk)
        finally:
            owner.execute(f"GRANT INSERT ON approvals_decision TO {RUNTIME}")

    assert code == 1
    assert "The role of DATABASE_URL lacks rights on approvals_decision." in said
    assert "lacks rights" not in check(DATABASE_URL=as_desk)[1]


def test_an_owner_of_other_tables_is_told_with_its_variable(check: Check) -> None:
    """Backups would be those of another desk, or of nothing; next week's partition nobody's."""
    url = os.environ["DATABASE_URL"]
    there = make_conninfo(url, dbname="postgres")

    code, said = check(DATABASE_URL=as_runtime(url), DATABASE_OWNER_URL=there)
    assert (code, "DATABASE_OWNER_URL leads to another database" in said) == (1, True), said
    code, said = check(DATABASE_OWNER_URL=as_runtime(url))
    assert (code, "DATABASE_OWNER_URL does not own the tables" in said) == (1, True), said


def test_clocks_that_went_apart_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 30)

    told = list(checks.database_faults("DATABASE_URL", os.environ["DATABASE_URL"]))

    assert [one.id for one in told] == ["config.E004"]
    assert "DATABASE_URL are 30 s apart" in told[0].msg


def test_a_cache_that_takes_nothing_is_told_with_its_variable(check: Check) -> None:
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as cache:
        cache.config_set("maxmemory", "1")
        try:
            code, said = check()
        finally:
            cache.config_set("maxmemory", "256mb")

    assert code == 1
    assert "REDIS_URL: " in said


def test_a_key_for_backups_that_is_none_is_told(check: Check) -> None:
    assert "AMENDS_BACKUP_RECIPIENTS is not set" in check()[1]

    code, said = check(AMENDS_BACKUP_RECIPIENTS="age1half")
    assert code == 1
    assert "AMENDS_BACKUP_RECIPIENTS: age1half… is no key." in said


def test_a_folder_whose_disk_is_not_mounted_is_told_and_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made on the disk below, which backups then fill."""
    disk, table, mounted = tmp_path / "back ups", tmp_path / "fstab", tmp_path / "mountinfo"
    written = str(disk).replace(" ", r"\040")
    table.write_text(
        f"# disks\nUUID=1 / ext4\nUUID=2 {written} ext4 noauto 0 2\nUUID=3 none swap\n"
    )
    root = "28 1 254:0 / / rw - ext4 /dev/vda rw\n"
    mounted.write_text(root)
    monkeypatch.setattr(backups, "FSTAB", table)
    monkeypatch.setattr(backups, "MOUNTED", mounted)
    monkeypatch.setenv("AMENDS_BACKUP_TO", str(disk / "amends"))
    (tmp_path / "link").symlink_to(disk)

    def told() -> list[str]:
        return [one.id or "" for one in checks.folders_are_there() if "BACKUP" in one.msg]

    assert told() == ["config.E054"]
    assert not disk.exists()
    monkeypatch.setenv("AMENDS_BACKUP_TO", str(tmp_path / "link" / "amends"))
    assert told() == ["config.E054"]
    with pytest.raises(backups.CannotBackUp, match=r"is not mounted"):
        backups.take(os.environ["DATABASE_URL"], disk / "amends", [], lambda *_: None)

    disk.mkdir()
    mounted.write_text(f"{root}29 28 254:0 /b {written} rw - ext4 /dev/vda rw\n")
    assert told() == []
    (tmp_path / "data").symlink_to(disk)
    table.write_text(f"UUID=1 / ext4\nUUID=2 {tmp_path}/data ext4\n")
    monkeypatch.setenv("AMENDS_BACKUP_TO", str(tmp_path / "data" / "amends"))
    assert told() == [], "what fstab names by a link is mounted where that leads"
    mounted.write_text("")
    monkeypatch.setenv("AMENDS_BACKUP_TO", str(tmp_path / "other"))
    assert told() == [], "in a root of its own a process is not told of /"
    monkeypatch.setenv("AMENDS_BACKUP_TO", str(tmp_path / "data" / ".." / "other"))
    assert told() == []
    (tmp_path / "turn").symlink_to(tmp_path / "turn")
    monkeypatch.setenv("AMENDS_BACKUP_TO", str(tmp_path / "turn" / "amends"))
    assert told() == ["config.E051"]
    monkeypatch.setenv("AMENDS_BACKUP_TO", str(disk / "amends"))
    monkeypatch.setattr(backups, "FSTAB", tmp_path / "none")
    mounted.write_text(root)
    assert told() == []


def test_places_and_names_that_are_none_are_told_with_their_variable(
    check: Check, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    (tmp_path / "crm.yaml").write_text("name: crm\nversion: 1\n")

    code, said = check(
        AMENDS_CONNECTOR_MANIFESTS=f"{tmp_path}/gone, {tmp_path}",
        REDIS_URL="http://127.0.0.1/0",
        AMENDS_BACKUP_RECIPIENTS=backups.new_identity()[1],
        AMENDS_BACKUP_TO=str(file),
        AMENDS_POSTGRES_PROGRAMS=str(tmp_path),
        AMENDS_HOSTS="desk.example.com,*,.example.com,https://other.example.com",
        AMENDS_SIGNING_KEYS="4:9f86d081884c7d659a2feaa0c55ad015,zz",
    )

    assert code == 1
    assert "Traceback" not in said
    assert "AMENDS_HOSTS: https://other.example.com is no name" in said
    assert "AMENDS_SIGNING_KEYS: zz names no key" in said
    assert f"AMENDS_CONNECTOR_MANIFESTS: {tmp_path}/gone is no folder" in said
    assert "crm.yaml: Expected `str`, got `int` - at `$.version`" in said
    for name in ("REDIS_URL:", "AMENDS_BACKUP_TO:", "AMENDS_POSTGRES_PROGRAMS:"):
        assert name in said, name


def test_keys_that_do_not_open_what_is_kept_are_counted(check: Check, acme: Workspace) -> None:
    Secret.objects.seal(acme, "stripe", {"key": "sk_test"})
    other = Fernet.generate_key().decode()

    code, said = check(AMENDS_SECRET_KEYS=other)
    assert code == 1
    assert "AMENDS_SECRET_KEYS opens 0 of 1 credentials of connections" in said
    assert "0 of 1 masking keys of workspaces" in said

    _, said = check(AMENDS_SECRET_KEYS=f"{other},{os.environ['AMENDS_SECRET_KEYS']}")
    assert "AMENDS_SECRET_KEYS" not in said

    code, said = check(AMENDS_SECRET_KEYS=f"{other},half a key")
    assert code == 1
    assert "AMENDS_SECRET_KEYS: key 2 of 2 is none" in said
    assert "half a key" not in said


def test_a_mail_server_that_refuses_the_password_is_not_said_to_be_away(
    check: Check, mail_server: int
) -> None:
    code, said = check(
        EMAIL_HOST="127.0.0.1", EMAIL_PORT=str(mail_server),
        EMAIL_HOST_USER="desk", EMAIL_HOST_PASSWORD="wrong", AMENDS_FROM="nobody",
    )  # fmt: skip

    assert code == 1
    assert "AMENDS_FROM: mail would come from nobody" in said
    assert "EMAIL_HOST_USER, EMAIL_HOST_PASSWORD" in said
    assert "EMAIL_PORT" not in said


def test_a_provider_that_is_away_and_a_group_without_a_team_are_told_with_their_variable(
    check: Check, acme: Workspace
) -> None:
    _, said = check(
        AMENDS_OIDC_URL=f"http://127.0.0.1:{free_port()}", AMENDS_OIDC_CLIENT_ID="desk",
        AMENDS_OIDC_TEAMS="deciders=acme/leads",
    )  # fmt: skip

    assert "AMENDS_OIDC_URL: " in said
    assert "AMENDS_OIDC_SECRET are not set" in said
    assert "AMENDS_OIDC_TEAMS: there is no team acme/leads" in said

    _, said = check(AMENDS_OIDC_URL="http://127.0.0.1:1", AMENDS_OIDC_TEAMS="deciders")
    assert "AMENDS_OIDC_TEAMS: 'deciders' is not like group=workspace/team" in said


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("AMENDS_POOL_SIZE", "twenty", "AMENDS_POOL_SIZE is a whole number, not 'twenty'"),
        ("AMENDS_POOL_SIZE", "0", "AMENDS_POOL_SIZE is at least 1, not 0"),
        ("AMENDS_RATE_KEY", "-5", "AMENDS_RATE_KEY is at least 0, not -5"),
        ("AMENDS_LOG_LEVEL", "LOUD", "AMENDS_LOG_LEVEL is one of INFO, DEBUG"),
        ("AMENDS_URL", "desk.example.com", "AMENDS_URL is an address like https://"),
        ("DATABASE_OWNER_URL", "x://a:hidden@b", "DATABASE_OWNER_URL is no address like postgresq"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named(
    check: Check, name: str, given: str, told: str
) -> None:
    code, said = check(**{name: given})

    assert code != 0
    assert told in said
    assert "hidden" not in said


def test_the_first_steps_on_empty_servers_end_at_a_set_up_link(
    own_postgres: Postgres, check: Check, tmp_path: Path
) -> None:
    own_postgres.ensure("fresh")
    url = own_postgres.url("fresh")
    static = tmp_path / "not" / "there" / "yet"
    given = {
        "DATABASE_URL": url,
        "DATABASE_OWNER_URL": url,
        "AMENDS_STATIC_ROOT": str(static),
        "AMENDS_HASHED_STATIC": "1",
        "AMENDS_LOCAL": str(tmp_path / "nothing-is-kept-here"),
        "AMENDS_URL": "https://desk.example.com",
        "AMENDS_LOG_LEVEL": "WARN",  # as Python takes it, too
    }

    assert "lacks" in check(**given)[1]
    for _ in "first", "again":
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "manage.py", "prepare"],
            cwd=ROOT, env=os.environ | {"AMENDS_DEMO": "0"} | given,
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "https://desk.example.com/setup/" in done.stdout
    _, said = check(**given)

    assert "(config.E" not in said
    assert (static / "staticfiles.json").is_file()
    assert not (tmp_path / "nothing-is-kept-here").exists()


def preparing(url: str, *options: str) -> subprocess.Popen[str]:
    given = {"DATABASE_URL": url, "DATABASE_OWNER_URL": url, "AMENDS_DEMO": "0"}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "manage.py", "prepare", *options], cwd=ROOT,
        env=os.environ | given, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_a_full_disk_takes_away_no_file_that_was_collected(tmp_path: Path) -> None:
    """They were cleared first; every page of a desk that ran on stood there without its looks."""
    was = {"staticfiles.json": "{}", "js/desk.0.js": "old", ".collected": "of another version"}
    for name, text in was.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def collect(limit: str) -> subprocess.CompletedProcess[str]:
        words = f"ulimit -f {limit}; exec {sys.executable} -W ignore manage.py prepare"
        given = {"AMENDS_STATIC_ROOT": str(tmp_path), "AMENDS_HASHED_STATIC": "1"}
        return subprocess.run(
            ["sh", "-c", f"{words} --static-alone"], cwd=ROOT, env=os.environ | given,
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip

    full = collect("8")

    words = f"CommandError: AMENDS_STATIC_ROOT: no files can be collected in {tmp_path}: File too"
    assert (full.returncode, full.stderr[: len(words)]) == (1, words)
    left = {str(one.relative_to(tmp_path)): one for one in tmp_path.rglob("*") if one.is_file()}
    assert {name: one.read_text() for name, one in left.items()} == was
    assert collect("unlimited").returncode == 0
    assert not (tmp_path / "js" / "desk.0.js").exists()
    named = json.loads((tmp_path / "staticfiles.json").read_text())["paths"]
    assert all((tmp_path / name).is_file() for name in named.values())


def test_two_that_prepare_at_once_do_not_take_each_others_files_for_their_own(
    tmp_path: Path,
) -> None:
    """They collected in one folder: what one deleted or had not written yet the other one put in
    place, and said that it was whole.
    """
    half = tmp_path / ".collecting" / "half.css"
    half.parent.mkdir()
    half.write_text("of the other")
    given = {"AMENDS_STATIC_ROOT": str(tmp_path), "AMENDS_HASHED_STATIC": "1"}

    with backups.opened(tmp_path) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        late = subprocess.Popen(
            [sys.executable, "-W", "ignore", "manage.py", "prepare", "--static-alone"], cwd=ROOT,
            env=os.environ | given, text=True, stderr=subprocess.PIPE,
        )  # fmt: skip
        said = late.stderr.readline() if late.stderr else ""
        left = half.read_text() if half.exists() else ""
        (tmp_path / ".collected").write_text(digest_of_sources())
    with late:
        late.communicate(timeout=60)

    assert "Waiting for another prepare" in said
    assert (left, late.returncode) == ("of the other", 0)
    assert not (tmp_path / "staticfiles.json").exists(), "the other one has done it"


def test_a_database_that_does_not_answer_is_named_in_a_line() -> None:
    nobody = f"postgresql://amends@127.0.0.1:{free_port()}/desk"

    with preparing(nobody) as prepare:
        said = prepare.communicate(timeout=60)[1]

    assert prepare.returncode == 1
    assert "CommandError: DATABASE_URL: connection failed" in said
    assert "Traceback" not in said


def test_a_database_that_comes_up_later_is_waited_for(own_postgres: Postgres) -> None:
    """As in a compose file whose engine starts everything at once."""
    own_postgres.ensure("late")
    parts = conninfo_to_dict(own_postgres.url("late"))
    there, port = f"{parts['host']}/.s.PGSQL.{parts.get('port') or 5432}", free_port()

    late = f"postgresql://{parts['user']}@127.0.0.1:{port}/late"
    with preparing(late, "--wait", "60") as prepare:
        assert prepare.stderr is not None
        waits = prepare.stderr.readline()
        with Proxy(there, port=port):
            said = prepare.communicate(timeout=200)

    assert "Waiting for the database. DATABASE_URL: connection failed" in waits
    assert prepare.returncode == 0, said
    assert "/setup/" in said[0]


def test_a_database_of_bytes_is_refused_in_its_own_words(own_postgres: Postgres) -> None:
    """PostgreSQL makes such a one where no locale was set; it was taken for a pooler."""
    with psycopg.connect(own_postgres.url("postgres"), autocommit=True) as owner:
        owner.execute("CREATE DATABASE plain ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")

    with preparing(own_postgres.url("plain")) as prepare:
        said = prepare.communicate(timeout=60)[1]

    assert prepare.returncode == 1
    assert "encoded in SQL_ASCII; the desk needs UTF8" in said


def test_collected_files_are_known_again_on_another_disk(tmp_path: Path) -> None:
    """An image's layers keep neither times nor order, and its containers cannot collect anew."""
    found = []
    for number, names in enumerate((("a.css", "b.js"), ("b.js", "a.css"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in names:
            (folder / name).write_text(f"of {name}")
            os.utime(folder / name, (number, number))
        found.append(_collected(folder))
    (folder / "a.css").write_text("of a.CSS")

    assert found[0] == found[1] != _collected(folder)


def _collected(folder: Path) -> str:
    with override_settings(STATICFILES_DIRS=[folder]):
        return digest_of_sources()
