"""What a plan's steps add to the sums of rules, from its approval on, and what they give back."""

import pytest

from approvals import inbox, plan_sums
from approvals.models import Approval, Reservation, Tally
from approvals.policy import active, judge
from connectors import calls
from recovery.casework import settling
from recovery.engine import approved_calls, plan_lifecycle
from recovery.models import Step
from recovery.planning import plans
from tests.approvals.cast import as_the_desk, put_in_force
from tests.approvals.door import Agent as Trip
from tests.recovery.engine import by_hand
from tests.recovery.engine.desk import advance, asked, case_of, plan_for, run_that, states
from workspaces import keys

pytestmark = pytest.mark.django_db(transaction=True)

CAP = "sum(args.to.v, over: '24h') > 500"


@pytest.fixture
def obey(acme, ada, ben):
    def say(when=CAP):
        rules = [{"when": when, "approval": "MANUAL"}, {"approval": "AUTO"}]
        put_in_force(acme, ada, {"policies": {"world.*": rules}})

    say()
    return say


@pytest.fixture
def answer(handy, obey):
    """What is answered to the agent's own refund of so much, in another run."""
    trip = Trip(keys.create_key(handy, by=None, name="test")[1])
    trip.send("run.started", run="run_2", on_behalf_of={"id": "mia"})

    def ask(amount, *, explain=False, **more):
        key = f"own-{amount}-{explain}"
        told = {"tool": "world.refund", "args": {"to": {"v": amount}}, "run": "run_2"}
        return trip.begin(key=key, action=key, explain=explain, **(told | more)).json()["answer"]

    return ask


@pytest.fixture
def wrong(handy, outside, obey):
    """A run that took 400 away from “a”: to undo it gives them back."""
    outside.seed({"a": {"v": 0}})
    return case_of(run_that(handy, "run_1", {"a": ({"v": 400}, {"v": 0})}))


@pytest.fixture
def plan(wrong, world):
    return plan_for(wrong, world)


@pytest.fixture
def approved(plan, handy, ada, ben):
    approval = asked(plan, ada, run="run_1", agent=handy)
    with as_the_desk():
        inbox.grant(approval, by=ben, seen=approval.digest, reason="checked")
    return Approval.objects.get(pk=approval.pk)


def held():
    return sum(float(one) for tally in Tally.objects.all() for one in tally.buckets.values())


def test_a_plan_that_refunds_400_of_500_leaves_100_for_the_agents_own(
    plan, handy, answer, ada, ben, outside
):
    approval = asked(plan, ada, run="run_1", agent=handy)
    assert answer(500, explain=True) == "proceed", "asked for is not granted"
    assert held() == 0

    inbox.grant(approval, by=ben, seen=approval.digest, reason="checked")

    assert answer(101, explain=True) == "wait"
    assert answer(100) == "proceed"
    assert answer(1, explain=True) == "wait"
    advance(plan)
    assert (outside.effects(), held()) == (["a"], 500)
    assert answer(1) == "wait"
    assert not Reservation.objects.filter(action="").exists(), "what is done is settled for good"


def test_what_a_plan_holds_comes_to_what_calls_held_before(plan, handy, answer, ada, ben):
    assert answer(100) == "proceed"
    approval = asked(plan, ada, run="run_1", agent=handy)
    inbox.grant(approval, by=ben, seen=approval.digest, reason="checked")

    assert held() == 500
    assert answer(1) == "wait"


def test_a_step_gives_back_its_own_and_what_the_others_did_stays(
    handy, world, obey, answer, ada, ben, outside
):
    outside.seed({name: {"v": 0} for name in "abc"})
    changes = {name: ({"v": 100}, {"v": 0}) for name in "abc"}
    plan = plan_for(case_of(run_that(handy, "run_1", changes)), world)
    approval = asked(plan, ada, run="run_1", agent=handy)
    inbox.grant(approval, by=ben, seen=approval.digest, reason="checked")
    for _ in range(3):
        outside.mischief("a", refuse="not today")  # the last of the three
    advance(plan)
    assert (sorted(outside.effects()), held()) == (["b", "c"], 300)
    plan.case.refresh_from_db()

    left = plan.steps.get(state="needs_human")
    settling.skip(left, reason="by hand", by=ada, seen=plan.case.revision)

    advance(plan)
    assert (sorted(outside.effects()), held()) == (["b", "c"], 200)
    assert not Reservation.objects.filter(action="").exists(), "the plan has ended"


