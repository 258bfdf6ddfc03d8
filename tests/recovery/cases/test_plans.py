"""Drafting and submitting: what would run is what was shown, or nothing runs."""

import pytest
from django.db import IntegrityError, transaction

from approvals import inbox
from approvals.models import Approval
from approvals.policy import strictest
from ledger.models import Effect, Event
from recovery.cases.lifecycle import OutOfDate
from recovery.casework import closing
from recovery.engine import plan_lifecycle
from recovery.models import CaseState, Plan, PlanState, Step, StepState
from recovery.planning import drafting, plans
from recovery.planning.plans import CannotSubmit
from tests.locks import behind
from tests.people import person
from tests.recovery.cases.cast import submitted
from tests.recovery.engine import by_hand
from workspaces import teams
from workspaces.models import Team


def test_a_draft_shows_the_exact_call_and_that_nothing_has_drifted(raised, ticket):
    case = raised.case()

    draft = plans.draft(case)

    (step,) = draft.steps
    assert step.preview.title == "Restore ticket main/T-182 (3 columns)" or step.preview.title
    assert step.step.args["to"] == ticket
    assert step.drift_state == "unchanged"
    assert step.step.reversibility == "exact"
    assert draft.why_not == ""
    assert draft.approval == ""
    assert not Plan.objects.exists()
    assert plans.draft(case).digest == draft.digest


def test_what_the_policy_says_of_a_plan_is_made_out_once_however_often_it_is_asked(
    raised, monkeypatch
):
    draft, asked = plans.draft(raised.case()), []

    def heard(judgements):
        asked.append(judgements)
        return strictest(judgements)

    monkeypatch.setattr(drafting, "strictest", heard)

    assert (draft.why_not, draft.hindrance, draft.approval) == ("", "", "")
    assert "The affected person" not in draft.lead

    assert len(asked) == 1


def test_the_worker_restores_the_row_and_the_case_closes(raised, ticket, shop, ada):
    case = raised.case()

    plan = submitted(case, ada)
    by_hand.advance(plan.pk)

    plan.refresh_from_db()
    case.refresh_from_db()
    assert plan.state == PlanState.FINISHED
    assert (case.state, case.outcome) == (CaseState.CLOSED, "restored")
    assert shop.execute("SELECT priority FROM tickets").fetchone() == ("normal",)
    assert Event.objects.get(type="plan.submitted").actor == str(ada.pk)
    raised_again = raised.case()
    assert raised_again.state == CaseState.CLOSED


def test_a_draft_that_somebody_overtook_is_not_submitted(raised, ada):
    case = raised.case()
    draft = plans.draft(case)

    with pytest.raises(OutOfDate):
        plans.submit(case, digest="0" * 64, revision=draft.case.revision, by=ada, reason="")
    with pytest.raises(OutOfDate):
        plans.submit(case, digest=draft.digest, revision=99, by=ada, reason="")

    assert not Plan.objects.exists()


def test_of_two_who_submit_in_one_moment_the_second_does_not_push_aside_the_firsts(
    raised, shop, acme, ada, monkeypatch
):
    """To draft takes a look at each target, which is time enough for somebody else."""
    case = raised.case()
    seen = plans.draft(case)

    def submit(by):
        return plans.submit(
            case, digest=seen.digest, revision=seen.case.revision, by=by, reason="Wrong"
        )

    carl = person("carl", Team.objects.get(workspace=acme, name="operators"))

    def overtaken(case, **more):
        drafted = seen_by(case, **more)
        monkeypatch.setattr(plans, "draft", seen_by)
        submit(ada)
        return drafted

    seen_by = plans.draft
    monkeypatch.setattr(plans, "draft", overtaken)

    with pytest.raises(OutOfDate):
        submit(carl)

    plan = Plan.objects.get()
    assert plan.state == PlanState.RUNNING
    by_hand.advance(plan.pk)
    assert shop.execute("SELECT priority FROM tickets").fetchone() == ("normal",)


