"""The outside world of the demo: systems that know nothing of Amends and keep journals.

Two small services, each a WSGI application of a few JSON calls, served in threads; a mail sink; a
calendar.
"""

import html
import itertools
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from http import HTTPStatus
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import httpx
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from amends import NoEffect, twins, webhooks
from workspaces import formatting

# A journal that only grows: one JSON line for every effect, written through to the disk.

Entry = dict[str, Any]
Json = dict[str, Any]
Answer = tuple[int, Json]


class Journal:
    """What happened in one outside system, in order; its state is what the entries add up to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")

    def write(self, what: str, **facts: Any) -> Entry:
        entry = {"at": datetime.now(UTC).isoformat(), "what": what, **facts}
        with self.lock:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        return entry

    def entries(self) -> Iterator[Entry]:
        with self.path.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)

    def answer(self, _said: Json, _environ: Json) -> Answer:
        return 200, {"entries": list(self.entries())}


BODY_BYTES_MAX = 64 * 1024

Route = Callable[..., Answer]
Application = Callable[..., Iterable[bytes]]


class Service:
    """Calls by method and path; what they answer is JSON. `mounts` are whole applications."""

    def __init__(self) -> None:
        self.routes: list[tuple[str, re.Pattern[str], Route]] = []
        self.mounts: dict[str, Application] = {}

    def route(self, method: str, path: str) -> Callable[[Route], Route]:
        def register(function: Route) -> Route:
            self.routes.append((method, re.compile(f"^{path}$"), function))
            return function

        return register

    def __call__(self, environ: Json, start_response: Callable[..., Any]) -> Iterable[bytes]:
        for prefix, application in self.mounts.items():
            if environ["PATH_INFO"].startswith(prefix):
                return application(environ, start_response)
        status, answer = self._answer(environ)
        body = json.dumps(answer).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response(f"{status} {HTTPStatus(status).phrase}", headers)
        return [body]

    def _answer(self, environ: Json) -> Answer:
        for method, path, function in self.routes:
            found = path.match(environ["PATH_INFO"])
            if found and method == environ["REQUEST_METHOD"]:
                length = int(environ.get("CONTENT_LENGTH") or 0)
                if length > BODY_BYTES_MAX:
                    return 413, {"error": "too long"}
                body = environ["demo.body"] = environ["wsgi.input"].read(length)
                try:
                    said = json.loads(body) if body else {}
                except ValueError:
                    return 400, {"error": "not JSON"}
                return function(said, environ, *found.groups())
        return 404, {"error": "no such call"}


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing: the journal tells what happened."""


