"""The only way out over HTTP: one address rule, one deadline and one size cap for every connector.

Redirects are not followed. The deadline covers the whole call, a silent name server and a body that
drips in a byte a second included. What is signed is signed as Standard Webhooks say
(https://www.standardwebhooks.com).
"""

from __future__ import annotations

import ipaddress
import os
import queue
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpcore
import httpx
import msgspec
from django.conf import settings
from standardwebhooks import Webhook

from workspaces import clock

T = TypeVar("T")

# How a connector says no. Import them from `connectors.contract`.


class Refused(Exception):
    """We stopped because it is certain that nothing happened, and nothing will.

    Raise it for arguments that cannot be sent, and for an answer that the outside system documents
    as a refusal. It is the only way to the outcome `no_effect`, so never raise it for a time-out, a
    lost connection or a 5xx. The message is shown to people: one sentence, no credentials.
    """


class CannotRead(Exception):
    """We stopped because the target could not be read. Nothing is known of it; ask again later."""


class CannotRestore(CannotRead):
    """We stopped because what was recorded cannot be given back as it was, and never will.

    Raise it where the record may mean more than one value, or where the target cannot take what it
    says. The message is shown to people: one sentence that says what, and why.
    """


# Where a call may go, and when it must end. A name is resolved once, every address it has is
# checked, and the connection goes to an address that was checked: a name that answers differently
# the second time gains nothing (DNS rebinding). Addresses that are not globally routable are
# refused unless the deployment allows the name in `OUTBOUND_ALLOW` ("host" or "host:port"); nobody
# can allow one from the console. Numbers in decimal, octal or hex are resolved like names, so they
# are judged by what they mean.

CONNECT_SECONDS_MAX = 5.0
ADDRESSES_MAX = 8

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class NotSent(Refused):
    """We stopped because no connection came about: not one byte of the request has left."""


class AddressRefused(NotSent):
    """We stopped because the address is not public; OUTBOUND_ALLOW may name the host."""


class OutOfTime(Exception):
    """We stopped because the call's time was over. What the other side did with it is not known."""


class Deadline:
    """When a call ends, by a clock that nobody can set back, and that goes on while the machine
    is stopped: whoever took the call for lost meanwhile may have made it anew.
    """

    def __init__(self, seconds: float) -> None:
        self._end = clock.boot_seconds() + seconds

    def remaining(self) -> float:
        """Seconds left; raises OutOfTime when there are none."""
        left = self._end - clock.boot_seconds()
        if left <= 0:
            raise OutOfTime("The time for this call is over.")
        return left

    @contextmanager
    def cutting(self, descriptor: int) -> Iterator[None]:
        """Shut the socket down at the deadline, whatever a library is doing with it meanwhile."""
        with socket.socket(fileno=os.dup(descriptor)) as wire:  # ours, whatever becomes of theirs
            watch = threading.Timer(self.remaining(), _shut, [wire])
            watch.daemon = True
            watch.start()
            try:
                yield
            finally:
                watch.cancel()


def _shut(connected: socket.socket) -> None:
    with suppress(OSError):  # closed already
        connected.shutdown(socket.SHUT_RDWR)


