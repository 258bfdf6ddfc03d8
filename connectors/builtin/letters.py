"""A correction as a mail: to whom it may go, and its one Message-ID."""

from __future__ import annotations

import hashlib
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP

import msgspec

from connectors.contract import Call, Refused

TEXT_CHARACTERS_MAX = 20_000
SUBJECT_CHARACTERS_MAX = 200
ADDRESS_CHARACTERS_MAX = 254


class SendCorrection(msgspec.Struct, forbid_unknown_fields=True):
    """`to` may name one of several recorded recipients; `in_reply_to` is the wrong mail's
    Message-ID.
    """

    subject: str
    text: str
    to: str | None = None
    in_reply_to: str | None = None


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
    message = EmailMessage(policy=SMTP)
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
