"""How long our own connections believe in a host that no longer answers: to PostgreSQL, and to the
broker.

A host that vanishes closes nothing. Without these the kernel goes on hoping for a quarter of an
hour where something was sent, and for ever where nothing was.
"""

import socket
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

CONNECT_SECONDS_MAX = 5
# An idle line is asked after so long, then so often; after that many without an answer it is dead.
IDLE_SECONDS = 10
ASK_AGAIN_SECONDS = 5
UNANSWERED_MAX = 3
# What was sent and is not acknowledged for so long went to nobody (TCP_USER_TIMEOUT, RFC 5482).
UNACKNOWLEDGED_SECONDS_MAX = 20


def postgres(url: str) -> str:
    """The same server for libpq, given up in time; what the URL itself says stands."""
    return make_conninfo("", **(postgres_parameters() | conninfo_to_dict(url)))


def postgres_parameters() -> dict[str, str]:
    """libpq's own names; it leaves them aside on a unix socket."""
    return {
        "connect_timeout": str(CONNECT_SECONDS_MAX),
        "keepalives_idle": str(IDLE_SECONDS),
        "keepalives_interval": str(ASK_AGAIN_SECONDS),
        "keepalives_count": str(UNANSWERED_MAX),
        "tcp_user_timeout": str(UNACKNOWLEDGED_SECONDS_MAX * 1000),
    }


def session_options(idle_in_transaction_seconds_max: int) -> str:
    """How long the server believes in us: libpq's `options` of a session that is ours alone.

    A machine that is cut off in the middle of a transaction would keep its rows locked for as long
    as the server's kernel hopes, which is two hours.
    """
    limits = {
        "idle_in_transaction_session_timeout": idle_in_transaction_seconds_max * 1000,
        "tcp_keepalives_idle": IDLE_SECONDS,
        "tcp_keepalives_interval": ASK_AGAIN_SECONDS,
        "tcp_keepalives_count": UNANSWERED_MAX,
        "tcp_user_timeout": UNACKNOWLEDGED_SECONDS_MAX * 1000,
    }
    return " ".join(f"-c {name}={value}" for name, value in limits.items())


def redis(url: str, answer_seconds_max: float | None = None) -> dict[str, Any]:
    """What redis-py's `from_url` is given beside the URL: `answer_seconds_max` for who waits for
    each answer no longer than that; a unix socket needs nothing else.
    """
    waits = {"socket_timeout": answer_seconds_max, "socket_connect_timeout": answer_seconds_max}
    found: dict[str, Any] = waits if answer_seconds_max else {}
    if not url.startswith(("redis://", "rediss://")):
        return found
    return found | {"socket_keepalive": True, "socket_keepalive_options": keepalive_options()}


def keepalive_options() -> dict[int, int]:
    """Options of a TCP socket, as far as this system has them."""
    wanted = {
        "TCP_KEEPIDLE": IDLE_SECONDS,
        "TCP_KEEPINTVL": ASK_AGAIN_SECONDS,
        "TCP_KEEPCNT": UNANSWERED_MAX,
        "TCP_USER_TIMEOUT": UNACKNOWLEDGED_SECONDS_MAX * 1000,
    }
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}
