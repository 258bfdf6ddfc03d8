"""PostgreSQL over TLS: one of this machine's own with TLS built in, and TLS in front of ours.

The wheel's PostgreSQL has no TLS. What stands in front of it speaks the first two messages of the
protocol (SSLRequest, `S`) and then plain TLS, as a cloud's entrance does.
"""

import asyncio
import contextlib
import shutil
import ssl
import subprocess
import threading
from pathlib import Path

from config.local.postgres import OWNER, Postgres
from tests.ports import free_port

SSL_REQUEST = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")
PIECE_BYTES = 65_536
DEBIAN = Path("/usr/lib/postgresql")


def with_tls() -> Path | None:
    """The folder of a PostgreSQL on this machine that has TLS, the newest; None where none has."""
    found = [Path(shutil.which("postgres") or "/none").resolve().parent]
    found += sorted(DEBIAN.glob("*/bin"), key=lambda one: int(one.parent.name), reverse=True)
    return next((one for one in found if _has_tls(one)), None)


def _has_tls(folder: Path) -> bool:
    if not all((folder / name).exists() for name in ("postgres", "initdb", "pg_config")):
        return False
    asked = [str(folder / "pg_config"), "--configure"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return "openssl" in said


class TlsPostgres(Postgres):
    """It lets nobody in over the network without TLS and a password."""

    def __init__(self, home: Path, binaries: Path, certificate: Path, key: Path) -> None:
        self.port = free_port()
        key.chmod(0o600)
        super().__init__(
            home,
            durable=False,
            binaries=binaries,
            settings={
                "listen_addresses": "127.0.0.1",
                "port": str(self.port),
                "password_encryption": "scram-sha-256",
                "hba_file": str(home / "hba.conf"),
                "ssl": "on",
                "ssl_cert_file": str(certificate),
                "ssl_key_file": str(key),
            },
        )
        home.mkdir(mode=0o700)
        (home / "hba.conf").write_text(
            "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n"
        )

    def url(self, database: str, role: str = OWNER) -> str:
        return f"{super().url(database, role)}&port={self.port}"


class Front:
    """Listens on `port`, and takes TLS off (or not) before a PostgreSQL on a unix socket."""

    def __init__(self, postgres_socket: str, context: ssl.SSLContext | None) -> None:
        self.to, self.context = postgres_socket, context
        self._loop = asyncio.new_event_loop()
        serving = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = self._loop.run_until_complete(serving)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for one in rest:
            one.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await asyncio.sleep(0)  # what is closed lets go of its socket at the next turn

    async def _serve(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, EOFError):
                await self._led_on(near, back)
        finally:
            back.close()

    async def _led_on(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        if self.context is not None:
            assert await near.readexactly(len(SSL_REQUEST)) == SSL_REQUEST
            back.write(b"S")
            await back.start_tls(self.context)
        answers, far = await asyncio.open_unix_connection(self.to)
        try:
            await asyncio.gather(passed_on(near, far), passed_on(answers, back))
        finally:
            far.close()


async def passed_on(come: asyncio.StreamReader, go: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await come.read(PIECE_BYTES):
            go.write(piece)
            await go.drain()
    go.close()
