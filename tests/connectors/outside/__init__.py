"""Outside systems for the connectors' tests: programs of their own, each with its own journal.

`python -m tests.connectors.outside.NAME JOURNAL` prints its addresses as one JSON line and serves
until its standard input closes. The journal is a file of JSON lines that only it writes.
"""

import json
import os
import ssl
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

ROOT = Path(__file__).parents[3]


class Journal:
    """What really happened, written by the one to whom it happened."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()

    def add(self, **entry: Any) -> None:
        with self._lock, self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def entries(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        # The last line may still be on its way: a long one is written in parts.
        whole, _, _ = self.path.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]


class Outside:
    """One such program, started and stopped by a test."""

    def __init__(self, name: str, folder: Path) -> None:
        self.journal = Journal(folder / f"{name}.jsonl")
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"tests.connectors.outside.{name}", str(self.journal.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'sdk'}"},
        )
        assert self.process.stdout
        said = self.process.stdout.readline()
        if not said:
            self.stop()
            raise AssertionError(f"The outside system {name} did not start.")
        self.at: dict[str, Any] = json.loads(said)

    def ask(self, method: str, path: str, said: Any = None) -> Any:
        """Speak to it as the test, over HTTP."""
        answer = httpx.request(
            method, self.at["url"] + path, json=said, trust_env=False, timeout=30
        )
        return answer.json()

    def stop(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def serve(**addresses: Any) -> None:
    """Say where we are, and stay until the test is done with us."""
    print(json.dumps(addresses), flush=True)  # noqa: T201 - how the test learns of it
    sys.stdin.read()


def certificate(folder: Path) -> tuple[ssl.SSLContext, str]:
    """A certificate for `localhost`, and the file of the authority that vouches for it: itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "authority.pem", folder / "key.pem"
    public.write_bytes(made.public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    return context, str(public)


def web(
    handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext | None = None
) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
