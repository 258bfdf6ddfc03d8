"""The agent wrote to the wrong person. What can be done is one correction, to that person, once."""

import socket
import socketserver
import threading
import time
from dataclasses import replace
from email import message_from_bytes
from email.policy import SMTP
from http.server import BaseHTTPRequestHandler
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db.models.functions import Now

from connectors import calls, channels, connections, outbound
from connectors.builtin import smtp
from connectors.contract import Refused, Target
from tests.ports import answering

SENT = {"to": "eve@other.example", "subject": "Invoice 12"}
TARGET = Target("mail", "<orig-1@acme.example>")
ARGS = {
    "subject": "Please disregard our invoice 12",
    "text": "It was meant for somebody else.\n.\nWe are sorry.",
    "in_reply_to": "<orig-1@acme.example>",
}


def send(connection, key, args=ARGS, expected=SENT, target=TARGET):
    return calls.apply(connection, "send_correction", args, target, key=key, expected=expected)


def arrived(mail, subject=ARGS["subject"]):
    return [one for one in mail.journal.entries() if one["subject"] == subject]


def test_the_recorded_recipient_gets_one_correction(mail, mail_connection):
    answer = send(mail_connection, "m-1", {**ARGS, "subject": "one"})

    [letter] = arrived(mail, "one")
    assert answer.outcome == "applied"
    assert letter["to"] == ["eve@other.example"]
    assert letter["in_reply_to"] == "<orig-1@acme.example>"
    assert letter["text"].replace("\r\n", "\n").strip() == ARGS["text"]
    assert letter["message_id"] == answer.evidence["message_id"]


def test_the_mailbox_tells_whether_it_was_sent(mail, mail_connection):
    args = {**ARGS, "subject": "probe me"}
    facts = calls.Facts(key="m-2", expected=SENT)

    before = calls.probe(mail_connection, "send_correction", args, TARGET, **facts)
    send(mail_connection, "m-2", args)
    after = calls.probe(mail_connection, "send_correction", args, TARGET, **facts)
    read_back = calls.verify(mail_connection, "send_correction", args, TARGET, **facts)

    assert (before.found, after.found) == ("absent", "present")
    assert read_back.ok


class _FindsNone(BaseHTTPRequestHandler):
    """A mailbox without the mail that is asked for; asked for none it tells what it is."""

    def do_GET(self):
        self.send_response(404 if "id" in parse_qs(urlsplit(self.path).query) else 200)
        self.end_headers()


@pytest.mark.parametrize("behind", ["?box=sent", "?", "#", "?box=sent#/"])
def test_a_look_up_asks_for_its_mail_whatever_its_address_ends_in(mail_connection, behind):
    """It was asked for none, so that a mail which nobody had sent was taken for sent."""
    with answering(_FindsNone) as url:
        mail_connection.settings |= {"look_up": url + behind}
        facts = calls.Facts(key="m-none", expected=SENT)

        seen = calls.observe(mail_connection, "send_correction", ARGS, TARGET, **facts)

    assert not seen.found


def test_a_server_that_dies_after_taking_the_mail_leaves_us_not_knowing(mail, mail_connection):
    args = {**ARGS, "subject": "vanish"}

    answer = send(mail_connection, "m-3", args)

    assert answer.outcome == "unknown"
    assert len(arrived(mail, "vanish")) == 1
    found = calls.probe(mail_connection, "send_correction", args, TARGET, key="m-3", expected=SENT)
    assert found.found == "present"


def test_an_answer_that_drips_in_is_cut_at_the_limit(mail, mail_connection, monkeypatch):
    monkeypatch.setattr(smtp, "SEEING", replace(smtp.SEEING, limit_seconds=1.0))

    answer = send(mail_connection, "m-4", {**ARGS, "subject": "drip"})

    assert answer.outcome == "unknown"
    assert len(arrived(mail, "drip")) == 1


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({**ARGS, "subject": "refuse"}, SENT),
        ({**ARGS, "subject": "nobody"}, {"to": "nobody@other.example"}),
    ],
)
def test_a_documented_refusal_is_no_effect(mail, mail_connection, args, expected):
    answer = send(mail_connection, "m-5", args, expected)

    assert answer.outcome == "no_effect"
    assert arrived(mail, args["subject"]) == []


def test_a_wrong_password_is_no_effect_and_stays_unseen(mail, mail_connection, ada):

    wrong = {"user": "desk", "password": "canary-wrong"}
    connections.set_secret(mail_connection, "compensate", wrong, by=ada)

    answer = send(mail_connection, "m-6", {**ARGS, "subject": "locked out"})

    assert answer.outcome == "no_effect"
    assert "canary" not in repr(answer)
    assert arrived(mail, "locked out") == []


