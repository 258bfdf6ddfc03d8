"""Whether a value stands in what people wrote, in any usual spelling; and what looks like another.

Texts are compared, and nothing is guessed. What cannot be told (a value that was masked without a
mark, a text that is too long) is None, never False: a rule that rests on it then asks.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator
from datetime import date
from functools import cached_property
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

from amends.protocol.lookalikes import plain
from amends.protocol.masking import (
    MaskingKey,
    holds_bare,
    holds_mask,
    kind_of,
    secret_name,
    without_last4,
)
from approvals.policy import quantities
from approvals.policy.phones import Phones, is_phone
from workspaces import formatting

TEXT_CHARACTERS_MAX = 50_000  # a request is a few hundred; a mail thread some ten thousand
LEAVES_MAX = 50
TOKENS_MAX = 500  # of a text, each tried against the mark of a masked value
NAME_PARTS_MAX = 6
NAME_WINDOW = 3  # so many other words may stand among the parts of a name
IBAN_CHARACTERS = range(15, 35)  # ISO 13616
PATH_CHARACTERS_MAX = 255  # of its second part, as most file systems have it
CODE_RUNS_MAX = 8
CODE_LETTERS_MIN = 3  # that tell a word by its beginning
LONG_NUMBER_DIGITS = 4
GROUP_DIGITS = 3  # of a number whose thousands are set apart

_MASKED = re.compile("⟦masked:[^⟧]*⟧")
_WORD = re.compile(r"\w+")
_IBAN = re.compile(r"(?<![0-9A-Za-z])[A-Za-z]{2}[0-9]{2}(?:[ -]?[0-9A-Za-z]){11,30}")
_MAILBOX = re.compile(r"(?:[^<>@]*<|mailto:)?([^<>@\s,;]+@[^<>@\s,;]+)>?")
_LINK = re.compile(r"(?:https?://(?=[^\s/]+\.)|(?=www\.))(\S+?)/?")
_MAY_BE_FILE = re.compile(r"(?!www\.)[\w.-]+\.(?:zip|mov|md|py|sh|rs|ps|cc|ml|mk|bz)")
_FILE = re.compile(
    r"([^\W_]+(?:[ _-]+[^\W_]+)+)\.(?:txt|md|pdf|docx?|xlsx?|pptx?|csv|od[tsp]|png|jpe?g)"
)
_THE = (
    r"(?:(?:the|my|our|your|this|der|die|das|den|dem|meine?n?|unsere?n?|el|la|mi|le|ma|mon) "
    r"|[\"“„«'‘]|(?:file|document|datei|dokument|fichier|archivo) )"
)
_NO_MORE = (
    r"(?=\s*$|[,;.!?)\"”“»'’]|\n| (?:file|document|to|and|or|with|as|please|an|und|bitte|à|et|y)\b)"
)
_CODE = re.compile(r"#?[^\W_]+(?:[ _-][^\W_]+)*")
_RUNS = re.compile(r"[^\W\d_]+|\d+")
_NUMBER_WORD = r"[ .:#]{0,2}(?:(?:no|nr|number|id)\b[ .:#]{0,2})?"
_ONE_WORD = re.compile(r"[\w-]+")
_ADDRESS_WITHIN = re.compile(r"[^\s<>@,;:()\"'=]{1,64}@[\w-]+(?:\.[\w-]+)+")
_HOST_WITHIN = re.compile(
    r"(?:\bhttps?:[/\\]*|(?<![\w.@-])(?=www\.)"
    r"|(?<![\w./\\@-])(?=[\w-]+(?:\.[\w-]+)+(?::\d{1,5})?[/?]\w))"
    r"(?:[^\s/?#@]{0,64}@)?([\w-]+(?:\.[\w-]+)+)"
)
_SAYS_SOMETHING = re.compile(r"[^\x00-/:-@\[-`{-~]")  # a letter, a digit, or a sign beyond ASCII
# That a short number is no group of a longer one, and no part of a time or a day.
_NO_GROUP_BEFORE = r"(?<!\d[.,/:])(?<!\d['’_])"
_NO_GROUP_BEHIND = rf"(?![.,/:'’_]\d| \d{{3}}(?!\d){quantities.OF_DAY})"
# Writing that puts no space between words is set apart from what stands beside it.
_SCRIPTS = ("々㐀-䶿一-鿿", "\u3041-ゟ", "゠-ヿ", "가-힣", "\u0e00-\u0e7f")
_SEAM = re.compile(
    "|".join(rf"(?<=[{one}])(?=[^\W{one}])|(?<=[^\W{one}])(?=[{one}])" for one in _SCRIPTS)
)
_SIGNS = frozenset(",;/&\n")
_WORD_OR_SIGN = re.compile(r"\w+|[,;/&\n]")
_AND = frozenset({"and", "und", "et", "y", "or", "oder", "with", "mit", "plus", "&"})
_NAME = re.compile(r"[^\W\d_]+(?:[ ,'’-]+[^\W\d_]+)+")
_WITHOUT_SPACE = re.compile(r"[^\W\d_]+")
_TITLE = re.compile(r"\b(?:dr|prof|mr|mrs|ms|herr|frau|sr|sra|mme)\b\.? ")
_TWO_LETTERS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "æ": "ae", "ø": "oe"})
_ONE_LETTER = str.maketrans({"æ": "ae", "ø": "o", "ł": "l", "đ": "d", "ı": "i"})


def stands_in(
    value: Any, text: str, key: MaskingKey | None = None, today: date | None = None
) -> bool | None:
    """Whether `value` stands in `text`, as `ReadText` says it."""
    return ReadText(text, key, today).holds(value)


class ReadText:
    """A text, and which values stand in it.

    It is read once for all values, by what they ask for: its words, amounts, days, accounts and
    phones are kept in sets, and a value takes by its own length. Only one whose words all stand in
    the text is searched for, by one pass: of n characters and v values that is at most n × v steps
    of a plain comparison, and n of reading.

    Masked values are compared by their marks, which `key` makes of what the text has. Where `today`
    is given, a day may stand there without its year if it is less than a year from it. In a text
    that may hide a value (`may_hide`), as one of strangers, it is found in what mostly means
    something else, too: a name is put together of two people's, *8h* is an hour.
    """

    def __init__(
        self,
        text: str,
        key: MaskingKey | None = None,
        today: date | None = None,
        *,
        may_hide: bool = False,
    ) -> None:
        self.is_empty = not text.strip()
        self.is_long = len(text) > TEXT_CHARACTERS_MAX
        # Of a long one the last word may be cut, as 125 of 1250.
        cut = [*text[:TEXT_CHARACTERS_MAX].rsplit(None, 1), ""][0]
        self.text = cut if self.is_long else text
        self._key, self._today, self._may_hide = key, today, may_hide
        self._marks: dict[str, frozenset[str]] = {}

    def holds(self, value: Any) -> bool | None:
        """Whether `value`, all of it where it has parts and nowhere what is empty, stands in the
        text; None: it cannot be told.
        """
        parts = list(leaves(value))
        if self.is_empty or len(parts) > LEAVES_MAX:
            return None
        answers = [self._holds(one) for one in parts]
        if parts and all(answer is True for answer in answers):
            return True
        return None if None in answers or self.is_long else False

    def _holds(self, value: Any) -> bool | None:
        if value is None or isinstance(value, bool):
            return None
        if isinstance(value, int | float):
            return self._quantities.hold_number(value)
        if holds_mask(value):
            return self._holds_masked(value)
        wanted = _spaced(plain(value)).strip()
        if not _SAYS_SOMETHING.search(wanted):
            return False
        seen = self.words
        return (
            (not quantities.is_grouped(wanted) and _as_it_is(wanted, seen))
            or self._quantities.hold(wanted)
            or (is_phone(wanted) and self._phones.hold(wanted))
            or self._holds_account(wanted)
            or _as_mail(wanted, seen)
            or _as_link(wanted, seen)
            or _as_code(wanted, seen)
            or _as_file(wanted, seen)
            or self._holds_name(wanted)
        )

    @cached_property
    def words(self) -> "_Words":
        return _Words(_spaced(plain(self.text)), may_hide=self._may_hide)

    @cached_property
    def _without_accents(self) -> "_Words":
        return _Words(_without_accents(self.words.seen), may_hide=self._may_hide)

    @cached_property
    def _in_two_letters(self) -> "_Words":
        return _Words(_in_two_letters(self.words.seen), may_hide=self._may_hide)

    @cached_property
    def _quantities(self) -> quantities.Quantities:
        return quantities.Quantities(self.words.seen, self._today, may_hide=self._may_hide)

    @cached_property
    def _phones(self) -> Phones:
        return Phones(self.words.seen)

    @cached_property
    def _numbers(self) -> frozenset[str]:
        return frozenset(_accounts(self.words.seen))

    def _holds_account(self, wanted: str) -> bool:
        account = re.sub("[ -]", "", wanted)
        return _IBAN.fullmatch(wanted) is not None and account in self._numbers

    def _holds_name(self, wanted: str) -> bool:
        """The parts of a name in any order, with few other words among them; titles and accents may
        be left away, and `ü` be written as `ue`. What has no space in it stays together.
        """
        name = _TITLE.sub("", wanted)
        is_short = _WITHOUT_SPACE.fullmatch(name) and not (name + self.words.seen).isascii()
        if not is_short and not _NAME.fullmatch(name):
            return False
        are_parts = _parts_stand_together if re.search("[ ,]", name) else _parts_follow
        stands = _as_it_is if is_short else are_parts
        return stands(_without_accents(name), self._without_accents) or stands(
            _in_two_letters(name), self._in_two_letters
        )

    def _holds_masked(self, value: str) -> bool | None:
        """By marks: the text may have been masked likewise, or have the value in clear."""
        kind = kind_of(value)
        if kind is None or holds_bare(value):
            return None  # a secret within other words, or one without a mark
        wanted = _mark(value)
        if wanted in self._marked:
            return True
        if self._key is None or self.is_bare:
            return None
        tag = secret_name(kind) or kind
        if tag not in self._marks:
            numbers = _accounts(self.text) if tag == "iban" else self.text.split()[:TOKENS_MAX]
            self._marks[tag] = frozenset(_mark(self._key.placeholder(tag, one)) for one in numbers)
        if wanted in self._marks[tag]:
            return True
        return False if tag in {"iban", "card", "cardnumber", "creditcardnumber"} else None

    @cached_property
    def _marked(self) -> str:
        return _mark(self.text)

    @cached_property
    def masks(self) -> dict[str, str | None]:
        """What is masked in it, each with its kind."""
        return {one: kind_of(one) for one in _MASKED.findall(self.text)}

    @cached_property
    def is_bare(self) -> bool:
        """Whether something in it was masked without a mark."""
        return holds_bare(self.text)


class _Words:
    """A text in one way of comparing it, with its words and runs of letters and digits."""

    def __init__(self, seen: str, *, may_hide: bool = False) -> None:
        self.seen, self.may_hide = seen, may_hide

    @cached_property
    def _runs(self) -> frozenset[str]:
        return frozenset(_RUNS.findall(self.seen))

    @cached_property
    def fields(self) -> list[list[str]]:
        """The words and the signs that set names apart, and by themselves those behind `\0`, which
        stands in no text, but between two.
        """
        each = _WORD if self.may_hide else _WORD_OR_SIGN
        return [each.findall(one) for one in self.seen.split("\0")]

    @cached_property
    def places(self) -> dict[str, list[tuple[int, int]]]:
        """Where each word stands: the number of the field, and its own."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for field, words in enumerate(self.fields):
            for place, word in enumerate(words):
                found[word].append((field, place))
        return found

    def hold_alone(self, pattern: str, needed: Collection[str]) -> bool:
        """Whether what fits the pattern stands there by itself; it is searched for only where what
        it needs stands there in whole runs.
        """
        if not all(one in self.seen for one in needed):
            return False
        if not self._runs.issuperset(run for one in needed for run in _RUNS.findall(one)):
            return False
        # Behind an @ only what it calls by name: `@alice`, and no part of an address.
        before, behind = r"(?<![\w.+-])(?<!\S@)", r"(?![\w@+-]|\.\w)"
        return re.search(rf"{before}(?:{pattern}){behind}", self.seen) is not None