def test_of_a_run_for_two_people_a_step_counts_for_neither(
    wrong, world, handy, obey, answer, ada, ben
):
    obey("sum(args.to.v, per: person, over: '24h') > 500")
    trip = Trip(keys.create_key(handy, by=None, name="more")[1])
    for person in ("mia", "eve"):
        trip.send("run.started", run="run_1", on_behalf_of={"id": person})
    plan = plan_for(wrong, world)
    approval = asked(plan, ada, run="run_1", agent=handy)
    inbox.grant(approval, by=ben, seen=approval.digest, reason="checked")

    assert answer(101, explain=True) == "proceed", "of Mia's own"
    assert not Reservation.objects.filter(action="").exists()


def test_a_plan_that_is_withdrawn_gives_back_what_it_held(approved, plan, answer, ada, outside):
    assert answer(101, explain=True) == "wait"

    inbox.withdraw(approved, by=ada, reason="not needed")
    with as_the_desk():
        plan_lifecycle.start(plan.pk)

    assert (states(plan), held()) == (["cancelled"], 0)
    assert answer(500) == "proceed"


@pytest.mark.parametrize("end", ["stopped", "superseded"])
def test_a_plan_that_is_stopped_or_pushed_aside_gives_back_what_was_not_sent(
    approved, plan, answer, ada, end
):
    plan_lifecycle.start(plan.pk)
    if end == "stopped":
        plan_lifecycle.stop(plan, by=ada)
    else:
        plan_lifecycle.supersede(plan, by=ada, why="A new plan takes its place.")

    assert (states(plan), held()) == (["cancelled"], 0)
    assert answer(500) == "proceed"


def test_every_step_of_a_stopped_plan_gives_back(handy, world, obey, answer, ada, ben, outside):
    outside.seed({name: {"v": 0} for name in "abc"})
    changes = {name: ({"v": 100}, {"v": 0}) for name in "abc"}
    plan = plan_for(case_of(run_that(handy, "run_1", changes)), world)
    approval = asked(plan, ada, run="run_1", agent=handy)
    inbox.grant(approval, by=ben, seen=approval.digest, reason="checked")
    plan_lifecycle.start(plan.pk)
    assert held() == 300

    plan_lifecycle.stop(plan, by=ada)

    assert held() == 0


def test_a_step_without_an_effect_holds_while_it_may_be_tried_and_gives_back_when_it_is_skipped(
    approved, plan, answer, ada, outside
):
    for _ in range(3):
        outside.mischief("a", refuse="not today")
    advance(plan)
    (step,) = plan.steps.all()
    assert (step.state, step.tries) == ("needs_human", 3)
    assert answer(101, explain=True) == "wait", "a person may have it tried once more"
    plan.case.refresh_from_db()

    settling.skip(step, reason="paid by hand", by=ada, seen=plan.case.revision)

    assert held() == 0
    assert answer(500) == "proceed"


def test_a_step_that_finds_it_done_gives_back_what_it_does_not_add(approved, plan, answer, outside):
    """Somebody had refunded it by hand: the limit was as good as used up by what nobody sent."""
    outside.seed({"a": {"v": 400}})

    advance(plan)

    assert (states(plan), outside.effects(), held()) == (["verified"], [], 0)
    assert answer(500) == "proceed"


def test_a_step_that_finds_its_own_try_done_gives_nothing_back(approved, plan, answer, outside):
    outside.mischief("a", fail_after=1)
    by_hand.advance_once(plan.pk)
    by_hand.advance_once(plan.pk)
    step = plan.steps.get()
    assert (step.state, outside.effects()) == ("unknown", ["a"])
    Step.objects.filter(pk=step.pk).update(was="unknown", state="ready", wake_at=None)

    advance(plan)

    assert (states(plan), outside.effects(), held()) == (["verified"], ["a"], 400)


def test_a_step_that_is_skipped_after_its_effect_gives_nothing_back(
    approved, plan, answer, ada, outside
):
    """It was refunded, and read back otherwise: what was paid counts, whatever people leave."""
    outside.mischief("a", leaves={"v": 99})
    advance(plan)
    (step,) = plan.steps.all()
    assert (step.state, outside.effects()) == ("needs_human", ["a"])
    plan.case.refresh_from_db()

    settling.skip(step, reason="good enough", by=ada, seen=plan.case.revision)

    assert (states(plan), held()) == (["skipped"], 400)
    assert answer(101, explain=True) == "wait"


