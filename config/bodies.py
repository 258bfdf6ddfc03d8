"""Bodies of pages: Django reads a whole body before anybody looks at the request, onto the disk
where it is large. So what may come, and how many at once, is decided in front of it.

The hot door reads its own, and only of who showed a key (ledger/agent_keys.py).
"""

from collections import Counter
from typing import Any

from django.conf import settings

from edge.asgi import Message, Receive, Scope, Send

# How many bodies may be arriving at once that did not come whole with their head, as a form does.
LARGE_AT_ONCE_MAX = 32
LARGE_PER_ADDRESS_MAX = 8
RETRY_SECONDS = b"2"


class TooLarge(Exception):
    """We stopped because the body is larger than any page takes."""


class TooMany(Exception):
    """We stopped because too many large bodies are arriving at once; come back in a moment."""


class Bounded:
    """`application` with bodies of at most DATA_UPLOAD_MAX_MEMORY_SIZE bytes, a few at a time."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._arriving: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        began = False

        async def noting(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        body = Body(self, scope, receive)
        try:
            check_length(scope)
            await self._application(scope, body.receive, noting)
        except (TooLarge, TooMany) as refusal:
            if began:
                raise
            await refuse(send, refusal)
        finally:
            body.leave()

    def enter(self, address: str) -> None:
        all_of_them, its_own = self._arriving.total(), self._arriving[address]
        if all_of_them >= LARGE_AT_ONCE_MAX or its_own >= LARGE_PER_ADDRESS_MAX:
            raise TooMany
        self._arriving[address] += 1

    def leave(self, address: str) -> None:
        self._arriving[address] -= 1
        if not self._arriving[address]:
            del self._arriving[address]


class Body:
    """One body on its way; counted among those that arrive once it did not come whole."""

    def __init__(self, bounded: Bounded, scope: Scope, receive: Receive) -> None:
        self._bounded, self._receive = bounded, receive
        self._address = str((scope.get("client") or ("",))[0])
        self._bytes = 0
        self._is_counted = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._bytes += len(message.get("body", b""))
        if self._bytes > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            raise TooLarge
        if not message.get("more_body"):
            self.leave()
        elif not self._is_counted:
            self._bounded.enter(self._address)
            self._is_counted = True
        return message

    def leave(self) -> None:
        if self._is_counted:
            self._is_counted = False
            self._bounded.leave(self._address)


def check_length(scope: Scope) -> None:
    """Raise `TooLarge` if `content-length` says so, before anything is read."""
    said = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if said.isdigit() and int(said) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
        raise TooLarge


async def refuse(send: Send, refusal: Exception) -> None:
    status, words = (413, b"The body is too large.\n")
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    if isinstance(refusal, TooMany):
        status, words = (503, b"Overloaded, come back in a moment.\n")
        headers.append((b"retry-after", RETRY_SECONDS))
    headers.append((b"content-length", str(len(words)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": words})
