"""`smtp`: send one person a correction of a mail that cannot be unsent.

The recipient is the recorded one: whom the agent wrote to, or the target itself; no argument can
add another. The Message-ID is derived from the key, so that a mailbox that can be searched shows
whether a lost answer was a mail. Mail has no other idempotency, so it is tried once.

Until the message itself is on its way every failure is certain to have had no effect; a server that
answers the message with 4xx or 5xx has not taken it (RFC 5321, 4.2.5). A connection lost in between
leaves us not knowing.
"""

from __future__ import annotations

import hashlib
import smtplib
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, localtime
from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import urlencode, urlsplit

import msgspec
from django.core.mail.backends import smtp as django_smtp

from connectors.contract import (
    Answer,
    Call,
    CannotRead,
    Connector,
    FieldDiff,
    Finding,
    Observation,
    Operation,
    Preview,
    Refused,
    meaning,
)
from connectors.outbound import (
    AddressRefused,
    Deadline,
    NotSent,
    Outbound,
    OutOfTime,
    account_of,
    connected_as_named,
    is_allowed_by_name,
    own_name,
    tls,
)

# A correction as a mail: to whom it may go, and its one Message-ID.

TEXT_CHARACTERS_MAX = 20_000
SUBJECT_CHARACTERS_MAX = 200
ADDRESS_CHARACTERS_MAX = 254


class SendCorrection(msgspec.Struct, forbid_unknown_fields=True):
    """`to` may name one of several recorded recipients; `in_reply_to` is the wrong mail's
    Message-ID.
    """

    subject: Annotated[str, meaning("What the correction is called")]
    text: Annotated[str, meaning("What it says")]
    to: Annotated[
        str | None,
        meaning("One of several recorded recipients; empty: whoever got the wrong mail"),
    ] = None
    in_reply_to: Annotated[
        str | None, meaning("The Message-ID of the wrong mail, so that both stand together")
    ] = None


def message_id(call: Call) -> str:
    """The same key, the same Message-ID, whatever plan or process sends it."""
    name = hashlib.sha256(call.key.encode()).hexdigest()[:40]
    domain = address_of(call.connection.settings.sender).domain
    return f"<{name}@{domain}>"


def composed(call: Call) -> EmailMessage:
    """The whole mail; raises Refused where it cannot or may not be written."""
    args: SendCorrection = call.operation.check_args(call.args)
    if len(args.subject) > SUBJECT_CHARACTERS_MAX or len(args.text) > TEXT_CHARACTERS_MAX:
        raise Refused("The subject or the text is too long for a correction.")
    message = EmailMessage(policy=SMTP.clone(cte_type="7bit"))  # not every server takes 8 bits
    try:
        message["From"] = address_of(call.connection.settings.sender)
        message["To"] = _recipient(call, args)
        message["Subject"] = args.subject
        message["Message-ID"] = message_id(call)
        message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no out-of-office answers
        if args.in_reply_to:
            message["In-Reply-To"] = message["References"] = args.in_reply_to
        message.set_content(args.text)
    except (ValueError, MessageError) as wrong:
        raise Refused(f"This cannot be written as a mail: {wrong}") from wrong
    return message


def _recipient(call: Call, args: SendCorrection) -> Address:
    """One of the recorded recipients; an argument may choose among them and name no other."""
    recorded = [call.target.id] if "@" in call.target.id and "<" not in call.target.id else []
    if isinstance(call.expected, dict):
        to = call.expected.get("to", [])
        recorded += to if isinstance(to, list) else [to]
    known = {address_of(str(one)).addr_spec.lower() for one in recorded}
    if not known:
        raise Refused("No recipient is recorded, and none is made up.")
    wanted = args.to or (recorded[0] if len(known) == 1 else "")
    if not wanted:
        raise Refused("Several recipients are recorded; say which one with “to”.")
    chosen = address_of(str(wanted))
    if chosen.addr_spec.lower() not in known:
        raise Refused(f"{chosen.addr_spec} is not whom the agent wrote to.")
    return chosen


