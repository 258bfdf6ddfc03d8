"""A mail sink: takes every message over SMTP, shows a mailbox page, and finds one by Message-ID."""

import html
import os
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import httpx
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from demo.outside.services import Answer, Journal, Json, Service, Threaded, serve

MESSAGE_BYTES_MAX = 1024 * 1024
SHOWN_MAX = 200

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Mailbox of the demo</title>
<style>
body{{font:15px/1.5 system-ui,sans-serif;max-width:46rem;margin:3rem auto;padding:0 1rem;
  color:#1b1f24;background:#f6f6f3}}
article{{background:#fff;border:1px solid #e4e3dd;border-radius:8px;padding:1rem 1.25rem;
  margin:1rem 0}}
pre{{white-space:pre-wrap;font:inherit}} h2{{margin:0;font-size:1rem}} small{{color:#5b6570}}
</style></head><body><h1>Mailbox of the demo</h1>
<p>Every mail that agents and the desk sent, newest first. Nothing leaves this machine.</p>
{messages}</body></html>"""


class Mailbox:
    """The messages received, added up from the journal."""

    def __init__(self, folder: Path) -> None:
        self.journal = Journal(folder / "mail.jsonl")
        self.refusing = 0
        self.service = Service()
        self.service.mounts["/mailbox"] = self.page
        self.service.route("GET", "/messages")(self.look_up)
        self.service.route("GET", "/journal")(self.journal.answer)
        self.service.route("POST", "/faults")(self.fail_next)

    async def handle_DATA(  # noqa: N802  # the name that aiosmtpd calls
        self, _server: SMTP, _session: Session, envelope: Envelope
    ) -> str:
        if self.refusing:
            self.refusing -= 1
            return "451 4.4.1 504 gateway time-out, nothing was accepted"
        content = envelope.content if isinstance(envelope.content, bytes) else b""
        message = message_from_bytes(content, policy=policy.default)
        assert isinstance(message, EmailMessage)  # noqa: S101  # what the default policy makes
        body = message.get_body(("plain", "html"))
        self.journal.write(
            "received",
            id=str(message["Message-ID"] or "").strip(),
            to=list(envelope.rcpt_tos),
            sender=envelope.mail_from,
            subject=str(message["Subject"] or ""),
            text=body.get_content() if body else "",
        )
        return "250 OK"

    def fail_next(self, said: Json, _environ: Json) -> Answer:
        """`{"times": 3}`: refuse that many messages, with nothing accepted."""
        self.refusing = int(said.get("times", 1))
        return 200, {"refusing": self.refusing}

    def look_up(self, _said: Json, environ: Json) -> Answer:
        """`GET /messages?id=<…>`: the message with that Message-ID, or 404."""
        from urllib.parse import parse_qs

        wanted = parse_qs(environ.get("QUERY_STRING", "")).get("id", [""])[0].strip()
        for entry in self.journal.entries():
            if entry["id"] == wanted:
                return 200, entry
        return 404, {"error": "no such message"}

    def page(self, _environ: Json, start_response: Any) -> list[bytes]:
        messages = "".join(
            f"<article><h2>{html.escape(entry['subject'])}</h2>"
            f"<small>{html.escape(entry['at'][:19])}"
            f" · to {html.escape(', '.join(entry['to']))}</small>"
            f"<pre>{html.escape(entry['text'])}</pre></article>"
            for entry in reversed(list(self.journal.entries())[-SHOWN_MAX:])
        )
        body = PAGE.format(messages=messages or "<p>No mail yet.</p>").encode()
        start_response("200 OK", [("Content-Type", "text/html; charset=utf-8")])
        return [body]

    def smtp(self, port: int) -> Controller:
        return Controller(self, hostname="127.0.0.1", port=port, data_size_limit=MESSAGE_BYTES_MAX)


# A calendar server: Radicale, a real CalDAV server that nobody here wrote, on loopback.

OWNER = "desk"
CALENDAR = f"/{OWNER}/trips/"
MAKE = b"""<?xml version="1.0" encoding="utf-8"?>
<C:mkcalendar xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><D:set><D:prop>
<D:displayname>Trips</D:displayname></D:prop></D:set></C:mkcalendar>"""


def application(folder: Path) -> Any:
    from radicale.app import Application
    from radicale.config import load

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


def calendar(folder: Path, port: int) -> Threaded:
    return serve(application(folder), port)


def make_calendar(url: str) -> None:
    """Make the calendar of trips; one that exists is kept."""
    answer = httpx.request(
        "MKCALENDAR", url + CALENDAR, content=MAKE, auth=(OWNER, OWNER), trust_env=False
    )
    if answer.status_code not in (201, 405, 409):
        answer.raise_for_status()
