"""Ending a doubt with a person's evidence, and what is done with steps that wait."""

from datetime import timedelta

import pytest
from django.utils import timezone

from ledger.models import Event, Run
from recovery.cases.lifecycle import OutOfDate
from recovery.casework import closing, settling
from recovery.casework.closing import CannotClose
from recovery.engine import plan_lifecycle, steps
from recovery.models import Case, CaseState, PlanState, Step, StepState, Suggestion
from recovery.planning import plans
from recovery.triage import triage
from tests.locks import behind
from tests.people import person, team
from tests.recovery.cases.cast import submitted
from tests.recovery.engine import by_hand
from tests.worlds import kept
from workspaces.free_text import InvalidInput
from workspaces.moves import CannotMove


@pytest.fixture
@kept(in_turn=True)
def doubtful(begin_run):
    """A run that failed while nobody knows whether the ticket was raised."""
    run = begin_run()
    run.plans("tickets.update", ("ticket", "main/T-182"))
    run.ends("failed")
    return run


def test_it_did_not_happen_and_nothing_is_left_to_do(doubtful, ada):
    case = doubtful.case()
    (action,) = settling.facts_now(case).unknown()
    with pytest.raises(CannotClose, match=r"Settle tickets\.update first"):
        closing.close(case, outcome="expected", reason="x", by=ada, seen=case.revision)

    settled = settling.settle_action(
        case, action, outcome="no_effect", evidence="T-182 reads normal", by=ada, seen=case.revision
    )

    assert settled.unknown_count == 0
    assert settled.suggestion == Suggestion.RESUME
    told = Event.objects.get(type="action.settled")
    assert (told.actor_kind, told.actor) == ("person", str(ada.pk))
    assert told.data["evidence"] == {"text": "T-182 reads normal"}


@pytest.mark.parametrize(
    ("is_known", "words"),
    [(True, "Restore assignee and priority"), (False, "Teach the desk to undo odd.tool")],
    ids=["a way back is known", "nobody knows a way back"],
)
def test_it_happened_so_it_stands_and_is_undone_where_a_way_back_is_known(
    begin_run, ada, ticket, is_known, words
):
    run = begin_run()
    undo = {"connection": "shop", "operation": "restore_row", "args": {"to": ticket}}
    planned = {"compensation": undo} if is_known else {}
    run.plans("odd.tool", ("ticket", "main/T-182"), **planned)
    run.ends("failed")
    case = run.case()
    (action,) = settling.facts_now(case).unknown()

    settled = settling.settle_action(
        case, action, outcome="applied", evidence="T-182 reads high", by=ada, seen=case.revision
    )

    assert (settled.standing_count, settled.suggestion) == (1, Suggestion.COMPENSATE)
    assert settled.suggestion_text.startswith(words)


def test_a_settlement_needs_evidence_and_the_page_as_it_is(doubtful, ada):
    case = doubtful.case()
    (action,) = settling.facts_now(case).unknown()
    given = {"outcome": "applied", "by": ada}

    with pytest.raises(InvalidInput):
        settling.settle_action(case, action, evidence=" ", seen=case.revision, **given)
    with pytest.raises(OutOfDate):
        settling.settle_action(case, action, evidence="seen", seen=99, **given)
    settling.settle_action(case, action, evidence="seen", seen=case.revision, **given)
    case.refresh_from_db()
    with pytest.raises(CannotMove):
        settling.settle_action(case, action, evidence="seen", seen=case.revision, **given)


def test_drift_between_approval_and_call_comes_back_to_people(raised, shop, ada):
    case = raised.case()
    plan = submitted(case, ada)
    shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1")

    by_hand.advance(plan.pk)
    triage.look()

    case.refresh_from_db()
    assert case.state == CaseState.OPEN
    assert case.reasons[0] == "step_needs_person"
    assert "found its target changed" in case.evidence[0]["words"]
    assert case.brief == "Undoing it needs a person at step 1, which found its target changed"
    assert case.suggestion_reason == (
        "1 effect of this run stands, and step 1 of undoing it waits for a person."
    )
    (step,) = settling.steps_in_doubt(case)
    settling.skip(step, reason="Finn is right", by=ada, seen=case.revision)
    by_hand.advance(plan.pk)
    triage.look()

    plan.refresh_from_db()
    case.refresh_from_db()
    assert plan.state == PlanState.FINISHED
    assert (case.state, case.standing_count) == (CaseState.OPEN, 1)
    assert Event.objects.get(type="step.skipped").actor == str(ada.pk)


def test_a_lost_step_is_settled_before_anything_else(lost, ada):
    (step,) = settling.steps_in_doubt(lost)

    assert step.is_lost
    assert lost.suggestion == Suggestion.SETTLE
    assert plans.draft(lost).why_not.startswith("Settle step 1 first")
    with pytest.raises(CannotMove, match="under way"):
        plan_lifecycle.supersede(step.plan, by=ada, why="A new plan takes its place.")
    with pytest.raises(CannotMove, match="First say whether it happened"):
        settling.skip(step, reason="x", by=ada, seen=lost.revision)