def address_of(text: str) -> Address:
    """`a@b.example` or `Name <a@b.example>`, and nothing cleverer."""
    name, bracket, rest = text.strip().rpartition("<")
    spec = rest.removesuffix(">") if bracket else text.strip()
    try:
        address = Address(name.strip().strip('"'), addr_spec=spec)
    except (ValueError, MessageError, IndexError) as wrong:
        raise Refused("An address is not one that mail can be sent to.") from wrong
    if not (
        address.domain
        and address.username
        and spec.isascii()
        and len(spec) <= ADDRESS_CHARACTERS_MAX
    ):
        raise Refused("An address is not one that mail can be sent to.")
    return address


TAKEN, TAKEN_FOR_ELSEWHERE, GO_AHEAD = 250, 251, 354
REFUSALS = range(400, 600)
REPLIES_BYTES_MAX = 256 * 1024
"""Of all that a mail server says; a reply has no end of its own."""
LOOK_UP_HORIZON_SECONDS = 60
"""How long after it was accepted a mail may take until a look-up shows it."""


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """`look_up` is an address that answers 200 or 404 to `?id=<Message-ID>`; without it nothing is
    read.
    """

    host: Annotated[str, meaning("The mail server that takes what is sent")]
    sender: Annotated[str, meaning("Whom corrections come from, such as desk@example.com")]
    port: Annotated[int, meaning("587 for starttls, 465 for implicit")] = 587
    tls: Annotated[
        Literal["starttls", "implicit", "none"],
        meaning(
            "starttls: encrypted once connected; implicit: from the first byte; none: for a"
            " sandbox on this machine",
            "Encryption",
        ),
    ] = "starttls"
    look_up: Annotated[
        str,
        meaning(
            "An address that answers 200 or 404 to ?id=<Message-ID>; without it nothing is read"
            " and a lost answer is left to a person"
        ),
    ] = ""


class Login(msgspec.Struct, forbid_unknown_fields=True):
    user: Annotated[str, meaning("The account at the mail server; empty where it asks none")] = ""
    password: Annotated[str, meaning("Its password")] = ""
    look_up_token: Annotated[str, meaning("A bearer token for the look-up address")] = ""


BLIND = Operation(
    name="send_correction",
    title="Send a correction by mail",
    args_schema=SendCorrection,
    reversibility="irreversible",
    idempotency="none",
    limit_seconds=30,
    kind="mail",
    observes=False,
    reads_back=False,
)
SEEING = replace(
    BLIND,
    probe="eventual",
    horizon_seconds=LOOK_UP_HORIZON_SECONDS,
    observes=True,
    reads_back=True,
)


class LostOnTheWay(Exception):
    """We stopped because nobody answered after the message was sent: it may have been taken."""


