"""An undo that was wrong is undone like anything else, and only because a person said so."""

from datetime import timedelta

import pytest
from cryptography.fernet import Fernet
from django.db.models import F

from ledger.models import Action, Effect, Run
from recovery import corrections
from recovery.cases.lifecycle import OutOfDate
from recovery.casework import cases, closing
from recovery.corrections import publishing
from recovery.engine import steps
from recovery.models import Case, CaseState
from recovery.planning import plans
from recovery.run_facts import long_runs
from recovery.triage import detectors, triage
from tests.recovery.cases.cast import submitted
from tests.recovery.cases.conftest import POLICY
from tests.recovery.engine import by_hand
from tests.worlds import kept


@pytest.fixture
@kept(in_turn=True)
def undone(raised, acme, ada, shop):
    """Ticket T-182 was put back to normal by the desk."""
    from approvals import versions

    twin = '    "shop.*":       {connection: shop, operation: restore_row, args: {to: before}}\n'
    document = POLICY.replace("  twins:\n", f"  twins:\n{twin}")
    versions.activate(versions.save(acme, document, by=None), by=None)
    case = raised.case()
    plan = submitted(case, ada, reason="x")
    by_hand.advance(plan.pk)
    assert shop.execute("SELECT priority FROM tickets").fetchone() == ("normal",)
    return Run.objects.get(run=steps.run_of(plan))


def test_a_wrong_undo_is_undone_once_a_person_reports_it(undone, shop, ada):
    triage.look()
    assert Case.objects.count() == 1, "nobody has said yet that it was wrong"

    case = cases.report(undone, text="It was high for a reason", by=ada)
    draft = plans.draft(case)
    [step] = draft.steps
    assert draft.why_not == "", draft.cannot
    plan = plans.submit(case, digest=draft.digest, revision=draft.case.revision, by=ada, reason="x")
    by_hand.advance(plan.pk)

    case.refresh_from_db()
    assert shop.execute("SELECT priority, assignee FROM tickets").fetchone() == ("high", "Nora")
    assert (case.state, case.outcome) == (CaseState.CLOSED, "restored")
    assert step.step.key != plan.case.run.case.plans.get().case.run.run
    triage.look()
    assert Case.objects.count() == 2

    first = Case.objects.order_by("pk")[0]
    assert (first.state, first.outcome, first.standing_count) == ("closed", "expected", 1)
    assert first.closing_reason == "What undid it was undone: it stands again."
    seen = first.revision
    triage.look([case.run_id, first.run_id])
    first.refresh_from_db()
    assert (first.outcome, first.revision) == ("expected", seen), "looking twice changes nothing"


@pytest.mark.parametrize("name", ["desk-plan-x", "desk-plan-"])
def test_a_run_that_an_agent_calls_like_a_plans_is_undone_as_any_other(
    begin_run, shop, ticket, ada, name
):
    run = begin_run(name)
    shop.execute("UPDATE tickets SET priority = 'high', version = version + 1")
    high = ticket | {"priority": "high"}
    action = run.does("tickets.update", ("ticket", "main/T-182", ticket, high))
    run.is_verified(action, ok=False)
    run.ends()

    by_hand.advance(submitted(run.case(), ada).pk)

    assert shop.execute("SELECT priority FROM tickets").fetchone() == ("normal",)
    case = run.case()
    assert (case.state, case.outcome) == ("closed", "restored")


def test_what_is_told_only_after_all_was_undone_opens_the_case_again(raised, ticket, ada):
    """A spool came late: the case said that every effect was undone, and one stands."""
    case = raised.case()
    by_hand.advance(submitted(case, ada).pk)
    case = raised.case()
    assert (case.state, case.outcome, case.standing_count) == ("closed", "restored", 0)

    raised.does("tickets.update", ("ticket", "main/T-9", ticket, ticket | {"priority": "high"}))
    case = raised.case()

    assert (case.state, case.standing_count, case.suggestion) == ("open", 1, "compensate")
    assert case.reasons[0] == "told_after_undo"
    assert "told of tickets.update only after the case had been closed" in case.headline
    seen = case.revision
    triage.look([case.run_id])
    case.refresh_from_db()
    assert (case.reasons[0], case.revision) == ("told_after_undo", seen), "it stays told"

    closing.close(case, outcome="expected", reason="It may stay", by=ada, seen=seen)
    assert raised.case().state == CaseState.CLOSED


