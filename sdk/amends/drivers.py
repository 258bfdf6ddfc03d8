"""Two ways to carry out what a call needs: on the calling thread, and awaited.

What the client does is written once, as generators (`Steps`) that never wait by themselves: they
yield what they need, and are sent what came of it. `Driver` carries it out on the thread that
calls, `AsyncDriver` in an event loop. A method whose name ends in -ing gives steps (`beginning`);
`waits` and `awaits` make of it what an agent calls (`begin`, `abegin`).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from amends import forks
from amends.errors import AmendsError
from amends.wire import AsyncWire, Request, Wire

T = TypeVar("T")
P = ParamSpec("P")

# Disk, locks and the spool's sender, for all runs of a process that are awaited.
THREADS_MAX = 16
# A question that is on its way when its task is cancelled may still be answered: then it is known
# whether the call was allowed, and that it was not made.
CANCEL_GRACE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Blocking:
    """Work of ours that may wait for a disk or a lock. It is never left half-way."""

    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Callback:
    """A function of the agent's own; awaited where it is a coroutine's, else called in a thread
    where there is an event loop. After `limit_seconds` it is waited for no longer.
    """

    function: Callable[[], Any]
    limit_seconds: float | None = None


Need: TypeAlias = Request | Pause | Blocking | Callback
Steps: TypeAlias = Generator[Need, Any, T]


def heard(steps: Steps[T]) -> Steps[T]:
    """What they return or raise; a task that was cancelled meanwhile hears of it here."""
    try:
        found = yield from steps
    except Exception:
        yield Pause(0)
        raise
    yield Pause(0)
    return found


def blocking(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Steps[T]:
    """`yield from` it: what our own work returns or raises."""
    found: T = yield Blocking(functools.partial(work, *args, **kwargs))
    return found


def called(
    function: Callable[..., Any], /, *args: Any, limit_seconds: float | None = None, **kwargs: Any
) -> Steps[Any]:
    """`yield from` it: what a function of the agent's own returns or raises.

    TimeoutError where it takes longer than the limit: nobody knows then how it ends.
    """
    found = yield Callback(functools.partial(function, *args, **kwargs), limit_seconds)
    return found


class Driver:
    """Carries out steps on the calling thread."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def run(self, steps: Steps[T]) -> T:
        """What the steps return. They are told of every error, and may go on."""
        try:
            need = next(steps)
            while True:
                try:
                    found = self._carry_out(need)
                except BaseException as error:  # noqa: BLE001 - whoever asked decides what it means
                    need = steps.throw(error)
                else:
                    need = steps.send(found)
        except StopIteration as done:
            value: T = done.value
            return value

    def _carry_out(self, need: Need) -> Any:
        if isinstance(need, Request):
            return self._wire.send(need)
        if isinstance(need, Pause):
            return time.sleep(need.seconds)
        if isinstance(need, Blocking):
            return need.work()
        found = _within(need.function, need.limit_seconds)
        if inspect.isawaitable(found):
            if inspect.iscoroutine(found):
                found.close()
            raise TypeError(NOT_HERE.format(need.function))
        return found


FORKED = (
    "this call was begun before this process was forked, and is made by the one that began it: a"
    " child begins calls of its own"
)
NOT_HERE = (
    "{} is a coroutine function, and this call is not awaited: use `async with`, and the methods"
    " that begin with `a`, such as `aperform`"
)


class AsyncDriver:
    """Carries out steps in the running event loop; safe to use from several loops."""

    def __init__(self, wire: AsyncWire) -> None:
        self._wire = wire
        self._threads: ThreadPoolExecutor | None = None
        forks.tell(self)

    def before_fork(self) -> None:
        """Whoever works in a thread goes on."""

    def after_fork(self) -> None:
        pass

    def born_of_fork(self) -> None:
        """No thread goes along to a child."""
        self._threads = None

    async def run(self, steps: Steps[T]) -> T:
        """What the steps return. Where the task is cancelled, they are told at the next place at
        which they wait for others; our own writing is done first.
        """
        missed: list[asyncio.CancelledError] = []
        try:
            need = next(steps)
            while True:
                try:
                    found = await self._carry_out(need, missed)
                except GeneratorExit:  # the loop is gone, and nothing can be carried out any more
                    steps.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - whoever asked decides what it means
                    need = steps.throw(error)
                else:
                    need = steps.send(found)
        except StopIteration as done:
            if missed:
                raise missed.pop() from None
            value: T = done.value
            return value
        except Exception as error:
            if missed:  # else whoever goes on after the error was never cancelled
                raise missed.pop() from error
            raise

    async def _carry_out(self, need: Need, missed: list[asyncio.CancelledError]) -> Any:
        """What came of it. That the task was cancelled while it was done anyway is `missed`, and
        raised before anything is waited for again.
        """
        if isinstance(need, Blocking):
            return await _to_the_end(self._in_thread(need.work), None, missed)
        if missed:
            raise missed.pop()
        if isinstance(need, Request) and not need.wait_seconds:
            return await _to_the_end(self._wire.send(need), CANCEL_GRACE_SECONDS, missed)
        if isinstance(need, Request):
            return await self._wire.send(need)
        if isinstance(need, Pause):
            return await asyncio.sleep(need.seconds)
        async with asyncio.timeout(need.limit_seconds):
            return await self._call(need.function)

    async def _call(self, function: Callable[[], Any]) -> Any:
        if is_coroutine_function(function):
            return await function()
        # In a thread of the loop's own: ours are for what is never long.
        found = await asyncio.to_thread(_ending, function)
        return await found if inspect.isawaitable(found) else found

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="amends")
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, context.run, work)

    def let_go(self) -> None:
        """End the threads, once each has done what it is at."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    async def close(self) -> None:
        """Close what this loop has opened."""
        await self._wire.close()


class Driven(Protocol):
    """Whose steps are carried out by a link's two drivers."""

    @property
    def driver(self) -> Driver: ...
    @property
    def async_driver(self) -> AsyncDriver: ...


