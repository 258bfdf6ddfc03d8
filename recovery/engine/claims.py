"""Claims: taking a step in hand for a while, and taking it back from a worker that is gone.

A claim is a lease by the database's clock and a fencing token that rises with every claim. What a
worker that was paused for longer than its lease writes afterwards finds another fence, and is
refused.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q

from approvals import pauses
from approvals.models import Pause
from connectors import breaker, calls
from connectors.contract import Refused
from connectors.shapes import LIMIT_SECONDS_MAX
from ledger import desk_events
from ledger.desk_events import EventDraft
from ledger.parsed_events import ParsedEvent
from recovery.engine import faults, steps
from recovery.engine.ordering_law import IN_HAND
from recovery.engine.reading import copied
from recovery.engine.sql import LEASE_OVER, PLAN_RUNS, ask, ask_all, in_seconds
from recovery.models import Step, StepState
from workspaces.clock import boot_seconds
from workspaces.moves import CannotMove

# Waiting: a step whose turn it is, and whose target is in other hands.

SECONDS = 2.0
"""Until a step that found its target in other hands, or a pause, looks again."""


def for_the_other(step: Step) -> None:
    """Let it look again in a while, and say for whom it waits."""
    other = (
        Step.objects.filter(
            workspace_id=step.workspace_id,
            target_type=step.target_type,
            target_id=step.target_id,
        )
        .exclude(plan_id=step.plan_id)
        .filter(
            Q(state__in=["claimed", "intended", "unknown", "applied"])
            | Q(state="needs_human", was="unknown")
        )
        .select_related("plan")
        .first()
    )
    if other is not None:
        steps.put_off(step, SECONDS, note=f"Waits for case {other.plan.case_id}")


logger = logging.getLogger(__name__)

CLAIMS_MAX = 5
"""A step that takes its worker down with it must not take all of them."""

MARGIN_SECONDS = 5.0
"""What a claim lasts beyond one read and one call at their limits."""

UNCLAIMED = frozenset({StepState.BLOCKED, StepState.READY})


@dataclass(frozen=True)
class ClaimedStep:
    """A step in our hands, until `ends_at` by this process's own clock (never later than the
    lease).
    """

    step: Step
    ends_at: float


def lease_seconds(step: Step) -> float:
    """Long enough for a read and the call; a connector that is gone gets the longest."""
    try:
        limit = calls.operation_of(step.connection, step.operation).limit_seconds
    except Refused:
        limit = LIMIT_SECONDS_MAX
    return 2 * (limit + calls.GRACE_SECONDS) + MARGIN_SECONDS


def claim_each(wanted: Sequence[Step]) -> list[ClaimedStep]:
    """Take what can be taken of steps of different plans, in a transaction of its own.

    A partial unique index may refuse one (another plan has a step on this target, and was faster
    than our look): then they are taken one by one.
    """
    try:
        with transaction.atomic():
            held = claim_all(wanted)
    except IntegrityError:
        if len(wanted) == 1:
            _clashed(steps.load(wanted[0].pk))
            return []
        return [held for step in wanted for held in claim_each([steps.load(step.pk)])]
    passed(held)
    return held


def _clashed(step: Step) -> None:
    """Another step is in the way: one on its target, or one of its own plan, whose turn it was
    before a person let a newer one try again. The law names the newer one, so nobody else would
    notice that the older one's worker is gone."""
    in_hand = Step.objects.filter(plan_id=step.plan_id, state__in=IN_HAND).exclude(pk=step.pk)
    sibling = in_hand.values_list("pk", flat=True).first()
    if sibling is None:
        for_the_other(step)
    elif not take_back(sibling):  # its worker is still there, or somebody else takes it back
        steps.put_off(step, SECONDS, note="Waits for another step of its plan.")


def passed(held: Sequence[ClaimedStep]) -> None:
    """The claims are committed."""
    for _ in held:
        faults.point("claimed")


