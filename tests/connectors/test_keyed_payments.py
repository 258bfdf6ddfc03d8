"""Refunds on a payments server that remembers keys: asking again cannot refund twice."""

import json
import os
import subprocess
from urllib.parse import urlsplit

import httpx
import pytest

from connectors import calls, registry
from connectors.conformance import PROMISES, Trial
from connectors.contract import Target
from tests import npm
from tests.proxy import Proxy

SERVER = "tests/connectors/outside/keyed_payments.js"


@pytest.fixture(scope="session")
def keyed_payments():
    """A Stripe-shaped server that nobody here wrote, stripe-stateful-mock: it honours keys."""
    server = subprocess.Popen(
        [npm.NODE, SERVER],
        env=os.environ | {"NODE_PATH": str(npm.installed() / "node_modules")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = json.loads(server.stdout.readline())["url"]
        with httpx.Client(base_url=url, auth=("sk_test_canary", ""), trust_env=False) as client:
            yield client
    finally:
        server.stdin.close()
        server.stdout.close()
        server.wait(10)


@pytest.fixture
def charge(keyed_payments):
    """€ 500.00, charged to a Visa card."""
    form = {"amount": "50000", "currency": "eur", "source": "tok_visa"}
    made = keyed_payments.post("/v1/charges", data=form).raise_for_status().json()
    return Target("charge", made["id"])


@pytest.fixture
def line(keyed_payments):
    """The way there, on which an answer may be lost."""
    where = urlsplit(str(keyed_payments.base_url))
    with Proxy((where.hostname, where.port)) as proxy:
        yield proxy


@pytest.fixture
def connection(line, connect, outbound):
    outbound.append("127.0.0.1")
    settings = {"manifest": "payments", "base_url": f"http://127.0.0.1:{line.port}"}
    return connect("payments", "http", settings, {"token": "sk_test_canary"})


def refund(connection, charge, key, **args):
    return calls.apply(connection, "refund", args, charge, key=key)


def refunds(server, charge):
    return server.get("/v1/refunds", params={"charge": charge.id}).json()["data"]


def test_the_same_key_gives_the_same_refund(keyed_payments, connection, charge):
    first = refund(connection, charge, "k-1", amount=20000)
    second = refund(connection, charge, "k-1", amount=20000)

    [made] = refunds(keyed_payments, charge)
    assert first.outcome == second.outcome == "applied"
    assert first.evidence["id"] == second.evidence["id"] == made["id"]


def test_a_refund_whose_answer_was_lost_is_asked_for_again_and_made_once(
    keyed_payments, connection, charge, line
):
    line.lose_answers()

    lost = refund(connection, charge, "k-2", amount=20000)
    found = calls.probe(connection, "refund", {"amount": 20000}, charge, key="k-2")
    again = refund(connection, charge, "k-2", amount=20000)

    [made] = refunds(keyed_payments, charge)
    assert line.lost == 1
    assert (lost.outcome, found.found, again.outcome) == ("unknown", "present", "applied")
    assert again.evidence["id"] == made["id"]


def test_other_parameters_under_the_key_are_refused_and_refund_nothing(
    keyed_payments, connection, charge
):
    refund(connection, charge, "k-3", amount=20000)

    other = refund(connection, charge, "k-3", amount=30000)

    assert [one["amount"] for one in refunds(keyed_payments, charge)] == [20000]
    assert other.outcome == "unknown"  # what was asked first under the key may have been done
    assert "400" in other.detail


def test_without_a_key_of_its_own_a_second_refund_is_a_second_one(
    keyed_payments, connection, charge
):
    for key in ("k-4", "k-5"):
        refund(connection, charge, key, amount=20000)

    assert len(refunds(keyed_payments, charge)) == 2


def test_it_is_read_back_as_refunded(connection, charge):
    refund(connection, charge, "k-6")

    assert calls.verify(connection, "refund", {}, charge, key="k-6").ok


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_a_refund_under_a_key_keeps_the_promises(keyed_payments, connection, charge, promise):
    def somebody_refunds_a_part():
        keyed_payments.post("/v1/refunds", data={"charge": charge.id, "amount": "100"})

    promise(
        Trial(
            connector=registry.get("http"),
            operation="refund",
            settings=connection.settings,
            credential=connection.compensate_secret.open(),
            target=charge,
            expected={"amount": 50000, "amount_refunded": 0, "currency": "eur", "refunded": False},
            arrange=lambda: None,
            effects=lambda: len(refunds(keyed_payments, charge)),
            disturb=somebody_refunds_a_part,
            unreachable={"base_url": "http://127.0.0.1:9"},
            key=f"promise {charge.id}",
        )
    )
