"""Batches: the steps of several plans, taken through the protocol side by side.

Each step goes through claim · check · intend · act · settle · verify by itself, with a commit after
each that writes. Steps that move at the same moment share a transaction, so thirty of them cost one
commit instead of thirty. While a call is on the wire the others go on, so a slow system holds up
only its own steps.

A step that cannot go on as usual leaves the batch by one of `failure_paths`. Where the engine
itself fails at a step, the others are committed one by one without it, and it waits for the end of
its lease as if its worker were gone.
"""

import logging
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from django.db import connection, transaction

from connectors import calls
from connectors.call_pool import QUICK_SECONDS, Answers, CallPool, OutboundCall
from connectors.calllog import Log
from connectors.contract import Answer, CannotRead, Check, Observation, Operation
from edge import tracing
from recovery.engine import failure_paths, faults, outbound_calls, preconditions, protocol
from recovery.engine.approved_calls import Mismatch
from recovery.engine.outbound_calls import SnapshotGone
from recovery.engine.preconditions import MayProceed
from recovery.engine.protocol import AnsweredTry, CheckedStep, ClaimedStep, Intent, StepEnding
from recovery.models import Step, StepState
from recovery.models.plans import DONE
from workspaces import wakeups
from workspaces.clock import boot_seconds
from workspaces.moves import CannotMove
from workspaces.replica import DATABASE_AWAY

logger = logging.getLogger(__name__)

T = TypeVar("T")
Done = TypeVar("Done")


GATHER_SECONDS = 0.005
"""After an answer, how long others are waited for that may share its commit."""

DRAIN_LOOK_SECONDS = 0.25
"""While an answer is waited for, how often we look whether our process was told to end."""


@dataclass(slots=True, eq=False)
class BatchMember:
    """A step on its way, as it stands after its last commit."""

    held: ClaimedStep
    step: Step
    operation: Operation


class Failure(NamedTuple):
    """A step at which the engine itself failed."""

    step: Step
    why: Exception


Then = Callable[[OutboundCall[Any]], None]


