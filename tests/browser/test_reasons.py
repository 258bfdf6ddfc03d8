"""Where an act asks for a reason, whoever opened it types at once and reads that it is needed."""

import pytest
from playwright.sync_api import Page, expect

from recovery.models import Case
from tests.browser.conftest import Visit
from workspaces.models import User

TYPED = "a ? / j x"
"""Every sign of it is a key of some page."""


def types_at_once(page: Page, label: str) -> None:
    field = page.get_by_label(label)
    expect(field).to_be_focused()
    page.keyboard.type(TYPED)
    expect(field).to_have_value(TYPED)


@pytest.mark.django_db(transaction=True)
def test_a_reason_is_typed_at_once_wherever_one_is_asked_for(
    visit: Visit, three: list[Case], ada: User
) -> None:
    raised, _, doubtful = three
    page = visit(ada)

    for act in ("compensate", "close"):
        page.goto(f"/w/acme/cases/{raised.pk}/{act}/")
        types_at_once(page, "Why (needed)")
    page.goto("/w/acme/report/run_1/")
    types_at_once(page, "What is wrong, and how you know (needed)")
    # Settle asks for a choice first, and for its reason right after.
    page.goto(f"/w/acme/cases/{doubtful.pk}/settle/")
    expect(page.get_by_role("radio", name="It happened")).to_be_focused()
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    types_at_once(page, "How do you know? (needed)")


@pytest.mark.django_db(transaction=True)
def test_a_form_that_is_unfolded_has_the_focus_and_says_what_it_needs(
    visit: Visit, three: list[Case], ada: User
) -> None:
    page = visit(ada)
    page.goto(f"/w/acme/cases/{three[0].pk}/")

    for summary, label in (
        ("Stop the agent…", "Why (needed)"),
        ("Hand it over…", "Who takes it over"),
    ):
        part = page.locator("details", has_text=summary)
        part.locator("summary").click()
        expect(part.get_by_label(label)).to_be_focused()
