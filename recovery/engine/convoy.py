"""Convoys: the steps of several plans, taken through their commits side by side.

Each step goes its own way: claim · look · intend · act · settle · read back · end, with a commit
after each that writes. What moves at the same moment shares a transaction, so a convoy of thirty
pays for one commit where thirty workers would pay for thirty; and while a call is on the wire the
others go on, so a slow system holds up nobody but itself.

A step that needs anything out of the ordinary leaves the convoy through a verb of its own.
"""

import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import connection, transaction

from connectors import calls
from connectors.calllog import Log
from connectors.contract import Answer, CannotRead, Check, Observation, Operation
from connectors.errands import QUICK_SECONDS, Answers, Errand, Side
from recovery.engine import checks, faults, intents, leaving, settle, verifying, wire
from recovery.engine.checks import GoOn, Void
from recovery.engine.claims import Held
from recovery.engine.clock import boot_seconds
from recovery.engine.intents import Checked, Intent
from recovery.engine.settle import Answered
from recovery.engine.snapshots import SnapshotGone
from recovery.engine.verifying import Ending
from recovery.models import Step, StepState

GATHER_SECONDS = 0.005
"""After an answer, how long others are waited for that may share its commit."""


@dataclass(slots=True, eq=False)
class Member:
    """A step on its way, as it stands after its last commit."""

    held: Held
    step: Step
    operation: Operation


Then = Callable[[Errand[Any]], None]


