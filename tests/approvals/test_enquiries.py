"""Asking back: a decider wants to know more, the agent or an operator answers, and both stay."""

import asyncio

import pytest

from approvals import clarifications, inbox
from approvals.models import Approval, ApprovalState, Clarification
from tests.approvals.cast import told
from tests.approvals.door import Agent as Trip
from tests.approvals.door import visit
from tests.approvals.test_waiting import in_a_thread, until_waiting
from tests.people import logged_in, person
from tests.worlds import kept
from workspaces import teams
from workspaces.free_text import InvalidInput
from workspaces.moves import CannotMove

IRREVERSIBLE = {"class_": "external_irreversible"}


def test_ben_asks_ada_answers_and_both_stand_on_card_and_record(ask, ada, ben, acme):
    approval = ask()
    card = f"/w/acme/approvals/{approval.pk}/"

    for _ in range(2):  # once more, as no answer came: whoever asked would hear it twice
        logged_in(ben).post(f"{card}ask/", {"question": "Did the customer confirm?"})
    asked = Clarification.objects.get()
    logged_in(ada).post(f"{card}answer/{asked.pk}/", {f"answer_{asked.pk}": "Yes, by phone."})

    shown = logged_in(ben).get(card).content.decode()
    assert "Did the customer confirm?" in shown
    assert "Yes, by phone." in shown
    assert told(acme, "approval.questioned")[0]["question"] == "Did the customer confirm?"
    assert told(acme, "approval.answered")[0]["answer"] == "Yes, by phone."
    assert {one.about for one in approval.told.all()} == {"requested", "questioned", "answered"}
    before = approval.digest
    approval.refresh_from_db()
    assert (approval.state, approval.digest) == (ApprovalState.WAITING, before)
    inbox.grant(approval, by=ben, seen=approval.digest)


def test_who_may_not_decide_asks_nothing_and_strangers_answer_nothing(
    ask, ada, ben, dev, acme, finance
):
    approval = ask()
    with pytest.raises(inbox.NotEntitled):
        clarifications.ask_back(approval, "Why?", by=ada)  # she asked for it herself
    asked = clarifications.ask_back(approval, "Why?", by=ben)
    fred = person("fred", finance)

    with pytest.raises(inbox.NotEntitled):
        clarifications.answer(asked, "Because.", by=fred)  # decides, but is no operator
    card = f"/w/acme/approvals/{approval.pk}/"
    assert logged_in(dev).post(f"{card}answer/{asked.pk}/", {}).status_code == 404
    assert logged_in(dev).post(f"{card}ask/", {"question": "?"}).status_code == 404
    asked.refresh_from_db()
    assert asked.answered_at is None


def test_an_answer_is_given_once_and_not_after_the_decision(ask, ada, ben):
    approval = ask()
    first, second = (
        clarifications.ask_back(approval, words, by=ben) for words in ("Why?", "When?")
    )
    clarifications.answer(first, "Because.", by=ada)
    with pytest.raises(CannotMove, match="answered already"):
        clarifications.answer(first, "No, because of that.", by=ada)
    inbox.reject(approval, by=ben, seen=approval.digest, reason=inbox.REASONS[0])
    with pytest.raises(CannotMove):
        clarifications.answer(second, "Now.", by=ada)
    with pytest.raises(CannotMove):
        clarifications.ask_back(approval, "And now?", by=ben)


def test_an_empty_question_and_one_too_many_are_refused(ask, ben):
    approval = ask()
    with pytest.raises(InvalidInput, match="Write what"):
        clarifications.ask_back(approval, "  ", by=ben)
    for number in range(clarifications.CLARIFICATIONS_MAX):
        clarifications.ask_back(approval, f"Question {number}", by=ben)
    with pytest.raises(inbox.NotEntitled, match="asked already"):
        clarifications.ask_back(approval, "One more", by=ben)


@pytest.fixture
@kept
def trip(key, acme, ada, ben):
    return Trip(key)