class Smtp(Connector):
    name = "smtp"
    version = "1.0"
    title = "Mail (SMTP)"
    summary = "Sends a correction to whom a wrong mail went; a mail cannot be taken back."
    settings_schema = Settings
    credential_schema = Login
    where = frozenset({"host", "port", "sender", "look_up"})
    operations = {"send_correction": BLIND}

    def operations_for(self, settings: Any) -> Mapping[str, Operation]:
        return {"send_correction": SEEING} if settings.look_up else self.operations

    def place(self, settings: Any) -> str:
        return f"{settings.host}:{settings.port}"

    def account(self, settings: Any, credentials: Any) -> str | None:
        """Nothing tells whose a token to look up by is, which looks beside the log-in."""
        if credentials.look_up_token:
            return None
        return account_of(credentials.user, credentials.password)

    def check_settings(self, settings: Any) -> None:
        try:
            address_of(settings.sender)
        except Refused as wrong:
            raise ValueError(str(wrong)) from wrong

    def preview(self, call: Call) -> Preview:
        message = composed(call)
        sent = {name: str(message[name]) for name in ("From", "To", "Subject", "Message-ID")}
        args: SendCorrection = call.operation.check_args(call.args)
        return Preview(
            kind="mail",
            title=f"Send a correction to {sent['To']}",
            rows=[*sent.items(), ("Text", args.text)],
            will_send={**sent, "text": args.text, "in_reply_to": args.in_reply_to},
            must_be_true={"exists": True} if call.operation.reads_back else {},
            recipients=[sent["To"]],
        )

    def observe(self, call: Call) -> Observation:
        """Whether a mail with our Message-ID is there already."""
        settings: Settings = call.connection.settings
        if not settings.look_up:
            raise CannotRead("Mail that was sent cannot be looked up over this connection.")
        token = call.connection.credentials.look_up_token
        answer = call.connection.outbound.request(
            "GET",
            _asking_for(message_id(call), settings.look_up),
            headers={"authorization": f"Bearer {token}"} if token else {},
        )
        if answer.status == HTTPStatus.NOT_FOUND:
            return Observation(found=False, state=None)
        if answer.status != HTTPStatus.OK:
            raise CannotRead(f"The look-up answered {answer.status}.")
        return Observation(found=True, state={"message_id": message_id(call)})

    def drifted(self, call: Call, observation: Observation) -> list[FieldDiff]:
        return []  # what was sent stays as it was sent

    def apply(self, call: Call) -> Answer:
        message = composed(call)
        with _session(call) as server:
            with _before_anything_is_sent():
                _announce(server, message)
            code, said = _hand_over(server, message)
        if code in REFUSALS:
            raise Refused(f"The mail server did not take the message: {code} {said}")
        if code != TAKEN:
            raise LostOnTheWay(f"The mail server answered in no way we know: {code} {said}")
        return Answer(
            outcome="applied", evidence={"message_id": str(message["Message-ID"]), "said": said}
        )

    def probe(self, call: Call) -> Finding:
        found = self.observe(call).found
        evidence = {"message_id": message_id(call)}
        return Finding(found="present" if found else "absent", evidence=evidence)


def _asking_for(message: str, look_up: str) -> str:
    """Beside what its query holds already: behind a second “?” nobody reads of which mail we ask,
    and whoever is asked of none may answer 200.
    """
    parts = urlsplit(look_up)
    query = "&".join(filter(None, [parts.query, urlencode({"id": message})]))
    return parts._replace(query=query, fragment="").geturl()


class _Replies:
    """What a mail server says, line by line, as far as it is read."""

    def __init__(self, wire: socket.socket) -> None:
        self._lines, self._left = wire.makefile("rb"), REPLIES_BYTES_MAX

    def readline(self, characters_max: int) -> bytes:
        line = self._lines.readline(characters_max)
        self._left -= len(line)
        if self._left < 0:
            raise OSError("it says more than any mail server has to say")
        return line

    def close(self) -> None:
        self._lines.close()


class _Server(smtplib.SMTP):
    """smtplib over a socket that passed the address rule."""

    file: Any

    def __init__(
        self, outbound: Outbound, *, implicit_tls: bool, local_hostname: str | None = None
    ) -> None:
        self._outbound = outbound
        self._implicit_tls = implicit_tls
        self._cut = ExitStack()
        name = local_hostname or own_name(outbound.deadline)
        super().__init__(timeout=outbound.deadline.remaining(), local_hostname=name)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        connected = self._outbound.connect(host, port)
        self._cut.enter_context(self._outbound.deadline.cutting(connected.fileno()))
        connected.settimeout(timeout)
        if self._implicit_tls:
            return tls().wrap_socket(connected, server_hostname=host)
        return connected

    def close(self) -> None:
        super().close()
        self._cut.close()

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = _Replies(self.sock)
        return super().getreply()