@pytest.mark.parametrize("outcome", ["expected", "already_handled", "duplicate"])
def test_what_is_told_only_after_a_case_was_closed_by_a_person_opens_it_again(
    raised, ticket, ada, outcome
):
    """Whoever said that it may stay spoke of what they saw."""
    case = raised.case()
    closing.close(case, outcome=outcome, reason="It may stay", by=ada, seen=case.revision)
    triage.look([case.run_id])
    assert raised.case().state == CaseState.CLOSED, "what they saw stands, and is answered"

    raised.does("tickets.update", ("ticket", "main/T-9", ticket, ticket | {"priority": "high"}))
    case = raised.case()
    assert (case.state, case.reasons[0]) == ("open", "told_after_undo")
    assert case.headline.count("only after the case had been closed") == 1

    closing.close(case, outcome=outcome, reason="That, too", by=ada, seen=case.revision)
    triage.look([case.run_id])
    assert raised.case().state == CaseState.CLOSED


def test_what_stood_among_more_than_a_closing_answers_opens_no_case_once_one_is_undone(
    begin_run, ticket, ada, monkeypatch
):
    """Of a long run another call was looked at then, which no closing had answered."""
    monkeypatch.setattr(long_runs, "ACTIONS_LOOKED_AT_MAX", 10)
    run, high = begin_run(), ticket | {"priority": "high"}
    for number in range(20):
        run.does("tickets.update", ("ticket", f"main/T-{number}", ticket, high))
    case = run.ends("failed").case()
    closing.close(case, outcome="expected", reason="It may stay", by=ada, seen=case.revision)
    Case.objects.update(closed_at=F("closed_at") + timedelta(hours=1))

    Effect.objects.filter(target_id="main/T-19").update(compensated="compensated")
    Action.objects.filter(n=20).update(compensated="compensated")
    steps.let_triage_look(case.run)
    assert run.case().state == CaseState.CLOSED

    Case.objects.update(closed_at=F("closed_at") - timedelta(hours=1))
    run.does("tickets.update", ("ticket", "main/T-99", ticket, high))
    assert run.case().state == CaseState.OPEN, "that was told late"


def test_a_closing_answers_more_reasons_than_a_case_tells_of(begin_run, ticket, ada, monkeypatch):
    monkeypatch.setattr(detectors, "REASONS_MAX", 2)
    run, high = begin_run(), ticket | {"priority": "high"}
    for number in range(3):
        told = ("ticket", f"main/T-{number}", ticket, high)
        run.is_verified(run.does("tickets.update", told), ok=False)
    case = run.ends().case()
    closing.close(case, outcome="expected", reason="It may stay", by=ada, seen=case.revision)

    Action.objects.filter(n=1).update(compensated="compensated")
    steps.let_triage_look(case.run)

    assert run.case().state == CaseState.CLOSED


def test_a_run_that_is_taken_up_again_after_its_case_was_closed_does_something_new(
    raised, ticket, ada
):
    case = raised.case()
    closing.close(case, outcome="expected", reason="It may stay", by=ada, seen=case.revision)

    raised.send("run.resumed")
    raised.does("tickets.update", ("ticket", "main/T-9", ticket, ticket | {"priority": "high"}))
    raised.ends()
    assert raised.case().state == CaseState.CLOSED


def test_what_goes_on_after_a_case_was_closed_is_not_told_late(raises, ticket, ada):
    """A run that was reported while it lives may go on: what it does next is no surprise."""
    run = raises(1)
    case = cases.report(Run.objects.get(run=run.run), text="Look", by=ada)
    closing.close(case, outcome="expected", reason="It may stay", by=ada, seen=case.revision)

    run.does("tickets.update", ("ticket", "main/T-9", ticket, ticket | {"priority": "high"}))
    assert run.case().state == CaseState.CLOSED