def leaves(value: Any) -> Iterator[Any]:
    """The values in a value, in their order, and addresses by which its members are named
    (`{"eve@evil.example": "writer"}`).
    """
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(name, str) and _ADDRESS_WITHIN.search(name):
                yield name
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


def pointers_in(value: Any) -> Iterator[str]:
    """Where a longer text leads to: the addresses, accounts and hosts of links in it, which may
    stand there behind `%3A`.
    """
    if isinstance(value, str):
        for text in dict.fromkeys((value, unquote(value))):
            seen = plain(text)
            found = [*_ADDRESS_WITHIN.findall(seen), *_HOST_WITHIN.findall(seen), *_accounts(seen)]
            yield from (one for one in found if one != seen)


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


def _spaced(text: str) -> str:
    return text if text.isascii() else _SEAM.sub(" ", text)


def _as_it_is(wanted: str, seen: _Words) -> bool:
    """By itself, and not as a part of a longer word, address or number, nor of a longer path the
    beginning.
    """
    pattern = r"\s+".join(map(re.escape, wanted.split()))
    if wanted.isdecimal() and len(wanted) <= GROUP_DIGITS:
        spaced = r"(?<!\d )" * (len(wanted) == GROUP_DIGITS)
        pattern = rf"{spaced}{_NO_GROUP_BEFORE}{pattern}{_NO_GROUP_BEHIND}"
    elif wanted.isdecimal():
        pattern += r"(?!,\d\d?(?!\d))"
    elif re.search(r"[/\\]", wanted):
        pattern += r"(?![/\\][^\s\w]*\w)"
    elif _ONE_WORD.fullmatch(wanted):
        pattern = rf"{pattern}(?![/\\]\S{{0,{PATH_CHARACTERS_MAX}}}[/\\.]\w)"
    return seen.hold_alone(pattern, wanted.split())


