"""The agent charged a card; the desk refunds it through an API that a manifest describes."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest

from connectors import calls, connections, manifest
from connectors.contract import CannotRead, Money, Refused, Target
from tests.ports import answering

CARD = {"number": "4242424242424242", "exp_month": "12", "exp_year": "2030", "cvc": "123"}


@contextmanager
def serves(page, status=200, link=""):
    """A server that answers everything with one page, and says where it goes on."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps(page).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.send_header("link", link)
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            self.do_GET()

    with answering(Answers) as url:
        yield url


@pytest.fixture
def charge(payments):
    """$1 286.00, charged to a card ending 4242."""
    card = {f"card[{name}]": value for name, value in CARD.items()}
    method = payments.post("/v1/payment_methods", data={"type": "card", **card}).json()
    customer = payments.post(
        "/v1/customers", data={"payment_method": method["id"], "email": "eve@x.example"}
    ).json()
    form = {
        "amount": "128600",
        "currency": "usd",
        "customer": customer["id"],
        "source": method["id"],
    }
    made = payments.post("/v1/charges", data=form).json()
    return Target("charge", made["id"])


def refund(connection, target, key, **args):
    return calls.apply(connection, "refund", args, target, key=key)


def probe(connection, target, key):
    return calls.probe(connection, "refund", {}, target, key=key)


def refunds(payments, target):
    return payments.get("/v1/refunds", params={"charge": target.id}).json()["data"]


def test_a_charge_is_refunded_and_found_again_by_its_key(payments, payments_connection, charge):
    before = probe(payments_connection, charge, "r-1")
    answer = refund(payments_connection, charge, "r-1")
    after = probe(payments_connection, charge, "r-1")
    read_back = calls.verify(payments_connection, "refund", {}, charge, key="r-1")

    [made] = refunds(payments, charge)
    assert (answer.outcome, answer.evidence["id"]) == ("applied", made["id"])
    assert made["metadata"] == {"amends_key": "r-1"}
    assert (before.found, after.found) == ("absent", "present")
    assert read_back.ok


def test_part_of_it_is_refunded(payments, payments_connection, charge):
    refund(payments_connection, charge, "r-2", amount=600)

    assert [one["amount"] for one in refunds(payments, charge)] == [600]
    seen = calls.observe(payments_connection, "refund", {"amount": 600}, charge, key="r-2")
    assert (seen.state or {})["amount_refunded"] == 600


@pytest.mark.parametrize(("more", "found"), [(True, "cannot_tell"), (False, "absent")])
def test_a_page_with_more_behind_it_does_not_say_that_there_is_none(connect, outbound, more, found):
    outbound.append("127.0.0.1")
    elsewhere = {"id": "re_1", "status": "succeeded", "metadata": {"amends_key": "another"}}
    with serves({"data": [elsewhere], "has_more": more}) as url:
        settings = {"manifest": "payments", "base_url": url}
        connection = connect("payments", "http", settings, {"token": "sk_test_canary"})
        assert probe(connection, Target("charge", "ch_1"), "r-1").found == found


@pytest.fixture
def answered(connect, outbound):
    """Asks a service that answers everything with this page and status."""
    outbound.append("127.0.0.1")

    def ask(how, page, status=200):
        with serves(page, status) as url:
            settings = {"manifest": "payments", "base_url": url}
            connection = connect("payments", "http", settings, {"token": "sk_test_canary"})
            return how(connection, Target("charge", "ch_1"), "r-1")

    return ask


NO_LIST = [{}, {"error": "try later"}, [], None, "down", {"data": None}, {"data": {"0": {}}},
           {"data": ["re_1"]}, {"data": [], "has_more": "yes"}]  # fmt: skip


@pytest.mark.parametrize(
    ("page", "status"), [({"data": [], "has_more": False}, 503), *((one, 200) for one in NO_LIST)]
)
def test_a_probe_that_was_not_answered_cannot_tell(answered, page, status):
    """Absence is a proof, on which a second try rests: an answer of another form proves nothing."""
    assert answered(probe, page, status).found == "cannot_tell"


@pytest.mark.parametrize("page", [{}, {"error": "try later"}, [], None, "down"])
def test_an_answer_with_none_of_the_fields_is_no_reading(answered, page):
    """It would tell people that every field is empty by now."""
    with pytest.raises(CannotRead, match="nothing that the manifest looks for"):
        answered(lambda connection, *of: calls.observe(connection, "refund", {}, of[0]), page)


@pytest.mark.parametrize(("status", "found"), [("failed", "absent"), ("succeeded", "present")])
def test_a_refund_of_ours_that_failed_is_none(answered, status, found):
    ours = {"id": "re_1", "status": status, "metadata": {"amends_key": "r-1"}}

    assert answered(probe, {"data": [ours], "has_more": False}).found == found


def test_an_answer_that_the_manifest_does_not_know_tells_nothing(answered):
    assert answered(refund, {"object": "teapot"}, 418).outcome == "unknown"


def test_somebody_elses_refund_is_not_taken_for_ours(payments, payments_connection, charge):
    payments.post("/v1/refunds", data={"charge": charge.id, "amount": "100"})

    assert probe(payments_connection, charge, "r-3").found == "absent"


