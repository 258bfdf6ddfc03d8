"""Eve hears how it stands when people put it right by hand, and that her contest is answered."""

from datetime import timedelta

import pytest
from django.utils import timezone

from connectors import channels
from connectors.models import Channel, Delivery
from ledger.models import Action
from recovery import corrections
from recovery.casework import closing
from recovery.corrections import contesting, publishing
from recovery.models import Contest, Correction, Plan, PlanState, Step, StepState
from recovery.views import correction_ways
from recovery.views.public import trail_context
from tests.recovery.cases.cast import undone


def closed(case, by, outcome, **more):
    case.refresh_from_db()
    said = {"outcome": outcome, "reason": "So it is", "seen": case.revision}
    return closing.close(case, by=by, **said, **more)


def published(case, by, *ways):
    [drafted] = corrections.draft(case)
    return publishing.publish(drafted, by=by, seen=drafted.revision, ways=ways or ["link"])


def acts(correction):
    return [one["act"] for one in correction.facts["items"]]


@pytest.mark.parametrize(("then", "act"), [("expected", "left"), ("duplicate", "by_hand")])
def test_what_was_put_right_by_hand_stays_so_while_its_case_is_open_again(raised, ada, then, act):
    case = raised.case()
    told = published(closed(case, ada, "already_handled"), ada)
    contesting.contest(told, ground="other", text="Not so")
    case.refresh_from_db()

    [now] = corrections.draft(case)

    assert (case.state, acts(now)) == ("open", ["by_hand"])
    assert trail_context(told, {})["since"] == {}
    assert acts(*corrections.draft(closed(case, ada, then))) == [act]


def test_what_was_changed_once_more_since_is_not_told_as_put_right_by_hand(begin_run, ticket, ada):
    run, between = begin_run(), ticket | {"status": "pending"}
    run.does("tickets.update", ("ticket", "main/T-182", ticket, between))
    run.does("tickets.update", ("ticket", "main/T-182", between, ticket | {"status": "closed"}))
    run.ends("failed")
    case = closed(run.case(), ada, "already_handled")
    assert acts(*corrections.draft(case)) == ["by_hand"]

    second = Action.objects.order_by("-pk")[:1]
    Action.objects.filter(pk__in=second.values("pk")).update(
        finished_at=case.by_hand_at + timedelta(hours=1)
    )

    assert acts(*corrections.draft(case)) == ["left"]


def test_who_was_told_otherwise_is_told_of_what_was_put_right_by_hand(raised, ada):
    case = raised.case()
    told = published(case, ada)
    assert acts(told) == ["left"]
    closed(case, ada, "already_handled")

    assert publishing.draft_due() == 1

    new = Correction.objects.get(state="draft")
    assert (acts(new), publishing.draft_due()) == (["by_hand"], 0)


def test_nobody_is_written_to_of_what_was_put_right_by_hand_and_nobody_was_told_of(raised, ada):
    closed(raised.case(), ada, "already_handled")

    assert (publishing.draft_due(), Correction.objects.count()) == (0, 0)


def test_who_was_told_of_it_hears_how_it_stands_though_it_was_as_expected(raised, ada):
    case = raised.case()
    told = published(case, ada)
    Correction.objects.filter(pk=told.pk).update(facts=told.facts | {"why": "Because"})
    [drafted] = corrections.draft(closed(case, ada, "expected"))

    assert publishing.why_not(drafted) == ""


def test_nothing_is_told_while_a_stopped_plan_has_a_step_on_its_way(lost, ada):
    Plan.objects.update(was=PlanState.RUNNING, state=PlanState.STOPPED)
    Step.objects.update(was=StepState.INTENDED, state=StepState.APPLIED)
    [drafted] = corrections.draft(lost)

    assert publishing.why_not(drafted) == "The recovery has not ended yet."


def test_what_a_call_left_as_it_was_is_not_told_as_changed(begin_run, ticket):
    run = begin_run()
    run.does("tickets.touch", ("ticket", "main/T-182", ticket, dict(ticket)))
    run.ends("failed")
    [drafted] = corrections.draft(run.case())

    told = [one["what"] for one in trail_context(drafted, {})["changed"]]

    assert told == ["“Touch” was done for ticket T-182."]


@pytest.fixture
def by_mail(raised, ada, acme, settings):
    """A correction in German that went by mail and by webhook, and was contested."""
    secret = {"url": "https://crm.example/", "secret": "whsec_" + "QUJD" * 8}
    channels.create(acme, "crm", "webhook", by=ada, secret=secret, subjects=["correction.*"])
    case = raised.case()
    undone(case, ada)
    case.refresh_from_db()
    corrections.draft(case)
    Correction.objects.update(language="de")
    drafted = Correction.objects.get()
    told = publishing.publish(drafted, by=ada, seen=drafted.revision, ways=["mail", "webhook"])
    contesting.contest(told, ground="other", text="Not so")
    return told