def test_one_more_try_is_authorised_by_name_and_has_a_new_key(lost, shop, ada):
    (step,) = settling.steps_in_doubt(lost)
    key = step.key

    settling.settle_step(
        step, outcome="no_effect", evidence="Reads high", by=ada, seen=lost.revision, again=True
    )
    step.refresh_from_db()
    assert (step.generation, step.state) == (2, StepState.READY)
    assert step.key != key
    by_hand.advance(step.plan_id)

    lost.refresh_from_db()
    assert lost.outcome == "restored"
    assert shop.execute("SELECT priority FROM tickets").fetchone() == ("normal",)
    triage.look()
    lost.refresh_from_db()
    assert "needs a person" not in lost.headline + lost.brief


@pytest.mark.parametrize(
    ("operation", "repeats", "generation"), [("restore_row", True, 1), ("gone", False, 2)]
)
def test_a_step_that_did_not_happen_goes_on_under_its_key_only_where_that_cannot_double(
    lost, ada, operation, repeats, generation
):
    """Of an operation that is gone nobody knows, so it counts as one that may."""
    (step,) = settling.steps_in_doubt(lost)
    Step.objects.update(was="intended", state=StepState.UNKNOWN, operation=operation)

    settling.settle_step(step, outcome="no_effect", evidence="no", by=ada, seen=lost.revision)

    changed = Step.objects.get()
    assert (changed.state, changed.generation) == (StepState.READY, generation)
    assert (changed.key == step.key) == repeats


def test_who_has_not_claimed_the_case_settles_nothing_of_it(lost, ada):
    (step,) = settling.steps_in_doubt(lost)
    olga = person("olga", team(lost.workspace, "seniors", "view", "recover"))
    hour = timezone.now() + timedelta(hours=1)
    Case.objects.filter(pk=lost.pk).update(claimed_by=olga, claimed_until=hour)

    with pytest.raises(CannotMove, match="Olga has claimed it"):
        settling.settle_step(step, outcome="applied", evidence="x", by=ada, seen=lost.revision)


def test_of_a_stopped_plan_nothing_is_tried_again(lost, shop, ada, client):
    (step,) = settling.steps_in_doubt(lost)
    plan_lifecycle.stop(step.plan, by=ada)
    lost.refresh_from_db()
    said = {"evidence": "Reads high", "by": ada, "seen": lost.revision}

    with pytest.raises(CannotMove, match="make a new plan"):
        settling.settle_step(step, outcome="no_effect", again=True, **said)
    client.force_login(ada)
    page = client.get(f"/w/acme/cases/{lost.pk}/settle/").content.decode()
    assert "Leave the effect as it is" in page
    assert "try once more" not in page

    settling.settle_step(step, outcome="no_effect", **said)
    by_hand.advance(step.plan_id)
    triage.look()
    step.refresh_from_db()
    lost.refresh_from_db()
    assert (step.state, step.tries) == (StepState.SKIPPED, 0)
    assert plans.draft(lost).why_not == ""


def test_a_step_that_happened_is_read_back(lost, shop, ada):
    (step,) = settling.steps_in_doubt(lost)
    shop.execute("UPDATE tickets SET priority = 'normal'")

    settling.settle_step(
        step, outcome="applied", evidence="Reads normal", by=ada, seen=lost.revision
    )
    by_hand.advance(step.plan_id)

    lost.refresh_from_db()
    assert lost.outcome == "restored"


@pytest.mark.django_db(transaction=True)
def test_who_settles_a_step_and_who_triages_its_run_do_not_wait_for_each_other(lost, shop, ada):
    """Triage locks a run and then its case, a worker its step and then the run: so the case is the
    last that a settlement locks."""
    (step,) = settling.steps_in_doubt(lost)
    Run.objects.get_or_create(workspace=lost.workspace, run=steps.run_of(step.plan))
    shop.execute("UPDATE tickets SET priority = 'normal'")

    def settle():
        settling.settle_step(
            step, outcome="applied", evidence="Reads normal", by=ada, seen=lost.revision
        )

    def look():
        triage.look([lost.run_id])

    held = Run.objects.select_for_update()
    came = behind(lambda: held.get(run=steps.run_of(step.plan)), settle, look, unless_over=look)

    assert not [one for one in came if isinstance(one, Exception)]
    step.refresh_from_db()
    assert step.state == StepState.APPLIED


@pytest.mark.django_db(transaction=True)
def test_who_settles_a_step_and_who_closes_its_case_do_not_wait_for_each_other(lost, shop, ada):
    """What a stopped plan has left for people is cancelled by the closing."""
    (step,) = settling.steps_in_doubt(lost)
    plan_lifecycle.stop(step.plan, by=ada)
    Step.objects.update(was=StepState.CLAIMED, state=StepState.NEEDS_HUMAN)
    Case.objects.filter(pk=lost.pk).update(state=CaseState.OPEN)
    lost.refresh_from_db()

    def skip():
        settling.skip(step, reason="it may stay", by=ada, seen=lost.revision)

    def close():
        closing.close(lost, outcome="expected", reason="Meant so.", by=ada, seen=lost.revision)

    held = Case.objects.select_for_update()
    closed, late = behind(lambda: held.get(pk=lost.pk), close, skip)

    assert not isinstance(closed, Exception), closed
    assert isinstance(late, OutOfDate)
    step.refresh_from_db()
    assert step.state == StepState.CANCELLED
