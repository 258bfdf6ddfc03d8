"""Getting about, and acting on many: suggestions, neighbours, kept views, bulk acts, causes."""

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from recovery.casework import bulk, closing
from recovery.models import BulkJob, Case, SavedView
from recovery.triage import triage
from recovery.views.saved_views import save_view
from tests.browser.accessible import Look, assert_accessible, in_each_look
from tests.browser.conftest import DESKTOP, PHONE, Visit, press, too_wide
from workspaces.models import User

LOOKS: list[Look] = [("light", DESKTOP), ("dark", PHONE)]


@pytest.fixture
def three(transactional_db: None, raises: Any) -> list[Case]:
    """Three runs that each raised a ticket of their own, and failed alike."""
    for number in (1, 2, 3):
        run = raises(number)
        run.ends("failed", failed_action=run.fails("mail.send", message="504"))
    triage.look()
    return list(Case.objects.order_by("-failed_at", "-id"))


def test_an_answer_that_takes_long_is_said_to_be_on_its_way(
    visit: Visit, three: list[Case], ada: User
) -> None:
    page = visit(ada)
    page.goto("/w/acme/queue/")
    page.route("**/queue/?q=*", lambda _: None)

    with page.expect_console_message(lambda said: "Loading…" in said.text):
        page.evaluate(
            """() => setTimeout(() => {
                document.querySelector("[data-query]").form.requestSubmit();
                const sign = () => getComputedStyle(document.body, "::after").content;
                setInterval(() => console.log(sign()), 100);
            })"""
        )


def test_ada_writes_a_query_with_what_is_offered_and_keeps_it(
    visit: Visit, three: list[Case], ada: User
) -> None:
    page = visit(ada)
    page.goto("/w/acme/queue/")
    field = page.get_by_label("Search the queue")

    field.press_sequentially("ri")
    page.get_by_role("option", name=re.compile("^risk:")).wait_for()
    assert_accessible(page)
    field.press("ArrowDown")
    field.press("Enter")
    expect(field).to_have_value("risk:")
    field.press_sequentially("l")
    page.get_by_role("option", name="low").wait_for()
    field.press("ArrowDown")
    field.press("Tab")
    expect(field).to_have_value("risk:low ")
    expect(field).to_be_focused()
    field.press_sequentially("is")
    page.get_by_role("option", name=re.compile("^is:")).wait_for()
    field.press("Escape")
    expect(page.locator("#suggestions")).to_be_hidden()
    expect(field).to_have_value("risk:low is")
    field.fill("risk:low is:open")
    field.press("Enter")
    page.wait_for_url(re.compile("q=risk%3Alow"))
    press(page, "v")
    page.get_by_label("Name").fill("Small fry")
    page.get_by_role("button", name="Keep it").click()

    page.get_by_role("link", name=re.compile("^Small fry")).wait_for()
    assert SavedView.objects.get().query == "risk:low is:open"


def test_ada_walks_from_case_to_case_and_finn_jumps_to_one(
    visit: Visit, three: list[Case], ada: User, finn: User
) -> None:
    page = visit(ada)
    page.goto("/w/acme/queue/?q=is%3Aopen&sort=newest")
    page.locator(".row-link").first.click()
    page.wait_for_url(f"**/cases/{three[0].pk}/?**")

    for key, at in (("]", 1), ("]", 2), ("[", 1)):
        press(page, key)
        page.wait_for_url(f"**/cases/{three[at].pk}/?**")
    press(page, "Escape")
    page.wait_for_url("**/queue/?q=is%3Aopen&sort=newest")

    other = visit(finn)
    other.goto("/w/acme/approvals/")
    press(other, "Control+k")
    other.keyboard.type(f"{three[1].run.run}-is-none")
    other.get_by_role("option", name=re.compile("^Open run_")).wait_for()
    press(other, "Enter")
    other.get_by_role("link", name="Search the queue for it").wait_for()
    other.goto(f"/w/acme/x/{three[1].run.run}")
    other.wait_for_url(f"**/cases/{three[1].pk}/")


def test_ada_acts_on_what_she_chose_by_keys_and_sees_each_end(
    visit: Visit, three: list[Case], ada: User
) -> None:
    page = visit(ada)
    page.goto("/w/acme/queue/")
    for key in ("j", "x", "j", "x"):
        press(page, key)
    page.locator("[data-selection-count]", has_text="2 selected").wait_for()

    press(page, "u")
    page.get_by_role("heading", name="Compensate 2 cases").wait_for()
    page.get_by_placeholder(re.compile("^Why")).fill("The mail gateway was down")
    press(page, "Control+Enter")

    page.wait_for_url(re.compile(r"/bulk/\d+/$"))
    expect(page.get_by_text("Queued")).not_to_have_count(0)
    assert_accessible(page)
    bulk.sweep()
    expect(page.locator("tbody .badge", has_text="Submitted")).to_have_count(2)
    assert BulkJob.objects.get().items.count() == 2


