"""The spool's file: shared by threads and processes, waited for, and never half written."""

import os
import signal
import sqlite3
import threading
import time

import pytest

from amends.spool import KeyRow, Spool
from amends.twins import SqliteKeys


def test_what_fails_half_way_leaves_nothing_in_line(spool_file):
    spool = Spool(spool_file)
    key = KeyRow("k", "run_1", "act_1", 1, "digest", "try", 1, "succeeded", result=object())

    with pytest.raises(TypeError):
        spool.write({"run": "run_1", "id": "event"}, key=key)

    assert spool.waiting() == []
    assert spool.find("k") is None


def test_numbers_of_a_run_are_given_once_by_processes_that_share_a_spool(spool_file):
    spools = [Spool(spool_file) for _ in range(2)]
    given: list[int] = []

    def count(spool):
        given.extend(spool.next_n("run_1") for _ in range(50))

    threads = [threading.Thread(target=count, args=[spool]) for spool in spools * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(given) == list(range(1, 201))
    for spool in spools:
        spool.close()


@pytest.mark.parametrize("opens", [Spool, SqliteKeys], ids=["spool", "keys of twins"])
def test_a_file_that_another_process_is_making_is_waited_for(tmp_path, opens):
    file = tmp_path / "shared.sqlite"
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.executescript("BEGIN IMMEDIATE; CREATE TABLE made_first (x)")
    threading.Timer(0.3, other.execute, ["COMMIT"]).start()

    opens(file)

    other.close()
    assert sqlite3.connect(file).execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_nobody_else_on_the_machine_can_read_the_spool(desk, spool_file):
    assert spool_file.stat().st_mode & 0o077 == 0


def test_a_signal_that_comes_while_the_file_is_waited_for_leaves_it_as_it_was(spool_file):
    """Its handler raises as soon as the file was had; the next write found a transaction open."""

    class Interrupted(Exception):
        pass

    def interrupts(*_):
        raise Interrupted

    def lets_go_after_a_signal():
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.1)
        other.execute("COMMIT")

    spool, was = Spool(spool_file), signal.signal(signal.SIGUSR1, interrupts)
    other = sqlite3.connect(spool_file, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    thread = threading.Thread(target=lets_go_after_a_signal)
    thread.start()
    try:
        with pytest.raises(Interrupted):
            spool.next_n("run_1")
    finally:
        signal.signal(signal.SIGUSR1, was)
        thread.join()

    assert spool.next_n("run_1") == 1