def test_a_plan_that_was_pushed_aside_for_one_that_never_came_leaves_its_case_open(raised, ada):
    case = raised.case()
    plan = submitted(case, ada)

    plan_lifecycle.supersede(plan, by=ada, why="A new plan takes its place.")

    case.refresh_from_db()
    assert (case.state, plan.steps.get().state) == (CaseState.OPEN, StepState.CANCELLED)


def test_unresolved_drift_refuses_and_a_rebase_keeps_the_later_change(raised, shop, ada):
    case = raised.case()
    shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1")

    draft = plans.draft(case)
    (step,) = draft.steps
    assert step.drift_state == "drifted"
    assert step.drift == [
        {"field": "assignee", "was": "Nora", "agent_wrote": "Nora", "now": "Finn"}
    ]
    with pytest.raises(CannotSubmit, match="has drifted"):
        submitted(case, ada)

    plan = submitted(case, ada, choices={step.effect.pk: "rebase"})
    by_hand.advance(plan.pk)

    assert shop.execute("SELECT priority, assignee FROM tickets").fetchone() == ("normal", "Finn")


def test_overriding_drift_takes_one_more_person(raised, shop, ada, ben):
    case = raised.case()
    shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1")
    effect = Effect.objects.get()

    plan = submitted(case, ada, choices={effect.pk: "override"})

    case.refresh_from_db()
    assert (plan.state, case.state) == (PlanState.WAITING, CaseState.WAITING)
    approval = Approval.objects.get()
    inbox.grant(approval, by=ben, seen=approval.digest, reason="Nora has it back")
    by_hand.advance(plan.pk)
    assert shop.execute("SELECT priority, assignee FROM tickets").fetchone() == ("normal", "Nora")


@pytest.mark.parametrize("self_approval", [False, True])
def test_who_overrides_drift_is_not_the_one_more_person(raised, shop, acme, ada, self_approval):
    """Even where the policy lets people approve their own; the database refuses it, too."""
    from approvals import versions
    from approvals.models import Decision
    from tests.recovery.cases.conftest import POLICY

    if self_approval:
        own = POLICY + "  selfApproval: true\n"
        versions.activate(versions.save(acme, own, by=None), by=None)
    teams.add(Team.objects.get(name="leads"), ada, by=None)
    case = raised.case()
    shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1")
    plan = submitted(case, ada, choices={Effect.objects.get().pk: "override"})
    approval = Approval.objects.get()

    with pytest.raises(inbox.NotEntitled):
        inbox.grant(approval, by=ada, seen=approval.digest, reason="I know better")
    with pytest.raises(IntegrityError, match="four_eyes"), transaction.atomic():
        Decision.objects.create(
            approval=approval, person=ada, granted=True, seen_digest=approval.digest
        )

    by_hand.advance(plan.pk)
    assert shop.execute("SELECT priority, assignee FROM tickets").fetchone() == ("high", "Finn")
    said = Event.objects.get(type="plan.submitted")
    assert (said.actor, said.data["steps"][0]["chosen"]) == (str(ada.pk), "override")


def test_what_one_run_wrote_twice_goes_back_newest_first(begin_run, shop, ticket, ada):
    run = begin_run()
    high = ticket | {"priority": "high"}
    worst = high | {"assignee": "Nobody"}
    shop.execute("UPDATE tickets SET priority = 'high', assignee = 'Nobody', version = 3")
    run.does("tickets.update", ("ticket", "main/T-182", ticket, high))
    run.does("tickets.assign", ("ticket", "main/T-182", high, worst))
    run.ends("failed")

    draft = plans.draft(run.case())

    assert [one.action.tool for one in draft.steps] == ["tickets.assign", "tickets.update"]
    assert [one.drift_state for one in draft.steps] == ["unchanged", "later"]
    assert draft.steps[1].step.expected == high
    plan = submitted(run.case(), ada)
    assert [step.state for step in plan.steps.order_by("position")] == ["ready", "blocked"]
    by_hand.advance(plan.pk)
    assert shop.execute("SELECT priority, assignee FROM tickets").fetchone() == ("normal", "Nora")


