"""The OpenAPI page: drawn by a library, under our own policy of what a page may load."""

from playwright.sync_api import expect

from tests.browser.accessible import BY_COLOUR, assert_accessible, in_each_look
from tests.browser.conftest import DESKTOP, PHONE, Visit, too_wide


def test_the_api_page_is_drawn_from_our_own_files_alone(visit: Visit) -> None:
    page = visit()

    page.goto("/api/v1/docs")

    page.get_by_text("What agents and people's scripts say").wait_for()


def test_the_api_page_looks_like_the_desk_in_the_light_and_the_dark(visit: Visit) -> None:
    page = visit()
    page.goto("/api/v1/docs")
    page.locator(".opblock").first.wait_for()
    grounds = []

    for _ in in_each_look(page, [("light", DESKTOP), ("dark", PHONE)]):
        assert_accessible(page, rules=BY_COLOUR)
        assert too_wide(page) <= 0
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    assert grounds == ["rgb(246, 246, 243)", "rgb(14, 16, 19)"]
    page.set_viewport_size(DESKTOP)
    page.get_by_role("link", name="Recovery").first.click()
    expect(page.locator("#operations-tag-recovery")).to_be_in_viewport()