# Numbers of accounts, addresses, codes and names.


def _as_mail(wanted: str, seen: _Words) -> bool:
    """Addresses with a name beside them, or several of them in one line: each has to be there."""
    boxes = [_MAILBOX.fullmatch(one.strip()) for one in re.split("[,;]", wanted) if one.strip()]
    return bool(boxes) and all(one is not None and _as_it_is(one[1], seen) for one in boxes)


def _as_link(wanted: str, seen: _Words) -> bool:
    """A link with or without `https://` and the slash at its end; not the beginning of another."""
    found = _LINK.fullmatch(wanted)
    if not found:
        return False
    is_file = not seen.may_hide and _MAY_BE_FILE.fullmatch(found[1])
    scheme = r"https?://" if is_file else r"(?:https?://|(?<![/\\]))"
    rest = rf"{scheme}{re.escape(found[1])}(?![/\\?#:][^\s\w]*\w)"
    return seen.hold_alone(rest, [found[1]])


def _as_code(wanted: str, seen: _Words) -> bool:
    """`#W1234`, `HAT 136`, `INV-2026-1`: letters and digits, however they are joined; a long number
    also behind the word that its letters begin (`ORD-12345`, *order 12345*); `one_way`.
    """
    runs = _RUNS.findall(wanted)
    digits = [run for run in runs if run.isdecimal()]
    is_code = _CODE.fullmatch(wanted) and 1 < len(runs) <= CODE_RUNS_MAX
    if not is_code or not (len("".join(digits)) > 1 or "_" in wanted):
        return wanted.startswith("#") and _as_it_is(wanted[1:].strip() or wanted, seen)
    pattern = re.escape(runs[0])
    for one, following in pairwise(runs):
        is_seam = one.isdecimal() != following.isdecimal()
        pattern += "[ _-]" + "?" * is_seam + re.escape(following)
    is_word = len(runs[0]) >= CODE_LETTERS_MIN and runs[1:] == digits == runs[-1:]
    if is_word and len(runs[-1]) >= LONG_NUMBER_DIGITS:
        pattern += rf"|{re.escape(runs[0])}[^\W\d_]*{_NUMBER_WORD}{runs[-1]}"
    return seen.hold_alone(rf"#?(?:{pattern})", runs[-1:] if is_word else runs)


