"""Web: `python -m config.web`, uvicorn with limits on who merely holds a connection.

By default two processes accept from one listening socket, since threads of one share an
interpreter. They share nothing else: whatever must be known to both is in PostgreSQL or comes over
the broker, and limits are each one's own (docs/decisions/web-processes.md).

A request that never ends costs its sender nothing and us a file of the thousand that we may have
open, and so does an answer that nobody takes. So a request has to arrive, head and body, within a
time, and its answer has to be taken; of connections that wait for their client one address keeps a
few; and no more are taken than there are files for.
"""

import argparse
import asyncio
import contextlib
import logging
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from django.conf import settings
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.supervisors import Multiprocess

from config import env
from config.local.parent_death_signal import die_with_parent

logger = logging.getLogger(__name__)

HEAD_SECONDS_MAX = env.number("AMENDS_HEAD_SECONDS", 15)
# The largest body is 8 MiB; over a line of two megabits it takes half of this.
BODY_SECONDS_MAX = env.number("AMENDS_BODY_SECONDS", 60)
# 64 KiB, as much as is kept here of an answer, over the slowest line there is.
READ_SECONDS_MAX = env.number("AMENDS_READ_SECONDS", 60)
# Of one address, beyond this many requests that are still arriving the oldest is let go. Where a
# proxy stands in front all have its address, and it has limits of its own.
ARRIVING_PER_ADDRESS_MAX = 128
# One that is younger is given its chance: many agents may begin in the same moment.
ARRIVING_SECONDS_MIN = 2.0
FILES_WANTED = 65_536
# For pools, logs, static files and whatever else is open beside connections.
FILES_RESERVED = 256
FILES_MIN = 1_024
BACKLOG = 2_048
STOP_SECONDS_MAX = 5
FIGURES = "PROMETHEUS_MULTIPROC_DIR"
# Room for what one process counts, by the kinds of its files: 280 kinds of answers at the edge.
FIGURES_BYTES = {"counter": 2**16, "gauge_livesum": 2**16, "histogram": 2**20}
# One of several that does not answer its parent for so long is stopped or stuck: another takes its
# place.
SILENT_SECONDS_MAX = 10

TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 2\r\n"
    b"connection: close\r\n\r\n"
)


