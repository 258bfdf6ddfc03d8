"""Where a call may go, and when it must end.

A name is resolved once, every address it has is checked, and the connection goes to an address
that was checked: a name that answers differently the second time gains nothing (DNS rebinding).
Addresses that are not globally routable are refused unless the deployment allows the name in
`OUTBOUND_ALLOW` ("host" or "host:port"); nobody can allow one from the console. Numbers in decimal,
octal or hex are resolved like names, so they are judged by what they mean.
"""

from __future__ import annotations

import ipaddress
import os
import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.conf import settings

from connectors.refusals import Refused

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
    """When a call ends, by a clock that nobody can set back."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def remaining(self) -> float:
        """Seconds left; raises OutOfTime when there are none."""
        left = self._end - time.monotonic()
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
    """Look a name up in a thread that may be left behind: getaddrinfo has no time limit."""
    answers: queue.SimpleQueue[list[str] | Exception] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answers.put(list(dict.fromkeys(str(one[4][0]) for one in found)))
        except (OSError, UnicodeError) as failure:
            answers.put(failure)

    threading.Thread(target=look_up, daemon=True, name="look-up").start()
    try:
        answer = answers.get(timeout=min(deadline.remaining(), CONNECT_SECONDS_MAX))
    except queue.Empty:
        raise NotSent(f"The name {host} was not resolved in time.") from None
    if isinstance(answer, Exception) or not answer:
        raise NotSent(f"The name {host} does not resolve.")
    return answer


def connected(host: str, port: int, deadline: Deadline) -> socket.socket:
    """A TCP connection to a checked address of the host; raises NotSent."""
    failure: OSError | None = None
    for address in checked_addresses(host, port, deadline):
        try:
            seconds = min(deadline.remaining(), CONNECT_SECONDS_MAX)
            return socket.create_connection((address, port), timeout=seconds)
        except OSError as error:
            failure = error
        except OutOfTime as error:
            raise NotSent(f"{host}:{port} did not answer in time.") from error
    raise NotSent(f"{host}:{port} cannot be reached: {failure}") from failure
