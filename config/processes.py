"""`make up`: the embedded servers, the set-up, and every process of the product, until Ctrl-C.

honcho runs the list. Whatever way this process ends, nothing is left behind: each child is on a
leash (config/local/parent_death_signal.py), so even after SIGKILL the kernel tells them.
"""

import argparse
import contextlib
import errno
import fcntl
import multiprocessing
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError

import honcho.manager
import honcho.printer
import honcho.process

from config import env
from config.local.parent_death_signal import die_with_parent, leashed
from config.local.places import ROOT, local_home, private_folder
from config.local.postgres import RUNTIME, Postgres
from config.local.servers import DidNotStart, Valkey

# A worker gets this long to bring its call to an end, then everything left is killed.
honcho.manager.KILL_WAIT = 10
READY_SECONDS_MAX = 60.0
# Between two looks whether the embedded servers live, and after one that did not start.
LOOK_SECONDS, AGAIN_SECONDS = 0.5, 5.0
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# One more than a connection holds by itself (Connection.concurrency), so that a slow system leaves
# a process for the others.
WORKER_PROCESSES = 5
# The demo's outside world, and the scripted agents that act on it.
DEMO_PROCESSES = ("world", "agents")
# The ports of the demo's outside world begin above ours; its mail server has the fourth of them.
DEMO_PORT_ABOVE = 11
DEMO_PORTS = 5
DEMO_MAIL_ABOVE = 3
# Where something else listens, such as the demo of the desk next door, the next row is tried.
DEMO_ROWS_MAX = 40


class CannotStart(Exception):
    """We stopped because something else is in the way; the message says what, in one line."""


