"""Who sends without end, or never ends to send: it costs the desk little, and only for a time."""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import uvloop

from config import edge, web
from tests.config.test_door import ask
from tests.config.test_worker import soon
from tests.processes import Process, Processes, answers

SHORTLY = {
    "AMENDS_HEAD_SECONDS": "2", "AMENDS_BODY_SECONDS": "4", "AMENDS_READ_SECONDS": "4",
}  # fmt: skip

HEAD = b"POST /accounts/login/ HTTP/1.1\r\nHost: localhost\r\n"
# More than the kernel keeps for who does not read.
LARGE_ANSWER = 200 * b"GET /static/amends.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"


@pytest.fixture
def desk(processes: Processes) -> Process:
    return processes.web_with_few_files()


@pytest.fixture
def lines() -> Iterator[Callable[[Process, bytes], socket.socket]]:
    with contextlib.ExitStack() as opened:

        def say(desk: Process, words: bytes) -> socket.socket:
            host, port = desk.url.removeprefix("http://").split(":")
            line = opened.enter_context(socket.socket())
            line.settimeout(60)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)  # before it is connected
            line.connect((host, int(port)))
            line.sendall(words)
            return line

        yield say


class Noted(web.ForClient):
    begun = 0

    def begin(self, one: web.Protocol, address: str) -> None:
        self.begun += 1
        super().begin(one, address)


def test_who_sends_and_takes_in_one_piece_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arriving, untaken = Noted(web.Protocol.give_up), Noted(web.Protocol.hang_up)
    monkeypatch.setattr(web.Protocol, "arriving", arriving)
    monkeypatch.setattr(web.Protocol, "untaken", untaken)

    async def served(_scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"taken"})

    async def visit() -> list[tuple[int, int]]:
        config = uvicorn.Config(served, http=web.Protocol, lifespan="off", log_level="warning")
        server, listening = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
        serving = asyncio.create_task(server.serve([listening]))
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        found = []
        for parts in ([HEAD + b"\r\n"] * 2, [HEAD + b"Content-Length: 1\r\n\r\n", b"x"]):
            for part in parts:
                writer.write(part)
                await asyncio.sleep(0.05)
            await reader.readuntil(b"taken")
            found.append((arriving.begun, untaken.begun))
        writer.close()
        server.should_exit = True
        await serving
        return found

    # Once when it came, and once for the body that came later.
    assert uvloop.run(visit()) == [(1, 0), (2, 0)]
    assert not len(arriving)


def test_more_half_requests_than_files_do_not_stop_the_desk(
    desk: Process, lines: Callable[[Process, bytes], socket.socket]
) -> None:
    for _ in range(1_300):
        lines(desk, HEAD)

    assert ask(f"{desk.url}/healthz")[0] == 200
    assert soon(lambda: files_of(desk) <= web.ARRIVING_PER_ADDRESS_MAX + web.FILES_RESERVED)


def test_more_answers_that_nobody_takes_than_files_do_not_stop_the_desk(
    desk: Process, lines: Callable[[Process, bytes], socket.socket]
) -> None:
    for _ in range(1_100):
        lines(desk, LARGE_ANSWER)

    # What the kernel takes of each answer is a few megabytes, which a busy machine makes for long.
    assert soon(lambda: answers(f"{desk.url}/healthz"))
    assert soon(lambda: files_of(desk) <= web.ARRIVING_PER_ADDRESS_MAX + web.FILES_RESERVED)


@pytest.mark.parametrize(
    "begun", [LARGE_ANSWER, LARGE_ANSWER[:-2] + b"Content-Length: 9\r\n\r\nx"],
    ids=["asked", "asked, and half a body"],
)  # fmt: skip
def test_an_answer_that_is_not_taken_is_given_up(
    processes: Processes, lines: Callable[[Process, bytes], socket.socket], begun: bytes
) -> None:
    line = lines(processes.kept_web(**SHORTLY), begun)

    assert soon(lambda: is_cut(line))


def files_of(desk: Process) -> int:
    return sum(1 for _ in Path(f"/proc/{desk.pid}/fd").iterdir())


@pytest.mark.parametrize(
    "begun", [b"", HEAD, HEAD + FORM + b"Content-Length: 100\r\n\r\nlogin="],
    ids=["nothing", "half a head", "half a body"],
)  # fmt: skip
def test_a_request_that_does_not_arrive_is_given_up(
    processes: Processes, lines: Callable[[Process, bytes], socket.socket], begun: bytes
) -> None:
    desk = processes.kept_web(**SHORTLY)
    line = lines(desk, begun)
    line.settimeout(30)

    said = line.recv(1_000)

    assert said.startswith(b"HTTP/1.1 408 ")
    assert line.recv(1) == b""


