"""An approver corrects an argument: what they approved is what runs, or nothing does."""

import asyncio
from datetime import date
from decimal import Decimal

import pytest

import amends
from amends.adapters import NOT_MADE, GatedTools

CARD = "4111 1111 1111 1111"


@pytest.fixture
def made():
    return []


@pytest.fixture
def refund(desk, small_desk, made):
    """A tool whose calls an approver lowers to 80."""
    small_desk.control(changes={"refund": {"order": "o7", "amount": 80}})

    @desk.tool(
        "refund", target=("order", "{order}"), after=lambda result, **_: result,
        undo=lambda order, amount: amends.undo("shop.charge", order=order, amount=amount),
        verify=lambda result, amount, **_: [("amount", amount, result["amount"])],
    )  # fmt: skip
    def refund(order, amount):
        made.append(amount)
        return {"order": order, "amount": amount}

    return refund


def told(small_desk, kind):
    return [event["data"] for event in small_desk.journal() if event["type"] == kind]


def test_a_tool_is_called_with_what_the_approver_made_of_its_arguments(
    desk, small_desk, refund, made
):
    with desk.run("Refund it"):
        assert refund("o7", amount=100) == {"order": "o7", "amount": 80}
    assert desk.flush(60)

    assert made == [80]
    [asked] = small_desk.journal("begin")
    assert asked["data"]["accepts_changed_arguments"] is True
    [done] = told(small_desk, "action.succeeded")
    assert done["args"] == {"order": "o7", "amount": 80}
    assert done["compensation"]["args"] == {"order": "o7", "amount": 80}, "no more than was paid"
    assert told(small_desk, "action.verified")[0]["ok"]


def test_an_awaited_tool_of_a_framework_is_called_so_too(desk, small_desk, made):
    small_desk.control(changes={"refund": {"order": "o7", "amount": 80}})

    async def call(args):
        made.append(args["amount"])

    async def story():
        async with desk.run("Refund it"):
            await GatedTools(desk).acall("refund", {"order": "o7", "amount": 100}, "call_1", call)
        await desk.async_driver.close()

    asyncio.run(story())

    assert made == [80]


@pytest.mark.parametrize(
    "changed",
    [{"order": "o8", "amount": 80}, {"order": "o7"}, {"order": "o7", "amount": 80, "to": "eve"}],
    ids=["another target", "an argument is gone", "one that there was not"],
)
def test_a_change_that_makes_another_call_of_it_is_not_made(
    desk, small_desk, refund, made, changed
):
    small_desk.control(changes={"refund": changed})

    with desk.run("Refund it"), pytest.raises(amends.ArgumentsChanged, match="an approver changed"):
        refund("o7", amount=100)
    assert desk.flush(60)

    assert made == []
    assert told(small_desk, "action.failed")[0]["outcome"] == "no_effect"


def test_what_is_no_json_is_not_offered_for_a_change(desk, small_desk, refund, made):
    """A Decimal that came back as a number would be another amount."""
    with desk.run("Refund it"), pytest.raises(amends.ArgumentsChanged):
        refund("o7", amount=Decimal(100))
    with desk.run("Refund it"), pytest.raises(amends.ArgumentsChanged):
        refund("o7", amount=date(2026, 11, 25))
    with desk.run("Refund it"), pytest.raises(amends.ArgumentsChanged):
        refund("o7", amount=float("nan"))

    assert made == []
    for asked in small_desk.journal("begin"):
        assert "accepts_changed_arguments" not in asked["data"]


def test_a_body_that_makes_the_call_with_its_own_is_stopped(desk, small_desk, made):
    small_desk.control(changes={"pay": {"amount": 80}})
    asked = {"args": {"amount": 100}, "accepts_changed_arguments": True}

    with (
        desk.run("Pay it") as run,
        pytest.raises(amends.ArgumentsChanged, match=r"\*\*act.args"),
        run.action("pay", **asked) as act,
    ):
        act.perform(lambda **args: made.append(args), amount=100)

    assert made == []


def test_a_secret_stays_where_it_was(desk, small_desk, made):
    """The desk has only the mark of it, here made with no key: it could be that of any card."""
    small_desk.control(changes={"pay": {"amount": 80, "card_number": "⟦masked:cardnumber⟧"}})

    with desk.run("Pay it"), pytest.raises(amends.ArgumentsChanged, match="masked value"):
        GatedTools(desk).call("pay", {"amount": 100, "card_number": CARD}, "call_1", made.append)

    assert made == []


def test_what_an_approver_made_of_them_is_not_changed_before_the_call(desk, small_desk, made):
    small_desk.control(changes={"send": {"to": ["mia"]}})
    asked = {"args": {"to": ["mia", "eve"]}, "accepts_changed_arguments": True}

    def sends(act):
        with act:
            act.args["to"].append("eve")
            act.perform(lambda **args: made.append(args), **act.args)

    with desk.run("Send it") as run, pytest.raises(amends.ArgumentsChanged):
        sends(run.action("send", **asked))
    assert desk.flush(60)

    assert made == []
    assert told(small_desk, "action.failed")[0]["outcome"] == "no_effect"


def test_what_a_tool_does_to_its_arguments_is_not_told_as_what_it_was_called_with(
    desk, small_desk, made
):
    """Told so, it was a case: made with others than were approved."""
    small_desk.control(changes={"send": {"to": ["mia"]}})

    @desk.tool("send")
    def send(to):
        made.append(to.pop())

    with desk.run("Send it"):
        send(["mia", "eve"])
    assert desk.flush(60)

    assert made == ["mia"]
    assert told(small_desk, "action.succeeded")[0]["args"] == {"to": ["mia"]}


def test_of_a_call_that_was_made_with_too_much_to_be_told_it_is_not_said_that_it_was_not(
    desk, small_desk, made
):
    """The model would make it in another way, for a second time."""
    small_desk.control(changes={"note.write": {"text": "x" * 70_000}})

    with desk.run("Write it"), pytest.raises(amends.AmendsError) as said:
        GatedTools(desk).call("note.write", {"text": "x"}, "call_1", made.append)

    assert [len(one["text"]) for one in made] == [70_000]
    assert not isinstance(said.value, NOT_MADE)
    assert "note.write was called, and then: " in str(said.value)
