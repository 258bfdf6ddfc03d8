"""A child that does not answer is ended, and who waited for it is told to ask again.

The children are real processes; what they are asked for is of Python's own.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from django.conf import settings

from workspaces import worker_processes
from workspaces.worker_processes import CALLS_AT_ONCE, Children, Ended

WAIT_SECONDS_MAX = 40.0


def with_children(story: Callable[[Children], Awaitable[Any]], count: int = 1) -> Any:
    async def told() -> Any:
        found = Children("workspaces.edge")
        found.open(count, settings.DATABASE_URL)
        try:
            return await story(found)
        finally:
            await found.close()

    return asyncio.run(told())


async def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not true():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.1)


async def child_of(found: Children) -> int:
    """The number of a child that is ready; until then threads of ours answer."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while (number := await found.call(os.getpid)) == os.getpid():
        assert time.monotonic() < deadline, "no child started"
        await asyncio.sleep(0.1)
    return number


def is_there(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(worker_processes, "CALL_SECONDS_MAX", 1.0)


def test_whoever_waits_for_a_stopped_child_is_told_to_ask_again_and_another_starts(short):
    async def story(found):
        stopped = await child_of(found)
        os.kill(stopped, signal.SIGSTOP)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            in_hand = [found.call(os.getpid) for _ in range(CALLS_AT_ONCE)]
            waiting = found.call(os.getpid)
            *told, later = await asyncio.gather(*in_hand, waiting, return_exceptions=True)
        await until(lambda: not is_there(stopped))
        return stopped, told, later, await child_of(found)

    stopped, told, later, another = with_children(story)

    assert [type(one) for one in told] == [Ended] * CALLS_AT_ONCE
    assert later == os.getpid()  # a thread of ours did what waited for it
    assert another != stopped


def test_who_waits_while_another_child_answers_is_served_by_that_one(short):
    async def story(found):
        stopped = await child_of(found)
        await until(lambda: len(found._living) == 2)
        os.kill(stopped, signal.SIGSTOP)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            return stopped, await asyncio.gather(
                *(found.call(os.getpid) for _ in range(3 * CALLS_AT_ONCE)), return_exceptions=True
            )

    stopped, told = with_children(story, count=2)

    assert sum(isinstance(one, Ended) for one in told) <= CALLS_AT_ONCE
    served = {one for one in told if isinstance(one, int)}
    assert len(served) == 1
    assert stopped not in served


def test_a_function_that_ran_out_of_its_own_time_says_so_and_its_child_stays(short):
    async def story(found):
        before = await child_of(found)
        with pytest.raises(TimeoutError):
            await found.call(raise_late)
        return before, await found.call(os.getpid)

    before, after = with_children(story)

    assert before == after


def raise_late() -> None:
    raise TimeoutError("of the function itself")
