"""One action, one call: whatever its block does, and however often it is entered."""

import asyncio
import functools
import itertools

import pytest

import amends
from amends import gate
from amends.adapters import GatedTools
from tests.sdk.conftest import NEW, move


@pytest.fixture
def calls():
    return []


def test_an_action_that_is_entered_again_answers_its_first_result(desk, small_desk, calls):
    with desk.run("Move it", run="run_1") as run:
        act = move(run)
        for _ in range(2):
            with act:
                assert act.perform(lambda: calls.append(1) or {"ok": True}) == {"ok": True}
    desk.flush()

    assert calls == [1]
    assert small_desk.types().count("action.succeeded") == 1


def test_an_action_that_is_entered_again_after_a_refusal_tells_how_it_went(desk, small_desk, calls):
    with desk.run("Move it", run="run_1") as run:
        act = move(run)
        with pytest.raises(amends.NoEffect), act:
            act.perform(refuse)
        with act:
            act.perform(calls.append, 1)
    desk.flush()

    assert calls == [1]
    assert small_desk.types()[1:3] == ["action.failed", "action.succeeded"]


def refuse():
    raise amends.NoEffect("busy", retryable=True)


def test_a_call_that_may_have_happened_is_not_repeated_within_its_block(desk, small_desk, calls):
    def late():
        calls.append("late")
        raise TimeoutError

    with desk.run("Move it", run="run_1") as run, move(run) as act:
        with pytest.raises(TimeoutError):
            act.perform(late)
        with pytest.raises(amends.InDoubt, match="was not made again"):
            act.perform(late)
        act.failed("it took too long")

    assert calls == ["late"]


def test_a_second_call_is_an_action_of_its_own_and_a_refused_one_may_be_tried_again(desk, calls):
    with desk.run("Move it", run="run_1") as run, move(run) as act:
        with pytest.raises(amends.NoEffect):
            act.perform(refuse)
        act.perform(calls.append, 1)
        with pytest.raises(amends.AmendsError, match="an action of its own"):
            act.perform(calls.append, 2)
        act.succeeded(after=NEW)

    assert calls == [1]


def test_once_its_run_is_cancelled_a_call_is_not_made(desk, small_desk, calls):
    def is_told_to_stop(act):
        with act:
            act.run.cancel(by="mia", reason="no longer wanted")
            act.perform(calls.append, 1)

    with desk.run("Move it", run="run_1") as run, pytest.raises(amends.NoEffect, match="ended"):
        is_told_to_stop(move(run))
    desk.flush()

    assert calls == []
    assert small_desk.journal()[-1]["data"]["outcome"] == "no_effect"


def test_of_a_call_that_was_given_in_part_nobody_says_that_it_had_no_effect(
    desk, small_desk, monkeypatch
):
    """A server has asked something back, and the answer came after the lease."""
    small_desk.control(lends=60)

    def answers_late(act):
        with act:
            act.perform(dict)
            act.goes_on()
            late = gate.awake_or_not() + 61
            monkeypatch.setattr(gate, "awake_or_not", lambda: late)
            small_desk.control(modes={"update_flight": "denied"}, code="recovery")
            act.perform(dict)

    with desk.run("Move it", run="run_1") as run, pytest.raises(amends.NoEffect, match="lease"):
        answers_late(move(run))
    desk.flush()

    [failed] = [one["data"] for one in small_desk.journal() if one["type"] == "action.failed"]
    assert failed["outcome"] == "unknown"


def test_what_answers_bit_by_bit_is_refused_before_it_counts_as_made(desk, small_desk, calls):
    def bit_by_bit(**_):
        calls.append(1)
        yield 1

    with pytest.raises(TypeError, match="bit by bit"):
        desk.tool("update_flight")(bit_by_bit)
    named = pytest.raises(TypeError, match=r"^\S*bit_by_bit answers bit by bit")
    with named, desk.run("Move it") as run, move(run) as act:
        act.perform(bit_by_bit, flight="HAT019")
    desk.flush()

    assert "action.succeeded" not in small_desk.types()


