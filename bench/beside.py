"""Batches that come in beside another measure: 5,000 events a second from a process of its own.

    python -m bench.beside URL TOKEN

says that it is ready, begins with the first line of its input, and ends with it.
"""

import sys
import threading
import time

from bench.ingest import batches, post_all

BATCHES_PER_S = 10
BATCHES = 30
# Ends by itself where nobody tells it to; longer than any measure beside it.
WAIT_SECONDS_MAX = 240.0


def until_told(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


def main(url: str, token: str) -> None:
    post_all(url, token, batches(BATCHES, "warm"))  # the processes for batches start meanwhile
    print("ready", flush=True)
    sys.stdin.readline()
    over = threading.Event()
    threading.Thread(target=until_told, args=[over], daemon=True).start()
    count, begun = 0, time.monotonic()
    while not over.is_set() and time.monotonic() < begun + WAIT_SECONDS_MAX:
        body = batches(1, f"beside-{count}")
        post_all(url, token, body)
        count += 1
        over.wait(max(0.0, begun + count / BATCHES_PER_S - time.monotonic()))
    print(round(count / (time.monotonic() - begun), 1), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
