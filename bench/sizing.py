"""What a desk needs: how it grows with each action, what it takes when nothing happens, and what it
costs to let go.

    python -m bench growth idle retention

`growth`: an agent makes calls through the client, each gated, with a snapshot before and after; the
scheduler seals. Bytes of database and of WAL for each, and how much of the WAL are pages written
whole after a checkpoint.

`idle`: one of each process, the web with two; nobody calls, nobody looks. Transactions and bytes of
WAL a second, and by kind of process the share of a core and the memory, that of its children
included (PSS: shared pages are divided among those who share them).

`retention`: a week's partition, one person, and the proofs afterwards, at a million events. It
makes a sealed desk, keeps proofs of some events, lets the oldest weeks' runs and partitions go,
erases a person, and checks all proofs: those that were handed out before, and new ones under the
new head, which the old head must lead to. Also printed: the page that says what would go next.
"""

import hmac
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg

import amends
from amends.protocol.proofs import node_hash
from bench.servers import Browser, Desk
from ledger.merkle import EMPTY_ROOT

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


# A stranger's check that one head of the log grew out of another, from the proof alone.


def is_consistent(
    old: int, new: int, proof: Sequence[bytes], old_root: bytes, new_root: bytes
) -> bool:
    """Whether the tree with `old_root` is the beginning of the other (RFC 9162, 2.1.4.2)."""
    if old in {0, new}:
        return not proof and hmac.compare_digest(old_root, new_root if old else EMPTY_ROOT)
    if not 0 < old < new:
        return False
    nodes = [old_root, *proof] if old & (old - 1) == 0 else list(proof)
    if not nodes:
        return False
    place, last = old - 1, new - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    of_old = of_new = nodes[0]
    for node in nodes[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            of_old, of_new = node_hash(node, of_old), node_hash(node, of_new)
            while place & 1 == 0 and place:
                place, last = place >> 1, last >> 1
        else:
            of_new = node_hash(of_new, node)
        place, last = place >> 1, last >> 1
    return last == 0 and hmac.compare_digest(of_old, old_root) and of_new == new_root


RUNS, SMALL_RUNS = 420_000, 4_200
"""A generated run has 2.4 events."""

DAYS_KEPT = 75
PROOFS = 40
PAGES = 5
OWN_EVENTS = 100
"""The desk's own first events have the same places as the first generated ones."""

WAITING = """
INSERT INTO ledger_unsealed (workspace_id, place, received_at)
SELECT workspace_id, place, received_at FROM ledger_event ON CONFLICT DO NOTHING"""


def timed(act: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    found = act()
    return time.perf_counter() - begun, found


def seal_everything(workspace: Any) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(WAITING)
    seal(workspace)


def seal(workspace: Any) -> None:
    from ledger import sealer

    while sealer.seal(workspace):
        pass


def handed_out(workspace: Any) -> dict[str, str]:
    """Proofs of some events, from the first to the last; by event."""
    from ledger import proofs
    from ledger.models import EventKey

    generated = EventKey.objects.filter(workspace=workspace, place__gt=OWN_EVENTS)
    known = list(generated.order_by("place").values_list("event_id", flat=True))
    some = known[:: max(1, len(known) // PROOFS)]
    return {one: proof for one in some if (proof := proofs.proof_of(workspace, one))}


def checked(workspace: Any, old: dict[str, str], old_head: Any) -> dict[str, int]:
    """How many proofs hold, old and new; each is checked as a stranger would. Raises NotProven."""
    from amends.protocol.proofs import LogKey, verify
    from ledger import logkeys, proofs
    from ledger.desk_events import take_in

    keys = [LogKey.parse(text) for text in logkeys.published(workspace)]
    for proof in old.values():
        verify(proof, keys)
    found = {one: proofs.proof_of(workspace, one) for one in old}
    new = {one: proof for one, proof in found.items() if proof}
    for proof in new.values():
        verify(proof, keys)
    take_in()
    seal(workspace)
    head = proofs.newest_head(workspace)
    assert head is not None
    grown = proofs.consistency(workspace, old_head.size, head.size)
    roots = bytes(old_head.root), bytes(head.root)
    assert is_consistent(old_head.size, head.size, grown, *roots)
    return {
        "consistency_hashes": len(grown),
        "old_proofs": len(old),
        "new_proofs": len(new),
        "let_go": len(old) - len(new),
    }


def let_go(workspace: Any) -> dict[str, float]:
    """Turns of retention, as the scheduler makes them, until one finds nothing."""
    from ledger import retention

    turns, runs, weeks, events, begun = 0, 0, 0, 0, time.perf_counter()
    while True:
        done = retention.keep_to_time()
        turns += 1
        runs += done.runs_forgotten
        weeks += len(done.thinnings)
        events += done.events
        if not (done.runs_forgotten or done.thinnings or done.put_off):
            break
    last = time.perf_counter()
    retention.keep_to_time()
    idle = time.perf_counter() - last
    took = last - begun
    return {"retain_s": took, "retain_turns": turns, "runs_forgotten": runs, "weeks": weeks,
            "events_let_go": events, "retain_idle_s": idle}  # fmt: skip


def settle(workspace: Any, person: str) -> None:
    """Nobody works on the runs of this person any more: else they could not be erased."""
    from approvals.models import Approval
    from recovery.models import Case

    cases = Case.objects.filter(workspace=workspace, customer=person)
    runs = cases.values("run__run")
    Approval.objects.filter(workspace=workspace, run_ref__in=runs, state="waiting").update(
        was="waiting", state="withdrawn"
    )
    cases.exclude(state="closed").update(state="closed")


def retention(desk: Desk, *, small: bool) -> dict[str, Any]:
    import django

    django.setup()
    from bench import generate
    from ledger import erasure, proofs
    from ledger.models import Event, Run
    from workspaces.models import Workspace

    made = generate.live(SMALL_RUNS if small else RUNS)
    workspace = Workspace.objects.get(slug=made.slug)
    found: dict[str, Any] = {"kept_events": Event.objects.count(), "generate_s": made.seconds}
    found["seal_all_s"], _ = timed(lambda: seal_everything(workspace))
    old, head = handed_out(workspace), proofs.newest_head(workspace)
    desk.start_web()
    browser = Browser(desk.url, made.cookie)
    page = made.page("settings/kept/")
    browser.took(page)
    found["kept_page_nothing_due_ms"] = max(browser.took(page) for _ in range(PAGES))
    Workspace.objects.update(retention_days=DAYS_KEPT)
    workspace.refresh_from_db()
    found["kept_page_ms"] = max(browser.took(page) for _ in range(PAGES))
    found |= let_go(workspace)
    found["kept_page_after_ms"] = max(browser.took(page) for _ in range(PAGES))
    found["kept_next_ms"] = max(browser.took(f"{page}?next=1") for _ in range(PAGES))
    person = Run.objects.filter(forgotten_at=None).latest("pk").customer
    settle(workspace, person)
    found["erase_find_s"], _ = timed(lambda: erasure.find(workspace, person=person))
    found["erase_s"], done = timed(lambda: erasure.erase(workspace, person=person, by=None))
    found |= {"erased_runs": done.run_count, "erased_events": done.event_count}
    found |= checked(workspace, old, head)
    return {key: round(value, 2) for key, value in found.items()}
