"""Many plans in one worker's hands: they share commits, and nothing else."""

import pytest
from django.db import OperationalError, connection, transaction

from connectors import call_pool, connections
from connectors.models import Channel, Delivery
from ledger import replaying
from ledger.models import Action, Attempt, Blob, Effect, Event, Run
from recovery.engine import faults, plan_runner, queries, steps
from recovery.engine.faults import Fault
from recovery.models import Case, Step
from tests.recovery.engine import by_hand
from tests.recovery.engine.by_hand import after
from tests.recovery.engine.desk import case_of, plan_for, run_that, states
from workspaces.models import Secret

pytestmark = pytest.mark.django_db(transaction=True)

QUEUE = "connector.outside"


@pytest.fixture
def plan_of(handy, world, outside):
    """A running plan that undoes changes of two things, named for it; newest first: “x2”, “x1”."""

    def arrange(name, connection=world):
        things = [f"{name}1", f"{name}2"]
        outside.seed({thing: {"v": 2} for thing in things})
        changes = {thing: ({"v": 1}, {"v": 2}) for thing in things}
        plan = plan_for(case_of(run_that(handy, f"run_{name}", changes)), connection)
        by_hand.advance_once(plan.pk)
        return plan

    return arrange


def test_plans_that_travel_together_have_one_effect_each_in_their_own_order(plan_of, outside):
    plans = [plan_of(name) for name in "wxyz"]

    assert plan_runner.run_together(plans[0].pk, queue=QUEUE) == {}

    assert [states(plan) for plan in plans] == [["verified"] * 2] * 4
    effects = outside.effects()
    assert sorted(effects) == sorted(f"{name}{n}" for name in "wxyz" for n in "12")
    assert all(effects.index(f"{name}2") < effects.index(f"{name}1") for name in "wxyz")
    assert set(Step.objects.values_list("tries", "claims", "fence")) == {(1, 1, 1)}


def test_a_journey_whose_time_is_over_ends_while_others_still_wait(plan_of, outside, monkeypatch):
    monkeypatch.setattr(plan_runner, "CHAIN_SECONDS", 0.0)
    plans = [plan_of(name) for name in "wxyz"]

    onward = plan_runner.run_together(plans[0].pk, queue=QUEUE)

    assert onward[plans[0].pk] == QUEUE
    assert outside.effects() == []


def test_a_call_that_hangs_leaves_the_others_to_go_on(plan_of, outside, limit):
    limit(1.0)
    hanging, *others = [plan_of(name) for name in "wxy"]
    outside.mischief("w2", sleep_after=30)

    plan_runner.run_together(hanging.pk, queue=QUEUE)

    assert [states(plan) for plan in others] == [["verified"] * 2] * 2
    assert states(hanging) == ["unknown", "blocked"]


def test_a_database_that_goes_away_gives_nothing_back_whose_call_is_on_the_wire(
    plan_of, outside, monkeypatch
):
    """It is seen through, and its answer is kept as soon as there is a database again."""
    hanging, other = plan_of("w"), plan_of("x")
    outside.mischief("w2", sleep_after=0.3)
    monkeypatch.setitem(faults.FAULTS, "settled", Fault("cut", "1"))
    faults._passed.clear()

    with pytest.raises(OperationalError):
        plan_runner.run_together(hanging.pk, queue=QUEUE)

    assert (states(hanging), states(other)[0]) == (["applied", "blocked"], "applied")
    assert set(Step.objects.filter(position=1).values_list("fence", flat=True)) == {1}


def test_a_call_that_was_quick_and_now_hangs_holds_up_nobodys_end(
    plan_of, outside, limit, monkeypatch
):
    limit(1.0)
    monkeypatch.setattr(call_pool, "QUICK_SECONDS", 60.0)
    monkeypatch.setattr(plan_runner, "END_SECONDS", 0.1)
    hanging, other = plan_of("w"), plan_of("x")
    outside.mischief("w1", sleep_after=30)

    plan_runner.run_together(hanging.pk, queue=QUEUE)

    other.refresh_from_db()
    given_up = hanging.steps.get(position=2)
    assert (other.state, given_up.state) == ("finished", "unknown")
    assert other.ended_at < given_up.moved_at


