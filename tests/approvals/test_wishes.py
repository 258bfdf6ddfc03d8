"""The affected person is asked first: their answer is evidence, and starts nothing."""

import re
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django.test import Client

from amends.protocol.vocabulary import ActionClass, Risk
from approvals import approval_requests, consent_requests, inbox
from approvals.models import Approval, ApprovalState, ConsentRequest
from approvals.policy import Invalid, ToolCall, judge, load
from tests.approvals.cast import put_in_force, told
from tests.approvals.door import Agent as Trip
from tests.approvals.test_notifications import LINK, send_all
from tests.people import logged_in

EVE = {"id": "cus_7", "name": "Eve Adams", "contact": "eve@home.example"}
WORDS = "I can restore it and add a note. Do you want that?"


@pytest.fixture
def ask_first(ask, acme, ada):
    """Asks for a plan whose rule wants Eve asked first."""

    def make(said="ask", people=(EVE,), **judged):
        from approvals.policy import PolicyDecision, RequiredApprovers
        from tests.approvals.cast import refund

        return approval_requests.ask_for_plan(
            acme,
            901,
            case_ref="12",
            calls=[refund()],
            judgement=PolicyDecision(
                approval="MANUAL",
                risk=Risk.HIGH,
                action_class=ActionClass.EXTERNAL_IRREVERSIBLE,
                requires=(RequiredApprovers(None, 1),),
                affected=said,
                **{"affected_words": WORDS} | judged,
            ),
            headline="Refund 1.00 EUR to the card ending 4421",
            previews=[{"kind": "money", "title": "Refund 1.00 EUR"}],
            by=ada,
            reason="charged twice",
            affected=list(people),
        )

    return make


def page_of(letters):
    [letter] = [one for one in letters if one["to"] == [EVE["contact"]]]
    return urlsplit(LINK.findall(letter["text"])[0]).path


@pytest.mark.parametrize(
    ("tag", "subject"),
    [("fr-CA", "a une question pour vous"), ("tlh", "has a question"), (7, "has a question")],
)
def test_she_is_written_to_in_her_language_where_the_desk_speaks_it(
    ask_first, post_office, tag, subject
):
    ask_first(people=[EVE | {"language": tag}])
    send_all()

    [letter] = [one for one in post_office() if one["to"] == [EVE["contact"]]]
    assert subject in letter["subject"]
    assert ("Diese Seite gibt es auch auf Deutsch." in letter["text"]) == (tag != "fr-CA")


def test_eve_says_yes_by_the_link_in_her_mail_and_people_still_decide(
    ask_first, ben, acme, post_office
):
    approval = ask_first()
    send_all()
    path, eve = page_of(post_office()), Client(enforce_csrf_checks=True)  # keeps no cookie

    assert WORDS in eve.get(path).content.decode()
    answered = eve.post(path, {"answer": "yes", "note": "Please, soon."})

    assert answered.status_code == 302
    assert "Thank you" in eve.get(path).content.decode()
    approval.refresh_from_db()
    assert approval.state == ApprovalState.WAITING  # it started nothing
    [said] = told(acme, "approval.affected_answered")
    assert (said["affected"], said["answer"], said["note"]) == ("cus_7", "yes", "Please, soon.")
    browser = logged_in(ben)
    card = browser.get(f"/w/acme/approvals/{approval.pk}/").content.decode()
    assert "wants it" in card
    assert "Please, soon." in card
    inbox.grant(approval, by=ben, seen=approval.digest)


def test_the_mail_holds_nothing_of_the_case_and_opening_it_decides_nothing(ask_first, post_office):
    ask_first("must")
    send_all()
    path, scanner = page_of(post_office()), Client()

    [letter] = [one for one in post_office() if one["to"] == [EVE["contact"]]]
    assert "4421" not in letter["text"]
    for _ in range(3):
        page = scanner.get(path)
        scanner.head(path)
        for link in re.findall(r'(?:href|action)="(/[^"#]*)"', page.content.decode()):
            scanner.get(link)
    assert ConsentRequest.objects.get().answer == ""
    assert "<script" not in page.content.decode()


