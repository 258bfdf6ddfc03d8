"""Types of msgspec that several threads read, described before the first of them does.

msgspec works out how a Struct is read when it is first needed, running Python code on the way. A
second thread that comes to the same type meanwhile finds the description half made and ends the
whole process with a segmentation fault (msgspec 0.22; batches of events from four clients that hit
a fresh web process did).
"""

import threading

import msgspec

_one_at_a_time = threading.Lock()


def described(*types: type[msgspec.Struct]) -> None:
    """Work the types out now. Whoever makes a type that threads will share calls this at once."""
    with _one_at_a_time:
        for one in types:
            msgspec.json.Decoder(one)
