"""The whole inbox by keyboard alone: no mouse is touched from the queue to the last answer."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route

from approvals import inbox
from approvals.models import Approval
from approvals.policy import RequiredApprovers
from tests.approvals.cast import refund
from tests.browser import test_approvals
from tests.browser.accessible import assert_accessible
from tests.browser.conftest import DESKTOP, PHONE, Visit, press
from workspaces.models import User
from workspaces.templatetags import places

ada, ben, ask = test_approvals.ada, test_approvals.ben, test_approvals.ask

TITLE = "Refund 1.00 EUR to the card ending 4421"


def focused(page: Page) -> str:
    """What has the focus, in the words that are read out for it."""
    words: str = page.evaluate(
        "(one => one === document.body ? '' : (one.labels?.[0] ?? one).innerText || '')"
        "(document.activeElement)"
    )
    return " ".join(words.split())


def tab_to(page: Page, words: str, *, most: int = 40) -> None:
    """Press Tab until something that says `words` has the focus."""
    for _ in range(most):
        if words in focused(page):
            return
        press(page, "Tab")
    raise AssertionError(f"“{words}” is not reached; the focus is on “{focused(page)}”")


def test_ben_works_through_his_inbox_without_a_mouse(visit: Visit, ask: Any, ben: User) -> None:
    first, second, third = ask(), ask(calls=[refund(100), refund(250)]), ask()
    page = visit(ben)
    page.goto("/w/acme/queue/")

    press(page, "g", "a")
    page.wait_for_url("**/approvals/")
    press(page, "j", "j", "k", "Enter")
    page.wait_for_url(f"**/approvals/{first.pk}/")

    press(page, "?")
    page.locator("#keys-help[open]").wait_for()
    helped = page.locator("#keys-help").inner_text()
    for does in ("Raw call", "Reject", "Approve", "Reason", "Next row", "Ask something"):
        assert does in helped, does
    press(page, "Escape")
    page.locator("#keys-help[open]").wait_for(state="detached")

    press(page, "w")
    page.keyboard.type("wrong card")
    press(page, "Escape", "Shift+R")  # out of the field, onto the button
    assert focused(page).startswith("Reject")
    first.refresh_from_db()
    assert first.state == "waiting"
    press(page, "Enter")
    page.get_by_text("Rejected by Ben: wrong card").wait_for()

    press(page, "]")
    page.wait_for_url(f"**/approvals/{second.pk}/")
    press(page, "d")
    assert page.locator("details.raw[open]").count() == 1
    press(page, "Shift+Q")
    page.keyboard.type("Did the customer confirm?")
    press(page, "Tab", "Enter")
    page.get_by_text("No answer yet.").wait_for()
    press(page, "w")
    page.keyboard.type("checked")
    press(page, "Escape", "Shift+A", "Enter")
    page.locator(".notice.ok").wait_for()

    with page.expect_response("**/outcome/"):  # what became of it is looked at every two seconds
        pass
    page.wait_for_timeout(100)
    press(page, "Tab")
    assert focused(page).startswith("Next:")
    press(page, "Enter")
    page.wait_for_url(f"**/approvals/{third.pk}/")
    press(page, "Escape")
    page.wait_for_url("**/approvals/")
    states = Approval.objects.order_by("pk").values_list("state", flat=True)
    assert list(states) == ["rejected", "granted", "waiting"]


def test_the_list_goes_on_from_the_card_that_is_open(visit: Visit, ask: Any, ben: User) -> None:
    _, second, third = ask(), ask(), ask()
    page = visit(ben)
    page.goto(f"/w/acme/approvals/{second.pk}/")

    press(page, "j", "Enter")

    page.wait_for_url(f"**/approvals/{third.pk}/")


def test_the_other_lists_are_reached_and_a_grant_is_withdrawn(
    visit: Visit, ask: Any, ben: User
) -> None:
    granted, _ = ask(), ask(RequiredApprovers("leads", 1))
    inbox.grant(granted, by=ben, seen=granted.digest, reason="checked")
    page = visit(ben)
    page.goto("/w/acme/approvals/")
    assert "Nothing waits for you" in page.locator("main").inner_text()

    press(page, "f")
    assert focused(page).startswith("Waiting for you")
    for words, place in (("All waiting", "view=all"), ("Health", "health"), ("Decided", "history")):
        tab_to(page, words)
        press(page, "Enter")
        page.wait_for_url(f"**{place}**")
        press(page, "f")
    press(page, "j", "Enter")
    page.wait_for_url(f"**/approvals/{granted.pk}/")
    tab_to(page, "Why")
    page.keyboard.type("seen the second mail")
    press(page, "Tab", "Enter")

    page.get_by_text("Withdrawn by Ben: seen the second mail").wait_for()
    granted.refresh_from_db()
    assert (granted.state, granted.closing_reason) == ("withdrawn", "seen the second mail")


def test_whoever_asked_takes_it_back_by_keyboard(visit: Visit, ask: Any, ada: User) -> None:
    approval = ask()
    page = visit(ada)
    page.goto("/w/acme/approvals/?view=all")

    press(page, "j", "Enter")
    page.wait_for_url(f"**/approvals/{approval.pk}/**")
    assert "it takes a second person" in page.locator(".actionbar").inner_text()
    tab_to(page, "Withdraw", most=80)
    press(page, "Enter")

    page.get_by_text("Withdrawn by Ada").wait_for()
    approval.refresh_from_db()
    assert approval.state == "withdrawn"


@pytest.mark.parametrize(("scheme", "size"), [("light", PHONE), ("dark", DESKTOP)])
def test_what_a_decision_leaves_behind_is_for_everybody(
    visit: Visit, ask: Any, ben: User, scheme: str, size: dict[str, int]
) -> None:
    ask()
    ask()
    page = visit(ben, color_scheme=scheme, viewport=size)
    page.goto(f"/w/acme/approvals/{Approval.objects.earliest('pk').pk}/")
    page.locator("input[name=reason]").fill("checked")
    page.locator("button[value=grant]").click()
    page.get_by_text(f"Next: {TITLE}").wait_for()
    page.locator("#outcome:focus").wait_for()
    assert_accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_what_one_decides_oneself_is_no_news_however_long_its_answer_takes(
    visit: Visit, ask: Any, ben: User
) -> None:
    def slow(route: Route) -> None:
        answer = route.fetch()
        time.sleep(1.5)  # the page goes on hearing of news, in which it stands as decided
        route.fulfill(response=answer)

    approval = ask()
    page = visit(ben)
    page.goto(f"/w/acme/approvals/{approval.pk}/")
    page.route("**/decide/", slow)
    page.locator("input[name=reason]").fill("checked")
    page.locator("button[value=grant]").click()

    page.locator("#outcome:focus").wait_for()
    assert page.get_by_text("meanwhile").count() == 0


def test_news_come_after_an_answer_that_got_lost_once_its_form_was_gone(
    visit: Visit, ask: Any, ben: User
) -> None:
    def lost(route: Route) -> None:
        page.evaluate("document.querySelector('button[value=grant]').closest('form').remove()")
        route.abort()

    approval = ask()
    page = visit(ben)
    page.goto(f"/w/acme/approvals/{approval.pk}/")
    page.route("**/decide/", lost)
    page.locator("input[name=reason]").fill("checked")
    with page.expect_event("requestfailed"):
        page.locator("button[value=grant]").click()

    ask()

    page.get_by_text("+1 new").wait_for()


def test_no_page_gives_the_keys_of_a_place_to_something_else() -> None:
    ways = {keys for _, group in places.PLACES for _, _, _, keys in group if keys}
    templates = (Path(__file__).parents[2] / "templates").rglob("*.html")
    taken = {
        pair for one in templates for pair in re.findall(r'data-key="(g \w)"', one.read_text())
    }

    assert taken & ways == set()
