"""Whether a value stands in what people wrote, in any usual spelling; and what looks like another.

Texts are compared, and nothing is guessed. What cannot be told (a value that was masked without a
mark, a text that is too long) is None, never False: a rule that rests on it then asks.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import date, timedelta
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
from workspaces import formatting
from workspaces.lookalikes import plain

TEXT_CHARACTERS_MAX = 50_000  # a request is a few hundred; a mail thread some ten thousand
LEAVES_MAX = 50
TOKENS_MAX = 500  # of a text, each tried against the mark of a masked value
NAME_PARTS_MAX = 6
NAME_WINDOW = 3  # so many other words may stand among the parts of a name
PHONE_DIGITS = range(7, 16)  # ITU-T E.164 has at most 15
NATIONAL_DIGITS_MIN = 9  # what must agree where one of two numbers lacks its country
COUNTRY_DIGITS_MAX = 3
NORTH_AMERICAN = (10, 11)  # digits without and with its 1, which is often written without a plus
IBAN_CHARACTERS = range(15, 35)  # ISO 13616
YEAR = timedelta(days=366)
"""A day that is written without its year may be so far away."""

_WORD = re.compile(r"\w+")
# Signs of money with their codes of ISO 4217, other codes, and what stands in their place.
_SIGNS = {"€": "eur", "$": "usd", "£": "gbp", "¥": "jpy", "₹": "inr", "₩": "krw", "₺": "try"}
_CODES = (
    "eur|usd|gbp|chf|jpy|cad|aud|nzd|sek|nok|dkk|isk|pln|czk|huf|ron|bgn|try|ils|inr|cny|hkd|sgd"
    "|krw|thb|idr|myr|php|brl|mxn|ars|clp|cop|zar|aed|sar|kr|rs|fr"
)
_MARK = rf"(?:{_CODES}|[{''.join(_SIGNS)}])"
_DIGITS = r"[-+]?\d+(?:[ .,'’_]\d+)*"
_NUMBER = re.compile(
    # Not of a code (ORD-17), a day (2026-11-29, 3/4) or a time (10:30).
    rf"(?<![\w.,])(?<!\w-)(?<!\d[/:])(?:{_MARK})?({_DIGITS})(?:{_MARK})?(?!\w|[-/:.,'’_]\d)"
)
_SUM = re.compile(rf"({_MARK})?\s?({_DIGITS})\s?({_MARK})?")
_GROUPED = re.compile(r"\d{1,3}(?:[ .,'’_]\d{2,3})*[ .,'’_]\d{3}")
_PHONE = re.compile(r"(?<![\w])\+?\(?\d[\d ()/.-]{5,22}\d(?!\w)")
_IBAN = re.compile(r"(?<![0-9A-Za-z])[A-Za-z]{2}[0-9]{2}(?:[ -]?[0-9A-Za-z]){11,30}")
_MAILBOX = re.compile(r"(?:[^<>@]*<|mailto:)?([^<>@\s,;]+@[^<>@\s,;]+)>?")
_CODE = re.compile(r"#?([^\W\d_]+)[ _-]?(\d{2,})")
_NAME = re.compile(r"[^\W\d_]+(?:[ ,'’-]+[^\W\d_]+)+")
_TITLE = re.compile(r"\b(?:dr|prof|mr|mrs|ms|herr|frau|sr|sra|mme)\b\.? ")
_TWO_LETTERS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "æ": "ae", "ø": "oe"})
_ONE_LETTER = str.maketrans({"æ": "ae", "ø": "o", "ł": "l", "đ": "d", "ı": "i"})


def stands_in(
    value: Any, text: str, key: MaskingKey | None = None, today: date | None = None
) -> bool | None:
    """Whether `value`, all of it where it has parts and nowhere what is empty, stands in `text`;
    None: it cannot be told.

    Masked values are compared by their marks, which `key` makes of what the text has. Where `today`
    is given, a day may stand there without its year if it is less than a year from it.
    """
    parts = list(leaves(value))
    if not text.strip() or len(parts) > LEAVES_MAX:
        return None
    read = text[:TEXT_CHARACTERS_MAX]
    seen = plain(read)
    answers = [_leaf_stands_in(one, seen, read, key, today) for one in parts]
    if parts and all(answer is True for answer in answers):
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


def names_in(value: Any) -> Iterator[str]:
    """The names of the members in a value."""
    if isinstance(value, dict):
        yield from value
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from names_in(inner)


def as_known(text: str) -> str:
    """The form in which a value is remembered: letter case and width do not count, and in the
    number of an account no space or dash.
    """
    seen = plain(text).strip()
    return re.sub("[ -]", "", seen) if _IBAN.fullmatch(seen) else seen


# What `as_one` leaves out, of ASCII.
_UNSEEN = dict.fromkeys([*range(ord(" ")), ord(" "), ord("-"), 0x7F])


def as_one(text: str) -> str:
    """The same for all spellings of one value: letter case, width, digits of other scripts, spaces,
    dashes and what is not seen do not count.
    """
    if text.isascii():
        return text.lower().translate(_UNSEEN)
    kept = []
    for one in plain(text):
        category = unicodedata.category(one)
        if category == "Nd":
            kept.append(str(unicodedata.digit(one)))
        elif category not in {"Cc", "Cf", "Pd", "Zl", "Zp", "Zs"}:
            kept.append(one)
    return "".join(kept)


def as_seen(text: str) -> str:
    """The text without what nobody sees in it."""
    if text.isascii():
        return text
    return "".join(one for one in text if one in "\t\n" or not formatting.is_unseen(one))


def _leaf_stands_in(
    value: Any, seen: str, text: str, key: MaskingKey | None, today: date | None
) -> bool | None:
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
        or _as_sum(wanted, seen)
        or _as_day(wanted, seen, today)
        or _as_phone(wanted, seen)
        or _as_iban(wanted, seen)
        or _as_mail(wanted, seen)
        or _as_code(wanted, seen)
        or _as_name(wanted, seen)
    )


def _as_it_is(wanted: str, seen: str) -> bool:
    """By itself, and not as a part of a longer word, address or number, nor of a longer path the
    beginning.
    """
    end = r"(?![/\\]\S*\w)" if re.search(r"[/\\]", wanted) else ""
    return _alone(r"\s+".join(map(re.escape, wanted.split())) + end, seen)


def _alone(pattern: str, seen: str) -> bool:
    return re.search(rf"(?<![\w@.+-])(?:{pattern})(?![\w@+-]|\.\w)", seen) is not None


def _all_of(wanted: Iterable[Any], seen: Iterable[Any]) -> bool:
    """Whether each way in which a value can be read is one of the text: what can be read in two
    ways there is found, what can be here has to be said so.
    """
    ways = set(wanted)
    return bool(ways) and ways <= set(seen)


# Amounts.


def _as_sum(wanted: str, seen: str) -> bool:
    """`1,250.00` or `EUR 250`; the money that it names has to be named by the text."""
    found = _SUM.fullmatch(wanted)
    if not found:
        return False
    marks = {_SIGNS.get(one, one) for one in (found[1], found[3]) if one}
    named = set(re.findall(rf"(?<![^\W\d_]){_MARK}(?![^\W\d_])", seen))
    if not marks <= {_SIGNS.get(one, one) for one in named}:
        return False
    amount = _amount(found[2])
    ways = _readings(found[2]) if amount is None else [amount]
    return _all_of(ways, _amounts(seen))


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
    fraction = _amount(re.sub("[.,]", "", digits[:last]) + "." + digits[last + 1 :])
    if fraction is not None and digits.count(digits[last]) == 1:
        yield fraction
    if _GROUPED.fullmatch(text.lstrip("+-")) and whole is not None:
        yield whole


def _amount(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


# Days, as they are written in the languages in which the desk writes to people.

_MONTHS = {
    name: number
    for names in (
        "january february march april may june july august september october november december",
        "januar februar märz april mai juni juli august september oktober november dezember",
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "jan feb mar apr may jun jul aug sep oct nov dec",
        "jan feb mrz apr mai jun jul aug sept okt nov dez",
    )
    for number, name in enumerate(names.split(), 1)
}
_MONTH = rf"({'|'.join(sorted(_MONTHS, key=len, reverse=True))})\b\.?"
_DAY = r"(\d{1,2})(?:st|nd|rd|th|er|\.)?"
_YEAR = r"(?:,?(?: de)?[ -]*(\d{4}|\d{2}(?![\w:])))?(?!\d)"
_DAY_MONTH = re.compile(rf"(?<![\w.,/-]){_DAY}(?: of| de)?[ -]*{_MONTH}{_YEAR}")
_MONTH_DAY = re.compile(rf"\b{_MONTH}[ -]*{_DAY}(?![\d:]){_YEAR}")
_YEAR_FIRST = re.compile(r"(?<![\w./-])(\d{4})([./-]?)(\d{2})\2(\d{2})(?![\d/-])")
_YEAR_LAST = re.compile(r"(?<![\w./-])(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})?(?![\d/-])")
_WITHOUT_YEAR = re.compile(r"(?<![\w./-])(\d{1,2})/(\d{1,2})(?![\d/.-])")
_MOMENT = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[t ].*)?")


def _as_day(wanted: str, seen: str, today: date | None) -> bool:
    moment = _MOMENT.fullmatch(wanted)
    text = moment[1] if moment else wanted
    forms = (_DAY_MONTH, _MONTH_DAY, _YEAR_FIRST, _YEAR_LAST)
    if not any(form.fullmatch(text) for form in forms):
        return False
    return _all_of(_days(text, None), _days(seen, today))


def _days(text: str, today: date | None) -> Iterator[date]:
    """Each day of the text; 3/4/2026 is one of March and one of April."""
    named = [(day, month, year) for month, day, year in _MONTH_DAY.findall(text)]
    for day, month, year in [*_DAY_MONTH.findall(text), *named]:
        yield from _of_year(year, _MONTHS[month], int(day), today)
        if len(year) == len("26"):  # or what comes behind the day is no year
            yield from _of_year("", _MONTHS[month], int(day), today)
    for year, _, month, day in _YEAR_FIRST.findall(text):
        yield from _of_year(year, int(month), int(day), today)
    both = [(one, other, year) for one, _, other, year in _YEAR_LAST.findall(text)]
    both += [(one, other, "") for one, other in _WITHOUT_YEAR.findall(text)]
    for one, other, year in both:
        yield from _of_year(year, int(other), int(one), today)
        yield from _of_year(year, int(one), int(other), today)


def _of_year(year: str, month: int, day: int, today: date | None) -> Iterator[date]:
    """The day, of this century where the year has two digits; without one, those around today."""
    years: Iterable[int] = [int(year) + (len(year) == len("26")) * 2000] if year else []
    if not year and today is not None:
        years = (today.year - 1, today.year, today.year + 1)
    for one in years:
        with suppress(ValueError):
            found = date(one, month, day)
            if year or (today is not None and abs(found - today) < YEAR):
                yield found


# Numbers of phones and accounts, addresses, codes and names.


def _as_phone(wanted: str, seen: str) -> bool:
    wanted = wanted.removeprefix("tel:")
    if not _PHONE.fullmatch(wanted):
        return False
    return len(_dialled(wanted)) in PHONE_DIGITS and any(
        _same_line(wanted, one) for one in _phones(seen)
    )


def _phones(seen: str) -> Iterator[str]:
    for found in _PHONE.findall(seen):
        yield found
        yield from found.split(" / ")


def _dialled(text: str) -> str:
    """The digits, without the sign for abroad and the zero before a number at home."""
    return re.sub(r"\D", "", text.replace("(0)", "")).lstrip("0")


def _same_line(one: str, other: str) -> bool:
    """Whether they are one number, or would be with the country that one of them names alone."""
    (short, at_home), (long, abroad) = sorted(
        ((_dialled(text), text) for text in (one, other)), key=lambda told: len(told[0])
    )
    if short == long:
        return True
    is_american = long[:1] == "1" and (len(short), len(long)) == NORTH_AMERICAN
    is_told = _names_country(abroad) or at_home.lstrip("( ")[:1] == "0" or is_american
    return (
        is_told
        and not _names_country(at_home)
        and len(short) >= NATIONAL_DIGITS_MIN
        and len(long) - len(short) <= COUNTRY_DIGITS_MAX
        and long.endswith(short)
    )


def _names_country(text: str) -> bool:
    return text.lstrip("( ").startswith(("+", "00"))


def _as_mail(wanted: str, seen: str) -> bool:
    """Addresses with a name beside them, or several of them in one line: each has to be there."""
    boxes = [_MAILBOX.fullmatch(one.strip()) for one in re.split("[,;]", wanted) if one.strip()]
    return bool(boxes) and all(one is not None and _as_it_is(one[1], seen) for one in boxes)


def _as_code(wanted: str, seen: str) -> bool:
    """`#W1234`, `HAT 136`, `ORD-17`: letters and then digits, however they are joined."""
    found = _CODE.fullmatch(wanted)
    if not found:
        return wanted.startswith("#") and _as_it_is(wanted[1:].strip() or wanted, seen)
    return _alone(rf"#?{re.escape(found[1])}[ _-]?{found[2]}", seen)


def _as_iban(wanted: str, seen: str) -> bool:
    account = re.sub("[ -]", "", wanted)
    if not _IBAN.fullmatch(wanted):
        return False
    return any(one == account for one in _accounts(seen))


def _accounts(text: str) -> Iterator[str]:
    """What may be an account's number: a word that follows may belong to it or not, whole."""
    for found in _IBAN.finditer(text):
        account = ""
        for group in re.split("[ -]", found[0]):
            account += group
            if len(account) in IBAN_CHARACTERS:
                yield account