class ForClient:
    """The connections that wait for their client, the oldest first; by address, and all."""

    def __init__(self, give_up: Callable[["Protocol"], None]) -> None:
        self._give_up = give_up
        self._all: OrderedDict[Protocol, tuple[str, float]] = OrderedDict()
        self._of: dict[str, OrderedDict[Protocol, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def begin(self, one: "Protocol", address: str) -> None:
        """Let the oldest of the address go where it has too many."""
        self._all[one] = (address, time.monotonic())
        others = self._of.setdefault(address, OrderedDict())
        others[one] = None
        if len(others) > ARRIVING_PER_ADDRESS_MAX and not settings.AMENDS_TRUST_PROXY:
            self._let_go(next(iter(others)))

    def end(self, one: "Protocol") -> None:
        found = self._all.pop(one, None)
        if found is not None:
            others = self._of[found[0]]
            del others[one]
            if not others:
                del self._of[found[0]]

    def make_room(self) -> bool:
        """Whether one could be let go: of the address that has most of them, where it has too many
        (then however young), else the oldest of all.
        """
        if not self._all:
            return False
        most = max(self._of.values(), key=len)
        if len(most) > ARRIVING_PER_ADDRESS_MAX:
            self._give_up(next(iter(most)))
            return True
        return self._let_go(next(iter(self._all)))

    def _let_go(self, oldest: "Protocol") -> bool:
        if time.monotonic() - self._all[oldest][1] < ARRIVING_SECONDS_MIN:
            return False
        self._give_up(oldest)
        return True


class Protocol(HttpToolsProtocol):
    """uvicorn's own, a clock for each request until it has arrived, and one for each answer that
    is not taken.
    """

    arriving = ForClient(lambda one: one.give_up())
    untaken = ForClient(lambda one: one.hang_up())
    connections_max = FILES_MIN - FILES_RESERVED
    _clock: asyncio.TimerHandle | None = None
    _seconds = 0.0
    """How long the next part of the request may take, where its clock is not set yet."""
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        is_full = len(self.connections) > self.connections_max
        if is_full and not (self.arriving.make_room() or self.untaken.make_room()):
            transport.write(FULL)
            transport.close()
            return
        self._wait(HEAD_SECONDS_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        self._taken()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Most requests come in one piece or two, and are here before a clock is worth setting.
        What begins no request ends uvicorn's clock of the idle line all the same.
        """
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if self._seconds:
            self._wait(self._seconds)
        elif self._clock is None and cycle is not None and cycle.response_complete:
            self._wait(HEAD_SECONDS_MAX)

    def on_message_begin(self) -> None:
        self._seconds = HEAD_SECONDS_MAX
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._seconds = BODY_SECONDS_MAX
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._arrived()
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        self._taken()
        super().resume_writing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._taken()
        self.loop.call_soon(self._wait_for_reader)  # the transport sends when this turn ends

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._wait_for_reader()  # a transport that closes sends first what it has

    def shutdown(self) -> None:
        """uvicorn ends, and asks each connection to: the first one also has who waits answered."""
        from edge.asgi import shut_down

        super().shutdown()
        shut_down()

    def give_up(self) -> None:
        """Close it; whoever waits for the rest of the request hears that the client is gone."""
        self._arrived()
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or not cycle.response_started:
            self.transport.write(TIMED_OUT)
        self.transport.close()
        self._wait_for_reader()

    def hang_up(self) -> None:
        """Nobody takes the answer: what is left of it goes."""
        self._taken()
        self.transport.abort()

    def _wait(self, seconds: float) -> None:
        self._arrived()
        self.arriving.begin(self, self.client[0] if self.client else "")
        self._clock = self.loop.call_later(seconds, self.give_up)

    def _arrived(self) -> None:
        self._seconds = 0.0
        self.arriving.end(self)
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _wait_for_reader(self) -> None:
        is_open = self in self.connections
        if is_open and self._reading is None and self.transport.get_write_buffer_size():
            self.untaken.begin(self, self.client[0] if self.client else "")
            self._reading = self.loop.call_later(READ_SECONDS_MAX, self._look_at_reader)

    def _look_at_reader(self) -> None:
        if self.transport.get_write_buffer_size():
            self.hang_up()
        else:
            self._taken()

    def _taken(self) -> None:
        self.untaken.end(self)
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None


def raise_file_limit() -> int:
    """How many files this process may have open, raised as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return FILES_WANTED if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def application() -> Any:
    """What one process serves. uvicorn calls this where it serves: here, or in a child of ours."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        die_with_parent(signal.SIGTERM)
        if os.getppid() != parent.pid:  # it died before we could ask
            raise SystemExit(1)
        reserve_figures()
    files = raise_file_limit()
    Protocol.connections_max = max(files - FILES_RESERVED, files // 2)
    from config.asgi import application as served  # Django is set up there

    return served


@contextlib.contextmanager
def shared_figures() -> Iterator[None]:
    """A folder where several processes keep what they count, so that any can tell Prometheus all
    of it. It is gone afterwards: counters start anew, as those of one process do.
    """
    with contextlib.ExitStack() as kept:
        try:
            folder = kept.enter_context(tempfile.TemporaryDirectory(prefix="amends-figures-"))
            os.environ[FIGURES] = folder
        except OSError as full:
            logger.warning("Each process tells /metrics what it alone counts: %s", full)
        yield


def reserve_figures() -> None:
    """Room on the disk for what this process will count. Prometheus's client writes to its files
    as to memory, so the first page for which a full disk has no room would end the process
    (SIGBUS), and each that takes its place.
    """
    folder = os.environ.get(FIGURES)
    if folder is None:
        return
    of = Path(folder)
    mine = {of / f"{kind}_{os.getpid()}.db": size for kind, size in FIGURES_BYTES.items()}
    try:
        for path, size in mine.items():
            with path.open("ab") as file:  # of who had our number before, it is there
                os.posix_fallocate(file.fileno(), 0, size)
    except OSError as full:
        logger.warning("Its own /metrics tells what this process alone counts: %s", full)
        del os.environ[FIGURES]
        for path in mine:
            with contextlib.suppress(OSError):
                if not path.stat().st_size:  # which nobody could read
                    path.unlink()


def serve(config: uvicorn.Config) -> int:
    """The exit code: that of a process that cannot start, for another would not start either."""
    if config.workers == 1:
        server = uvicorn.Server(config)
        with contextlib.suppress(KeyboardInterrupt):  # it has ended in order before this is raised
            server.run()
        return 0 if server.started else STARTUP_FAILURE
    with shared_figures():
        several = Multiprocess(config, [config.bind_socket()])
        several.run()
    failed = any(one.exitcode == STARTUP_FAILURE for one in several.processes)
    return STARTUP_FAILURE if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m config.web", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    os.environ.setdefault("AMENDS_PROCESS", "web")
    files = raise_file_limit()
    if files < FILES_MIN:
        logger.warning("Only %d files may be open: raise `ulimit -n` to %d.", files, FILES_MIN)
    config = uvicorn.Config(
        "config.web:application",
        factory=True,
        workers=env.web_processes(),
        host=options.host,
        port=options.port,
        http="config.web:Protocol",  # by its name: a child would take ours for another
        ws="none",
        access_log=False,  # addresses hold tokens; a proxy in front writes one, if anybody wants it
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=STOP_SECONDS_MAX,
        timeout_worker_healthcheck=SILENT_SECONDS_MAX,
        log_level="warning",
    )
    return serve(config)


if __name__ == "__main__":
    sys.exit(main())