def test_a_step_that_was_lost_before_takes_nobody_with_it(plan_of, outside):
    """F06: it may be the one that takes its worker down."""
    suspect, other = plan_of("w"), plan_of("x")
    Step.objects.filter(plan=suspect, position=1).update(claims=1)

    plan_runner.run_together(other.pk, queue=QUEUE)
    assert (states(suspect), states(other)) == (["ready", "blocked"], ["verified"] * 2)

    another = plan_of("y")
    plan_runner.run_together(suspect.pk, queue=QUEUE)
    assert (states(suspect), states(another)) == (["verified"] * 2, ["ready", "blocked"])


def test_a_plan_that_somebody_else_has_in_hand_is_left_to_them(plan_of, outside):
    mine, theirs = plan_of("w"), plan_of("x")
    held = by_hand.claim(theirs.steps.get(position=1).pk)

    plan_runner.run_together(mine.pk, queue=QUEUE)

    assert (states(mine), states(theirs)) == (["verified"] * 2, ["claimed", "blocked"])
    by_hand.take_through([held])
    assert outside.effects() == ["w2", "w1", "x2"]


def test_two_plans_on_one_target_do_not_share_a_claim(handy, world, outside):
    outside.seed({"a": {"v": 3}})
    first = plan_for(case_of(run_that(handy, "run_1", {"a": ({"v": 2}, {"v": 3})})), world)
    second = plan_for(case_of(run_that(handy, "run_2", {"a": ({"v": 1}, {"v": 2})})), world)
    for plan in (first, second):
        by_hand.advance_once(plan.pk)
    both = [steps.load(plan.steps.get().pk) for plan in (first, second)]

    held = plan_runner.claim_each(both)

    assert [one.step.plan_id for one in held] == [first.pk]
    assert second.steps.get().note == f"Waits for case {first.case_id}"


def test_one_step_that_cannot_be_sent_leaves_the_others_to_go_on(plan_of, outside):
    drifted, tampered, sound = [plan_of(name) for name in "wxy"]
    outside.seed({"w2": {"v": 99}})
    Step.objects.filter(plan=tampered, position=1).update(args={"id": "x2", "to": {"v": 7}})

    plan_runner.run_together(sound.pk, queue=QUEUE)

    assert states(sound) == ["verified"] * 2
    assert (states(drifted)[0], states(tampered)[0]) == ("drifted", "needs_human")
    assert not {"w2", "x2"} & set(outside.effects())


def test_a_credential_that_cannot_be_opened_is_a_trouble_of_its_own_connection(
    plan_of, outside, acme, ada
):
    """Its key is no longer in the ring. Nothing has left, so nothing is in doubt."""
    shut = connections.create(acme, "shut", "outside", {"url": outside.url}, by=ada)
    shut.compensate_secret = Secret.objects.create(workspace=acme, name="shut", sealed=b"shut")
    shut.save()
    locked_out, sound = plan_of("w", shut), plan_of("x")

    plan_runner.run_together(sound.pk, queue=QUEUE)

    assert states(sound) == ["verified"] * 2
    assert states(locked_out) == ["ready", "blocked"]
    assert "cannot be opened" in locked_out.steps.get(position=1).note


def test_a_claim_whose_time_has_not_come_is_not_taken_along(plan_of, outside):
    mine, later = plan_of("w"), plan_of("x")
    Step.objects.filter(plan=later, position=1).update(wake_at=after(600))

    plan_runner.run_together(mine.pk, queue=QUEUE)

    assert states(later) == ["ready", "blocked"]


def test_what_is_noted_on_the_way_is_folded_with_the_end(plan_of, acme):
    """The row of a step's action lags behind its events until the step comes to rest, no longer."""
    plan = plan_of("w")
    by_hand.advance(plan.pk)
    run = Run.objects.get(run=steps.run_of(plan))
    noted = Event.objects.filter(run=run.run, action="step-1").values_list("type", flat=True)
    assert {"step.claimed", "step.intended", "step.applied"} <= set(noted)

    agents = Run.objects.get(run="run_w")
    folded, undone = _rows(run), _rows(agents)
    for _ in replaying.rebuild(acme.pk):
        pass

    assert (_rows(run), _rows(agents)) == (folded, undone)
    assert [row["compensated"] for row in undone[1]] == ["compensated"] * 2
    assert [row["state"] for row in folded[0]] == ["succeeded"] * 2


def _rows(run):
    actions = Action.objects.filter(run=run).order_by("action")
    effects = Effect.objects.filter(action__run=run).order_by("action__action", "position")
    attempts = Attempt.objects.filter(action__run=run).order_by("action__action")
    return list(actions.values()), list(effects.values()), list(attempts.values())