def test_an_edit_between_two_writes_of_the_agent_is_drift(begin_run, shop, ticket, ada):
    run = begin_run()
    high = ticket | {"priority": "high"}
    edited = high | {"assignee": "Finn"}
    last = edited | {"priority": "urgent"}
    shop.execute("UPDATE tickets SET priority = 'urgent', assignee = 'Finn', version = 4")
    run.does("tickets.update", ("ticket", "main/T-182", ticket, high))
    run.does("tickets.update", ("ticket", "main/T-182", edited, last))
    run.ends("failed")
    case = run.case()

    draft = plans.draft(case)
    assert [one.drift_state for one in draft.steps] == ["unchanged", "drifted"]
    plan = submitted(case, ada, choices={draft.steps[1].effect.pk: "rebase"})
    by_hand.advance(plan.pk)

    assert shop.execute("SELECT priority, assignee FROM tickets").fetchone() == ("normal", "Finn")


def test_what_the_agent_created_is_deleted(begin_run, shop, ticket, ada):
    new = {"world": "main", "id": "T-9", "priority": "low", "assignee": None}
    shop.execute("INSERT INTO tickets (world, id, priority) VALUES ('main', 'T-9', 'low')")
    run = begin_run()
    run.does("tickets.create", ("ticket", "main/T-9", None, new))
    run.ends("failed")

    plan = submitted(run.case(), ada)
    by_hand.advance(plan.pk)

    assert shop.execute("SELECT id FROM tickets").fetchall() == [("T-182",)]


def test_effects_without_a_way_back_say_why(begin_run, shop, ticket, client, ada):
    run = begin_run()
    run.does("mail.send", ("mail", "m-1", None, {"to": "x@example.com"}))
    run.does("users.update", ("user", "7", {"password": "hunter2"}, {"password": "changed"}))
    run.does("odd.tool", ("thing", "9", {"a": 1}, {"a": 2}))  # a way back might be registered
    case = run.ends("failed").case()

    draft = plans.draft(case)

    assert sorted(one.code for one in draft.cannot) == ["irreversible", "masked", "no_twin"]
    assert draft.why_not == "Nothing says yet how odd.tool is undone."
    client.force_login(ada)
    page = client.get(f"/w/acme/cases/{case.pk}/compensate/").text
    assert "Teach the desk to undo odd.tool" in page
    assert draft.why_not not in page, "it would be said twice"
    assert case.reversibility == "irreversible"


def test_a_compensation_that_only_the_agent_suggests_waits_for_people(begin_run, shop, ticket, ada):
    run = begin_run()
    undo = {"connection": "shop", "operation": "restore_row", "args": {"to": ticket}}
    high = ticket | {"priority": "high"}
    shop.execute("UPDATE tickets SET priority = 'high', version = 2")
    run.does("odd.tool", ("ticket", "main/T-182", ticket, high), planned={"compensation": undo})
    run.ends("failed")

    plan = submitted(run.case(), ada)

    assert plan.state == PlanState.WAITING
    approval = Approval.objects.get()
    assert approval.plan_id == plan.pk
    # The rule asks nobody, so it cannot have said that whoever asks may answer, too.
    assert approval.self_approval is False


def test_law_9b_an_agent_does_not_choose_its_own_twin(begin_run, shop, ticket, ada):
    """It suggests another way back than the policy's, which would leave more to it."""
    run = begin_run()
    undo = {"connection": "shop", "operation": "delete_row", "args": {}}
    high = ticket | {"priority": "high"}
    shop.execute("UPDATE tickets SET priority = 'high', version = 2")
    run.does(
        "tickets.update", ("ticket", "main/T-182", ticket, high), planned={"compensation": undo}
    )
    run.ends("failed")

    plan = submitted(run.case(), ada)
    by_hand.advance(plan.pk)

    step = plan.steps.get()
    assert (step.operation, step.args["to"], step.state) == ("restore_row", ticket, "verified")
    assert shop.execute("SELECT priority FROM tickets").fetchone() == ("normal",)


def test_law_9a_two_plans_for_one_effect_have_one_key(raised, ada, ben, shop):
    case = raised.case()
    shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1")
    choices = {Effect.objects.get().pk: "override"}
    first = submitted(case, ada, choices=choices)
    inbox.reject(Approval.objects.get(), by=ben, seen=Approval.objects.get().digest, reason="no")
    by_hand.advance(first.pk)

    second = submitted(case, ada, choices=choices)

    assert first.pk != second.pk
    assert first.steps.get().key == second.steps.get().key


