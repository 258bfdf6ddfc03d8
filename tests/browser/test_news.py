"""What an open page tells of news, and that it says so when it is told none any more."""

import re
from typing import Any

from django.contrib.sessions.models import Session
from django.utils import timezone
from playwright.sync_api import Page, expect

from recovery.casework import cases, closing
from recovery.models import Case
from recovery.triage import triage
from tests.browser import test_queue
from tests.browser.conftest import Visit, press
from tests.recovery.cases.cast import submitted
from workspaces.models import User

case = test_queue.case
DEAF = "This page hears of nothing new any more"


def badge(page: Page) -> Any:
    return page.locator('.side [data-count="queue"]')


def asks_until_it_says_so(page: Page) -> None:
    """The page asks less and less often; its clock goes on to the moment of the next question."""
    page.clock.install()
    for _ in range(400):
        page.clock.run_for(1_000)
        if page.locator("#toasts .toast").count():
            break
        page.wait_for_timeout(50)
    expect(page.locator("#toasts")).to_contain_text(DEAF)


def test_what_was_new_and_is_over_is_not_called_new(
    visit: Visit, case: Case, ada: User, ben: User
) -> None:
    closing.close(case, outcome="expected", reason="x", by=ben, seen=case.revision)
    page = visit(ada)
    page.goto("/w/acme/queue/")
    expect(badge(page)).to_be_hidden()
    Case.objects.update(opened_at="2020-01-01T00:00:00Z")

    case.refresh_from_db()
    cases.reopen(case, by=ben, seen=case.revision, reason="It was not")

    expect(page.locator("[data-pill]")).to_have_text(re.compile(r"\+1 new"))
    expect(badge(page)).to_have_text("1")
    case.refresh_from_db()
    closing.close(case, outcome="expected", reason="x", by=ben, seen=case.revision)
    expect(page.locator("[data-pill]")).to_be_hidden()
    expect(badge(page)).to_be_hidden()


def test_a_list_that_nobody_tells_any_more_says_so(visit: Visit, case: Case, ada: User) -> None:
    page = visit(ada)
    page.goto("/w/acme/queue/")
    page.locator("html.js").wait_for(state="attached")

    Session.objects.all().delete()  # logged out elsewhere

    asks_until_it_says_so(page)
    expect(page.locator("#rows")).to_contain_text("run_1")


def test_a_plan_that_nobody_tells_of_any_more_is_not_replaced_by_the_log_in(
    visit: Visit, raised: Any, acme: Any, ada: User, cleo: User
) -> None:
    triage.look()
    found = Case.objects.get()
    submitted(found, ada)
    page = visit(ada)
    page.goto(f"/w/acme/cases/{found.pk}/")
    page.locator("#plan[data-poll]").wait_for()
    Case.objects.update(was="open", state="recovering")
    found.plans.update(was="waiting", state="running")
    expect(page.locator("p#suggestion")).to_contain_text("The plan runs")

    Session.objects.all().delete()

    asks_until_it_says_so(page)
    assert page.locator("#toasts .toast").count() == 1, "told once"
    expect(page.locator("#plan")).to_contain_text("Recovery plan 1")
    assert page.locator('input[type="password"]').count() == 0


def test_who_peeks_after_the_session_ended_keeps_the_list_and_is_told(
    visit: Visit, case: Case, ada: User
) -> None:
    page = visit(ada)
    page.goto("/w/acme/queue/")
    press(page, "j")
    Session.objects.all().delete()

    press(page, "Space")

    expect(page.locator("#toasts")).to_contain_text("You are logged out")
    expect(page.locator("#rows")).to_contain_text("run_1")


def test_what_is_chosen_stays_chosen_beside_a_card_that_opens_and_shuts(
    visit: Visit, raised: Any, begin_run: Any, ada: User
) -> None:
    for number in range(2, 6):
        begin_run(f"run_{number}").ends("failed", error={"type": "x", "message": str(number)})
    triage.look()
    Case.objects.update(opened_at=timezone.now(), without_effects=False)
    page = visit(ada)
    page.goto("/w/acme/queue/")
    press(page, "j", "j", "j", "x")
    chosen = page.locator(".row-pick:checked")
    [third] = [one.get_attribute("value") for one in chosen.all()]

    press(page, "Space")
    page.locator("#peek").wait_for()

    assert [one.get_attribute("value") for one in chosen.all()] == [third]
    expect(page.locator("[data-selection]")).to_contain_text("1 selected")
    press(page, "j")  # goes on from the row of the card
    assert page.evaluate("document.activeElement.closest('tr').rowIndex") == 4
    press(page, "Shift+X")
    assert chosen.count() == 2, "from the one that was chosen, and not from the first"
    press(page, "Escape")
    page.locator("#peek").wait_for(state="detached")
    assert chosen.count() == 2