def is_public(address: str) -> bool:
    """Whether an address is globally routable, whatever form it is wrapped in."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    return all(
        inner.is_global and not (inner.is_multicast or inner.is_reserved or _is_of_a_site(inner))
        for inner in _layers(ip)
    )


def _is_of_a_site(ip: Address) -> bool:
    """fec0::/10, which Python calls global and some networks inside still route (RFC 3879)."""
    return isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local


def _layers(ip: Address) -> Iterator[Address]:
    """An IPv6 address and the IPv4 ones inside it; only the innermost counts for a mapped one."""
    if isinstance(ip, ipaddress.IPv4Address):
        yield ip
        return
    if ip.ipv4_mapped:
        yield ip.ipv4_mapped
        return
    if ip in NAT64:
        yield ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        return
    yield ip
    if ip.sixtofour:
        yield ip.sixtofour
    if ip.teredo:
        yield from ip.teredo


def is_allowed_by_name(host: str, port: int) -> bool:
    """Whether the deployment names this host (or host:port) in OUTBOUND_ALLOW."""
    named = {str(one).lower() for one in getattr(settings, "OUTBOUND_ALLOW", ())}
    plain = host.lower().rstrip(".").strip("[]")
    return plain in named or f"{plain}:{port}" in named


def checked_addresses(host: str, port: int, deadline: Deadline) -> list[str]:
    """Where a connection to this host may go; raises AddressRefused or NotSent."""
    addresses = _resolved(host, port, deadline)[:ADDRESSES_MAX]
    if not is_allowed_by_name(host, port) and not all(map(is_public, addresses)):
        raise AddressRefused(
            f"{host} is not a public address, and OUTBOUND_ALLOW does not name it."
        )
    return addresses


def _resolved(host: str, port: int, deadline: Deadline) -> list[str]:
    question = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = _looked_up(question, deadline)
    except TimeoutError:
        raise NotSent(f"The name {host} was not resolved in time.") from None
    except (OSError, UnicodeError):
        raise NotSent(f"The name {host} does not resolve.") from None
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def _looked_up(question: Callable[[], T], deadline: Deadline) -> T:
    """What name servers say, asked in a thread that may be left behind: there is no time limit for
    them. Raises TimeoutError, and what the question raises.
    """
    answers: queue.SimpleQueue[T | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(question())
        except (OSError, UnicodeError) as failure:
            answers.put(failure)

    threading.Thread(target=ask, daemon=True, name="look-up").start()
    try:
        answer = answers.get(timeout=min(deadline.remaining(), CONNECT_SECONDS_MAX))
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def own_name(deadline: Deadline) -> str:
    """What we call ourselves to a mail server, as smtplib has it, which waits for name servers
    without a limit; an address where they say nothing in time.
    """
    try:
        return _looked_up(_own_name, deadline)
    except (OSError, UnicodeError):
        return "[127.0.0.1]"


def _own_name() -> str:
    name = socket.getfqdn()
    return name if "." in name else f"[{socket.gethostbyname(socket.gethostname())}]"


def connected(host: str, port: int, deadline: Deadline) -> socket.socket:
    """A TCP connection to a checked address of the host; raises NotSent."""
    return _first_of(checked_addresses(host, port, deadline), host, port, deadline)


def connected_as_named(host: str, port: int, deadline: Deadline) -> socket.socket:
    """The same to a host that the deployment itself names, wherever it is."""
    return _first_of(_resolved(host, port, deadline)[:ADDRESSES_MAX], host, port, deadline)


def _first_of(addresses: Iterable[str], host: str, port: int, deadline: Deadline) -> socket.socket:
    failure: OSError | None = None
    for address in addresses:
        try:
            seconds = min(deadline.remaining(), CONNECT_SECONDS_MAX)
            return socket.create_connection((address, port), timeout=seconds)
        except OSError as error:
            failure = error
        except OutOfTime as error:
            raise NotSent(f"{host}:{port} did not answer in time.") from error
    raise NotSent(f"{host}:{port} cannot be reached: {failure}") from failure


__all__ = ["AddressRefused", "Deadline", "NotSent", "OutOfTime", "Outbound", "Response"]

BODY_BYTES_MAX = 1024 * 1024
"""More than any answer to a compensation needs."""


class AnswerTooLarge(Exception):
    """We stopped reading because the answer outgrew BODY_BYTES_MAX. What it said is not known."""


HEADER = (
    "A header of the request, its credential perhaps, has a letter beyond ASCII, the end of a line"
    " or a space at an end: it was not sent."
)
OK = range(200, 300)
"""The statuses of an answer that took effect."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, read to its end."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        """The body as JSON; raises ValueError."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError as wrong:
            raise ValueError("The answer is not JSON.") from wrong

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


class Outbound:
    """What a connector reaches the world with, for the time of one call."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline

    def connect(self, host: str, port: int) -> socket.socket:
        """A checked TCP connection for other protocols; use it under `deadline.cutting`."""
        return connected(host, port, self.deadline)

    def addresses(self, host: str, port: int) -> list[str]:
        """Checked addresses, for libraries that make the connection themselves."""
        return checked_addresses(host, port, self.deadline)

    def local_socket(self, folder: str, port: int) -> str:
        """The folder of a unix socket, if the deployment names it; raises AddressRefused."""
        if not is_allowed_by_name(folder, port):
            raise AddressRefused(f"The socket {folder} is not named in OUTBOUND_ALLOW.")
        return folder

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        auth: tuple[str, str] | None = None,
    ) -> Response:
        """Send one HTTP request and read the whole answer.

        Raises Refused, mostly NotSent, where nothing has left; OutOfTime, AnswerTooLarge or
        httpx.HTTPError where it is not known what the other side did. Redirects come back as they
        are.
        """
        self.deadline.remaining()
        sent = {"user-agent": "amends", **(headers or {}), "accept-encoding": "identity"}
        with httpx.Client(
            transport=_Transport(self.deadline), trust_env=False, follow_redirects=False
        ) as client:
            try:
                request = client.build_request(method, url, headers=sent, content=content or None)
                _insist_on_tls(request.url)
                answer = client.send(request, stream=True, auth=auth)
                body = _read(answer.iter_raw(), answer.headers)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as failure:
                raise NotSent(f"{request.url.host} cannot be reached: {failure}") from failure
            except httpx.InvalidURL as wrong:
                raise NotSent("The address is not a URL.") from wrong
            except (UnicodeEncodeError, httpx.LocalProtocolError):  # it may be the credential's
                raise Refused(HEADER) from None
        names = {name.lower(): value for name, value in answer.headers.items()}
        return Response(answer.status_code, names, body)


