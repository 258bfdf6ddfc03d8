"""Mallory may choose names and addresses; no call of any connector goes where it should not."""

import contextlib
import itertools
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any

import httpx
import psycopg
import pytest

from connectors import calls
from connectors.contract import CannotRead, Target
from connectors.outbound import (
    AddressRefused,
    AnswerTooLarge,
    Deadline,
    NotSent,
    Outbound,
    OutOfTime,
    checked_addresses,
    is_public,
)
from tests.ports import answering

DRIPS_MAX = 400
"""Of bytes, twenty a second: a drip that nobody cuts goes on for that long."""


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",  # where clouds keep their keys
        "100.64.0.1",
        "0.0.0.0",  # noqa: S104 - it is what has to be refused
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%eth0",
        "fc00::1",
        "fec0::1",  # of a site: no longer given out, and still routed here and there
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:a9fe:a9fe",
        "64:ff9b::7f00:1",  # NAT64 of 127.0.0.1
        "2002:7f00:1::",  # 6to4 of 127.0.0.1
        "2001:0:7f00:1::",  # Teredo by way of 127.0.0.1
    ],
)
def test_an_address_that_is_not_public_is_seen_through_every_wrapping(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1"])
def test_a_public_address_is_public(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "::1"],
)
def test_every_way_to_write_this_machine_is_refused(host, outbound):
    with pytest.raises(AddressRefused):
        checked_addresses(host, 443, Deadline(5))


def test_the_deployment_can_allow_a_host_or_only_one_of_its_ports(outbound):
    outbound.append("127.0.0.1:8001")

    assert checked_addresses("127.0.0.1", 8001, Deadline(5)) == ["127.0.0.1"]
    with pytest.raises(AddressRefused):
        checked_addresses("127.0.0.1", 8002, Deadline(5))
    with pytest.raises(AddressRefused):
        checked_addresses("localhost", 8001, Deadline(5))


@pytest.fixture
def name_server(monkeypatch):
    """A name server in Mallory's hand: each question takes the next answer."""
    replies: list[list[str]] = []
    asked: list[str] = []

    def getaddrinfo(host, port, *args, **kwargs):
        asked.append(host)
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in reply]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return replies, asked


def test_a_name_that_changes_its_answer_gains_nothing(name_server, outbound, monkeypatch):
    replies, asked = name_server
    replies += [["93.184.216.34"], ["127.0.0.1"]]
    went_to = []

    def create_connection(address, timeout=None):
        went_to.append(address)
        raise OSError("nobody there")

    monkeypatch.setattr(socket, "create_connection", create_connection)

    with pytest.raises(NotSent):
        Outbound(Deadline(5)).request("GET", "https://rebind.example/")
    assert asked == ["rebind.example"]
    assert went_to == [("93.184.216.34", 443)]


def test_one_address_among_many_that_is_not_public_spoils_the_name(name_server, outbound):
    replies, _ = name_server
    replies.append(["93.184.216.34", "10.0.0.1"])

    with pytest.raises(AddressRefused):
        checked_addresses("mixed.example", 443, Deadline(5))


def test_a_name_server_that_does_not_answer_is_not_waited_for(monkeypatch):
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [][: over.wait(60)])
    began = time.monotonic()

    with pytest.raises(NotSent):
        checked_addresses("slow.example", 443, Deadline(0.3))
    assert time.monotonic() - began < 20
    over.set()


def test_plain_http_is_for_hosts_that_the_deployment_names(name_server, outbound):
    name_server[0].append(["93.184.216.34"])

    with pytest.raises(AddressRefused, match="not https"):
        Outbound(Deadline(5)).request("GET", "http://api.example/")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "gopher://x/", "https://", "nonsense"])
def test_only_https_and_http_are_spoken(url, outbound):
    with pytest.raises(NotSent):
        Outbound(Deadline(5)).request("GET", url)


def test_no_proxy_is_taken_from_the_environment(outsides, outbound, monkeypatch):
    receiver = outsides("receiver")
    outbound.append("127.0.0.1")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    answer = Outbound(Deadline(5)).request("POST", receiver.at["url"] + "/direct", content=b"x")

    assert answer.status == 200


