"""Running plans: one function does whatever can be done for a plan now.

`run_together` is idempotent: a task, the sweeper and a decision may all ask for it, at once and as
often as they like. PostgreSQL is the truth, a message only a hint.

It takes other plans along that wait for the same connectors: their steps share their commits (see
`step_batch`). A plan at which the engine itself fails leaves the others alone; it is told to
people, and tried again by the next hint.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from django.db import IntegrityError, transaction

from connectors import registry
from recovery.engine import (
    failure_paths,
    ordering_law,
    plan_lifecycle,
    preconditions,
    protocol,
    step_batch,
    steps,
)
from recovery.engine.ordering_law import NextAction, PlanAction
from recovery.engine.preconditions import LOOK_AGAIN_SECONDS
from recovery.engine.protocol import ClaimedStep
from recovery.engine.queries import WAITING_SQL, StepReader, ask
from recovery.engine.step_batch import StepBatch
from recovery.models import Step
from recovery.models.plans import IN_HAND
from workspaces import wakeups
from workspaces.moves import CannotMove
from workspaces.replica import DATABASE_AWAY
from workspaces.wakeups import ENGINE_QUEUE, connector_of_queue, connector_queue

logger = logging.getLogger(__name__)

# In which queue a plan goes on.


def queue_of_connector(name: str) -> str:
    """The queue of a connector; one that is not installed has none, so its plans end in ours."""
    return connector_queue(name) if name in registry.registry().connectors else ENGINE_QUEUE


def queue_of_plan(plan_id: int) -> str:
    """Where a plan's first call is made: it may start there, too, which saves a message."""
    steps = Step.objects.filter(plan=plan_id).order_by("position")
    connector = steps.values_list("connection__connector", flat=True).first()
    return ENGINE_QUEUE if connector is None else queue_of_connector(connector)


# Batching: which other plans a worker takes along, so that their steps share its commits.
#
# They are of one workspace and wait for the same connectors. Only half of those that wait are
# taken, for other workers want some, too. A step that was claimed before and never came to an end
# may be one that takes its worker down: it goes alone, so that it takes nobody else with it again.

CAPACITY = 32
"""Plans in one worker's hands; beyond that a commit is shared by enough."""

LOOK_SECONDS = 0.25
"""Between two looks for more plans while none was found."""


class PlanBatcher:
    """Finds further plans for the batch of one plan, in a worker of one queue."""

    def __init__(self, plan_id: int, queue: str, capacity: int) -> None:
        self.is_closed = capacity == 1 or queue in {"", ENGINE_QUEUE}
        self._plan_id = plan_id
        self._connector = connector_of_queue(queue)
        self._capacity = capacity
        self._look_at = 0.0
        self.given_up: set[int] = set()
        """Plans at which the engine failed: they wait as before, and would be taken at once, and
        fail again, for as long as we go on.
        """

    def more_plans(self, present: Collection[int]) -> list[int]:
        """Plans to take into the batch now."""
        free = self._capacity - len(present)
        if self.is_closed or free <= 0 or time.monotonic() < self._look_at:
            return []
        values = [[*present, *self.given_up], self._plan_id, self._connector, 2 * free]
        waiting = ask(WAITING_SQL, values)
        half = (len(waiting) + 1) // 2
        taken = [
            pk
            for others, (pk, concurrency) in enumerate(waiting[:half], len(present))
            if others < concurrency
        ]
        if not taken:
            self._look_at = time.monotonic() + LOOK_SECONDS
        return taken


CHAIN_SECONDS = 20.0
"""How long one task works on one plan, so that many plans share few workers."""

TOGETHER_SECONDS = 0.03
"""How long a plan waits for its next turn until the others of its batch are ready for theirs."""

END_SECONDS = 1.0
"""How long a plan's end may wait for steps of others whose calls are quick."""

Continuations = dict[int, str]
"""Plans to go on with at once, and in which queue."""


def run_together(plan_id: int, *, queue: str) -> Continuations:
    """Do what can be done now for a plan and those batched with it; returns for each that can go on
    at once in which queue. A failure is logged, and the people of its plan are told.

    `queue` is the one whose worker we are: calls to other connectors than its own are left to
    theirs. Without one, everything is done here.
    """
    return PlanRunner(plan_id, queue, capacity=CAPACITY).go()