class Signals:
    """Whom honcho signals: politely only the process itself, for a worker ends its own pool."""

    def terminate(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    def kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


class Leashed(honcho.process.Process):  # type: ignore[misc]  # honcho ships no types
    """One process of the list. honcho forks a reader for each; reader and process are leashed."""

    def __init__(self, command: list[str], **options: Any) -> None:
        super().__init__(shlex.join(command), **options)
        self.command = command
        self.manager = os.getpid()

    def run(self, events: Any = None, ignore_signals: bool = False) -> None:  # noqa: FBT001, FBT002
        die_with_parent(signal.SIGKILL)
        if os.getppid() != self.manager:
            return
        self.cmd = "exec " + shlex.join(leashed(self.command, ends_with=signal.SIGTERM))
        super().run(events, ignore_signals)


class Printer(honcho.printer.Printer):  # type: ignore[misc]  # as above
    """honcho's printer, which goes on where the disk below our output has no room."""

    def write(self, message: honcho.printer.Message) -> None:
        try:
            super().write(message)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise


Server = Postgres | Valkey


class Watch:
    """Starts the embedded servers again that end by themselves: killed for want of memory, or their
    disk had no room. Without them every process would go on saying that they are away.
    """

    def __init__(self, embedded: list[Server]) -> None:
        self._embedded = embedded
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, say: Callable[[str], None]) -> None:
        """Once everything is forked, for a thread would not survive that."""
        self._thread = threading.Thread(target=self._look, args=[say], daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Nothing is started any more, and what is being started is ended: it may take long."""
        self._over.set()
        while self._thread is not None and self._thread.is_alive():
            for server in self._embedded:
                server.stop()
            self._thread.join(LOOK_SECONDS)

    def _look(self, say: Callable[[str], None]) -> None:
        away: set[str] = set()
        while not self._over.wait(AGAIN_SECONDS if away else LOOK_SECONDS):
            for server in self._embedded:
                if not server.alive() and not self._over.is_set():
                    self._start(server, away, say)

    def _start(self, server: Server, away: set[str], say: Callable[[str], None]) -> None:
        """What keeps it from starting is told once."""
        if server.name not in away:
            say(f"{server.name} has ended, and is started again.")
        try:
            server.start()
        except Exception as reason:  # noqa: BLE001 - with this thread all that it started would end
            if server.name not in away and not self._over.is_set():
                say(f"{reason}\nIt is tried again every {AGAIN_SECONDS:.0f} seconds.")
            away.add(server.name)
        else:
            say(f"{server.name} is there again.")
            away.discard(server.name)


class Manager(honcho.manager.Manager):  # type: ignore[misc]  # as above
    """honcho's manager, which also says when everything answers."""

    def __init__(self, url: str, watch: Watch) -> None:
        super().__init__(Printer(sys.stdout))
        self._process_ctor = Leashed
        self._procmgr = Signals()
        self._url = url
        self._watch = watch

    def _start(self) -> None:
        super()._start()
        # After the forks, for a thread would not survive them.
        threading.Thread(target=self._greet, daemon=True).start()
        self._watch.begin(self._system_print)

    def end_now(self) -> None:
        """Kill what still runs, silently: the terminal that we print to may be what went away."""
        for process in self._processes.values():
            if "returncode" not in process and "pid" in process:
                self._procmgr.kill(process["pid"])

    def _greet(self) -> None:
        if wait_until_ready(self._url):
            for line in greeting(self._url):
                self._system_print(line)


def wait_until_ready(url: str) -> bool:
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/statusz", timeout=2):  # noqa: S310 - our own URL
                return True
        except (URLError, OSError):
            time.sleep(0.2)
    return False


def greeting(url: str) -> list[str]:
    note = local_home() / "greeting.txt"
    told = note.read_text().splitlines() if note.exists() else []
    return ["", f"Amends is ready: {url}", *told, "Ctrl-C stops everything.", ""]


def process_list(port: int, host: str, *, demo: bool) -> dict[str, list[str]]:
    """What runs, and how: name → command line."""
    python = sys.executable
    web = [python, "-m", "config.web", "--host", host, "--port", str(port)]
    worker = [python, "-m", "celery", "--app", "config", "--quiet", "worker", "--loglevel", "INFO"]
    worker += ["--concurrency", str(WORKER_PROCESSES), "--without-gossip", "--without-mingle"]
    commands = {
        "web": web,
        "worker": worker,
        "scheduler": [python, "manage.py", "scheduler"],
        "sweeper": [python, "manage.py", "sweeper"],
    }
    for name in DEMO_PROCESSES if demo else ():
        if (ROOT / "demo" / f"{name}.py").exists():
            commands[name] = [python, "-m", f"demo.{name}"]
    return commands


@contextlib.contextmanager
def only_here(home: Path, url: str) -> Iterator[None]:
    """Hold this checkout's lock. It is the process's own (lockf): no child keeps it alive."""
    private_folder(home)
    with (home / "up.lock").open("a+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise CannotStart(f"Amends is already running here: {file.read().strip()}") from None
        file.truncate(0)
        file.write(f"{url} (process {os.getpid()})\n")
        file.flush()
        yield


@contextlib.contextmanager
def servers(home: Path) -> Iterator[Watch]:
    """The embedded servers, unless DATABASE_URL and REDIS_URL name others; who watches them."""
    if not env.embedded():
        yield Watch([])
        return
    with contextlib.ExitStack() as stack:
        postgres, valkey = Postgres(home), Valkey(home)
        stack.callback(postgres.stop)
        postgres.start()
        stack.callback(valkey.stop)
        valkey.start()
        postgres.ensure(env.DATABASE)
        postgres.ensure_role(RUNTIME)
        watch = Watch([postgres, valkey])
        stack.callback(watch.end)
        yield watch


def claim_port(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            probe.bind((host, 0))
            free = probe.getsockname()[1]
            raise CannotStart(f"Port {port} is taken ({error}). Try: make up PORT={free}") from None


def demo_ports(port: int) -> int:
    """The first of `DEMO_PORTS` ports in a row above `port` on which nobody listens."""
    above = port + DEMO_PORT_ABOVE
    for first in range(above, above + DEMO_ROWS_MAX * DEMO_PORTS, DEMO_PORTS):
        if all(map(_is_free, range(first, first + DEMO_PORTS))):
            return first
    raise CannotStart(
        f"The demo needs {DEMO_PORTS} free ports in a row, and finds none from {above} on."
        " Try another PORT, or DEMO=0."
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):  # taken, or above the last port there is
            return False
    return True


def prepare(environment: dict[str, str]) -> None:
    """Migrate, collect static files, load the demo or make the set-up link, in one process."""
    command = [sys.executable, "manage.py", "prepare", "--alone"]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if done.returncode != 0:
        raise CannotStart("The set-up failed; what went wrong stands above.")


def up(port: int, host: str, *, demo: bool) -> int:
    """Run everything; the exit code: 0 after Ctrl-C or SIGTERM, else that of the first to fall."""
    url = os.environ.get("AMENDS_URL") or f"http://localhost:{port}"
    environment = os.environ | {
        "AMENDS_URL": url,
        "AMENDS_DEMO": "1" if demo else "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "sdk")]),
        "PYTHONUNBUFFERED": "1",
        "CELERY_SKIP_CHECKS": "1",  # `prepare` has just run them
    }
    if demo:  # its outside world lives on this machine, where connections otherwise never go
        here = ["127.0.0.1", "localhost", str(Postgres(local_home()).sockets)]
        environment.setdefault("AMENDS_OUTBOUND_ALLOW", ",".join(here))
        first = int(environment.get("DEMO_PORT") or demo_ports(port))
        environment["DEMO_PORT"] = str(first)
        if "EMAIL_HOST" not in environment:  # so that the desk's own mails arrive somewhere
            mail = {"EMAIL_HOST": "127.0.0.1", "EMAIL_PORT": str(first + DEMO_MAIL_ABOVE)}
            environment |= mail
    claim_port(host, port)
    with only_here(local_home(), url), servers(local_home()) as watch:
        (local_home() / env.URL_NOTE).write_text(url)
        prepare(environment)
        manager = Manager(f"http://localhost:{port}", watch)
        for name, command in process_list(port, host, demo=demo).items():
            own = environment | {"AMENDS_PROCESS": name}
            manager.add_process(name, command, env=own, cwd=str(ROOT))
        try:
            manager.loop()
        except BaseException:
            manager.end_now()
            raise
    stopped_by_us = {128 + signal.SIGINT, 128 + signal.SIGTERM}
    return 0 if manager.returncode in stopped_by_us else manager.returncode or 0


def stop_at_once(number: int, _frame: object) -> None:
    """A signal before honcho has taken over: leave through every `finally` and `with`."""
    raise SystemExit(128 + number)


def hang_up(_number: int, _frame: object) -> None:
    """The terminal is gone: the same as SIGTERM, whoever handles that now."""
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make up", description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--demo", type=int, choices=(0, 1), default=1)
    parser.add_argument("--with-parent", action="store_true", help="end when the parent ends")
    options = parser.parse_args()
    if options.with_parent:
        die_with_parent(signal.SIGTERM)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop_at_once)
    signal.signal(signal.SIGHUP, hang_up)
    multiprocessing.set_start_method("fork")  # a reader must be our own child to be on our leash
    try:
        return up(options.port, options.host, demo=bool(options.demo))
    except (CannotStart, DidNotStart) as reason:
        print(reason, file=sys.stderr)  # noqa: T201 - this is a command line
        return 1


if __name__ == "__main__":
    sys.exit(main())