@pytest.mark.django_db(transaction=True)
def test_a_waiting_agent_hears_the_question_and_answers_it(trip, ben, acme):
    trip.begin(**IRREVERSIBLE)
    approval = Approval.objects.get()

    async def story(client):
        path = f"/api/v1/approvals/{approval.pk}?wait=20&heard=0"
        headers = {"authorization": f"Bearer {trip.token}"}
        waiting = asyncio.create_task(client.get(path, headers=headers))
        await until_waiting(1)
        asking = in_a_thread(lambda: clarifications.ask_back(approval, "For whom?", by=ben))
        said = await waiting
        asking.join()
        return said.json()

    said = visit(story)

    assert (said["state"], said["asked"]) == ("waiting", 1)
    [question] = said["questions"]
    assert question["question"] == "For whom?"
    path = f"/api/v1/approvals/{approval.pk}/answers"
    body = {"question": int(question["id"]), "answer": "For Eve \u202e<b>please</b>"}
    assert trip.request("POST", path, body).status_code == 200
    assert trip.request("POST", path, body).status_code == 409
    assert trip.request("GET", f"/api/v1/approvals/{approval.pk}").json()["questions"] == []
    shown = logged_in(ben).get(f"/w/acme/approvals/{approval.pk}/").content.decode()
    assert "⟦U+202E⟧" in shown  # fenced and made visible, as all that an agent writes
    assert "<b>please</b>" not in shown
    approval.refresh_from_db()
    assert approval.state == ApprovalState.WAITING
    assert told(acme, "approval.answered")[0]["agent"] == "desk-agent"


@pytest.mark.django_db(transaction=True)
def test_an_agent_answers_only_what_it_was_asked_itself(trip, ben, acme):
    from workspaces import keys
    from workspaces.models import Agent

    trip.begin(**IRREVERSIBLE)
    approval = Approval.objects.get()
    asked = clarifications.ask_back(approval, "For whom?", by=ben)
    other = Trip(
        keys.create_key(Agent.objects.create(workspace=acme, name="other"), by=None, name="x")[1]
    )
    path = f"/api/v1/approvals/{approval.pk}/answers"

    assert other.request("POST", path, {"question": asked.pk, "answer": "me"}).status_code == 404
    for wrong in ({}, {"question": "x", "answer": 1}, b"{", {"question": asked.pk, "answer": " "}):
        assert trip.request("POST", path, wrong).status_code in {409, 422}
    asked.refresh_from_db()
    assert asked.answer == ""


@pytest.mark.django_db(transaction=True)
def test_a_preset_no_reaches_the_agent_as_it_is(trip, ben):
    trip.begin(**IRREVERSIBLE)
    approval = Approval.objects.get()
    shown = logged_in(ben).get(f"/w/acme/approvals/{approval.pk}/").content.decode()
    assert all(reason in shown for reason in inbox.REASONS)

    said = {"decision": "reject", "digest": approval.digest, "reason": inbox.REASONS[1]}
    logged_in(ben).post(f"/w/acme/approvals/{approval.pk}/decide/", said)

    answer = trip.begin(**IRREVERSIBLE).json()
    assert answer["answer"] == "denied"
    assert inbox.REASONS[1] in answer["reason"]


def test_an_operator_of_another_team_answers_too(ask, ben, acme, operators):
    olga = person("olga", operators)
    asked = clarifications.ask_back(ask(), "Why?", by=ben)

    clarifications.answer(asked, "The bank reported it.", by=olga)

    asked.refresh_from_db()
    assert asked.answered_by == olga


def test_whoever_lost_the_right_to_recover_no_longer_answers(ask, ben, operators):
    olga = person("olga", operators)
    asked = clarifications.ask_back(ask(), "Why?", by=ben)
    teams.remove(operators, olga, by=None)

    with pytest.raises(inbox.NotEntitled):
        clarifications.answer(asked, "I know.", by=olga)
