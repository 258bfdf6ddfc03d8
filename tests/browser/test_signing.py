"""Ben puts a security key of his on record and signs with it what he approves. The key is the
browser's own virtual one; the page, the ceremony and the desk are the real ones.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from amends.protocol import signatures as offline
from approvals import signatures
from approvals.models import Approval, SigningKey
from ledger import logkeys, sealer
from tests.approvals.cast import put_in_force
from tests.approvals.door import planned
from tests.browser.accessible import Look, assert_accessible, in_each_look
from tests.browser.conftest import DESKTOP, PHONE, Visit
from tests.people import person
from tests.processes import Process, Processes
from workspaces import keys, teams
from workspaces.models import Agent, User, Workspace

LOOKS: list[Look] = [("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE), ("dark", PHONE)]
SIGNED = {"policies": {"pay.*": {"approval": "MANUAL", "risk": "HIGH"}}, "signedFrom": "HIGH"}


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("heads")


@pytest.fixture(scope="module")
def web_process(heads: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A desk that keeps heads of its logs outside the database."""
    processes = Processes(tmp_path_factory.mktemp("web"))
    yield processes.web(AMENDS_HEADS_FOLDER=str(heads))
    processes.stop()


@pytest.fixture
def acme(transactional_db: None, settings: Any, site: str, heads: Path) -> Workspace:
    settings.AMENDS_URL, settings.AMENDS_HEADS_FOLDER = site, str(heads)
    sealer._last.clear()
    return Workspace.objects.create(slug="acme", name="Acme")


@pytest.fixture
def ben(acme: Workspace) -> User:
    finance = teams.create(acme, "finance", by=None, may=["view", "approve"])
    operators = teams.create(acme, "operators", by=None, may=["view", "recover", "administer"])
    put_in_force(acme, person("ada", operators), SIGNED)
    return person("ben", finance)


def ask(acme: Workspace, site: str, number: int) -> Approval:
    agent, _ = Agent.objects.get_or_create(workspace=acme, name="returns-desk")
    token = keys.create_key(agent, by=None, name=f"test {number}")[1]
    body = planned(tool="pay.refund", key=f"k{number}", action=f"a{number}", args={"amount": 20})
    answer = httpx.post(
        f"{site}/api/v1/actions/begin", json=body, headers={"authorization": f"Bearer {token}"}
    )
    assert answer.json()["answer"] == "wait"
    sealer.seal(acme)
    return Approval.objects.latest("pk")


def security_key(page: Page, *, verifies: bool = True) -> None:
    """Plug a security key into this browser (the WebAuthn domain of the DevTools protocol)."""
    debugger = page.context.new_cdp_session(page)
    debugger.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2", "transport": "usb", "hasResidentKey": True,
        "hasUserVerification": True, "isUserVerified": verifies,
        "automaticPresenceSimulation": True,
    }  # fmt: skip
    debugger.send("WebAuthn.addVirtualAuthenticator", {"options": options})


def test_ben_puts_his_key_on_record_and_signs_with_it(
    visit: Visit, acme: Workspace, ben: User, site: str
) -> None:
    early = ask(acme, site, 1)
    page = visit()
    security_key(page)
    page.goto(f"/accounts/login/?next=/w/acme/approvals/{early.pk}/")
    page.get_by_label("E-mail address").fill(ben.email)
    page.get_by_label("Password").fill("correct horse")
    page.keyboard.press("Enter")
    page.get_by_text("You cannot sign this").wait_for()
    assert page.locator("button[value=grant]").is_disabled()
    for _ in in_each_look(page, LOOKS):
        assert_accessible(page)

    page.get_by_role("link", name="Signing keys").first.click()
    page.get_by_text("no security key or passkey yet").wait_for()
    page.get_by_role("link", name="Add a key to your account").click()
    page.get_by_label("Password").fill("correct horse")
    page.keyboard.press("Enter")
    page.get_by_label("Name").fill("blue key")
    page.get_by_role("button", name="Touch the key now").click()
    page.wait_for_url("**/recovery-codes/**")

    page.goto("/w/acme/settings/signing-keys/")
    page.get_by_role("button", name="Put it on record").click()
    expect(page.get_by_role("button", name="Put it on record")).to_have_count(0)
    page.get_by_role("table").get_by_text("blue key").wait_for()
    for _ in in_each_look(page, LOOKS):
        assert_accessible(page)
    assert SigningKey.objects.get().person == ben
    sealer.seal(acme)

    page.goto(f"/w/acme/approvals/{early.pk}/")  # asked before the key was known
    page.get_by_text("You cannot sign this").wait_for()

    later = ask(acme, site, 2)
    page.goto(f"/w/acme/approvals/{later.pk}/")
    page.get_by_text("Your key signs your yes").wait_for()
    for _ in in_each_look(page, LOOKS):
        assert_accessible(page)
    page.get_by_label("Reason: goes").fill("the return was booked")
    page.locator("button[value=grant]").click()
    page.get_by_role("link", name="signed by their own key").wait_for()

    sealer.seal(acme)
    later.refresh_from_db()
    assert (later.state, signatures.lacking(later)) == ("granted", "")
    with page.expect_download() as downloading:
        page.get_by_role("link", name="signed by their own key").click()
    text = Path(downloading.value.path()).read_text()
    _, said = offline.verify(text, logkeys.public_keys(acme))
    assert said is not None
    assert said.origin == site
    assert json.loads(text)["event"]["data"]["reason"] == "the return was booked"
