"""Whether this desk can ask people to sign what they decide, and under which name of it."""

import ipaddress
from urllib.parse import urlsplit

from django.conf import settings

from amends.protocol.signatures import is_local


def host() -> str:
    """The host by which keys know the desk (the relying party id of WebAuthn)."""
    return urlsplit(settings.AMENDS_URL).hostname or ""


def unavailable() -> str:
    """Why nobody can sign a decision on this desk, in words; empty where people can."""
    name = host()
    if not name or _is_address(name):
        return (
            f"keys sign for a host name, and AMENDS_URL has none ({name or 'nothing'}): give the"
            " desk a name, or localhost"
        )
    if urlsplit(settings.AMENDS_URL).scheme != "https" and not is_local(name):
        return "browsers sign only on pages that come over https"
    if not settings.AMENDS_HEADS_FOLDER:
        return (
            "no head of the log is kept outside the database (AMENDS_HEADS_FOLDER), so no key could"
            " be known for one that was there before"
        )
    return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
