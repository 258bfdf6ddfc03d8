"""Masking: secrets never leave the process that holds them, and never enter the ledger.

One rule, applied by the client before sending and once more when events come in. Masking what is
masked changes nothing, so that digests agree on both sides. The same walk looks at everything else
that JSON allows and the ledger does not, so that each value is touched once.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Sequence
from typing import Any

from amends.protocol.canonical import (
    INTEGER_DIGITS_MAX,
    INTEGER_END,
    INTEGER_MAX,
    canonical,
    is_plain_float,
)

DEPTH_MAX = 32
NAME_CHARACTERS_CACHED_MAX = 64
NAMES_CACHED_MAX = 10_000
CARD_DIGITS_MIN = 13
CARD_MIN = 10 ** (CARD_DIGITS_MIN - 1)

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
# A card among other digits ("4242 4242 4242 4242 12/27", "2026-11-23 4242…"): as it is printed, in
# one piece, four groups of four, or 4-6-5 and 4-6-4. Any other grouping has to stand by itself.
_PRINTED = re.compile(
    f"{_UUID}|{_MESSAGE_ID}|"
    r"(?P<card>(?<![0-9A-Za-z])(?=[2-6])(?:[0-9]{13,19}|[0-9]{4}(?:[ -][0-9]{4}){3}"
    r"|[0-9]{4}[ -][0-9]{6}[ -][0-9]{4,5})(?![0-9A-Za-z]))"
)
# Anything that could be one, in raw JSON; slow, so `Look` asks for many digits first.
_CARD_IN_BYTES = re.compile(rb"[2-6][0-9 -]{12}")
_MANY_DIGITS = b"0" * CARD_DIGITS_MIN
_DIGITS_ALIKE = bytes(ord("0") if chr(byte).isdigit() else byte for byte in range(128)) + bytes(128)
_NOT_NAME = re.compile(r"[^a-z0-9]")
_OPENING = "⟦masked:"

SECRET_BYTES_MIN = 32
MARK_BYTES = 16
MARK_FORM = b"amends mask 1"
_MARKED = r"[a-z0-9]{1,32}:v1:[0-9a-f]{32}(?::[0-9A-Z]{4})?⟧"
_PLACEHOLDER = re.compile(f"⟦masked:(?:[a-z0-9]{{1,32}}⟧|{_MARKED})")
BARE_PLACEHOLDER = f"⟦masked:(?!{_MARKED})"
"""A regular expression, in PostgreSQL's dialect, too."""
_BARE = re.compile(BARE_PLACEHOLDER)
_LAST4 = re.compile("(⟦masked:[a-z0-9]{1,32}:v1:[0-9a-f]{32}):[0-9A-Z]{4}(?=⟧)".encode())
_CARD_TAGS = frozenset({"card", "cardnumber", "creditcardnumber"})
_CARD_FORM = re.compile(r"[0-9](?:[ -]?[0-9]){11,18}")
_IBAN_FORM = re.compile(r"[A-Z]{2}[0-9]{2}[0-9A-Z]{11,30}")
_DOUBLED = str.maketrans("0123456789", "0246813579")  # the sum of the digits of twice a digit
_SHOWN = frozenset({"card", "iban"})


class Unfit(ValueError):
    """We stopped because the value is JSON that the ledger does not keep; the text says which."""


class MaskingScan:
    """What one walk over a value found out besides masking it.

    `cards` and `nuls` say whether card numbers and NUL can occur at all, as the raw text tells
    cheaply, and `names_max` how many names stand in it at most; where it is not known, the two are
    true. `names` counts those that the walk came by, and `floats` says whether it came by one.
    """

    __slots__ = ("cards", "floats", "key", "names", "names_max", "nuls", "plain")

    def __init__(
        self,
        *,
        cards: bool = True,
        nuls: bool = True,
        names_max: int = 0,
        key: MaskingKey | None = None,
    ) -> None:
        self.key = key
        self.names = 0
        self.names_max = names_max
        self.plain = True
        self.floats = False
        self.cards = cards
        self.nuls = nuls

    @classmethod
    def at(cls, raw: bytes, key: MaskingKey | None = None) -> MaskingScan:
        """For the value in this JSON text: without white space, hyphens, and all digits alike."""
        is_escaped = b"\\" in raw and b"\\u00" in raw
        squeezed = raw.translate(_DIGITS_ALIKE, b" \t\n\r-")
        return cls(
            cards=is_escaped or (_MANY_DIGITS in squeezed and bool(_CARD_IN_BYTES.search(raw))),
            nuls=is_escaped and b"\\u0000" in raw,
            names_max=squeezed.count(b'":'),
            key=key,
        )


