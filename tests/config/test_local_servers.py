"""The embedded servers: quick to start, closed to others, and none the worse for being killed."""

import os
import shutil
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from config import env
from config.local.postgres import NOBODY, Postgres, cache_megabytes
from config.local.servers import DidNotStart, Valkey

START_SECONDS_MAX = 90.0  # one on a quiet machine; this one may be running everything


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Postgres]:
    server = Postgres(tmp_path / "home", durable=False)
    yield server
    server.stop()


def one(server: Postgres) -> object:
    with psycopg.connect(server.url("postgres")) as connection:
        row = connection.execute("SELECT 1").fetchone()
    return row and row[0]


def test_a_new_cluster_is_up_in_seconds_and_nobody_else_can_enter(postgres: Postgres) -> None:
    begun = time.monotonic()

    postgres.start()

    assert time.monotonic() - begun < START_SECONDS_MAX
    assert one(postgres) == 1
    for folder in (postgres.home, postgres.sockets, postgres.data):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_killed_server_starts_again_although_its_number_is_now_somebody_elses(
    postgres: Postgres,
) -> None:
    postgres.start()
    postgres.ensure("kept")
    assert postgres.pid is not None
    os.kill(postgres.pid, signal.SIGKILL)
    postgres.stop()
    note = postgres.data / "postmaster.pid"
    lines = note.read_text().splitlines()
    note.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")

    postgres.start()
    os.kill(postgres.pid, signal.SIGKILL)
    postgres.stop()
    note.write_text("")  # power went before its number was there
    postgres.start()

    with psycopg.connect(postgres.url("kept")) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_server_that_outlived_its_desk_is_ended_by_the_next_one(postgres: Postgres) -> None:
    postgres.start()
    first = postgres.pid
    assert first is not None
    second = Postgres(postgres.home, durable=False)

    second.start()

    try:
        assert one(second) == 1
        assert not postgres.alive()
    finally:
        second.stop()


def test_two_checkouts_run_side_by_side_whatever_their_folders_are_called(tmp_path: Path) -> None:
    odd = tmp_path / "Ada's desk, 100% & more?"
    deep = tmp_path / ("a-folder-with-a-name-that-takes-much-room-" * 3)
    servers: list[Any] = [Postgres(home, durable=False) for home in (odd, deep)]
    brokers: list[Any] = [Valkey(home) for home in (odd, deep)]
    try:
        for server in servers + brokers:
            server.start()

        assert [one(server) for server in servers] == [1, 1]
        assert len({server.sockets for server in servers}) == 2
        with redis.Redis.from_url(brokers[0].url) as first:
            first.set("whose", "one")
        with redis.Redis.from_url(brokers[1].url) as second:
            assert second.get("whose") is None
    finally:
        for server in servers + brokers:
            server.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs a way not to be root")
def test_root_on_a_kernel_without_user_namespaces_runs_it_as_the_account_that_owns_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = Path("/tmp") / f"amends-elsewhere-{os.getpid()}"  # noqa: S108
    monkeypatch.setattr("config.local.postgres.namespace", lambda: ["false"])
    monkeypatch.setattr("config.local.postgres.ELSEWHERE", elsewhere)
    server = Postgres(tmp_path / "home", durable=False)
    try:
        server.start()

        assert one(server) == 1
        assert server.pid is not None
        assert Path(f"/proc/{server.pid}").stat().st_uid == NOBODY
        assert stat.S_IMODE(server.data.stat().st_mode) == 0o700
        assert Postgres(tmp_path / "home").url("x") == server.url("x")
    finally:
        server.stop()
        shutil.rmtree(elsewhere)


def test_a_server_that_cannot_start_says_why(postgres: Postgres) -> None:
    postgres.start()
    postgres.stop()
    with (postgres.data / "postgresql.conf").open("a") as settings:
        settings.write("no_such_setting = 1\n")

    with pytest.raises(DidNotStart, match="no_such_setting"):
        postgres.start()


@pytest.mark.parametrize(("gigabytes", "kept"), [(0.5, 128), (4, 512), (64, 1024)])
def test_it_keeps_an_eighth_of_the_machine_in_memory_within_bounds(
    monkeypatch: pytest.MonkeyPatch, gigabytes: float, kept: int
) -> None:
    there = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": int(gigabytes * 2**18)}
    monkeypatch.setattr(os, "sysconf", there.__getitem__)

    assert cache_megabytes() == kept


def test_secrets_are_made_once_and_readable_by_their_owner_only(tmp_path: Path) -> None:
    first = env.load(tmp_path / "home")

    second = env.load(tmp_path / "home")

    assert first == second
    assert set(first) == set(env.NAMES)
    assert stat.S_IMODE((tmp_path / "home" / "secrets.env").stat().st_mode) == 0o600
