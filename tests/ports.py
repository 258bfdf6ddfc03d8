"""Free ports for the servers that tests start, and small ones that are served from a thread.

A free port is taken below the range from which the system gives ports to outgoing connections,
where somebody else's could sit on it before our server does; none twice in this process, for what
was just closed may still be on its way out; and each runner of `pytest -n` from a part of its own,
for seconds pass between the choice of a port and the server that listens there.
"""

import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FIRST, END = 10_240, 32_000
TRIES_MAX = 1_000

_given: set[int] = set()


def _own_part() -> range:
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    size = (END - FIRST) // max(count, number + 1)
    return range(FIRST + number * size, FIRST + (number + 1) * size)


def free_ports(count: int) -> int:
    """The first of `count` free ports in a row on loopback."""
    part = _own_part()
    for _ in range(TRIES_MAX):
        first = part.start + secrets.randbelow(len(part) - count)
        row = range(first, first + count)
        if _given.isdisjoint(row) and all(map(_is_free, row)):
            _given.update(row)
            return first
    raise AssertionError(f"No {count} free ports in a row.")


def free_port() -> int:
    return free_ports(1)


def _is_free(port: int) -> bool:
    """Nobody listens there, on any address, and no ended connection still holds it."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server that answers as this handler does, for so long; its address. Left to itself, it
    would look only twice a second whether it is over, and write each request to stderr.
    """
    quiet = type(handler.__name__, (handler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), quiet) as server:
        threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
