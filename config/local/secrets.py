"""The secrets of a local desk, made once and kept in a file that only this user can read."""

import base64
import os
import secrets
from pathlib import Path

NAMES = ("DJANGO_SECRET_KEY", "AMENDS_SECRET_KEYS", "AMENDS_METRICS_TOKEN")


def fresh(name: str) -> str:
    """A new secret. Field keys are 32 random bytes, base64, as Fernet wants them."""
    if name == "AMENDS_SECRET_KEYS":
        return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    return secrets.token_urlsafe(50)


def load(home: Path) -> dict[str, str]:
    """Read `secrets.env`, completing it where a name is new; two processes may race to do so."""
    path = home / "secrets.env"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    missing = [name for name in NAMES if name not in read(path)]
    if missing:
        complete(path, missing)
    return read(path)


def read(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    lines = path.read_text().splitlines()
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition("=")
        found.setdefault(name, value)  # the first writer of a race wins, for every reader
    return found


def complete(path: Path, names: list[str]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "a") as file:
        file.write("".join(f"{name}={fresh(name)}\n" for name in names))
