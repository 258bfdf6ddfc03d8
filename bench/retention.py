"""Letting go at a million events: a week's partition, one person, and the proofs afterwards.

    python -m bench retention

makes a sealed desk, keeps proofs of some events, lets the oldest weeks' runs and partitions go,
erases a person, and checks all proofs: those that were handed out before, and new ones under the
new head, which the old head must lead to. Also printed: the page that says what would go next.
"""

import hmac
import time
from collections.abc import Callable, Sequence
from typing import Any

from amends.protocol.proofs import node_hash
from bench.servers import Browser, Desk
from ledger.merkle import EMPTY_ROOT

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
