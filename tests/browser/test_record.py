"""The record in a real browser: runs, one run step by step, the ledger, an event, the check."""

import os
from pathlib import Path
from typing import Any

import pytest

from ledger import sealer
from ledger.said import Speaker
from tests.browser.accessible import assert_accessible
from tests.browser.conftest import DESKTOP, PHONE, Visit
from tests.ledger.conftest import event, tell
from workspaces import teams
from workspaces.models import Agent, User, Workspace


@pytest.fixture
def sue(transactional_db: Any) -> User:
    """She reads what the trip desk did in its workspace."""
    workspace = Workspace.objects.create(slug="northwind", name="Northwind")
    person = User.objects.create_user("sue@northwind.example", name="Sue")
    teams.add(
        teams.create(workspace, "readers", by=None, may=("view", "view_sensitive")), person, by=None
    )
    agent = Agent.objects.create(workspace=workspace, name="trip-desk")
    speaker = Speaker(workspace.pk, "northwind", "agent", agent.name, agent.pk, "0123456789")
    target = {"type": "reservation", "id": "XEHM4B"}
    tell(
        speaker,
        event("run.started", id="first", data={"request": "Move my flight to Lisbon"}),
        event("action.planned", action="a1", n=1, data={
            "tool": "update_flight", "targets": [target], "args": {"to": "LIS"},
            "before": [{"to": "OPO", "seat": "3A"}]}),
        event("action.succeeded", action="a1", n=1, data={"effects": [
            {"target": target, "after": {"to": "LIS", "seat": "3A"}, "reversibility": "exact"}]}),
        event("run.failed", data={"error": {"type": "Timeout", "message": "no answer"}}),
    )  # fmt: skip
    sealer.seal(workspace)
    return person


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_everybody_can_read_the_record(
    visit: Visit, sue: User, scheme: str, size: dict[str, int]
) -> None:
    page = visit(sue, color_scheme=scheme, viewport=size)
    for path in ("runs/", "runs/run_1/", "ledger/", "ledger/first/", "ledger/verify/"):
        answer = page.goto(f"/w/northwind/{path}")
        assert answer is not None
        assert answer.status == 200
        assert_accessible(page)
        if folder := os.environ.get("AMENDS_PICTURES"):
            name = f"{path.replace('/', '-')}{scheme}-{size['width']}.png"
            page.screenshot(path=Path(folder) / name, full_page=True)


def test_a_run_is_walked_through_and_its_payloads_shown(visit: Visit, sue: User) -> None:
    page = visit(sue)
    page.goto("/w/northwind/runs/")
    page.get_by_role("link", name="Move my flight to Lisbon").click()
    page.get_by_role("link", name="Step back").click()
    page.get_by_text("Known after step 3 of 4").wait_for()
    page.get_by_role("button", name="Show payloads").click()
    page.get_by_text("OPO").first.wait_for()
    page.goto("/w/northwind/ledger/verify/")
    page.get_by_role("button", name="Check the heads").click()
    page.get_by_text("All as it was signed").wait_for()