class Threaded(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 64


def serve(application: Application, port: int) -> Threaded:
    """A server on loopback that answers in threads; call `serve_forever` on it."""
    server = make_server("127.0.0.1", port, application, Threaded, Quiet)
    assert isinstance(server, Threaded)  # noqa: S101  # make_server is typed as its base
    return server


# A payment provider: charges and refunds, with idempotency keys, and twins for the desk.
#
# What it can do wrong on purpose: `fail_next` makes the next call answer 504 after (or before) it
# took effect, which is how the demo gets an outcome that nobody knows. The desk may ask its search
# for a charge by its key; that search lags behind as long as `fail_next` says.

LIMIT_MINOR = 10_000_000
UNTOLD = ("what", "key", "found_from")


class Payments:
    """The state is what the journal adds up to, so that a restart forgets nothing."""

    def __init__(self, folder: Path, secret: str) -> None:
        self.journal = Journal(folder / "payments.jsonl")
        self.charges: dict[str, Entry] = {}
        self.refunds: dict[str, Entry] = {}
        self.answers: dict[str, Json] = {}
        self.faults: list[tuple[str, float]] = []
        self.secret = secret
        for entry in self.journal.entries():
            self._take(entry)
        self.numbers = itertools.count(len(self.charges) + len(self.refunds) + 1)
        self.service = Service()
        self.service.mounts["/amends"] = self._twins(folder, secret).wsgi
        self.service.route("POST", "/charges")(self.charge)
        self.service.route("GET", "/charges/([^/]+)")(self.read)
        self.service.route("GET", "/journal")(self.journal.answer)
        self.service.route("POST", "/faults")(self.fail_next)
        self.service.route("POST", "/search")(self.search)

    def _take(self, entry: Entry) -> None:
        kept = self.charges if entry["what"] == "charged" else self.refunds
        kept[entry["id"]] = entry
        self.answers[entry["key"]] = {k: v for k, v in entry.items() if k not in UNTOLD}

    def charge(self, said: Json, environ: Json) -> Answer:
        """Charge a card once per Idempotency-Key; another request under the key is refused."""
        amount = said.get("amount")
        if not isinstance(amount, int) or not 0 < amount <= LIMIT_MINOR:
            return 400, {"error": "amount is a whole number of cents"}
        key = environ.get("HTTP_IDEMPOTENCY_KEY") or secrets.token_hex(8)
        fault, lags_seconds = self.faults.pop(0) if self.faults else ("", 0.0)
        if fault == "before":
            return 504, {"error": "gateway time-out"}
        with self.journal.lock:
            if key not in self.answers:
                self._take(
                    self.journal.write(
                        "charged",
                        id=f"ch_{next(self.numbers):05d}",
                        key=key,
                        amount=amount,
                        currency=said.get("currency", "usd"),
                        card=said.get("card", ""),
                        customer=said.get("customer", ""),
                        found_from=time.time() + lags_seconds,
                    )
                )
        if fault == "after":
            return 504, {"error": "gateway time-out"}
        return 200, self.answers[key]

    def read(self, _said: Json, _environ: Json, charge: str) -> Answer:
        state = self.state(charge)
        return (200, state) if state else (404, {"error": "no such charge"})

    def state(self, charge: str) -> Json | None:
        kept = self.charges.get(charge) or self._newest_of(charge)
        if kept is None:
            return None
        back = sum(r["amount"] for r in self.refunds.values() if r["charge"] == kept["id"])
        return {
            "id": kept["id"],
            "amount": kept["amount"],
            "currency": kept["currency"],
            "card": kept["card"],
            "refunded": back,
            "status": "refunded" if back >= kept["amount"] else "paid",
        }

    def _newest_of(self, card: str) -> Entry | None:
        """The newest charge of a card, for whoever never learned the id of the charge."""
        return next(
            (one for one in reversed(self.charges.values()) if f"ending {one['card']}" == card),
            None,
        )

    def fail_next(self, said: Json, _environ: Json) -> Answer:
        """`{"when": "before"|"after", "lags": seconds}`: the next charge answers 504 before or
        after its effect, and the search finds it so much later.
        """
        when = "after" if said.get("when") == "after" else "before"
        self.faults.append((when, float(said.get("lags", 0))))
        return 200, {"faults": [one for one, _ in self.faults]}

    def search(self, said: Json, environ: Json) -> Answer:
        """Whether there is a charge under a key, as the desk asks it: a signed `probe`
        (docs/twins.md). Not one of `Twins`, which know only of keys of their own undos.
        """
        headers = {
            name[5:].replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_")
        }
        try:
            webhooks.check([self.secret], headers=headers, body=environ["demo.body"])
        except webhooks.BadSignature as reason:
            return 401, {"detail": str(reason)}
        if said.get("do") != "probe":
            return 200, {"outcome": "no_effect", "detail": "It finds charges, and makes none."}
        found = next((one for one in self.charges.values() if one["key"] == said.get("key")), None)
        if found is None:
            return 200, {"outcome": "no_effect", "detail": "There is no charge under this key."}
        if found.get("found_from", 0.0) > time.time():
            return 200, {"outcome": "unknown", "detail": "The search is some minutes behind."}
        told = f"{found['id']}: {formatting.money(found['amount'], found['currency'].upper())}"
        return 200, {"outcome": "applied", "detail": f"{told}, paid."}

    def _twins(self, folder: Path, secret: str) -> twins.Twins:
        undo = twins.Twins(secret, store=os.fspath(folder / "payments-twins.sqlite"))

        @undo.undo("refund")
        def refund(_args: Json, target: Json, key: str) -> Json | None:
            """Refund what is left of a charge; an already refunded one is a success."""
            with self.journal.lock:
                state = self.state(target["id"])
                if state is None:
                    raise NoEffect("there is no such charge")
                left = state["amount"] - state["refunded"]
                if left > 0 and key not in self.answers:
                    self._take(
                        self.journal.write(
                            "refunded",
                            id=f"re_{next(self.numbers):05d}",
                            key=key,
                            charge=state["id"],
                            amount=left,
                        )
                    )
                return self.state(target["id"])

        @refund.observe
        def charge(_args: Json, target: Json) -> Json | None:
            return self.state(target["id"])

        @refund.probe
        def was_refunded(_args: Json, _target: Json, key: str) -> bool:
            return key in self.answers

        return undo


# A vendor's licence service: paid seats in workspaces, and twins that release them.

PRICE_MINOR = 2_400


class Licences:
    """Seats by id, added up from the journal."""

    def __init__(self, folder: Path, secret: str) -> None:
        self.journal = Journal(folder / "licences.jsonl")
        self.seats: dict[str, Json] = {}
        self.keys: set[str] = set()
        for entry in self.journal.entries():
            self._take(entry)
        self.service = Service()
        self.service.mounts["/amends"] = self._twins(folder, secret).wsgi
        self.service.route("POST", "/seats")(self.assign)
        self.service.route("GET", "/seats/([^/]+)")(self.read)
        self.service.route("GET", "/journal")(self.journal.answer)

    def _take(self, entry: Entry) -> None:
        self.keys.add(entry["key"])
        if entry["what"] == "assigned":
            self.seats[entry["id"]] = {
                "id": entry["id"],
                "holder": entry["holder"],
                "plan": entry["plan"],
                "state": "paid",
            }
        else:
            self.seats[entry["id"]] = {**self.seats[entry["id"]], "state": "released"}

    def assign(self, said: Json, environ: Json) -> Answer:
        """Buy a seat for `holder`, once per Idempotency-Key."""
        holder = said.get("holder")
        if not isinstance(holder, str) or not holder:
            return 400, {"error": "holder is a text"}
        key = environ.get("HTTP_IDEMPOTENCY_KEY") or f"seat-{holder}"
        with self.journal.lock:
            seat = f"seat-{len(self.seats) + 1:04d}"
            if key in self.keys:
                seat = next(e["id"] for e in self.journal.entries() if e["key"] == key)
            else:
                self._take(
                    self.journal.write(
                        "assigned",
                        id=seat,
                        key=key,
                        holder=holder,
                        plan=said.get("plan", "team"),
                        price=PRICE_MINOR,
                    )
                )
        return 200, self.seats[seat]

    def read(self, _said: Json, _environ: Json, seat: str) -> Answer:
        state = self.seats.get(seat)
        return (200, state) if state else (404, {"error": "no such seat"})

    def _twins(self, folder: Path, secret: str) -> twins.Twins:
        undo = twins.Twins(secret, store=os.fspath(folder / "licences-twins.sqlite"))

        @undo.undo("release_licence")
        def release(_args: Json, target: Json, key: str) -> Json | None:
            """Release a seat; a released one is a success."""
            with self.journal.lock:
                state = self.seats.get(target["id"])
                if state is None:
                    raise NoEffect("there is no such seat")
                if state["state"] != "released":
                    self._take(self.journal.write("released", id=target["id"], key=key))
                return self.seats[target["id"]]

        @release.observe
        def seat(_args: Json, target: Json) -> Json | None:
            return self.seats.get(target["id"])

        @release.probe
        def was_released(_args: Json, _target: Json, key: str) -> bool:
            return key in self.keys

        return undo


# A mail sink: takes every message over SMTP, shows a mailbox page, and finds one by Message-ID.

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
