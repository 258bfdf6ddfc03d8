"""An agent says that a run of its own did wrong, or an affected person that it is wrong still."""

import re
from datetime import timedelta

import pytest
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone

from approvals import versions
from approvals.models import PolicyVersion
from approvals.policy.reading import PolicyUnreadable
from ledger import erasure
from ledger.models import Event, Run
from recovery import corrections
from recovery.casework import cases, closing, resuming
from recovery.corrections import contesting
from recovery.models import Case, Contest, Report
from recovery.triage import advice, triage
from recovery.views import case as case_page
from tests.people import logged_in
from tests.recovery.cases.cast import submitted, undone
from tests.recovery.cases.test_triage import NO_TWINS
from tests.recovery.engine import by_hand
from tests.worlds import kept
from workspaces import keys
from workspaces.models import Agent


@pytest.fixture
def send():
    """`send(agent, run, text)` under a key of that agent."""

    def post(agent, run, text="It was the wrong ticket", scopes=("ingest",)):
        token = keys.create_key(agent, by=None, name="k", scopes=list(scopes))[1]
        return Client().post(
            f"/api/v1/runs/{run}/report",
            {"text": text},
            content_type="application/json",
            headers={"authorization": f"Bearer {token}"},
        )

    return post


def test_a_run_that_looked_good_becomes_a_case(raised, agent, send):
    raised.ends()

    said = send(agent, "run_1").json()

    case = Case.objects.get()
    assert (said["case"], said["state"]) == (case.pk, "open")
    assert [one["words"] for one in case.evidence if one["code"] == "reported"] == [
        "Reported by the agent: It was the wrong ticket"
    ]


def test_of_a_run_that_changed_nothing_the_headline_is_a_sentence_all_the_same(
    begin_run, agent, send
):
    begin_run()
    send(agent, "run_1")

    case = Case.objects.get()
    assert case.headline == (
        "Agent “ticket-desk” changed nothing that is known, and the agent itself reported it"
    )
    assert case.brief == "The agent itself reported it"


def test_the_same_words_again_are_the_same_report_and_there_is_an_end(raised, agent, send):
    for number in range(20):
        assert send(agent, "run_1", f"wrong {number}").status_code == 200
    assert send(agent, "run_1", "wrong 3").status_code == 200

    assert send(agent, "run_1", "one more").status_code == 429
    assert Report.objects.count() == 20


def test_what_is_reported_while_a_plan_runs_is_read_by_somebody(raised, agent, send, ada):
    """Before the plan was submitted it had been read; since then nobody has looked."""
    send(agent, "run_1", "wrong ticket")
    plan = submitted(raised.case(), ada)
    send(agent, "run_1", "and it mailed Eve, too")
    by_hand.advance(plan.pk)

    case = raised.case()
    assert (case.state, case.standing_count) == ("open", 0)
    assert case.suggestion_reason.endswith("but somebody reports it: look at that first.")


def test_nobody_reports_the_run_of_another(raised, acme, agent, send):
    other = Agent.objects.create(workspace=acme, name="other")

    assert send(other, "run_1").status_code == 404
    assert send(agent, "run_9").status_code == 404
    assert send(agent, "run_1", scopes=("read",)).status_code == 403
    assert send(agent, "run_1", "  ").status_code == 422
    assert send(agent, "run_1", "\x00").status_code == 422
    assert not Report.objects.exists()


@pytest.fixture
@kept(in_turn=True)
def letter(raised, ada):
    """What was done is undone, and whom it concerns was told."""
    case = raised.case()
    undone(case, ada)
    (drafted,) = corrections.draft(case)
    return corrections.publish(drafted, by=ada, seen=drafted.revision)


def contested(letter, text, ground="other"):
    path = corrections.link_of(letter).removeprefix("http://localhost")
    said = {"ground": ground, "text": text}
    assert Client().post(f"{path}report/", said).status_code == 302
    return Contest.objects.latest("pk")


