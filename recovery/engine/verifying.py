"""Verifying: a separate read, held against the post-condition that people approved.

Only `verified` counts as restored. Where nothing can be read, the answer was a receipt and the step
ends `reported`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from amends.protocol.vocabulary import EventType
from connectors.contract import CannotRead, Check, Finding, Observation, Operation, Refused
from ledger import desk_events
from ledger.desk_events import EventDraft
from ledger.models import Compensated, Reversibility
from recovery.engine import claims, outbound_calls, preconditions, settle, steps
from recovery.engine.outbound_calls import SnapshotGone
from recovery.engine.reading import copied
from recovery.engine.sql import AT_REST
from recovery.models import Step, StepState
from workspaces.moves import CannotMove

# Probes: finding out whether a call whose answer was lost took effect.
#
# Found is found. Absence is proven only by a probe made after the call's limit and the connector's
# horizon, which is when the step is due; and it leads to another try only where something keeps
# that from doing it twice. Otherwise a person decides, with evidence.

PROBES_MAX = 6
"""With the pauses below about five minutes, then a person is asked."""

PROBE_SECONDS = 5.0
"""Before the second probe; each further one waits twice as long."""


def probe(step_id: int) -> bool:
    """Probe once for an unknown step; False if nothing moved."""
    step = steps.load(step_id)
    if step.state != StepState.UNKNOWN:
        return False
    try:
        return _probe(step)
    except CannotMove:
        return False


def _probe(step: Step) -> bool:
    try:
        operation = outbound_calls.operation_of(step)
    except Refused as refused:
        return _give_up(step, str(refused))
    tries = list(preconditions.tries_under(step.workspace_id, step.key).order_by("intended_at"))
    kept = next((one for one in tries if one.outcome == "applied"), None)
    if kept is not None:
        return _present(step, kept.evidence or {}, "Its answer had come after all.")
    if not tries:
        return _absent(step, operation, "It is known that nothing was sent.")
    if operation.probe == "none":
        return _cannot_tell(step, operation, {})
    finding = outbound_calls.probe(step, tries[0].intended_at)
    return _found(step, operation, finding)


def _found(step: Step, operation: Operation, finding: Finding) -> bool:
    if finding.found == "present":
        return _present(step, finding.evidence, "Found by a probe.")
    if finding.found == "absent":
        return _absent(step, operation, "A probe shows that it did not happen.")
    if step.probes + 1 < PROBES_MAX:
        pause = PROBE_SECONDS * 2**step.probes
        steps.put_off(step, pause, note="Not found out yet.", probes=step.probes + 1)
        return False
    return _cannot_tell(step, operation, finding.evidence)


@transaction.atomic
def _present(step: Step, evidence: dict[str, object], note: str) -> bool:
    settle.applied(step, evidence=evidence, say={"evidence": evidence}, note=note)
    return True


@transaction.atomic
def _absent(step: Step, operation: Operation, note: str) -> bool:
    if not operation.may_repeat:
        return _give_up(step, f"{note} It is not tried again by itself.")
    if not preconditions.window_is_open(step, operation):
        return _give_up(step, f"{note} The provider no longer remembers the key.")
    return _again(step, note)


@transaction.atomic
def _cannot_tell(step: Step, operation: Operation, evidence: dict[str, object]) -> bool:
    """Without a probe only the provider itself can tell, where it remembers our key."""
    if operation.idempotency == "native_key" and preconditions.window_is_open(step, operation):
        return _again(step, "The provider remembers the key: asking again cannot do it twice.")
    why = "Whether it happened cannot be found out from here: look, and say what you found."
    return _give_up(step, why, evidence=evidence or None)


def _again(step: Step, note: str) -> bool:
    if step.tries >= settle.TRIES_MAX:
        return _give_up(step, f"{note} It was tried {step.tries} times.")
    told = steps.moved(step, StepState.READY, note=note, wake_at=None)
    desk_events.say_all(step.workspace, [steps.refused(step, note), told])
    return True


@transaction.atomic
def _give_up(step: Step, why: str, **changes: Any) -> bool:
    claims.needs_human(step, why, **changes)
    return True


READS_MAX = 8
"""Of a target that cannot be read; with the pauses below about ten minutes."""

READ_SECONDS = 5.0
"""Before the second read; each further one waits twice as long."""


def verify(step_id: int) -> bool:
    """Read back an applied step; False if nothing moved."""
    return verify_loaded(steps.load(step_id))


def verify_loaded(step: Step) -> bool:
    """Read back the step as it stands in our hands; False if nothing moved."""
    if step.state != StepState.APPLIED:
        return False
    try:
        operation = outbound_calls.operation_of(step)
        check = outbound_calls.verify(step) if operation.reads_back else Check(ok=True, checks=[])
        if not check.ok:
            return differs(step, operation, check)
        return _end(Ending(step, operation, check.checks))
    except CannotRead as why:
        return unreadable(step, str(why))
    except (Refused, SnapshotGone) as refused:
        return _differs(step, str(refused), [])
    except CannotMove:
        return False


def unreadable(step: Step, why: str) -> bool:
    """The call was made, and its target cannot be read just now."""
    return _later(step, f"It could not be read back: {why}")


def differs(step: Step, operation: Operation, check: Check) -> bool:
    """What was read is not what was to be restored; or not yet."""
    if operation.probe == "eventual" and step.probes == 0:
        return _later(step, "Not to be seen yet.", operation.horizon_seconds)
    return _differs(step, "What was read back is not what was to be restored.", check.checks)


@dataclass(frozen=True)
class Ending:
    """A step that comes to a good end, and what a read found."""

    step: Step
    operation: Operation
    checks: list[dict[str, Any]]
    say: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def state(self) -> str:
        """`reported` is a receipt: nothing can be read back."""
        return StepState.VERIFIED if self.operation.reads_back else StepState.REPORTED

    @property
    def outcome(self) -> str:
        """What it means for the effect. A record that is put back does not call back what an
        irreversible act did outside; a counter-action does cancel it, and leaves its trace.
        """
        if self.operation.reversibility == "irreversible":
            return Compensated.CORRECTED
        if (
            self.operation.reversibility == "exact"
            and self.step.reversibility == Reversibility.IRREVERSIBLE
        ):
            return Compensated.REPAIRED
        return Compensated.COMPENSATED


@transaction.atomic
def met_already(step: Step, operation: Operation, observation: Observation) -> None:
    """A claimed step whose post-condition a read found to hold: verified without a call."""
    said = {"already": True, "fingerprint": observation.fingerprint}
    note = "It was already so; nothing was sent."
    if not end_all([Ending(step, operation, [], said, note)], StepState.VERIFIED):
        raise CannotMove(step, StepState.VERIFIED)


def end_all(ending: Sequence[Ending], state: str) -> list[Step]:
    """End steps of one workspace, and tell the ledger that their effects are compensated, or
    corrected; those that were still ours. The caller holds the transaction.
    """
    evidence = [(one.step.evidence or {}) | {"checks": one.checks} for one in ending]
    by_step = {one.step.pk: one for one in ending}
    moved = steps.move_all(
        [copied(one.step) for one in ending],
        state,
        each={"note": [one.note for one in ending], "evidence": evidence},
        alike=AT_REST,
        tell=lambda step: _told(by_step[step.pk], step),
    )
    if moved:
        said = [one for _, some in moved for one in some]
        told = {
            (steps.run_of(step.plan), steps.action_of(step)): step.told
            for step, _ in moved
            if step.told is not None
        }
        desk_events.end_all(moved[0].step.workspace, said, told)
    return [step for step, _ in moved]


def _told(one: Ending, step: Step) -> list[EventDraft]:
    action = step.effect.action
    said = {"was": step.was, "note": one.note, "ok": True, "checks": one.checks} | one.say
    compensated = {
        "positions": [step.effect.position],
        "outcome": one.outcome,
        "verified": step.state == StepState.VERIFIED,
        "plan": steps.run_of(step.plan),
        "step": steps.action_of(step),
    }
    return [
        steps.saying(step, step.state, said),
        EventDraft(EventType.ACTION_COMPENSATED, action.run.run, action.action, compensated),
    ]


@transaction.atomic
def _end(one: Ending) -> bool:
    return bool(end_all([one], one.state))


def _later(step: Step, note: str, seconds: float = 0.0) -> bool:
    if step.probes + 1 >= READS_MAX:
        return _differs(step, note, [])
    pause = seconds or READ_SECONDS * 2**step.probes
    steps.put_off(step, pause, note=note, probes=step.probes + 1)
    return False


@transaction.atomic
def _differs(step: Step, why: str, checks: list[dict[str, Any]]) -> bool:
    try:
        claims.needs_human(
            step, why, say={"checks": checks}, evidence=(step.evidence or {}) | {"checks": checks}
        )
    except CannotMove:
        return False
    return True
