"""Where the demo keeps its things and where its outside systems listen."""

import base64
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from config.local.places import local_home, private_folder
from config.local.postgres import OWNER, Postgres

OUTSIDE_DATABASE = "outside"
FIRST_PORT_ABOVE_THE_DESK = 11


def folder() -> Path:
    """The demo's own folder; DEMO_HOME where a test wants another."""
    home = Path(os.environ.get("DEMO_HOME") or local_home() / "demo")
    private_folder(home)
    return home


@dataclass(frozen=True)
class Places:
    """Five ports in a row on loopback, from `first` on."""

    first: int

    @property
    def payments(self) -> str:
        return f"http://127.0.0.1:{self.first}"

    @property
    def licences(self) -> str:
        return f"http://127.0.0.1:{self.first + 1}"

    @property
    def mailbox(self) -> str:
        return f"http://127.0.0.1:{self.first + 2}"

    @property
    def smtp_port(self) -> int:
        return self.first + 3

    @property
    def calendar(self) -> str:
        return f"http://127.0.0.1:{self.first + 4}"


def places() -> Places:
    """Next to the desk's own port, so that two desks on one machine do not meet."""
    given = os.environ.get("DEMO_PORT")
    desk = urlsplit(os.environ.get("AMENDS_URL", "http://localhost:8000")).port or 8000
    return Places(int(given) if given else desk + FIRST_PORT_ABOVE_THE_DESK)


def outside_url() -> str:
    """The outside world's own database: DEMO_DATABASE_URL, else one on the embedded server."""
    return os.environ.get("DEMO_DATABASE_URL") or Postgres(local_home()).url(OUTSIDE_DATABASE)


def outside_settings() -> dict[str, Any]:
    """The same database as a connection's settings."""
    from psycopg.conninfo import conninfo_to_dict

    found = conninfo_to_dict(outside_url())
    return {
        "host": str(found.get("host", "localhost")),
        "port": int(found.get("port") or 5432),
        "database": str(found["dbname"]),
        "sslmode": "disable",
    }


def outside_login() -> dict[str, Any]:
    from psycopg.conninfo import conninfo_to_dict

    found = conninfo_to_dict(outside_url())
    return {"user": str(found.get("user", OWNER)), "password": str(found.get("password", ""))}


def make_outside_database() -> None:
    if not os.environ.get("DEMO_DATABASE_URL"):
        Postgres(local_home()).ensure(OUTSIDE_DATABASE)


class SharedFacts:
    """Small facts that the demo's processes share, in one closed file: secrets, keys, log-ins."""

    def __init__(self) -> None:
        self.path = folder() / "kept.json"

    def read(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}
        return said

    def write(self, **facts: Any) -> None:
        said = self.read() | facts
        new = self.path.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_text(json.dumps(said, indent=1))
        new.replace(self.path)


def twins_secret() -> str:
    """The secret that the two services and the desk's connections share."""
    kept = SharedFacts()
    if "twins_secret" not in kept.read():
        kept.write(twins_secret="whsec_" + base64.b64encode(secrets.token_bytes(24)).decode())
    return str(kept.read()["twins_secret"])


def spool(agent: str) -> Path:
    return folder() / f"spool-{quote(agent, safe='')}.sqlite"
