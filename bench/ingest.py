"""How fast events come in over HTTP, measured against raw COPY; and how fast they are sealed.

    python -m bench ingest

gives `ingest_ratio` (4 clients, batches of 500 events of 1 KiB, 1 % duplicates,
durable, folded), `seal_ratio`, and what they are made of.
"""

import http.client
import json
import os
import random
import statistics
import sys
import threading
import time
from collections import deque
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import psycopg

from bench.servers import Desk

CLIENTS = 4
BATCH_EVENTS = 500
EVENTS_PER_RUN = 10
DUPLICATES = 0.01
# How many batches later an event comes again: its sender has waited in vain for the answer.
AGAIN_AFTER = 8
EVENT_BYTES = 1024
ROUNDS = 5
# Until the processes for batches are there and each of their connections has its plans.
WARM_BATCHES = 64
COPY_ROWS = 20_000
PROOFS = 500


def events_of_run(run: str) -> list[dict[str, Any]]:
    """One run of four actions: ten events of about 1 KiB."""
    from ledger.parsed_events import new_id

    def event(type_: str, data: dict[str, Any], action: str = "", n: int = 0) -> dict[str, Any]:
        found = {"id": new_id(), "type": type_, "time": "2026-11-21T10:02:15.120Z", "run": run,
                 "n": n, "data": data}  # fmt: skip
        found |= {"action": action} if action else {}
        spare = EVENT_BYTES - len(json.dumps(found)) - len('"note": ""  ')
        data["note"] = ("the customer asked for a window seat " * 40)[: max(0, spare)]
        return found

    person = {"id": f"c-{random.randrange(5000)}", "name": "Eve Field"}
    found = [event("run.started", {"request": "Move my trip", "on_behalf_of": person})]
    for n in range(1, 5):
        target = {"type": "reservation", "id": f"R{random.randrange(10**6)}"}
        plan = {
            "tool": "update_flight",
            "targets": [target],
            "args": {"to": "LIS", "seat": n},
            "key": f"{run}-{n}",
            "class": "external_reversible",
            "before": [{"to": "OPO"}],
        }
        done = {
            "attempt": f"t{n}",
            "result": {"ok": True},
            "effects": [{"target": target, "after": {"to": "LIS"}, "reversibility": "exact"}],
        }
        found += [event("action.planned", plan, f"act_{n}", n),
                  event("action.succeeded", done, f"act_{n}", n)]  # fmt: skip
    return [*found, event("run.completed", {"summary": "done"})]