def test_once_it_is_answered_nobody_is_sent_to_answer_it(letter, client, nils):
    """Though what she wrote is kept without its secrets in the case, and whole in her contest."""
    text, case = "Card 4111 1111 1111 1111 was charged", letter.case
    first, second = contested(letter, text), contested(letter, text, "not_restored")

    client.force_login(nils)
    page = client.get(f"/w/acme/cases/{case.pk}/").text
    offered = [page.count(f">Answer {one.receipt}<") for one in (first, second)]
    assert offered == [1, 1], "each once, beside her words"
    assert len(re.findall(r'main-act"\s+href', page)) == 1, "of two one leads"
    contesting.answer(first, by=nils, upheld=False, text="It was not")
    case.refresh_from_db()
    assert case.suggestion_reason.endswith("but somebody contests it: answer that first.")
    contesting.answer(second, by=nils, upheld=False, text="It was not")

    case.refresh_from_db()
    assert case.suggestion_reason.endswith(", and what was contested is answered.")
    page = client.get(f"/w/acme/cases/{case.pk}/").text
    assert (page.count("and has an answer:"), page.count(" reports ")) == (2, 0)


def test_who_was_right_is_to_be_put_right_until_that_was_done(letter, ada, nils, finn):
    """By a plan, or by hand before the case was closed; it was to be done for ever."""
    case, text = letter.case, "It still says high"
    contested(letter, text)
    one = contesting.answer(Contest.objects.get(), by=nils, upheld=True, text="You are right")

    def says(words):
        triage.look([case.run_id])
        case.refresh_from_db()
        return case.suggestion_reason.endswith(words)

    assert says("but who contests it was right: put that right first.")
    before = case.plans.get().submitted_at - timedelta(seconds=1)
    Contest.objects.update(answered_at=before)
    assert says(", and what was contested is answered."), "a plan has run since"
    Contest.objects.update(answered_at=one.answered_at)
    assert says("but who contests it was right: put that right first.")
    ended = {"outcome": "already_handled", "reason": "Put right by hand", "seen": case.revision}
    closing.close(case, by=ada, **ended)
    again = contested(letter, text)
    assert says("but somebody contests it: answer that first.")
    contesting.answer(again, by=finn, upheld=False, text="It is as it should be")
    assert says(", and what was contested is answered.")


def test_what_is_contested_beyond_the_reports_shown_has_its_answer(
    letter, client, nils, monkeypatch
):
    waiting = [contested(letter, text) for text in ("Eve waits", "It still says high")]
    monkeypatch.setattr(case_page, "REPORTS_SHOWN_MAX", 1)
    client.force_login(nils)

    page = client.get(f"/w/acme/cases/{letter.case_id}/").text

    assert [page.count(f">Answer {one.receipt}<") for one in waiting] == [1, 1]
    assert page.count("“Eve waits”") == 1


def test_who_was_erased_waits_for_no_answer_and_every_page_says_so(letter, client, ada, nils):
    """Their words are gone with them, and so is the link under which an answer could be read."""
    case = letter.case
    contested(letter, "It still says high")
    one = Contest.objects.get()
    case.refresh_from_db()
    closing.close(case, outcome="expected", reason="Too soon", by=ada, seen=case.revision)
    Run.objects.update(lease_until=None)
    erasure.erase(case.workspace, person="eve", by=ada)
    client.force_login(nils)
    there = f"/w/acme/corrections/{letter.pk}/"

    page, its_case = client.get(there).text, client.get(f"/w/acme/cases/{case.pk}/").text

    assert contesting.NOBODY in page
    for untrue in ("Answer due", "Revoke it", "As eve sees it", "looked at it", "nobody is told"):
        assert untrue not in page
    assert "Its link opens nothing any more." in page
    assert (one.receipt in its_case, "nobody has answered" in its_case) == (False, False)
    assert letter.reference not in client.get("/w/acme/corrections/?view=answer").text
    assert "answer due" not in client.get("/w/acme/corrections/").text
    said = {"upheld": "no", "answer": "It reads normal"}
    refused = client.post(f"{there}contests/{one.pk}/", said).text
    assert contesting.NOBODY in refused
    assert "You wrote: It reads normal" in refused
    assert not Event.objects.filter(type="correction.answered").exists()