def test_what_nobody_knows_counts_until_a_person_says_that_it_did_not_happen(
    wrong, world, handy, answer, ada, ben, outside
):
    outside.mischief("a", fail_after=1)
    plan = plan_for(wrong, world, "mail")
    approval = asked(plan, ada, run="run_1", agent=handy)
    inbox.grant(approval, by=ben, seen=approval.digest, reason="checked")
    advance(plan)
    (step,) = plan.steps.all()
    assert (step.state, answer(101, explain=True)) == ("needs_human", "wait")
    plan.case.refresh_from_db()

    settling.settle_step(
        step, outcome="no_effect", evidence="no mail", by=ada, seen=plan.case.revision
    )

    assert (states(plan), held()) == (["skipped"], 0)


@pytest.mark.parametrize(
    ("per", "same", "other"),
    [
        ("agent", {}, None),
        ("tool", {"tool": "world.restore"}, {"tool": "world.refund"}),
        ("person", {"run": "run_3"}, {"run": "run_2"}),
        ("target", {"targets": [{"type": "thing", "id": "a"}]}, {}),
        (
            "args.id",
            {"args": {"to": {"v": 101}, "id": "a"}},
            {"args": {"to": {"v": 101}, "id": "b"}},
        ),
    ],
)
def test_a_step_counts_on_the_account_of_the_run_that_it_undoes(
    wrong, world, handy, obey, answer, ada, ben, per, same, other
):
    obey(f"sum(args.to.v, per: {per}, over: '24h') > 500")
    trip = Trip(keys.create_key(handy, by=None, name="more")[1])
    for run in ("run_1", "run_3"):
        trip.send("run.started", run=run, on_behalf_of={"id": "eve"})
    plan = plan_for(wrong, world)
    approval = asked(plan, ada, run="run_1", agent=handy)
    inbox.grant(approval, by=ben, seen=approval.digest, reason="checked")

    assert answer(101, explain=True, **same) == "wait"
    if other is not None:
        assert answer(101, explain=True, **other) == "proceed"


def test_each_step_of_a_plan_counts_and_a_rule_about_others_counts_it_too(
    handy, world, outside, obey, answer, ada, ben
):
    obey("args.id == 'x' && count(over: '1h') > 3")
    outside.seed({name: {"v": 0} for name in "abc"})
    changes = {name: ({"v": 1}, {"v": 0}) for name in "abc"}
    plan = plan_for(case_of(run_that(handy, "run_1", changes)), world)
    first = plan.steps.first()
    call = approved_calls.tool_call_of(first, world, calls.operation_of(world, "restore"))
    assert judge(active(plan.workspace), call).approval == "AUTO"
    approval = asked(plan, ada, run="run_1", agent=handy)
    inbox.grant(approval, by=ben, seen=approval.digest, reason="checked")

    assert held() == 3
    assert answer(1, explain=True, args={"id": "x"}) == "wait"
    assert answer(1, explain=True, args={"id": "y"}) == "proceed"


@pytest.mark.parametrize(
    ("operation", "said", "lasting"),
    [("mail", None, True), ("restore", "irreversible", True), ("restore", None, False)],
)
def test_an_approved_step_counts_as_one_nobody_is_asked_about_and_its_card_says_what_lasts(
    client, wrong, world, acme, ada, ben, operation, said, lasting
):
    """The class is the operation's; what lasts may also be so by the word of the twin."""
    twin = {"connection": "world", "operation": operation} | (
        {"reversibility": said} if said else {}
    )
    args = {"id": "target.id", "to": "before"}
    document = {
        "policies": {"world.*": {"approval": "MANUAL"}},
        "twins": {"things.*": twin | {"args": args}},
    }
    put_in_force(acme, ada, document)
    draft = plans.draft(wrong)
    assert draft.why_not == "", draft.why_not
    plans.submit(wrong, digest=draft.digest, revision=draft.case.revision, by=ada, reason="x")
    approval, step = Approval.objects.get(), Step.objects.get()

    unasked = approved_calls.tool_call_of(step, world, calls.operation_of(world, operation))

    assert plan_sums.steps_of(approval) == [unasked]
    client.force_login(ben)
    page = client.get(f"/w/acme/approvals/{approval.pk}/")
    shown = [one["reversibility"] for one in page.context["calls"]]
    assert shown == [step.reversibility]
    assert (shown == ["irreversible"]) is lasting
    warning = "A step of this plan cannot be taken back once it ran."
    assert (warning in page.content.decode()) is lasting