def test_where_her_yes_is_a_must_nobody_grants_before_it(ask_first, ben, post_office):
    approval = ask_first("must")

    with pytest.raises(inbox.NotEntitled, match="asked first"):
        inbox.grant(approval, by=ben, seen=approval.digest)
    wish = approval.consent_requests.get()
    consent_requests.answer(wish, "yes")

    approval.refresh_from_db()
    assert approval.state == ApprovalState.WAITING  # the last word is a decider's
    inbox.grant(approval, by=ben, seen=approval.digest)
    approval.refresh_from_db()
    assert approval.state == ApprovalState.GRANTED


def test_after_her_no_people_can_only_reject(ask_first, ben):
    approval = ask_first("must")
    consent_requests.answer(approval.consent_requests.get(), "no", "I like it as it is.")

    with pytest.raises(inbox.NotEntitled, match="does not want it"):
        inbox.grant(approval, by=ben, seen=approval.digest)
    inbox.reject(approval, by=ben, seen=approval.digest, reason="Eve does not want it")


def test_every_affected_person_is_asked_and_one_no_is_a_no(ask_first, ben):
    fay = {"id": "cus_8", "name": "Fay"}
    approval = ask_first("must", people=(EVE, fay, EVE, None))
    eve, fays = approval.consent_requests.order_by("pk")
    consent_requests.answer(eve, "yes")
    assert approval.headline not in eve.question  # it tells of what is Fay's, too
    with pytest.raises(inbox.NotEntitled):
        inbox.grant(approval, by=ben, seen=approval.digest)
    consent_requests.answer(fays, "yes")
    inbox.grant(approval, by=ben, seen=approval.digest)


def test_where_no_address_is_known_an_operator_passes_the_link_on(ask_first, ada, ben, acme):
    approval = ask_first(people=({"id": "cus_8", "name": "Fay"},))

    link = consent_requests.link_of(approval.consent_requests.get())

    shown = {}
    for who in (ada, ben):
        browser = logged_in(who)
        shown[who] = browser.get(f"/w/acme/approvals/{approval.pk}/").content.decode()
    assert link in shown[ada]  # an operator
    assert link not in shown[ben]  # who decides must not answer for her
    assert Client().get(urlsplit(link).path).status_code == 200


def test_a_must_without_anybody_to_ask_asks_nobody(ask_first):
    with pytest.raises(approval_requests.NobodyToAsk, match="names nobody"):
        ask_first("must", people=())
    assert ask_first("ask", people=()).consent_requests.count() == 0


def test_she_answers_once_and_not_when_it_is_over(ask_first, ben, acme):
    approval = ask_first()
    wish = approval.consent_requests.get()
    path = urlsplit(consent_requests.link_of(wish)).path
    Client().post(path, {"answer": "no"})

    assert Client().post(path, {"answer": "no"}).status_code == 302, "a second click"
    assert len(told(acme, "approval.affected_answered")) == 1
    assert Client().post(path, {"answer": "yes"}).status_code == 409
    assert Client().post(path, {"answer": "no", "note": "Why?"}).status_code == 409
    assert Client().post(path, {"answer": "perhaps"}).status_code == 409
    wish.refresh_from_db()
    assert wish.answer == "no"
    Approval.objects.update(expires_at=Now() - timedelta(seconds=1))
    over, wrong = Client().get(path), Client().get("/ask/nonsense/")
    assert (over.status_code, wrong.status_code) == (404, 404)
    assert over.content == wrong.content
    assert Client().post(path, {"answer": "yes"}).status_code == 404