def test_a_call_that_returns_what_is_still_to_be_gone_through_was_not_made(desk, small_desk):
    """Its function is no generator function, so that only the answer shows it."""

    async def airline():
        async def bits():
            yield 1

        return bits()

    async def waits():
        with desk.run("Move it"):
            desk.tool("update_flight")(lambda: (one for one in [1]))()

    async def is_awaited():
        async with desk.run("Move it") as run, move(run) as act:
            await act.aperform(airline)

    async def story():
        for kind in (waits, is_awaited):
            with pytest.raises(TypeError, match="bit by bit"):
                await kind()
        await desk.async_driver.close()

    asyncio.run(story())
    desk.flush()

    ended = [one for one in small_desk.journal() if one["type"].startswith("action.")]
    assert [one["data"]["outcome"] for one in ended] == ["unknown", "unknown"]


class Airline:
    """An object that is called as a function is."""

    def __init__(self, answer):
        self.answer = answer

    async def __call__(self, **_):
        return self.answer


class Streams:
    def __call__(self, **_):
        yield 1


def test_an_object_is_called_as_the_function_that_it_is(desk, small_desk, calls):
    async def story():
        async with desk.run("Move it"):
            found = await desk.tool("update_flight")(Airline("KL1002"))()
        await desk.async_driver.close()
        return found

    assert asyncio.run(story()) == "KL1002"
    with pytest.raises(TypeError, match="bit by bit"):
        desk.tool("update_flight")(functools.partial(Streams()))
    with pytest.raises(TypeError, match="bit by bit"), desk.run("Move it") as run, move(run) as act:
        act.perform(Streams())
    desk.flush()

    assert small_desk.types().count("action.succeeded") == 1


def test_a_method_of_a_class_is_a_tool_and_its_class_no_argument(desk, small_desk):
    gated = desk.tool("update_flight", target=lambda cls, to: ("flight", f"{cls.name}{to}"))

    class Fleet:
        name = "KL"
        lands = desk.tool("land")(staticmethod(lambda to: f"landed {to}"))

        @classmethod
        @gated
        def move(cls, to):
            return f"{cls.name}{to}"

        @gated
        @classmethod
        def turn(cls, to):
            return f"{cls.name}{to}"

    with desk.run("Move it"):
        assert (Fleet.move(to="1"), Fleet.turn(to="2")) == ("KL1", "KL2")
        assert Fleet().lands("3") == "landed 3"
    desk.flush()
    told = [one["data"] for one in small_desk.journal("begin")]
    assert [one["args"] for one in told] == [{"to": "1"}, {"to": "2"}, {"to": "3"}]
    assert [one["targets"][0]["id"] for one in told[:2]] == ["KL1", "KL2"]


@pytest.mark.parametrize("is_awaited", [True, False])
def test_a_tool_that_is_wrapped_twice_is_one_call(desk, small_desk, calls, is_awaited):
    """By itself it could not be called, and within the tools of a framework it was two calls."""

    async def awaited(to, by="air"):
        calls.append(to)

    def waiting(to, by="air"):
        calls.append(to)

    once = desk.tool("update_flight")(awaited if is_awaited else waiting)
    twice, tools = desk.tool("update_flight")(once), GatedTools(desk)

    async def story():
        async with desk.run("Move it"):
            await twice("KL1")
            await tools.acall("update_flight", {"to": "KL2"}, "c", lambda args: once(**args))
        await desk.async_driver.close()

    if is_awaited:
        asyncio.run(story())
    else:
        with desk.run("Move it"):
            twice("KL1")
            tools.call("update_flight", {"to": "KL2"}, "c", lambda args: once(**args))
    desk.flush()

    assert calls == ["KL1", "KL2"]
    assert small_desk.types().count("action.succeeded") == 2


@pytest.mark.parametrize("kind", [map, filter, itertools.starmap])
def test_a_call_whose_answer_is_lazy_was_not_made(desk, small_desk, calls, kind):
    with pytest.raises(TypeError, match="bit by bit"), desk.run("Move it"):
        desk.tool("update_flight")(lambda: kind(calls.append, [1]))()
    desk.flush()

    assert calls == []
    assert "action.succeeded" not in small_desk.types()


