"""Free ports for the servers that tests start.

Taken below the range from which the system gives ports to outgoing connections, where somebody
else's connection could sit on it before our server does; and none twice in this process, for what
was just closed may still be on its way out.
"""

import secrets
import socket

FIRST, END = 10_240, 32_000
TRIES_MAX = 1_000

_given: set[int] = set()


def free_ports(count: int) -> int:
    """The first of `count` free ports in a row on loopback."""
    for _ in range(TRIES_MAX):
        first = FIRST + secrets.randbelow(END - FIRST - count)
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