@pytest.mark.parametrize(
    ("language", "title", "thanks"),
    [
        ("de", "Eine Frage an Sie", "Danke, Ihre Antwort ist bei uns: nein."),
        ("fr", "Une question pour vous", "Merci, nous avons votre réponse : non."),
        ("es", "Una pregunta para usted", "Gracias, tenemos su respuesta: no."),
    ],
)
def test_she_is_asked_and_thanked_in_her_language(ask_first, acme, language, title, thanks):
    """Her browser's, or the one that she chose; a rule's own words are the workspace's."""
    approval = ask_first(affected_words="")
    path = urlsplit(consent_requests.link_of(approval.consent_requests.get())).path
    eve = Client(headers={"accept-language": language})

    asked = eve.get(path)

    assert f'<html lang="{language}">' in asked.text
    assert title in asked.text
    assert "May we put right" not in asked.text
    assert approval.headline in asked.text, "as the desk says it of the plan"
    assert "May we put right" in eve.get(f"{path}?lang=en").text
    [action] = re.findall(r'action="([^"]+)"', Client().get(f"{path}?lang={language}").text)
    answered = Client().post(action, {"answer": "no"}, follow=True)
    assert thanks in answered.text
    too_late = eve.post(path, {"answer": "yes"})
    assert too_late.status_code == 409
    assert "it was answered before" not in too_late.text
    assert title not in eve.get("/ask/nonsense/").text
    assert f'<html lang="{language}">' in eve.get("/ask/nonsense/").text


def test_what_she_writes_is_kept_whole_or_refused_with_nothing_lost(ask_first, post_office):
    approval = ask_first()
    send_all()
    page, longest = page_of(post_office()), "\n".join(["yes"] * 499) + "\n1234"
    sent = longest.replace("\n", "\r\n")  # as browsers send lines

    refused = Client().post(page, {"answer": "yes", "note": f"{sent}5"})

    assert refused.status_code == 422
    assert "it has 2,001 characters, of which 2,000 can be kept" in refused.text
    assert "yes\r\n12345" in refused.text
    assert approval.consent_requests.get().answer == ""
    Client().post(page, {"answer": "yes", "note": sent})
    assert (approval.consent_requests.get().answer, approval.consent_requests.get().note) == (
        "yes",
        longest,
    )


def test_the_database_keeps_answer_and_time_together(ask_first):
    wish = ask_first().consent_requests.get()
    with pytest.raises(IntegrityError), transaction.atomic():
        ConsentRequest.objects.filter(pk=wish.pk).update(answer="yes")


DOCUMENT = {
    "policies": {
        "crm.update": [
            {"approval": "MANUAL", "askAffected": {"must": True, "words": WORDS}},
            {"when": "args.name == 'Eve'", "approval": "MANUAL", "askAffected": True},
        ]
    }
}


def test_the_policy_says_it_and_the_strictest_wins():
    judged = judge(load(DOCUMENT), ToolCall(tool="crm.update", args={"name": "Eve"}))
    assert (judged.affected, judged.affected_words) == ("must", WORDS)
    for wrong in ({"approval": "AUTO", "askAffected": True}, {"askAffected": "yes"}):
        with pytest.raises(Invalid):
            load({"policies": {"crm.update": wrong}})


@pytest.mark.django_db(transaction=True)
def test_at_the_gate_the_person_of_the_run_is_asked(key, acme, ada, ben, post_office):
    put_in_force(acme, ada, DOCUMENT)
    trip = Trip(key)
    trip.send("run.started", on_behalf_of=EVE)

    assert trip.begin().json()["answer"] == "wait"

    approval = Approval.objects.get()
    assert approval.affected == "must"
    assert approval.consent_requests.get().contact == EVE["contact"]
    nobody = trip.begin(run="run_2", action="act_2", key="key-2").json()
    assert (nobody["answer"], nobody["code"]) == ("denied", "nobody_to_ask")


@pytest.mark.django_db(transaction=True)
def test_a_policy_that_asks_her_only_now_wants_a_new_approval(key, acme, ada, ben):
    put_in_force(acme, ada, {"policies": {"crm.update": {"approval": "MANUAL"}}})
    trip = Trip(key)
    trip.send("run.started", on_behalf_of=EVE)
    trip.begin()
    first = Approval.objects.get()
    inbox.grant(first, by=ben, seen=first.digest)

    put_in_force(acme, ada, DOCUMENT)

    assert trip.begin().json()["answer"] == "wait"
    first.refresh_from_db()
    assert first.state == ApprovalState.WITHDRAWN
    assert Approval.objects.filter(affected="must", state="waiting").count() == 1