def test_a_call_that_answers_with_what_is_still_to_be_awaited_was_not_made(desk, small_desk, calls):
    async def airline():
        calls.append(1)

    async def story():
        with pytest.raises(TypeError, match="still to be awaited"):
            async with desk.run("Move it"):
                await desk.tool("update_flight")(Airline(airline()))()
        await desk.async_driver.close()

    asyncio.run(story())
    desk.flush()

    assert calls == []
    assert "action.succeeded" not in small_desk.types()


def test_what_a_call_answers_bit_by_bit_may_be_gone_through_and_told(desk, small_desk, calls):
    """The function sends the request itself, and only its answer comes in bits."""

    def stream(question):
        calls.append(question)
        return (one for one in ("a", "b"))

    with desk.run("Move it") as run, move(run) as act:
        act.succeeded("".join(act.perform(stream, "How?")))
    desk.flush()

    assert calls == ["How?"]
    [told] = [one["data"] for one in small_desk.journal() if one["type"] == "action.succeeded"]
    assert told["result"] == "ab"


def test_a_refusal_that_is_met_after_the_call_is_none_of_the_call(desk, small_desk, calls):
    """A helper says `NoEffect` of itself: told as the call's, it would have been made again."""

    @desk.tool("update_flight", tries=3, after=lambda _: refuse())
    def update_flight():
        calls.append(1)
        return {"ok": True}

    with desk.run("Move it", run="run_1") as run:
        with pytest.raises(amends.AmendsError, match="was called, and then: busy"):
            update_flight()
        assert update_flight() == {"ok": True}, "as it was answered first"
        with pytest.raises(amends.NoEffect):
            looks_afterwards(move(run, op="by_hand"), calls)
    desk.flush()

    assert calls == [1, 2]
    told = [(one["type"], one["data"].get("outcome")) for one in small_desk.journal()[1:-1]]
    assert told == [("action.succeeded", None), ("action.failed", "unknown")]


def looks_afterwards(act, calls):
    with act:
        act.perform(calls.append, 2)
        refuse()


def test_an_argument_that_nobody_could_read_is_not_asked_for_and_such_a_result_is_not_kept(
    desk, small_desk, calls, caplog
):
    with desk.run("Move it", run="run_1") as run:
        with pytest.raises(ValueError, match="tells nothing of itself"):
            run.action("pay", args={"payment": object()})
        with move(run) as act:
            act.perform(object)
    desk.flush()

    [_, succeeded, _] = small_desk.journal()
    assert "tells nothing of itself" in succeeded["data"]["result"]["not_recorded"]
    assert "are not kept" in caplog.text


def test_a_tool_may_be_a_method_and_whose_it_is_is_no_argument(desk, small_desk, calls):
    class Hotel:
        name = "H1"

        @desk.tool("book", target=lambda self, **_: ("hotel", self.name))
        def book(self, nights: int):
            calls.append(nights)
            return self.name

        @desk.tool("abook", target=("hotel", "{nights}"))
        async def abook(self, nights: int):
            calls.append(nights)
            return self.name

    async def books():
        async with desk.run("Book it", run="run_2"):
            found = await Hotel().abook(3)
        await desk.async_driver.close()
        return found

    with desk.run("Book it", run="run_1"):
        assert [Hotel().book(2), Hotel().book(nights=2)] == ["H1", "H1"]
    assert asyncio.run(books()) == "H1"

    assert calls == [2, 3], "another object makes the same call"
    planned, *_ = small_desk.journal("begin")
    assert (planned["data"]["args"], planned["data"]["targets"]) == (
        {"nights": 2}, [{"type": "hotel", "id": "H1"}],
    )  # fmt: skip
    assert planned["data"]["tool_schema"]["required"] == ["nights"]


