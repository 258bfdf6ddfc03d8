"""The policy as a table of rules and as a document, which are one, as it is for who edits it."""

import httpx
import pytest
from playwright.sync_api import ViewportSize, expect

from approvals import versions
from approvals.models import PolicyVersion
from ledger.models import Action
from tests.approvals.door import planned
from tests.browser.accessible import Look, assert_accessible, in_each_look
from tests.browser.conftest import DESKTOP, PHONE, Visit, press
from tests.people import person
from workspaces import keys, teams
from workspaces.models import Agent, User, Workspace

POLICY = """\
# Who may do what; Ada
unknownTools: ASK
policies:
  # refunds move money
  pay.*: {risk: HIGH, approval: MANUAL, requires: [{group: finance}], words: A refund moves money}
  crm.*: {approval: AUTO, compensation: SNAPSHOT}   # put back by itself
always:
  "*": {when: 'class != "read_only" && rejected_before', approval: MANUAL, words: People said no}
"""
LOOKS: list[Look] = [("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE), ("dark", PHONE)]


@pytest.fixture
def ada(acme: Workspace) -> User:
    finance = teams.create(acme, "finance", by=None, may=["view", "approve"])
    person("ben", finance)
    operators = teams.create(
        acme, "operators", by=None, may=["view", "view_sensitive", "administer"]
    )
    ada = person("ada", operators)
    versions.activate(versions.save(acme, POLICY, by=ada), by=ada)
    return ada


@pytest.fixture
def call(acme: Workspace, ada: User, site: str) -> Action:
    """One credit note of a tool that no rule names, told at the real door."""
    agent = Agent.objects.create(workspace=acme, name="returns-desk")
    token = keys.create_key(agent, by=None, name="test")[1]
    body = planned(
        tool="shop.credit", key="k1", action="a1", args={"amount": 4900, "to": "eve@example.org"},
        targets=[{"type": "order", "id": "o-1"}],
    )  # fmt: skip
    httpx.post(
        f"{site}/api/v1/actions/begin", json=body, headers={"authorization": f"Bearer {token}"}
    ).raise_for_status()
    return Action.objects.get(tool="shop.credit")


def test_ada_makes_a_rule_of_a_call_and_the_document_says_it(
    visit: Visit, acme: Workspace, ada: User, call: Action
) -> None:
    page = visit(ada)
    page.goto("/w/acme/tools/")
    page.get_by_role("link", name="Add a rule for shop.credit").click()
    expect(page.get_by_text("From a call on record")).to_be_visible()
    assert page.get_by_label("Tool", exact=True).input_value() == "shop.credit"
    for _ in in_each_look(page, LOOKS):
        assert_accessible(page)
    page.get_by_label("“amount” is above 4900").check()
    page.get_by_label("Decision").select_option("Needs approval")
    page.get_by_label("Who approves").select_option("From finance")
    page.get_by_label("Reason").fill("a large credit note")
    page.keyboard.press("Enter")  # in a field: it puts the rule in the table

    row = page.get_by_role("row").filter(has_text="shop.credit")
    expect(row.get_by_text("where “amount” is above 4900")).to_be_visible()
    expect(page.get_by_role("button", name="Edit the rule for shop.credit")).to_be_focused()
    text = page.get_by_label("Document").input_value()
    assert "# put back by itself" in text
    assert "when: args.amount > 4900" in text
    expect(page.get_by_text("The call on record:")).to_be_visible()

    down = page.get_by_role("button", name="Move the rule for shop.credit down")
    down.focus()
    press(page, "Enter")
    expect(page.get_by_role("row").nth(3)).to_contain_text("shop.credit")
    expect(down).to_be_focused()
    page.get_by_label("Document").fill(text.replace("a large credit note", "much money back"))
    expect(row).to_contain_text("much money back")
    for _, size in in_each_look(page, LOOKS):
        assert_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]

    versions.save(acme, POLICY.replace("HIGH", "MEDIUM"), by=ada)  # by somebody, meanwhile
    page.get_by_label("Why").fill("credit notes add up")
    page.get_by_role("button", name="Save, not yet in force").click()
    expect(page.get_by_text("ada saved version 2 since you began")).to_be_visible()
    assert "much money back" in page.get_by_label("Document").input_value()
    page.get_by_role("button", name="Save, not yet in force").click()
    page.wait_for_url("**/policies/3/")
    saved = PolicyVersion.objects.get(number=3)
    assert (saved.note, "much money back" in saved.source) == ("credit notes add up", True)


def test_a_rule_that_is_none_stays_in_its_form_and_a_mistake_stands_in_its_row(
    visit: Visit, acme: Workspace, ada: User
) -> None:
    page = visit(ada)
    page.goto("/w/acme/policies/new/")
    press(page, "a")
    page.get_by_label("Tool", exact=True).fill("mail.send")
    page.get_by_label("Condition", exact=False).fill("args.to ===")
    page.get_by_role("button", name="Put it in the table").click()
    expect(page.get_by_text("This is no rule yet.")).to_be_visible()
    assert page.get_by_label("Tool", exact=True).input_value() == "mail.send"
    page.get_by_role("button", name="Close without a change").click()
    expect(page.get_by_role("button", name="Add a rule")).to_be_focused()

    page.get_by_label("Document").fill(POLICY.replace("risk: HIGH", "risk: HUGE"))
    wrong = page.get_by_role("row").filter(has_text="pay.*")
    expect(wrong).to_contain_text("one of low, medium, high, critical is wanted here")
    for _ in in_each_look(page, LOOKS):
        assert_accessible(page)


def test_ada_says_more_of_a_rule_and_what_holds_for_all(
    visit: Visit, acme: Workspace, ada: User
) -> None:
    page = visit(ada)
    page.goto("/w/acme/policies/new/")
    page.get_by_role("button", name="Edit the rule for pay.*").click()
    page.get_by_role("button", name="Ask somebody else, too").click()
    expect(page.get_by_label("And", exact=True)).to_have_count(2)
    expect(page.get_by_role("button", name="Ask somebody else, too")).to_be_focused()
    page.get_by_text("Asking further").click()
    page.get_by_label("Ask one more team after").fill("soon")
    page.get_by_label("Which team then").select_option("finance")
    page.get_by_role("button", name="Change the table").click()
    wrong = page.get_by_label("Ask one more team after")
    expect(wrong).to_have_attribute("aria-invalid", "true")
    for _, size in in_each_look(page, LOOKS):
        assert_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    wrong.fill("45m")
    page.keyboard.press("Enter")
    row = page.get_by_role("row").filter(has_text="pay.*")
    expect(row).to_contain_text("after 45 min finance, too")

    page.get_by_role("heading", name="For all rules").click()
    page.get_by_role("button", name="Change what holds for all").click()
    page.get_by_text("Working hours", exact=True).click()
    page.get_by_label("From", exact=True).fill("08:00")
    page.get_by_label("To", exact=True).fill("17:00")
    for _, size in in_each_look(page, LOOKS):
        assert_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    page.get_by_role("button", name="Change the document").click()
    expect(page.get_by_role("button", name="Change what holds for all")).to_be_focused()
    text = page.get_by_label("Document").input_value()
    assert "hours: {from: 08:00, to: '17:00'}" in text or "from: '08:00'" in text
    assert "# put back by itself" in text


def test_what_a_check_finds_stands_below_the_document_and_its_buttons(
    visit: Visit, acme: Workspace, ada: User
) -> None:
    page = visit(ada)
    notebook: ViewportSize = {"width": 1280, "height": 800}
    for size in (DESKTOP, notebook, PHONE):
        page.set_viewport_size(size)
        page.goto("/w/acme/policies/new/")
        page.get_by_role("button", name="Check and dry run").click()
        expect(page.locator("#check > .card").first).to_be_visible()
        page.wait_for_load_state()  # with its styles
        # All three in one moment: the page goes to what was found while a test looks on.
        document, act, found = page.evaluate(
            "all => all.map(one => document.querySelector(one).getBoundingClientRect().toJSON())",
            ["#id_source", ".stays .buttons", "#check"],
        )
        assert document["y"] + document["height"] <= act["y"]
        assert act["y"] + act["height"] <= found["y"]
        assert abs(found["x"] - document["x"]) < 8, "in the same column"
