"""How long after a person's yes the connector is called, through web, broker and worker.

    python -m bench approve

gives `approve_to_call_p95_ms`: from the moment in which the decision is posted to the one in which
the connector is called, with the intent committed between them. No sweeper runs, so each one came
by its message.
"""

import json
import sys
import time
from typing import Any

import psycopg

from bench.asking import Browser, p95
from bench.servers import Desk, own
from bench.steps import fail, policy

DECISIONS = 60
CALL_SECONDS_MAX = 30.0
CALLED = """
SELECT extract(epoch FROM at) - milliseconds / 1000.0 FROM connectors_calllog
WHERE method = 'apply' AND target = %s
"""


def set_up() -> Any:
    import django

    django.setup()
    from approvals import versions
    from bench.generate import cast
    from connectors import connections

    people = cast()
    connections.create(people.workspace, "noop", "noop", {}, by=None)
    document = json.dumps(policy(approval="MANUAL"))
    versions.activate(versions.save(people.workspace, document, by=None), by=None)
    return people


def question(people: Any, name: str) -> Any:
    """A plan of one step that Ada submitted, and what Ben is asked."""
    from approvals.models import Approval
    from recovery.models import Case, Plan
    from recovery.planning import plans
    from recovery.triage import triage

    fail(people.agents[0], name, 1)
    triage.look()
    case = Case.objects.get(run__run=name)
    draft = plans.draft(case)
    plan = plans.submit(
        case, digest=draft.digest, revision=draft.case.revision, by=people.ada, reason="bench"
    )
    return Approval.objects.get(pk=Plan.objects.get(pk=plan.pk).approval_id or 0)


def waited(database: Any, ben: Browser, approval: Any, name: str) -> float:
    """Milliseconds from the post to the call, by the clock of this one machine."""
    path = f"/w/{approval.workspace.slug}/approvals/{approval.pk}/decide/"
    posted = time.time()
    ben.post(path, {"decision": "grant", "digest": approval.digest, "reason": "bench"})
    while True:
        called = database.execute(CALLED, [f"thing/{name}-0"]).fetchone()
        if called is not None:
            return 1_000 * (float(called[0]) - posted)
        assert time.time() - posted < CALL_SECONDS_MAX, f"{name} was approved and not called"
        time.sleep(0.01)


def measure(running: Desk, decisions: int) -> dict[str, float]:
    people = set_up()
    from bench.generate import cookie_of

    running.start_web()
    running.start_worker()
    ben = Browser(running.url, cookie_of(people.ben))
    names = [f"approve-{number}" for number in range(decisions + 5)]
    with psycopg.connect(running.database_url, autocommit=True) as database:
        found = [waited(database, ben, question(people, name), name) for name in names]
    found = sorted(found[5:])  # the first ones make connections and prepare statements
    return {
        "approve_to_call_p95_ms": round(p95(found), 1),
        "approve_to_call_median_ms": round(found[len(found) // 2], 1),
    }


def main() -> None:
    running = own()
    try:
        print(json.dumps(measure(running, 10 if "--small" in sys.argv else DECISIONS)))
    finally:
        running.stop()


if __name__ == "__main__":
    main()
