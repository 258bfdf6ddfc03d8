"""A process that computes for the web process: `python -m workspaces.worker_process SOCKET MODULE`.

It reads calls from the socket that it inherited and writes what came of each, of whichever is done
first. When the other end is gone, however that came about, it ends at once, in the middle of
whatever it does: PostgreSQL then rolls back, and nobody is left who waits for the answer.
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

from workspaces.worker_processes import CALLS_AT_ONCE, HEAD

# As in the web process (config/asgi.py), which says why.
SWITCH_SECONDS = 0.0005
OBJECTS_BEFORE_SEARCHING = 50_000

# A call's number, and the call.
Calls = queue.SimpleQueue[tuple[int, bytes]]


class Unspeakable(Exception):
    """We stopped because of an exception that cannot leave its process; this is its text."""


def listen(channel: socket.socket, calls: Calls) -> None:
    """Put each call in the queue; the end of the channel is the end of this process."""
    with channel.makefile("rb") as stream:
        while len(head := stream.read(HEAD.size)) == HEAD.size:
            number, length = HEAD.unpack(head)
            calls.put((number, stream.read(length)))
    os._exit(0)


def work(channel: socket.socket, calls: Calls, sending: threading.Lock) -> None:
    while True:
        number, call = calls.get()
        try:
            answer = answered(call)
        except BaseException:  # noqa: BLE001 - nobody may wait for an answer that does not come
            traceback.print_exc()
            os._exit(1)
        with sending:
            send(channel, number, answer)


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


def main(socket_number: str, module: str) -> None:
    # A terminal or a service's manager tells all of us; the web process ends first, in order, and
    # then we see it gone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel = socket.socket(fileno=int(socket_number))
    calls: Calls = queue.SimpleQueue()
    threading.Thread(target=listen, args=(channel, calls), daemon=True).start()
    number, database_url = calls.get()
    prepare(module, pickle.loads(database_url))  # noqa: S301 - as above
    send(channel, number, pickled((None, None, "")))
    sending = threading.Lock()
    for _ in range(CALLS_AT_ONCE - 1):
        threading.Thread(target=work, args=(channel, calls, sending), daemon=True).start()
    work(channel, calls, sending)


def prepare(module: str, database_url: str) -> None:
    import django

    django.setup()
    import_module(module)
    from workspaces import edge

    edge.open_threads_pool(database_url, connections_max=CALLS_AT_ONCE, name="amends intake")
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_BEFORE_SEARCHING, 20, 20)


def send(channel: socket.socket, number: int, what: bytes) -> None:
    try:
        channel.sendall(HEAD.pack(number, len(what)) + what)
    except OSError:
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
