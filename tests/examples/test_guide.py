"""The first minutes in the demo: one click to be somebody, four steps to a finished trail."""

import re

import pytest
from playwright.sync_api import expect

from demo import places
from demo.stories import trip
from tests.browser.trails import for_everybody
from tests.examples.desk import commit, until
from workspaces.models import User

PROXIES = [
    {"X-Forwarded-For": "127.0.0.1"}, {"X-Real-IP": "198.51.100.7"},
    {"Forwarded": "for=198.51.100.7"}, {"Host": "desk.localhost.example"},
]  # fmt: skip


@pytest.fixture
def newcomer(skyline, browser):
    """A browser at the demo's door, which knows nobody's password."""
    context = browser.new_context(base_url=skyline.url)
    yield context.new_page()
    context.close()


def test_a_newcomer_is_led_from_the_failed_trip_to_what_its_customer_reads(skyline, newcomer):
    case = skyline.case_of(trip.play(skyline.stage()))

    newcomer.goto("/")
    for_everybody(newcomer)
    newcomer.get_by_role("button", name="Rina Okafor").click()
    guide = newcomer.locator(".guide")
    for_everybody(newcomer)
    guide.get_by_role("link", name=re.compile("^Amelia’s trip failed")).click()
    newcomer.goto("/w/skyline/tools/")
    assert guide.count() == 0, "it stands where it leads, and in nobody's way"
    newcomer.go_back()
    guide.get_by_role("link", name=re.compile("^See what undoing")).click()
    commit(newcomer, "She has a flight and no hotel", "^Ask for approval")
    for_everybody(newcomer)

    guide.get_by_role("button", name="Go on as Jeanne Moreau").click()
    newcomer.get_by_label(re.compile("Reason")).first.fill("Checked with the customer")
    newcomer.get_by_role("button", name=re.compile(r"^Approve( \(|$)")).click()
    assert skyline.outcome_of(case) == "restored"
    until(case.corrections.first)

    # The card was answered in place: the strip beside it goes on by itself.
    guide.get_by_role("button", name="Go on as Rina Okafor").click()
    newcomer.wait_for_url(f"**/corrections/{case.corrections.first().pk}/")
    newcomer.get_by_role("button", name=re.compile("^Publish")).first.click()
    until(lambda: case.corrections.first().state == "published")
    guide.get_by_role("link", name="Read what Amelia reads").click()
    expect(newcomer.get_by_role("heading", name="What changed, and what we did")).to_be_visible()
    newcomer.goto("/w/skyline/queue/")
    assert guide.count() == 0, "the story is told"


def test_a_guide_that_is_hidden_stays_away_and_nobody_else_is_let_in(skyline, newcomer, processes):
    skyline.case_of(trip.play(skyline.stage()))
    newcomer.goto("/")
    newcomer.get_by_role("button", name="Vik Petrov").click()

    newcomer.locator(".guide").get_by_role("button", name="Hide").click()

    assert newcomer.locator(".guide").count() == 0
    newcomer.context.clear_cookies()
    stranger = newcomer.request.post("/demo/enter/", form={"person": "dev@harbor.example"})
    assert stranger.status == 403, "without a token of the page nothing is taken"
    for of_a_proxy in PROXIES:
        brought = newcomer.request.get("/accounts/login/", headers=of_a_proxy)
        assert "This is the demo" not in brought.text(), "a proxy here brings in who is elsewhere"
    assert "This is the demo" in newcomer.request.get("/accounts/login/").text()
    without = processes.web(AMENDS_DEMO="0")
    plain = newcomer.request.get(f"{without.url}/accounts/login/")
    assert "This is the demo" not in plain.text(), "a desk without the demo has no such door"


def test_one_of_the_demos_people_confirms_by_one_click_and_nobody_else(
    skyline, newcomer, processes, browser
):
    confirm = "/accounts/reauthenticate/?next=/w/skyline/approvals/"
    newcomer.goto("/")
    newcomer.get_by_role("button", name="Jeanne Moreau").click()
    asked = newcomer.request
    for of_a_proxy in PROXIES:
        assert "This is the demo" not in asked.get(confirm, headers=of_a_proxy).text()
    without = processes.web(AMENDS_DEMO="0")
    plain = asked.get(f"{without.url}{confirm}").text()
    assert "Confirm that it is you" in plain
    assert "This is the demo" not in plain, "a desk without the demo has no such button"

    newcomer.goto(confirm)
    for_everybody(newcomer)
    newcomer.get_by_role("button", name="Confirm as Jeanne Moreau").click()

    newcomer.wait_for_url("**/w/skyline/approvals/")
    password = places.SharedFacts().read()["password"]
    User.objects.create_user("nina@skyline.example", password, name="Nina")
    other = browser.new_context(base_url=skyline.url).new_page()
    other.goto("/accounts/login/")
    other.locator("[name=login]").fill("nina@skyline.example")
    other.locator("[name=password]").fill(password)
    other.get_by_role("button", name="Log in", exact=True).click()
    other.goto(confirm)
    assert "Confirm that it is you" in other.content()
    assert "This is the demo" not in other.content(), "Nina is none of the demo's people"
    other.context.close()
