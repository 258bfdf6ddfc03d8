"""The page of the affected person in a browser: its times, what of it stands on paper, how it is
checked far from the desk; and how its words are written.
"""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from ledger import sealer
from ledger.views.events import verifier_digest
from recovery.models import Correction
from tests.browser import test_verifier
from tests.browser.accessible import fields_cut
from tests.browser.conftest import PHONE, Visit
from tests.browser.trails import for_everybody
from tests.recovery.cases import test_contests, test_corrections

restored, drafted = test_corrections.restored, test_corrections.drafted
of_a_ticket, opened = test_contests.published, test_verifier.opened

JULY = datetime(2026, 7, 1, 12, 30, tzinfo=UTC)
ON_THE_SCREEN_ALONE = "a.button, button, input, nav, .languages a"


@pytest.fixture
def published(transactional_db: None, of_a_ticket: Any) -> tuple[Correction, str]:
    correction, path = of_a_ticket
    Correction.objects.filter(pk=correction.pk).update(published_at=JULY)
    return correction, path


def test_the_times_of_a_trail_stand_in_its_readers_zone_which_is_named(
    visit: Visit, published: Any
) -> None:
    _, path = published
    where = {"timezone_id": "America/New_York"}
    eve, without = visit(**where), visit(java_script_enabled=False, **where)
    when = ".trail-head time"

    without.goto(path)
    eve.goto(path)

    expect(without.locator(when)).to_have_text("July 1, 2026, 12:30 p.m. UTC")
    expect(eve.locator(when)).to_have_text("July 1, 2026 at 08:30 AM EDT")
    expect(eve.locator(when)).to_have_attribute("title", without.locator(when).inner_text())
    told = eve.locator("time").all_inner_texts()
    assert len(told) >= 4, "published, changed, put right, open until"
    assert not [one for one in told if not re.search(r" E[SD]T$", one)]
    eve.goto(f"{path}?lang=de")
    expect(eve.locator(when)).to_have_text("1. Juli 2026 um 08:30 GMT-4")


def test_what_is_written_in_paragraphs_is_read_in_paragraphs(visit: Visit, published: Any) -> None:
    correction, path = published
    Correction.objects.filter(pk=correction.pk).update(lead="We are sorry.\n\nIt is put right.")
    eve = visit()

    eve.goto(path)
    assert eve.locator(".lead").inner_text() == "We are sorry.\n\nIt is put right."
    eve.get_by_role("link", name="Tell us").click()
    eve.get_by_text("Something else").click()
    eve.get_by_label("In your own words").fill("Not so.\nIt says high.")
    eve.get_by_role("button", name="Send it").click()
    eve.wait_for_url("**/contested/**")  # with its style sheet, which says how lines are broken

    assert eve.get_by_text("Not so.").inner_text() == "Not so.\nIt says high."


def test_on_paper_a_trail_has_its_address_and_number_and_nothing_to_press(
    visit: Visit, published: Any
) -> None:
    correction, path = published
    eve = visit()
    eve.goto(path)
    there = eve.locator(ON_THE_SCREEN_ALONE)
    assert there.count() >= 7, "Verify, Download, Tell us, and each language"
    address = eve.get_by_text(re.compile(rf"^http.*{path}"))
    expect(address).to_be_hidden()

    eve.emulate_media(media="print")

    assert not [one for one in there.all() if one.is_visible()]
    expect(address).to_be_visible()
    expect(eve.get_by_text(correction.reference)).to_be_visible()
    expect(eve.get_by_role("heading", name="What changed, and what we did")).to_be_visible()


def test_eve_saves_verifier_record_and_key_and_checks_them_offline(
    visit: Visit, opened: Any, transactional_db: None, of_a_ticket: Any, acme: Any, tmp_path: Path
) -> None:
    correction, path = of_a_ticket
    assert isinstance(correction, Correction)
    sealer.seal(acme)
    eve = visit()
    eve.goto(f"{path}verify/")
    saved = {}
    for name in ("Save the verifier", "Download the record", "Download the key"):
        with eve.expect_download() as download:
            eve.get_by_role("link", name=name).click()
        file = tmp_path / download.value.suggested_filename
        download.value.save_as(file)
        saved[name] = file
    assert [file.name for file in saved.values()] == [
        "verifier.html", f"{correction.reference}.json", "log.pub",
    ]  # fmt: skip
    assert saved["Save the verifier"].read_bytes() == test_verifier.FILE.read_bytes()
    expect(eve.locator("code.digest")).to_have_text(verifier_digest())
    for_everybody(eve)

    page = opened(saved["Save the verifier"])
    page.get_by_label("1.").set_input_files(saved["Download the record"])
    page.get_by_label("2.").set_input_files(saved["Download the key"])

    expect(page.locator("#verdict")).to_contain_text("As it was recorded")
    expect(page.locator("#told")).to_contain_text(correction.title)
    for_everybody(page)


def test_on_a_phone_the_words_of_a_letter_are_read_whole_while_they_are_written(
    visit: Visit, transactional_db: None, drafted: Any, ada: Any
) -> None:
    page = visit(ada, viewport=PHONE)
    page.goto(f"/w/acme/corrections/{drafted.pk}/")
    said = page.locator(".sentence")
    said.first.fill("We changed your ticket by mistake, and put it back as it was on Tuesday")
    said.last.fill("It is as it was, and whoever looked after it looks after it again. " * 3)

    assert fields_cut(page) == []
