"""F21, F22, F24: an outside world that loses its answers, and a world that changed meanwhile."""

import json

from approvals import versions
from recovery.models import Step, StepAttempt
from tests.crash.catalogue import fault
from tests.crash.oracle import rest
from tests.crash.storm import PLANS, Storm


@fault("F21 answers too late")
def late(storm: Storm) -> None:
    """It was done, and the time is over; or the answer drips in and would take for ever."""
    storm.lose_answers(0.5, ({"sleep_after": 2.0}, {"drip": 3}))
    storm.begin()


@fault("F22 errors after the effect")
def errors(storm: Storm) -> None:
    """A 500, a reset after the headers, half an answer: none of it means that nothing happened."""
    storm.lose_answers(0.6, ({"fail_after": 1}, {"reset_after": 1}, {"truncate": 1}, {"fail": 1}))
    storm.begin()
    rest(storm.plans)
    assert not StepAttempt.objects.filter(outcome="no_effect").exists()


@fault("F24 drift")
def drift(storm: Storm) -> None:
    storm.begin(count=0)
    storm.plans += [storm.plan(f"s{number}") for number in range(PLANS)]
    changed = [f"s{storm.chance.randrange(PLANS)}{number}" for number in range(3)]
    storm.outside.seed({name: {"v": 77} for name in changed})
    storm.hint()
    rest(storm.plans, 60)
    assert not set(changed) & set(storm.outside.effects())


def nothing_of_it_runs(storm: Storm) -> None:
    """What was drafted is not what would run: no effect, and people are told what differs."""
    rest(storm.plans)
    known = list(Step.objects.filter(plan__in=storm.plans))
    storm.for_people |= {step.key for step in known}
    assert storm.outside.journal() == []
    assert {step.state for step in known} == {"needs_human"}


@fault("F24 arguments changed since the approval")
def arguments_changed(storm: Storm) -> None:
    approved(storm)
    for step in Step.objects.filter(plan__in=storm.plans):
        Step.objects.filter(pk=step.pk).update(args=step.args | {"to": {"v": 999}})
    storm.begin(count=0)
    nothing_of_it_runs(storm)
    assert all(step.evidence["diff"] for step in Step.objects.filter(plan__in=storm.plans))


@fault("F24 connector changed since the approval")
def connector_changed(storm: Storm) -> None:
    approved(storm)
    storm.begin(count=0, OUTSIDE_VERSION="2.0")
    nothing_of_it_runs(storm)
    assert all(step.evidence["diff"] for step in Step.objects.filter(plan__in=storm.plans))


@fault("F24 policy stricter since the drafting")
def policy_stricter(storm: Storm) -> None:
    storm.plans += [storm.plan(f"s{number}") for number in range(PLANS)]
    rule = {"world.*": {"risk": "HIGH", "approval": "MANUAL"}}
    document = json.dumps({"agentSafety": {"policies": rule}})
    here = storm.connection.workspace
    versions.activate(versions.save(here, document, by=storm.people.ada), by=storm.people.ada)
    storm.begin(count=0)
    nothing_of_it_runs(storm)


def approved(storm: Storm) -> None:
    """Plans that people have approved, and nobody has begun."""
    for number in range(PLANS):
        storm.grant(storm.ask_for(storm.plan(f"s{number}")))