class PlanRunner:
    """Takes a plan, and those batched with it, as far as they go now."""

    def __init__(self, plan_id: int, queue: str, *, capacity: int) -> None:
        self._queue = queue
        self._batcher = PlanBatcher(plan_id, queue, capacity)
        self._batch = StepBatch()
        self._reader = StepReader()
        self._plans = {plan_id}
        self._waiting = [plan_id]
        self._finishing: list[tuple[NextAction, float]] = []
        self._continuations: Continuations = {}
        self._since: float | None = None
        self._until = time.monotonic() + CHAIN_SECONDS

    def go(self) -> Continuations:
        """Go on until nothing moves, or our time is over."""
        batch = self._batch
        try:
            self._batcher.is_closed |= not all(
                map(_may_be_batched, ordering_law.next_actions(self._waiting))
            )
            self._take_in()
            while self._has_work:
                if wakeups.is_draining():
                    self._drain()
                    break
                if self._is_time():
                    self._act_or_wait(self._end_and_claim())
                while self._finishing and self._may_end:
                    self._act(self._finishing.pop(0)[0])
                batch.go_on(self._patience)
                self._take_in()
            batch.close()
        except DATABASE_AWAY:
            batch.disperse()
            raise
        return self._continuations

    def _drain(self) -> None:
        """Our process was told to end: nothing is taken up, and all our plans go on elsewhere."""
        self._continuations |= dict.fromkeys(self._plans, self._queue or ENGINE_QUEUE)
        self._batch.drain()
        if self._batch.ending:
            self._end_and_claim()  # our time is over, so nothing is claimed

    @property
    def _has_work(self) -> bool:
        batch = self._batch
        return bool(self._waiting or self._finishing or batch.ending or batch.is_under_way)

    @property
    def _may_end(self) -> bool:
        """Whether a plan may be ended now. That takes as long as a step of ten others, so it is
        done while their calls are on the wire; quick calls are waited for, up to END_SECONDS.
        """
        since = self._finishing[0][1]
        is_due = not self._batch.is_quick or time.monotonic() - since > END_SECONDS
        return is_due and not self._batch.has_answers

    @property
    def _patience(self) -> float:
        """For how many seconds to wait for an answer: a call that was quick the last time may hang,
        and neither waiting plans nor the ends of plans must wait for it.
        """
        if self._waiting or self._batch.ending:
            return TOGETHER_SECONDS
        return END_SECONDS if self._finishing else float("inf")

    @property
    def _is_over(self) -> bool:
        return wakeups.is_draining() or time.monotonic() > self._until

    def _act_or_wait(self, others: list[NextAction]) -> None:
        """Acts of another kind than a step's; the end of a plan waits for its moment."""
        for action in others:
            if action.act == PlanAction.FINISH:
                self._finishing.append((action, time.monotonic()))
            elif self._act(action):
                self._waiting.append(action.plan_id)
                continue
            self._plans.discard(action.plan_id)

    def _is_time(self) -> bool:
        """Whether waiting plans go on now, or wait a moment for the others of the batch: a commit
        is shared only by those that need it at the same time.
        """
        if not (self._waiting or self._batch.ending):
            self._since = None
            return False
        now = time.monotonic()
        self._since = self._since or now
        is_time = not self._batch.is_under_way or now - self._since > TOGETHER_SECONDS
        if is_time:
            self._since = None
        return is_time

    def _end_and_claim(self) -> list[NextAction]:
        """End what has come to its end and claim what follows, in one transaction, so that a plan
        which goes on is never seen between two steps. Gives what is to be done of another kind.
        """
        batch = self._batch
        began = time.time()
        plans = self._waiting + [one.step.plan_id for one in batch.ending]
        self._waiting = []
        try:
            with transaction.atomic():
                batch.end()
                wanted, others = self._split(plans)
                held = protocol.claim_all(self._reader.read(wanted)) if wanted else []
        except DATABASE_AWAY:
            raise
        except Exception as clash:  # noqa: BLE001 - mostly one of the targets is in other hands
            logger.info("%d plans go on one by one: %s", len(plans), type(clash).__name__)
            held, others = self._end_and_claim_each(plans)
        else:
            batch.ending.clear()
            protocol.claims_committed(held)
        batch.take(held)
        step_batch.record_spans("claim", began, (one.step for one in held))
        going = {one.step.plan_id for one in held} | {action.plan_id for action in others}
        self._plans -= set(plans) - going
        return others

    def _end_and_claim_each(
        self, plans: Sequence[int]
    ) -> tuple[list[ClaimedStep], list[NextAction]]:
        """The same in transactions of their own, for what was not to be done in one."""
        ending = {one.step.plan_id for one in self._batch.ending}
        ended = {step.plan_id for step in self._batch.end_each()}
        held: list[ClaimedStep] = []
        others: list[NextAction] = []
        for plan_id in plans:
            if plan_id in ending - ended:
                continue
            with self._blaming(plan_id):
                wanted, mine = self._split([plan_id])
                held += claim_each(self._reader.read(wanted)) if wanted else []
                others += mine
        return held, others

    def _act(self, action: NextAction) -> bool:
        """One act of a plan; False if nothing moved, or we failed at it."""
        moved = False
        with self._blaming(action.plan_id):
            act = ACTS.get(action.act)
            moved = act is not None and act(action)
        return moved  # noqa: RET504 - where it failed, we come here, too

    @contextmanager
    def _blaming(self, plan_id: int) -> Iterator[None]:
        """Where this fails, this plan is given up here, and the others go on."""
        try:
            yield
        except DATABASE_AWAY:
            raise
        except Exception as failure:  # noqa: BLE001 - whatever it is, it is told of this plan alone
            self._fail(plan_id, failure)

    def _fail(self, plan_id: int, failure: Exception) -> None:
        logger.error("The engine fails at plan %d.", plan_id, exc_info=failure)
        self._plans.discard(plan_id)
        self._batcher.given_up.add(plan_id)
        self._continuations.pop(plan_id, None)
        steps.plan_fails(plan_id, failure)

    def _split(self, plans: list[int]) -> tuple[list[int], list[NextAction]]:
        """The steps that are to be run now, and the actions of another kind."""
        if self._is_over:
            self._continuations |= dict.fromkeys(plans, self._queue or ENGINE_QUEUE)
            return [], []
        run, others = [], []
        for action in ordering_law.next_actions(plans):
            wanted = queue_of_connector(action.connector) if action.act in CALLS else ""
            if wanted and self._queue not in {"", wanted}:
                self._continuations[action.plan_id] = wanted
            elif action.act != PlanAction.RUN:
                others.append(action)
            elif not action.claims or self._goes_alone(action):
                run.append(action.step)
        return run, others

    def _goes_alone(self, action: NextAction) -> bool:
        """Whether a step that was lost before has nobody beside it; else it goes on by itself."""
        if self._plans == {action.plan_id} and self._batcher.is_closed:
            return True
        self._continuations[action.plan_id] = self._queue
        return False

    def _take_in(self) -> None:
        """Plans whose step moved go on, those at which we failed do not, and more plans take the
        room that is free.
        """
        for step, failure in self._batch.failed:
            self._fail(step.plan_id, failure)
        self._batch.failed.clear()
        for step, moved in self._batch.rested:
            if moved:
                self._waiting.append(step.plan_id)
            else:
                self._plans.discard(step.plan_id)
        self._batch.rested.clear()
        if self._is_over:  # whoever was given on would be met again, and given on, without end
            return
        added = self._batcher.more_plans(self._plans)
        self._plans |= set(added)
        self._waiting += added


