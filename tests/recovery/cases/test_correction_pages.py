"""Corrections through the pages of the desk: of several people, and on their way as was chosen."""

import re
from urllib.parse import urlsplit

import pytest
from django.test import Client
from standardwebhooks import Webhook

from connectors import channels
from recovery import corrections
from recovery.corrections import contesting, publishing
from recovery.models import Contest, Correction
from tests.approvals import conftest as at_the_gate
from tests.connectors import conftest as outside
from tests.people import logged_in
from tests.recovery.cases import test_corrections

outsides, receiver = outside.outsides, outside.receiver
post_office = at_the_gate.post_office
restored, drafted = test_corrections.restored, test_corrections.drafted

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
LINK = re.compile(r"https?://\S+/c/\S+/")
CHOICE = r'name="delivery"\s+value="{}"( checked)?( disabled)?>'


@pytest.fixture
def desk(ada):
    return logged_in(ada)


def choice(page, way):
    """Whether this way is chosen, and whether it can be."""
    is_chosen, is_off = re.search(CHOICE.format(way), page.text).groups()
    return bool(is_chosen), not is_off


def published(desk, correction, way):
    """Published in this way as the form does it; what the page says then."""
    form = {"revision": correction.revision, "title": correction.title, "lead": correction.lead}
    there = f"/w/acme/corrections/{correction.pk}/publish/"
    return desk.post(there, form | {"delivery": way}, follow=True)


def test_a_case_shows_what_each_person_is_told_and_leads_there(begin_run, ticket, desk):
    case = test_corrections.of_two(begin_run)
    corrections.draft(case)
    eve, gil = Correction.objects.order_by("person_id")
    published(desk, gil, "link")

    page = desk.get(f"/w/acme/cases/{case.pk}/?tab=correction")

    lines = [one.split("</li>")[0] for one in page.text.partition('id="more"')[2].split("<li>")]
    for one, name, state, theirs, others in (
        (eve, "eve", "Draft", "T-182", "T-204"),
        (gil, "Gil", "Published", "T-204", "T-182"),
    ):
        there = f"/w/acme/corrections/{one.pk}/"
        [line] = [line for line in lines if f'href="{there}"' in line]
        assert f"{one.reference}: We made a mistake" in line
        assert (f"for {name}</p>" in line, f"</span> {state}</span>" in line) == (True, True)
        told = desk.get(there).text
        assert (theirs in told, others in told) == (True, False)


def test_a_mail_that_was_chosen_on_the_page_leads_its_reader_to_the_trail(
    drafted, desk, post_office
):
    there = f"/w/acme/corrections/{drafted.pk}/"
    assert choice(desk.get(there), "mail") == (True, True)

    page = published(desk, drafted, "mail")
    assert "hand the link on" not in page.text
    channels.send_due()
    publishing.follow()

    [letter] = post_office()
    assert letter["to"] == ["eve@example.com"]
    [link] = LINK.findall(letter["text"])
    trail = Client().get(urlsplit(link).path)
    assert "We changed your ticket by mistake, and put it back" in trail.text
    assert "Sent by mail to eve@example.com" in desk.get(there).text


def test_a_webhook_that_was_chosen_on_the_page_is_told_where_the_trail_is(
    drafted, desk, ada, acme, receiver
):
    there = f"/w/acme/corrections/{drafted.pk}/"
    assert choice(desk.get(there), "webhook") == (False, False)
    secret = {"url": f"{receiver.at['url']}/told", "secret": SECRET}
    channels.create(acme, "product", "webhook", by=ada, secret=secret, subjects=["correction.*"])
    assert choice(desk.get(there), "webhook") == (False, True)

    published(desk, drafted, "webhook")
    channels.send_due()
    publishing.follow()

    [got] = [one for one in receiver.journal.entries() if one["path"] == "/told"]
    said = Webhook(SECRET).verify(got["body"], got["headers"])
    assert (said["type"], said["data"]["workspace"]) == ("correction.published", "acme")
    whose = {"correction": drafted.reference, "person": "eve"}
    assert said["data"]["facts"] == whose, "to whom the product shows it"
    trail = Client().get(urlsplit(said["data"]["url"]).path)
    assert "We changed your ticket by mistake, and put it back" in trail.text
    assert "Sent by webhook to product" in desk.get(there).text


def test_a_closed_case_says_how_its_newest_letter_stands_and_whose_it_is(drafted, desk, ada):
    case = f"/w/acme/cases/{drafted.case_id}/"
    Correction.objects.update(person_name="Gil Moss")
    said = "The correction for Gil Moss {}"
    assert said.format("is a draft") in desk.get(case).text

    published(desk, drafted, "link")
    assert said.format("is published") in desk.get(case).text

    drafted.refresh_from_db()
    corrections.revoke(drafted, by=ada, seen=drafted.revision, reason="Not hers")
    assert said.format("was revoked") in desk.get(case).text


def test_what_was_sent_and_what_came_back_stand_in_their_order(drafted, desk, nils):
    """The answer stood before what it answers."""
    published(desk, drafted, "mail")
    link = corrections.link_of(Correction.objects.get()).removeprefix("http://localhost")
    Client().get(link)
    Client().post(f"{link}report/", {"ground": "other", "text": "Not so"})
    contesting.answer(Contest.objects.get(), by=nils, upheld=False, text="It reads normal")

    way = desk.get(f"/w/acme/corrections/{drafted.pk}/").context["way"]

    begins = ["On its way by mail", "Link first opened", "Contested", "The answer: on its way"]
    assert [one["words"].startswith(words) for one, words in zip(way, begins, strict=True)] == [
        True
    ] * 4