@pytest.mark.parametrize(
    ("args", "expected", "target", "why"),
    [
        ({**ARGS, "to": "mallory@evil.example"}, SENT, TARGET, "not whom the agent wrote to"),
        (ARGS, {"subject": "x"}, TARGET, "No recipient is recorded"),
        (ARGS, {"to": ["a@x.example", "b@x.example"]}, TARGET, "Several recipients"),
        ({**ARGS, "subject": "hi\r\nBcc: mallory@evil.example"}, SENT, TARGET, "cannot be written"),
        (ARGS, {"to": "eve@x.example, mallory@evil.example"}, TARGET, "not one that mail"),
        (ARGS, {"to": "eve@x.example\r\nRCPT TO:<m@evil.example>"}, TARGET, "not one that mail"),
    ],
)
def test_no_argument_reaches_anybody_else(mail_connection, args, expected, target, why):
    with pytest.raises(Refused, match=why):
        calls.preview(mail_connection, "send_correction", args, target, expected=expected)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_a_text_cannot_end_its_mail_and_begin_another(mail, mail_connection, end):
    """A line with a dot alone ends a mail (RFC 5321, 4.5.2); what follows it are commands."""
    smuggled = [
        "Sorry.", ".", "MAIL FROM:<desk@acme.example>", "RCPT TO:<mallory@evil.example>", "DATA",
        "Subject: smuggled", "", "x", ".", "", "..", ".", "",
    ]  # fmt: skip
    before = len(mail.journal.entries())
    subject = f"dots {end.encode().hex()}"

    answer = send(
        mail_connection, f"m-{subject}", ARGS | {"subject": subject, "text": end.join(smuggled)}
    )

    [letter] = arrived(mail, subject)
    assert answer.outcome == "applied"
    assert len(mail.journal.entries()) == before + 1
    assert letter["text"].split() == end.join(smuggled).split()


def test_without_a_look_up_it_is_a_receipt_only(mail_connection):
    del mail_connection.settings["look_up"]

    operation = calls.operation_of(mail_connection, "send_correction")

    assert (operation.probe, operation.reads_back, operation.may_repeat) == ("none", False, False)


def test_the_preview_is_the_mail_as_its_recipient_will_see_it(mail_connection):
    card = calls.preview(mail_connection, "send_correction", ARGS, TARGET, expected=SENT, key="k")

    assert card.title == "Send a correction to eve@other.example"
    assert card.recipients == ["eve@other.example"]
    assert ("Text", ARGS["text"]) in card.rows


class Threads(socketserver.ThreadingTCPServer):
    daemon_threads = True
    says = {b"EHLO": b"250-plain\r\n250 AUTH PLAIN\r\n", b"AUTH": b"235 come in\r\n"}
    took = b""
    greets, drips_seconds = b"220 hello\r\n", 0.0


class Plain(socketserver.StreamRequestHandler):
    """A server that knows no extension but the log-in."""

    server: Threads
    heard: ClassVar[list[bytes]] = []

    def handle(self):
        for letter in self.server.greets:
            self.wfile.write(bytes([letter]))
            time.sleep(self.server.drips_seconds)
        for line in self.rfile:
            word = line.strip().partition(b" ")[0].upper()
            self.heard.append(word)
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                self.server.took = b"".join(iter(self.rfile.readline, b".\r\n"))
            self.wfile.write(self.server.says.get(word, b"250 good\r\n"))


@pytest.fixture
def plain(connect, outbound):
    """A connection to such a server, which says to a command what it is told to."""
    outbound.append("127.0.0.1")
    with Threads(("127.0.0.1", 0), Plain) as server:
        threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
        server.says = dict(Threads.says)
        where = {"host": "127.0.0.1", "port": server.server_address[1], "tls": "none"}
        login = {"user": "desk", "password": "canary-mail"}
        yield server, connect("plain", "smtp", {**where, "sender": "desk@acme.example"}, login)
        server.shutdown()


def test_a_mail_has_seven_bits_for_not_every_server_takes_eight(plain):
    """RFC 6152: who sends eight has to ask first, and may be taken for something else."""
    server, connection = plain
    text = "Grüße aus Zürich, 再见"

    answer = send(connection, "m-8", {**ARGS, "text": text})

    assert answer.outcome == "applied"
    assert server.took.isascii()
    letter = message_from_bytes(server.took, policy=SMTP)
    assert letter.get_content().strip() == text


def test_a_log_in_that_cannot_be_written_is_no_effect_and_stays_unseen(plain, ada):
    server, connection = plain
    connections.set_secret(connection, "compensate", {"user": "desk", "password": "é"}, by=ada)

    answer = send(connection, "m-9")

    assert (answer.outcome, server.took) == ("no_effect", b"")
    assert "beyond ASCII" in answer.detail
    assert "xe9" not in answer.detail