def _as_name(wanted: str, seen: str) -> bool:
    """The parts of a name in any order, with few other words among them; titles and accents may be
    left away, and `ü` be written as `ue`. What has no space in it stays together.
    """
    name = _TITLE.sub("", wanted)
    if not _NAME.fullmatch(name):
        return False
    stands = _parts_stand_together if re.search("[ ,]", name) else _parts_follow
    return any(
        stands(letters(name), letters(seen)) for letters in (_without_accents, _in_two_letters)
    )


def _parts_follow(wanted: str, seen: str) -> bool:
    return _alone(r"[ '’‐‑-]\s*".join(_WORD.findall(wanted)), seen)


def _parts_stand_together(wanted: str, seen: str) -> bool:
    parts = _WORD.findall(wanted)
    if not 1 < len(parts) <= NAME_PARTS_MAX:
        return False
    words = _WORD.findall(seen)
    window = len(parts) + NAME_WINDOW
    return any(
        set(parts) <= set(words[place : place + window])
        for place, word in enumerate(words)
        if word in parts
    )


def _without_accents(text: str) -> str:
    bare = unicodedata.normalize("NFKD", text.translate(_ONE_LETTER))
    return "".join(one for one in bare if unicodedata.category(one) != "Mn")


def _in_two_letters(text: str) -> str:
    composed = unicodedata.normalize("NFC", text)
    return _without_accents(composed.translate(_TWO_LETTERS))


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