def test_the_focus_stays_where_it_is_while_a_job_goes_on(
    visit: Visit, three: list[Case], ada: User
) -> None:
    page = visit(ada)
    page.goto("/w/acme/bulk/new/?act=compensate&q=is:open")
    page.get_by_placeholder(re.compile("^Why")).fill("The mail gateway was down")
    press(page, "Control+Enter")
    page.wait_for_url(re.compile(r"/bulk/\d+/$"))
    second = page.locator("a.row-link").nth(1)
    second.focus()

    for _ in range(2):
        page.locator("#progress").element_handle().wait_for_element_state("hidden")  # another came
        expect(second).to_be_focused()
    page.get_by_role("button", name="Stop what has not begun").focus()
    bulk.sweep()
    expect(page.locator("tbody .badge", has_text="Submitted")).to_have_count(3)
    assert page.evaluate("document.querySelector('#progress').contains(document.activeElement)")


def test_a_dry_run_speaks_of_what_stays_ticked(visit: Visit, three: list[Case], ada: User) -> None:
    page = visit(ada)
    page.goto("/w/acme/bulk/new/?act=close&q=is:open")
    button = page.locator("[data-commits]")
    boxes = page.get_by_role("checkbox").all()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Close {len(boxes)} cases")

    for box in boxes[1:]:
        box.uncheck()

    expect(page.get_by_role("heading", level=1)).to_have_text("Close 1 case")
    expect(button).to_contain_text("Close 1 case")
    boxes[0].uncheck()
    expect(button).to_be_disabled()


def test_bulk_and_views_work_without_scripts(visit: Visit, three: list[Case], ada: User) -> None:
    page = visit(ada, java_script_enabled=False)
    page.goto("/w/acme/queue/")
    for box in page.locator(".row-pick").all()[:2]:
        box.check()

    page.get_by_role("button", name=re.compile("^Close…")).click()
    page.get_by_role("checkbox").first.uncheck()
    page.get_by_placeholder(re.compile("^Why")).fill("A drill")
    page.get_by_role("button", name=re.compile("^Close 2 cases")).click()

    page.wait_for_url(re.compile(r"/bulk/\d+/$"))
    assert BulkJob.objects.get().items.count() == 1, "what was unticked stays out"
    page.get_by_role("button", name="Stop what has not begun").click()
    page.get_by_text("1 case that had not begun").first.wait_for()


def test_ada_reopens_what_she_closed_too_soon(visit: Visit, three: list[Case], ada: User) -> None:
    case = three[0]
    closing.close(case, outcome="expected", reason="a test", by=ada, seen=case.revision)
    page = visit(ada)
    page.goto(f"/w/acme/cases/{case.pk}/")

    page.get_by_text("Reopen this case…").click()
    assert_accessible(page)
    page.get_by_label("What is still wrong?").fill("The customer called again")
    page.get_by_role("button", name="Reopen the case").click()

    page.get_by_role("link", name=re.compile("^Compensate")).wait_for()
    case.refresh_from_db()
    assert (case.state, case.outcome) == ("open", "")


def test_every_new_page_is_for_everybody(visit: Visit, three: list[Case], ada: User) -> None:
    page = visit(ada)
    cause = f"/w/acme/causes/{three[0].cause.fingerprint}/" if three[0].cause else ""
    paths = (
        "queue/",
        "causes/",
        cause.removeprefix("/w/acme/"),
        "causes/?view=growing",
        "bulk/",
        "bulk/new/?act=compensate&q=is:open",
        "bulk/new/?act=close&q=tool:nobody",
        "views/",
        "views/new/?q=risk:low",
        "insights/",
        "x/nothing-like-it",
    )

    for path in paths:
        page.goto(f"/w/acme/{path}")
        for summary in page.locator("main summary").all():
            summary.click()
        for _ in in_each_look(page, LOOKS):
            assert_accessible(page)
            assert too_wide(page) <= 0, path


def test_figures_whose_numbers_are_on_their_way_offer_a_link_a_finger_meets(
    visit: Visit, three: list[Case], ada: User
) -> None:
    page = visit(ada)
    page.set_viewport_size(PHONE)
    page.goto("/w/acme/insights/")
    page.route("**/insights/*numbers=*", lambda _: None)

    for summary in page.locator("main summary").all():
        summary.click()

    links = page.get_by_role("link", name="Show the numbers")
    expect(links.first).to_be_visible()
    assert {box["height"] >= 24 for link in links.all() if (box := link.bounding_box())} == {True}


def test_ada_finds_a_person_and_a_view_in_the_palette(
    visit: Visit, three: list[Case], acme: Any, ada: User, ben: User
) -> None:
    save_view(acme, by=ada, name="Ben’s small fry", query="risk:low", shared=False)
    page = visit(ada)
    page.goto("/w/acme/queue/")
    press(page, "Control+k")
    page.keyboard.type("ben")
    page.get_by_role("option", name=re.compile("^Ben, ben@.*Person$")).wait_for()
    page.get_by_role("option", name=re.compile("^Ben’s small fry.*View$")).click()
    page.wait_for_url(re.compile("q=risk%3Alow"))

    press(page, "Control+k")
    page.keyboard.type("ben@")
    found = page.get_by_role("option", name=re.compile("^Ben, ben@"))
    found.wait_for()
    for _ in in_each_look(page, LOOKS):
        assert_accessible(page)
    expect(found).to_have_attribute("aria-selected", "true")
    press(page, "Enter")

    page.wait_for_url(re.compile(r"/settings/members/#person-\d+$"))
    expect(page.locator("tr:target")).to_contain_text(ben.email)
