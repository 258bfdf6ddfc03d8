"""An agent says that a run of its own did wrong, or an affected person that it is wrong still."""

import re
from datetime import timedelta

import pytest
from django.test import Client

from recovery import corrections
from recovery.casework import closing
from recovery.corrections import contesting
from recovery.models import Case, Contest, Report
from recovery.triage import triage
from recovery.views import case as case_page
from tests.recovery.cases.cast import submitted, undone
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
    assert case.suggestion_reason.endswith("but somebody reports it: answer that first.")


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
    assert case.suggestion_reason.endswith("but somebody reports it: answer that first.")
    contesting.answer(second, by=nils, upheld=False, text="It was not")

    case.refresh_from_db()
    assert case.suggestion_reason.endswith(", and what was contested is answered.")


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
    assert says("but somebody reports it: answer that first.")
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