@pytest.mark.parametrize("days", [0, 8])
def test_whoever_was_told_of_an_undo_that_was_undone_again_reads_that_it_is_no_longer_so(
    undone, ada, client, days, settings
):
    """However long ago that was."""
    first = Case.objects.get()
    publishing.draft_due()
    told = corrections.publish(first.corrections.get(), by=ada, seen=1)
    trail = corrections.link_of(told).removeprefix("http://localhost")
    assert "Something has changed since" not in client.get(trail).content.decode()

    Case.objects.update(closed_at=F("closed_at") - timedelta(days=days))
    case = cases.report(undone, text="It was high for a reason", by=ada)
    by_hand.advance(submitted(case, ada).pk)
    triage.look()
    publishing.draft_due()

    page = client.get(trail).content.decode()
    assert "Something has changed since then" in page
    assert "Read the newer correction" not in page
    newer = first.corrections.latest("pk")
    (item,) = newer.facts["items"]
    assert (item["word"], item["undone_at"]) == ("Left as it is", None)
    newer = corrections.publish(newer, by=ada, seen=newer.revision)
    assert corrections.link_of(newer) in client.get(trail).content.decode()
    kept = settings.AMENDS_SECRET_KEYS
    settings.AMENDS_SECRET_KEYS = [Fernet.generate_key().decode()]
    page = client.get(trail)
    assert page.status_code == 200, "the key that opened the newer one's link is lost"
    assert "Something has changed since then" in page.text
    assert "Read the newer correction" not in page.text
    settings.AMENDS_SECRET_KEYS = kept
    client.force_login(ada)
    page = client.get(f"/w/acme/cases/{first.pk}/").content.decode()
    assert "</time>. What undid it was undone" in page, "the desk quotes nobody"
    assert "was undone, and the undo was undone: it stands again" in page

    second = Run.objects.get(run=steps.run_of(case.plans.get()))
    by_hand.advance(submitted(cases.report(second, text="No: normal", by=ada), ada).pk)
    publishing.draft_due()
    newest = first.corrections.latest("pk")
    assert (newest.pk > newer.pk, newest.facts["items"][0]["word"]) == (True, "Put back")
    triage.look()
    outcomes = list(Case.objects.order_by("pk").values_list("outcome", "standing_count"))
    assert outcomes == [("restored", 0), ("expected", 1), ("restored", 0)]


def test_a_correction_is_not_published_as_it_was_drafted_before_more_was_undone(
    raised, ticket, ada
):
    case = raised.case()
    (draft,) = corrections.draft(case)
    assert draft.facts["items"][0]["word"] == "Left as it is"
    by_hand.advance(submitted(case, ada).pk)

    with pytest.raises(OutOfDate):
        corrections.publish(draft, by=ada, seen=draft.revision)

    draft.refresh_from_db()
    assert (draft.state, draft.facts["items"][0]["word"]) == ("draft", "Put back")
    assert corrections.publish(draft, by=ada, seen=draft.revision).state == "published"


def test_who_undoes_the_later_of_two_runs_last_reads_that_it_brings_the_earlier_back(
    raised, begin_run, shop, ticket, ada, client
):
    high = ticket | {"priority": "high"}
    later = begin_run("run_2")
    shop.execute("UPDATE tickets SET priority = 'normal', version = version + 1")
    later.does("tickets.update", ("ticket", "main/T-182", high, ticket))
    later.ends("failed")
    (step,) = plans.draft(later.case()).steps
    assert (step.brings_back, step.notes) == ("", []), "nothing of it is undone yet"
    by_hand.advance(submitted(raised.case(), ada).pk)

    (step,) = plans.draft(later.case()).steps

    assert step.brings_back == "run_1"
    client.force_login(ada)
    page = client.get(f"/w/acme/cases/{later.case().pk}/compensate/").content.decode()
    assert "It brings back what run run_1 had left, which was undone." in page