def test_who_drips_on_after_the_answer_is_given_up_as_well(
    processes: Processes, lines: Callable[[Process, bytes], socket.socket]
) -> None:
    desk = processes.kept_web(**SHORTLY)
    post = b"POST /api/v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
    line = lines(desk, post)
    assert line.recv(1_000).startswith(b"HTTP/1.1 401 ")

    assert soon(lambda: is_cut(line))


@pytest.mark.parametrize(
    ("asked", "more"),
    [(b"GET /healthz HTTP/1.1\r\n", b"\r\n"),
     (b"POST /api/v1/events HTTP/1.1\r\nContent-Length: 5\r\n", b"hello")],
    ids=["an empty line", "the rest of a body"],
)  # fmt: skip
def test_who_has_an_answer_and_begins_no_other_request_is_given_up(
    processes: Processes,
    lines: Callable[[Process, bytes], socket.socket],
    asked: bytes,
    more: bytes,
) -> None:
    line = lines(processes.kept_web(**SHORTLY), asked + b"Host: localhost\r\n\r\n")
    assert line.recv(1_000).startswith(b"HTTP/1.1 ")
    time.sleep(0.5)  # the answer is here whole
    line.sendall(more)
    line.settimeout(30)

    while line.recv(1_000):  # what was left of the answer
        pass


def is_cut(line: socket.socket) -> bool:
    time.sleep(1)
    try:
        line.sendall(b"x")
    except OSError:
        return True
    return False


@pytest.mark.parametrize("path", ["/accounts/login/", "/", "/api/v1/cases", "/setup/x/", "/c/x/"])
def test_no_stranger_lays_anything_large_on_the_disk(
    processes: Processes, lines: Callable[[Process, bytes], socket.socket], path: str
) -> None:
    desk = processes.kept_web()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n".encode()
    piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"

    declared = lines(desk, head + b"Content-Length: 400000000\r\n\r\n")
    said = declared.recv(1_000)
    assert said.startswith(b"HTTP/1.1 413 ")
    assert (b"application/problem+json" in said) is path.startswith("/api/"), "a program reads it"

    chunked = lines(desk, head + b"Transfer-Encoding: chunked\r\n\r\n")
    with contextlib.suppress(OSError):  # it hangs up while we speak
        for _ in range(200):
            chunked.sendall(piece)
            assert deleted_files_of(desk) == []
    with contextlib.suppress(ConnectionError):
        assert chunked.recv(1_000).startswith(b"HTTP/1.1 413 ")


def deleted_files_of(desk: Process) -> list[str]:
    """What lies on a disk without a name: where a large body is spooled to."""
    found = []
    for one in Path(f"/proc/{desk.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(one.readlink())
            if target.endswith("(deleted)") and target.startswith("/tmp/"):  # noqa: S108
                found.append(target)
    return found


def test_of_slow_large_bodies_an_address_sends_a_few_at_once_and_forms_pass_all_the_same(
    processes: Processes, lines: Callable[[Process, bytes], socket.socket]
) -> None:
    desk = processes.web()
    slow = HEAD + FORM + b"Content-Length: 1000000\r\n\r\n" + b"x" * 100_000
    held = [lines(desk, slow) for _ in range(edge.LARGE_PER_ADDRESS_MAX)]

    one_more = lines(desk, slow)
    assert one_more.recv(1_000).startswith(b"HTTP/1.1 503 ")
    form = lines(desk, HEAD + FORM + b"Content-Length: 7\r\n\r\nlogin=x")
    assert form.recv(1_000).startswith(b"HTTP/1.1 403 ")  # no CSRF token: Django has read it
    assert len(held) == edge.LARGE_PER_ADDRESS_MAX


def test_under_https_every_door_leads_there_with_its_method_and_body(
    processes: Processes,
) -> None:
    desk = processes.web(AMENDS_URL="https://desk.example.org", AMENDS_TRUST_PROXY="1")
    for path in ("/api/v1/policy?x=1", "/static/amends.css", "/w/acme/queue/fresh/?since=1"):
        with socket.create_connection(("localhost", int(desk.url.rsplit(":", 1)[1]))) as line:
            line.sendall(f"GET {path} HTTP/1.1\r\nHost: evil.example\r\n\r\n".encode())
            said = line.recv(2_000)
        assert said.startswith(b"HTTP/1.1 308 "), path
        assert f"location: https://desk.example.org{path}\r\n".encode() in said
    secure = ask(f"{desk.url}/api/v1/policy", X_Forwarded_Proto="https")
    probe = ask(f"{desk.url}/readyz")

    assert secure[0] == 401
    assert probe[0] == 200
    assert json.loads(probe[2])["ready"]