# Blocked steps become ready and claimed in one go: both moves are told. Whoever has the row in hand
# has won, so nobody waits for it. A target that another plan is at work on is left alone.
CLAIM_SQL = f"""
UPDATE recovery_step SET was = 'ready', state = 'claimed', moved_at = clock_timestamp(), note = '',
    fence = recovery_step.fence + 1, claims = claims + 1, wake_at = NULL,
    lease_until = clock_timestamp() + u.seconds * interval '1 second'
FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::float8[]) AS u (id, fence, state, seconds)
WHERE recovery_step.id = u.id AND recovery_step.state = u.state AND recovery_step.fence = u.fence
    AND recovery_step.id IN (
        SELECT id FROM recovery_step WHERE id = ANY(%s::bigint[]) FOR UPDATE SKIP LOCKED)
    AND (wake_at IS NULL OR wake_at <= clock_timestamp())
    AND {PLAN_RUNS.text}
    AND NOT EXISTS (
        SELECT FROM recovery_step o
        WHERE o.workspace_id = recovery_step.workspace_id
        AND o.target_type = recovery_step.target_type AND o.target_id = recovery_step.target_id
        AND o.id <> recovery_step.id
        AND (o.state IN ('claimed', 'intended', 'unknown', 'applied')
             OR (o.state = 'needs_human' AND o.was = 'unknown')))
RETURNING recovery_step.id
"""  # noqa: S608

# Close to its bound, the claims of a connection are made one after the other: whoever counts sees
# what those before it have committed. The lock ends with the claim's transaction.
ONE_BY_ONE_SQL = "SELECT pg_advisory_xact_lock(%s::int, %s::int)"
LOCK = 0xC1A1
AT_ONCE_MAX = 32
"""More workers than that do not claim over one connection in the same moment."""


def claim_all(wanted: Sequence[Step]) -> list[ClaimedStep]:
    """The same within the caller's transaction; raises IntegrityError. Afterwards, `passed`."""
    first = _one_of_each_target(wanted)
    free = _allowed([step for step in first if step.state in UNCLAIMED])
    held, told = _taken(free) if free else ([], [])
    mine = {one.step.pk for one in held}
    goes = {step.pk for step in first}
    second = [step for step in wanted if step.pk not in goes]
    for step in (*second, *(step for step in free if step.pk not in mine)):
        for_the_other(step)
    if told:
        desk_events.note_all(held[0].step.workspace, told)
    return [one for one in held if not _claimed_too_often(one.step)]


def _taken(free: Sequence[Step]) -> tuple[list[ClaimedStep], list[ParsedEvent]]:
    """Those that are ours now, and what is to be told of them."""
    mine = [copied(step) for step in free]
    leases = {step.pk: lease_seconds(step) for step in free}
    told: dict[int, list[ParsedEvent]] = {}
    ids = [step.pk for step in free]
    values = [
        ids,
        [one.fence for one in free],
        [one.state for one in free],
        [*leases.values()],
        ids,
    ]

    def tell() -> None:
        told.update(steps.read(mine, lambda step: _claimed(step, leases[step.pk])))

    begun = boot_seconds()  # read before the database does, so never too late
    (rows,) = ask_all([(CLAIM_SQL, values)], tell)
    taken = {pk for (pk,) in rows}
    held = [ClaimedStep(step, begun + leases[step.pk]) for step in mine if step.pk in taken]
    return held, [said for one in held for said in told[one.step.pk]]


def _claimed(step: Step, seconds: float) -> list[EventDraft]:
    """Bring the step to what the claim has made of it; its events."""
    told = []
    if step.state == StepState.BLOCKED:
        told.append(steps.saying(step, StepState.READY, {"was": step.state, "note": ""}))
    step.was, step.state = StepState.READY, StepState.CLAIMED
    # A whole number as one: of others the canonical form takes long to write.
    lease = int(seconds) if seconds.is_integer() else seconds
    said = {"was": step.was, "note": "", "lease_seconds": lease}
    told.append(steps.saying(step, step.state, said))
    step.told = () if step.fence == 0 else None
    step.fence += 1
    step.claims += 1
    return told


def _claimed_too_often(step: Step) -> bool:
    if step.claims <= CLAIMS_MAX:
        return False
    needs_human(step, f"Claimed {CLAIMS_MAX} times, and never came to an end.")
    return True


