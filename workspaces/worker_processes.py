"""Children: processes that compute beside the web process, each with an interpreter of its own.

A child (workspaces/worker_process.py) does two calls at once, since either often waits for
PostgreSQL. It holds nothing that matters: whoever kills it costs the calls that it had. It ends
when its end of the socket says that we are gone.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import pickle
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from psycopg_pool import TooManyRequests

from workspaces import edge

logger = logging.getLogger(__name__)
T = TypeVar("T")

# Django's set-up takes a second of a core; on a busy machine some more.
START_SECONDS_MAX = 60.0
# One that did not start is not tried again for so long; threads do the work meanwhile.
START_AGAIN_SECONDS = 30.0
END_SECONDS_MAX = 5.0
# A batch takes tens of milliseconds, and its waits for a connection and for locks end after 5 s
# each. A child that needs longer than this is stopped or stuck, and holds all who call it.
CALL_SECONDS_MAX = 60.0
# While one call waits for PostgreSQL, another computes; a third would wait for the interpreter.
CALLS_AT_ONCE = 2
BUFFER_BYTES = 1024 * 1024
# Where a child finds our modules, from wherever the web process was started.
PATHS = [str(Path(path).absolute()) for path in sys.path]
# Before each call and each answer: the call's number, and how many bytes follow.
HEAD = struct.Struct("!QQ")

ENDED = "a process that computes ended"


class Ended(Exception):
    """We stopped because the process that dealt with this ended: what it did may be kept or not.
    Ask again.
    """


class InChild(Exception):
    """The cause of an exception that came from a child: its traceback there, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Child:
    """One of them, as the web process sees it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process, self._reader, self._writer = process, reader, writer
        self._numbers = itertools.count()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.calls = 0
        """How many were lent it and did not give it back."""
        self.listening = asyncio.get_running_loop().create_task(self._listen())
        """Done when it has ended."""

    @classmethod
    async def start(cls, module: str, database_url: str) -> "Child":
        """One that has imported `module` and is ready to be called."""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        environment = os.environ | {
            "AMENDS_PROCESS": "intake",
            "PYTHONPATH": os.pathsep.join(PATHS),
        }
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "workspaces.worker_process", str(theirs.fileno()), module,
                stdin=asyncio.subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=environment,
            )  # fmt: skip
        found = cls(process, *await asyncio.open_unix_connection(sock=ours, limit=BUFFER_BYTES))
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                await found.ask(database_url)
        except BaseException:
            found.kill()
            raise
        return found

    async def ask(self, what: Any) -> Any:
        """What it makes of `what`; raises what it raised there, or `Ended`."""
        pickled = pickle.dumps(what, pickle.HIGHEST_PROTOCOL)
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(HEAD.pack(number, len(pickled)))
            self._writer.write(pickled)
            await self._writer.drain()
            if self.listening.done():
                raise Ended(ENDED)
            value, raised, told = await answer
        except OSError as lost:
            raise Ended(ENDED) from lost
        finally:
            del self._answers[number]
        if raised is not None:
            raise raised from InChild(told)
        return value

    async def _listen(self) -> None:
        """Hand out its answers until it ends; whoever waits for another one then learns of it."""
        try:
            while True:
                number, length = HEAD.unpack(await self._reader.readexactly(HEAD.size))
                found = pickle.loads(  # noqa: S301 - our own process wrote it
                    await self._reader.readexactly(length)
                )
                self._tell(number, found)
        except (asyncio.IncompleteReadError, OSError):
            return
        finally:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(Ended(ENDED))

    def _tell(self, number: int, found: Any) -> None:
        answer = self._answers.get(number)
        if answer is not None and not answer.done():
            answer.set_result(found)

    def kill(self) -> None:
        self._writer.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        """It ends by itself as soon as we are gone from the socket."""
        self._writer.close()
        try:
            await asyncio.wait_for(self._process.wait(), END_SECONDS_MAX)
        except TimeoutError:
            self.kill()
            await self._process.wait()


class Children:
    """A few of them, started when first needed. Until one is ready, and where there shall be none,
    threads of the web process do the same.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._count = 0
        self._url = ""
        self._reset()

    def _reset(self) -> None:
        self._living: set[Child] = set()
        self._waiting: deque[asyncio.Future[Child | None]] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._starting = 0
        self._calls = 0
        self._start_after = 0.0

    def open(self, count: int, database_url: str) -> None:
        self._count, self._url = count, database_url

    async def close(self) -> None:
        self._count = 0
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        living, self._living = self._living, set()
        await asyncio.gather(*(child.end() for child in living))
        self._reset()

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """What the function returns; it and what it is given are pickled. Raises what it raises,
        `TooManyRequests`, or `Ended`, also when it takes longer than CALL_SECONDS_MAX.

        Whoever is cancelled while waiting does not stop it.
        """
        self._start_missing()
        if not self._living:
            return await edge.in_thread(function, *args)
        if self._calls >= edge.THREADS_WAITING_MAX:
            raise TooManyRequests("too many calls wait for a process")
        self._calls += 1
        return await asyncio.shield(self._task(self._lend(function, *args)))

    def _task(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _lend(self, function: Callable[..., T], *args: Any) -> T:
        try:
            child = await self._borrow()
            if child is None:
                return await edge.in_thread(function, *args)
            try:
                value: T = await self._bounded(child, (function, args))
            finally:
                child.calls -= 1
                self._offer(child)
            return value
        finally:
            self._calls -= 1

    async def _bounded(self, child: Child, what: Any) -> Any:
        """Its answer. One that does not answer in time is killed, with all that it has in hand."""
        limit = asyncio.timeout(CALL_SECONDS_MAX)
        try:
            async with limit:
                return await child.ask(what)
        except TimeoutError as late:
            if not limit.expired():
                raise  # the function's own
            logger.warning("a process that computes did not answer in %d s", CALL_SECONDS_MAX)
            self._lose(child)
            raise Ended(ENDED) from late

    async def _borrow(self) -> Child | None:
        """The one with the fewest calls, when it has room for another; None if there is none."""
        if not self._living:
            return None
        child = min(self._living, key=attrgetter("calls"))
        if child.calls < CALLS_AT_ONCE:
            child.calls += 1
            return child
        waiter: asyncio.Future[Child | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return await waiter

    def _offer(self, child: Child) -> None:
        """It has room: who has waited longest may have it."""
        while self._waiting and child in self._living and child.calls < CALLS_AT_ONCE:
            waiter = self._waiting.popleft()
            if not waiter.done():
                child.calls += 1
                waiter.set_result(child)

    def _lose(self, child: Child) -> None:
        if child not in self._living:
            return  # we are closing, or did not wait for its end
        logger.warning("a process that computes ended; the next large call starts another")
        child.kill()
        self._living.discard(child)
        if not self._living:  # then threads do what waits
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiting.clear()
        elif self._waiting:
            self._start_missing()

    def _start_missing(self) -> None:
        if time.monotonic() < self._start_after:
            return
        for _ in range(self._count - len(self._living) - self._starting):
            self._starting += 1
            self._task(self._start())

    async def _start(self) -> None:
        try:
            child = await Child.start(self._module, self._url)
        except Exception:
            self._start_after = time.monotonic() + START_AGAIN_SECONDS
            logger.exception("a process that computes did not start; threads do its work")
        else:
            self._living.add(child)
            child.listening.add_done_callback(lambda _: self._lose(child))
            self._offer(child)
        finally:
            self._starting -= 1