def _may_be_batched(action: NextAction) -> bool:
    """Not a plan that has to be probed or reclaimed, nor one whose step lost a worker before."""
    return action.act in {PlanAction.START, PlanAction.RUN} and not action.claims


def claim_each(wanted: Sequence[Step]) -> list[ClaimedStep]:
    """Take what can be taken of steps of different plans, in a transaction of its own.

    A partial unique index may refuse one (another plan has a step on this target, and was faster
    than our look): then they are taken one by one.
    """
    try:
        with transaction.atomic():
            held = protocol.claim_all(wanted)
    except IntegrityError:
        if len(wanted) == 1:
            _clashed(steps.load(wanted[0].pk))
            return []
        return [held for step in wanted for held in claim_each([steps.load(step.pk)])]
    protocol.claims_committed(held)
    return held


def _clashed(step: Step) -> None:
    """Another step is in the way: one on its target, or one of its own plan, whose turn it was
    before a person let a newer one try again. The law names the newer one, so nobody else would
    notice that the older one's worker is gone."""
    in_hand = Step.objects.filter(plan_id=step.plan_id, state__in=IN_HAND).exclude(pk=step.pk)
    sibling = in_hand.values_list("pk", flat=True).first()
    if sibling is None:
        preconditions.wait_for_the_other(step)
    # Else its worker is still there, or somebody else takes it back.
    elif not failure_paths.reclaim(sibling):
        steps.put_off(step, LOOK_AGAIN_SECONDS, note="Waits for another step of its plan.")


def _cancel(action: NextAction) -> bool:
    step = steps.load(action.step)
    try:
        with transaction.atomic():
            if steps.cancel_or_ask(step, note="The plan was stopped."):
                steps.release_sums([step])
    except CannotMove:
        return False
    return True


# Acts that talk to the outside world: done by a worker of the connector's queue.
CALLS: Final = frozenset({PlanAction.RUN, PlanAction.PROBE, PlanAction.VERIFY})


# What follows from the ordering law; each says whether anything moved, so that the plan goes on.
ACTS: Final[Mapping[PlanAction, Callable[[NextAction], bool]]] = MappingProxyType(
    {
        PlanAction.START: lambda action: plan_lifecycle.start(action.plan_id),
        PlanAction.PROBE: lambda action: failure_paths.probe(action.step),
        PlanAction.VERIFY: lambda action: failure_paths.verify(action.step),
        PlanAction.RECLAIM: lambda action: failure_paths.reclaim(action.step),
        PlanAction.CANCEL: _cancel,
        PlanAction.PEOPLE: lambda action: plan_lifecycle.wait_for_people(action.plan_id),
        PlanAction.FINISH: lambda action: plan_lifecycle.finish(action.plan_id),
    }
)