class Convoy:
    """The steps in this worker's hands. `rested` are those that went as far as they can go now,
    with whether they moved at all; `ending` those that wait only for the commit of their end.
    """

    def __init__(self) -> None:
        self.rested: list[tuple[Step, bool]] = []
        self.ending: list[Ending] = []
        self._unsent: set[Member] = set()
        self._calls: dict[Errand[Any], tuple[Member, Then]] = {}
        self._answers: Answers = queue.SimpleQueue()
        self._side = Side(self._answers)
        self._leaving: list[tuple[Errand[Any], float]] = []
        self._log = Log()
        self._checked: list[tuple[Member, Checked]] = []
        self._answered: list[tuple[Member, Answered]] = []

    @property
    def is_under_way(self) -> bool:
        return bool(self._calls or self._checked or self._answered)

    @property
    def has_answers(self) -> bool:
        """Whether to go on would be no waiting."""
        return bool(self._checked or self._answered) or not self._answers.empty()

    @property
    def is_quick(self) -> bool:
        """Whether some are waited for, who will all be back in a moment."""
        return bool(self._calls) and all(errand.is_quick for errand in self._calls)

    def take(self, held: Sequence[Held]) -> None:
        """Steps that were just claimed: look at their targets."""
        for one in held:
            found = checks.may_be_done(one.step)
            if isinstance(found, Void):
                self._leave(one.step, partial(leaving.left, one.step, found))
                continue
            member = Member(one, one.step, found)
            self._unsent.add(member)
            if found.observes:
                self._call(member, wire.observing, partial(self._looked, member))
            else:
                self._look(member, lambda: None)
        self._set_out()

    def go_on(self, patience: float = float("inf")) -> None:
        """Hear what has come back, and take everybody as far as one commit of each kind goes.

        If nothing comes for `patience` seconds, something else is done first.
        """
        self._hear(patience)
        self._intend()
        self._settle()

    def end(self) -> None:
        """Write the good ends down, in the caller's transaction."""
        for state in (StepState.VERIFIED, StepState.REPORTED):
            ending = [one for one in self.ending if one.state == state]
            if ending:
                verifying.end_all(ending, state)
                for _ in ending:
                    faults.point("ending")

    # Calls.

    def _call(
        self,
        member: Member,
        made: Callable[[Step], Errand[Any]],
        then: Then,
        latest: float = float("inf"),
    ) -> None:
        """Make the call ready to leave, by `boot_seconds` not after `latest`."""
        try:
            errand = made(member.step)
        except SnapshotGone as gone:
            self._leave(member.step, partial(leaving.left, member.step, Void(str(gone))), member)
            return
        self._calls[errand] = member, then
        self._leaving.append((errand, latest))

    def _set_out(self) -> None:
        """What the last commit has allowed leaves now, if it ends before its lease does."""
        leaving, self._leaving = self._leaving, []
        for errand, latest in leaving:
            if boot_seconds() > latest:
                errand.withhold("Not sent: the lease would not outlast the call.")
        self._side.start(errand for errand, _ in leaving)

    def _hear(self, patience: float = float("inf")) -> None:
        """Wait for an answer, and then a moment for more."""
        heard: list[Errand[Any]] = []
        until = min((errand.ends_at for errand in self._calls), default=0.0)
        until = min(until, time.monotonic() + patience)
        while len(heard) < len(self._calls):
            left = max(0.0, until - time.monotonic())
            wait = min(left, QUICK_SECONDS) if self._side.may_spread else left
            try:
                heard.append(self._answers.get(timeout=wait))
            except queue.Empty:
                if wait == left:
                    break
                self._side.spread()
                continue
            if len(heard) == 1:
                until = min(until, time.monotonic() + GATHER_SECONDS)
        now = time.monotonic()
        late = [one for one in self._calls if one not in heard and one.ends_at <= now]
        for errand in late:
            errand.give_up()
        for errand in (*heard, *late):
            if errand in self._calls:  # else it was given up before
                _, then = self._calls.pop(errand)
                then(errand)
        self._log.add(errand.line for errand in (*heard, *late))

    def _looked(self, member: Member, errand: Errand[Observation]) -> None:
        self._look(member, errand.told)

    def _look(self, member: Member, read: Callable[[], Observation | None]) -> None:
        found = checks.seen(member.step, member.operation, read)
        faults.point("checked")
        if isinstance(found, GoOn):
            checked = Checked(member.held, found.operation, found.observation)
            self._checked.append((member, checked))
        else:
            self._leave(member.step, partial(leaving.left, member.step, found), member)

    def _intend(self) -> None:
        """Nothing has left before this commit."""
        going, self._checked = self._checked, []
        if not going:
            return
        with transaction.atomic():
            found = intents.intend_all([checked for _, checked in going])
        for member, checked in going:
            step = member.step
            intent = found.intents.get(step.pk)
            if intent is not None:
                faults.point("intended")
                self._unsent.discard(member)
                self._send(member, intent, checked.observation)
            elif step.pk in found.refused:
                self._leave(step, partial(leaving.too_late, step), member)
            else:  # given up, and it says why
                self._unsent.discard(member)
                self.rested.append((step, True))
        self._set_out()

    def _send(self, member: Member, intent: Intent, observation: Observation | None) -> None:
        member.step = intent.step
        seconds = member.operation.limit_seconds + calls.GRACE_SECONDS
        sent_at = intent.attempt.intended_at
        made = partial(wire.applying, observation=observation, sent_at=sent_at)
        heard: Then = lambda errand: self._answer(member, intent, errand.told())  # noqa: E731
        self._call(member, made, heard, latest=member.held.ends_at - seconds)

    def _answer(self, member: Member, intent: Intent, answer: Answer) -> None:
        faults.point("answered")
        self._answered.append((member, Answered(intent, member.operation, answer)))

    def _settle(self) -> None:
        settling, self._answered = self._answered, []
        if not settling:
            return
        until = max(member.held.ends_at for member, _ in settling)
        moved = {step.pk: step for step in settle.keep([one for _, one in settling], until=until)}
        for _ in moved:
            faults.point("settled")
        for member, _ in settling:
            member.step = moved.get(member.step.pk, member.step)
            if member.step.state != StepState.APPLIED:
                self.rested.append((member.step, member.step.pk in moved))
            elif member.operation.reads_back:
                self._call(member, wire.verifying, partial(self._read_back, member))
            else:
                self.ending.append(Ending(member.step, member.operation, []))
        self._set_out()

    def _read_back(self, member: Member, errand: Errand[Check]) -> None:
        step, operation = member.step, member.operation
        try:
            check = errand.told()
        except CannotRead as unreadable:
            self._leave(step, partial(verifying.unreadable, step, str(unreadable)))
            return
        if check.ok:
            self.ending.append(Ending(step, operation, check.checks))
        else:
            self._leave(step, partial(verifying.differs, step, operation, check))

    def _leave(self, step: Step, verb: Callable[[], bool], member: Member | None = None) -> None:
        if member is not None:
            self._unsent.discard(member)
        self.rested.append((step, leaving.by(step, verb)))

    def close(self) -> None:
        """Nobody is under way any more."""
        self._log.write()

    def disperse(self) -> None:
        """The database went away under us. What was not sent need not wait for its lease to end;
        what is on the wire is seen through."""
        connection.close()
        for member in self._unsent:
            leaving.give_back(member.step)
        self._checked.clear()
        self._leaving = [one for one in self._leaving if one[0].line.method == "apply"]
        self._set_out()
        self._calls = {
            errand: who for errand, who in self._calls.items() if errand.line.method == "apply"
        }
        while self._calls or self._answered:
            if self._calls:
                self._hear()
            answered, self._answered = self._answered, []
            if answered:
                until = max(member.held.ends_at for member, _ in answered)
                settle.keep([one for _, one in answered], until=until)
        self.close()