def test_a_plan_reaches_back_to_a_checkpoint_only(begin_run, shop, ticket):
    run = begin_run()
    high = ticket | {"priority": "high"}
    run.does("tickets.update", ("ticket", "main/T-182", ticket, high))
    run.n += 1
    run.send("run.checkpoint", name="raised", completed=["act_1"])
    run.does("tickets.update", ("ticket", "main/T-182", high, high | {"assignee": "Finn"}))
    run.ends("failed")
    case = run.case()
    checkpoint = run.row.checkpoints.get()

    draft = plans.draft(case, reach=checkpoint)

    assert [one.action.action for one in draft.steps] == ["act_3"]
    assert draft.digest != plans.draft(case).digest


def test_what_came_after_a_checkpoint_is_undone_and_the_run_goes_on_from_there(
    begin_run, shop, ticket, ada
):
    from recovery.casework import resuming

    run = begin_run()
    high = ticket | {"priority": "high"}
    mine = high | {"assignee": "Finn"}
    shop.execute("UPDATE tickets SET priority = 'high', assignee = 'Finn', version = 3")
    run.does("tickets.update", ("ticket", "main/T-182", ticket, high))
    run.n += 1
    run.send("run.checkpoint", name="raised", completed=["act_1"])
    run.does("tickets.assign", ("ticket", "main/T-182", high, mine))
    run.fails("mail.send")
    run.ends("failed")
    checkpoint = run.row.checkpoints.get()

    plan = submitted(run.case(), ada, reach=checkpoint)
    by_hand.advance(plan.pk)

    assert shop.execute("SELECT priority, assignee FROM tickets").fetchone() == ("high", "Nora")
    case = run.case()
    assert (case.state, case.standing_count) == (CaseState.OPEN, 1)
    seen = resuming.preview(case, checkpoint=checkpoint)
    assert (seen.why_not, seen.stale) == ("", "")
    assert [(one.tool, one.label) for one in seen.steps] == [
        ("tickets.assign", "repeat_new_key"),
        ("mail.send", "repeat_same_key"),
    ]
    resuming.commit(
        case, digest=seen.digest, revision=seen.case.revision, by=ada, checkpoint=checkpoint
    )
    assert run.row.held_by == ""


def test_a_plan_with_an_unknown_outcome_is_refused(begin_run, shop, ticket, ada):
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}))
    run.fails("mail.send", outcome="unknown")
    run.ends("failed")

    assert plans.draft(run.case()).why_not == (
        "Settle mail.send first: nobody knows whether it happened."
    )


@pytest.fixture
def asks_leads(begin_run, shop, shop_connection):
    """A case whose plan the leads must approve, of whom there is no team any more."""
    shop.execute("INSERT INTO customers (id, name) VALUES (7, 'Eve')")
    run = begin_run()
    run.does("tickets.touch", ("customers", "7", {"name": "Gil"}, {"name": "Eve"}))
    run.ends("failed")
    Team.objects.filter(name="leads").update(name="bosses")
    return run.case()


def test_a_plan_that_nobody_can_be_asked_about_is_refused_in_words(asks_leads, ada, client):
    with pytest.raises(CannotSubmit, match="asks team “leads”, which Acme does not have"):
        submitted(asks_leads, ada)

    assert not Plan.objects.exists()
    draft = plans.draft(asks_leads)
    client.force_login(ada)
    answer = client.post(
        f"/w/acme/cases/{asks_leads.pk}/compensate/",
        {"act": "commit", "digest": draft.digest, "revision": draft.case.revision, "why": "x"},
    )
    assert answer.status_code == 409
    assert "asks team “leads”" in answer.content.decode()


