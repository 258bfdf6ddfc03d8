"""The order law: which step of a plan comes next, and what is to be done with it.

Newest effect first. A step waits until every newer one has ended; one that waits for a person holds
back only older steps on the same target (all of them, under HALT). While a newer one is unknown,
probing goes on first, which is bounded. All of it is a pure function of the steps that still live.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from recovery.models import StepState

WAIT_FOR_PEOPLE = frozenset({StepState.DRIFTED, StepState.NEEDS_HUMAN})
WAIT_FOR_THEIR_TURN = frozenset({StepState.BLOCKED, StepState.READY})
IN_HAND = frozenset({StepState.CLAIMED, StepState.INTENDED})


@dataclass(frozen=True, slots=True)
class Living:
    """A step that has not ended, as far as the law needs to know it."""

    id: int
    state: str
    target: tuple[str, str]
    due: bool = True
    lease_over: bool = False
    connector: str = ""
    claims: int = 0


class Act(Enum):
    START = "start"  # of the plan itself, when the people have said yes
    RUN = "run"  # unblock if need be, claim, and go on
    PROBE = "probe"
    VERIFY = "verify"
    RECLAIM = "reclaim"  # its worker is gone
    CANCEL = "cancel"
    WAIT = "wait"  # for another worker, or for a time
    PEOPLE = "people"  # nothing more happens until a person acts
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class Next:
    act: Act
    step: int = 0


def next_act(living: Iterable[Living], *, halt: bool) -> Next:
    """What a running plan needs now. `living` is in the order of the plan, newest effect first."""
    held: set[tuple[str, str]] = set()
    for step in living:
        if step.state in WAIT_FOR_PEOPLE:
            if halt:
                return Next(Act.PEOPLE, step.id)
            held.add(step.target)
        elif step.state not in WAIT_FOR_THEIR_TURN:
            return _on_the_way(step)
        elif step.target not in held:
            return Next(Act.RUN if step.due else Act.WAIT, step.id)
    return Next(Act.PEOPLE if held else Act.FINISH)


def next_act_of_stopped(living: Iterable[Living]) -> Next:
    """What a stopped plan needs: what is on the wire is seen through, the rest is cancelled."""
    people = False
    for step in living:
        if step.state in WAIT_FOR_PEOPLE:
            people = True
        elif step.state in WAIT_FOR_THEIR_TURN:
            return Next(Act.CANCEL, step.id)
        else:
            return _on_the_way(step)
    return Next(Act.PEOPLE if people else Act.FINISH)


def _on_the_way(step: Living) -> Next:
    if step.state in IN_HAND:
        return Next(Act.RECLAIM if step.lease_over else Act.WAIT, step.id)
    if not step.due:
        return Next(Act.WAIT, step.id)
    return Next(Act.PROBE if step.state == StepState.UNKNOWN else Act.VERIFY, step.id)
