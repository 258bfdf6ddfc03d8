"""How an approved plan of a thousand steps behaves, and how long one of its steps takes alone.

    python -m bench unwind

gives `unwind_step_ms` (median from the end of one step to the end of the next, one plan alone with
one worker), `unwind_growth` (the last quarter of its steps ÷ the first: 1 is linear), and the
seconds that its preview, its submission, its approval and its page take.
"""

import itertools
import json
import statistics
import sys
import time
from typing import Any

import psycopg

from bench.asking import Browser
from bench.servers import Desk, own
from bench.steps import fail, finish, policy

STEPS = 1_000
ENDS = "SELECT extract(epoch FROM moved_at) FROM recovery_step WHERE plan_id = %s ORDER BY position"


def set_up() -> Any:
    import django

    django.setup()
    from approvals import versions
    from bench.generate import cast
    from connectors import connections

    people = cast()
    connections.create(people.workspace, "noop", "noop", {}, by=None)
    versions.activate(
        versions.save(people.workspace, json.dumps(policy("MANUAL")), by=None), by=None
    )
    return people


def measure(running: Desk, steps: int) -> dict[str, float]:
    people = set_up()
    from approvals import inbox
    from approvals.models import Approval
    from bench.generate import cookie_of
    from recovery.models import Case
    from recovery.planning import plans
    from recovery.triage import triage

    running.start_web()
    running.start_worker(concurrency=1)
    fail(people.agents[0], "long", steps)
    triage.look()
    case = Case.objects.get(run__run="long")
    found: dict[str, float] = {}
    begun = time.monotonic()
    draft = plans.draft(case)
    found["unwind_preview_s"] = time.monotonic() - begun
    begun = time.monotonic()
    plan = plans.submit(
        case, digest=draft.digest, revision=draft.case.revision, by=people.ada, reason="bench"
    )
    found["unwind_submit_s"] = time.monotonic() - begun
    begun = time.monotonic()
    assert plan.approval_id is not None
    approval = Approval.objects.get(pk=plan.approval_id)
    inbox.grant(approval, by=people.ben, seen=approval.digest, reason="bench")
    found["unwind_approve_s"] = time.monotonic() - begun
    finish(running.database_url, [plan.pk], started=time.time())
    with psycopg.connect(running.database_url) as connection:
        ends = [float(end) for (end,) in connection.execute(ENDS, [plan.pk])]
    gaps = [1_000 * (later - earlier) for earlier, later in itertools.pairwise(ends)]
    quarter = len(gaps) // 4
    first, last = statistics.median(gaps[:quarter]), statistics.median(gaps[-quarter:])
    found |= {"unwind_step_ms": statistics.median(gaps), "unwind_growth": last / first}
    ada = Browser(running.url, cookie_of(people.ada))
    page = f"/w/{people.workspace.slug}/cases/{case.pk}/"
    ada.took(page)
    milliseconds, body = ada.fetched(page)
    found |= {"unwind_page_s": milliseconds / 1_000, "unwind_page_kib": len(body) / 1024}
    return {name: round(value, 2) for name, value in found.items()}


def main() -> None:
    running = own()
    try:
        print(json.dumps(measure(running, 100 if "--small" in sys.argv else STEPS)))
    finally:
        running.stop()


if __name__ == "__main__":
    main()