def answers():
    return Delivery.objects.filter(subject="correction.answered").order_by("kind")


def test_who_contested_hears_once_and_in_their_language_that_there_is_an_answer(
    by_mail, nils, client, ada
):
    one = Contest.objects.get()
    contesting.answer(one, by=nils, upheld=True, text="You are right")

    mail, hook = answers()

    assert mail.recipient == "eve@example.com"
    assert mail.message["title"] == "Wir haben Ihnen geantwortet"
    assert mail.message["url"].endswith(f"/contested/{one.receipt}/")
    assert f"Ihre Quittung {one.receipt}" in mail.message["text"]
    assert "You are right" not in str(mail.message)
    assert hook.message["facts"] == {
        "correction": by_mail.reference, "person": "eve", "language": "de", "receipt": one.receipt
    }  # fmt: skip
    path = mail.message["url"].removeprefix("http://localhost")
    assert "You are right" in client.get(path).text
    client.force_login(ada)
    page = client.get(f"/w/acme/corrections/{by_mail.pk}/").text
    assert "The answer: on its way to eve@example.com" in page


def test_who_contested_in_no_language_that_is_known_hears_it_in_each(by_mail, nils):
    Correction.objects.update(language="")
    one = Contest.objects.get()
    contesting.answer(one, by=nils, upheld=True, text="You are right")

    told = answers()[0].message

    assert told["title"] == (
        "We have answered you · Wir haben Ihnen geantwortet · Nous vous avons répondu"
        " · Le hemos respondido"
    )
    for words in ("Your receipt", "Ihre Quittung", "Votre reçu", "Su recibo"):
        assert f"{words} {one.receipt}" in told["text"]


def test_what_takes_no_answers_is_not_said_to_be_told(by_mail, nils, client, settings):
    """The webhook has corrections alone, and mail leaves no more."""
    Channel.objects.update(subjects=["correction.published"])
    settings.EMAIL_BACKEND, settings.AMENDS_SENDS_MAIL = channels.SMTP, False
    client.force_login(nils)

    page = client.get(f"/w/acme/corrections/{by_mail.pk}/").text
    contesting.answer(Contest.objects.get(), by=nils, upheld=False, text="No")

    assert "Tell them that it is there" in page
    assert not answers().exists()


def test_after_a_restore_that_there_is_an_answer_goes_no_more_by_itself(by_mail, nils, client):
    Correction.objects.update(published_at=timezone.now() - timedelta(days=5))
    contesting.answer(Contest.objects.get(), by=nils, upheld=False, text="No")
    client.force_login(nils)
    [way] = [one for one in correction_ways.way(by_mail) if "The answer" in one["words"]][:1]
    assert "5 days" not in way["time"]

    publishing.doubt_what_waits()

    assert set(answers().values_list("state", flat=True)) == {"failed"}
    publishing.follow()
    page = client.get(f"/w/acme/corrections/{by_mail.pk}/").text
    assert "The answer: perhaps sent to eve@example.com" in page


@pytest.mark.parametrize("gone", [{"state": "revoked"}, {"expires_at": timezone.now()}])
def test_nobody_is_led_to_an_answer_that_no_link_opens(by_mail, nils, gone):
    Correction.objects.update(**gone)

    contesting.answer(Contest.objects.get(), by=nils, upheld=False, text="No")

    assert not answers().exists()


def test_an_answer_on_its_way_is_taken_back_with_its_correction(by_mail, nils, ada):
    contesting.answer(Contest.objects.get(), by=nils, upheld=False, text="No")
    by_mail.refresh_from_db()

    publishing.revoke(by_mail, by=ada, seen=by_mail.revision, reason="Wrong person")

    assert set(answers().values_list("state", flat=True)) == {"failed"}


def test_who_got_a_link_by_hand_is_told_by_hand(raised, ada, nils, client):
    told = published(raised.case(), ada)
    contesting.contest(told, ground="other", text="Not so")
    client.force_login(nils)
    page = client.get(f"/w/acme/corrections/{told.pk}/").text

    contesting.answer(Contest.objects.get(), by=nils, upheld=False, text="No")

    assert "Tell them that it is there" in page
    assert not answers().exists()


def test_who_may_answer_is_told_once_that_an_answer_is_due(by_mail, nils, ada):
    assert contesting.remind() == 0
    Contest.objects.update(due_at=timezone.now() + timedelta(hours=23))

    assert (contesting.remind(), contesting.remind()) == (1, 0)

    told = Delivery.objects.filter(subject="correction.contested")
    assert nils.email in told.values_list("recipient", flat=True)
    assert ada.email not in told.values_list("recipient", flat=True), "she published it"
    assert "was told that they have an answer by " in told[0].message["text"]
