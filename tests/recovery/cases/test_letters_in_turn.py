"""Letters are drafted and published by themselves; what cannot be done of one holds up no other."""

import pytest
from django.utils import timezone

from ledger import erasure
from ledger.models import Action, Effect, Run
from recovery import corrections
from recovery.cases.lifecycle import OutOfDate
from recovery.corrections import CannotPublish, publishing
from recovery.models import Case, Correction, CorrectionSettings, Plan, Step
from recovery.run_facts import long_runs
from tests.recovery.cases import test_automatic
from tests.recovery.cases.cast import submitted
from tests.recovery.engine import by_hand
from tests.worlds import kept
from workspaces.periodic import Turns

by_itself = test_automatic.by_itself
TAKES_BACK = "What we wrote to you was wrong: our assistant changed nothing of yours."
SINCE = "Something has changed since then"


@pytest.fixture
@kept(in_turn=True)
def restored(raises, ada):
    """Two cases that were put right, one after the other."""
    cases = []
    for number in (1, 2):
        case = raises(number).ends("failed").case()
        by_hand.advance(submitted(case, ada).pk)
        case.refresh_from_db()
        cases.append(case)
    return cases


def test_a_letter_that_cannot_be_drafted_holds_up_neither_others_nor_what_comes_after(restored):
    first, second = restored
    assert {one.outcome for one in restored} == {"restored"}
    broken = {"money": {"amount_minor": "much", "currency": "EUR"}}
    Step.objects.filter(plan__case=first).update(preview=broken)

    with pytest.raises(ValueError, match="much"):
        publishing.sweep()

    assert [one.case for one in Correction.objects.all()] == [second]
    first.refresh_from_db()
    assert first.corrections_drafted_at is None


def test_letters_that_fail_in_every_turn_leave_the_next_one_to_others(
    by_itself, raises, monkeypatch
):
    raises(1).ends("failed")
    raises(2).ends("failed")
    assert test_automatic.swept() == 2
    good = Step.objects.order_by("pk").first().preview
    broken = {"money": {"amount_minor": "much", "currency": "EUR"}}
    first, second = Case.objects.order_by("pk")
    monkeypatch.setattr(publishing, "DRAFTED", Turns(1))
    monkeypatch.setattr(publishing, "PUBLISHED", Turns(1))

    Step.objects.filter(plan__case=first).update(preview=broken)
    with pytest.raises(ValueError, match="much"):
        publishing.draft_due()
    assert publishing.draft_due() == 1
    assert [one.case for one in Correction.objects.all()] == [second]
    Step.objects.filter(plan__case=first).update(preview=good)
    assert publishing.draft_due() == 1, "after the newest the oldest have their turn again"

    older = Correction.objects.order_by("pk").first().case
    Step.objects.filter(plan__case=older).update(preview=broken)
    with pytest.raises(ValueError, match="much"):
        publishing.publish_due()
    assert publishing.publish_due() == 1
    assert older.corrections.get().state == "draft"


def test_why_a_newer_version_opened_a_case_keeps_no_letter_from_being_drafted(restored):
    Case.objects.update(evidence=[{"code": "of_tomorrow", "key": "of_tomorrow", "words": "x"}])

    assert publishing.draft_due() == 2


def test_whom_a_letter_is_for_no_more_is_not_told_what_the_old_draft_said(restored, acme, ada):
    assert publishing.draft_due() == 2
    old = Correction.objects.order_by("pk").first()
    CorrectionSettings.objects.create(workspace=acme, internal=["ticket"])

    with pytest.raises(OutOfDate):
        publishing.publish(old, by=ada, seen=old.revision)
    old.refresh_from_db()
    assert (old.facts["items"], old.title) == ([], "Nothing of yours was changed")
    with pytest.raises(CannotPublish, match="Nothing of this person’s was changed"):
        publishing.publish(old, by=ada, seen=old.revision)


