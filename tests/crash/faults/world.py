"""F21, F22, F24: an outside world that loses its answers, and a world that changed meanwhile."""

import json
from functools import partial
from typing import Any

from approvals import versions
from ledger.models import Event
from recovery.casework import settling
from recovery.engine import plan_lifecycle
from recovery.engine.steps import run_of
from recovery.models import Case, Plan, Step, StepAttempt
from tests.crash.catalogue import fault
from tests.crash.oracle import rest
from tests.crash.storm import PLANS, Storm
from tests.recovery.engine.desk import plan_for

LATE_SECONDS = 20
"""Of a call whose limit is one second."""


@fault("F21 answers too late")
def late(storm: Storm) -> None:
    """It was done, and the time is over; or the answer drips in and would take for ever."""
    ways: tuple[dict[str, Any], ...] = ({"sleep_after": LATE_SECONDS}, {"drip": LATE_SECONDS})
    for number, way in enumerate(ways):
        storm.outside.mischief(f"s{number}2", **way)
    storm.lose_answers(0.3, ways)
    storm.begin()
    rest(storm.plans)
    assert {event.run for event in found_by_probe(storm)} >= {
        run_of(one) for one in storm.plans[:2]
    }
    held = [(one.answered_at or one.intended_at) - one.intended_at for one in storm.tries()]
    assert max(held).total_seconds() < LATE_SECONDS / 2, "nobody waits past the hard limit"


def found_by_probe(storm: Storm) -> list[Event]:
    return storm.told("applied", was="unknown")


@fault("F22 errors after the effect")
def errors(storm: Storm) -> None:
    """A 500, a reset after the headers, half an answer: none of it means that nothing happened."""
    storm.lose_answers(0.6, ({"fail_after": 1}, {"reset_after": 1}, {"truncate": 1}, {"fail": 1}))
    storm.begin()
    rest(storm.plans)
    assert not StepAttempt.objects.filter(outcome="no_effect").exists()
    assert found_by_probe(storm)


@fault("F24 drift")
def drift(storm: Storm) -> None:
    storm.begin(count=0)
    storm.plans += [storm.plan(f"s{number}") for number in range(PLANS)]
    storm.changed = {f"s{storm.chance.randrange(PLANS)}{number}" for number in range(3)}
    storm.outside.seed({name: {"v": 77} for name in storm.changed})
    storm.hint()
    rest(storm.plans, 60)
    assert not storm.changed & set(storm.outside.effects())
    stopped = list(Step.objects.filter(plan__in=storm.plans, state="drifted"))
    assert {step.target_id for step in stopped} == storm.changed
    for step in stopped:
        [difference] = step.drift
        assert (difference["agent_wrote"], difference["now"]) == (2, 77)
    decided_anew(storm, stopped[0].plan)


def nothing_of_it_runs(storm: Storm) -> None:
    """What was drafted is not what would run: no effect, and people are told what differs.

    Nor does it run when somebody wants it tried again: it takes a new plan, and a yes to that.
    """
    nothing_ran(storm)
    step = storm.plans[0].steps.order_by("position")[0]
    seen = Case.objects.get(pk=step.plan.case_id).revision
    settling.try_again(step, reason="once more", by=storm.people.ada, seen=seen)
    nothing_ran(storm)


def nothing_ran(storm: Storm) -> None:
    rest(storm.plans)
    known = list(Step.objects.filter(plan__in=storm.plans))
    storm.for_people |= {step.key for step in known}
    assert storm.outside.journal() == []
    assert {step.state for step in known} == {"needs_human"}
    assert all(step.evidence and step.evidence["diff"] for step in known)


def decided_anew(storm: Storm, old: Plan) -> None:
    """A new plan on what is there now; nothing of it runs before people have said yes to it."""
    plan_lifecycle.supersede(old, by=storm.people.ada, why="on what is there now")
    present = {step.target_id: storm.outside.thing(step.target_id) for step in old.steps.all()}
    case = Case.objects.get(pk=old.case_id)
    approval = storm.ask_for(lambda: plan_for(case, storm.connection, expecting=present))
    before = storm.outside.journal()
    storm.hint(times=3)
    storm.some_time(2, 3)
    assert storm.outside.journal() == before
    storm.grant(approval)
    storm.hint()
    rest(storm.plans)
    assert len(storm.outside.journal()) > len(before)


@fault("F24 arguments changed since the approval")
def arguments_changed(storm: Storm) -> None:
    approved(storm)
    for step in Step.objects.filter(plan__in=storm.plans):
        Step.objects.filter(pk=step.pk).update(args=step.args | {"to": {"v": 999}})
    storm.begin(count=0)
    nothing_of_it_runs(storm)
    decided_anew(storm, storm.plans[0])


@fault("F24 connector changed since the approval")
def connector_changed(storm: Storm) -> None:
    approved(storm)
    storm.begin(count=0, OUTSIDE_VERSION="2.0")
    nothing_of_it_runs(storm)


@fault("F24 policy stricter since the drafting")
def policy_stricter(storm: Storm) -> None:
    storm.plans += [storm.plan(f"s{number}") for number in range(PLANS)]
    rule = {"world.*": {"risk": "HIGH", "approval": "MANUAL"}}
    document = json.dumps({"agentSafety": {"policies": rule}})
    here = storm.connection.workspace
    versions.activate(versions.save(here, document, by=storm.people.ada), by=storm.people.ada)
    storm.begin(count=0)
    nothing_of_it_runs(storm)
    decided_anew(storm, storm.plans[0])


def approved(storm: Storm) -> None:
    """Plans that people have approved, and nobody has begun."""
    for number in range(PLANS):
        storm.grant(storm.ask_for(partial(storm.plan, f"s{number}")))
