"""Masking: secrets never leave the process that holds them.

One rule, small enough to be a table, applied by this client before sending and once more by the
ledger when events come in. Both run the vectors of tests/data/masking.json. Masking what is
masked changes nothing, so that digests agree on both sides.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from typing import Any

from amends.canonical import canonical

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
# So is a Message-ID (RFC 5322) of several parts, as mail libraries make them: `<1.2.3@host>`.
_MESSAGE_ID = r"<[0-9A-Za-z_=+-]+(?:\.[0-9A-Za-z_=+-]+){2,}@[0-9A-Za-z.-]+>"
_ID_OR_CARD = re.compile(f"{_UUID}|{_MESSAGE_ID}|{_CARD.pattern}")
_NOT_NAME = re.compile(r"[^a-z0-9]")

SECRET_BYTES_MIN = 32
MARK_BYTES = 16
MARK_FORM = b"amends mask 1"
_MARKED = r"[a-z0-9]{1,32}:v1:[0-9a-f]{32}(?::[0-9A-Z]{4})?⟧"
_PLACEHOLDER = re.compile(f"⟦masked:(?:[a-z0-9]{{1,32}}⟧|{_MARKED})")
_BARE = re.compile(f"⟦masked:(?!{_MARKED})")
_LAST4 = re.compile("(⟦masked:[a-z0-9]{1,32}:v1:[0-9a-f]{32}):[0-9A-Z]{4}(?=⟧)".encode())
_CARD_TAGS = frozenset({"card", "cardnumber", "creditcardnumber"})
_CARD_FORM = re.compile(r"[0-9](?:[ -]?[0-9]){11,18}")
_IBAN_FORM = re.compile(r"[A-Z]{2}[0-9]{2}[0-9A-Z]{11,30}")
_SHOWN = frozenset({"card", "iban"})

# Deeper values are refused by the wire format anyway.
DEPTH_MAX = 32


class TooDeep(ValueError):
    """We stopped because a value is nested deeper than the wire format allows: flatten it."""


def placeholder(tag: str) -> str:
    """What stands where a secret stood; the tag says of which kind it was."""
    return f"⟦masked:{tag}⟧"


class MaskingKey:
    """Makes placeholders that tell secrets apart without telling them (docs/decisions/masking.md).

    A placeholder carries 128 bits of HMAC-SHA-256 (RFC 2104, truncated as NIST SP 800-107 allows)
    over the secret's normal form: the same card is the same mark, however it is grouped; a number
    and a text are two. Without the key, trying all cards tells nothing. `shows_last4` adds the last
    four characters of cards and IBANs, for people to read; they bind nothing.
    """

    __slots__ = ("_secret", "shows_last4")

    def __init__(self, secret: bytes, *, shows_last4: bool = False) -> None:
        if len(secret) < SECRET_BYTES_MIN:
            raise ValueError(f"a masking key has at least {SECRET_BYTES_MIN} bytes")
        self._secret, self.shows_last4 = secret, shows_last4

    def __repr__(self) -> str:
        return "MaskingKey(…)"

    def placeholder(self, tag: str, value: Any) -> str:
        """What stands for `value`, a JSON value, of the kind that `tag` names."""
        family, normal = _normal_form(tag, value)
        told = b"\n".join((MARK_FORM, family.encode(), normal))
        mark = hmac.digest(self._secret, told, "sha256")[:MARK_BYTES].hex()
        last = normal[-4:].decode() if self.shows_last4 and family in _SHOWN else ""
        return placeholder(f"{tag}:v1:{mark}:{last}" if last else f"{tag}:v1:{mark}")


def _normal_form(tag: str, value: Any) -> tuple[str, bytes]:
    """The family within which values are compared, and the bytes that are the same for the same."""
    text = str(value) if type(value) is int else value
    if isinstance(text, str):
        if tag in _CARD_TAGS and _CARD_FORM.fullmatch(text):
            return "card", re.sub("[ -]", "", text).encode()
        if tag == "iban":
            account = "".join(text.split()).upper()
            if _IBAN_FORM.fullmatch(account):
                return "iban", account.encode()
    return f"value of {tag}", canonical(value)


def made_by(key: MaskingKey | None, tag: str, value: Any) -> str:
    """The placeholder for a value; without a key a bare one, which compares with nothing."""
    return placeholder(tag) if key is None else key.placeholder(tag, value)


def holds_bare(value: Any) -> bool:
    """Whether something was masked without a mark: then nothing says which value it was."""
    if isinstance(value, dict):
        return any(map(holds_bare, value.values()))
    if isinstance(value, list | tuple):
        return any(map(holds_bare, value))
    return isinstance(value, str) and _BARE.search(value) is not None


def without_last4(text: bytes) -> bytes:
    """JSON text as digests cover it: what is shown to people may differ, the marks may not."""
    return _LAST4.sub(rb"\1", text) if b"masked:" in text else text


def masked(data: Any, paths: Iterable[str] = (), key: MaskingKey | None = None) -> Any:
    """A copy of an event's `data` with names of the table, cards and policy paths replaced.

    A path is names joined by dots, `*` for any one name; lists are looked through. It starts at
    `data`, and at each of `data.effects`, so that `before.ssn` finds every snapshot.
    """
    copy = _walk(data, 0, key)
    for path in paths:
        names = path.split(".")
        roots = [copy, *(copy.get("effects") or [])] if isinstance(copy, dict) else []
        for root in roots:
            _mask_path(root, names, key)
    return copy


def holds_mask(value: Any) -> bool:
    """Whether a placeholder stands anywhere in a value: then it cannot be restored from here."""
    if isinstance(value, dict):
        return any(holds_mask(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(holds_mask(item) for item in value)
    return isinstance(value, str) and "⟦masked:" in value


def _walk(value: Any, depth: int, key: MaskingKey | None) -> Any:
    if depth > DEPTH_MAX:
        raise TooDeep(f"nested deeper than {DEPTH_MAX}")
    if isinstance(value, dict):
        return {name: _named(str(name), item, depth, key) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(item, depth + 1, key) for item in value]
    if isinstance(value, str):
        return _ID_OR_CARD.sub(lambda found: _card(found[0], key), value)
    if isinstance(value, int) and not isinstance(value, bool) and _is_card(str(value)):
        return made_by(key, "card", value)
    return value


def _named(name: str, value: Any, depth: int, key: MaskingKey | None) -> Any:
    plain = _NOT_NAME.sub("", name.lower())
    if plain not in SECRET_NAMES or _empty(value):
        return _walk(value, depth + 1, key)
    if _is_placeholder(value):
        return value
    inner = _walk(value, depth + 1, key) if isinstance(value, dict | list | tuple) else value
    return made_by(key, plain, inner)


def _mask_path(value: Any, names: list[str], key: MaskingKey | None) -> None:
    if isinstance(value, list):
        for item in value:
            _mask_path(item, names, key)
    if not isinstance(value, dict):
        return
    for name in list(value) if names[0] == "*" else [names[0]]:
        if name not in value:
            continue
        if len(names) > 1:
            _mask_path(value[name], names[1:], key)
        elif not _empty(value[name]) and not _is_placeholder(value[name]):
            value[name] = made_by(key, "policy", value[name])


def _empty(value: Any) -> bool:
    """Nothing, a yes or a no gives no secret away, and is worth knowing when one recovers."""
    return value is None or isinstance(value, bool) or value in ("", [], {})


def _is_placeholder(value: Any) -> bool:
    return isinstance(value, str) and _PLACEHOLDER.fullmatch(value) is not None


def _card(text: str, key: MaskingKey | None) -> str:
    return made_by(key, "card", text) if _is_card(text) else text


def _is_card(text: str) -> bool:
    digits = [int(character) for character in text if character.isdigit()]
    if not _CARD.fullmatch(text):
        return False
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
