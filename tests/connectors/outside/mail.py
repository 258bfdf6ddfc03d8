"""A mail server with a mailbox that can be searched by Message-ID.

Words in the subject change its mood: "refuse" is answered with 554, "vanish" is taken and the
connection is cut before the answer, "drip" is taken and answered a byte at a time.
"""

import asyncio
import email
import json
import sys
import threading
from collections.abc import Callable
from email import policy
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from tests.connectors.outside import Journal, certificate, serve, web

journal = Journal(sys.argv[1])


class Box:
    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, server: Any, session: Any, envelope: Any, to: str, _: Any
    ) -> str:
        if to.startswith("nobody@"):
            return "550 no such mailbox"
        envelope.rcpt_tos.append(to)
        return "250 OK"

    async def handle_DATA(  # noqa: N802 - aiosmtpd's name
        self, server: Any, session: Any, envelope: Any
    ) -> str:
        message = email.message_from_bytes(envelope.content, policy=policy.default)
        subject = str(message["Subject"])
        if "refuse" in subject:
            return "554 not wanted here"
        journal.add(
            to=envelope.rcpt_tos,
            subject=subject,
            text=message.get_content(),
            message_id=message["Message-ID"],
            in_reply_to=message["In-Reply-To"],
            head=envelope.content.partition(b"\r\n\r\n")[0].decode("ascii"),
        )
        if "vanish" in subject:
            server.transport.abort()
        if "drip" in subject:
            for _ in range(40):
                server.transport.write(b"2")
                await asyncio.sleep(0.1)
        return "250 taken"


class LookUp(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        wanted = parse_qs(urlsplit(self.path).query).get("id", [""])[0]
        known = any(one["message_id"] == wanted for one in journal.entries())
        body = json.dumps({"found": known}).encode()
        self.send_response(200 if known else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


def known(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
    good = isinstance(data, LoginPassword) and data.password == b"canary-mail"
    return AuthResult(success=good, handled=False)


def plain() -> SMTP:
    return SMTP(Box(), authenticator=known, auth_require_tls=False, enable_SMTPUTF8=True)


def starting_tls() -> SMTP:
    return SMTP(Box(), authenticator=known, tls_context=context, require_starttls=True)


def listening(session: Callable[[], SMTP], **options: Any) -> int:
    server = loop.run_until_complete(loop.create_server(session, "127.0.0.1", 0, **options))
    port: int = server.sockets[0].getsockname()[1]
    return port


context, authority = certificate(journal.path.parent)
loop = asyncio.new_event_loop()
ports = {
    "none": listening(plain),
    "starttls": listening(starting_tls),
    "implicit": listening(plain, ssl=context),
}
threading.Thread(target=loop.run_forever, daemon=True).start()
serve(
    port=ports["none"],
    ports=ports,
    authority=authority,
    look_up=f"http://127.0.0.1:{web(LookUp).server_port}/messages",
)
