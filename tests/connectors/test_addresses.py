"""Mallory may choose names and addresses; no call of any connector goes where it should not."""

import socket
import threading
import time
from typing import Any

import httpx
import pytest

from connectors import calls
from connectors.addresses import AddressRefused, Deadline, NotSent, checked_addresses, is_public
from connectors.contract import Target
from connectors.outbound import AnswerTooLarge, Outbound, OutOfTime


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
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [][: over.wait(5)])
    began = time.monotonic()

    with pytest.raises(NotSent):
        checked_addresses("slow.example", 443, Deadline(0.3))
    assert time.monotonic() - began < 1
    over.set()


def test_a_redirect_to_the_inside_is_not_followed(outsides, outbound):
    receiver = outsides("receiver")
    outbound.append("127.0.0.1")

    answer = Outbound(Deadline(5)).request(
        "POST", receiver.at["url"] + "/go?status=307", content=b"x"
    )

    assert answer.status == 307


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
        listening.settimeout(5)
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
    url, thread = answered(server, pieces, pause=0.1)
    began = time.monotonic()

    with pytest.raises((OutOfTime, httpx.ReadError)):
        Outbound(Deadline(0.5)).request("GET", url)

    assert time.monotonic() - began < 1
    thread.join()


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


INSIDE: dict[str, tuple[dict[str, Any], dict[str, Any], str, dict[str, Any]]] = {
    "sql": (
        {"host": "10.0.0.5", "database": "x", "tables": {"t": {"key": ["id"]}}},
        {"user": "u", "password": "p"},
        "restore_row",
        {"to": None},
    ),
    "smtp": (
        {"host": "169.254.169.254", "sender": "a@b.example"},
        {},
        "send_correction",
        {"subject": "s", "text": "t"},
    ),
    "http": (
        {"manifest": "payments", "base_url": "https://2130706433"},
        {"token": "t"},
        "refund",
        {},
    ),
    "webhook": (
        {"url": "https://[::ffff:127.0.0.1]/x", "operations": {"undo": {"title": "Undo"}}},
        {"secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
        "undo",
        {},
    ),
    "caldav": (
        {"url": "https://0x7f.1/cal/"},
        {"user": "u", "password": "p"},
        "delete_event",
        {},
    ),
}


@pytest.mark.parametrize("name", sorted(INSIDE))
def test_no_connector_reaches_inside(name, connect, outbound):
    settings, credential, operation, args = INSIDE[name]
    connection = connect("inside", name, settings, credential)
    target = Target("t", "eve@x.example" if name == "smtp" else "1")

    answer = calls.apply(connection, operation, args, target, key="k")

    assert answer.outcome == "no_effect"
    assert "not a public address" in answer.detail


def test_every_connector_is_in_the_list_above():
    from connectors.registry import BUILT_IN

    assert set(BUILT_IN) == set(INSIDE)
