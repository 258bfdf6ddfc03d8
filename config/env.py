"""What the environment says. Reading it is kept apart from what is made of it (settings.py).

Two ways to run: with DATABASE_URL and REDIS_URL set, the desk uses those servers and takes every
secret from the environment; with neither, it uses the embedded ones and secrets below `.local/`.
"""

import base64
import os
import secrets
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from config.local.places import local_home
from config.local.postgres import RUNTIME, Postgres
from config.local.servers import Valkey
from edge import sockets

# The secrets of a local desk, made once and kept in a file that only this user can read.

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


DATABASE = "amends"
URL_NOTE = "url"


def text(name: str, default: str | None = None) -> str:
    value = os.environ.get(name) or default
    if value is None:
        raise ImproperlyConfigured(f"Set {name}: it is required where DATABASE_URL is set.")
    return value


def claim(name: str, *, default: bool) -> bool:
    return text(name, "1" if default else "0").lower() in {"1", "true", "yes", "on"}


def number(name: str, default: int, *, at_least: int = 0) -> int:
    given = text(name, str(default))
    try:
        said = int(given)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} is a whole number, not {given!r}.") from error
    if said < at_least:
        raise ImproperlyConfigured(f"{name} is at least {at_least}, not {said}.")
    return said


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def web_processes() -> int:
    """How many accept connections on this machine."""
    return int(max(1, number("AMENDS_WEB_PROCESSES", min(2, cores()))))


def choice(name: str, *allowed: str) -> str:
    """One of these words; the first where nothing is said."""
    given = os.environ.get(name) or allowed[0]
    if given not in allowed:
        raise ImproperlyConfigured(f"{name} is one of {', '.join(allowed)}, not {given!r}.")
    return given


def words(name: str) -> list[str]:
    """A list divided by commas."""
    return [word.strip() for word in os.environ.get(name, "").split(",") if word.strip()]


def embedded() -> bool:
    """Do the servers and secrets of this checkout serve us? Half of either is a mistake."""
    given = [name for name in ("DATABASE_URL", "REDIS_URL") if os.environ.get(name)]
    if len(given) == 1:
        raise ImproperlyConfigured("Set both DATABASE_URL and REDIS_URL, or neither.")
    return not given


def database_url() -> str:
    """As whom the desk runs: of the embedded server, a role that cannot change the ledger."""
    return os.environ.get("DATABASE_URL") or Postgres(local_home()).url(DATABASE, RUNTIME)


def owner_url() -> str:
    """As whom tables are made: migrations, partitions, retention, erasure."""
    given = os.environ.get("DATABASE_OWNER_URL") or os.environ.get("DATABASE_URL")
    return given or Postgres(local_home()).url(DATABASE)


def redis_url() -> str:
    return os.environ.get("REDIS_URL") or Valkey(local_home()).url


def broker_url() -> str:
    """The same server as Celery names it: a socket is `redis+socket://` there."""
    given = os.environ.get("BROKER_URL") or redis_url()
    return given.replace("unix://", "redis+socket://", 1)


def desk_url() -> str:
    """Where people reach the desk; a local one says it in a file, for commands beside `make up`."""
    given = os.environ.get("AMENDS_URL")
    if not given and embedded():
        note = local_home() / URL_NOTE
        given = note.read_text() if note.exists() else "http://localhost:8000"
    url = (given or text("AMENDS_URL")).strip().rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ImproperlyConfigured(f"AMENDS_URL is an address like https://…, not {url!r}.")
    return url


def secret(name: str) -> str:
    """From the environment; of a local desk, from the file made at its first start."""
    given = os.environ.get(name)
    if given or not embedded():
        return given or text(name)
    return load(local_home())[name]


def database(name: str, url: str) -> dict[str, Any]:
    """A Django DATABASES entry of what the variable says; whatever libpq understands may stand in
    it. Raises ImproperlyConfigured, without the password that may be in it.
    """
    try:
        options = sockets.postgres_parameters() | conninfo_to_dict(url)
    except ProgrammingError:
        raise ImproperlyConfigured(
            f"{name} is no address like postgresql://user:password@host/database."
        ) from None
    return {
        "ENGINE": "edge.postgresql",
        "NAME": options.pop("dbname", DATABASE),
        "USER": options.pop("user", ""),
        "PASSWORD": options.pop("password", ""),
        "HOST": options.pop("host", ""),
        "PORT": str(options.pop("port", "")),
        "OPTIONS": options,
        "CONN_HEALTH_CHECKS": True,
    }
