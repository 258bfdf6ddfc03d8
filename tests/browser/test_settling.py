"""Steps that wait for a person, answered in the browser: each answer leads to another end."""

import re
from typing import Any

import pytest
from django.test import Client
from playwright.sync_api import Page, expect

from recovery.corrections import publishing
from recovery.models import Case, Step, StepState
from recovery.triage import triage
from tests.browser.accessible import assert_accessible
from tests.browser.conftest import Visit, press
from tests.recovery.cases.cast import submitted
from tests.recovery.engine import by_hand
from workspaces.models import User


@pytest.fixture
def drifted(transactional_db: None, raised: Any, shop: Any, ada: User) -> Case:
    """A plan whose one step found that Finn had taken the ticket meanwhile."""
    triage.look()
    case = Case.objects.get()
    submitted(case, ada)
    shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1")
    advance(case)
    return case


@pytest.fixture
def lost(drifted: Case, shop: Any) -> Case:
    """A step that was sent, and of which nobody knows what became."""
    Step.objects.update(was=StepState.UNKNOWN, state=StepState.NEEDS_HUMAN, drift=None)
    shop.execute("UPDATE tickets SET assignee = 'Nora'")
    triage.look([drifted.run_id])
    return drifted


def advance(case: Case) -> None:
    """What the worker does, and triage after it."""
    by_hand.advance(Step.objects.get().plan_id)
    triage.look([case.run_id])


def answer(page: Page, case: Case, way: str, words: str) -> None:
    """From the case over its step to the answer, as a person goes."""
    page.goto(f"/w/acme/cases/{case.pk}/")
    page.get_by_role("link", name="Decide this step").click()
    expect(page.get_by_role("radio").first).to_be_focused()  # what is asked first is not passed by
    assert_accessible(page)
    page.get_by_label(re.compile(way)).check()
    page.get_by_label(re.compile("^(How do you know|Why)")).fill(words)
    press(page, "Control+Enter")
    page.get_by_text("Written down, in your name.").wait_for()


def priority(shop: Any) -> str:
    found: tuple[str] = shop.execute("SELECT priority FROM tickets").fetchone()
    return found[0]


def test_it_was_done_so_it_is_read_back(visit: Visit, lost: Case, shop: Any, ada: User) -> None:
    shop.execute("UPDATE tickets SET priority = 'normal'")

    answer(visit(ada), lost, "^It is done", "The ticket reads normal")
    advance(lost)

    lost.refresh_from_db()
    assert lost.outcome == "restored"


def test_it_was_not_done_so_it_is_sent_again_in_adas_name(
    visit: Visit, lost: Case, shop: Any, ada: User
) -> None:
    answer(visit(ada), lost, "try once more", "The ticket still reads high")
    assert priority(shop) == "high", "settling sends nothing"
    advance(lost)

    lost.refresh_from_db()
    assert (lost.outcome, priority(shop)) == ("restored", "normal")
    assert Step.objects.get().generation == 2


def test_what_finn_changed_is_left_as_it_is(
    visit: Visit, drifted: Case, shop: Any, ada: User
) -> None:
    answer(visit(ada), drifted, "^Leave the effect", "Finn works on it")
    advance(drifted)

    drifted.refresh_from_db()
    assert (drifted.state, priority(shop)) == ("open", "high")
    assert Step.objects.get().state == StepState.SKIPPED


def test_two_answers_to_one_step_are_one(
    visit: Visit, lost: Case, shop: Any, ada: User, finn: User
) -> None:
    second = visit(finn)
    second.goto(f"/w/acme/cases/{lost.pk}/settle/")
    shop.execute("UPDATE tickets SET priority = 'normal'")
    answer(visit(ada), lost, "^It is done", "The ticket reads normal")

    second.get_by_label(re.compile("try once more")).check()
    second.get_by_label("How do you know?").fill("I saw nothing there")
    press(second, "Control+Enter")

    second.get_by_text("Ada answered it").wait_for()
    expect(second.get_by_label("Why?")).to_have_value("I saw nothing there")
    assert_accessible(second)
    assert Step.objects.get().generation == 1


def test_half_a_comment_stays_as_the_plan_ends_and_its_correction_is_drafted(
    visit: Visit, transactional_db: None, raised: Any, ada: User
) -> None:
    triage.look()
    case = Case.objects.get()
    submitted(case, ada)
    page = visit(ada)
    page.goto(f"/w/acme/cases/{case.pk}/?tab=activity")
    comment = page.get_by_label("Comment")
    comment.fill("Nora asked on the phone whether")
    comment.blur()

    advance(case)

    page.get_by_text("Every effect was undone, and read back.").first.wait_for()
    expect(comment).to_have_value("Nora asked on the phone whether")
    comment.blur()

    publishing.draft_due()

    page.locator("#plan[data-poll]").wait_for(state="detached")
    expect(comment).to_have_value("Nora asked on the phone whether")


def test_a_form_too_old_to_be_sent_leaves_its_page_and_what_was_typed(
    visit: Visit, transactional_db: None, raised: Any, ada: User
) -> None:
    triage.look()
    case = Case.objects.get()
    page = visit(ada)
    page.goto(f"/w/acme/cases/{case.pk}/close/")
    page.get_by_label(re.compile("^Already handled")).check()
    why = page.locator("[name=why]")
    why.fill("Finn did it by phone")
    page.context.clear_cookies(name="csrftoken")  # as after a log-in in another tab

    press(page, "Control+Enter")
    expect(page.locator(".toast")).to_contain_text("The form was too old to be sent")
    expect(why).to_have_value("Finn did it by phone")

    page.reload()
    expect(why).to_have_value("Finn did it by phone")
    page.get_by_label(re.compile("^Already handled")).check()
    press(page, "Control+Enter")
    page.get_by_text("The case is closed.").wait_for()


def test_who_is_led_back_to_a_form_that_was_too_old_finds_what_they_typed(
    visit: Visit, transactional_db: None, raised: Any, ada: User
) -> None:
    """The one way that was offered led to the desk, and what was typed was forgotten on the way."""
    triage.look()
    case = Case.objects.get()
    page = visit(ada)
    page.goto(f"/w/acme/cases/{case.pk}/?tab=activity")
    page.get_by_label("Comment").fill("Finn did it by phone")
    page.context.clear_cookies(name="csrftoken")

    page.get_by_role("button", name="Add the comment").click()
    page.get_by_role("link", name="Back to the form").click()

    expect(page.get_by_label("Comment")).to_have_value("Finn did it by phone")
    assert "#typed" not in page.url, "what is sent from here is put back no more"
    page.get_by_role("button", name="Add the comment").click()
    page.locator("#more .quote", has_text="Finn did it by phone").wait_for()


def test_a_form_too_old_that_came_from_elsewhere_leads_nowhere_but_to_the_desk() -> None:
    stranger = Client(enforce_csrf_checks=True)
    for came, leads in (("http://testserver/w/acme/", True), ("https://elsewhere.example/", False)):
        page = stranger.post("/accounts/login/", headers={"referer": came})
        assert (page.status_code, "Back to the form" in page.text) == (403, leads)