@contextmanager
def _session(call: Call) -> Iterator[_Server]:
    """A server that let us in; raises NotSent, for nothing has been sent so far."""
    settings: Settings = call.connection.settings
    login: Login = call.connection.credentials
    if settings.tls == "none" and not is_allowed_by_name(settings.host, settings.port):
        raise AddressRefused("Only hosts named in OUTBOUND_ALLOW may go without TLS.")
    with _before_anything_is_sent():
        server = _Server(call.connection.outbound, implicit_tls=settings.tls == "implicit")
    with closing(server):
        with _before_anything_is_sent():
            server.connect(settings.host, settings.port)
        if server.sock is None:
            raise NotSent("The mail server closed the connection.")
        with _before_anything_is_sent():
            server.ehlo_or_helo_if_needed()
            if settings.tls == "starttls":
                server._host = settings.host  # type: ignore[attr-defined]  # noqa: SLF001 - for the certificate
                server.starttls(context=tls())
                server.ehlo()
            if login.user:
                server.login(login.user, login.password)
        yield server  # outside the above: what fails from here on is for the caller to judge


@contextmanager
def _before_anything_is_sent() -> Iterator[None]:
    try:
        yield
    except (OSError, smtplib.SMTPException, OutOfTime) as failure:
        raise NotSent(f"The mail server cannot be used: {failure}") from failure
    except UnicodeEncodeError:  # its words show a letter of the password
        raise NotSent("The log-in at the mail server has letters beyond ASCII.") from None


def _announce(server: _Server, message: EmailMessage) -> None:
    """Everything before the message itself."""
    sender = address_of(str(message["From"])).addr_spec
    recipient = address_of(str(message["To"])).addr_spec
    for code, said in (server.mail(sender), server.rcpt(recipient)):
        if code not in {TAKEN, TAKEN_FOR_ELSEWHERE}:
            raise Refused(f"The mail server refused: {code} {said.decode(errors='replace')}")
    code, answer = server.docmd("DATA")
    if code != GO_AHEAD:
        raise Refused(f"The mail server refused: {code} {answer.decode(errors='replace')}")


def _hand_over(server: _Server, message: EmailMessage) -> tuple[int, str]:
    """Send the message; from here on a lost connection means that we do not know."""
    message["Date"] = format_datetime(localtime())
    body = message.as_bytes().replace(b"\r\n.", b"\r\n..")
    if body.startswith(b"."):
        body = b"." + body
    try:
        server.send(body.rstrip(b"\r\n") + b"\r\n.\r\n")
        code, said = server.getreply()
    except (OSError, smtplib.SMTPException) as lost:
        raise LostOnTheWay("The connection was lost while the mail was handed over.") from lost
    return code, said.decode(errors="replace")


# The desk's own mails go by the server that its deployment names.

MAIL_SECONDS_MAX = 30.0
"""For one with its whole session. Django's limit is for each read alone, so a server that answers a
byte a second held whoever sent: a person's page, or everybody's messages.
"""
GREETING = 220


class _Named(Outbound):
    """The way to a server that the deployment itself names; OSError where there is none."""

    def connect(self, host: str, port: int) -> socket.socket:
        try:
            return connected_as_named(host, port, self.deadline)
        except (NotSent, OutOfTime) as failure:
            raise OSError(str(failure)) from failure


class _DeskServer(_Server):
    """The desk's mail server, as Django opens it."""

    def __init__(self, host: str, port: int, *, local_hostname: str, timeout: float) -> None:
        named = _Named(Deadline(MAIL_SECONDS_MAX))
        super().__init__(named, implicit_tls=False, local_hostname=local_hostname)
        self._host, self.timeout = host, timeout
        code, said = self.connect(host, port)
        if code != GREETING:
            self.close()
            raise smtplib.SMTPConnectError(code, said)


class EmailBackend(django_smtp.EmailBackend):
    """Django's, by a session that ends in time."""

    connection_class = _DeskServer
