"""The same client, awaited: one story for both, and what only a cancelled task can do."""

import asyncio
import threading
import time
from functools import partial

import httpx
import pytest

import amends
from amends.protocol.canonical import idempotency_key
from tests.crash.oracle import until
from tests.sdk.conftest import KEY, NEW, OLD, move


def ran(desk, story):
    """Run a story in an event loop of its own; what the loop has opened is closed with it."""

    async def to_its_end():
        try:
            return await story
        finally:
            await desk.async_driver.close()

    return asyncio.run(to_its_end())


def test_an_awaited_run_tells_what_a_waiting_one_tells(desk, small_desk):
    def told(run):
        events = [one for one in small_desk.journal() if one["run"] == run]
        return [(one["type"], one.get("n"), one["data"]) for one in events]

    with desk.run("Move it", run="run_waits", on_behalf_of={"id": "mia"}) as run:
        with move(run, key="one") as act:
            act.succeeded(act.perform(lambda: dict(NEW)), after=NEW)
            act.verified([("flight", "HAT019", "HAT019")])
        run.checkpoint("moved", state={"next": "mail"})

    async def awaited():
        async with desk.run("Move it", run="run_awaits", on_behalf_of={"id": "mia"}) as run:
            async with move(run, key="two") as act:
                await act.asucceeded(await act.aperform(airline), after=NEW)
                await act.averified([("flight", "HAT019", "HAT019")])
            await run.acheckpoint("moved", state={"next": "mail"})
        assert await desk.aflush()

    async def airline():
        await asyncio.sleep(0)
        return dict(NEW)

    ran(desk, awaited())

    attempts = [one["attempt"] for one in small_desk.journal("begin")]
    first, second = told("run_waits"), told("run_awaits")
    for events, attempt in zip((first, second), attempts, strict=True):
        assert events[1][2].pop("attempt") == attempt
    assert first == second
    assert len(first) == 5


def test_many_calls_wait_for_people_at_once_and_none_holds_a_thread(small_desk, spool_file):
    small_desk.control(modes={"update_flight": "wait"})
    asked = []

    async def told(answer):
        asked.append(answer["approval"])

    async def moved(run, number):
        async with move(run, op=f"seat {number}") as act:
            await act.asucceeded(after=NEW)

    def threads():
        return {one for one in threading.enumerate() if one.name.startswith("amends_")}

    others = threads()

    async def story():
        async with amends.connect(
            small_desk.url, KEY, spool=spool_file, wait_seconds=30, on_wait=told
        ) as desk, desk.run("Move them") as run:  # fmt: skip
            calls = [asyncio.create_task(moved(run, number)) for number in range(40)]
            await asyncio.to_thread(until, lambda: len(asked) == 40, 30, "forty are asked for")
            held = threads() - others
            keys = [one["data"]["key"] for one in small_desk.journal("begin")]
            small_desk.control(decided=keys)
            await asyncio.gather(*calls)
            return held

    held = asyncio.run(story())

    assert 0 < len(held) <= 16
    assert small_desk.types().count("action.succeeded") == 40


def test_a_tool_that_is_a_coroutine_function_stays_one(desk, small_desk):
    calls = list[str]()

    async def seen(reservation, **_):
        await asyncio.sleep(0)
        return OLD

    @desk.tool(
        "update_flight",
        target=("reservation", "{reservation}"),
        before=seen,
        after=lambda result, **_: result,
        verify=lambda result, **_: [("flight", "HAT019", result["flight"])],
    )
    async def update_flight(reservation, flight="HAT019"):
        calls.append(reservation)
        return {"flight": flight}

    async def story():
        async with desk.run("Move it"):
            first = await update_flight("XEHM4B")
            return first, await update_flight("XEHM4B")
        await desk.aflush()
        return None

    assert ran(desk, story()) == (NEW, NEW)
    assert calls == ["XEHM4B"]
    assert desk.flush(60)
    assert small_desk.journal("begin")[0]["data"]["before"] == [OLD]
    assert small_desk.types().count("action.verified") == 1


def test_a_waiting_tool_works_in_an_awaited_run(desk, small_desk):
    """Frameworks call the tools that are not coroutine functions in a thread."""

    @desk.tool("update_flight", target=("reservation", "{reservation}"))
    def update_flight(reservation):
        return NEW

    async def story():
        async with desk.run("Move it"):
            return await asyncio.to_thread(update_flight, "XEHM4B")

    assert ran(desk, story()) == NEW


