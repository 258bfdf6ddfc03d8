"""Whether a value stands in what people wrote, in any usual spelling; and what looks like another.

Texts are compared, and nothing is guessed. What cannot be told (a value that was masked without a
mark, a text that is too long) is None, never False: a rule that rests on it then asks.
"""

import re
import unicodedata
from collections.abc import Iterator
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from amends.protocol.masking import (
    MaskingKey,
    holds_bare,
    holds_mask,
    kind_of,
    secret_name,
    without_last4,
)

TEXT_CHARACTERS_MAX = 50_000  # a request is a few hundred; a mail thread some ten thousand
LEAVES_MAX = 50
TOKENS_MAX = 500  # of a text, each tried against the mark of a masked value
NAME_PARTS_MAX = 4
NAME_WINDOW = 3  # so many other words may stand among the parts of a name
PHONE_DIGITS = range(7, 16)  # ITU-T E.164 has at most 15
NATIONAL_DIGITS_MIN = 9  # what must agree where one of two numbers lacks its country
IBAN_CHARACTERS = range(15, 35)  # ISO 13616

_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"(?<![\w.,])[-+]?\d+(?:[ .,'’_]\d+)*(?![\w])")
_GROUPED = re.compile(r"\d{1,3}(?:[ .,'’_]\d{3})+")
_PHONE = re.compile(r"(?<![\w])\+?\(?\d[\d ()/.-]{5,22}\d(?!\w)")
_IBAN = re.compile(r"(?<![0-9A-Za-z])[A-Za-z]{2}[0-9]{2}(?:[ -]?[0-9A-Za-z]){11,30}")
_NAME = re.compile(r"[^\W\d_]+(?:[ ,'’-]+[^\W\d_]+)+")
_ISO_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:[T ].*)?")
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip


def stands_in(value: Any, text: str, key: MaskingKey | None = None) -> bool | None:
    """Whether `value`, all of it where it has parts, stands in `text`; None: it cannot be told.

    Masked values are compared by their marks, which `key` makes of what the text has.
    """
    parts = list(leaves(value))
    if not text.strip() or len(parts) > LEAVES_MAX:
        return None
    seen = plain(text[:TEXT_CHARACTERS_MAX])
    answers = [_leaf_stands_in(one, seen, text[:TEXT_CHARACTERS_MAX], key) for one in parts]
    if all(answer is True for answer in answers):
        return True
    cannot = None in answers or len(text) > TEXT_CHARACTERS_MAX
    return None if cannot else False


def leaves(value: Any) -> Iterator[Any]:
    """The values in a value, in their order."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


def plain(text: str) -> str:
    """The text as it is compared: compatibility forms and letter case do not count."""
    return unicodedata.normalize("NFKC", text).casefold()


def as_one(text: str) -> str:
    """The same for all spellings of one value: letter case, width, digits of other scripts, spaces,
    dashes and what is not seen do not count.
    """
    kept = []
    for one in plain(text):
        category = unicodedata.category(one)
        if category == "Nd":
            kept.append(str(unicodedata.digit(one)))
        elif category not in {"Cc", "Cf", "Pd", "Zl", "Zp", "Zs"}:
            kept.append(one)
    return "".join(kept)


def _leaf_stands_in(value: Any, seen: str, text: str, key: MaskingKey | None) -> bool | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _amount(str(value)) in set(_amounts(seen))
    if holds_mask(value):
        return _masked_stands_in(value, text, key)
    wanted = plain(value).strip()
    if not wanted:
        return False
    return (
        _as_it_is(wanted, seen)
        or _as_number(wanted, seen)
        or _as_date(wanted, seen)
        or _as_phone(wanted, seen)
        or _as_iban(wanted, seen)
        or _as_name(wanted, seen)
    )


def _as_it_is(wanted: str, seen: str) -> bool:
    """By itself, and not as a part of a longer word, address or number."""
    words = r"\s+".join(map(re.escape, wanted.split()))
    return re.search(rf"(?<![\w@.+-]){words}(?![\w@+-]|\.\w)", seen) is not None


def _as_number(wanted: str, seen: str) -> bool:
    found = _amount(wanted) if _NUMBER.fullmatch(wanted) else None
    return found is not None and found in set(_amounts(seen))


def _amounts(seen: str) -> Iterator[Decimal]:
    """Each number of the text, and where its separators can be read in two ways, both."""
    for found in _NUMBER.findall(seen):
        yield from _readings(found)


def _readings(text: str) -> Iterator[Decimal]:
    digits = re.sub(r"[ '’_]", "", text)
    last = max(digits.rfind("."), digits.rfind(","))
    whole = _amount(re.sub("[.,]", "", digits))
    if last < 0:
        if whole is not None:
            yield whole
        return
    broken = re.sub("[.,]", "", digits[:last]) + "." + digits[last + 1 :]
    fraction = _amount(broken)
    if fraction is not None and len(re.findall("[.,]", digits)) == len(
        set(re.findall("[.,]", digits))
    ):
        yield fraction
    if _GROUPED.fullmatch(text.lstrip("+-")) and whole is not None:
        yield whole


def _amount(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _as_date(wanted: str, seen: str) -> bool:
    found = _ISO_DATE.fullmatch(wanted.upper())
    try:
        day = date(*map(int, found.groups())) if found else None
    except ValueError:
        return False
    return day is not None and any(_as_it_is(form, seen) for form in _forms_of(day))


def _forms_of(day: date) -> Iterator[str]:
    year, month, number = day.year, day.month, day.day
    name, short = _MONTHS[month - 1], _MONTHS[month - 1][:3]
    yield day.isoformat()
    for first, second in ((number, month), (month, number)):
        for sign in "./-":
            yield f"{first}{sign}{second}{sign}{year}"
            yield f"{first:02}{sign}{second:02}{sign}{year}"
    for word in (name, short, f"{short}."):
        for ending in ("", "st", "nd", "rd", "th", "."):
            yield f"{number}{ending} {word} {year}"
            yield f"{word} {number}{ending}, {year}"
            yield f"{word} {number}{ending} {year}"
            yield f"{number}{ending} of {word} {year}"


def _as_phone(wanted: str, seen: str) -> bool:
    if not _PHONE.fullmatch(wanted):
        return False
    number = _dialled(wanted)
    return len(number) in PHONE_DIGITS and any(
        _same_line(number, _dialled(one)) for one in _PHONE.findall(seen)
    )


def _dialled(text: str) -> str:
    """The digits, without the sign for abroad and the zero before a number at home."""
    return re.sub(r"\D", "", text.replace("(0)", "")).lstrip("0")


def _same_line(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return one == other or (len(short) >= NATIONAL_DIGITS_MIN and long.endswith(short))


def _as_iban(wanted: str, seen: str) -> bool:
    account = re.sub("[ -]", "", wanted)
    if not _IBAN.fullmatch(wanted):
        return False
    return any(one == account for one in _accounts(seen))


def _accounts(text: str) -> Iterator[str]:
    """What may be an account's number: a word that follows may belong to it or not."""
    for found in _IBAN.finditer(text):
        letters = re.sub("[ -]", "", found[0])
        for length in IBAN_CHARACTERS:
            if length <= len(letters):
                yield letters[:length]


