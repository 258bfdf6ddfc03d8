"""Random walks: plans, crashes, lost answers, other people's edits and the desk's own people, in
any order. After every act the journal of the outside world is held against the rows.
"""

from contextlib import suppress
from itertools import combinations
from types import SimpleNamespace
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from connectors.models import Connection
from ledger.models import Event
from recovery.casework import settling
from recovery.engine import faults, plan_lifecycle, steps
from recovery.engine.faults import Fault, Injected
from recovery.models import Case, Plan, Step, StepAttempt
from tests.crash import oracle
from tests.recovery.engine import by_hand
from tests.recovery.engine.desk import advance, case_of, make_due, plan_for, run_that
from workspaces.moves import CannotMove

pytestmark = pytest.mark.django_db(transaction=True)

POINTS = (
    "claimed", "checked", "intending", "intended", "answered", "settling", "settled", "ending",
)  # fmt: skip
LOSSES = ({"fail_after": 1}, {"reset_after": 1}, {"truncate": 1}, {"fail": 1}, {"refuse": "no"})
OPERATIONS = ("restore", "conditional", "refund", "refund_unseen", "charge_blindly", "mail")
THINGS = "abcd"
LONG_AGO = "2000-01-01T00:00:00Z"
ROUNDS = 4
REST = {"verified", "reported", "skipped", "cancelled", "drifted", "needs_human"}


class Walk(RuleBasedStateMachine):
    """One case and its plans; `cast` is given by the test."""

    cast: SimpleNamespace

    @initialize(operations=st.lists(st.sampled_from(OPERATIONS), min_size=4, max_size=4))
    def a_run_broke(self, operations):
        faults.FAULTS.clear()
        self.cast.outside.fresh()
        self.edited = set()
        tag = uuid4().hex[:8]  # its own targets: what an earlier walk left to people holds its own
        self.names = [tag + name for name in THINGS]
        self.operations = dict(zip(self.names, operations, strict=True))
        self.cast.outside.seed({name: {"v": 2} for name in self.names})
        changes = {name: ({"v": 1}, {"v": 2}) for name in self.names}
        self.case = case_of(run_that(self.cast.handy, f"run_{tag}", changes))
        self.plan = plan_for(self.case, self.cast.world, self.operations)

    @rule()
    def a_worker_goes_on(self):
        by_hand.advance_once(self.plan.pk)

    @rule(point=st.sampled_from(POINTS))
    def a_worker_dies(self, point):
        faults.FAULTS[point] = Fault("raise", "*")
        with suppress(Injected):
            by_hand.advance_once(self.plan.pk)
        faults.FAULTS.clear()

    @rule()
    def a_worker_claims_and_is_never_heard_of(self):
        waiting = Step.objects.filter(plan=self.plan, state="ready").order_by("position").first()
        if waiting is not None:
            by_hand.claim(waiting.pk)

    @rule()
    def time_passes(self):
        make_due(self.plan)
        Connection.objects.filter(open_until__isnull=False).update(open_until=LONG_AGO)

    def rests(self):
        """A system that was left alone is tried again, until nothing moves any more."""
        for _ in range(ROUNDS):
            self.time_passes()
            advance(self.plan)

    @rule(name=st.sampled_from(THINGS), how=st.sampled_from(LOSSES))
    def an_answer_will_be_lost(self, name, how):
        self.cast.outside.mischief(self.names[THINGS.index(name)], **how)

    @rule(name=st.sampled_from(THINGS))
    def somebody_edits_a_thing(self, name):
        self.edited.add(self.names[THINGS.index(name)])
        self.cast.outside.seed({self.names[THINGS.index(name)]: {"v": 77}})

    @rule(again=st.booleans())
    def ada_settles_what_waits_for_her(self, again):
        for step in settling.steps_in_doubt(self.case):
            with suppress(CannotMove):
                self.ada_decides(step, again=again)
            return

    def ada_decides(self, step, *, again):
        """She tells the truth: she has read the journal."""
        how = {"by": self.cast.ada, "seen": Case.objects.get(pk=self.case.pk).revision}
        happened = step.key in {line["key"] for line in self.cast.outside.journal()}
        if step.state == "drifted":
            settling.skip(step, reason="their edit is right", **how)
        elif happened:
            settling.settle_step(step, outcome="applied", evidence="I saw it there", **how)
        elif step.is_lost:
            said = {"outcome": "no_effect", "evidence": "It is not there", "again": again}
            settling.settle_step(step, **said, **how)
        elif again:
            settling.try_again(step, reason="once more", **how)
        else:
            settling.skip(step, reason="it may stay", **how)

    @precondition(lambda self: self.plan.number < 3)
    @rule()
    def ada_stops_it_and_makes_a_new_plan(self):
        with suppress(CannotMove):
            plan_lifecycle.stop(self.plan, by=self.cast.ada)
        self.rests()
        if Step.objects.filter(plan=self.plan).exclude(state__in=REST).exists():
            return
        keys = {line["key"] for line in self.cast.outside.journal()}
        if any(step.key in keys for step in settling.steps_in_doubt(self.case)):
            return  # what was done and then edited would rightly be done anew, under the same key
        with suppress(CannotMove):
            plan_lifecycle.supersede(self.plan, by=self.cast.ada, why="on the present state")
            now = {name: self.cast.outside.thing(name) for name in self.names}
            self.case.refresh_from_db()
            self.plan = plan_for(self.case, self.cast.world, self.operations, expecting=now)
            self.edited.clear()

    @invariant()
    def nothing_is_done_twice_or_without_an_intent(self):
        keys = [line["key"] for line in self.cast.outside.journal()]
        assert len(keys) == len(set(keys)), "I1"
        intended = set(StepAttempt.objects.filter(key__in=keys).values_list("key", flat=True))
        assert set(keys) == intended, "I4"

    @invariant()
    def effects_are_in_order(self):
        """An older step overtakes a newer one only where that one waited for people."""
        keys = [line["key"] for line in self.cast.outside.journal()]
        known = Step.objects.filter(plan=self.plan, key__in=keys).order_by("position")
        for newer, older in combinations(known, 2):
            if keys.index(older.key) < keys.index(newer.key):
                assert self.waited_for_people(newer), f"I3 {older} before {newer}"

    def waited_for_people(self, step):
        told = Event.objects.filter(run=steps.run_of(self.plan), action=steps.action_of(step))
        return told.filter(type__in=["step.drifted", "step.needs_human"]).exists()

    def teardown(self):
        if not hasattr(self, "plan"):
            return
        faults.FAULTS.clear()
        self.rests()
        for step in Step.objects.filter(plan=self.plan):
            assert step.state in REST, f"I2 {step.state}: {step.note}"
            if step.state == "verified" and step.target_id not in self.edited:
                assert self.cast.outside.thing(step.target_id) == {"v": 1}, "I4"
        known = Step.objects.filter(plan__case=self.case).select_related("plan__case__run")
        assert [broken for step in known for broken in oracle.told(step)] == [], "I5, I7"


@pytest.fixture
def walk(handy, world, outside, ada):
    cast = SimpleNamespace(handy=handy, world=world, outside=outside, ada=ada)
    yield type("Walk", (Walk,), {"cast": cast})
    faults.FAULTS.clear()


def walked(machine, examples, acts):
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=acts,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert oracle.log(Plan.objects.select_related("workspace")[:1]) == [], "I5"


def test_a_few_random_walks_keep_the_invariants(walk):
    walked(walk, 6, 20)
