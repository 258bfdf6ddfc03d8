"""Whether the person was told, and how: not by a mail that cannot go, or was not sent."""

import re

import pytest
from django.core import mail
from django.db import transaction
from django.utils import timezone, translation

from connectors import channels as outgoing
from connectors.models import Delivery
from recovery import corrections, restoration
from recovery.casework import closing
from recovery.corrections import CannotPublish, drafting, publishing
from recovery.models import Correction
from tests.people import logged_in
from tests.ports import free_port
from tests.recovery.cases.cast import AgentRun, submitted
from tests.recovery.engine import by_hand
from tests.worlds import kept


@pytest.fixture
@kept(in_turn=True)
def drafted(raised, ada):
    """What Eve is told of her ticket, which was put back."""
    by_hand.advance(submitted(raised.case(), ada).pk)
    publishing.draft_due()
    return Correction.objects.get()


@pytest.fixture
@kept(in_turn=True)
def mailed(drafted, ada):
    """The same on its way to her by mail."""
    return corrections.publish(drafted, by=ada, seen=drafted.revision, ways=["mail"])


@pytest.fixture
def server_away(settings):
    settings.EMAIL_BACKEND = outgoing.SMTP
    settings.AMENDS_SENDS_MAIL = True
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", free_port()


def page_of(correction, person):
    return logged_in(person).get(f"/w/acme/corrections/{correction.pk}/")


def test_where_no_mail_can_go_publishing_says_so_at_once_and_the_link_is_chosen(
    drafted, ada, settings
):
    usual = page_of(drafted, ada).context["delivery"]
    assert [way["value"] for way in usual if way["selected"]] == ["mail"]
    settings.EMAIL_BACKEND, settings.AMENDS_SENDS_MAIL = outgoing.SMTP, False

    ways = {way["value"]: way for way in page_of(drafted, ada).context["delivery"]}

    assert ways["mail"]["why_not"].startswith("This desk sends no mail")
    assert [name for name, way in ways.items() if way["selected"]] == ["link"]
    with pytest.raises(CannotPublish, match="hand the link on yourself"):
        corrections.publish(drafted, by=ada, seen=drafted.revision, ways=["mail"])
    assert not Delivery.objects.filter(subject="correction.published").exists()


def test_nobody_was_told_by_a_mail_that_was_not_sent_and_the_page_says_why(
    mailed, ada, server_away, client
):
    outgoing.send_due()
    publishing.follow()

    page = page_of(mailed, ada).text
    assert "Not sent yet by mail to eve@example.com" in page
    assert re.search(r"Tried 1 time: .* cannot be reached: .*Connection refused", page)
    assert "Hand the link on yourself." in page
    assert "mail not sent yet" in logged_in(ada).get("/w/acme/corrections/").text
    why_not = closing.why_not_as(mailed.case, "corrected")
    assert why_not.startswith("Nobody is told yet: the correction was not sent")

    link = corrections.link_of(mailed).removeprefix("http://localhost")
    assert logged_in(ada).get(link).status_code == 200
    assert "Link first opened" not in page_of(mailed, ada).text, (
        "who looks whether it opens is not Eve"
    )
    client.get(link)

    page = page_of(mailed, ada).text
    assert "Link first opened; 1 time in all, by them or by a program that looks at links" in page
    assert "Its link was opened, by them or by a program that looks at links: ask them." in page
    row = logged_in(ada).get("/w/acme/corrections/").context["rows"][0]
    assert row["since"] == "link opened", "a mail scanner that follows links has read nothing"
    assert closing.why_not_as(mailed.case, "corrected") == why_not

    client.post(f"{link}report/", {"ground": "other", "text": "It was gate C."})

    assert closing.why_not_as(mailed.case, "corrected") == "", "who contests it has read it"


def test_after_a_restore_a_letter_that_waited_is_perhaps_sent_and_a_persons_to_hand_on(mailed, ada):
    """It may have gone after the backup was taken: she would get it twice."""
    with transaction.atomic():
        held = restoration.hold_everything(timezone.now(), {})
    outgoing.send_due()
    publishing.follow()

    assert (held["letters perhaps sent"], mail.outbox) == (1, [])
    page = page_of(mailed, ada).text
    assert "Perhaps sent by mail to eve@example.com" in page
    assert "Whether it was sent after the backup is not known: ask the person" in page
    assert "mail perhaps sent" in logged_in(ada).get("/w/acme/corrections/").text
    mailed.refresh_from_db()
    corrections.hand_on(mailed, by=ada, seen=mailed.revision, how="By telephone")
    assert closing.why_not_as(mailed.case, "corrected") == ""