def test_a_server_that_never_ends_its_reply_is_left(plain):
    """It filled the worker's memory until the call was over."""
    server, connection = plain
    server.says[b"EHLO"] = b"250-more\r\n" * 50_000 + b"250 good\r\n"

    answer = send(connection, "m-10")

    assert answer.outcome == "no_effect"
    assert "more than any mail server has to say" in answer.detail


def test_a_server_that_greets_drop_by_drop_is_left_at_the_limit_and_nothing_was_sent(
    plain, monkeypatch
):
    """Nobody knew whether a mail had gone out, and a thread was held for as long as it dripped."""
    server, connection = plain
    server.drips_seconds = 0.4
    monkeypatch.setitem(
        smtp.Smtp.operations, "send_correction", replace(smtp.BLIND, limit_seconds=1.0)
    )

    answer = send(connection, "m-11")

    assert (answer.outcome, server.took) == ("no_effect", b"")


def test_a_name_server_that_is_silent_of_ourselves_holds_up_no_mail(plain, monkeypatch):
    """The call was over before a byte had left, and nobody knew whether a mail had gone out."""
    _server, connection = plain

    def silent():
        time.sleep(4)
        return "desk.example"

    monkeypatch.setattr(socket, "getfqdn", silent)
    monkeypatch.setattr(outbound, "CONNECT_SECONDS_MAX", 0.2)
    monkeypatch.setitem(
        smtp.Smtp.operations, "send_correction", replace(smtp.BLIND, limit_seconds=2.0)
    )

    assert send(connection, "m-12").outcome == "applied"


def test_a_machine_whose_name_is_none_of_a_host_sends_its_mail(plain, monkeypatch):
    """A label of the DNS has 63 characters, and a machine's name may have one more."""
    for asked in ("getfqdn", "gethostname"):
        monkeypatch.setattr(socket, asked, lambda: "x" * 64)
    assert send(plain[1], "m-13").outcome == "applied"


def test_a_server_of_the_desk_that_is_not_reached_in_time_is_one_that_is_not_reached():
    """Else `check --deploy` ended in it, and so did a page that sends a mail."""
    with pytest.raises(OSError, match="time"):
        smtp._Named(outbound.Deadline(0)).connect("127.0.0.1", 25)


def test_a_mail_of_the_desk_is_put_off_where_its_server_answers_drop_by_drop(
    plain, acme, monkeypatch, settings
):
    """Each letter came in the time that there is for one, so everybody's messages waited for it."""
    server, connection = plain
    server.drips_seconds = 0.4
    settings.EMAIL_BACKEND, settings.EMAIL_HOST = channels.SMTP, connection.settings["host"]
    settings.EMAIL_PORT, settings.EMAIL_USE_TLS = connection.settings["port"], False
    monkeypatch.setattr(smtp, "MAIL_SECONDS_MAX", 1.0)
    message = channels.Message("A case", "It waits for you.")
    mail = channels.write_to(acme, "eve@other.example", "case.opened", message, key="m-1")

    assert channels.send_due() == 1

    mail.refresh_from_db()
    assert (mail.state, mail.tries, server.took) == ("waiting", 1, b"")
    server.drips_seconds = 0.0
    mail.next_try_at = Now()
    mail.save()
    channels.send_due()
    assert b"It waits for you." in server.took


@pytest.mark.parametrize("reply", [b"454 not now\r\n", b"220 go\r\n250-AUTH PLAIN\r\n250 good\r\n"])
def test_a_server_that_says_no_to_tls_or_goes_on_without_it_gets_nothing(
    plain, monkeypatch, ada, reply
):
    """What is said in the clear after STARTTLS is nobody's word (CVE-2011-0411)."""
    server, connection = plain
    server.says |= {b"EHLO": b"250-plain\r\n250 STARTTLS\r\n", b"STARTTLS": reply}
    settings = connection.settings | {"tls": "starttls"}
    connections.update(connection, settings, by=ada, revision=connection.revision)
    login = {"user": "desk", "password": "canary-mail"}
    connections.set_secret(connection, "compensate", login, by=ada)
    heard: list[bytes] = []
    monkeypatch.setattr(Plain, "heard", heard)
    monkeypatch.setitem(
        smtp.Smtp.operations, "send_correction", replace(smtp.BLIND, limit_seconds=1.0)
    )

    answer = send(connection, "m-12")

    assert (answer.outcome, server.took) == ("no_effect", b"")
    assert not {b"AUTH", b"MAIL", b"DATA"} & set(heard)