def test_a_case_whose_person_was_erased_neither_resumes_nor_waits_for_an_answer(
    letter, client, ada, nils
):
    """No agent can tell anything more of its run."""
    case = letter.case
    contested(letter, "It still says high")
    case.refresh_from_db()
    closing.close(case, outcome="expected", reason="Too soon", by=ada, seen=case.revision)
    Run.objects.update(lease_until=None, state="failed")
    erasure.erase(case.workspace, person="eve", by=ada)
    case.refresh_from_db()
    client.force_login(nils)
    cases.reopen(case, by=nils, seen=case.revision, reason="Look again")

    case = Case.objects.get()
    page = client.get(f"/w/acme/cases/{case.pk}/")

    assert resuming.preview(case).why_not.startswith("What was said in it is erased")
    offered = {one["label"]: one for one in page.context["acts"]}
    assert offered["Resume…"]["why_not"] == "what was said in the run is erased"
    assert (case.suggestion, "contests it" in case.suggestion_reason) == ("close", False)
    [tone] = re.findall(r"(notice \w+).{,120}The affected person report", page.text)
    assert tone == "notice calm"


def test_a_long_report_begins_on_the_page_and_is_folded(letter, client, nils):
    text = "It still says high. " * 100 + "The end"
    contested(letter, text)
    case = letter.case
    client.force_login(nils)

    def shown():
        page = client.get(f"/w/acme/cases/{case.pk}/").text
        notice = page.partition("<summary>Read all of it</summary>")
        return notice[0].count("The end"), notice[2].count("The end")

    assert shown() == (0, 1)
    card = client.get(f"/w/acme/corrections/{letter.pk}/").text.partition("Read all of it")
    assert (card[0].count("The end"), card[2].count("The end")) == (0, 1), "before its form, too"
    case.refresh_from_db()
    closing.close(case, outcome="expected", reason="Too soon", by=nils, seen=case.revision)
    assert shown() == (0, 1), "of a closed case, too"


def test_what_was_answered_before_an_upgrade_is_advised_anew_after_it(letter, nils):
    contested(letter, "It still says high")
    case = letter.case
    Contest.objects.update(answered_at=Now(), answered_by=nils, upheld=False, answer="No")
    case.refresh_from_db()
    assert case.suggestion_reason.endswith("answer that first.")

    advice.advise_all_anew()
    advice.renew()

    case.refresh_from_db()
    assert case.suggestion_reason.endswith(", and what was contested is answered.")


def test_a_workspace_whose_cases_cannot_be_advised_keeps_no_other_waiting(three, acme, globex):
    PolicyVersion.objects.create(
        workspace=globex,
        number=1,
        document={"agentSafety": 1},
        active=True,
        activated_at=timezone.now(),
    )
    versions.activate(versions.save(acme, NO_TWINS, by=None), by=None)
    first, _, third = three
    Case.objects.filter(pk=third.pk).update(workspace=globex)
    Run.objects.filter(pk=third.run_id).update(workspace=globex)

    with pytest.raises(PolicyUnreadable):
        advice.renew()

    first.refresh_from_db()
    assert first.suggestion_text.startswith("Teach the desk to undo")


def test_of_what_a_colleague_reports_nobody_is_sent_to_answer(letter, ada):
    """There is no answer to give them: it is to be looked at."""
    case = letter.case
    case.refresh_from_db()
    cases.reopen(case, by=ada, seen=case.revision, reason="She phoned")
    triage.look([case.run_id])

    case.refresh_from_db()
    assert case.suggestion_reason.endswith("but somebody reports it: look at that first.")
    queue = logged_in(ada).get("/w/acme/queue/").text
    assert ("Nothing to undo" in queue, "Undo unknown" in queue) == (True, False)
