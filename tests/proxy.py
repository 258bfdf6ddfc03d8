"""A small TCP proxy that loses things on purpose, between a caller and a real server.

Both sides are honest programs that nobody changed: what goes wrong, goes wrong on the way, as it
does in a network.
"""

import contextlib
import ctypes
import socket
import struct
import threading
from types import TracebackType
from typing import Self

PIECE_BYTES = 65_536
# Of Linux (asm-generic/socket.h); Python does not name them.
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
BPF_RET = 0x06
_TAKE_NOTHING = ctypes.create_string_buffer(struct.pack("HBBI", BPF_RET, 0, 0, 0))


def _nothing() -> bytes:
    """A `sock_fprog` of one instruction: of each packet that arrives, keep nothing."""
    return struct.pack("HL", 1, ctypes.addressof(_TAKE_NOTHING))


class Proxy:
    """Listens on `port` of this machine and passes everything on to `to`, a port or a socket.

    It listens on loopback, or `at` another address of the machine, at any free `port` unless one is
    said.
    """

    def __init__(self, to: tuple[str, int] | str, at: str = "127.0.0.1", port: int = 0) -> None:
        self.to = to
        self.lost = 0
        self.halves = False  # of each answer only the first half arrives, and then the line is dead
        self._lose = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._door = socket.create_server((at, port))
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

    def vanish(self) -> None:
        """The host is gone without a word: what is sent to it is not even acknowledged, so that the
        caller's kernel ends with ETIMEDOUT; nor does anybody get a new connection.
        """
        with self._lock:
            for one in [self._door, *self._open]:
                if one.family == socket.AF_INET:
                    one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, _nothing())

    def come_back(self) -> None:
        """The host is there again, and knows nothing of the connections that it had."""
        self._door.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
        self.cut()

    def _take(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._door.accept()
                try:
                    far = self._dial()
                except OSError:  # nobody is there: whoever asks is told so
                    hang_up(near)
                    continue
                with self._lock:
                    self._open |= {near, far}
                threading.Thread(target=self._pass, args=(near, far), daemon=True).start()
                threading.Thread(target=self._answer, args=(far, near), daemon=True).start()

    def _dial(self) -> socket.socket:
        if isinstance(self.to, tuple):
            return socket.create_connection(self.to)
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(self.to)
        except OSError:
            far.close()
            raise
        return far

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := near.recv(PIECE_BYTES):
                if not self._heard(near, piece):
                    hang_up(near)
                    break
                far.sendall(piece)
            far.shutdown(socket.SHUT_WR)

    def _heard(self, near: socket.socket, piece: bytes) -> bool:
        """What the caller says, before it is passed on; False lets the line die instead."""
        return True

    def _answer(self, far: socket.socket, near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := far.recv(PIECE_BYTES):
                if self._loses(near):
                    break
                near.sendall(piece[: len(piece) // 2] if self.halves else piece)
                if self.halves:
                    break
        for one in (near, far):
            hang_up(one)
        with self._lock:
            self._open -= {near, far}

    def _loses(self, near: socket.socket) -> bool:
        """Whether this answer is lost, and the line with it."""
        with self._lock:
            if not self._lose:
                return False
            self._lose -= 1
            self.lost += 1
            return True


class CommitInDoubt(Proxy):
    """In front of PostgreSQL: of the commits of transactions that say `word`, some are cut off.

    `fates` says of each such commit in turn what becomes of it: "kept" as if nothing was, "never"
    (it does not arrive), or "silent" (it is made, and nobody is told).
    """

    def __init__(self, to: str, word: bytes, fates: list[str]) -> None:
        super().__init__(to)
        self.word, self.fates = word, fates
        self.met: list[str] = []
        self._speaking: set[socket.socket] = set()
        self._silent: set[socket.socket] = set()

    def _heard(self, near: socket.socket, piece: bytes) -> bool:
        if self.word in piece:
            self._speaking.add(near)
        if b"COMMIT" not in piece or near not in self._speaking:
            return True
        self._speaking.discard(near)
        with self._lock:
            fate = self.fates.pop(0) if self.fates else "kept"
            self.met.append(fate)
        if fate == "silent":
            self._silent.add(near)
        return fate != "never"

    def _loses(self, near: socket.socket) -> bool:
        return near in self._silent


def hang_up(line: socket.socket) -> None:
    """At once, whatever is still on its way."""
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    line.close()
