"""Working the queue: by keys alone, without scripts, and two people at once."""

import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, Route, expect

from recovery.casework import cases, closing
from recovery.models import Case, Plan
from recovery.triage import triage
from tests.browser.accessible import Look, assert_accessible, in_each_look
from tests.browser.conftest import DESKTOP, PHONE, Visit, press, too_wide
from tests.people import team
from tests.recovery.cases.cast import submitted
from workspaces import clock, teams
from workspaces.formatting import digest
from workspaces.models import Team, User

LOOKS: list[Look] = [("light", DESKTOP), ("dark", PHONE)]


@pytest.fixture
def case(transactional_db: None, raised: Any) -> Case:
    triage.look()
    return Case.objects.get()


def on_its_preview(page: Page, case: Case, act: str = "compensate") -> None:
    page.goto(f"/w/acme/cases/{case.pk}/{act}/")


def test_ada_goes_from_the_queue_to_a_running_plan_without_a_mouse(
    visit: Visit, case: Case, ada: User
) -> None:
    page = visit(ada)
    page.goto("/w/acme/queue/")

    press(page, "j")
    press(page, "Space")
    page.locator("#peek").wait_for()
    assert_accessible(page)
    press(page, "Escape")
    page.locator("#peek").wait_for(state="detached")
    page.locator(".row-link:focus").wait_for()  # where the peek was opened
    press(page, "j")
    press(page, "k")
    press(page, "Enter")
    page.wait_for_url(f"**/cases/{case.pk}/")
    press(page, "c")
    page.get_by_text("Claimed by you").wait_for()
    press(page, "u")
    page.wait_for_url("**/compensate/")
    press(page, "Control+Enter")  # the browser asks for the reason first
    assert not Plan.objects.exists()
    page.get_by_placeholder(re.compile("^Why")).focus()
    page.keyboard.type("The wrong ticket")
    press(page, "Enter")
    page.wait_for_timeout(300)
    assert not Plan.objects.exists()  # no single key commits, nor does the field
    press(page, "Control+Enter")
    page.wait_for_url(f"**/cases/{case.pk}/")

    assert Plan.objects.get().reason == "The wrong ticket"
    press(page, "g")
    press(page, "q")
    page.wait_for_url("**/queue/")


def test_on_a_slow_line_who_presses_again_sends_nothing_more(
    visit: Visit, case: Case, ada: User
) -> None:
    page = visit(ada)
    on_its_preview(page, case)
    page.get_by_placeholder(re.compile("^Why")).fill("The wrong ticket")
    sent: list[str] = []
    page.on("request", lambda one: sent.append(one.url) if one.method == "POST" else None)
    line = page.context.new_cdp_session(page)
    line.send("Network.enable")
    line.send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 1500, "downloadThroughput": 50_000, "uploadThroughput": -1},
    )

    commits = page.locator("[data-commits]")
    commits.click()
    expect(commits).to_be_disabled()  # at once, before there is an answer
    page.keyboard.press("Control+Enter")
    page.wait_for_url(f"**/cases/{case.pk}/")

    assert len([one for one in sent if one.endswith("/compensate/")]) == 1
    assert Plan.objects.get().reason == "The wrong ticket"


def test_whose_right_is_withdrawn_while_the_form_is_open_is_told_and_keeps_the_text(
    visit: Visit, case: Case, ada: User, finn: User, operators: Team
) -> None:
    teams.add(team(operators.workspace, "guests", "view"), ada, by=None)
    for person, told in ((ada, "You may not do this here"), (finn, "not here for you any more")):
        page = visit(person)
        on_its_preview(page, case, "close")
        page.get_by_text("Already handled").click()
        why = page.get_by_placeholder(re.compile("^Why"))
        why.fill("Ken had it put right")
        teams.remove(operators, person, by=None)
        press(page, "Control+Enter")

        expect(page.locator("#toasts")).to_contain_text(told)
        expect(page.locator("#toasts")).to_contain_text("Nothing was")
        expect(why).to_have_value("Ken had it put right")
        expect(page.get_by_label("Already handled")).to_be_checked()
        assert_accessible(page)
        case.refresh_from_db()
        assert case.state == "open"