def test_a_task_that_is_cancelled_while_people_decide_leaves_nothing_open(desk, small_desk):
    small_desk.control(modes={"update_flight": "wait"})

    async def story():
        async with desk.run("Move it") as run, asyncio.timeout(0.5), move(run):
            raise AssertionError("the body ran")

    with pytest.raises(TimeoutError):
        ran(desk, story())
    desk.flush(60)

    assert small_desk.types() == ["run.started", "run.failed"]


@pytest.mark.parametrize("way", ["block", "tool", "late"])
def test_a_call_that_is_cancelled_as_it_is_allowed_is_told_as_not_made(desk, small_desk, way):
    """The desk's answer is on its way while the task is cancelled; or the one to its asking anew,
    for the lease was over when the first one came.
    """
    small_desk.control(slow=0.5, lends=0.3)
    asked = 2 if way == "late" else 1

    async def story():
        async with desk.run("Move it") as run:
            task = asyncio.create_task(update_flight() if way == "tool" else entered(run))
            began = partial(small_desk.journal, "begin")
            await asyncio.to_thread(until, lambda: began()[asked - 1 :], 30, "the desk is asked")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    async def entered(run):
        async with move(run) as act:
            await act.aperform(update_flight)

    @desk.tool("update_flight")
    async def update_flight():
        raise AssertionError("the tool ran")

    ran(desk, story())
    desk.flush(60)

    [failed] = [one for one in small_desk.journal() if one["type"] == "action.failed"]
    assert failed["data"]["outcome"] == "no_effect"
    assert "cancelled" in failed["data"]["error"]["message"]


def test_what_another_try_made_stays_made_for_whoever_is_cancelled_while_asking_anew(
    desk, small_desk
):
    """Its lease was over. Else it would be made once more, as soon as the desk is away."""
    small_desk.control(slow=0.5, lends=0.3)
    began = partial(small_desk.journal, "begin")

    async def story():
        async with desk.run("Move it") as run:
            task = asyncio.create_task(entered(run))
            await asyncio.to_thread(until, lambda: began()[1:], 30, "the desk is asked anew")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    async def entered(run):
        async with move(run) as act:
            other = {"id": "another", "type": "action.succeeded", "action": act.id, "data": {}}
            await asyncio.to_thread(httpx.post, f"{small_desk.url}/events", json=[other])
            await act.aperform(dict)

    ran(desk, story())
    desk.flush(60)

    assert desk.spool.find(began()[0]["data"]["key"]).state == "succeeded"
    assert "action.failed" not in small_desk.types()


def test_a_call_that_is_cancelled_on_its_way_has_an_unknown_outcome(desk, small_desk):
    started = asyncio.Event()

    async def hangs():
        started.set()
        await asyncio.sleep(60)

    async def story():
        async with desk.run("Move it") as run, move(run) as act:
            await act.aperform(hangs)

    async def cancels():
        task = asyncio.create_task(story())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    ran(desk, cancels())
    desk.flush(60)

    failed, ended = small_desk.journal()[-2:]
    assert (failed["type"], failed["data"]["outcome"]) == ("action.failed", "unknown")
    assert ended["type"] == "run.cancelled"


def test_an_outcome_that_is_being_written_is_written_though_the_task_is_cancelled(desk, small_desk):
    """And it is one outcome: the success is not followed by a failure."""

    async def story():
        async with desk.run("Move it") as run, move(run) as act:
            slow(desk.spool, writing)
            saying = asyncio.create_task(act.asucceeded(after=NEW))
            await asyncio.to_thread(writing.wait)
            saying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await saying

    writing = threading.Event()
    ran(desk, story())
    desk.flush(60)

    told = [one for one in small_desk.types() if one.startswith("action.")]
    assert told == ["action.succeeded"]


def test_a_run_whose_task_is_cancelled_as_it_opens_is_over(desk, small_desk):
    """Nobody was in it who would have ended it: to the desk it went on, until it was silent."""

    async def story():
        async with desk.run("Move it"):
            pytest.fail("its task was cancelled")

    async def opens():
        slow(desk.spool, writing)
        opening = asyncio.create_task(story())
        await asyncio.to_thread(writing.wait)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    writing = threading.Event()
    ran(desk, opens())
    desk.flush(60)

    assert small_desk.types() == ["run.started", "run.cancelled"]


def slow(spool, writing):
    """The disk takes its time over the next write."""
    write = spool.write

    def slowly(*args, **kwargs):
        spool.write = write
        writing.set()
        time.sleep(0.3)
        write(*args, **kwargs)

    spool.write = slowly