def test_a_refusal_of_a_tool_that_a_tool_calls_is_none_of_the_outer_one(desk, small_desk, calls):
    """What it did before stays done: told as without effect, it would have been made again."""

    @desk.tool("note.seat")
    def choose_seat():
        refuse()

    @desk.tool("update_flight", tries=3)
    def update_flight():
        calls.append(1)
        choose_seat()

    with desk.run("Move it", run="run_1"):
        with pytest.raises(amends.NoEffect, match="busy"):
            update_flight()
        with pytest.raises(amends.InDoubt):
            update_flight()
    desk.flush()

    assert calls == [1]
    told = [one["data"]["outcome"] for one in small_desk.journal() if "outcome" in one["data"]]
    assert told == ["no_effect", "unknown"]


def test_a_block_in_which_another_call_was_refused_may_have_done_something(desk, small_desk, calls):
    choose_seat = desk.tool("note.seat")(refuse)

    def by_hand(act):
        with act:
            calls.append(1)
            choose_seat()

    with desk.run("Move it", run="run_1") as run:
        with pytest.raises(amends.NoEffect):
            by_hand(move(run))
        with move(run, op="again") as act:
            with pytest.raises(amends.NoEffect):
                act.perform(choose_seat)
            with pytest.raises(amends.InDoubt):
                act.perform(choose_seat)
            act.failed("the seat is taken")
    desk.flush()

    told = [one["data"]["outcome"] for one in small_desk.journal() if "outcome" in one["data"]]
    assert told == ["no_effect", "unknown", "no_effect", "unknown"]


def test_a_refusal_that_is_raised_as_one_object_again_and_again_is_its_tools_own(desk, calls):
    busy = amends.NoEffect("busy", retryable=True)

    @desk.tool("update_flight", tries=3)
    def update_flight():
        calls.append(1)
        if len(calls) < 3:
            raise busy
        return NEW

    with desk.run("Move it", run="run_1"):
        assert update_flight() == NEW


def test_a_result_that_holds_itself_is_a_success_whose_result_is_not_kept(
    desk, small_desk, calls, caplog
):
    calls.append(calls)

    with desk.run("Move it", run="run_1") as run, move(run) as act:
        act.perform(lambda: calls)
    desk.flush()

    assert small_desk.types() == ["run.started", "action.succeeded", "run.completed"]
    assert "not_recorded" in small_desk.journal()[1]["data"]["result"]
    assert "are not kept" in caplog.text


@pytest.mark.parametrize("outcome", ["no_effect", "unknown", "succeeded"])
def test_once_its_outcome_is_told_a_call_is_not_made(desk, small_desk, calls, outcome):
    """It was made, and the ledger said on that nothing had happened."""
    with desk.run("Move it", run="run_1") as run, move(run) as act:
        if outcome == "succeeded":
            act.succeeded()
        else:
            act.failed("busy", outcome=outcome)
        with pytest.raises(amends.AmendsError, match="recorded already"):
            act.perform(calls.append, 1)

    assert calls == []


def test_an_argument_may_have_any_name(desk, small_desk, calls):
    """It was taken for a parameter of the client's own: such a tool could not be called at all, and
    one with a `limit_seconds` had that as its limit."""

    @desk.tool("invoke", before=lambda **given: given, after=lambda _, **given: given,
               verify=lambda _, **given: [("given", 3, len(given))])  # fmt: skip
    def invoke(function, limit_seconds, call):
        calls.append((function, limit_seconds, call))

    given = {"function": "resize", "limit_seconds": 0, "call": 1}
    with desk.run("Make it small") as run:
        invoke(**given)
        with run.action("invoke", op="by hand") as act:
            act.perform(lambda **given: calls.append(tuple(given.values())), **given)
    desk.flush()

    assert calls == [("resize", 0, 1)] * 2
    assert [one["data"]["ok"] for one in small_desk.journal() if one["type"] == "action.verified"]


def test_a_tool_that_is_given_no_name_is_refused_in_words(desk):
    with pytest.raises(TypeError, match=r'name the tool: @desk.tool\("refuse"\)'):
        desk.tool(refuse)