class Hidden(str):
    """A text that its owner hides whatever its name is: a placeholder takes its place."""

    __slots__ = ()


def placeholder(tag: str) -> str:
    """What stands where a secret stood; the tag says of which kind it was."""
    return f"{_OPENING}{tag}⟧"


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
        mark = self._mark(family, normal)
        last = normal[-4:].decode() if self.shows_last4 and family in _SHOWN else ""
        return placeholder(f"{tag}:v1:{mark}:{last}" if last else f"{tag}:v1:{mark}")

    def mark(self, tag: str, value: Any) -> str:
        """The mark alone, by which equal values are known and no value is found."""
        return self._mark(*_normal_form(tag, value))

    def _mark(self, family: str, normal: bytes) -> str:
        told = b"\n".join((MARK_FORM, family.encode(), normal))
        return hmac.digest(self._secret, told, "sha256")[:MARK_BYTES].hex()


def _normal_form(tag: str, value: Any) -> tuple[str, bytes]:
    """The family within which values are compared, and the bytes that are the same for the same."""
    is_whole = type(value) is int or (type(value) is float and value.is_integer())
    text = str(int(value)) if is_whole else value  # JSON knows 4242.0 and 4242 for one number
    if isinstance(text, str):
        if tag in _CARD_TAGS and _CARD_FORM.fullmatch(text):
            return "card", re.sub("[ -]", "", text).encode()
        if tag == "iban":
            account = "".join(text.split()).upper()
            if _IBAN_FORM.fullmatch(account):
                return "iban", account.encode()
    return f"value of {tag}", without_last4(canonical(value))


def kind_of(text: str) -> str | None:
    """The kind of a placeholder that is the whole text; None of any other text."""
    found = _PLACEHOLDER.fullmatch(text)
    return text.removeprefix(_OPENING).split(":")[0].removesuffix("⟧") if found else None


def made_by(key: MaskingKey | None, tag: str, value: Any) -> str:
    """The placeholder for a value; without a key a bare one, which compares with nothing."""
    return placeholder(tag) if key is None else key.placeholder(tag, value)


