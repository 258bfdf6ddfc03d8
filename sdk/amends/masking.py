"""Masking: secrets never leave the process that holds them.

One rule, small enough to be a table, applied by this client before sending and once more by the
ledger when events come in. Both run the vectors of tests/data/masking.json. Masking what is
masked changes nothing, so that digests agree on both sides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

# Compared with a value's whole name, in lower case, with everything but letters and digits removed:
# `API-Key`, `api_key` and `apiKey` are one name, `token_count` is another.
SECRET_NAMES = frozenset(
    {
        "password", "passwd", "pwd", "passphrase", "secret", "clientsecret", "secretkey",
        "token", "accesstoken", "refreshtoken", "idtoken", "authtoken", "bearertoken",
        "sessiontoken", "apikey", "apitoken", "apisecret", "accesskey", "secretaccesskey",
        "privatekey", "signingkey", "authorization", "proxyauthorization", "cookie", "setcookie",
        "cvv", "cvv2", "cvc", "cvc2", "cardnumber", "creditcardnumber", "iban",
    }
)  # fmt: skip

# A payment card: 13 to 19 digits that start with an issuer's digit, in groups or not, with a valid
# check digit (Luhn, ISO/IEC 7812-1). Millisecond clocks start with 1 and are left alone.
_CARD = re.compile(r"(?<![0-9A-Za-z])[2-6](?:[ -]?[0-9]){12,18}(?![0-9A-Za-z])")
# An id in the form of a UUID (RFC 9562) is no card, whatever digits chance has put into it.
_UUID = (
    r"(?<![0-9A-Za-z])[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[1-8][0-9A-Fa-f]{3}"
    r"-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}(?![0-9A-Za-z])"
)
_UUID_OR_CARD = re.compile(f"{_UUID}|{_CARD.pattern}")
_NOT_NAME = re.compile(r"[^a-z0-9]")

# Deeper values are refused by the wire format anyway.
DEPTH_MAX = 32


class TooDeep(ValueError):
    """We stopped because a value is nested deeper than the wire format allows: flatten it."""


def placeholder(tag: str) -> str:
    """What stands where a secret stood; the tag says of which kind it was."""
    return f"⟦masked:{tag}⟧"


def masked(data: Any, paths: Iterable[str] = ()) -> Any:
    """A copy of an event's `data` with names of the table, cards and policy paths replaced.

    A path is names joined by dots, `*` for any one name; lists are looked through. It starts at
    `data`, and at each of `data.effects`, so that `before.ssn` finds every snapshot.
    """
    copy = _walk(data, 0)
    for path in paths:
        names = path.split(".")
        roots = [copy, *(copy.get("effects") or [])] if isinstance(copy, dict) else []
        for root in roots:
            _mask_path(root, names)
    return copy


def holds_mask(value: Any) -> bool:
    """Whether a placeholder stands anywhere in a value: then it cannot be restored from here."""
    if isinstance(value, dict):
        return any(holds_mask(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(holds_mask(item) for item in value)
    return isinstance(value, str) and "⟦masked:" in value


def _walk(value: Any, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise TooDeep(f"nested deeper than {DEPTH_MAX}")
    if isinstance(value, dict):
        return {name: _named(str(name), item, depth) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(item, depth + 1) for item in value]
    if isinstance(value, str):
        return _UUID_OR_CARD.sub(_card, value)
    if isinstance(value, int) and not isinstance(value, bool) and _is_card(str(value)):
        return placeholder("card")
    return value


def _named(name: str, value: Any, depth: int) -> Any:
    plain = _NOT_NAME.sub("", name.lower())
    if plain not in SECRET_NAMES or _empty(value):
        return _walk(value, depth + 1)
    return value if _is_placeholder(value) else placeholder(plain)


def _mask_path(value: Any, names: list[str]) -> None:
    if isinstance(value, list):
        for item in value:
            _mask_path(item, names)
    if not isinstance(value, dict):
        return
    for name in list(value) if names[0] == "*" else [names[0]]:
        if name not in value:
            continue
        if len(names) > 1:
            _mask_path(value[name], names[1:])
        elif not _empty(value[name]) and not _is_placeholder(value[name]):
            value[name] = placeholder("policy")


def _empty(value: Any) -> bool:
    """Nothing, a yes or a no gives no secret away, and is worth knowing when one recovers."""
    return value is None or isinstance(value, bool) or value in ("", [], {})


def _is_placeholder(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("⟦masked:") and value.endswith("⟧")


def _card(found: re.Match[str]) -> str:
    return placeholder("card") if _is_card(found[0]) else found[0]


def _is_card(text: str) -> bool:
    digits = [int(character) for character in text if character.isdigit()]
    if not _CARD.fullmatch(text):
        return False
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