@pytest.mark.parametrize("is_awaited", [False, True], ids=["waits", "awaits"])
def test_a_call_that_takes_too_long_is_left_and_its_outcome_unknown(desk, small_desk, is_awaited):
    over = threading.Event()

    def waits():
        with desk.run("Move it") as run, move(run, time_limit_seconds=0.2) as act:
            act.perform(over.wait, 30)

    async def awaits():
        async with desk.run("Move it") as run, move(run, time_limit_seconds=0.2) as act:
            await act.aperform(asyncio.sleep, 30)

    with pytest.raises(TimeoutError):
        ran(desk, awaits()) if is_awaited else waits()
    over.set()
    desk.flush(60)

    [failed] = [one for one in small_desk.journal() if one["type"] == "action.failed"]
    assert (failed["data"]["error"]["type"], failed["data"]["outcome"]) == (
        "TimeoutError", "unknown")  # fmt: skip


def test_a_waiting_function_that_runs_out_of_an_iterator_fails_and_is_not_waited_for(
    desk, small_desk
):
    """An event loop cannot be handed a StopIteration: the call would never end."""

    async def story():
        async with desk.run("Move it", run="run_1") as run, move(run) as act:
            await act.aperform(lambda: next(iter(())))

    with pytest.raises(RuntimeError, match="StopIteration"):
        ran(desk, story())
    desk.flush()

    [failed] = [one for one in small_desk.journal() if one["type"] == "action.failed"]
    assert failed["data"]["outcome"] == "unknown"


def test_a_coroutine_function_in_a_waiting_call_is_refused_in_words(desk):
    async def airline():
        return NEW

    with (
        desk.run("Move it") as run,
        pytest.raises(TypeError, match="async with"),
        move(run) as act,
    ):
        act.perform(airline)


def test_one_desk_serves_one_event_loop_after_the_other(desk, small_desk):
    async def story(run):
        async with desk.run("Move it", run=run) as one, move(one) as act:
            await act.asucceeded(after=NEW)

    for run in ("run_1", "run_2"):
        ran(desk, story(run))
    desk.flush(60)

    assert small_desk.types().count("run.completed") == 2


def test_an_awaited_call_goes_on_from_the_spool_while_the_desk_is_away(desk, small_desk):
    desk.fetch_policy()
    small_desk.stop()

    async def story():
        async with desk.run("Note it", run="run_n") as run:
            async with run.action("note.add", target=("note", "n1")) as act:
                await act.asucceeded(await act.aperform(lambda: "kept"))
            with pytest.raises(amends.DeskUnreachable):
                async with run.action("charge_card", target=("card", "c1")):
                    raise AssertionError("the card was charged")

    ran(desk, story())
    small_desk.start()
    assert desk.flush(20)

    key = idempotency_key(
        workspace="northwind", run="run_n", tool="note.add", op="note.add",
        targets=[{"type": "note", "id": "n1"}],
    )  # fmt: skip
    assert desk.spool.find(key).state == "succeeded"
    assert small_desk.types()[-1] == "run.completed"


def test_a_stream_that_is_closed_early_tells_that_its_run_and_its_call_are_over(desk, small_desk):
    """Whoever reads it has enough: the run was shown as running until somebody looked."""

    async def stream():
        async with desk.run("Move it") as run, move(run) as act:
            for word in ("moved", "to HAT019"):
                yield word
            await act.asucceeded(after=NEW)

    async def story():
        told = stream()
        async for _ in told:
            break
        await told.aclose()
        assert await desk.aflush(60)

    ran(desk, story())

    failed, ended = small_desk.journal()[-2:]
    assert (failed["type"], failed["data"]["outcome"]) == ("action.failed", "unknown")
    assert ended["type"] == "run.cancelled"


def test_a_no_that_comes_as_the_task_is_cancelled_does_not_let_it_go_on(desk, small_desk):
    """Whoever goes on after a refusal, as agents do, was never cancelled."""
    small_desk.control(slow=0.5, modes={"update_flight": "denied"})
    went_on = []

    async def agent(run):
        try:
            async with move(run):
                raise AssertionError("the body ran")
        except amends.Denied:
            went_on.append("the model reads it")

    async def story():
        async with desk.run("Move it") as run:
            task = asyncio.create_task(agent(run))
            began = partial(small_desk.journal, "begin")
            await asyncio.to_thread(until, began, 30, "the desk is asked")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    ran(desk, story())

    assert went_on == []