def test_whom_a_published_letter_was_wrongly_for_is_told_so(restored, acme, ada, client):
    """Whose ticket it was came out after Eve had read that it was hers."""
    assert publishing.draft_due() == 2
    old, case = Correction.objects.order_by("pk").first(), restored[0]
    old = publishing.publish(old, by=ada, seen=old.revision)
    trail = corrections.link_of(old).removeprefix("http://localhost")
    bookkeeping = CorrectionSettings.objects.create(workspace=acme, internal=["ticket"])
    corrections.draft(case)
    assert case.corrections.count() == 1, "what is no news any more was true when it was told"
    bookkeeping.delete()
    Effect.objects.update(affects={"id": "mia", "name": "Mia"})
    Run.objects.update(forgotten_at=timezone.now())
    corrections.draft(case)
    assert not case.corrections.filter(person_id="eve", state="draft").exists()
    Run.objects.update(forgotten_at=None)

    corrections.draft(case)

    assert [one.person_id for one in case.corrections.order_by("pk")] == ["eve", "mia", "eve"]
    newer = case.corrections.order_by("pk").last()
    assert newer.title == "Nothing of yours was changed"
    assert newer.lead == TAKES_BACK
    assert newer.facts["reviewed"] == {}, "what people looked at was nothing of hers"
    assert SINCE not in client.get(trail).text, "until people have said that it was wrong"
    corrections.draft(case)
    told = publishing.publish(newer, by=ada, seen=newer.revision)
    assert told.state == "published"
    page = client.get(trail).text
    assert SINCE in page
    assert corrections.link_of(told) in page
    corrections.draft(case)
    assert case.corrections.count() == 3, "that stands as long as nothing else happens"


def test_of_what_is_not_looked_at_or_was_forgotten_nobody_is_told_that_it_was_wrong(
    raised, acme, ada, monkeypatch
):
    """Cleo was told truthfully, of a call that affected Mia, too; another one affected Eve."""
    raised.does("tickets.update", ("ticket", "main/T-9", {"a": 1}, {"a": 2}))
    case = raised.case()
    first, last = Action.objects.order_by("n")
    Effect.objects.filter(action=first).update(affects={"id": "cleo", "name": "Cleo"})
    also = Effect.objects.get(action=first)
    also.pk, also.position, also.affects = None, 1, {"id": "mia", "name": "Mia"}
    also.save(force_insert=True)
    raised.does("tickets.update", ("ticket", "main/T-8", {"a": 1}, {"a": 2}))
    corrections.draft(case)
    hers = case.corrections.get(person_id="cleo")
    publishing.publish(hers, by=ada, seen=hers.revision)
    with monkeypatch.context() as few:
        few.setattr(long_runs, "ACTIONS_LOOKED_AT_MAX", 1)
        corrections.draft(case)
    assert case.corrections.filter(person_id="cleo").count() == 1
    Case.objects.update(state="closed")
    Run.objects.update(lease_until=None)

    erasure.erase(acme, person="mia", by=ada)
    corrections.draft(case)

    assert Effect.objects.get(action=last).affects is None
    assert Run.objects.get(pk=case.run_id).forgotten_at is None
    told = case.corrections.exclude(state="published").filter(facts__takes_back=True)
    assert not told.exists()


def test_words_that_somebody_chose_do_not_stand_over_the_opposite(restored, ada):
    publishing.draft_due()
    case = restored[0]
    old = case.corrections.get()
    publishing.publish(old, by=ada, seen=old.revision)
    Case.objects.filter(pk=case.pk).update(outcome="resumed")
    corrections.draft(case)
    newer = case.corrections.get(state="draft")
    words = {"title": "We are sorry about T-1", "lead": "We raised T-1."}
    newer = corrections.edit(newer, by=ada, seen=newer.revision, words={}, **words)
    Effect.objects.update(affects={"id": "mia", "name": "Mia"})

    corrections.draft(case)

    newer.refresh_from_db()
    assert (newer.title, newer.lead) == ("Nothing of yours was changed", TAKES_BACK)
    Effect.objects.update(affects=None)
    corrections.draft(case)
    newer.refresh_from_db()
    assert "by mistake" in newer.title
    assert "made a mistake" in newer.lead


def test_drafts_of_who_publishes_nothing_by_itself_hold_up_no_others(
    by_itself, raised, globex, monkeypatch
):
    assert test_automatic.swept() == 1
    case, plan = Case.objects.select_related("run").get(), Plan.objects.get()
    run = case.run
    run.pk, run.workspace, run.agent = None, globex, None
    run.save(force_insert=True)
    case.pk, case.workspace, case.run, case.agent, case.cause = None, globex, run, None, None
    case.failed_action = None
    case.save(force_insert=True)
    plan.pk, plan.workspace, plan.case = None, globex, case
    plan.save(force_insert=True)
    theirs = Correction.objects.create(
        workspace=globex, case=case, reference="AM-2222-2222", person_id="gil", title="x", facts={}
    )
    publishing.draft_due()
    monkeypatch.setattr(publishing, "PUBLISHED", Turns(1))

    assert publishing.publish_due() == 1

    assert Correction.objects.exclude(pk=theirs.pk).get().state == "published"