@pytest.mark.parametrize(
    ("asked", "values"),
    [
        (queries.NEXT_ACTIONS_SQL, [1, [1, 2]]),
        (queries.WAITING_SQL, [[1], 1, "outside", 8]),
    ],
)
def test_what_lives_of_a_plan_is_never_looked_for_among_all_that_lives(asked, values):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN {asked}", values)
        plan = "\n".join(line for (line,) in cursor.fetchall())

    assert "step_position_in_plan" in plan
    assert "living_step" not in plan
    assert "step_living" not in plan


BREAKS = """
CREATE FUNCTION breaks() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'a row that the engine cannot write'; END $$;
CREATE TRIGGER breaks BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW WHEN ({when})
EXECUTE FUNCTION breaks()"""


@pytest.fixture
def breaks():
    """Let the engine fail at certain rows, like a fault of our own that no other row meets."""

    def arrange(table, when):
        with connection.cursor() as cursor:
            cursor.execute(BREAKS.format(table=table, when=when))

    yield arrange
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION IF EXISTS breaks CASCADE")


@pytest.mark.parametrize(
    ("table", "when", "stands"),
    [
        ("recovery_step", "NEW.state = 'claimed' AND NEW.id = {step}", "ready"),
        ("recovery_stepattempt", "NEW.step_id = {step}", "claimed"),
        ("recovery_stepattempt", "NEW.outcome <> '' AND NEW.step_id = {step}", "intended"),
        ("recovery_step", "NEW.state = 'verified' AND NEW.id = {step}", "applied"),
    ],
)
def test_a_step_at_which_the_engine_fails_costs_its_neighbours_nothing(
    plan_of, outside, breaks, caplog, table, when, stands
):
    """At its claim, its intent, its answer or its end: each is committed for many at once. Nor is
    it taken anew while they go on: that was a thousand times before their worker's time was over.
    """
    outside.mischief("x2", sleep_after=0.6)
    broken, *others = [plan_of(name) for name in "wxyz"]
    breaks(table, when.format(step=broken.steps.get(position=1).pk))

    plan_runner.run_together(others[0].pk, queue=QUEUE)

    assert [states(plan) for plan in others] == [["verified"] * 2] * 3
    assert [Case.objects.get(plans=plan).state for plan in others] == ["closed"] * 3
    assert states(broken) == [stands, "blocked"]
    tries = Step.objects.filter(plan__in=others).values_list("tries", "claims", "fence")
    assert set(tries) == {(1, 1, 1)}, "and none was taken for lost"
    assert caplog.messages.count(f"The engine fails at plan {broken.pk}.") == 1


def test_a_look_at_which_the_engine_fails_costs_its_neighbours_nothing(plan_of, outside, acme):
    broken, *others = [plan_of(name) for name in "wxy"]
    outside.mischief("x2", sleep_after=0.3)  # its answer is on its way while another look fails
    Blob.objects.create(workspace=acme, sha256="0" * 64, byte_count=1, content=b"{")
    Step.objects.filter(plan=broken).update(before=[{"ref": "sha256:" + "0" * 64}])

    plan_runner.run_together(others[0].pk, queue=QUEUE)

    assert [states(plan) for plan in others] == [["verified"] * 2] * 2
    assert set(Step.objects.filter(plan__in=others).values_list("tries", "claims")) == {(1, 1)}
    assert outside.effects().count("w2") == 0


def test_the_end_of_a_plan_that_always_fails_is_told_once_and_its_neighbours_end(
    plan_of, breaks, acme
):
    broken, other = plan_of("w"), plan_of("x")
    pager = Channel.objects.create(
        workspace=acme, name="pager", kind="mail", subjects=["compensation.*"]
    )
    breaks("recovery_plan", f"NEW.state = 'finished' AND NEW.id = {broken.pk}")

    for _ in range(3):
        plan_runner.run_together(other.pk, queue=QUEUE)
        plan_runner.run_together(broken.pk, queue=QUEUE)

    for plan in (broken, other):
        plan.refresh_from_db()
        plan.case.refresh_from_db()
    assert (other.state, other.case.state) == ("finished", "closed")
    assert (broken.state, broken.case.state) == ("running", "open")
    told = Delivery.objects.get(channel=pager)
    assert f"Plan {broken.number} of case {broken.case_id} does not go on" in told.message["title"]
