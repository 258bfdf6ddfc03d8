"""Teach the desk to undo this, as it is for who does it: from the case to a version."""

from typing import Any

import pytest
from playwright.sync_api import expect

from approvals.models import PolicyVersion
from recovery.models import Case
from recovery.triage import triage
from tests.browser.accessible import Look, assert_accessible, in_each_look
from tests.browser.conftest import DESKTOP, PHONE, Visit, press
from tests.people import person
from workspaces import teams
from workspaces.models import User, Workspace

LOOKS: list[Look] = [("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE), ("dark", PHONE)]


@pytest.fixture
def nina(transactional_db: None, acme: Workspace) -> User:
    may = teams.create(
        acme, "admins", by=None, may=["view", "view_sensitive", "recover", "administer"]
    )
    return person("nina", may)


def test_nina_teaches_a_tool_from_its_case_and_sees_each_call_before(
    visit: Visit, nina: User, begin_run: Any, ticket: dict[str, Any]
) -> None:
    run = begin_run()
    high = ticket | {"priority": "high"}
    run.does("desk.close", ("ticket", "main/T-182", ticket, high), planned={"args": {"seat": "S7"}})
    run.send("run.failed", error={"type": "Boom", "message": "it broke"})
    triage.look()
    page = visit(nina)
    page.goto(f"/w/acme/cases/{Case.objects.get().pk}/")
    page.get_by_role("link", name="Teach the desk to undo this").click()
    page.get_by_label("Undone by").select_option("shop.restore_row")
    page.get_by_role("button", name="Show its arguments").click()
    expect(page.locator("#id_arg_to")).to_have_value("before")
    page.locator("#id_arg_to").press("Enter")  # rehearses, and saves nothing
    expect(page.get_by_role("heading", name="Rehearsal")).to_be_visible()
    expect(page.get_by_text('"priority": "normal"')).to_be_visible()
    for _, size in in_each_look(page, LOOKS):
        assert_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert PolicyVersion.objects.count() == 1
    page.get_by_role("button", name="Save as a version").focus()
    press(page, "Enter")
    page.wait_for_url("**/policies/2/")
    assert "restore_row" in PolicyVersion.objects.get(number=2).source
