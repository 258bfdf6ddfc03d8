"""Credentials travel only over TLS that was verified against the name that was configured."""

import pytest

from connectors import calls, outbound
from connectors.contract import Target
from connectors.outbound import Deadline, NotSent, Outbound

TARGET = Target("mail", "eve@other.example")


@pytest.fixture
def trust(monkeypatch):
    """Lets a deployment trust an authority of its own, as SSL_CERT_FILE does."""

    def authority(path):
        monkeypatch.setenv("SSL_CERT_FILE", path)
        outbound.tls.cache_clear()

    yield authority
    outbound.tls.cache_clear()


@pytest.fixture
def allowed(settings):
    settings.OUTBOUND_ALLOW = ["localhost", "127.0.0.1"]


def post(url):
    return Outbound(Deadline(5)).request("POST", url, content=b"x").status


def test_a_certificate_that_nobody_vouches_for_is_refused_before_anything_is_sent(
    outsides, allowed
):
    receiver = outsides("receiver")

    with pytest.raises(NotSent, match="certificate"):
        post(f"https://localhost:{receiver.at['tls_port']}/secret")
    assert "/secret" not in {one["path"] for one in receiver.journal.entries()}


def test_the_name_is_checked_and_not_the_address_that_was_pinned(outsides, allowed, trust):
    receiver = outsides("receiver")
    trust(receiver.at["authority"])

    assert post(f"https://localhost:{receiver.at['tls_port']}/good") == 200
    with pytest.raises(NotSent, match="certificate"):
        post(f"https://127.0.0.1:{receiver.at['tls_port']}/other-name")


@pytest.fixture
def encrypted(mail, connect):
    def over(tls, host="localhost"):
        settings = {"host": host, "sender": "desk@acme.example", "tls": tls}
        settings["port"] = mail.at["ports"][tls]
        return connect(f"mail-{tls}", "smtp", settings, {"user": "desk", "password": "canary-mail"})

    return over


def send(connection, subject):
    args = {"subject": subject, "text": "Please disregard it."}
    return calls.apply(connection, "send_correction", args, TARGET, key=subject)


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
def test_mail_goes_over_verified_tls(mail, encrypted, allowed, trust, tls):
    trust(mail.at["authority"])

    answer = send(encrypted(tls), f"by {tls}")

    assert answer.outcome == "applied"
    assert [one["to"] for one in mail.journal.entries() if one["subject"] == f"by {tls}"] == [
        ["eve@other.example"]
    ]


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
def test_a_mail_server_with_a_wrong_certificate_gets_neither_password_nor_mail(
    mail, encrypted, allowed, tls
):
    answer = send(encrypted(tls), f"never by {tls}")

    assert answer.outcome == "no_effect"
    assert "certificate" in answer.detail


def test_a_mail_server_that_does_not_offer_tls_gets_nothing(mail, connect, allowed):
    settings = {"host": "localhost", "sender": "desk@acme.example", "port": mail.at["port"]}
    login = {"user": "desk", "password": "canary-mail"}

    answer = send(connect("stripped", "smtp", settings, login), "stripped")

    assert answer.outcome == "no_effect"
    assert "stripped" not in {one["subject"] for one in mail.journal.entries()}
