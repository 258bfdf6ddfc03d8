"""The pages of the entrance and of a person's account, for everybody and at every width."""

import pytest
from playwright.sync_api import Page, ViewportSize

from tests.browser.accessible import Look, assert_accessible, in_each_look
from tests.browser.conftest import DESKTOP, Visit
from workspaces import entrance
from workspaces.models import User

NARROW: ViewportSize = {"width": 320, "height": 700}
LOOKS: list[Look] = [("light", DESKTOP), ("dark", NARROW)]
OWN_PAGES = [
    "/accounts/2fa/",
    "/accounts/2fa/totp/activate/",
    "/accounts/password/change/",
    "/accounts/reauthenticate/",
    "/accounts/logout/",
    "/w/airline/settings/",
    "/w/airline/settings/members/",
    "/w/airline/settings/keys/",
    "/w/airline/connectors/",
    "/w/airline/audit/",
]


@pytest.fixture
def ada(transactional_db: None) -> User:
    person: User = User.objects.create_user("ada@example.com", "a long enough secret", name="Ada")
    entrance.open_workspace("Airline desk", "airline", by=person)
    return person


def overflow(page: Page) -> int:
    """How many pixels the page is wider than its window, or a box clips of what is in it."""
    width: int = page.evaluate(
        """() => Math.max(
            document.documentElement.scrollWidth - document.documentElement.clientWidth,
            ...[...document.querySelectorAll(".card")].map(box => box.scrollWidth - box.clientWidth)
        )"""
    )
    return width


def test_a_stranger_can_use_the_entrance(visit: Visit) -> None:
    page = visit()

    for path in ("/accounts/login/", "/accounts/password/reset/"):
        page.goto(path)
        assert page.locator("h1").count() == 1
        for _ in in_each_look(page, LOOKS):
            assert_accessible(page)
            assert overflow(page) <= 0


def test_everybody_can_use_the_pages_of_their_account_and_workspace(
    visit: Visit, ada: User
) -> None:
    page = visit(ada)

    for path in OWN_PAGES:
        page.goto(path)
        for _ in in_each_look(page, LOOKS):
            assert_accessible(page)
            assert overflow(page) <= 0, path


def test_the_pages_bring_their_own_letters_and_load_only_those_that_they_hold(
    visit: Visit, ada: User
) -> None:
    page = visit(ada)
    page.goto("/w/airline/settings/")

    loaded = page.evaluate(
        """() => document.fonts.ready.then(fonts => [...fonts]
            .filter(face => face.family.replaceAll('"', "") === "Inter" && face.status === "loaded")
            .map(face => face.unicodeRange.split(",")[0]))"""
    )

    assert loaded == ["U+0-FF"]


def test_who_lives_in_lists_may_have_them_compact(visit: Visit, ada: User) -> None:
    page = visit(ada)
    page.goto("/w/airline/audit/")
    row = page.locator(".listing-table tbody tr").first
    airy = row.bounding_box()

    page.goto("/w/airline/settings/")
    page.get_by_label("Compact lists").check()
    page.get_by_role("button", name="Save for me").click()
    page.goto("/w/airline/audit/")
    compact = row.bounding_box()

    assert airy
    assert compact
    assert compact["height"] < airy["height"]
    assert_accessible(page)