class StepBatch:
    """The steps that this worker holds. `rested` are those that cannot go on now, each with whether
    it moved; `ending` wait only for the commit of their end; at `failed` the engine failed.
    """

    def __init__(self) -> None:
        self.rested: list[tuple[Step, bool]] = []
        self.failed: list[Failure] = []
        self.ending: list[StepEnding] = []
        self._unsent: set[BatchMember] = set()
        self._calls: dict[OutboundCall[Any], tuple[BatchMember, Then]] = {}
        self._answers: Answers = queue.SimpleQueue()
        self._side = CallPool(self._answers)
        self._ready_calls: list[tuple[OutboundCall[Any], float]] = []
        self._log = Log()
        self._checked: list[tuple[BatchMember, CheckedStep]] = []
        self._answered: list[tuple[BatchMember, AnsweredTry]] = []

    @property
    def is_under_way(self) -> bool:
        return bool(self._calls or self._checked or self._answered)

    @property
    def has_answers(self) -> bool:
        """Whether `go_on` would not have to wait."""
        return bool(self._checked or self._answered) or not self._answers.empty()

    @property
    def is_quick(self) -> bool:
        """Whether calls are on the wire, and all of them are expected back in a moment."""
        return bool(self._calls) and all(call.is_quick for call in self._calls)

    def take(self, held: Sequence[ClaimedStep]) -> None:
        """Take over steps that were just claimed, and read their targets."""
        for one in held:
            self._guard(one.step, partial(self._take, one))
        self._start_calls()

    def _take(self, held: ClaimedStep) -> None:
        found = preconditions.check_operation(held.step)
        if isinstance(found, Mismatch):
            preconditions.release_trials([held.step])
            self._leave(held.step, partial(failure_paths.abandon, held.step, found))
            return
        member = BatchMember(held, held.step, found)
        self._unsent.add(member)
        if found.observes:
            self._read(
                member, outbound_calls.observing, lambda call: self._check(member, call.told)
            )
        else:
            self._check(member, lambda: None)

    def go_on(self, patience: float = float("inf")) -> None:
        """Wait for answers, and take the steps as far as one commit of each kind goes. Waits for at
        most `patience` seconds.
        """
        self._wait_for_answers(patience)
        self._intend()
        for member, moved in self._settle():
            self._guard(member.step, partial(self._verify, member, moved))
        self._start_calls()

    def end(self) -> None:
        """Write the good ends down, in the caller's transaction; afterwards they are `ended`."""
        _end(self.ending)

    def end_each(self) -> list[Step]:
        """Write the good ends down, each in a transaction of its own where they fail together;
        those that were ended.
        """
        ending = [(one.step, one) for one in self.ending]
        self.ending.clear()
        committed = self._committed(ending, transaction.atomic(_end))
        return [step for some, _ in committed for step, _ in some]

    # Failures of our own.

    def _guard(self, step: Step, work: Callable[[], None]) -> None:
        """Do it for one step: where we fail at it, the others go on."""
        try:
            work()
        except DATABASE_AWAY:
            raise
        except Exception as failure:  # noqa: BLE001 - whatever it is, it is told of this step alone
            self.failed.append(Failure(step, failure))

    def _committed(
        self, going: Sequence[tuple[Step, T]], commit: Callable[[Sequence[T]], Done]
    ) -> Iterator[tuple[Sequence[tuple[Step, T]], Done]]:
        """Commit for all together, or for each by itself where that fails, so that whatever is
        wrong with one costs the others a commit and no more. Each commit is given before the next.
        """
        try:
            done = commit([one for _, one in going])
        except DATABASE_AWAY:
            raise
        except Exception as failure:  # noqa: BLE001 - as above
            if len(going) == 1:
                self.failed.append(Failure(going[0][0], failure))
                return
        else:
            yield going, done
            return
        for one in going:
            yield from self._committed([one], commit)

    # Calls.

    def _call(
        self,
        member: BatchMember,
        made: Callable[[Step], OutboundCall[Any]],
        then: Then,
        latest: float = float("inf"),
    ) -> None:
        """Make the call ready to leave, by `boot_seconds` not after `latest`.

        Raises SnapshotGone.
        """
        call = made(member.step)
        self._calls[call] = member, then
        self._ready_calls.append((call, latest))

    def _read(
        self, member: BatchMember, made: Callable[[Step], OutboundCall[Any]], then: Then
    ) -> None:
        """A call that changes nothing; where a snapshot that it needs is gone, so is the step."""
        try:
            self._call(member, made, then)
        except SnapshotGone as gone:
            void = Mismatch(str(gone))
            self._leave(member.step, partial(failure_paths.abandon, member.step, void), member)

    def _start_calls(self) -> None:
        """What the last commit has allowed leaves now, if it ends before its lease does."""
        ready, self._ready_calls = self._ready_calls, []
        for call, latest in ready:
            if boot_seconds() > latest:
                call.withhold("Not sent: the lease would not outlast the call.")
        self._side.start(call for call, _ in ready)

    def _wait_for_answers(self, patience: float = float("inf")) -> None:
        """Wait for an answer, and then a moment for more."""
        heard: list[OutboundCall[Any]] = []
        until = min((call.ends_at for call in self._calls), default=0.0)
        until = min(until, boot_seconds() + patience)
        while len(heard) < len(self._calls):
            left = max(0.0, until - boot_seconds())
            wait = min(left, QUICK_SECONDS if self._side.may_spread else DRAIN_LOOK_SECONDS)
            try:
                heard.append(self._answers.get(timeout=wait))
            except queue.Empty:
                if wait == left or wakeups.is_draining():
                    break
                if self._side.may_spread:
                    self._side.spread()
                continue
            if len(heard) == 1:
                until = min(until, boot_seconds() + GATHER_SECONDS)
        now = boot_seconds()
        late = [one for one in self._calls if one not in heard and one.ends_at <= now]
        for call in late:
            call.give_up()
        # Answers first, which ask the database nothing: should it be away, none of them is lost.
        ended = [call for call in (*heard, *late) if call in self._calls]  # others were given up
        for call in sorted(ended, key=lambda one: one.line.method != "apply"):
            member, then = self._calls.pop(call)
            self._guard(member.step, partial(then, call))
        self._log.add(call.line for call in ended)

    def _check(self, member: BatchMember, read: Callable[[], Observation | None]) -> None:
        found = preconditions.check_target(member.step, member.operation, read)
        faults.point("checked")
        if isinstance(found, MayProceed):
            checked = CheckedStep(member.held, found.operation, found.observation)
            self._checked.append((member, checked))
        else:
            self._leave(member.step, partial(failure_paths.abandon, member.step, found), member)

    def _intend(self) -> None:
        """Nothing has left before this commit."""
        members = {checked.held.step.pk: member for member, checked in self._checked}
        going = [(member.step, checked) for member, checked in self._checked]
        self._checked = []
        if not going:
            return
        began = time.time()
        for some, found in self._committed(going, transaction.atomic(protocol.intend_all)):
            record_spans("intend", began, (one.step for one in found.intents.values()))
            for step, checked in some:
                member = members[step.pk]
                self._guard(step, partial(self._send_or_leave, member, checked, found))
        self._start_calls()

    def _send_or_leave(
        self, member: BatchMember, checked: CheckedStep, found: protocol.IntentResult
    ) -> None:
        step = member.step
        intent = found.intents.get(step.pk)
        if intent is not None:
            faults.point("intended")
            self._unsent.discard(member)
            self._send(member, intent, checked.observation)
        elif step.pk in found.refused:
            self._leave(step, partial(failure_paths.lease_too_short, step), member)
        else:  # given up, and it says why
            self._unsent.discard(member)
            self.rested.append((step, True))

    def _send(self, member: BatchMember, intent: Intent, observation: Observation | None) -> None:
        member.step = intent.step
        seconds = member.operation.limit_seconds + calls.GRACE_SECONDS
        sent_at = intent.attempt.intended_at
        made = partial(outbound_calls.applying, observation=observation, sent_at=sent_at)
        heard = partial(self._keep_answer, member, intent)
        try:
            self._call(member, made, heard, latest=member.held.ends_at - seconds)
        except SnapshotGone as gone:  # the try is on record: it is answered by that nothing left
            nothing = Answer(outcome="no_effect", detail=str(gone))
            self._answered.append((member, AnsweredTry(intent, member.operation, nothing)))

    def _keep_answer(self, member: BatchMember, intent: Intent, call: OutboundCall[Answer]) -> None:
        answer = call.told()
        record_spans("act", wall_time(call.began), [intent.step])
        faults.point("answered")
        self._answered.append((member, AnsweredTry(intent, member.operation, answer)))

    def _settle(self) -> Iterator[tuple[BatchMember, Step | None]]:
        """Settle what was answered; each member with its step as it is then, None if it is lost."""
        settling, self._answered = self._answered, []
        if not settling:
            return
        until = max(member.held.ends_at for member, _ in settling)
        members = {answered.intent.step.pk: member for member, answered in settling}
        going = [(answered.intent.step, answered) for _, answered in settling]
        began = time.time()
        for some, moved in self._committed(going, partial(protocol.settle_until, until=until)):
            record_spans("settle", began, moved)
            stand = {step.pk: step for step in moved}
            for step, _ in some:
                yield members[step.pk], stand.get(step.pk)

    def _verify(self, member: BatchMember, moved: Step | None) -> None:
        if moved is not None:
            faults.point("settled")
            member.step = moved
        if member.step.state != StepState.APPLIED:
            self.rested.append((member.step, moved is not None))
        elif member.operation.reads_back:
            self._read(member, outbound_calls.verifying, partial(self._read_back, member))
        else:
            self.ending.append(StepEnding(member.step, member.operation, []))

    def _read_back(self, member: BatchMember, call: OutboundCall[Check]) -> None:
        step, operation = member.step, member.operation
        try:
            check = call.told()
        except CannotRead as unreadable:
            self._leave(step, partial(failure_paths.cannot_read_back, step, str(unreadable)))
            return
        if check.ok:
            self.ending.append(StepEnding(step, operation, check.checks))
        else:
            self._leave(step, partial(failure_paths.reads_otherwise, step, operation, check))

    def _leave(
        self, step: Step, verb: Callable[[], bool], member: BatchMember | None = None
    ) -> None:
        if member is not None:
            self._unsent.discard(member)
        try:
            moved = verb()
        except CannotMove as lost:
            logger.info("step %d was taken from us: %s", step.pk, lost)
            moved = False
        self.rested.append((step, moved))

    def close(self) -> None:
        """Nobody is under way any more."""
        self._log.write()

    def disperse(self) -> None:
        """The database went away under us."""
        connection.close()
        self._hand_back("The database went away before anything was sent.")
        self.close()

    def drain(self) -> None:
        """Our process was told to end."""
        self._hand_back("Its worker was told to end before anything was sent.")

    def _hand_back(self, why: str) -> None:
        """What was not sent need not wait for its lease to end; what is on the wire is seen
        through, and read back by somebody else."""
        for member in self._unsent:
            failure_paths.release_unsent(member.step, why)
        self._unsent.clear()
        self._checked.clear()
        self._ready_calls = [one for one in self._ready_calls if one[0].line.method == "apply"]
        self._start_calls()
        self._calls = {
            call: who for call, who in self._calls.items() if call.line.method == "apply"
        }
        while self._calls or self._answered:
            if self._calls:
                self._wait_for_answers()
            for _ in self._settle():  # the sweeper goes on with them
                pass


def _end(ending: Sequence[StepEnding]) -> None:
    for state in DONE:
        some = [one for one in ending if one.state == state]
        if some:
            protocol.end_all(some, state)
            for _ in some:
                faults.point("ending")


def record_spans(name: str, began: float, steps: Iterable[Step]) -> None:
    """A span for each step, all of one moment: what they share is one commit."""
    if not tracing.tracing.is_on:
        return
    for step in steps:
        action = step.effect.action
        tracing.record(
            name, began, of_plan=f"{step.workspace_id}/{step.plan_id}",
            workspace=step.workspace.slug, run=action.run.run, action=action.action,
            plan=step.plan_id, step=step.pk, position=step.position, state=step.state,
            connection=step.connection.name, operation=step.operation,
        )  # fmt: skip


def wall_time(moment: float) -> float:
    """By `time.time()`, what was by `boot_seconds()`."""
    return time.time() - (boot_seconds() - moment)
