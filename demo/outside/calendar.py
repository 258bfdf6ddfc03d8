"""A calendar server: Radicale, a real CalDAV server that nobody here wrote, on loopback."""

import os
from pathlib import Path
from typing import Any
from wsgiref.simple_server import make_server

import httpx
from radicale.app import Application
from radicale.config import load

from demo.outside.service import Quiet, Threaded

OWNER = "desk"
CALENDAR = f"/{OWNER}/trips/"
MAKE = b"""<?xml version="1.0" encoding="utf-8"?>
<C:mkcalendar xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><D:set><D:prop>
<D:displayname>Trips</D:displayname></D:prop></D:set></C:mkcalendar>"""


def application(folder: Path) -> Any:
    configuration = load()
    configuration.update(
        {
            "auth": {"type": "none"},
            "storage": {"filesystem_folder": os.fspath(folder / "calendar")},
            "logging": {"level": "warning"},
        },
        "demo",
        privileged=True,
    )
    return Application(configuration)


def serve(folder: Path, port: int) -> Threaded:
    server = make_server("127.0.0.1", port, application(folder), Threaded, Quiet)
    assert isinstance(server, Threaded)  # noqa: S101  # make_server is typed as its base
    return server


def make_calendar(url: str) -> None:
    """Make the calendar of trips; one that exists is kept."""
    answer = httpx.request(
        "MKCALENDAR", url + CALENDAR, content=MAKE, auth=(OWNER, OWNER), trust_env=False
    )
    if answer.status_code not in (201, 405, 409):
        answer.raise_for_status()
