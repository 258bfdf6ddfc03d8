"""The gateway as a process, and a client of a few lines that speaks to it as it likes."""

import json
import os
import queue
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import npm
from tests.adapters.conftest import ROOT, environment_of
from tests.ports import free_port
from tests.sdk.conftest import *  # noqa: F403 - the small desk, and the real one
from tests.sdk.conftest import KEY

HERE = Path(__file__).parent
ANSWER_SECONDS_MAX = 60.0
SECRET = "whsec_" + "c2VjcmV0IG9mIHRoZSB0d2lucyBvZiB0aGUgdGVzdHM="
LOW = {"policies": {"*": {"risk": "LOW", "approval": "AUTO"}}}


def python():
    """Of the environment that has the protocol's own package, and the git server."""
    return str(environment_of("mcp", HERE / "environments"))


def odd(journal, **wants):
    """The command of the odd server."""
    return [python(), str(HERE / "servers" / "odd.py"), str(journal), json.dumps(wants)]


def files_server(folder):
    """The command of the file server from npm."""
    program = npm.installed() / "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
    return [str(npm.NODE), str(program), str(folder)]


def official(client, gateway, calls, **more):
    """An official client in its own process, given these calls to make."""
    programs = {
        "python": [python(), HERE / "clients" / "with_python.py"],
        "typescript": [npm.NODE, HERE / "clients" / "with_typescript.mjs"],
    }
    environment = gateway.environment if gateway else dict(os.environ)
    return subprocess.Popen(
        [str(part) for part in [*programs[client], json.dumps({"calls": calls, **more})]],
        env=environment | {"NPM_FOLDER": str(npm.installed())},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def said_by(process):
    """What an official client says of its calls, at its end."""
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def play(client, gateway, calls, **more):
    return said_by(official(client, gateway, calls, **more))


class Gateway:
    """A gateway in its own process, over stdio or HTTP."""

    def __init__(self, url, key, spool, server, *flags, **environment):
        env = {**os.environ, "PYTHONPATH": str(ROOT / "sdk"), "AMENDS_URL": url, "AMENDS_KEY": key,
               "AMENDS_SPOOL": str(spool), "AMENDS_SAFE": str(spool) + ".safe"}  # fmt: skip
        self.command = [python(), "-m", "amends", "mcp-gateway", *flags]
        if server:
            self.command += ["--", *server]
        self.environment = env | environment
        self.process = self.reader = None

    def start(self, **pipes):
        self.process = subprocess.Popen(self.command, env=self.environment, **pipes)
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        if self.reader:
            self.reader.join()
            self.process.stdin.close()
            self.process.stdout.close()


class RawClient:
    """Speaks to a gateway over stdio, message by message; what else it hears is in `heard`."""

    def __init__(self, gateway, **capabilities):
        pipe = subprocess.PIPE
        self.gateway = gateway.start(stdin=pipe, stdout=pipe)
        self.process, self.number, self.heard = gateway.process, 0, []
        self._lines: queue.Queue[Any] = queue.Queue()
        gateway.reader = threading.Thread(target=self._read, daemon=True)
        gateway.reader.start()
        self.initialized = self.ask(
            "initialize", protocolVersion="2025-11-25", capabilities=capabilities,
            clientInfo={"name": "raw", "version": "1"},
        )  # fmt: skip
        self.say(method="notifications/initialized")

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def say(self, **message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def send(self, method, **params):
        self.number += 1
        self.say(id=self.number, method=method, params=params)
        return self.number

    def next(self, fits):
        """The next message that fits; others are kept in `heard`."""
        end = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            message = self._lines.get(timeout=max(0.1, end - time.monotonic()))
            if message is None:
                raise EOFError("the gateway has ended")
            if fits(message):
                return message
            self.heard.append(message)

    def answer(self, request):
        def fits(message):
            return message.get("id") == request and "method" not in message

        early = next(filter(fits, self.heard), None)
        if early:
            self.heard.remove(early)
        return early or self.next(fits)

    def ask(self, method, **params):
        message = self.answer(self.send(method, **params))
        return message.get("result", message.get("error"))

    def call(self, tool, /, meta=None, **args):
        more = {"_meta": meta} if meta else {}
        return self.ask("tools/call", name=tool, arguments=args, **more)

    def send_call(self, tool, /, meta=None, **args):
        more = {"_meta": meta} if meta else {}
        return self.send("tools/call", name=tool, arguments=args, **more)

    def leave(self):
        """As a client does: stdin is closed, and the gateway ends by itself."""
        self.process.stdin.close()
        self.process.wait(60)
        self.gateway.stop()


def words(result):
    return " ".join(one["text"] for one in result["content"])


def wait_for(fits, what):
    end = time.monotonic() + ANSWER_SECONDS_MAX
    while time.monotonic() < end:
        if found := fits():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what}: it did not come to that")


class Journal:
    def __init__(self, path):
        self.path = path

    @property
    def lines(self):
        return self.path.read_text().splitlines() if self.path.exists() else []

    def had(self, line):
        return wait_for(lambda: line in self.lines, line)


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "server.journal")


@pytest.fixture
def desk_that_allows(small_desk):
    small_desk.control(safety=LOW)
    return small_desk


@pytest.fixture
def through(desk_that_allows, tmp_path, journal):
    """Start a gateway before the odd server, and a raw client of it."""
    started = []

    def start(*flags, wants=None, capabilities=None, spool="agent.sqlite", **environment):
        gateway = Gateway(
            desk_that_allows.url, KEY, tmp_path / spool, odd(journal.path, **(wants or {})),
            *flags, **environment,
        )  # fmt: skip
        started.append(gateway)
        return RawClient(gateway, **(capabilities or {}))

    yield start
    for gateway in started:
        gateway.stop()


@pytest.fixture
def listening_at(tmp_path):
    """Start a gateway that listens, of any desk and server; its address."""
    started = []

    def start(url, key, server, *flags, **environment):
        port = free_port()
        here = url, key, tmp_path / "agent.sqlite", server
        gateway = Gateway(*here, "--listen", f"127.0.0.1:{port}", *flags, **environment)
        started.append(gateway.start())
        address = f"http://127.0.0.1:{port}/mcp"
        wait_for(lambda: is_up(address), "the gateway listens")
        return address

    yield start
    for gateway in started:
        gateway.stop()


@pytest.fixture
def listening(desk_that_allows, journal, listening_at):
    """Start a gateway that listens before the odd server; its address."""

    def start(*flags, **environment):
        return listening_at(desk_that_allows.url, KEY, odd(journal.path), *flags, **environment)

    return start


@pytest.fixture
def twins(tmp_path):
    """Start the desk's way to undo over a server; its address."""
    started = []

    def start(url, key, server, tools):
        port = free_port()
        gateway = Gateway(url, key, tmp_path / "agent.sqlite", server, AMENDS_TWINS_SECRET=SECRET)
        gateway.command[3:5] = [
            "mcp-twins", "--listen", f"127.0.0.1:{port}", "--tools", str(tools), "--",
        ]  # fmt: skip
        started.append(gateway.start())
        wait_for(lambda: is_up(f"http://127.0.0.1:{port}"), "the twins listen")
        return f"http://127.0.0.1:{port}"

    yield start
    for gateway in started:
        gateway.stop()


def is_up(url):
    try:
        return httpx.get(url.removesuffix("/mcp"), timeout=5).status_code
    except httpx.HTTPError:
        return None
