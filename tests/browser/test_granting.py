"""What a person may grant, as it looks for everybody: a change, more of the same, many alike."""

import httpx
import pytest

from approvals.models import Approval
from tests.approvals.cast import put_in_force
from tests.approvals.door import planned
from tests.browser.accessible import Look, assert_accessible, in_each_look
from tests.browser.conftest import DESKTOP, PHONE, Visit, press
from tests.people import person
from workspaces import keys, teams
from workspaces.models import Agent, User, Workspace

LOOKS: list[Look] = [("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE), ("dark", PHONE)]


BOUNDED = {
    "uses": 9, "for": "1d", "amount": "args.amount", "each": 100, "sum": 500,
    "same": ["args.currency"],
}  # fmt: skip


@pytest.fixture
def ben(acme: Workspace) -> User:
    finance = teams.create(acme, "finance", by=None, may=["view", "approve"])
    person("cleo", finance)
    return person("ben", finance)


@pytest.fixture
def asked(acme: Workspace, ben: User, site: str) -> list[Approval]:
    """Four refunds, one of them large, asked for at the real door."""
    operators = teams.create(acme, "operators", by=None, may=["view", "recover", "administer"])
    rule = {"approval": "MANUAL", "bounded": BOUNDED, "words": "a refund moves money"}
    put_in_force(acme, person("ada", operators), {"policies": {"pay.*": rule}})
    agent = Agent.objects.create(workspace=acme, name="returns-desk")
    token = keys.create_key(agent, by=None, name="test")[1]
    for n, amount in enumerate([20, 25, 22, 90]):
        body = planned(
            tool="pay.refund", key=f"k{n}", action=f"a{n}", accepts_changed_arguments=True,
            args={"amount": amount, "currency": "EUR", "to": f"customer {n}", "urgent": False},
            targets=[{"type": "order", "id": f"order-{n}"}],
        )  # fmt: skip
        answer = httpx.post(
            f"{site}/api/v1/actions/begin", json=body, headers={"authorization": f"Bearer {token}"}
        )
        assert answer.json()["answer"] == "wait"
    return list(Approval.objects.order_by("pk"))


def test_ben_corrects_an_amount_and_sees_both(
    visit: Visit, asked: list[Approval], ben: User
) -> None:
    page = visit(ben)
    page.goto(f"/w/acme/approvals/{asked[0].pk}/")
    press(page, "e")
    amount = page.get_by_label("amount", exact=True)
    amount.fill("abe 15")  # keys do not eat what is typed
    assert amount.input_value() == "abe 15"
    for _ in in_each_look(page, LOOKS):
        assert_accessible(page)
    page.get_by_label("Reason: goes").fill("the return was partial")
    page.get_by_role("button", name="Ask with this change").click()
    page.get_by_text("is a whole number").wait_for()
    assert amount.input_value() == "abe 15"
    amount.fill("15")
    page.get_by_role("button", name="Ask with this change").click()
    page.get_by_role("heading", name="Asked, and as it was changed").wait_for()
    assert page.url.endswith(f"/approvals/{Approval.objects.latest('pk').pk}/")
    for _ in in_each_look(page, LOOKS):
        assert_accessible(page)


def test_ben_approves_the_next_ones_too_and_revokes_that(
    visit: Visit, asked: list[Approval], ben: User
) -> None:
    page = visit(ben)
    page.goto(f"/w/acme/approvals/{asked[0].pk}/")
    press(page, "b")
    page.get_by_text("it covers no other call").wait_for()
    page.get_by_label("For how many more calls").fill("3")
    page.get_by_label("Reason: goes").fill("a batch of returns")
    page.get_by_role("button", name="Approve this and more like it").click()
    page.get_by_text("Granted: 0 of 3 calls used").wait_for()
    page.goto("/w/acme/approvals/grants/")
    for _ in in_each_look(page, LOOKS):
        assert_accessible(page)
    page.get_by_role("button", name="Revoke this grant").click()
    page.get_by_text("Withdrawn by Ben").wait_for()


def test_ben_decides_on_those_that_are_alike_and_leaves_what_stands_out(
    visit: Visit, asked: list[Approval], ben: User
) -> None:
    page = visit(ben)
    page.goto(f"/w/acme/approvals/{asked[0].pk}/")
    page.get_by_role("link", name="4 alike").click()
    page.get_by_role("heading", name="These stand out").wait_for()
    for _ in in_each_look(page, LOOKS):
        assert_accessible(page)
    page.get_by_role("button", name="Approve the chosen").click()
    page.get_by_role("heading", name="What became of each").wait_for()
    states = [Approval.objects.get(pk=one.pk).state for one in asked]
    assert states == ["granted", "granted", "granted", "waiting"]
