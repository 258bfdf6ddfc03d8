"""`python -m demo.world`: run the outside world of the demo until told to stop.

Five servers in one process, each with a journal of its own in the demo's folder: payments,
licences, the mailbox page, SMTP and a calendar. The two services mount `amends.twins`.
"""

import signal
import threading
from urllib.parse import urlsplit

from demo import outside, places
from demo.outside import Licences, Mailbox, Payments, serve


def _port(url: str) -> int:
    return urlsplit(url).port or 0


def main() -> None:
    folder, where, secret = places.folder(), places.places(), places.twins_secret()
    mailbox = Mailbox(folder)
    servers = [
        serve(Payments(folder, secret).service, _port(where.payments)),
        serve(Licences(folder, secret).service, _port(where.licences)),
        serve(mailbox.service, _port(where.mailbox)),
        outside.calendar(folder, _port(where.calendar)),
    ]
    smtp = mailbox.smtp(where.smtp_port)
    smtp.start()
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    outside.make_calendar(where.calendar)
    print(f"The outside world is up; its mailbox: {where.mailbox}/mailbox", flush=True)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
    smtp.stop()


if __name__ == "__main__":
    main()
