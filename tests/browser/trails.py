"""Correction trails in the browser: published as an operator does, read as their person does."""

import re
from pathlib import Path

from playwright.sync_api import Page

from tests.browser.accessible import BY_COLOUR, assert_accessible


def for_everybody(page: Page) -> None:
    """The page as it stands is usable by everybody, light and dark."""
    page.emulate_media(color_scheme="light")
    assert_accessible(page)
    page.emulate_media(color_scheme="dark")
    assert_accessible(page, rules=BY_COLOUR)
    page.emulate_media(color_scheme="light")


def publish(page: Page, workspace: str, correction: int) -> str:
    """Publish a correction as a link; its public address."""
    answer = page.goto(f"/w/{workspace}/corrections/{correction}/")
    assert answer is not None
    assert answer.ok, page.content()
    for_everybody(page)
    link = page.locator("input[name=delivery][value=link]")
    if link.count():
        link.first.check()
    page.get_by_role("button", name=re.compile("^Publish")).click()
    page.locator(".secret code").wait_for()
    for_everybody(page)
    return str(page.locator(".secret code").inner_text())


def told(page: Page) -> dict[str, str]:
    """What a trail says, line by line: what happened, and in one word what was done about it."""
    lines = page.locator("section:is([aria-labelledby='changed'], [aria-labelledby='lasting']) li")
    return {
        line.locator("b").inner_text(): line.locator(".badge").inner_text() for line in lines.all()
    }


def check_the_record(page: Page) -> None:
    """From a trail: its record is checked in the page, and there is a way to say more."""
    page.get_by_role("link", name="Verify").click()
    page.get_by_text("Check it yourself").wait_for()
    page.wait_for_load_state()
    while not page.get_by_text("As it was recorded").count():  # its entry is sealed in a moment
        page.get_by_text("Being sealed").wait_for()
        page.wait_for_timeout(500)
        page.reload()
    keys = page.locator(".secret code").all_inner_texts()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the key").click()
    assert download.value.suggested_filename == "log.pub"
    assert Path(download.value.path()).read_text().splitlines() == keys
    for_everybody(page)
    page.go_back()
    page.get_by_role("link", name="Tell us").click()
    for_everybody(page)
