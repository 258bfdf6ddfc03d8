"""A process that computes for the web process: `python -m workspaces.child SOCKET MODULE`.

It reads calls from the socket that it inherited and writes what came of each. When the other end
is gone, however that came about, it ends at once, in the middle of whatever it does: PostgreSQL
then rolls back, and nobody is left who waits for the answer.
"""

import gc
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import traceback
from importlib import import_module
from typing import Any

from workspaces.children import LENGTH

# As in the web process (config/asgi.py).
OBJECTS_BEFORE_SEARCHING = 50_000


class Unspeakable(Exception):
    """We stopped because of an exception that cannot leave its process; this is its text."""


def listen(channel: socket.socket, calls: "queue.SimpleQueue[bytes]") -> None:
    """Put each call in the queue; the end of the channel is the end of this process."""
    with channel.makefile("rb") as stream:
        while head := stream.read(LENGTH.size):
            if len(head) < LENGTH.size:
                break
            calls.put(stream.read(LENGTH.unpack(head)[0]))
    os._exit(0)


def answered(call: bytes) -> bytes:
    """What the function returned, or what it raised and where; pickled."""
    try:
        function, args = pickle.loads(call)  # noqa: S301 - the web process wrote it
        return pickled((function(*args), None, ""))
    except Exception as error:  # noqa: BLE001 - the web process raises it
        told = traceback.format_exc()
        try:
            whole = pickled((None, error, told))
            pickle.loads(whole)  # noqa: S301 - we wrote it; many can be written and not read
        except Exception:  # noqa: BLE001 - whatever its own code does
            return pickled((None, Unspeakable(repr(error)), told))
        return whole


def pickled(what: Any) -> bytes:
    return pickle.dumps(what, pickle.HIGHEST_PROTOCOL)


def main(number: str, module: str) -> None:
    # A terminal or a service's manager tells all of us; the web process ends first, in order, and
    # then we see it gone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel = socket.socket(fileno=int(number))
    calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(channel, calls), daemon=True).start()
    prepare(module, pickle.loads(calls.get()))  # noqa: S301 - as above
    send(channel, pickled((None, None, "")))
    while True:
        send(channel, answered(calls.get()))


def prepare(module: str, database_url: str) -> None:
    import django

    django.setup()
    import_module(module)
    from workspaces import hot

    hot.open_threads_pool(database_url, connections_max=1, name="amends intake")
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_BEFORE_SEARCHING, 20, 20)


def send(channel: socket.socket, what: bytes) -> None:
    try:
        channel.sendall(LENGTH.pack(len(what)) + what)
    except OSError:
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
