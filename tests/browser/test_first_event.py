"""Ada makes a key, and sees her agent arrive."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

import amends
from tests import people
from tests.browser.conftest import PHONE, Visit
from workspaces.models import Agent, User

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ada(acme: Any) -> User:
    return people.person("ada", people.team(acme, "admins", "view", "administer"))


def make_key(page: Page) -> str:
    """By the form; the token, as the page shows it once."""
    page.goto("/w/acme/settings/keys/")
    page.get_by_label("Name of the key").fill("laptop")
    page.get_by_role("button", name="Make the key").click()
    shown = page.locator(".notice pre").first.inner_text()
    return shown.partition("AMENDS_KEY=")[2].strip()


@pytest.mark.parametrize("look", [{}, {"viewport": PHONE}, {"java_script_enabled": False}])
def test_the_page_of_a_new_key_has_its_lines_and_turns_to_the_run_as_it_arrives(
    visit: Visit, acme: Any, ada: User, look: dict[str, Any], tmp_path: Any, site: str
) -> None:
    """On a desk, on a phone, and without script."""
    Agent.objects.create(workspace=acme, name="trip-desk", owner=ada)
    page = visit(ada, **look)
    key = make_key(page)

    waiting = page.locator("#first-event")
    expect(waiting).to_contain_text("Waiting for the first event of this key")
    for name in ("LangChain and LangGraph", "Plain HTTP"):
        page.get_by_text(name, exact=True).click()
        chosen = page.locator("details[open]", has_text=name)
        expect(chosen.locator("pre").first).to_contain_text(key)
    expect(page.locator(".quick-starts details[open]")).to_have_count(1)

    desk = amends.connect(site, key, spool=tmp_path / "spool.sqlite")
    with desk.run("Try the desk", run="run_first"):
        pass
    assert desk.flush(60)
    desk.close()

    if look.get("java_script_enabled") is False:
        page.get_by_role("link", name="Look now").click()
    arrived = page.locator("#first-event")
    expect(arrived).to_contain_text("trip-desk is connected")
    arrived.get_by_role("link", name="run_first").click()
    expect(page.get_by_role("heading", name="Try the desk").first).to_be_visible()