S = TypeVar("S", bound=Driven)


class DrivenContext:
    """Whose steps on the way out of `with` or `async with` are carried out by the two drivers."""

    driver: Driver
    async_driver: AsyncDriver
    process: int
    """The one that began it: of what ends a child that was forked since, it is told nothing."""

    def must_be_ours(self) -> None:
        """Raises AmendsError in a child that was forked since: both would make the call."""
        if self.process != os.getpid():
            raise AmendsError(FORKED)

    def leaving(self, error: BaseException | None) -> Steps[None]:
        """What is told on the way out; `error` is what ends the block, if something does."""
        raise NotImplementedError

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or self.process == os.getpid():
            self.driver.run(self.leaving(error))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, GeneratorExit):
            await self.async_driver.run(self.leaving(error))
        elif _in_event_loop():  # closed early: nothing can be awaited, and the disk is told at once
            self.driver.run(self.leaving(error))


def waits(method: Callable[Concatenate[S, P], Steps[T]]) -> Callable[Concatenate[S, P], T]:
    """A method that carries out the steps of another on the calling thread."""

    @functools.wraps(method)
    def waiting(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.driver.run(method(self, *args, **kwargs))

    return waiting


def awaits(
    method: Callable[Concatenate[S, P], Steps[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """A method that carries out the steps of another in the running event loop."""

    @functools.wraps(method)
    async def awaiting(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.async_driver.run(method(self, *args, **kwargs))

    return awaiting


def _in_event_loop() -> bool:
    """Whether one runs here; else it is gone, and what it left is collected at any moment."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _to_the_end(
    work: Awaitable[T], grace_seconds: float | None, missed: list[asyncio.CancelledError]
) -> T:
    """What comes of it, though the task is cancelled meanwhile: for so long it is waited for."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError as cancelled:
        if task.cancelled():
            raise
        missed.append(cancelled)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):  # one is as good as two
            await asyncio.wait([task], timeout=grace_seconds)
        if grace_seconds is not None:
            break
    if not task.done():
        task.cancel()
        raise missed.pop()
    return task.result()


def _within(function: Callable[[], Any], limit_seconds: float | None) -> Any:
    """Call it; with a limit in a thread that is left to itself when the time is over."""
    if limit_seconds is None:
        return function()
    outcome: list[Any] = []
    context = contextvars.copy_context()

    def work() -> None:
        try:
            outcome.extend((True, context.run(function)))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            outcome.extend((False, error))

    thread = threading.Thread(target=work, name="amends-call", daemon=True)
    thread.start()
    thread.join(limit_seconds)
    if len(outcome) < 2:  # noqa: PLR2004
        raise TimeoutError(f"no end within {limit_seconds:g} s; it may still happen")
    if not outcome[0]:
        raise outcome[1]
    return outcome[1]


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Also of a partial one, and of an object whose `__call__` is one."""
    return any(map(inspect.iscoroutinefunction, (_bare(function), _function_of(function))))


def _ending(function: Callable[[], Any]) -> Any:
    """Call it. No event loop takes a StopIteration, and what waits for it would wait for ever."""
    try:
        return function()
    except StopIteration as error:
        raise RuntimeError(f"{_bare(function)} raised StopIteration") from error


# What is gone through later, and calls functions then.
LAZY = (map, filter, zip, enumerate)


def refuse_lazy(found: Any, whose: Any = None) -> None:
    """Raises TypeError for a generator function, and for the answer of `whose` call that is still
    to be gone through (a generator, a `map`) or to be awaited: what it does would be done after it
    was told. Such a one is closed, where it can be.
    """
    bare = _bare(found) if whose else _function_of(found)
    is_bits = inspect.isgeneratorfunction(bare) or inspect.isasyncgenfunction(bare)
    if whose and (inspect.isgenerator(bare) or inspect.iscoroutine(bare)):
        with contextlib.suppress(Exception):  # it is at work
            bare.close()
    if whose and inspect.isawaitable(bare):
        raise TypeError(NOT_AWAITED.format(whose))
    is_lazy = isinstance(bare, LAZY) or type(bare).__module__ == "itertools"
    if is_bits or is_lazy or inspect.isgenerator(bare) or inspect.isasyncgen(bare):
        raise TypeError(BIT_BY_BIT.format(whose or getattr(_bare(found), "__qualname__", found)))


def whole(function: Callable[..., Any], whose: str, *, is_awaited: bool) -> Callable[..., Any]:
    """The same function, which raises TypeError where it would answer with what is refused."""

    @functools.wraps(function)
    def answering(*args: Any, **kwargs: Any) -> Any:
        answer = function(*args, **kwargs)
        refuse_lazy(answer, whose)
        return answer

    @functools.wraps(function)
    async def answering_awaited(*args: Any, **kwargs: Any) -> Any:
        answer = await function(*args, **kwargs)
        refuse_lazy(answer, whose)
        return answer

    return answering_awaited if is_awaited else answering


BIT_BY_BIT = (
    "{} answers bit by bit, so that to call it does nothing yet: make the call of a function that"
    " goes through it and returns what came"
)
NOT_AWAITED = (
    "{} answers with what is still to be awaited, and is done after it: make the call of an"
    " asynchronous function that awaits it"
)


def _bare(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _function_of(function: Any) -> Any:
    """What is run where it is called: of an object, its `__call__`."""
    bare = _bare(function)
    is_object = callable(bare) and not (inspect.isroutine(bare) or inspect.isclass(bare))
    return type(bare).__call__ if is_object else bare