def test_a_refund_made_by_hand_is_noticed_before_ours(payments, payments_connection, charge):
    left = calls.observe(payments_connection, "refund", {}, charge).state
    payments.post("/v1/refunds", data={"charge": charge.id, "amount": "100"})

    seen = calls.observe(payments_connection, "refund", {}, charge)
    diff = calls.drifted(payments_connection, "refund", {}, charge, seen, expected=left)

    assert [(one.field, one.expected, one.actual) for one in diff] == [("amount_refunded", 0, 100)]


def test_a_charge_that_is_not_there_is_refused(payments_connection):
    answer = refund(payments_connection, Target("charge", "ch_none"), "r-4")

    assert answer.outcome == "no_effect"
    assert "404" in answer.detail


def test_a_wrong_token_is_refused_and_shows_nowhere(payments_connection, charge, ada):
    connections.set_secret(payments_connection, "compensate", {"token": "canary-bad"}, by=ada)

    answer = refund(payments_connection, charge, "r-5")

    assert answer.outcome == "no_effect"
    assert "canary" not in repr(answer)


def test_the_preview_says_how_much_and_what_is_sent(payments_connection):
    card = calls.preview(
        payments_connection,
        "refund",
        {"amount": 128600, "currency": "usd"},
        Target("charge", "ch_1"),
        key="r-6",
    )

    assert card.title == "Refund $1\N{NO-BREAK SPACE}286.00 of charge ch_1"
    assert card.money == Money(128600, "USD")
    assert card.will_send["form"] == {
        "charge": "ch_1",
        "amount": "128600",
        "metadata[amends_key]": "r-6",
    }
    assert "authorization" not in repr(card).lower()


@pytest.mark.parametrize("token", ["sk_tést", "sk_test\n", "sk\r\nx-other: 1"])
def test_a_token_that_no_header_can_hold_is_no_effect(connect, outbound, token):
    """Nothing had left, and it was told as not known."""
    outbound.append("127.0.0.1")
    with serves({}) as url:
        settings = {"manifest": "payments", "base_url": url}
        connection = connect("payments", "http", settings, {"token": token})
        answer = refund(connection, Target("charge", "ch_1"), "r-1")

    assert answer.outcome == "no_effect"
    assert answer.detail.startswith("A header of the request, its credential perhaps,")


@pytest.mark.parametrize("name", ["..", "../../v1/accounts", "a?b=c", "x#y", "a%2e"])
def test_a_target_stays_one_segment_of_the_path(payments_connection, name):
    target = Target("charge", name)
    if name == "..":
        with pytest.raises(Refused):
            calls.preview(payments_connection, "cancel", {}, target)
        return

    card = calls.preview(payments_connection, "cancel", {}, target)

    inner = card.will_send["path"].removeprefix("/v1/payment_intents/").removesuffix("/cancel")
    assert not set(inner) & set("/?#")


@pytest.mark.parametrize(
    "base_url", ["ftp://api.example", "//api.example", "https://u:p@api.example", "https://"]
)
def test_an_address_is_scheme_and_host_and_nothing_clever(acme, ada, base_url):
    with pytest.raises(connections.BadSettings, match="base_url"):
        connections.create(
            acme, "p", "http", {"manifest": "payments", "base_url": base_url}, by=ada
        )


@pytest.mark.parametrize("behind", ["#", "?", "/#", "/"])
def test_what_an_address_ends_in_swallows_no_path(payments, payments_connection, charge, behind):
    """A fragment is sent to nobody: the request went to the root of the service."""
    payments_connection.settings |= {"base_url": f"{payments.base_url}".rstrip("/") + behind}

    assert calls.observe(payments_connection, "refund", {}, charge).found


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("path: https://evil.example/x", "begin with one /"),
        ("path: //evil.example/x", "begin with one /"),
        ('path: "/x/{credentials.token}"', "nothing that a template can speak of"),
        ("path: /x\n      colour: red", "unknown field"),
    ],
)
def test_a_manifest_with_a_mistake_is_refused_with_its_place(line, why):
    text = f"""
name: odd
version: "1"
title: Odd
operations:
  undo:
    title: Undo
    reversibility: exact
    idempotency: none
    apply:
      method: POST
      {line}
    answers: []
"""
    with pytest.raises(ValueError, match=why):
        manifest.parsed(text.encode())


def test_every_shipped_manifest_is_whole():
    assert {"payments", "roundup"} <= set(manifest.manifests())


def test_a_deployment_brings_manifests_of_its_own(tmp_path, settings, acme, ada):
    (tmp_path / "odd.yaml").write_text(
        'name: odd\nversion: "1"\ntitle: Odd\nvalues: {account: The account}\n'
        "operations:\n  undo:\n    title: Undo {target.id} of {settings.account}\n"
        "    reversibility: exact\n    idempotency: none\n"
        "    apply: {method: POST, path: '/{settings.account}/undo/{target.id}'}\n"
        "    answers: [{status: [200], outcome: applied}]\n"
    )
    settings.CONNECTOR_MANIFESTS = [str(tmp_path)]
    manifest.manifests.cache_clear()
    try:
        given = {"manifest": "odd", "base_url": "https://odd.example"}
        with pytest.raises(connections.BadSettings, match="account"):
            connections.create(acme, "odd", "http", given, by=ada)
        made = connections.create(
            acme, "odd", "http", {**given, "values": {"account": "a/7"}}, by=ada
        )
        card = calls.preview(made, "undo", {}, Target("thing", "t-1"))
    finally:
        manifest.manifests.cache_clear()

    assert card.title == "Undo t-1 of a/7"
    assert card.will_send["path"] == "/a%2F7/undo/t-1"
