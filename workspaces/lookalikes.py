"""What a reader takes for the same, where domains may stand in it as they are sent."""

import re

from amends.protocol import lookalikes
from amends.protocol.lookalikes import plain

_PUNYCODE = re.compile(r"\bxn--([a-z0-9-]{1,59})(?![a-z0-9-])", re.IGNORECASE)


def skeleton(text: str) -> str:
    """The same for all texts that a reader may take for one another."""
    return lookalikes.skeleton(shown(plain(text)))


def shown(text: str) -> str:
    """The text with domains as a browser shows them."""
    return _PUNYCODE.sub(_as_shown, text)


def _as_shown(label: re.Match[str]) -> str:
    """A part of a domain as a browser shows it (RFC 3492); as it stands where it is none."""
    try:
        return label[1].encode().decode("punycode")
    except UnicodeError:
        return label[0]
