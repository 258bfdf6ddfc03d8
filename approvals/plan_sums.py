"""What the steps of a recovery plan add to the sums and counts of rules.

A plan holds what all its steps add from the moment on at which people have approved it, or it is
submitted where nobody has to be asked: in that same transaction, under the same meters as calls of
the tool `connection.operation`. It is written into the tallies that a call reads
(`approvals.tallies`), so that a call looks up nothing more because of plans, and one that has read
a tally meanwhile reads it anew.

A step that ends without an effect releases what it held, and whoever ends it says so: the desk
makes the step, so nothing has to be looked up. The rows of an ended plan go, and what it did stays
in the sums until their windows are over.
"""

from collections.abc import Iterable, Iterator, Sequence

from django.db import connection

from amends.protocol.vocabulary import ActionClass
from approvals import tallies
from approvals.models import Approval
from approvals.policy import Policy, ToolCall, active, lookups
from approvals.policy.conditions import COUNTING
from approvals.tallies import Account, Meter, TallyOwner, meter_of
from ledger import drivers
from ledger.append.statements import Statement, array
from ledger.models import Run
from workspaces.clock import database_time
from workspaces.locks import ROW_LOCK

NO_AGENT = 0
"""Whose rows these are: no agent begins a call under the same key."""

# Under the locks of their tallies (`tallies.lock`); what a plan holds already is not added again.
HOLD = """
WITH held AS (
    INSERT INTO approvals_reservation
        (tally_id, agent_id, key, run_ref, action, bucket, amount, held, at)
    SELECT t.id, %b, u.key, %b, '', u.bucket, u.amount, true, clock_timestamp()
    FROM unnest(%b::text[], %b::text[], %b::text[], %b::bigint[], %b::numeric[])
        AS u (key, meter, subject, bucket, amount)
    JOIN approvals_tally t
        ON t.workspace_id = %b AND t.meter = u.meter AND t.subject = u.subject
    ON CONFLICT (tally_id, agent_id, key) DO NOTHING
    RETURNING tally_id, bucket, amount
), added AS (SELECT tally_id, bucket, sum(amount) AS amount FROM held GROUP BY tally_id, bucket)
UPDATE approvals_tally t SET touched_at = clock_timestamp(), buckets = t.buckets
    || jsonb_build_object(a.bucket::text,
        (coalesce((t.buckets ->> a.bucket::text)::numeric, 0) + a.amount)::text)
FROM added a WHERE t.id = a.tally_id"""

# In the order in which everybody locks tallies.
LOCK_HELD = f"""
SELECT t.id FROM approvals_tally t WHERE t.id IN (
    SELECT r.tally_id FROM approvals_reservation r
    WHERE r.action = '' AND r.run_ref = %b AND r.key = ANY(%b::text[]))
ORDER BY t.meter, t.subject {ROW_LOCK}"""  # noqa: S608 - our own words
RELEASE = """
WITH freed AS (
    DELETE FROM approvals_reservation r
    WHERE r.action = '' AND r.run_ref = %b AND r.key = ANY(%b::text[])
    RETURNING r.tally_id, r.bucket, r.amount
), less AS (SELECT tally_id, bucket, sum(amount) AS amount FROM freed GROUP BY tally_id, bucket)
UPDATE approvals_tally t SET touched_at = clock_timestamp(), buckets = t.buckets
    || jsonb_build_object(l.bucket::text,
        ((t.buckets ->> l.bucket::text)::numeric - l.amount)::text)
FROM less l WHERE t.id = l.tally_id AND t.buckets ? l.bucket::text"""
SETTLE = "DELETE FROM approvals_reservation r WHERE r.action = '' AND r.run_ref = %b"


def hold_approved(approval: Approval) -> None:
    """Hold what the steps of the plan add that people have just approved. Raises PolicyUnreadable
    where the policy in force cannot be read.
    """
    if approval.plan_id is not None:
        runs = Run.objects.filter(workspace=approval.workspace_id, run=approval.run_ref)
        hold(approval.workspace_id, approval.plan_id, steps_of(approval), run=runs.first())


