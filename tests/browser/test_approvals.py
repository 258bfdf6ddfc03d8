"""Deciding by keyboard alone, and what the inbox looks like for everybody."""

from typing import Any

import pytest

from approvals.models import Approval
from approvals.policy import Need
from tests.approvals.cast import asker, person, refund
from tests.browser.accessible import assert_accessible
from tests.browser.conftest import DESKTOP, PHONE, Visit
from workspaces import teams
from workspaces.models import User, Workspace


@pytest.fixture
def acme(transactional_db: None) -> Workspace:
    return Workspace.objects.create(slug="acme", name="Acme")


@pytest.fixture
def ada(acme: Workspace) -> User:
    operators = teams.create(acme, "operators", by=None, may=["view", "recover", "administer"])
    return person("ada", operators)


@pytest.fixture
def ben(acme: Workspace) -> User:
    return person("ben", teams.create(acme, "finance", by=None, may=["view", "approve"]))


@pytest.fixture
def ask(acme: Workspace, ada: User, ben: User) -> Any:
    teams.create(acme, "leads", by=None, may=["view", "approve"])
    return asker(acme, ada)


def test_ben_reads_and_approves_by_keyboard_alone(visit: Visit, ask: Any, ben: User) -> None:
    approval = ask()
    page = visit(ben)
    page.goto("/w/acme/approvals/")

    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/approvals/{approval.pk}/")
    page.keyboard.press("d")
    assert page.locator("details.raw").first.get_attribute("open") is not None
    page.keyboard.press("Shift+A")
    page.keyboard.press("Enter")  # the browser asks for the reason first, and goes there
    page.keyboard.type("checked with the customer")
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    assert Approval.objects.get().state == "waiting"  # no single key commits, nor does the field
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    page.locator(".notice.ok").wait_for()
    approval.refresh_from_db()
    assert approval.state == "granted"
    assert approval.decisions.get().reason == "checked with the customer"


def test_a_rejection_by_keyboard_needs_a_reason(visit: Visit, ask: Any, ben: User) -> None:
    approval = ask()
    page = visit(ben)
    page.goto(f"/w/acme/approvals/{approval.pk}/")

    page.keyboard.press("Shift+R")
    page.keyboard.press("Enter")
    assert page.locator("input[name=reason]:invalid").count() == 1
    page.locator("input[name=reason]").fill("the wrong card")
    page.locator("button[value=reject]").focus()
    page.keyboard.press("Enter")

    page.get_by_text("Rejected by Ben: the wrong card").wait_for()
    approval.refresh_from_db()
    assert approval.state == "rejected"


@pytest.mark.parametrize(("scheme", "size"), [("light", DESKTOP), ("dark", PHONE)])
def test_everybody_can_use_the_pages(
    visit: Visit, ask: Any, ben: User, ada: User, scheme: str, size: dict[str, int]
) -> None:
    ask(Need("finance", 1), Need("leads", 1))
    approval = ask(calls=[refund(100), refund(250)], risk="critical")
    for who in (ben, ada):
        page = visit(who, color_scheme=scheme, viewport=size)
        paths = ["approvals/", f"approvals/{approval.pk}/", "approvals/history/", "policies/"]
        paths += ["tools/"] + (["policies/new/"] if who == ada else [])
        for path in paths:
            page.goto(f"/w/acme/{path}")
            assert page.locator("h1").count() == 1
            assert_accessible(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
