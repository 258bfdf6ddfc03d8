"""The outside world of these tests: real servers, each with its own memory of what was done."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import psycopg
import pytest

from config.local.parent_death_signal import leashed
from tests import people
from tests.ports import free_port
from tests.worlds import kept, quiet

acme = people.acme

QUIET: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

SHOP = """
CREATE TABLE tickets (
    world text NOT NULL, id text NOT NULL, priority text, assignee text, opened timestamptz,
    price numeric(10,2), tags jsonb, version integer NOT NULL DEFAULT 1,
    shouted text GENERATED ALWAYS AS (upper(priority)) STORED,
    PRIMARY KEY (world, id));
CREATE TABLE ticket_notes (
    id bigint GENERATED ALWAYS AS IDENTITY, world text, ticket text, body text, author text);
CREATE TABLE customers (id integer PRIMARY KEY, name text, email text, seen timestamptz);
CREATE TABLE secrets (id integer PRIMARY KEY, value text);
"""


@pytest.fixture
def ada(db):
    from workspaces.models import User

    return User.objects.create_user("ada@acme.example", name="Ada")


def server_of(url):
    parts = urlsplit(url)
    host = parse_qs(parts.query).get("host", [parts.hostname])[0]
    return {"host": host, "port": parts.port or 5432, "user": parts.username or ""}


@pytest.fixture(scope="session")
@quiet
def shop_url():
    """A second database, with another owner's tables: the system that agents work on."""
    own = os.environ["DATABASE_URL"]
    name = f"shop_{uuid.uuid4().hex[:12]}"  # two areas may ask for it in one session
    with psycopg.connect(own, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
    yield own.replace(urlsplit(own).path, f"/{name}", 1)
    with psycopg.connect(own, autocommit=True) as server:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
@quiet
def shop(shop_url):
    """An own session on the shop's database, empty and fresh."""
    with psycopg.connect(shop_url, autocommit=True) as session:
        session.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        session.execute(SHOP)
        yield session


@pytest.fixture
@quiet
def outbound(settings):
    """What the deployment allows: nothing, until a test adds a name."""
    settings.OUTBOUND_ALLOW = []
    return settings.OUTBOUND_ALLOW


@pytest.fixture
@quiet
def shop_allowed(shop, shop_url, outbound):
    outbound.append(server_of(shop_url)["host"])
    return outbound


@pytest.fixture
@kept
def shop_connection(acme, ada, shop_url, shop_allowed):
    tables = {
        "ticket": {
            "table": "tickets",
            "key": ["world", "id"],
            "version": "version",
            "ignore": ["shouted"],
            "note": {
                "table": "ticket_notes",
                "key": ["world", "ticket"],
                "text": "body",
                "fixed": {"author": "Amends"},
            },
        },
        "customers": {"key": ["id"], "ignore": ["seen"]},
    }
    return shop_reached(acme, shop_url, tables, shop_allowed, by=ada)


def shop_reached(workspace, shop_url, tables, outbound, *, by):
    """A connection that restores rows of these tables of the shop."""
    where = server_of(shop_url)
    outbound.append(where["host"])
    settings = {
        "host": where["host"],
        "port": where["port"],
        "database": urlsplit(shop_url).path[1:],
        "sslmode": "disable",
        "tables": tables,
    }
    credential = {"user": where["user"], "password": "canary-7Q"}
    return connected(workspace, "shop", "sql", settings, credential, by=by)


def connected(workspace, name, connector, settings, credential, *, by):
    """With the same credential for both purposes."""
    from connectors import connections

    connection = connections.create(workspace, name, connector, settings, by=by)
    for purpose in ("observe", "compensate"):
        connections.set_secret(connection, purpose, credential, by=by)
    return connection


@pytest.fixture(scope="session")
def outsides(tmp_path_factory):
    """Starts an outside program at its first use, and stops them all at the end."""
    from tests.connectors.outside import Outside

    running = {}

    def get(name):
        if name not in running:
            running[name] = Outside(name, tmp_path_factory.mktemp(name))
        return running[name]

    yield get
    for one in running.values():
        one.stop()


@pytest.fixture
def receiver(outsides, outbound):
    outbound.append("127.0.0.1")
    return outsides("receiver")


@pytest.fixture
def connect(acme, ada):
    """Makes a connection."""
    return partial(connected, acme, by=ada)


@pytest.fixture
def mail(outsides):
    return outsides("mail")


@pytest.fixture
def mail_connection(mail, connect, outbound):
    outbound.append("127.0.0.1")
    settings = {
        "host": "127.0.0.1",
        "port": mail.at["port"],
        "tls": "none",
        "sender": "Acme <desk@acme.example>",
        "look_up": mail.at["look_up"],
    }
    return connect("mail", "smtp", settings, {"user": "desk", "password": "canary-mail"})


@pytest.fixture
def licences(outsides):
    """The licence service, freshly started: it remembers keys and moods."""
    return outsides("licences")


@pytest.fixture
def licence_connection(licences, connect, outbound):
    outbound.append("127.0.0.1")
    declared = {"title": "Release the licence", "args": {"seat?": "integer"}, "leaves": "gone"}
    return connect(
        "licences",
        "webhook",
        {"url": licences.at["url"], "operations": {"release_licence": declared}},
        {"secret": licences.at["secret"]},
    )


def answers(url):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            httpx.get(url)
            return
        time.sleep(0.05)
    raise AssertionError(f"Nothing answers at {url}.")


@contextlib.contextmanager
def serving(url, *command):
    """Somebody else's server, answering, for as long as this run lives, however that ends."""
    words = [str(word) for word in command]
    server = subprocess.Popen(leashed(words, ends_with=signal.SIGTERM), **QUIET)
    try:
        answers(url)
        yield
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="session")
def payments():
    """A Stripe-shaped API server that nobody here wrote: localstripe, which ignores keys."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    program = Path(sys.executable).parent / "localstripe"
    with (
        serving(url, program, "--port", port, "--from-scratch"),
        httpx.Client(base_url=url, auth=("sk_test_canary", "")) as client,
    ):
        yield client


@pytest.fixture
def payments_connection(payments, connect, outbound):
    outbound.append("127.0.0.1")
    settings = {"manifest": "payments", "base_url": str(payments.base_url).rstrip("/")}
    return connect("payments", "http", settings, {"token": "sk_test_canary"})


@pytest.fixture(scope="session")
def calendar(tmp_path_factory):
    """Radicale, a CalDAV server that nobody here wrote, with one empty calendar."""
    port = free_port()
    folder = tmp_path_factory.mktemp("radicale")
    url = f"http://127.0.0.1:{port}"
    program = [sys.executable, "-m", "radicale", "--hosts", f"127.0.0.1:{port}"]
    options = ["--storage-filesystem-folder", folder, "--auth-type", "none"]
    with (
        serving(url, *program, *options),
        httpx.Client(base_url=f"{url}/desk/trips/", auth=("desk", "x")) as client,
    ):
        client.request("MKCALENDAR", "").raise_for_status()
        yield client


@pytest.fixture
def calendar_connection(calendar, connect, outbound):
    outbound.append("127.0.0.1")
    login = {"user": "desk", "password": "canary-cal"}
    return connect("trips", "caldav", {"url": str(calendar.base_url)}, login)


@pytest.fixture(scope="session")
def tracker(tmp_path_factory):
    """Roundup, an issue tracker that nobody here wrote, with its REST API."""
    home = tmp_path_factory.mktemp("roundup") / "tracker"
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    admin = [Path(sys.executable).parent / "roundup-admin", "-i", home]
    # It hashes the password anew for each request: as seldom as may be.
    options = f"tracker_web={url}/,mail_domain=localhost,password_pbkdf2_default_rounds=1000"
    subprocess.run([*admin, "install", "classic", "sqlite", options], check=True, **QUIET)
    subprocess.run([*admin, "initialise", "canary-admin"], check=True, **QUIET)
    asked_by_us = {"Origin": url, "X-Requested-With": "rest"}
    with (
        serving(url, sys.executable, "-m", "tests.connectors.outside.tracker", home, port),
        httpx.Client(
            base_url=url, auth=("admin", "canary-admin"), headers=asked_by_us, trust_env=False
        ) as client,
    ):
        yield client


@pytest.fixture
def tracker_connection(tracker, connect, outbound):
    outbound.append("127.0.0.1")
    settings = {"manifest": "roundup", "base_url": str(tracker.base_url).rstrip("/")}
    return connect("tracker", "http", settings, {"user": "admin", "password": "canary-admin"})
