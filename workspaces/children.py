"""Children: processes that compute beside the web process, each with an interpreter of its own.

A child (workspaces/child.py) does one call at a time and holds nothing that matters: whoever kills
it costs the call that it had. It ends when its end of the socket says that we are gone.
"""

import asyncio
import contextlib
import logging
import os
import pickle
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from psycopg_pool import TooManyRequests

from workspaces import hot

logger = logging.getLogger(__name__)
T = TypeVar("T")

# Django's set-up takes a second of a core; on a busy machine some more.
START_SECONDS_MAX = 60.0
# One that did not start is not tried again for so long; threads do the work meanwhile.
START_AGAIN_SECONDS = 30.0
END_SECONDS_MAX = 5.0
BUFFER_BYTES = 1024 * 1024
# Where a child finds our modules, from wherever the web process was started.
PATHS = [str(Path(path).absolute()) for path in sys.path]
LENGTH = struct.Struct("!Q")


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
        self._is_lost = False

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
                sys.executable, "-m", "workspaces.child", str(theirs.fileno()), module,
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

    @property
    def is_gone(self) -> bool:
        ended = self._process.returncode is not None or self._reader.at_eof()
        return ended or self._is_lost

    async def ask(self, what: Any) -> Any:
        """What it makes of `what`; raises what it raised there, or `Ended`."""
        pickled = pickle.dumps(what, pickle.HIGHEST_PROTOCOL)
        try:
            self._writer.write(LENGTH.pack(len(pickled)))
            self._writer.write(pickled)
            await self._writer.drain()
            (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            value, raised, told = pickle.loads(  # noqa: S301 - our own process wrote it
                await self._reader.readexactly(length)
            )
        except (asyncio.IncompleteReadError, OSError) as lost:
            self._is_lost = True
            raise Ended("a process that computes ended") from lost
        if raised is not None:
            raise raised from InChild(told)
        return value

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
        self._idle: list[Child] = []
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
        await asyncio.gather(*(child.end() for child in self._living))
        self._reset()

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """What the function returns; it and what it is given are pickled. Raises what it raises,
        `Ended`, or `TooManyRequests`.

        Whoever is cancelled while waiting does not stop it.
        """
        self._start_missing()
        if not self._living:
            return await hot.in_thread(function, *args)
        if self._calls >= hot.THREADS_WAITING_MAX:
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
                return await hot.in_thread(function, *args)
            try:
                value: T = await child.ask((function, args))
            finally:
                self._give_back(child)
            return value
        finally:
            self._calls -= 1

    async def _borrow(self) -> Child | None:
        while self._idle:
            child = self._idle.pop()
            if not child.is_gone:
                return child
            self._lose(child)
        if not self._living:
            return None
        waiter: asyncio.Future[Child | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return await waiter

    def _give_back(self, child: Child) -> None:
        if child.is_gone:
            self._lose(child)
            return
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(child)
                return
        self._idle.append(child)

    def _lose(self, child: Child) -> None:
        logger.warning("a process that computes ended; another is started")
        child.kill()
        self._living.discard(child)
        if not self._living:  # then threads do what waits
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiting.clear()
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
            self._give_back(child)
        finally:
            self._starting -= 1
