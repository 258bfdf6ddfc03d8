"""The same desk under a policy that asks two people, worked in the browser from queue to trail."""

import re
from contextlib import contextmanager

from demo import corpus
from demo.management.commands.replay import POLICIES
from tests.browser.conftest import DESKTOP, WAIT_MILLISECONDS, session_of, slow_down
from tests.browser.trails import for_everybody, publish, told
from tests.recorded.desk import SETTLE_SECONDS_MAX, replay, wait_until
from tests.recorded.test_recorded_runs import not_as_before

RUNS = 6


@contextmanager
def at_the_desk(browser, desk, person=None):
    """A page of somebody who has just logged in; without, of anybody."""
    context = browser.new_context(base_url=desk.web.url, viewport=DESKTOP)
    context.set_default_timeout(WAIT_MILLISECONDS)
    if person is not None:
        context.add_cookies([session_of(person, desk.web.url)])
    page = context.new_page()
    slow_down(page)
    yield page
    context.close()


def test_two_people_approve_in_the_browser_and_only_then_the_rows_are_put_back(
    recorded_desk, approvers, processes, browser, ada
):
    recorded = corpus.load(recorded_desk.recording, limit=RUNS)
    wrong = [run for run in recorded.runs if not run.correct and run.touched]
    policy = POLICIES / f"{recorded_desk.slug}-two-people.yaml"
    replay(processes, recorded_desk, "--limit", str(RUNS), policy=policy)
    wait_until(lambda: len(standing(recorded_desk)) == len(wrong), SETTLE_SECONDS_MAX)
    run = wrong[0]
    case = next(case for case in standing(recorded_desk) if case["run"] == run.run)

    with at_the_desk(browser, recorded_desk, ada) as page:
        page.goto(f"/w/{recorded_desk.slug}/queue/")
        page.locator(f"tr[data-id='{case['id']}'] .row-link").click()
        page.get_by_role("link", name=re.compile("^Compensate")).click()
        page.get_by_placeholder(re.compile("^Why")).fill("The wrong row was changed")
        page.get_by_role("button", name=re.compile("^Ask for approval")).click()
        page.wait_for_url(re.compile(rf"/cases/{case['id']}/$"))
        assert "waits for approval" in page.content()
    assert not_as_before(recorded, [run], recorded_desk.outside), "nothing runs before two agree"

    for person in approvers.values():
        assert not_as_before(recorded, [run], recorded_desk.outside), "one of two is not enough"
        approve(browser, recorded_desk, person)

    wait_until(lambda: recorded_desk.get(f"/cases/{case['id']}")["outcome"], SETTLE_SECONDS_MAX)
    assert recorded_desk.get(f"/cases/{case['id']}")["outcome"] == "restored"
    assert not_as_before(recorded, [run], recorded_desk.outside) == []
    with at_the_desk(browser, recorded_desk, ada) as page:
        page.goto(f"/w/{recorded_desk.slug}/queue/")
        assert page.locator(f"tr[data-id='{case['id']}']").count() == 0
        link = publish(page, recorded_desk.slug, correction_of(recorded_desk, case["id"]))
    with at_the_desk(browser, recorded_desk) as page:
        page.goto(link)
        for_everybody(page)
        words = set(told(page).values())
        assert words <= {"Put back", "Deleted"}, "every row is as it was before the run"
        teams = " and ".join(sorted((f"{recorded_desk.slug}-leads", "finance")))
        assert f"2 people reviewed this before it was done ({teams})." in (
            page.locator("section[aria-labelledby='checked']").inner_text()
        )
        assert page.locator("#lasting").count() == 0
        assert page.get_by_role("navigation").count() == 0, "nothing of the desk around it"


def correction_of(desk, case):
    """The correction of the one person whom a run of this desk is for."""
    wait_until(lambda: desk.get(f"/cases/{case}")["corrections"], SETTLE_SECONDS_MAX)
    (found,) = desk.get(f"/cases/{case}")["corrections"]
    return found["id"]


def standing(desk) -> list[dict[str, object]]:
    return [case for case in desk.cases("is:open") if case["standing"]]


def approve(browser, desk, person) -> None:
    with at_the_desk(browser, desk, person) as page:
        page.goto(f"/w/{desk.slug}/approvals/")
        page.locator("a.row-link").first.click()
        page.get_by_label(re.compile("Reason")).first.fill("Checked with the customer")
        button = page.get_by_role("button", name=re.compile(r"^Approve( \(|$)"))
        button.click()
        button.wait_for(state="hidden")