def _as_name(wanted: str, seen: str) -> bool:
    """The parts of a name in any order, with few other words among them."""
    parts = _WORD.findall(wanted)
    if not 1 < len(parts) <= NAME_PARTS_MAX or not _NAME.fullmatch(wanted):
        return False
    words = _WORD.findall(seen)
    window = len(parts) + NAME_WINDOW
    return any(
        set(parts) <= set(words[place : place + window])
        for place, word in enumerate(words)
        if word in parts
    )


def _masked_stands_in(value: str, text: str, key: MaskingKey | None) -> bool | None:
    """By marks: the text may have been masked likewise, or have the value in clear."""
    kind = kind_of(value)
    if kind is None or holds_bare(value):
        return None  # a secret within other words, or one without a mark
    wanted = _mark(value)
    if wanted in without_last4(text.encode()).decode():
        return True
    if key is None or holds_bare(text):
        return None
    tag = secret_name(kind) or kind
    candidates = list(_accounts(text)) if tag == "iban" else text.split()[:TOKENS_MAX]
    if any(_mark(key.placeholder(tag, one)) == wanted for one in candidates):
        return True
    return False if tag in {"iban", "card", "cardnumber", "creditcardnumber"} else None


def _mark(placeholder: str) -> str:
    return without_last4(placeholder.encode()).decode()


# What looks alike: letters of other alphabets, and digits, that readers take for Latin letters.
# After the idea of the skeleton of Unicode Technical Standard 39, with the letters that occur in
# names, addresses and domains.

_ALIKE = str.maketrans(
    {
        "а": "a", "в": "b", "с": "c", "ԁ": "d", "е": "e", "ѐ": "e", "ё": "e", "ғ": "f", "ԍ": "g",
        "һ": "h", "н": "h", "і": "l", "ї": "l", "ј": "j", "к": "k", "ӏ": "l", "м": "m", "п": "n",
        "о": "o", "р": "p", "ԛ": "q", "г": "r", "ѕ": "s", "т": "t", "ц": "u", "ѵ": "v", "ԝ": "w",
        "х": "x", "у": "y", "α": "a", "β": "b", "ϲ": "c", "δ": "d", "ε": "e", "η": "n", "ι": "l",
        "κ": "k", "μ": "m", "ν": "v", "ο": "o", "ρ": "p", "σ": "o", "τ": "t", "υ": "u", "χ": "x",
        "γ": "y", "ω": "w", "ա": "w", "օ": "o", "ս": "u", "հ": "h", "ո": "n", "ց": "g", "ѡ": "w",
        "ɑ": "a", "ɡ": "g", "ı": "l", "ƅ": "b", "ø": "o", "đ": "d", "ł": "l", "ħ": "h", "ɩ": "l",
        "0": "o", "1": "l", "i": "l", "|": "l", "!": "l", "3": "e", "5": "s", "$": "s", "8": "b",
    }
)  # fmt: skip


def skeleton(text: str) -> str:
    """The same for all texts that a reader may take for one another."""
    bare = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    letters = "".join(one for one in bare if unicodedata.category(one) not in {"Mn", "Cf", "Me"})
    alike = letters.translate(_ALIKE).replace("rn", "m").replace("vv", "w")
    return re.sub(r"[\s._\-]", "", alike)