def test_in_an_act_on_many_such_a_plan_is_refused_by_itself(asks_leads, ada):
    """The dry run says so already; the job, too, where the team goes away between the two."""
    from recovery.casework import bulk

    (refused,) = bulk.dry_run(asks_leads.workspace, "compensate", by=ada).not_eligible
    assert "asks team “leads”" in refused.why
    Team.objects.filter(name="bosses").update(name="leads")
    seen = bulk.dry_run(asks_leads.workspace, "compensate", by=ada)
    frozen = [bulk.FrozenCase(one.case.pk, one.case.revision, one.digest) for one in seen.eligible]
    Team.objects.filter(name="leads").update(name="bosses")
    job = bulk.start(asks_leads.workspace, "compensate", by=ada, reason="x", frozen=frozen)

    assert bulk.sweep() == 1

    item = job.items.get()
    assert (item.state, "asks team “leads”" in item.detail) == ("refused", True)


def test_a_rejected_plan_leaves_the_case_open_and_another_may_follow(raised, shop, ada, ben):
    case = raised.case()
    shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1")
    effect = Effect.objects.get()
    plan = submitted(case, ada, choices={effect.pk: "override"})
    approval = Approval.objects.get()

    inbox.reject(approval, by=ben, seen=approval.digest, reason="Finn's change is right")
    by_hand.advance(plan.pk)

    plan.refresh_from_db()
    case.refresh_from_db()
    assert (plan.state, case.state) == (PlanState.REJECTED, CaseState.OPEN)
    assert set(Step.objects.values_list("state", flat=True)) == {StepState.CANCELLED}
    again = submitted(case, ada, choices={effect.pk: "rebase"})
    assert again.number == 2


def test_what_went_wrong_is_still_told_when_it_has_been_put_right(raised, begin_run, shop, ada):
    from recovery.triage import triage

    case = raised.case()
    before = (case.headline, case.reasons, case.evidence)
    plan = submitted(case, ada)
    by_hand.advance(plan.pk)
    Effect.objects.update(compensated="corrected")
    case.refresh_from_db()
    case.state = CaseState.OPEN
    case.save()

    triage.look([case.run_id])

    case.refresh_from_db()
    assert (case.headline, case.reasons, case.evidence) == before
    assert (case.suggestion, case.standing_count) == ("close", 0)


@pytest.mark.django_db(transaction=True)
def test_who_closes_and_who_submits_in_one_moment_do_not_wait_for_each_other(raised, shop, ada):
    """What a stopped plan left for people is pushed aside by both."""
    case = raised.case()
    plan = submitted(case, ada)
    shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1")
    by_hand.advance(plan.pk)
    plan_lifecycle.stop(plan, by=ada)
    shop.execute("UPDATE tickets SET assignee = 'Nora'")
    assert plan.steps.get().state == StepState.DRIFTED
    case.refresh_from_db()
    seen = plans.draft(case)

    def close():
        closing.close(case, outcome="expected", reason="Meant so.", by=ada, seen=case.revision)

    def submit():
        plans.submit(case, digest=seen.digest, revision=case.revision, by=ada, reason="Wrong")

    held = type(case).objects.select_for_update()
    closed, late = behind(lambda: held.get(pk=case.pk), close, submit)

    assert not isinstance(closed, Exception), closed
    assert isinstance(late, OutOfDate)
    case.refresh_from_db()
    assert (case.state, plan.steps.get().state) == (CaseState.CLOSED, StepState.CANCELLED)


def test_nobody_is_asked_any_longer_about_a_plan_that_another_has_replaced(raised, shop, ada, ben):
    """Something brought the case back while the question waited. Ben would decide on a plan that
    starts no more."""
    case = raised.case()
    shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1")
    effect = Effect.objects.get()
    first = submitted(case, ada, choices={effect.pk: "override"})
    before = Approval.objects.get()
    type(case).objects.filter(pk=case.pk).update(state=CaseState.OPEN)
    case.refresh_from_db()

    second = submitted(case, ada, choices={effect.pk: "rebase"})

    first.refresh_from_db()
    before.refresh_from_db()
    assert (first.state, before.state) == (PlanState.SUPERSEDED, "withdrawn")
    assert before.closing_reason == "A new plan takes its place."
    asked = Approval.objects.filter(state="waiting").values_list("plan_id", flat=True)
    assert set(asked) <= {second.pk}