def _as_file(wanted: str, seen: _Words) -> bool:
    """A document of several words without its ending, however they are joined: *the packing list*;
    not *the old packing list*, *the packing list 2* or any other words behind a verb.
    """
    found = _FILE.fullmatch(wanted)
    parts = re.split("[ _-]+", found[1]) if found else []
    return bool(parts) and seen.hold_alone(rf"{_THE}{'[ _-]+'.join(parts)}{_NO_MORE}", parts)


def _accounts(text: str) -> Iterator[str]:
    """What may be an account's number: a word that follows may belong to it or not, whole."""
    for found in _IBAN.finditer(text):
        account = ""
        for group in re.split("[ -]", found[0]):
            account += group
            if len(account) in IBAN_CHARACTERS:
                yield account


def _parts_follow(wanted: str, seen: _Words) -> bool:
    parts = _WORD.findall(wanted)
    return seen.hold_alone(r"[ '’‐‑-]\s*".join(parts), parts)


def _parts_stand_together(wanted: str, seen: _Words) -> bool:
    parts = set(found := _WORD.findall(wanted))
    if not 1 < len(found) <= NAME_PARTS_MAX or not parts <= seen.places.keys():
        return False
    window = len(found) + NAME_WINDOW
    rarest = min((seen.places[one] for one in parts), key=len)
    firsts = dict.fromkeys(
        (field, first)
        for field, place in rarest
        for first in range(max(0, place - window + 1), place + 1)
        if seen.fields[field][first] in parts
    )
    return any(
        parts <= set(words := seen.fields[field][first : first + window])
        and (seen.may_hide or _begin_with_name(found, words))
        for field, first in firsts
    )


def _begin_with_name(name: list[str], words: list[str]) -> bool:
    """Whether the words, which begin with a part of the name and have all of them, are not of two
    people: *Bob Meier and Eve Miller* names no Bob Miller, but *Mia and Bob Li* a Mia Li.
    """
    parts = set(name)
    end = max(map(words.index, parts))
    return not any(
        words[place - 1] not in parts
        or (word in _AND and (words[0] != name[0] or words[place + 1] in parts))
        for place, word in enumerate(words[:end])
        if word not in parts and word in _AND | _SIGNS
    )


def _without_accents(text: str) -> str:
    bare = unicodedata.normalize("NFKD", text.translate(_ONE_LETTER))
    return "".join(one for one in bare if unicodedata.category(one) != "Mn")


def _in_two_letters(text: str) -> str:
    composed = unicodedata.normalize("NFC", text)
    return _without_accents(composed.translate(_TWO_LETTERS))


def _mark(placeholder: str) -> str:
    return without_last4(placeholder.encode()).decode()