def _insist_on_tls(url: httpx.URL) -> None:
    """Credentials do not travel in the clear, except to hosts that the deployment names."""
    if url.scheme == "https":
        return
    if url.scheme != "http" or not is_allowed_by_name(url.host, url.port or 80):
        raise AddressRefused(
            f"{url.scheme}://{url.host} is not https, nor named in OUTBOUND_ALLOW."
        )


def _read(chunks: Iterable[bytes], headers: httpx.Headers) -> bytes:
    if headers.get("content-encoding", "identity") != "identity":
        raise AnswerTooLarge("The answer is compressed, though we asked for it plain.")
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise AnswerTooLarge(f"The answer is larger than {BODY_BYTES_MAX} bytes.")
    return bytes(body)


@cache
def tls() -> ssl.SSLContext:
    """Verified TLS, made once per process: reading certificates outlasts most calls.

    The deployment may name its own authorities in SSL_CERT_FILE.
    """
    return httpx.create_ssl_context()


class _Transport(httpx.HTTPTransport):
    """httpx over sockets of ours: name checks, pinning and the deadline live there."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__(verify=tls(), trust_env=False)
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls(), max_connections=1, network_backend=_Backend(deadline)
        )


class _Backend(httpcore.NetworkBackend):
    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        sock = connected(host, port, self._deadline)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _Stream(sock, self._deadline)


class _Stream(httpcore.NetworkStream):
    """A stream whose every operation ends at the call's deadline, not only each read."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._sock.settimeout(self._deadline.remaining())
        try:
            return self._sock.recv(max_bytes)
        except OSError as failure:
            raise httpcore.ReadError(str(failure)) from failure

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        rest = memoryview(buffer)
        while rest:
            self._sock.settimeout(self._deadline.remaining())
            try:
                rest = rest[self._sock.send(rest) :]
            except OSError as failure:
                raise httpcore.WriteError(str(failure)) from failure

    def close(self) -> None:
        self._sock.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        self._sock.settimeout(min(self._deadline.remaining(), CONNECT_SECONDS_MAX))
        try:
            wrapped = ssl_context.wrap_socket(self._sock, server_hostname=server_hostname)
        except OSError as failure:
            self._sock.close()
            raise httpcore.ConnectError(str(failure)) from failure
        return _Stream(wrapped, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        if info == "ssl_object" and isinstance(self._sock, ssl.SSLSocket):
            return self._sock
        return None


def address_under(base: str, path: str) -> str:
    """The address of a path under a base one. An empty “?” or “#” at the end of that, as browsers
    leave it behind, would swallow the path, and what is beneath would be done to the base itself.
    """
    parts = urlsplit(base)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/{path.removeprefix('/')}"


def basic_auth(user: str, password: str) -> dict[str, str]:
    """The header of HTTP's basic authentication (RFC 7617)."""
    pair = b64encode(f"{user}:{password}".encode()).decode()
    return {"authorization": f"Basic {pair}"}


NAMES_NOBODY = frozenset(
    {
        "__token__", "api", "api_key", "api_token", "apikey", "key", "none", "oauth2", "token",
        "unused", "x", "x-access-token", "x-oauth-basic", "x-token-auth",
    }
)  # fmt: skip
"""What services put where a log-in has a user or a password, and an API key in the other place."""


def account_of(user: str, password: str) -> str | None:
    """The user of a log-in as the name of its account; None where that names nobody, or is the
    secret itself: of many services the key is the user, without a password or with any.
    """
    if not user and not password:
        return ""
    if {user.lower(), password.lower()} & (NAMES_NOBODY | {""}) or user == password:
        return None
    return user


class BadSecret(ValueError):
    """We stopped because the signing secret is no `whsec_…` secret."""


def headers_of(secret: str, body: bytes, *, message_id: str) -> dict[str, str]:
    """The three headers that sign a body now; raises BadSecret. A receiver refuses what is some
    minutes off, so the time is the database's (`clock.last_heard`).
    """
    now = clock.last_heard()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signer(secret).sign(
            msg_id=message_id, timestamp=now, data=body.decode()
        ),
    }


def signer(secret: str) -> Webhook:
    """The library's signer; raises BadSecret."""
    try:
        return Webhook(secret)
    except Exception:  # noqa: BLE001 - it raises of three kinds, one of them its own and not exported
        raise BadSecret("The signing secret has to be a whsec_… secret.") from None