def steps_of(approval: Approval) -> list[ToolCall]:
    """The calls of a plan that people are asked about, as the policy sees them. Their class stands
    in their previews; those that were asked about by an older version have none there.
    """
    found = []
    for place, call in enumerate(approval.calls):
        shown = approval.previews[place] if place < len(approval.previews) else {}
        found.append(
            ToolCall(
                tool=f"{call['connection']}.{call['operation']}",
                args=call.get("args"),
                targets=[{"type": call.get("target_type", ""), "id": call.get("target_id", "")}],
                action_class=shown.get("action_class") or ActionClass.EXTERNAL_REVERSIBLE,
                is_step=True,
            )
        )
    return found


def hold(
    workspace_id: int, plan_id: int, tool_calls: Sequence[ToolCall], *, run: Run | None
) -> None:
    """Hold what these steps of a plan add, in their order, on the account of the `run` that they
    compensate; in the transaction in which they may run. Raises PolicyUnreadable.
    """
    policy = active(workspace_id)
    found = [
        (place, meter)
        for place, tool_call in enumerate(tool_calls, 1)
        for meter in _meters(policy, tool_call, run)
    ]
    if not found:
        return
    meters = {(one.meter, subject): one for _, one in found for subject in one.subjects}
    caller = TallyOwner(workspace_id, NO_AGENT, _name(plan_id))
    rows = [
        (_key(plan_id, place), one, subject) for place, one in found for subject in one.subjects
    ]
    now = database_time()
    held = [
        NO_AGENT, _name(plan_id),
        array(key for key, _, _ in rows),
        array(one.meter for _, one, _ in rows),
        array(subject for _, _, subject in rows),
        array(one.bucket(now) for _, one, _ in rows),
        array(str(one.amount) for _, one, _ in rows),
        workspace_id,
    ]  # fmt: skip
    locks = tallies.lock(caller, _once(meters))
    _carry_out([locks, (HOLD, held)])


def release(plan_id: int, places: Iterable[int]) -> None:
    """Steps of the plan, by their positions, end without an effect; harmless to repeat."""
    named = [_name(plan_id), array(_key(plan_id, place) for place in places)]
    _carry_out([(LOCK_HELD, named), (RELEASE, named)])


def settle(plan_id: int) -> None:
    """All steps of the plan have ended: what is still held has had its effect, and stays."""
    _carry_out([(SETTLE, [_name(plan_id)])])


def _carry_out(statements: Sequence[Statement]) -> None:
    """Raises Django's errors, by which a database that is away is known."""
    with connection.wrap_database_errors:
        drivers.execute(drivers.plain_connection(), statements)


def _meters(policy: Policy, tool_call: ToolCall, run: Run | None) -> Iterator[Meter]:
    """What the rules count of a step; what cannot be told is left out, as people have seen it."""
    asked = [one for one in lookups(policy, tool_call) if one.function in COUNTING]
    if not asked:  # as nearly always, a thousand times
        return
    disagrees = run is None or "disagree:on_behalf_of" in run.flags
    account = Account(
        agent_id=(run.agent_id if run else None) or NO_AGENT,
        tool=tool_call.tool,
        run=run.run if run else "",
        person="" if run is None or disagrees else run.customer,
        targets=tool_call.targets,
    )
    for lookup in asked:
        meter = meter_of(lookup, account, tool_call.facts())
        if meter is not None:
            yield meter


def _once(meters: dict[tuple[str, str], Meter]) -> list[Meter]:
    """Each tally once, whatever number of steps adds to it."""
    return [Meter(name, [subject], one.amount, one.window_seconds)
            for (name, subject), one in meters.items()]  # fmt: skip


def _name(plan_id: int) -> str:
    return f"plan {plan_id}"


def _key(plan_id: int, place: int) -> str:
    return f"plan {plan_id} step {place}"