def batches(count: int, prefix: str) -> list[bytes]:
    """Bodies of 500 events of 50 runs; one event in a hundred comes again some batches later."""
    bodies: list[bytes] = []
    said: list[list[Any]] = []
    again_count = int(BATCH_EVENTS * DUPLICATES)
    for number in range(count):
        events: list[Any] = []
        for run in range(BATCH_EVENTS // EVENTS_PER_RUN):
            events += events_of_run(f"{prefix}-{number}-{run}")
        if number >= AGAIN_AFTER:
            events[-again_count:] = random.sample(said[number - AGAIN_AFTER], again_count)
        said.append(events)
        bodies.append(json.dumps(events).encode())
    return bodies


def post_all(url: str, token: str, bodies: list[bytes]) -> float:
    """Send the bodies in their order from four clients; seconds until the last answer."""
    parts = urlsplit(url)
    waiting, failures = deque(bodies), list[object]()
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

    def client() -> None:
        try:
            post()
        except (OSError, http.client.HTTPException) as broken:
            failures.append(broken)

    def post() -> None:
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        while True:
            try:
                body = waiting.popleft()
            except IndexError:
                return
            connection.request("POST", "/api/v1/events", body, headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200 or b'"rejected"' in text:
                failures.append(text[:400])

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    return time.perf_counter() - begun


def copied_rows(workspace_id: int, prefix: str) -> list[tuple[Any, ...]]:
    """Rows that hold what ingest would write of the same events, byte for byte as many."""
    received, rows = datetime.now(UTC), []
    for run in range(COPY_ROWS // EVENTS_PER_RUN):
        for event in events_of_run(f"{prefix}-{run}"):
            data = json.dumps(event["data"], separators=(",", ":"), sort_keys=True)
            rows.append(
                (received, workspace_id, event["id"], event["type"], event["time"], event["run"],
                 event.get("action", ""), event["n"], "agent", "bench", "0123456789ab", False, data,
                 os.urandom(32), os.urandom(32))
            )  # fmt: skip
    return rows


def copy_rows(database_url: str, workspace_id: int, prefix: str = "copy") -> float:
    """Rows a second of COPY into the event table, its indexes and partitions included."""
    columns = ("received_at, workspace_id, event_id, type, time, run, action, n, actor_kind, actor,"
               " key_prefix, trusted, data, salt, digest")  # fmt: skip
    rows = copied_rows(workspace_id, prefix)
    with psycopg.connect(database_url) as connection:
        begun = time.perf_counter()
        with connection.cursor().copy(f"COPY ledger_event ({columns}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        connection.commit()
        return len(rows) / (time.perf_counter() - begun)


def set_up() -> tuple[Any, str]:
    import django

    django.setup()
    from workspaces import keys
    from workspaces.models import Agent, Workspace

    workspace = Workspace.objects.create(slug="bench", name="Bench")
    agent = Agent.objects.create(workspace=workspace, name="bench")
    return workspace, keys.create_key(agent, by=None, name="bench")[1]


def seal_rate(workspace: Any) -> float:
    """Events sealed a second, out of the backlog that ingest left."""
    from ledger import sealer

    begun, done = time.perf_counter(), 0
    while count := sealer.seal(workspace):
        done += count
    return done / (time.perf_counter() - begun)


def verify_rate(workspace: Any) -> float:
    """Proofs checked a second by the offline verifier: signature, path to the root, digest."""
    from amends.protocol.proofs import LogKey, verify
    from ledger import logkeys, proofs
    from ledger.models import Event, Leaf

    keys = [LogKey.parse(text) for text in logkeys.published(workspace)]
    leaves = Leaf.objects.filter(workspace=workspace).order_by("index")
    places = list(leaves.values_list("place", flat=True)[:: max(1, leaves.count() // PROOFS)])
    events = Event.objects.filter(workspace=workspace, place__in=places)
    found = [
        proof
        for one in events.values_list("event_id", flat=True)
        if (proof := proofs.proof_of(workspace, one))
    ]
    begun = time.perf_counter()
    for proof in found:
        verify(proof, keys)
    return len(found) / (time.perf_counter() - begun)


def bytes_per_event(database_url: str) -> float:
    tables = ("ledger_event", "ledger_eventkey", "ledger_action", "ledger_attempt", "ledger_effect",
              "ledger_run", "ledger_leaf", "ledger_treenode")  # fmt: skip
    with psycopg.connect(database_url) as connection:
        total = 0
        for table in tables:
            row = connection.execute(
                "SELECT coalesce(sum(pg_total_relation_size(relid)), 0)"
                " FROM pg_partition_tree(%s::regclass)", [table]).fetchone()  # fmt: skip
            whole = connection.execute(
                "SELECT pg_total_relation_size(%s::regclass)", [table]).fetchone()  # fmt: skip
            total += max(int((row or [0])[0]), int((whole or [0])[0]))
        count = connection.execute("SELECT count(*) FROM ledger_event").fetchone()
        return float(total) / max(1, (count or [0])[0])


def ingest(running: Desk, *, small: bool) -> dict[str, Any]:
    batch_count = 8 if small else 24
    workspace, token = set_up()
    running.start_web()
    post_all(running.url, token, batches(WARM_BATCHES, "warm"))
    copy_rows(running.database_url, workspace.pk, "warm")
    ingested, copied = [], []
    for number in range(ROUNDS):
        bodies = batches(batch_count, f"r{number}")
        ingested.append(batch_count * BATCH_EVENTS / post_all(running.url, token, bodies))
        copied.append(copy_rows(running.database_url, workspace.pk, f"copy{number}"))
    ratios = [ours / theirs for ours, theirs in zip(ingested, copied, strict=True)]
    events, copy = statistics.median(ingested), statistics.median(copied)
    seal = seal_rate(workspace)
    return {
        # The machine's speed moves, so each round is compared with the COPY right after it.
        "ingest_ratio": round(statistics.median(ratios), 3),
        "ingest_ratios": [round(ratio, 3) for ratio in ratios],
        "seal_ratio": round(seal / events, 2),
        "ingest_events_per_s": round(events),
        "copy_rows_per_s": round(copy),
        "seal_events_per_s": round(seal),
        "verify_proofs_per_s": round(verify_rate(workspace)),
        "bytes_per_event": round(bytes_per_event(running.database_url)),
    }


# Batches that come in beside another measure: 5,000 events a second from a process of its own,
# `python -m bench.ingest URL TOKEN`. It says that it is ready, begins with the first line
# of its input, and ends with it.

BATCHES_PER_S = 10
BATCHES = 30
# Ends by itself where nobody tells it to; longer than any measure beside it.
WAIT_SECONDS_MAX = 240.0


def until_told(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


def beside(url: str, token: str) -> None:
    post_all(url, token, batches(BATCHES, "warm"))  # the processes for batches start meanwhile
    print("ready", flush=True)
    sys.stdin.readline()
    over = threading.Event()
    threading.Thread(target=until_told, args=[over], daemon=True).start()
    count, begun = 0, time.monotonic()
    while not over.is_set() and time.monotonic() < begun + WAIT_SECONDS_MAX:
        body = batches(1, f"beside-{count}")
        post_all(url, token, body)
        count += 1
        over.wait(max(0.0, begun + count / BATCHES_PER_S - time.monotonic()))
    print(round(count / (time.monotonic() - begun), 1), flush=True)


if __name__ == "__main__":
    beside(*sys.argv[1:])