def test_who_was_sent_it_was_told(mailed):
    assert closing.why_not_as(mailed.case, "corrected") != ""

    outgoing.send_due()
    publishing.follow()

    assert closing.why_not_as(mailed.case, "corrected") == ""


def test_what_waits_to_be_sent_is_taken_back_with_the_link(mailed, ada, client):
    address = corrections.link_of(mailed).removeprefix("http://localhost")
    said = {"revision": mailed.revision}
    refused = logged_in(ada).post(f"/w/acme/corrections/{mailed.pk}/revoke/", said)
    assert (refused.status_code, "Say why it is revoked." in refused.text) == (422, True)

    said["reason"] = "It names the wrong ticket"
    assert logged_in(ada).post(f"/w/acme/corrections/{mailed.pk}/revoke/", said).status_code == 302

    for _ in ("before the sweep", "after it"):
        assert "Revoked before it was sent by mail to eve@" in page_of(mailed, ada).text
        outgoing.send_due()
        publishing.follow()
    assert mail.outbox == []
    gone = client.get(address).text
    assert "or the correction was withdrawn" in gone
    assert "nothing about your correction has changed" not in gone


def test_who_told_the_person_in_another_way_says_so_on_the_case(mailed, ada, ben, server_away):
    outgoing.send_due()
    publishing.follow()
    case, tab = f"/w/acme/cases/{mailed.case_id}/", "?tab=correction"
    there = f"/w/acme/corrections/{mailed.pk}/handed-on/"
    shown = logged_in(ada).get(case + tab).text
    assert "It was not sent yet: nobody has been told." in shown
    assert f'action="{there}"' in shown
    said = {"revision": mailed.revision, "how": " "}
    refused = logged_in(ada).post(there, said)
    assert (refused.status_code, "Say how the person was told." in refused.text) == (422, True)

    said["how"] = "By telephone, at 10"
    assert logged_in(ada).post(there, said).status_code == 302

    assert closing.why_not_as(mailed.case, "corrected") == ""
    page = page_of(mailed, ben).text
    assert ("Ada told them" in page, "“By telephone, at 10”" in page) == (True, True)
    for place in (case + tab, f"/w/acme/corrections/{mailed.pk}/"):
        assert there not in logged_in(ada).get(place).text, "it is told once"
    assert logged_in(ada).post(there, said).status_code == 409
    activity = logged_in(ada).get(f"{case}?tab=activity").text
    assert "told the person of the correction" in activity


def test_the_mail_is_written_in_the_language_of_its_person(drafted, ada):
    Correction.objects.update(language="de")
    drafted.refresh_from_db()
    assert "in Deutsch" in page_of(drafted, ada).content.decode()
    corrections.publish(drafted, by=ada, seen=drafted.revision, ways=["mail"])

    outgoing.send_due()

    (sent,) = mail.outbox
    with translation.override("de"):
        assert sent.subject == drafting.title_of(drafted) != drafted.title
        assert drafting.lead_of(drafted) in sent.body
    assert "Wir bitten um Entschuldigung.\nAcme\n" in sent.body, "who writes to her"
    assert "auf Deutsch" not in sent.body, "it is"


@pytest.mark.parametrize(("said", "kept"), [("de-AT", "de"), ("tlh", ""), (["de"], "")])
def test_their_language_is_what_the_agent_said_of_them(
    agent, policy, shop, ticket, ada, said, kept
):
    run = AgentRun(agent, "run_1").begins(person={"language": said})
    high = ticket | {"priority": "high"}
    shop.execute("UPDATE tickets SET priority = 'high', version = version + 1")
    run.is_verified(run.does("tickets.update", ("ticket", "main/T-182", ticket, high)), ok=False)
    run.ends()

    by_hand.advance(submitted(run.case(), ada).pk)
    publishing.draft_due()

    assert Correction.objects.get().language == kept


def test_where_no_language_is_known_the_mail_offers_each(mailed):
    outgoing.send_due()

    (sent,) = mail.outbox
    assert sent.subject == mailed.title
    for offer in ("gibt es auch auf Deutsch", "existe aussi en français", "está en español"):
        assert offer in sent.body