def _one_of_each_target(wanted: Sequence[Step]) -> list[Step]:
    """Two steps on one target are for two goes."""
    return list({(one.target_type, one.target_id): one for one in reversed(wanted)}.values())[::-1]


BUSY_SQL = """
SELECT c.id,
    EXISTS (SELECT FROM approvals_pause WHERE workspace_id = c.workspace_id AND lifted_at IS NULL),
    (SELECT count(*) FROM recovery_step
     WHERE state IN ('claimed', 'intended') AND connection_id = c.id)
FROM connectors_connection c WHERE c.id = ANY(%s::bigint[])
"""


def _allowed(wanted: Sequence[Step]) -> list[Step]:
    """Those that need not wait: for a pause to be lifted, or for their system."""
    concurrency = {step.connection_id: step.connection.concurrency for step in wanted}
    busy = _busy(concurrency)
    close = [pk for pk, most in concurrency.items() if busy[pk][1] + AT_ONCE_MAX > most]
    for pk in sorted(close):
        ask(ONE_BY_ONE_SQL, [LOCK, pk])
    if close:
        busy = _busy(concurrency)
    allowed = []
    for step in wanted:
        paused, in_hand = busy[step.connection_id]
        if not _must_wait(step, in_hand, paused=paused):
            busy[step.connection_id] = paused, in_hand + 1
            allowed.append(step)
    return allowed


def _busy(connections: Collection[int]) -> dict[int, tuple[bool, int]]:
    """Of each connection whether there is a pause, and how many steps over it are in hand."""
    found = ask(BUSY_SQL, [list(connections)])
    return {pk: (paused, count) for pk, paused, count in found}


def _must_wait(step: Step, in_hand: int, *, paused: bool) -> bool:
    """Whether it is paused, or its system is left alone just now or has enough calls in hand."""
    pause = pause_of(step) if paused else None
    if pause is not None:
        steps.put_off(step, SECONDS, note=f"Paused: {pause.reason}")
        return True
    connection = step.connection
    if connection.open_until is None and in_hand < connection.concurrency:
        return False
    wait = breaker.may_call(connection, under_way=in_hand)
    if wait is not None:
        steps.put_off(step, wait.seconds, note=wait.reason)
    return wait is not None


def pause_of(step: Step) -> Pause | None:
    """The pause that stands in the way of the step, if any."""
    return pauses.standing(
        step.workspace_id,
        tool=f"{step.connection.name}.{step.operation}",
        connection=step.connection.name,
    )


def needs_human(step: Step, why: str, **changes: Any) -> None:
    """Give the step to people, and say so; the caller holds the transaction."""
    steps.move(step, StepState.NEEDS_HUMAN, note=why, lease_until=None, wake_at=None, **changes)
    steps.step_needs_a_person(step, why)


def take_back(step_id: int) -> bool:
    """Take a step from a worker whose lease is over; False if it is not, or somebody was faster."""
    step = steps.load(step_id)
    try:
        with transaction.atomic():
            if step.state == StepState.CLAIMED:
                _take_back_claimed(step)
            elif step.state == StepState.INTENDED:
                _take_back_intended(step)
            else:
                return False
    except CannotMove:
        return False
    return True


def _take_back_claimed(step: Step) -> None:
    """Nothing was sent, for nothing was intended."""
    if step.claims >= CLAIMS_MAX:
        needs_human(step, f"Its worker was lost {step.claims} times.", where=[LEASE_OVER])
    else:
        steps.move(
            step,
            StepState.READY,
            where=[LEASE_OVER],
            note="The worker was lost before anything was sent.",
            lease_until=None,
        )


def _take_back_intended(step: Step) -> None:
    """The call may have left until the end of the lease, so the horizon counts from here."""
    horizon = 0.0
    try:
        horizon = calls.operation_of(step.connection, step.operation).horizon_seconds
    except Refused:
        logger.warning("%s of a connector that is gone", step)
    steps.move(
        step,
        StepState.UNKNOWN,
        where=[LEASE_OVER],
        note="The worker was lost; the call may have left.",
        lease_until=None,
        wake_at=in_seconds(horizon),
    )