def test_the_second_of_two_operators_learns_it_and_loses_nothing_typed(
    visit: Visit, case: Case, ada: User, finn: User
) -> None:
    first, second = visit(ada), visit(finn)
    for page in (first, second):
        on_its_preview(page, case)
    first.get_by_placeholder(re.compile("^Why")).fill("The wrong ticket")
    press(first, "Control+Enter")
    first.wait_for_url(f"**/cases/{case.pk}/")

    second.get_by_placeholder(re.compile("^Why")).fill("I saw it too, and had much to say")
    press(second, "Control+Enter")
    second.locator("[data-focus]").wait_for()

    assert Plan.objects.count() == 1
    why = second.get_by_placeholder(re.compile("^Why"))
    expect(why).to_have_value("I saw it too, and had much to say")
    assert "Nothing was changed" in second.locator("[data-focus]").inner_text()
    assert_accessible(second)


def test_everything_works_without_scripts(visit: Visit, case: Case, ada: User) -> None:
    page = visit(ada, java_script_enabled=False)
    page.goto("/w/acme/queue/")
    page.locator(".row-link").first.click()
    page.get_by_role("link", name=re.compile("^Compensate")).click()

    page.get_by_placeholder(re.compile("^Why")).fill("The wrong ticket")
    page.get_by_role("button", name=re.compile("^Restore")).click()

    page.wait_for_url(f"**/cases/{case.pk}/")
    page.get_by_text("Plan 1 is submitted").first.wait_for()


def test_without_scripts_a_refusal_keeps_what_was_typed(
    visit: Visit, case: Case, ada: User
) -> None:
    page = visit(ada, java_script_enabled=False)
    on_its_preview(page, case)
    Case.objects.update(revision=99)

    page.get_by_placeholder(re.compile("^Why")).fill("The wrong ticket")
    page.get_by_role("button", name=re.compile("^Restore")).click()

    page.get_by_text("It has changed since you saw it").first.wait_for()
    expect(page.get_by_placeholder(re.compile("^Why"))).to_have_value("The wrong ticket")


def test_every_page_of_a_case_is_for_everybody(
    visit: Visit, case: Case, ada: User, shop: Any
) -> None:
    page = visit(ada)
    here = f"/w/acme/cases/{case.pk}/"
    tabs = [f"{here}?tab={tab}" for tab in ("related", "activity", "correction")]
    previews = [f"{here}{act}/" for act in ("close", "resume", "compensate")]
    queue = ["/w/acme/queue/", f"/w/acme/queue/?peek={case.pk}", "/w/acme/queue/?q=is:nonsense"]

    for path in [*queue, "/w/acme/queue/?q=tool:nobody", here, *tabs, *previews]:
        page.goto(path)
        if path == here:
            page.locator("#outlook .steps").wait_for()
        for _ in in_each_look(page, LOOKS):
            assert_accessible(page)
            assert too_wide(page) <= 0, path
    shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1")
    on_its_preview(page, case)
    page.get_by_label(re.compile("^Keep the later change")).check()
    page.get_by_role("button", name="Show the plan with this choice").click()
    page.locator("[data-commits]:not([disabled])").wait_for()
    for _ in in_each_look(page, LOOKS):
        assert_accessible(page)


def test_on_paper_a_case_has_its_run_and_the_digest_of_its_plan_and_nothing_to_press(
    visit: Visit, case: Case, ada: User
) -> None:
    plan = submitted(case, ada)
    page = visit(ada)
    page.goto(f"/w/acme/cases/{case.pk}/")
    foot = page.locator("footer.on-paper")
    expect(foot).to_be_hidden()
    there = page.locator("header.side, header.topnav, .skip, .button, button, input, .tabs a")
    assert len([one for one in there.all() if one.is_visible()]) >= 8

    page.emulate_media(media="print")

    left = [one.inner_text() for one in there.all() if one.is_visible()]
    assert left == ["Evidence"], "what is printed of its parts"
    expect(page.get_by_text(f"digest {digest(plan.digest)}")).to_be_visible()
    expect(page.get_by_text(case.run.run, exact=True)).to_be_visible()
    moments = page.locator("time").evaluate_all(
        "all => all.map(one => getComputedStyle(one, '::after').content)"
    )
    address = urlsplit(page.url)
    page.evaluate(
        "history.replaceState(null, '', '?tab=activity'); dispatchEvent(new Event('beforeprint'))"
    )
    expect(foot).to_contain_text(f"{address.netloc}{address.path}?tab=activity · as of")
    expect(foot).to_contain_text(re.compile(r", printed \d{4}-\d\d-\d\d \d\d:\d\d:\d\d"))
    assert moments
    assert all(re.search(r"\d\d:\d\d:\d\d UTC", one) for one in moments), "nothing is “ago”"