@pytest.fixture
def server():
    """A socket that a test answers by hand."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.settimeout(30)
        yield listening


def answered(server, pieces, pause=0.0):
    """Serve one connection with the pieces, in a thread."""

    def serve():
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            try:
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(pause)
            except OSError:
                pass  # the other side had enough

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return f"http://127.0.0.1:{server.getsockname()[1]}/", thread


@pytest.mark.parametrize("drip", ["headers", "body"])
def test_an_answer_that_drips_in_ends_with_the_time_for_the_whole_call(server, outbound, drip):
    outbound.append("127.0.0.1")
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n"
    pieces = [bytes([b]) for b in head] if drip == "headers" else [head, *([b"x"] * 100)]
    url, thread = answered(server, pieces, pause=0.5)
    began = time.monotonic()

    with pytest.raises((OutOfTime, httpx.ReadError)):
        Outbound(Deadline(1)).request("GET", url)

    assert time.monotonic() - began < 15  # the whole of it takes twenty seconds and more
    thread.join()


def test_a_peer_that_drips_is_cut_at_the_deadline_whatever_reads_it():
    """Each byte comes well within the time that a library waits for one: SMTP and PostgreSQL read
    through a socket of their own, and only the deadline ends that.
    """
    ours, theirs = socket.socketpair()
    read, ended = 0, threading.Event()

    def drip():
        with contextlib.suppress(OSError):
            while not ended.wait(0.05):
                theirs.sendall(b"2")

    with ours, theirs:
        ours.settimeout(30)
        threading.Thread(target=drip, daemon=True).start()
        with Deadline(0.5).cutting(ours.fileno()):
            while read < DRIPS_MAX and ours.recv(1):  # empty once it is shut down
                read += 1
        ended.set()

    assert read < DRIPS_MAX


def test_mail_goes_without_tls_only_to_hosts_that_the_deployment_names(
    connect, outbound, monkeypatch
):
    went_to = []

    def create_connection(address, timeout=None):
        went_to.append(address[0])
        raise OSError("nobody there")

    monkeypatch.setattr(socket, "create_connection", create_connection)
    settings = settings_for("smtp", "93.184.216.34") | {"tls": "none", "port": 25}
    credential, operation, args = CALLS["smtp"]
    connection = connect("mail", "smtp", settings, credential)
    target = Target("mail", "eve@x.example")

    refused = calls.apply(connection, operation, args, target, key="k")
    assert (refused.outcome, went_to) == ("no_effect", [])
    assert "without TLS" in refused.detail

    outbound.append("93.184.216.34")
    calls.apply(connection, operation, args, target, key="k")
    assert went_to == ["93.184.216.34"]


def test_an_answer_that_is_cut_short_is_an_error(server, outbound):
    outbound.append("127.0.0.1")
    url, thread = answered(server, [b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}"])

    with pytest.raises(httpx.RemoteProtocolError, match="peer closed"):
        Outbound(Deadline(5)).request("GET", url)
    thread.join()


@pytest.mark.parametrize(
    "head",
    [b"content-length: 9000000\r\n\r\n", b"content-encoding: gzip\r\ncontent-length: 99\r\n\r\n"],
)
def test_an_answer_that_is_too_large_or_packed_is_not_read(server, outbound, head):
    outbound.append("127.0.0.1")
    url, thread = answered(server, [b"HTTP/1.1 200 OK\r\n" + head, *([b"x" * 100_000] * 20)])

    with pytest.raises(AnswerTooLarge):
        Outbound(Deadline(5)).request("GET", url)
    thread.join()


def settings_for(name: str, host: str) -> dict[str, Any]:
    """A connection of this connector that leads to `host`."""
    in_url = f"[{host}]" if ":" in host else host
    settings: dict[str, dict[str, Any]] = {
        "sql": {"host": host, "database": "x", "tables": {"t": {"key": ["id"]}}},
        "smtp": {"host": host, "sender": "a@b.example"},
        "http": {"manifest": "payments", "base_url": f"https://{in_url}"},
        "webhook": {"url": f"https://{in_url}/x", "operations": {"undo": {"title": "Undo"}}},
        "caldav": {"url": f"https://{in_url}/cal/"},
    }
    return settings[name]


CALLS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "sql": ({"user": "u", "password": "p"}, "restore_row", {"to": None}),
    "smtp": ({}, "send_correction", {"subject": "s", "text": "t"}),
    "http": ({"token": "t"}, "refund", {}),
    "webhook": ({"secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, "undo", {}),
    "caldav": ({"user": "u", "password": "p"}, "delete_event", {}),
}

INSIDE = {
    "this machine": "127.0.0.1",
    "its name": "localhost",
    "decimal": "2130706433",
    "hex": "0x7f000001",
    "hex and dots": "0x7f.1",
    "octal": "0177.0.0.1",
    "short": "127.1",
    "version 6": "::1",
    "IPv4-mapped": "::ffff:127.0.0.1",
    "IPv4-mapped in hex": "::ffff:7f00:1",
    "the neighbours": "10.0.0.5",
    "where clouds keep their keys": "169.254.169.254",
}


@pytest.fixture
def tried(connect, outbound):
    """Every call of a connector that could go out, and what came of it, in words."""
    numbers = itertools.count()

    def all_of(name, settings):
        credential, operation, args = CALLS[name]
        connection = connect(f"inside-{next(numbers)}", name, settings, credential)
        target = Target("t", "eve@x.example" if name == "smtp" else "1")
        answer = calls.apply(connection, operation, args, target, key="k")
        assert answer.outcome != "applied"
        said = {"apply": f"{answer.outcome}: {answer.detail}"}
        for look in (calls.observe, calls.verify):
            try:
                said[look.__name__] = str(look(connection, operation, args, target, key="k"))
            except CannotRead as unread:
                said[look.__name__] = str(unread)
        found = calls.probe(connection, operation, args, target, key="k")
        return said | {"probe": f"{found.found}: {found.evidence}"}

    return all_of


@pytest.mark.parametrize("name", sorted(CALLS))
def test_no_connector_reaches_inside_however_the_address_is_written(name, tried):
    for host in INSIDE.values():
        said = tried(name, settings_for(name, host))

        assert said["apply"].startswith("no_effect: "), host
        no_url = host == "0177.0.0.1" and name not in {"sql", "smtp"}
        assert ("not a URL" if no_url else "not a public address") in said["apply"], host
        assert said["probe"].startswith("cannot_tell"), host


@pytest.mark.parametrize("name", sorted(CALLS))
def test_no_connector_asks_a_second_time_for_the_name_that_it_was_allowed(
    name, tried, name_server, monkeypatch
):
    """DNS rebinding: the first answer is public, and every later one leads inside."""
    replies, asked = name_server
    went_to = []

    def create_connection(address, timeout=None):
        went_to.append(address[0])
        raise OSError("nobody there")

    def no_session(**words):
        went_to.append(words["hostaddr"])
        raise psycopg.OperationalError("nobody there")

    monkeypatch.setattr(socket, "create_connection", create_connection)
    monkeypatch.setattr(psycopg, "connect", no_session)  # libpq's own sockets are not Python's
    replies += [["93.184.216.34"], ["127.0.0.1"]]

    said = tried(name, settings_for(name, "rebind.example"))

    assert went_to == ["93.184.216.34"]
    assert asked[0] == "rebind.example"
    assert said["apply"].startswith("no_effect: ")


@pytest.fixture
def inside():
    """Something on this machine that nobody may be led to, and who came all the same."""
    came = []

    class Secret(BaseHTTPRequestHandler):
        def do_GET(self):
            came.append(self.path)
            self.send_response(200)
            self.end_headers()

        do_POST = do_PUT = do_DELETE = do_PROPFIND = do_REPORT = do_GET  # noqa: N815

    with answering(Secret) as url:
        yield f"{url}/secret", came


@pytest.fixture
def leads_away(inside):
    """An outside server that answers everything with the way to the inside."""
    asked = []

    class Away(BaseHTTPRequestHandler):
        status = 307

        def do_GET(self):
            asked.append(self.path)
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(self.status)
            self.send_header("location", inside[0])
            self.send_header("content-length", "0")
            self.end_headers()

        do_POST = do_PUT = do_DELETE = do_PROPFIND = do_REPORT = do_GET  # noqa: N815

    with answering(Away) as url:
        yield SimpleNamespace(url=url, kind=Away, asked=asked)


def test_a_redirect_to_the_inside_is_not_followed(leads_away, inside, outbound):
    outbound.append("127.0.0.1")
    for status in (301, 302, 303, 307, 308):
        leads_away.kind.status = status

        answer = Outbound(Deadline(5)).request("POST", leads_away.url, content=b"x")

        assert (answer.status, inside[1]) == (status, [])


@pytest.mark.parametrize("name", ["http", "webhook", "caldav", "smtp"])
def test_no_connector_follows_a_redirect_to_the_inside(
    name, leads_away, inside, tried, outbound, mail
):
    """Mail has one address of HTTP: where its mailbox is looked up."""
    outbound.append("127.0.0.1")
    url = leads_away.url
    settings = {
        "http": {"manifest": "payments", "base_url": url},
        "webhook": {"url": f"{url}/x", "operations": {"undo": {"title": "Undo"}}},
        "caldav": {"url": f"{url}/cal/"},
        "smtp": {
            "host": "127.0.0.1",
            "port": 9,
            "tls": "none",
            "sender": "a@b.example",
            "look_up": f"{url}/mail",
        },
    }[name]

    tried(name, settings)

    assert leads_away.asked
    assert inside[1] == []


def test_the_mailbox_is_not_looked_up_inside(tried, monkeypatch):
    went_to = []

    def create_connection(address, timeout=None):
        went_to.append(address[0])
        raise OSError("nobody there")

    monkeypatch.setattr(socket, "create_connection", create_connection)
    settings = settings_for("smtp", "93.184.216.34") | {"look_up": "https://2130706433/mail"}

    said = tried("smtp", settings)

    assert went_to == ["93.184.216.34"]
    assert said["probe"].startswith("cannot_tell")


def test_every_connector_is_in_the_list_above():
    from connectors.registry import BUILT_IN

    assert set(BUILT_IN) == set(CALLS)
