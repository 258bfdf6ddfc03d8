"""What a desk needs: how it grows with each action, and what it takes when nothing happens.

    python -m bench growth idle

`growth`: an agent makes calls through the client, each gated, with a snapshot before and after; the
scheduler seals. Bytes of database and of WAL for each, and how much of the WAL are pages written
whole after a checkpoint.

`idle`: one of each process, the web with two; nobody calls, nobody looks. Transactions and bytes of
WAL a second, and by kind of process the share of a core and the memory, that of its children
included (PSS: shared pages are divided among those who share them).
"""

import os
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

import amends
from bench.servers import Desk

CALLS, CALLS_OF_A_RUN = 3_000, 20
WARM_UP = 200
SEAL_SECONDS_MAX = 120
IDLE_SECONDS = 60
SETTLE_SECONDS = 45
KINDS = ("web", "worker", "scheduler", "sweeper")
MEBIBYTE = 2**20

SIZES = """
SELECT pg_database_size(current_database()), pg_current_wal_lsn() - '0/0'::pg_lsn,
    (SELECT wal_fpi FROM pg_stat_wal)"""
BY_TABLE = """
SELECT sum(pg_total_relation_size(c.oid))::bigint, coalesce(p.relname, c.relname) AS name
FROM pg_class c
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
LEFT JOIN pg_class p ON p.oid = i.inhparent
WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace GROUP BY name"""
UNSEALED = """
SELECT count(*) FROM ledger_event
WHERE place > (SELECT coalesce(max(place), 0) FROM ledger_leaf)"""
TRANSACTIONS = """
SELECT (SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database),
    pg_current_wal_lsn() - '0/0'::pg_lsn"""


def growth(running: Desk, *, small: bool) -> dict[str, Any]:
    import django

    django.setup()
    from bench.generate import cast

    people = cast()
    running.start_web()
    running.start("scheduler")
    calls = CALLS // 10 if small else CALLS
    _calls(running.url, people.tokens[0], WARM_UP, "warm")
    with psycopg.connect(running.database_url, autocommit=True) as session:
        _sealed(session)
        session.execute("CHECKPOINT")
        before, of_tables = _sizes(session)
        _calls(running.url, people.tokens[0], calls, "grow")
        _sealed(session)
        session.execute("CHECKPOINT")
        after, of_tables_after = _sizes(session)
    database, wal, pages = (b - a for a, b in zip(before, after, strict=True))
    grown = {name: size - of_tables.get(name, 0) for name, size in of_tables_after.items()}
    largest = sorted(grown, key=lambda name: -grown[name])[:6]
    return {
        "growth_bytes": round(database / calls),
        "growth_wal_bytes": round(wal / calls),
        "growth_wal_pages": round(pages / calls, 2),
        "growth_by_table": {name: round(grown[name] / calls) for name in largest},
    }


def _calls(url: str, token: str, count: int, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        desk = amends.connect(url, token, spool=Path(folder) / "spool.sqlite")
        for first in range(0, count, CALLS_OF_A_RUN):
            with desk.run("Move a return flight", run=f"run_{name}_{first}") as run:
                for call in range(first, min(first + CALLS_OF_A_RUN, count)):
                    old, new = {"flight": "HAT001"}, {"flight": "HAT019"}
                    with run.action(
                        "update_flight", target=("reservation", f"{name}-{call}"), args=new,
                        before=old,
                    ) as act:  # fmt: skip
                        act.succeeded(result=new, after=new)
        desk.flush(SEAL_SECONDS_MAX)
        desk.close(seconds=SEAL_SECONDS_MAX)


def _sizes(session: Any) -> tuple[tuple[int, int, int], dict[str, int]]:
    database, wal, pages = session.execute(SIZES).fetchone()
    of_tables = {name: int(size) for size, name in session.execute(BY_TABLE).fetchall()}
    return (int(database), int(wal), int(pages)), of_tables


def _sealed(session: Any) -> None:
    until = time.monotonic() + SEAL_SECONDS_MAX
    while session.execute(UNSEALED).fetchone()[0] and time.monotonic() < until:
        time.sleep(0.5)
    time.sleep(2)


def idle(running: Desk, *, small: bool) -> dict[str, Any]:
    import django

    django.setup()
    from bench.generate import cast

    cast()
    running.start_web()
    for kind in KINDS[1:]:
        running.start(kind)
    time.sleep(SETTLE_SECONDS)
    seconds = IDLE_SECONDS // 3 if small else IDLE_SECONDS
    kinds = dict(zip(KINDS, running.processes, strict=True))
    with psycopg.connect(running.database_url, autocommit=True) as session:
        session.execute("CHECKPOINT")
        began = session.execute(TRANSACTIONS).fetchone() or ()
        spent = {kind: _processor(process.pid) for kind, process in kinds.items()}
        time.sleep(seconds)
        ended = session.execute(TRANSACTIONS).fetchone() or ()
    found: dict[str, Any] = {
        "idle_transactions_per_s": round(float(ended[0] - began[0]) / seconds, 1),
        "idle_wal_bytes_per_s": round(float(ended[1] - began[1]) / seconds),
    }
    for kind, process in kinds.items():
        of_a_core = (_processor(process.pid) - spent[kind]) / seconds
        found[f"idle_{kind}_percent_of_core"] = round(of_a_core * 100, 2)
        found[f"idle_{kind}_mib"] = round(sum(map(_memory, _family(process.pid))) / MEBIBYTE)
    return found


def _family(pid: int) -> list[Path]:
    """It and its descendants, as folders of /proc."""
    here = Path(f"/proc/{pid}")
    children = (here / "task" / str(pid) / "children").read_text().split()
    return [here, *(one for child in children for one in _family(int(child)))]


def _processor(pid: int) -> float:
    """Seconds of processor time, that of its descendants included."""
    ticks = 0
    for one in _family(pid):
        after_the_name = (one / "stat").read_text().rpartition(")")[2].split()
        ticks += int(after_the_name[11]) + int(after_the_name[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _memory(process: Path) -> int:
    (size,) = re.findall(r"^Pss: +(\d+) kB", (process / "smaps_rollup").read_text(), re.MULTILINE)
    return int(size) * 1024