def same(one: Any, other: Any, key: MaskingKey) -> bool:
    """Whether two values are one, though a rule that masks came or went between them: a placeholder
    is held against the one that the other side's value would have.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k], key) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other, [key] * len(one)))
    kind = kind_of(one) if isinstance(one, str) else None
    other_kind = kind_of(other) if isinstance(other, str) else None
    if kind and not other_kind:
        other = key.placeholder(kind, other)
    elif other_kind and not kind:
        one = key.placeholder(other_kind, one)
    return without_last4(canonical(one)) == without_last4(canonical(other))


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


def masked(
    data: Any, paths: Iterable[str] = (), key: MaskingKey | None = None, *, nuls: bool = True
) -> Any:
    """A copy of `data` with names of the table, cards and policy paths replaced; raises `Unfit`.

    With `nuls` off, the character NUL is left to the ledger to refuse.
    """
    return mask_in_place(copied(data), paths, MaskingScan(key=key, nuls=nuls))


def mask_in_place(data: Any, paths: Iterable[str], look: MaskingScan) -> Any:
    """The same on a value that nobody else holds; gives it back, for a text is replaced.

    A path is names joined by dots, `*` for any one name; lists are looked through. It starts at
    `data`, and at each of `data.effects`, so that `before.ssn` finds every snapshot.
    """
    data = _clean(data, 0, look)
    for path in paths:
        names = path.split(".")
        for root in [data, *_effects(data)]:
            _mask_path(root, names, look.key)
    return data


def holds_mask(value: Any) -> bool:
    """Whether a placeholder stands anywhere in a value: then it cannot be restored from here."""
    if isinstance(value, dict):
        return any(map(holds_mask, value.values()))
    if isinstance(value, list):
        return any(map(holds_mask, value))
    return isinstance(value, str) and _OPENING in value


def copied(value: Any, depth: int = 0) -> Any:
    """Objects and lists of our own; raises `Unfit` where they go too deep."""
    if depth > DEPTH_MAX + 1:
        raise Unfit(f"it is nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, dict):
        return {str(name): copied(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [copied(inner, depth + 1) for inner in value]
    return value


def _clean(value: Any, depth: int, look: MaskingScan) -> Any:
    """`value`, cleaned; objects and lists in place."""
    kind = type(value)
    if kind is str:
        return _text(value, look) if look.cards or look.nuls else value
    if kind is dict:
        _clean_object(value, depth + 1, look)
    elif kind is list:
        _check_depth(depth + 1, value)
        for place, inner in enumerate(value):
            value[place] = _clean(inner, depth + 1, look)
    elif kind is int:
        return _integer(value, look)
    elif kind is float:
        return _float(value, look)
    elif kind is Hidden:
        return made_by(look.key, "secret", str(value))
    return value


def _clean_object(value: dict[str, Any], depth: int, look: MaskingScan) -> None:
    if depth > DEPTH_MAX:
        _check_depth(depth, value)
    look.names += len(value)
    if look.cards or look.nuls or not _harmless.issuperset(value):
        _clean_carefully(value, depth, look)
        return
    # The usual object, of which nothing is replaced: it takes a third of the time.
    for inner in value.values():
        kind = type(inner)
        if kind is str:
            continue
        if kind is dict:
            _clean_object(inner, depth + 1, look)
        elif kind is list or kind is int or kind is float:
            _clean(inner, depth, look)


def _clean_carefully(value: dict[str, Any], depth: int, look: MaskingScan) -> None:
    for name, inner in value.items():
        tag = None if name in _harmless else _tag_of(name, look)
        cleaned = _clean(inner, depth, look)
        if cleaned is not inner:
            value[name] = cleaned
        if tag is not None and not _empty(inner) and not _is_placeholder(inner):
            value[name] = made_by(look.key, tag, inner)


def _check_depth(depth: int, inside: Any) -> None:
    if depth > DEPTH_MAX and inside:
        raise Unfit(f"it is nested deeper than {DEPTH_MAX} levels")


def _text(value: str, look: MaskingScan) -> str:
    if look.nuls and "\x00" in value:
        raise Unfit("a text holds the character NUL")
    if not look.cards or len(value) < CARD_DIGITS_MIN:
        return value
    return _without_cards(value, look.key)


def _integer(value: int, look: MaskingScan) -> Any:
    if not -INTEGER_MAX <= value <= INTEGER_MAX:
        look.plain = False
        if abs(value) >= INTEGER_END:
            raise Unfit(f"an integer has more than {INTEGER_DIGITS_MAX} digits")
    if value >= CARD_MIN and _is_card(str(value)):
        return made_by(look.key, "card", value)
    return value


def _float(value: float, look: MaskingScan) -> Any:
    """A column of numbers in which one is missing makes 4242424242424242.0 of a card."""
    look.floats = True
    if not is_plain_float(value):
        look.plain = False
    if value >= CARD_MIN and value.is_integer() and _is_card(whole := str(int(value))):
        return made_by(look.key, "card", whole)
    return value


# Names met before that stand for no secret; only plain ASCII ones, so that others are looked at.
_harmless: set[str] = set()


def _tag_of(name: str, look: MaskingScan) -> str | None:
    if "\x00" in name:
        raise Unfit("a name holds the character NUL")
    tag = secret_name(name)
    if not name.isascii():
        look.plain = False
    elif tag is None and len(name) <= NAME_CHARACTERS_CACHED_MAX:
        if len(_harmless) >= NAMES_CACHED_MAX:
            _harmless.clear()
        _harmless.add(name)
    return tag


def secret_name(name: str) -> str | None:
    """The table's entry that this name is, or None."""
    plain = _NOT_NAME.sub("", name.lower())
    return plain if plain in SECRET_NAMES else None


def _effects(data: Any) -> Sequence[Any]:
    found = data.get("effects") if isinstance(data, dict) else None
    return found if isinstance(found, list) else []


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


def _without_cards(text: str, key: MaskingKey | None) -> str:
    """The text with each card number replaced, also where other numbers stand next to it."""
    parts, done, at = [], 0, 0
    while found := _PRINTED.search(text, at):
        at = found.end()
        if found["card"] is None:
            continue
        if not _is_card(found[0]):
            at = found.start() + 1  # the next group may be where the card begins
            continue
        parts += [text[done : found.start()], made_by(key, "card", found[0])]
        done = at
    text = "".join([*parts, text[done:]])
    return _ID_OR_CARD.sub(lambda one: _card(one[0], key), text)


def _card(text: str, key: MaskingKey | None) -> str:
    return made_by(key, "card", text) if _is_card(text) else text


def _is_card(text: str) -> bool:
    """Whether the text is one number of a card, with a valid check digit (Luhn)."""
    if not _CARD.fullmatch(text):
        return False
    digits = text.replace(" ", "").replace("-", "")
    doubled = digits[-2::-2].translate(_DOUBLED)
    return (sum(map(int, digits[-1::-2])) + sum(map(int, doubled))) % 10 == 0
