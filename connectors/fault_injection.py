"""Ways out that are broken on purpose, for the contract test (`conformance`)."""

from __future__ import annotations

import socket
from typing import Any, NoReturn

import httpx

from connectors.outbound import Deadline, NotSent, Outbound, Response


class Shut(Outbound):
    """A way out by which nobody comes through."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise NotSent("The contract test lets nothing out.")

    connect = addresses = local_socket = request = _refuse


class Lossy(Outbound):
    """A way out on which the nth answer, and whatever comes after it, gets lost on its way back.

    Over `addresses` a library makes its connection itself, so nothing is lost there.
    """

    def __init__(self, deadline: Deadline, nth: int) -> None:
        super().__init__(deadline)
        self._left = nth

    @property
    def has_lost(self) -> bool:
        return self._left <= 0

    def is_lost(self) -> bool:
        """Whether the answer that comes now is one that gets lost."""
        self._left -= 1
        return self.has_lost

    def connect(self, host: str, port: int) -> socket.socket:
        made = super().connect(host, port)
        wire = _Line(fileno=made.detach())
        wire.settimeout(self.deadline.remaining())
        wire.way = self
        return wire

    def request(self, *asked: Any, **more: Any) -> Response:
        answer = super().request(*asked, **more)
        if self.is_lost():
            raise httpx.ReadError("The line is dead.")
        return answer


class _Line(socket.socket):
    """A connection that is dead once an answer was lost on it: each read counts as one."""

    way: Lossy

    def recv(self, *size: Any) -> bytes:
        heard = b"" if self.way.has_lost else super().recv(*size)
        return b"" if self.way.is_lost() else heard

    def recv_into(self, *place: Any) -> int:
        count = 0 if self.way.has_lost else super().recv_into(*place)
        return 0 if self.way.is_lost() else count