@pytest.mark.parametrize("width", [1280, 1440, 390])
def test_a_row_of_long_words_makes_the_queue_no_wider_than_the_window(
    visit: Visit, case: Case, ada: User, finn: User, width: int
) -> None:
    User.objects.filter(pk=finn.pk).update(name="margarethe.lindqvist@operations.example.com")
    Case.objects.filter(pk=case.pk).update(
        claimed_by=finn,
        claimed_until=clock.now() + timedelta(hours=1),
        customer="customer_01JD3Q7M0000000000000000000000000000",
        headline="update_reservation_flights_and_baggages_of_everybody_aboard failed",
        brief="update_reservation_flights_and_baggages_of_everybody_aboard failed",
    )
    page = visit(ada, viewport={"width": width, "height": 900})

    page.goto("/w/acme/queue/")

    assert page.get_by_text("margarethe.lindqvist").count() == 1
    assert too_wide(page) <= 0


def test_on_a_phone_nothing_empty_stands_between_a_risk_and_its_title(
    visit: Visit, case: Case, ada: User
) -> None:
    page = visit(ada, viewport=PHONE)

    page.goto("/w/acme/queue/")

    risk = page.locator("tbody .first .badges").bounding_box()
    title = page.locator("tbody .row-link").bounding_box()
    assert risk
    assert title
    assert title["y"] - (risk["y"] + risk["height"]) < risk["height"]


def test_a_case_that_somebody_closes_keeps_its_line_until_the_list_is_loaded_anew(
    visit: Visit, case: Case, ada: User, ben: User
) -> None:
    page = visit(ada)
    page.goto("/w/acme/queue/")
    row = page.locator(f"tr[data-id='{case.pk}']")
    expect(row.locator(".row-pick")).to_be_enabled()

    closing.close(case, outcome="expected", reason="As asked", by=ben, seen=case.revision)

    expect(row.locator("[data-became]")).to_have_text("Closed: expected")
    expect(row.locator(".row-pick")).to_be_disabled()
    assert_accessible(page)

    case.refresh_from_db()
    cases.reopen(case, by=ben, seen=case.revision, reason="It was not")
    expect(row.locator("[data-became]")).to_be_empty()
    expect(row.locator(".row-pick")).to_be_enabled()

    case.refresh_from_db()
    closing.close(case, outcome="expected", reason="As asked", by=ben, seen=case.revision)
    expect(row.locator("[data-became]")).to_have_text("Closed: expected")
    page.reload()
    expect(row).to_have_count(0)


def test_a_case_that_is_chosen_as_the_news_of_its_end_comes_is_chosen_no_more(
    visit: Visit, case: Case, ada: User, ben: User
) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page = visit(ada)
    page.route("**/queue/fresh/**", hold)
    with page.expect_request("**/queue/fresh/**"):
        page.goto("/w/acme/queue/")
    box = page.locator(f"tr[data-id='{case.pk}'] .row-pick")
    closing.close(case, outcome="expected", reason="As asked", by=ben, seen=case.revision)
    box.check()
    bar = page.locator("[data-selection]")
    expect(bar).to_contain_text("1 selected")
    row = page.locator(f"tr[data-id='{case.pk}']")
    row.evaluate("(it) => Object.assign(it.dataset, {minor: 1050, currency: 'IQD', digits: 3})")
    box.dispatch_event("change")
    expect(bar).to_contain_text("1.050")

    held[0].continue_()

    expect(box).to_be_disabled()
    expect(box).not_to_be_checked()
    expect(bar).to_be_hidden()
