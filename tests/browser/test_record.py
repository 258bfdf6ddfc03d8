"""The record in a real browser: runs, one run step by step, the ledger, an event, the check."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

from config.local.places import ROOT
from ledger import sealer
from ledger.models import Run
from ledger.parsed_events import Actor
from tests.browser.accessible import Look, assert_accessible, in_each_look
from tests.browser.conftest import DESKTOP, PHONE, Visit
from tests.ledger.conftest import event, record_events
from workspaces import teams
from workspaces.models import Agent, User, Workspace

LOOKS: list[Look] = [("light", DESKTOP), ("light", PHONE), ("dark", DESKTOP), ("dark", PHONE)]


@pytest.fixture
def sue(transactional_db: Any) -> User:
    """She reads what the trip desk did in its workspace, and looks after it."""
    workspace = Workspace.objects.create(slug="northwind", name="Northwind")
    person = User.objects.create_user("sue@northwind.example", name="Sue")
    teams.add(
        teams.create(workspace, "readers", by=None, may=("view", "view_sensitive", "administer")),
        person,
        by=None,
    )
    agent = Agent.objects.create(workspace=workspace, name="trip-desk")
    actor = Actor(workspace.pk, "northwind", "agent", agent.name, agent.pk, "0123456789")
    target = {"type": "reservation", "id": "XEHM4B"}
    record_events(
        actor,
        event("run.started", id="first", data={"request": "Move my flight to Lisbon",
              "on_behalf_of": {"id": "cust_18", "name": "Eve"}}, time="2126-11-21T10:02:15.120Z"),
        event("action.planned", action="a1", n=1, data={
            "tool": "update_flight", "targets": [target], "args": {"to": "LIS"},
            "before": [{"to": "OPO", "seat": "3A"}]}),
        event("action.succeeded", action="a1", n=1, data={"effects": [
            {"target": target, "after": {"to": "LIS", "seat": "3A"}, "reversibility": "exact"}]}),
        event("run.failed", data={"error": {"type": "Timeout", "message": "no answer"}}),
    )  # fmt: skip
    sealer.seal(workspace)
    return person


def test_everybody_can_read_the_record(visit: Visit, sue: User) -> None:
    page = visit(sue)
    for path in (
        "runs/", "runs/run_1/", "ledger/", "ledger/first/", "ledger/verify/", "settings/kept/",
    ):  # fmt: skip
        answer = page.goto(f"/w/northwind/{path}")
        assert answer is not None
        assert answer.status == 200
        for scheme, size in in_each_look(page, LOOKS):
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


def test_an_entry_is_followed_to_its_proof_and_the_proof_is_checked(
    visit: Visit, sue: User, tmp_path: Path
) -> None:
    page = visit(sue)
    page.goto("/w/northwind/runs/run_1/?step=2")
    page.get_by_role("link", name="The entry and its proof").click()
    page.get_by_text("under the head that").wait_for()
    files = []
    pairs: tuple[tuple[Literal["link", "button"], str], ...] = (
        ("link", "Download the proof"),
        ("button", "With its facts"),
    )
    for role, name in pairs:
        with page.expect_download() as download:
            page.get_by_role(role, name=name).click()
        files.append(tmp_path / download.value.suggested_filename)
        download.value.save_as(files[-1])
    page.goto("/w/northwind/ledger/verify/")
    public = tmp_path / "log.pub"
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").first.click()
    page.get_by_text("Copied: ").wait_for()
    public.write_text(page.evaluate("navigator.clipboard.readText()"))
    page.get_by_label("The text of a").fill(files[0].read_text())
    page.get_by_role("button", name="Check this proof").click()
    page.get_by_text("is in the log:").wait_for()

    for file in files:
        assert checked_elsewhere(file, public).startswith("Proven: entry ")


def checked_elsewhere(file: Path, public: Path) -> str:
    """By the client's own program, in a process that knows nothing of this desk."""
    command = [sys.executable, "-m", "amends", "verify", str(file), "--key", str(public)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "sdk")}
    done = subprocess.run(
        command, cwd="/", env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout + done.stderr


def test_a_person_is_erased_in_two_steps(visit: Visit, sue: User) -> None:
    Run.objects.update(lease_until=None)
    page = visit(sue)
    page.goto("/w/northwind/settings/kept/")
    page.get_by_role("textbox", name="Person").fill("cust_18")
    page.get_by_label("Reason").fill("letter of 3 May")
    page.get_by_role("button", name="Show what would be erased").click()
    page.get_by_text("1 run on their behalf").wait_for()
    assert_accessible(page)
    if folder := os.environ.get("AMENDS_PICTURES"):
        page.screenshot(path=Path(folder) / "erase-shown.png", full_page=True)
    page.get_by_role("button", name="Erase for good").click()
    page.get_by_text("4 events of 1 run are empty now").wait_for()
    assert_accessible(page)

    page.goto("/w/northwind/runs/run_1/")
    page.get_by_text("Its payload was erased").wait_for()
    page.goto("/w/northwind/ledger/verify/")
    page.get_by_role("button", name="Check the heads").click()
    page.get_by_text("All as it was signed").wait_for()
