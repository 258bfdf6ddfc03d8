"""A small TCP proxy that loses things on purpose, between a caller and a real server.

Both sides are honest programs that nobody changed: what goes wrong, goes wrong on the way, as it
does in a network.
"""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

PIECE_BYTES = 65_536


class Proxy:
    """Listens on `port` of this machine and passes everything on to `to`."""

    def __init__(self, to: tuple[str, int]) -> None:
        self.to = to
        self.lost = 0
        self._lose = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        threading.Thread(target=self._take, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._door.close()
        self.cut()

    def lose_answers(self, count: int = 1) -> None:
        """Let the next so many answers be lost: asked and done, and then the line is dead."""
        with self._lock:
            self._lose = count

    def cut(self) -> None:
        """Cut every connection that is open now."""
        with self._lock:
            cut, self._open = self._open, set()
        for one in cut:
            hang_up(one)

    def _take(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._door.accept()
                far = socket.create_connection(self.to)
                with self._lock:
                    self._open |= {near, far}
                threading.Thread(target=self._pass, args=(near, far), daemon=True).start()
                threading.Thread(target=self._answer, args=(far, near), daemon=True).start()

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := near.recv(PIECE_BYTES):
                far.sendall(piece)
            far.shutdown(socket.SHUT_WR)

    def _answer(self, far: socket.socket, near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := far.recv(PIECE_BYTES):
                if self._loses():
                    break
                near.sendall(piece)
        for one in (near, far):
            hang_up(one)
        with self._lock:
            self._open -= {near, far}

    def _loses(self) -> bool:
        with self._lock:
            if not self._lose:
                return False
            self._lose -= 1
            self.lost += 1
            return True


def hang_up(line: socket.socket) -> None:
    """At once, whatever is still on its way."""
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    line.close()
